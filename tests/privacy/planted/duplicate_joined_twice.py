"""A key that stands twice in a private table that nobody owns joins a row twice."""

from dpsql.central import placed_rows
from tests.privacy.joints import by_name
from tests.privacy.plant import Plant

PLANT = Plant(
    "a key that stands twice joins a row twice",
    (placed_rows, "JoinSide"),
    lambda was: lambda *given, once, **named: was(*given, once=False, **named),
    by_name("a campaign that stands twice"),
)
