"""Nobody counts in how many batches a person has been."""

from dpsql.streams.state import StreamState
from tests.privacy.joints import by_name
from tests.privacy.plant import Plant

PLANT = Plant(
    "batches of a person are not counted",
    (StreamState, "count_people"),
    lambda was: lambda self, people, lifetime: None,
    by_name("a stream whose types change"),
)
