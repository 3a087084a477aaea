"""The noise of one level of a tree has half its scale."""

import numpy as np

from dpsql.mechanisms import distribution
from tests.privacy.joints import by_name
from tests.privacy.plant import Plant


def doubled(units: np.ndarray) -> np.ndarray:
    """The smallest budgets are one level's."""
    return np.where(units == units.min(), 2 * units, units)


PLANT = Plant(
    "the noise of one level is halved",
    (distribution, "combine"),
    lambda was: lambda cap, axes: doubled(was(cap, axes)),
    by_name("shared keys, a tree"),
)
