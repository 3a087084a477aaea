"""Figures of local releases: star joins, one axis, coverage, the collector.

    python -m benchmarks.local.measure [--quick]

Every line `figure <name>: <value> (<bound>) ok|short` is one promise; the exit code is 1 if any is short.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks.figures import Figures
from benchmarks.local import axis as local_axis
from benchmarks.local import bars as local_bars
from benchmarks.local import lle as local_lle
from benchmarks.local import planes as local_planes
from benchmarks.local import rounds as local_rounds
from benchmarks.local import rows as local_rows
from benchmarks.local import star as local_star
from benchmarks.local.simulated import one_row_each
from dpsql.client import read_plan
from dpsql.local.collector import add_spool, close_collection
from dpsql.local.files import open_state
from dpsql.local.plan import CollectionDesign, PlannedAxis, build_plan
from dpsql.local.simulate import simulate_reports
from dpsql.local.tau import MANY, range_variances


def unbiased_factors(figures: Figures) -> None:
    """Variance of all ranges of one ordered axis under the plan that ships, in units of v(eps) / n at epsilon 1.

    v(eps) = 4 e^eps / (e^eps - 1)^2; levels, oracles, Square Wave and shares are those that `build_plan` writes.
    """
    unit = 4 * math.e / (math.e - 1) ** 2 / MANY
    for leaves, bound in ((25, 3.45), (64, 5.75), (125, 8.1)):
        axis = PlannedAxis("axis", leaves, smooth=leaves)
        plan = read_plan(build_plan(CollectionDesign("factors", Fraction(1), MANY, (axis,), rows_floor=1)))
        factor = range_variances(plan, MANY)[0] / unit
        figures.table(f"unbiased variance factor, {leaves} leaves (at most {bound:g})", factor)


def collector_speed(figures: Figures, reports: int) -> None:
    """Validated reports a second on one thread from Parquet, and what a replay adds."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    plan = read_plan(build_plan(local_star.design(1.0, measure=False)))
    rng = np.random.default_rng(0)
    raw = simulate_reports(plan, one_row_each(rng.integers(0, 25, size=(reports, 5))), rng)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spool.parquet"
        pq.write_table(pa.table({"report": pa.array(raw, pa.binary())}), path)
        state = open_state(plan)
        best = 0.0
        for _ in range(3):
            state = open_state(plan)
            start = time.process_time()
            accepted = add_spool(state, plan, path, b"k" * 32).accepted
            best = max(best, accepted / (time.process_time() - start))
        figures.table("collector, validated reports per processor second", best)
        figures.table("reports that a replay adds", add_spool(state, plan, path, b"k" * 32).accepted)
        figures.table("reports accepted", close_collection(state, plan)[1].accepted / reports)


PARTS = ("factors", "star", "axis", "cover", "collector", "rows", "bars", "rounds", "boxes", "lle")


def main() -> int:
    """Print all figures; 1 if any is short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs and people")
    parser.add_argument("--only", choices=PARTS, default=None)
    given = parser.parse_args()
    figures = Figures()
    wanted = [given.only] if given.only else list(PARTS)
    if "factors" in wanted:
        unbiased_factors(figures)
    if "collector" in wanted:
        collector_speed(figures, 200_000 if given.quick else 1_000_000)
    if "star" in wanted:
        local_star.counts(figures, runs=1 if given.quick else 3)
        local_star.averages(figures, runs=1 if given.quick else 3)
    if "cover" in wanted:
        local_star.coverage(figures, runs=20 if given.quick else 60)
    if "axis" in wanted:
        local_axis.adaptive_alone(figures)
        local_axis.synthetic(figures, runs=1 if given.quick else 6)
        local_axis.adult(figures, runs=1 if given.quick else 24)
        local_axis.spiky_coverage(figures, runs=4 if given.quick else 40)
    if "rows" in wanted:
        local_rows.privacy(figures)
        local_rows.ranges(figures, runs=8 if given.quick else 60)
        local_rows.two_axes(figures, runs=4 if given.quick else 24)
    if "bars" in wanted:
        local_bars.large_ranges(figures, runs=1 if given.quick else 8)
    if "rounds" in wanted:
        local_rounds.published(figures, runs=1 if given.quick else 6)
    if "boxes" in wanted:
        local_planes.five_axes(figures, runs=1 if given.quick else 6)
        local_planes.entropy_beside_sql(figures, runs=1 if given.quick else 2)
    if "lle" in wanted:
        local_lle.coverage(figures, runs=1 if given.quick else 20)
        local_lle.against_script(figures, runs=1 if given.quick else 2)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
