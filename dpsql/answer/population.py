"""What releases of one population say together: whom a local one stands for, a test of that, one table from all.

| word | who reported | beside a central release | alone |
|---|---|---|---|
| `all` | everybody | an alternative; may be combined | counts, exactly |
| `random` | a sample | unless the test rejects it, scaled; may be combined | scaled where `everybody` is declared |
| `unknown` | nobody says | answers only what nothing else can | counts of those who reported |

**Test.** Central and scaled local cells differ by d. d' Cov(d)^-1 d is chi-squared if the sample is random, and no cell
is far off. It is free: both tables are public. Whoever reported because of what is asked does not pass.

**Together.** Two tables x, z of the same cells with covariances A, B and Cov(x, z) = C have the best linear mean
x + K (z - x), K = (A - C) (A + B - C - C')^-1, with covariance A - K (A - C)'. It is linear in the cells, so parts add
up to the whole. A local table was scaled by a total that came from a central one: that is where C comes from. Past
LARGEST cells all cells share one weight, which is linear too.

**Privacy**: post-processing; public numbers alone.

**Source**: docs/method/local.md, "Releases of one population together".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from dpsql.answer.combine import independent
from dpsql.answer.errorbars import LAPLACE_KURTOSIS, quantile
from dpsql.answer.leafsets import FloatArray
from dpsql.answer.plan import View, views_of
from dpsql.answer.tables import COUNT, Everybody, Table, places, read_table, release_of, sampled, scaled
from dpsql.release import Release
from dpsql.release.reports import LocalMeta, StandsFor
from dpsql.variance.pooled import Lean, Piece

LARGEST = 1024
"""Numbers up to which cells are weighed one by one: solving takes a second there."""
LEVEL = 0.01
FAR = 3.3
"""Standard errors by which no single cell may differ, of up to ten cells; of more, what leaves the same chance."""
RANK = 1e-9
"""Directions of a covariance with less than this part of the largest are known exactly: they are no evidence."""


class Tested(NamedTuple):
    """The test of a random sample against a central release.

    Args:
        local, central: their names.
        statistic, freedom: of chi-squared, on the table with the smallest chance.
        chance: of a statistic as large, times the number of tables tested.
        farthest: the cell that is farthest off, in standard errors.
        rejected: whether the sample is not taken for a random one.
    """

    local: str
    central: str
    statistic: float
    freedom: int
    chance: float
    farthest: float
    rejected: bool


def chi_squared_tail(value: float, freedom: float) -> float:
    """Chance that chi-squared is larger, by Wilson and Hilferty's cube root.

    >>> round(chi_squared_tail(27.59, 17), 3)
    0.05
    """
    if freedom <= 0:
        return 1.0
    spread = 2 / (9 * freedom)
    return 1 - NormalDist().cdf(((max(value, 0.0) / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def farthest_allowed(cells: int, kurtosis: float = 0.0) -> float:
    """Standard errors that no cell of a random sample's table passes, but with a chance of 1%.

    Args:
        cells: how many are looked at.
        kurtosis: excess kurtosis of what they differ by.

    >>> round(farthest_allowed(4), 1), round(farthest_allowed(1000), 1)
    (3.3, 4.4)
    """
    return max(FAR, quantile(1 - LEVEL / max(cells, 1), kurtosis))


class Difference(NamedTuple):
    """How two tables of one count differ.

    Args:
        statistic, freedom: chi-squared and its degrees of freedom.
        farthest, cells: the cell that is farthest off, in standard errors, and how many there are.
        kurtosis: excess kurtosis of a cell's difference.
    """

    statistic: float
    freedom: int
    farthest: float
    cells: int
    kurtosis: float

    @property
    def chance(self) -> float:
        """Chance of a statistic as large. Tails of single Laplace draws widen chi-squared: its variance is
        freedom (2 + kurtosis), as that of c times chi-squared with freedom / c, c = 1 + kurtosis / 2."""
        wide = 1 + self.kurtosis / 2
        return chi_squared_tail(self.statistic / wide, self.freedom / wide)


def difference(apart: FloatArray, covariance: FloatArray, laplace: FloatArray) -> Difference:
    """How far a vector of known covariance is from 0.

    Args:
        apart: d, shape (n,).
        covariance: of d, shape (n, n).
        laplace: the part of each cell's variance that single Laplace draws may have made, shape (n,).
    """
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    seen = values > RANK * max(float(values[-1]), 1e-300)
    along = vectors.T @ apart
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    single = np.divide(np.abs(apart), spread, out=np.zeros_like(spread), where=spread > 0)
    return Difference(
        float(np.sum(along[seen] ** 2 / values[seen])),
        int(seen.sum()),
        float(single.max(initial=0.0)),
        len(apart),
        float(LAPLACE_KURTOSIS * np.mean(np.minimum(laplace, 1.0) ** 2)),
    )


@dataclass(frozen=True, eq=False)
class Sample:
    """A local release of a random sample.

    Args:
        release: the release.
        local: what it says of its collection.
        central: who counts everybody, where the catalog does not.
    """

    release: Release
    local: LocalMeta
    central: Release | None

    @property
    def people(self) -> float:
        """How many reported."""
        return float(self.local.reporters)

    def everybody(self, table: Table) -> Everybody | None:
        """How many rows of a table everybody has: declared, else by the central release; None if nobody says."""
        if self.local.everybody is not None:
            return Everybody(self.local.everybody * table.total / self.people, 0.0, "declared")
        found = None if self.central is None else best_total(self.central, table.of)
        return found if found is not None and found.rows > 3 * found.error else None


def best_total(release: Release, of: str) -> Everybody | None:
    """A release's best count of all rows of a table."""
    found = []
    for view in views_of(release):
        table = read_table(release, view, ()) if view.of.lower() == of.lower() else None
        if table is not None:
            found.append(Everybody(table.total, math.sqrt(table.total_variance), release.name))
    return min(found, key=lambda each: each.error, default=None)


