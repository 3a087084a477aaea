"""Twice max_ids rows are kept."""

from dpsql.central import bounding
from tests.privacy.market import heavy
from tests.privacy.plant import Plant

PLANT = Plant(
    "twice max_ids rows are kept",
    (bounding, "Sampled"),
    lambda was: lambda tau, coefficients: was(2 * tau, coefficients),
    heavy,
)
