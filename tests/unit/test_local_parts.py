"""Interactions of several axes: their stated error is that of the boxes that people ask for."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

from dpsql.client import read_plan
from dpsql.collecting.estimate import axis_table, interaction, model_of, rest
from dpsql.collecting.parts import grid_part
from dpsql.collecting.plan import Design, PlannedAxis, build_plan
from dpsql.collecting.predict import expected_tallies


def test_a_grid_s_strength_covers_boxes_and_not_only_leaves() -> None:
    axes = (PlannedAxis("age", 40, 40), PlannedAxis("sex", 2, 0))
    plan = read_plan(build_plan(Design("c", Fraction(1), 50_000, axes, together=((0, 1),), rows_floor=1)))
    tallies = expected_tallies(plan, 50_000)
    known = {a: axis_table(plan, tallies, a) for a in (0, 1)}
    part = grid_part(plan, tallies, (0, 1), known, None)
    seen = interaction(plan, tallies, (0, 1), None)
    assert part is not None
    assert seen is not None
    models = [rest(model_of(known[a].counts)) for a in (0, 1)]
    ((noise, spreads),) = seen[1]
    exact = [rest(s @ s.T) for s in spreads]
    held = []
    for low, high in itertools.combinations(range(0, 41, 5), 2):
        masks = [np.zeros(40), np.array([1.0, 0.0])]
        masks[0][low:high] = 1
        own = noise * np.prod([m @ e @ m for m, e in zip(masks, exact, strict=True)])
        told = part.strength * np.prod([m @ e @ m for m, e in zip(masks, models, strict=True)])
        if (low, high) != (0, 40):
            held.append(told / own)
    assert np.mean(np.array(held) > 0.9) > 0.6
    assert np.median(held) < 4