def as_everybody(sample: Sample) -> Release | None:
    """A random sample's release with its counts and sums scaled to everybody; None where nobody says how many."""
    tables, told = [], None
    for view in views_of(sample.release):
        table = read_table(sample.release, view)
        whole = None if table is None or table.total <= 0 else sample.everybody(table)
        if table is not None and whole is not None:
            tables.append(scaled(table, whole))
            told = StandsFor(whole.rows, whole.error, whole.source)
    if told is None:
        return None
    meta = replace(sample.release.meta, local=replace(sample.local, stands_for=told), scales=())
    return release_of(tables, meta)


class Overlap(NamedTuple):
    """Axes that a view of one release has in common with a view of another, by their positions in both."""

    left: View
    right: View
    of_left: tuple[int, ...]
    of_right: tuple[int, ...]


def overlaps(left: Release, right: Release) -> list[Overlap]:
    """Every pair of views of two releases that count the same table and have an axis in common, the widest first."""
    found = []
    for one in views_of(left):
        for other in views_of(right):
            if one.of.lower() != other.of.lower():
                continue
            theirs = {place.key: place.position for place in places(right, other)}
            both = [(p.position, theirs[p.key]) for p in places(left, one) if p.key in theirs]
            if both:
                found.append(Overlap(one, other, tuple(a for a, _ in both), tuple(b for _, b in both)))
    return sorted(found, key=lambda each: -len(each.of_left))


def is_random(sample: Sample, central: Release) -> Tested | None:
    """Whether those who reported differ from everybody on what both releases tell; None where they tell nothing alike.

    Args:
        sample: the local release.
        central: a release of everybody.
    """
    worst: tuple[float, Difference, bool] | None = None
    seen: set[object] = set()
    differences = []
    for overlap in overlaps(central, sample.release):
        keys = [places(central, overlap.left)[i].key for i in overlap.of_left]
        tried = frozenset(keys)
        if any(tried <= each for each in seen if isinstance(each, frozenset)):
            continue
        seen.add(tried)
        differences += _differences(sample, central, overlap)
    for each in differences:
        chance = each.chance * len(differences)
        most = farthest_allowed(each.cells * len(differences), each.kurtosis)
        rejected = chance < LEVEL or each.farthest > most
        if worst is None or (rejected, -chance) > (worst[2], -worst[0]):
            worst = chance, each, rejected
    if worst is None:
        return None
    chance, far, rejected = worst
    return Tested(
        sample.release.name, central.name, round(far.statistic, 3), far.freedom, min(1.0, chance),
        round(far.farthest, 3), rejected,
    )  # fmt: skip


