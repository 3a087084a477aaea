"""Interactions of several axes: their stated error is that of the boxes that people ask for."""

from __future__ import annotations

import itertools
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from benchmarks.local.simulated import one_row_each, simulate_tallies
from dpsql.client import read_plan
from dpsql.local.estimate import axis_table, interaction, model_of, rest, table
from dpsql.local.forecast import expected_collection
from dpsql.local.parts import Estimates, grid_part, interactions
from dpsql.local.plan import CollectionDesign, PlannedAxis, build_plan
from dpsql.local.tallies import RespondentRows
from dpsql.matrices.kronecker import AxisSplit, ProductReading
from dpsql.matrices.model import PrefixVariance

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.local.star import _cover_boxes, collect, star

pytestmark = pytest.mark.usefixtures("publishes")


def test_a_grid_s_strength_covers_boxes_and_not_only_leaves() -> None:
    axes = (PlannedAxis("age", 40, 40), PlannedAxis("sex", 2, 0))
    plan = read_plan(
        build_plan(CollectionDesign("c", Fraction(1), 50_000, axes, together=((0, 1),), rows_floor=1))
    )
    collection = expected_collection(plan, 50_000, np.array([0.0, 1.0]))
    known = {a: axis_table(collection, a) for a in (0, 1)}
    part = grid_part(Estimates(collection, known), (0, 1), None)
    seen = interaction(collection, (0, 1), None)
    assert part is not None
    assert seen is not None
    models = [rest(model_of(known[a].counts)) for a in (0, 1)]
    ((noise, spreads),) = seen.noises
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


@pytest.mark.slow
def test_two_axis_intervals_hold_where_reports_leave_little_noise_but_cells_stay_coarse() -> None:
    hits: dict[str, list[bool]] = {"COUNT of boxes": []}
    for epsilon, run in itertools.product((3.0, 4.0, 5.0), range(16)):
        people = star(1_000_000, np.random.default_rng(50 + run))
        at = people.first[:-1]
        one = RespondentRows(np.arange(people.count + 1), people.leaves[at], people.measures[at])
        plan, collection = collect(epsilon, False, one, 300 + run)
        _cover_boxes(hits, one, plan, collection, {a: axis_table(collection, a) for a in (0, 3)}, run)
    assert 0.925 < np.mean(hits["COUNT of boxes"]) < 0.975, np.mean(hits["COUNT of boxes"])


def clustered(width: float, rng: np.random.Generator) -> np.ndarray:
    """200,000 rows on 40 x 40 leaves around five places; `width` is two standard deviations, in leaves."""
    centres = rng.integers(4, 36, size=(5, 2))
    drawn = centres[rng.integers(0, 5, 200_000)] + rng.normal(0, width / 2, (200_000, 2))
    return np.clip(np.rint(drawn), 0, 39).astype(np.int64)


@pytest.mark.slow
@pytest.mark.parametrize("width", [2, 8])
def test_a_pair_s_strength_tells_what_hides_inside_its_grid_s_cells(width: int) -> None:
    axes = tuple(PlannedAxis(f"a{i}", 40, 40) for i in range(2))
    design = CollectionDesign(
        "c", Fraction(2), 200_000, axes, together=((0, 1),), rows_floor=1, wave_share=Fraction(0)
    )
    plan = read_plan(build_plan(design))
    hits = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        rows = clustered(width, rng)
        exact = np.histogram2d(rows[:, 0], rows[:, 1], bins=[np.arange(41)] * 2)[0] / len(rows)
        collection = simulate_tallies(plan, one_row_each(rows), rng)
        known = {a: axis_table(collection, a) for a in (0, 1)}
        held = table((0, 1), known, interactions(Estimates(collection, known), [(0, 1)]))
        models = tuple(AxisSplit(PrefixVariance(model_of(known[a].counts))) for a in (0, 1))
        low = rng.integers(0, 40, size=(300, 2))
        high = rng.integers(low + 1, 41)
        leaf = np.arange(40)
        masks = [((leaf >= low[:, [i]]) & (leaf < high[:, [i]])).astype(float) for i in (0, 1)]
        off = np.einsum("bi,ij,bj->b", masks[0], held.values - exact, masks[1])
        variance = ProductReading(models, dict(held.strengths)).covariance(masks).noise
        hits.append(np.mean(np.abs(off) < 1.96 * np.sqrt(variance)))
    assert np.mean(hits) > 0.9, hits
