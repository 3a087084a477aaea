"""Log shares: what every smooth fit shares, whatever its penalty.

| here      | there                                   | unit |
|-----------|-----------------------------------------|------|
| logs      | theta, x = softmax(theta)               | |
| `misfit`  | x'Qx / 2 - g'x, slope and curvature in theta | half squared standard errors |
"""

from __future__ import annotations

import numpy as np

from dpsql.mechanisms.local.blue import System
from dpsql.mechanisms.oracles.oracle import FloatArray

SOFT = 1e-2
"""Differences and spikes of log shares below this count as none for the absolute-value penalties."""


def softmax(logs: FloatArray) -> FloatArray:
    """Shares proportional to exp(logs)."""
    grown = np.exp(logs - logs.max())
    return np.asarray(grown / grown.sum())


def difference(size: int, order: int, smooth: int) -> FloatArray:
    """Difference matrix along the first `smooth` of `size` leaves; special leaves at the end stay free."""
    inner = np.asarray(np.diff(np.eye(smooth), order, axis=0))
    return np.asarray(np.hstack([inner, np.zeros((inner.shape[0], size - smooth))]), dtype=np.float64)


def misfit(equations: System, logs: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Value, slope and Gauss-Newton curvature of the least squares at softmax(logs), up to a constant."""
    shares = softmax(logs)
    push = equations.precision @ shares
    value = float(shares @ push / 2 - equations.pull @ shares)
    residual = push - equations.pull
    slope = shares * (residual - float(shares @ residual))
    held = shares * push
    curve = shares[:, None] * equations.precision * shares[None, :]
    curve += float(shares @ push) * np.outer(shares, shares) - np.outer(held, shares) - np.outer(shares, held)
    return value, slope, curve
