"""A stream's noise covers one batch of a person."""

from fractions import Fraction

from dpsql.streams import plan
from tests.privacy.market import streamed
from tests.privacy.plant import Plant

PLANT = Plant(
    "a stream's noise covers one batch of a person",
    (plan.StreamPlan, "price"),
    lambda was: property(lambda self: Fraction(1)),
    streamed,
)
