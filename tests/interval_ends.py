"""How a standard error and the ends of its interval belong together."""

from __future__ import annotations

import math

NORMAL = 1.959964


def belong(error: float, value: float, low: float, high: float) -> bool:
    """Whether an error is half of its interval over 1.96; larger only where an end is cut to what is possible.

    A count is not below 0, a share lies between 0 and 1, an average between its measure's bounds; a number outside of
    these is its own end.
    """
    half = (high - low) / (2 * NORMAL)
    cut = low in (0.0, value) or high in (1.0, 100.0, value)
    return math.isclose(error, half, rel_tol=1e-6) or (cut and error > half)
