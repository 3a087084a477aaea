"""Smooth log shares plus a few spikes: the prior of columns that people round, or where one value is everybody's.

A difference penalty alone must choose: smooth a spike away, or leave all the noise around it. Here the log shares
are a sum of two parts; the smooth one pays for bending, the other pays for every leaf where it is not zero, so that
a spike costs what it costs once and does not bend its neighbours. All of it is post-processing.

| here    | there                                    | unit |
|---------|------------------------------------------|------|
| `even`  | u, log shares under w |D^k u|^2 / 2      | |
| `tall`  | s, spikes under v sum sqrt(s^2 + SOFT^2) | |
| logs    | u + s                                    | |
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsql.mechanisms.local.blue import System
from dpsql.mechanisms.local.logs import SOFT, difference, misfit
from dpsql.mechanisms.oracles.oracle import FloatArray

STEPS = 120
LONGEST = 4.0
"""Longest step of a log share."""


class Spiky(NamedTuple):
    """One prior: order and weight of the smooth part's difference, weight of the spikes' absolute values."""

    order: int
    weight: float
    spike: float


class _Point(NamedTuple):
    """Both parts and what the fit looks like there."""

    even: FloatArray
    tall: FloatArray
    value: float
    slope: FloatArray
    curve: FloatArray
    bend: FloatArray


def spiky_smooth(equations: System, prior: Spiky, smooth: int, start: FloatArray) -> FloatArray:
    """Fit log shares as a smooth part plus spikes, by Gauss-Newton steps with Levenberg damping.

    Args:
        equations: normal equations of the groups.
        prior: the prior.
        smooth: leading leaves that the smooth part's penalty covers.
        start: log shares to start from.

    Returns:
        The fitted log shares.
    """
    rough = difference(start.size, prior.order, smooth)
    stiff = prior.weight * rough.T @ rough
    here = _look(equations, prior, stiff, start - start.mean(), np.zeros_like(start))
    damping = 1e-3
    for _ in range(STEPS):
        even, tall = _step(here, prior, stiff, damping)
        tried = _look(equations, prior, stiff, here.even + even, here.tall + tall)
        if tried.value <= here.value:
            done = here.value - tried.value < 1e-9 * (1 + abs(here.value))
            here, damping = tried, max(damping / 5, 1e-9)
            if done:
                break
        else:
            damping *= 4
            if damping > 1e8:
                break
    return here.even + here.tall


def _look(equations: System, prior: Spiky, stiff: FloatArray, even: FloatArray, tall: FloatArray) -> _Point:
    even = even - even.mean()
    value, slope, curve = misfit(equations, even + tall)
    bend = stiff @ even
    value += float(even @ bend) / 2 + prior.spike * float(np.sqrt(tall**2 + SOFT**2).sum())
    return _Point(even, tall, value, slope, curve, bend)


def _step(here: _Point, prior: Spiky, stiff: FloatArray, damping: float) -> tuple[FloatArray, FloatArray]:
    """Step of both parts; the spikes' own equations are diagonal, so they are solved for and put in."""
    mean = float(np.diag(here.curve).mean())
    curve = here.curve + np.diag(damping * np.diag(here.curve) + mean * max(1e-3 * damping, 1e-10))
    stiff = stiff + np.diag(damping * np.diag(stiff))
    size = np.sqrt(here.tall**2 + SOFT**2)
    give = size / (prior.spike * (1 + damping))  # inverse curvature of each spike's penalty
    ahead = here.bend - prior.spike * here.tall / size
    # A constant added to all logs changes nothing; the mean on every entry fixes that direction.
    both = curve + stiff + (curve * give) @ stiff + mean
    even = np.linalg.solve(both, -here.slope - here.bend - curve @ (give * ahead))
    tall = give * (stiff @ even + ahead)
    reach = max(float(np.abs(even).max()), float(np.abs(tall).max()), LONGEST)
    return np.asarray(even * (LONGEST / reach)), np.asarray(tall * (LONGEST / reach))
