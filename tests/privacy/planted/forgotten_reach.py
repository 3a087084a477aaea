"""A sum's noise forgets how far one row may lie from the middle of its bounds."""

from dpsql.central.planned import Bounds
from tests.privacy.joints import by_name
from tests.privacy.plant import Plant

PLANT = Plant(
    "a sum's noise is that of a count",
    (Bounds, "reach"),
    lambda was: property(lambda self: 1),
    by_name("a row"),
)