def _differences(sample: Sample, central: Release, overlap: Overlap) -> list[Difference]:
    """Of the common table where it is small, else of each of its axes."""
    sizes = [central.axes[overlap.left.axes[i]].leaves for i in overlap.of_left]
    pairs = list(zip(overlap.of_left, overlap.of_right, strict=True))
    parts = [pairs] if math.prod(sizes) <= LARGEST else [[pair] for pair in pairs]
    found = []
    for part in parts:
        left = read_table(central, overlap.left, [a for a, _ in part])
        right = read_table(sample.release, overlap.right, [b for _, b in part])
        if left is None or right is None or right.total <= 0 or math.prod(left.shape) > 4 * LARGEST:
            continue
        pair = Pair(left.only([COUNT]), *_scaled_by(sample, right.only([COUNT]), left))
        apart, spread = pair.apart()
        own = stacked(pair.left, [COUNT]).diagonal() if pure(central) else np.zeros(len(apart))
        found.append(difference(apart, spread, own / np.maximum(spread.diagonal(), 1e-300)))
    return found


def pure(release: Release) -> bool:
    """Whether a release's noise is Laplace's."""
    return release.meta.local is None and not release.meta.privacy.mu2


def _scaled_by(sample: Sample, table: Table, whole: Table) -> tuple[Table, bool]:
    """A sample's table with everybody's rows declared, else those of a central table; and whether they are its."""
    declared = sample.everybody(table) if sample.local.everybody is not None else None
    rows = declared or Everybody(whole.total, math.sqrt(whole.total_variance), whole.release.name)
    return sampled(table, rows), declared is None


