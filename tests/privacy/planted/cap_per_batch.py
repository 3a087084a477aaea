"""A person counts in every batch: the cap of a stream's life is asked of each batch alone."""

import numpy as np

from dpsql.streams.state import StreamState
from tests.privacy.market import streamed
from tests.privacy.plant import Plant

PLANT = Plant(
    "a person's batches are capped one by one",
    (StreamState, "admitted"),
    lambda was: lambda self, people, lifetime: np.ones(len(people), dtype=np.bool_),
    streamed,
)
