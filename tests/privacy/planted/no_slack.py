"""Discrete Gaussian noise is taken for continuous noise of the same variance."""

from dpsql.mechanisms import distribution
from tests.privacy.joints import by_name
from tests.privacy.plant import Plant

PLANT = Plant(
    "what being discrete costs is forgotten",
    (distribution, "gaussian_sigma2"),
    lambda was: lambda mu2, squared: was(mu2, squared) - distribution.SLACK,
    by_name("hundreds of rows, Gaussian cells"),
)
