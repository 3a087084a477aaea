"""A unit counts once for each of its rows with a value beyond the bounds, where noise covers one."""

from dataclasses import replace

from dpsql.central import excess
from tests.privacy.joints import by_name
from tests.privacy.plant import Plant

PLANT = Plant(
    "units with values beyond bounds are counted row by row",
    (excess, "units_beyond_bounds"),
    lambda was: lambda rows, measures, dialect: was(replace(rows, unit=None), measures, dialect),
    by_name("values beyond the bounds are measured"),
)
