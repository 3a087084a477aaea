"""Adaptive collections: a plan a round, each person in one round."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from benchmarks.local.simulated import one_row_each, simulate_tallies
from dpsql.client import Memory, Row, read_plan
from dpsql.client.entropy import system_entropy
from dpsql.errors import CatalogError, DataError
from dpsql.local.mechanisms.ahead import spread_evenly
from dpsql.local.plan import CollectionDesign, PlannedAxis
from dpsql.local.rounds import after_round, boxes_of, first_plan
from dpsql.local.tallies import empty_tallies

pytestmark = pytest.mark.usefixtures("publishes")


def design(sizes: tuple[int, ...], people: int) -> CollectionDesign:
    return CollectionDesign(
        "adaptive", Fraction(1), people, tuple(PlannedAxis(f"a{i}", s, s) for i, s in enumerate(sizes))
    )


@pytest.mark.parametrize("sizes", [(32,), (16, 16), (8, 8, 8)])
def test_rounds_refine_where_people_are(sizes: tuple[int, ...]) -> None:
    rng, people = np.random.default_rng(3), 400_000
    leaves = np.stack([np.minimum(rng.geometric(4 / s, people) - 1, s - 1) for s in sizes], axis=1)
    plan, parts = read_plan(first_plan(design(sizes, people))), np.array_split(np.arange(people), 5)
    tallies = simulate_tallies(plan, one_row_each(leaves[parts[0]]), rng)
    while plan.round + 1 < plan.rounds:
        plan = read_plan(after_round(plan, tallies[0]))
        tallies = simulate_tallies(plan, one_row_each(leaves[parts[plan.round]]), rng)
    with pytest.raises(DataError, match="was the last"):
        after_round(plan, tallies[0])
    played, _, positive, _ = boxes_of(plan, tallies)
    found = spread_evenly(played[-1].boxes, positive, sizes)
    exact = np.histogramdd(leaves, bins=[np.arange(s + 1) for s in sizes])[0] / people
    half = tuple(slice(0, s // 2) for s in sizes)
    assert found.shape == sizes
    assert found.sum() == pytest.approx(1)
    assert abs(found[half].sum() - exact[half].sum()) < 0.05


def test_a_device_answers_in_its_own_round_only(tmp_path: Path) -> None:
    plan = read_plan(first_plan(design((64,), 1000)))
    said = [
        Memory(tmp_path / f"{i}" / "memory", Fraction(1), Fraction(1)).answer(
            plan, [Row((5,))], system_entropy
        )
        for i in range(30)
    ]
    assert any(r is None for r in said)


def test_rounds_need_an_axis_and_reports() -> None:
    with pytest.raises(CatalogError):
        first_plan(design((), 10))
    plan = read_plan(first_plan(design((8,), 10)))
    with pytest.raises(DataError):
        after_round(plan, empty_tallies(plan)[0])


def test_the_client_loads_the_standard_library_alone() -> None:
    code = (
        "import sys, dpsql.client, dpsql.client.rows; "
        "print(sorted({'numpy', 'duckdb', 'pandas', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
