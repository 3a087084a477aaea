"""A total is clipped at twice its bound."""

from dpsql.contributions import selection
from tests.privacy.market import chosen
from tests.privacy.plant import Plant

PLANT = Plant(
    "a total is clipped at twice its bound",
    (selection, "clipped_total"),
    lambda was: lambda *given: was(*given[:3], 2 * given[3]),
    chosen,
)
