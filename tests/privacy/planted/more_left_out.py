"""The number of rows left out counts thirty times as many of one person as its noise covers."""

from dpsql.publishing import bounding
from tests.privacy.joints import by_name
from tests.privacy.plant import Plant

PLANT = Plant(
    "rows left out are counted further than noise covers",
    (bounding, "left_out"),
    lambda was: lambda rows, tau, most, dialect: was(rows, tau, 10 * most, dialect),
    by_name("rows left out are told"),
)
