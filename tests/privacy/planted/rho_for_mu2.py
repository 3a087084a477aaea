"""Views have the noise of rho = mu^2."""

from dpsql.contributions import clipping
from tests.privacy.market import chosen
from tests.privacy.plant import Plant

PLANT = Plant(
    "views have the noise of rho = mu^2",
    (clipping, "whitened_draw"),
    lambda was: lambda table, whitening, clip, mu2: was(table, whitening, clip, 2 * mu2),
    chosen,
)
