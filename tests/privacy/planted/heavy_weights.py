"""Weights add up to twice max_ids."""

from dpsql.central import bounding
from tests.privacy.market import weighed
from tests.privacy.plant import Plant

PLANT = Plant(
    "weights add up to twice max_ids",
    (bounding, "RowWeighting"),
    lambda was: lambda tau: was(2 * tau),
    weighed,
)
