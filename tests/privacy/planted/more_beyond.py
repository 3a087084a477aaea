"""The number of rows beyond the bound counts ten times as many of one person as its noise covers."""

from dpsql.central import bounding
from tests.privacy.joints import by_name
from tests.privacy.plant import Plant

PLANT = Plant(
    "rows beyond the bound are counted further than noise covers",
    (bounding, "beyond_bound"),
    lambda was: lambda rows, tau, most, dialect: was(rows, tau, 10 * most, dialect),
    by_name("rows beyond the bound are measured"),
)
