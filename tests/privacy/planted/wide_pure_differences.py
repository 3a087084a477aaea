"""Differences reach twice as far as Laplace noise covers."""

from dpsql.contributions import shapes
from tests.privacy.market import chosen_pure
from tests.privacy.plant import Plant

PLANT = Plant(
    "differences reach twice as far as Laplace noise covers",
    (shapes, "make_pure_differences"),
    lambda was: lambda *given: was(*given[:4], 2 * given[4], *given[5:]),
    chosen_pure,
)
