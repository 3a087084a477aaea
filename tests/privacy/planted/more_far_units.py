"""The number of units far beyond the bound counts a unit twice, and its noise covers one."""

from dpsql.central import bounding
from tests.privacy.joints import by_name
from tests.privacy.plant import Plant

PLANT = Plant(
    "units far beyond the bound are counted twice",
    (bounding, "beyond_bound"),
    lambda was: (
        lambda rows, tau, most, dialect: was(rows, tau, most, dialect).replace(
            "THEN 1 ELSE 0", "THEN 2 ELSE 0"
        )
    ),
    by_name("rows beyond the bound are measured"),
)
