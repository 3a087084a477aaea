"""People count for twice the rows that Laplace noise covers."""

from dpsql.contributions import clipping
from tests.privacy.market import chosen_pure
from tests.privacy.plant import Plant

PLANT = Plant(
    "people count for twice the rows that Laplace noise covers",
    (clipping, "make_pure_weights"),
    lambda was: lambda *given: was(*given[:3], 2 * given[3], *given[4:]),
    chosen_pure,
)
