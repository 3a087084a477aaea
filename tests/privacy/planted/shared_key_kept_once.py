"""One row of a shared key is kept."""

from dpsql.catalog import catalog
from tests.privacy.market import shared_keys
from tests.privacy.plant import Plant

PLANT = Plant(
    "one row of a shared key is kept",
    (catalog, "is_own"),
    lambda was: lambda *_: False,
    shared_keys,
)
