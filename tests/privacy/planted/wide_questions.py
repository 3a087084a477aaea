"""Bought rows say a smaller norm than they have, and their check is off."""

from dpsql.mechanisms.designs.workload_matrix import AskedRows
from tests.privacy.joints import by_name
from tests.privacy.plant import Plant

PLANT = Plant(
    "bought rows are twice as sensitive as they say",
    (AskedRows, "measure"),
    lambda was: lambda self, cells, strategies: 2 * was(self, cells, strategies),
    by_name("bought"),
)
