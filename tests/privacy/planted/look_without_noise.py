"""The strategy of a view is chosen by the true number of rows and of cells that are full."""

import math

import numpy as np

from dpsql.mechanisms.designs import adaptive
from tests.privacy.joints import by_name
from tests.privacy.plant import Plant


def true_signal(counts, epsilon, sensitivity, noise):  # type: ignore[no-untyped-def]
    clip = math.ceil(adaptive.CLIP * sensitivity / epsilon)
    return adaptive.Signal(np.array([counts.sum(), np.clip(counts, -clip, clip).sum()], np.int64), clip)


PLANT = Plant(
    "a strategy is chosen by true numbers",
    (adaptive, "noisy_signal"),
    lambda was: true_signal,
    by_name("a noisy signal, then a tree"),
)
