"""Joint population of several releases: the population that a local one represents, and one table from all of
them.

| word | respondents | beside a central release | alone |
|---|---|---|---|
| `all` | the population | unless the test rejects it, an alternative; may be combined | counts, exactly |
| `random` | a sample | unless the test rejects it, scaled; may be combined | scaled where `everybody` is declared |
| `unknown` | nobody says | answers only what nothing else can | counts of the respondents |

**Test.** `dpsql.federation.respondents` compares respondents with the population. Where it rejects, they are weighted
to the population's margins (`dpsql.federation.respondents`) and answer what nothing else can, or answer for themselves
alone.

**Together.** Two tables x, z of the same cells with covariances A, B and Cov(x, z) = C have the best linear mean
x + K (z - x), K = (A - C) (A + B - C - C')^-1, with covariance A - K (A - C)'. It is linear in the cells, so parts add
up to the whole. A local table was scaled by a total that came from a central one: that is where C comes from. Past
LARGEST cells all cells share one weight, which is linear too.

**Privacy**: post-processing; public numbers alone.

**Source**: docs/method/local.md, "Releases of one population together".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dpsql.catalog.base import COUNT
from dpsql.federation.respondents import RANK, Sample, scaled_to
from dpsql.federation.tables import ViewTable, axis_keys, read_table, release_of, scaled
from dpsql.matrices.pooled import Piece, TotalInfluence
from dpsql.planner.plan import views_of
from dpsql.release import Release
from dpsql.release.promises import independent
from dpsql.release.reports import StandsFor
from dpsql.tree import random_boxes

LARGEST = 1024
"""Numbers up to which cells are weighed one by one: solving takes a second there."""


def as_everybody(sample: Sample) -> Release | None:
    """A random sample's release with its counts and sums scaled to everybody; None where nobody says how many."""
    tables, stands_for = [], None
    for view in views_of(sample.release):
        table = read_table(sample.release, view)
        everybody = None if table is None or table.total <= 0 else sample.everybody(table)
        if table is not None and everybody is not None:
            tables.append(scaled(table, everybody))
            stands_for = StandsFor(everybody.rows, everybody.error, everybody.source)
    if stands_for is None:
        return None
    meta = replace(sample.release.meta, local=replace(sample.local, stands_for=stands_for), scales=())
    return release_of(tables, meta)


Crossed = Callable[[str, str], tuple[Piece, ...]]
"""Cov(left a, right b) of two tables, by their measures a and b."""


def together(left: ViewTable | None, right: ViewTable, *, scaled_by_left: bool = False) -> ViewTable:
    """The best linear mean: cell by cell in one solution up to LARGEST numbers, else by one weight.

    Args:
        left, right: tables of the same cells; the right one as it is where there is no other.
        scaled_by_left: whether the right one was scaled by the left one's total, whose error is not in its errors yet.
    """
    if left is None:
        return right
    # counts first; sums of different scales do not match
    held = right.measures
    measures = [m for m, s in left.measures.items() if m in held and held[m].scale == s.scale]
    relative = math.sqrt(left.total_variance) / left.total if scaled_by_left else 0.0
    first, second = left.only(measures), right.sharing(relative).only(measures)

    def crossed(a: str, b: str) -> tuple[Piece, ...]:
        if not scaled_by_left:
            return ()
        return (Piece(TotalInfluence(first.with_count(a), second.values[b] / first.total)),)

    if first.cells > LARGEST:
        return _by_one_weight(first, second, crossed)
    a, b = first.stacked(measures), second.stacked(measures)
    c = np.block([[first.matrix(crossed(m, n)) for n in measures] for m in measures])
    x, z = (np.concatenate([t.values[m].ravel() for m in measures]) for t in (first, second))
    unit = np.sqrt(np.maximum(np.diag(a), np.diag(a).max() * 1e-12))  # rows and cents do not mix well
    gain = (a - c) / np.outer(unit, unit)
    apart = (a + b - c - c.T) / np.outer(unit, unit)
    k = gain @ np.linalg.pinv((apart + apart.T) / 2, rcond=RANK, hermitian=True)
    mean = x + unit * (k @ ((z - x) / unit))
    spread = a - np.outer(unit, unit) * (k @ gain.T)
    return first.measured(mean, (spread + spread.T) / 2)


