"""Differences reach twice as far as noise covers."""

from dpsql.contributions import shapes
from tests.privacy.market import chosen
from tests.privacy.plant import Plant

PLANT = Plant(
    "differences reach twice as far as noise covers",
    (shapes, "make_differences"),
    lambda was: lambda *given: was(*given[:4], 4 * given[4]),
    chosen,
)
