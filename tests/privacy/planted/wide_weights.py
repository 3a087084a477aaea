"""Weights leave twice the norm that noise covers."""

from dpsql.contributions import clipping
from tests.privacy.market import chosen
from tests.privacy.plant import Plant

PLANT = Plant(
    "weights leave twice the norm that noise covers",
    (clipping, "make_weights"),
    lambda was: lambda *given: was(*given[:3], 4 * given[3]),
    chosen,
)
