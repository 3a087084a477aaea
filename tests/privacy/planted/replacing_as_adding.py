"""Replacing costs as little as adding."""

from dpsql.central import plan
from tests.privacy.market import replaced
from tests.privacy.plant import Plant

PLANT = Plant(
    "replacing costs as little as adding",
    (plan, "_spend"),
    lambda was: lambda catalog, charge, norm: charge,
    replaced,
)