@dataclass(frozen=True, eq=False)
class Pair:
    """Two tables of the same cells.

    Args:
        left, right: the tables.
        leans: whether the right one was scaled by the left one's total, whose error is not in its errors yet.
    """

    left: Table
    right: Table
    leans: bool = False

    def crossed(self, a: str, b: str) -> tuple[Piece, ...]:
        """Cov(left a, right b)."""
        if not self.leans:
            return ()
        return (Lean(self.left.with_count(a), self.right.values[b] / self.left.total),)

    def right_errors(self) -> Table:
        """The right table with all of its errors."""
        return self.right.sharing(
            math.sqrt(self.left.total_variance) / self.left.total if self.leans else 0.0
        )

    @property
    def measures(self) -> list[str]:
        """What both hold, counts first; sums of other scales are not the same."""
        theirs = self.right.measures
        return [m for m, s in self.left.measures.items() if m in theirs and theirs[m].scale == s.scale]

    def matrices(self, measures: Sequence[str]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """A, B and C over the cells of some measures, one after the other."""
        right = self.right_errors()
        crossed = np.block([[_sum(self.crossed(a, b), self.left) for b in measures] for a in measures])
        return stacked(self.left, measures), stacked(right, measures), crossed

    def apart(self) -> tuple[FloatArray, FloatArray]:
        """x - z of the counts, and its covariance."""
        a, b, c = self.matrices([COUNT])
        return (self.left.values[COUNT] - self.right.values[COUNT]).ravel(), a + b - c - c.T

    def together(self) -> Table:
        """The best linear mean: cell by cell in one solution up to LARGEST numbers, else by one weight."""
        measures = self.measures
        left, right = self.left.only(measures), self.right_errors().only(measures)
        if left.cells > LARGEST:
            return self._by_one_weight(left, right)
        a, b, c = self.matrices(measures)
        x, z = (np.concatenate([t.values[m].ravel() for m in measures]) for t in (left, right))
        unit = np.sqrt(np.maximum(np.diag(a), np.diag(a).max() * 1e-12))  # rows and cents do not mix well
        gain = (a - c) / np.outer(unit, unit)
        apart = (a + b - c - c.T) / np.outer(unit, unit)
        k = gain @ np.linalg.pinv((apart + apart.T) / 2, rcond=RANK, hermitian=True)
        mean = x + unit * (k @ ((z - x) / unit))
        spread = a - np.outer(unit, unit) * (k @ gain.T)
        return left.measured(mean, (spread + spread.T) / 2)

    def _by_one_weight(self, left: Table, right: Table) -> Table:
        """The weight with the least mean variance of boxes of the counts."""
        boxes = _boxes(left.shape)
        pieces = (left.errors[COUNT, COUNT], right.errors[COUNT, COUNT], self.crossed(COUNT, COUNT))
        a, b, c = (
            float(np.mean(sum((p.between(boxes, boxes) for p in part), np.zeros(1)))) for part in pieces
        )
        w = float(np.clip((b - c) / max(a + b - 2 * c, 1e-300), 0.0, 1.0))
        errors = {}
        for m, n in left.pairs():
            crossed = [*self.crossed(m, n), *(p.transposed() for p in self.crossed(n, m))]
            errors[m, n] = (
                *(p.times(w * w) for p in left.errors[m, n]),
                *(p.times((1 - w) ** 2) for p in right.errors[m, n]),
                *(p.times(w * (1 - w)) for p in crossed),
            )
        values = {m: w * left.values[m] + (1 - w) * right.values[m] for m in left.measures}
        return replace(left, values=values, errors=errors)


POOL = "pooled"
"""The catalog's name of a table of several releases: no release is asked by it."""
BOXES = 256


def _boxes(shape: tuple[int, ...]) -> list[FloatArray]:
    """Masks of ranges on every axis, the same for the same shape."""
    rng = np.random.default_rng(0)
    masks = []
    for n in shape:
        ends = np.sort(rng.integers(0, n + 1, (BOXES, 2)), axis=1)
        ends[ends[:, 0] == ends[:, 1]] = 0, n
        masks.append(((np.arange(n) >= ends[:, :1]) & (np.arange(n) < ends[:, 1:])).astype(np.float64))
    return masks


def _sum(pieces: Sequence[Piece], table: Table) -> FloatArray:
    cells = math.prod(table.shape)
    return np.asarray(sum((piece.matrix() for piece in pieces), np.zeros((cells, cells))))


def stacked(table: Table, measures: Sequence[str]) -> FloatArray:
    """Covariances of all cells of some measures, one after the other."""
    order = {m: i for i, m in enumerate(table.measures)}

    def block(a: str, b: str) -> FloatArray:
        return _sum(table.errors[a, b], table) if order[a] <= order[b] else block(b, a).T

    return np.block([[block(a, b) for b in measures] for a in measures])


@dataclass(frozen=True)
class Pool:
    """One table from several releases.

    Args:
        release: the table as a release in memory.
        names: whose reports and rows are in it.
    """

    release: Release
    names: tuple[str, ...]


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
    found: list[Pool] = []
    held: list[tuple[str, frozenset[object]]] = []
    for first in everyone:
        for other in everyone[everyone.index(first) + 1 :]:
            for overlap in overlaps(first, other):
                axes = places(first, overlap.left)
                keys = tuple(axes[i].key for i in overlap.of_left)
                of = overlap.left.of.lower()
                if any(of == o and set(keys) <= k for o, k in held):
                    continue
                held.append((of, frozenset(keys)))
                pool = _pool(of, keys, centrals, samples, called)
                if pool is not None:
                    found.append(pool)
    return found


def _pool(
    of: str,
    keys: Sequence[tuple[object, ...]],
    centrals: Sequence[Release],
    samples: Sequence[Sample],
    called: Mapping[str, str],
) -> Pool | None:
    """All tables on some axes: those about everybody first, then samples scaled by what they say together."""
    tables = [(release, _on(release, of, keys)) for release in centrals]
    whole: Table | None = None
    names: list[str] = []
    for release, table in tables:
        if table is not None:
            whole = table if whole is None else Pair(whole, table).together()
            names.append(called[release.meta.release_id])
    few: Table | None = None
    for sample in samples:
        table = _on(sample.release, of, keys)
        if table is None or table.total <= 0 or (whole is None and sample.local.everybody is None):
            continue
        scaled_table = _scaled_by(sample, table, whole or table)[0]
        if sample.local.everybody is not None:
            whole = scaled_table if whole is None else Pair(whole, scaled_table).together()
        else:
            few = scaled_table if few is None else Pair(few, scaled_table).together()
        names.append(called[sample.release.meta.release_id])
    if len(names) < 2 or whole is None:
        return None
    best = whole if few is None else Pair(whole, few, leans=True).together()
    base = whole.release
    title = f"{best.of} of {' and '.join(names)}"
    catalog = {**base.meta.catalog, "name": POOL}
    meta = replace(base.meta, catalog=catalog, local=None, scales=(), bounding=(), stream=None)
    return Pool(release_of([replace(best, view=title)], meta), tuple(names))


def _on(release: Release, of: str, keys: Sequence[tuple[object, ...]]) -> Table | None:
    """A release's table on some axes, from its view with the fewest cells that has them."""
    for view in sorted(views_of(release), key=lambda view: view.cells):
        if view.of.lower() == of:
            where = {place.key: place.position for place in places(release, view)}
            if all(key in where for key in keys):
                return read_table(release, view, [where[key] for key in keys])
    return None
