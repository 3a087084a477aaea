"""A person stands in two bins."""

from dpsql.contributions import selection
from tests.privacy.market import chosen
from tests.privacy.plant import Plant

PLANT = Plant(
    "a person stands in two bins",
    (selection, "people_per_bin"),
    lambda was: lambda *given: 2 * was(*given),
    chosen,
)