def _by_one_weight(left: ViewTable, right: ViewTable, crossed: Crossed) -> ViewTable:
    """The weight with the least mean variance of boxes of the counts."""
    boxes = random_boxes(left.shape)
    pieces = (left.errors[COUNT, COUNT], right.errors[COUNT, COUNT], crossed(COUNT, COUNT))
    a, b, c = (
        float(np.mean(sum((p.between(boxes, boxes) for p in summands), np.zeros(1)))) for summands in pieces
    )
    w = float(np.clip((b - c) / max(a + b - 2 * c, 1e-300), 0.0, 1.0))
    errors = {}
    for m, n in left.pairs():
        errors[m, n] = (
            *(p.times(w * w) for p in left.errors[m, n]),
            *(p.times((1 - w) ** 2) for p in right.errors[m, n]),
            *(p.times(w * (1 - w)) for p in (*crossed(m, n), *(p.transposed() for p in crossed(n, m)))),
        )
    values = {m: w * left.values[m] + (1 - w) * right.values[m] for m in left.measures}
    return replace(left, values=values, errors=errors)


POOL = "pooled"
"""The catalog's name of a table of several releases: no release is asked by it."""


Pool = tuple[Release, tuple[str, ...]]
"""One table from several releases: the table as a release in memory, and whose reports and rows are in it."""


def pools(centrals: Sequence[Release], samples: Sequence[Sample], called: Mapping[str, str]) -> list[Pool]:
    """Every table that two releases or more hold together, the widest first.

    Args:
        centrals: releases about everybody, local ones of a census included.
        samples: random samples that no test rejects.
        called: release id -> name.

    Returns:
        One pool for each set of common axes.
    """
    everyone = [*centrals, *(sample.release for sample in samples)]
    if len(everyone) < 2 or not independent([release.meta for release in everyone]):
        return []
    pooled: list[Pool] = []
    covered: list[tuple[str, frozenset[object]]] = []
    for first in everyone:
        for second in everyone[everyone.index(first) + 1 :]:
            # Tables that views of both releases count, with the keys of the axes that a pair has in common, most
            # first.
            shared = []
            for left_view in views_of(first):
                for right_view in views_of(second):
                    if left_view.of.lower() != right_view.of.lower():
                        continue
                    right_keys = axis_keys(second, right_view)
                    common = tuple(key for key in axis_keys(first, left_view) if key in right_keys)
                    if common:
                        shared.append((left_view.of.lower(), common))
            for of, keys in sorted(shared, key=lambda pair: -len(pair[1])):
                if any(of == o and set(keys) <= k for o, k in covered):
                    continue
                covered.append((of, frozenset(keys)))
                pool = _pool(of, keys, centrals, samples, called)
                if pool is not None:
                    pooled.append(pool)
    return pooled


def _pool(
    of: str,
    keys: Sequence[tuple[object, ...]],
    centrals: Sequence[Release],
    samples: Sequence[Sample],
    called: Mapping[str, str],
) -> Pool | None:
    """All tables on some axes: those about everybody first, then samples scaled by what they say together."""
    population_table: ViewTable | None = None
    names: list[str] = []
    for release in centrals:
        table = _on(release, of, keys)
        if table is not None and not release.meta.left_out(table.of):
            population_table = together(population_table, table)
            names.append(called[release.meta.release_id])
    few: ViewTable | None = None
    for sample in samples:
        table = _on(sample.release, of, keys)
        unknown = population_table is None and sample.local.everybody is None
        if table is None or table.total <= 0 or unknown or sample.release.meta.left_out(table.of):
            continue
        scaled_table = scaled_to(sample, table, population_table or table)[0]
        if sample.local.everybody is not None:
            population_table = together(population_table, scaled_table)
        else:
            few = together(few, scaled_table)
        names.append(called[sample.release.meta.release_id])
    if len(names) < 2 or population_table is None:
        return None
    best = population_table if few is None else together(population_table, few, scaled_by_left=True)
    base = population_table.release
    title = f"{best.of} of {' and '.join(names)}"
    catalog = {**base.meta.catalog, "name": POOL}
    meta = replace(base.meta, catalog=catalog, local=None, scales=(), bounding=(), stream=None)
    return release_of([replace(best, view=title)], meta), tuple(names)


def _on(release: Release, of: str, keys: Sequence[tuple[object, ...]]) -> ViewTable | None:
    """A release's table on some axes, from its view with the fewest cells that has them."""
    for view in sorted(views_of(release), key=lambda view: view.cells):
        if view.of.lower() == of:
            where = {key: position for position, key in enumerate(axis_keys(release, view))}
            if all(key in where for key in keys):
                return read_table(release, view, [where[key] for key in keys])
    return None
