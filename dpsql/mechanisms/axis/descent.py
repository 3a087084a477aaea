"""Minimise a smooth function of many variables: limited-memory BFGS with backtracking."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from dpsql.tree import FloatArray

Objective = Callable[[FloatArray], tuple[float, FloatArray]]


def minimise(
    objective: Objective, start: FloatArray, steps: int = 100, memory: int = 8
) -> tuple[FloatArray, float]:
    """A local minimum near `start`.

    Args:
        objective: x, shape (d,) -> (value, gradient of shape (d,)).
        start: shape (d,).
        steps: most steps taken; fewer when progress falls under 1e-9 of the value.
        memory: steps that curvature is read from.

    Returns:
        The point, shape (d,), and its value; never worse than the start.

    >>> point, value = minimise(lambda x: (float(x @ x), 2 * x), np.ones(3))
    >>> value < 1e-12
    True
    """
    point, (value, slope) = start, objective(start)
    pairs: deque[tuple[FloatArray, FloatArray]] = deque(maxlen=memory)
    for _ in range(steps):
        way = -_newton(slope, pairs)
        descent = float(way @ slope)
        if descent >= 0:
            pairs.clear()
            way, descent = -slope, -float(slope @ slope)
        length = 1.0 if pairs else 1.0 / max(1e-12, float(np.abs(slope).max()))
        found = _backtrack(objective, point, value, length * way, length * descent)
        if found is None:
            break
        ahead, new_value, new_slope = found
        step, bend = ahead - point, new_slope - slope
        if float(step @ bend) > 1e-12 * float(np.linalg.norm(step) * np.linalg.norm(bend)):
            pairs.append((step, bend))
        gained, point, value, slope = value - new_value, ahead, new_value, new_slope
        if gained <= 1e-9 * abs(value):
            break
    return point, value


def _backtrack(
    objective: Objective, point: FloatArray, value: float, step: FloatArray, descent: float
) -> tuple[FloatArray, float, FloatArray] | None:
    """Halve the step until it gains a part of what the slope promises; None if it never does."""
    for _ in range(30):
        ahead = point + step
        new_value, new_slope = objective(ahead)
        if new_value <= value + 1e-4 * descent:
            return ahead, new_value, new_slope
        step, descent = step / 2, descent / 2
    return None


def _newton(slope: FloatArray, pairs: deque[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """The inverse of the curvature seen so far, applied to the slope (two-loop recursion)."""
    way, used = slope.copy(), []
    for step, bend in reversed(pairs):
        rate = float(step @ way) / float(step @ bend)
        used.append(rate)
        way -= rate * bend
    if pairs:
        step, bend = pairs[-1]
        way *= float(step @ bend) / float(bend @ bend)
    for (step, bend), rate in zip(pairs, reversed(used), strict=True):
        way += (rate - float(bend @ way) / float(step @ bend)) * step
    return way
