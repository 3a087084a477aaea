"""Views of open releases as arrays, with joint errors, and releases in memory that are made of them.

Counts and sums of a view that answers for itself err independently once sums are centred, and SQL is answered so. Put
together with another release they do not: a table here has plain sums, S = y + mid c, and all of their covariances.

| here | there | unit |
|---|---|---|
| `values[m]` | x: leaf estimates of a measure, shape of the axes | stored units: rows, or 10^-scale of the measure |
| `errors[a, b]` | Cov(x_a, x_b) as pieces; b does not stand before a in `measures` | the same, squared |
| `scaled` | N f, f = x / T, Var = N^2 [V(f) - f (1 - f) / N] + f^2 s_N^2 | rows |
| N, T | everybody's rows with standard error s_N, the rows of those who reported | rows |
| V | variance of the reports, of independent draws: sampling included | squared shares |

A release in memory has the axes of the releases that it is made of, other numbers and other errors. Answering asks it
as it asks a file. It is never stored, so its errors need not be rows of a variance table.

**Privacy**: post-processing of releases.
**Source**: docs/method/local.md, "What a local release stands for".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from typing import NamedTuple, cast

import duckdb
import numpy as np

from dpsql.catalog.base import COUNT
from dpsql.errors import ReleaseError
from dpsql.executor.run import run
from dpsql.intervals.reads import weight_error
from dpsql.matrices.kronecker import ProductReading
from dpsql.matrices.model import Reading
from dpsql.matrices.pooled import (
    Diagonal,
    Matrix,
    Piece,
    PooledReading,
    SharedError,
    StoredCovariance,
    TotalInfluence,
)
from dpsql.matrices.reconcile import family_step, node_sums, to_units
from dpsql.planner.axis_query import FloatArray
from dpsql.planner.plan import ReleaseView, presence
from dpsql.release.format import AxisMeta, Meta, StatisticMeta
from dpsql.release.read import LOCKDOWN, MOST_NUMBERS, Release
from dpsql.release.structure import AXIS
from dpsql.release.write import create_cells, create_table
from dpsql.tree import IntArray, Tree


@dataclass(frozen=True, eq=False)
class TakenAxis:
    """An axis, and the release that its table is taken from."""

    release: Release
    number: int

    @property
    def key(self) -> tuple[str, int]:
        """The same for one axis of one file."""
        return str(self.release.path), self.number

    @property
    def meta(self) -> AxisMeta:
        """As its release describes it."""
        return self.release.axes[self.number]

    @property
    def tree(self) -> Tree:
        """Its look-up tree."""
        return self.release.tree(self.number)


MadeStatistic = tuple[StatisticMeta, IntArray]
"""A statistic and its leaf estimates, integers in units of 2^-20, shape of its axes."""


def release_in_memory(
    meta: Meta,
    axes: Sequence[TakenAxis],
    statistics: Sequence[MadeStatistic],
    readings: Mapping[tuple[int, int], Reading],
) -> Release:
    """Make it.

    Args:
        meta: what it says of itself; its axes and statistics are those given.
        axes: where each axis comes from.
        statistics: their ids are their positions.
        readings: (statistic, statistic) -> how both err together, the lower id first.

    Raises:
        ReleaseError: it would not fit a question's memory.
    """
    described = replace(
        meta,
        axes=tuple(axis.meta for axis in axes),
        statistics=tuple(replace(statistic, id=i) for i, (statistic, _) in enumerate(statistics)),
        covariances=(),  # ids are other ones; `readings` hold all pairs
    )
    size = max((prod(axes[a].tree.size for a in statistic.axes) for statistic, _ in statistics), default=0)
    if size > MOST_NUMBERS:
        raise _too_large(size)
    connection = duckdb.connect(":memory:", config=LOCKDOWN)
    try:
        for i, axis in enumerate(axes):
            # read through its release: it is checked, and its file is not opened again by name
            columns = AXIS | {column.name: column.type for column in axis.meta.columns}
            create_table(connection, f"axis_{i}", axis.release.atoms_as_text(axis.number), columns)
        for s, (statistic, leaves) in enumerate(statistics):
            nodes = node_sums(leaves, [axes[a].tree for a in statistic.axes])
            create_cells(connection, f"node_combination_{s}", "n", {"estimate": nodes})
    except duckdb.OutOfMemoryException as error:
        raise _too_large(size) from error
    release = Release(axes[0].release.path, connection, described, pair_readings=dict(readings))
    release.keep_trees({i: axis.tree for i, axis in enumerate(axes)})
    return release


def _too_large(size: int) -> ReleaseError:
    return ReleaseError(
        f"these releases together have {size} numbers, more than the memory allowed",
        hint="ask each of them alone, or for fewer columns",
    )


DECLARED = "declared"
"""The source of a number of people that the catalog states."""
Errors = Mapping[tuple[str, str], tuple[Piece, ...]]


class Everybody(NamedTuple):
    """Number of rows of the whole population.

    Args:
        rows: the number.
        error: its standard error; 0 where people are declared and each has one row.
        source: who says so.
    """

    rows: float
    error: float
    source: str


@dataclass(frozen=True, eq=False)
class ViewTable:
    """A view as arrays.

    Args:
        view: its name.
        of: the table whose rows it counts.
        axes: where its axes come from.
        measures: described statistics by measure, COUNT first; their centre is 0.
        values: leaf estimates by measure.
        errors: pieces of their covariances.
        release: the open release that it was read from.
    """

    view: str
    of: str
    axes: tuple[TakenAxis, ...]
    measures: Mapping[str, StatisticMeta]
    values: Mapping[str, FloatArray]
    errors: Errors
    release: Release = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis: its leaves, or groups of them."""
        return self.values[COUNT].shape

    @property
    def cells(self) -> int:
        """Numbers that it holds, of all measures."""
        return len(self.measures) * int(np.prod(self.shape))

    @cached_property
    def total(self) -> float:
        return float(self.values[COUNT].sum())

    @cached_property
    def total_variance(self) -> float:
        all_leaves = [np.ones((1, n)) for n in self.shape]
        return max(float(sum(p.between(all_leaves, all_leaves)[0] for p in self.errors[COUNT, COUNT])), 0.0)

    @property
    def total_known(self) -> bool:
        """True if the total has no error: what its variance then is, rounding left."""
        return self.total_variance <= 1e-12 * self.total**2

    def pairs(self) -> list[tuple[str, str]]:
        """Every pair of measures once."""
        names = list(self.measures)
        return [(a, b) for i, a in enumerate(names) for b in names[i:]]

    def matrix(self, pieces: Sequence[Piece]) -> FloatArray:
        """A covariance of all cells of two measures, from its pieces."""
        cells = int(np.prod(self.shape))
        summed = sum((piece.matrix() for piece in pieces), np.zeros((cells, cells)))
        return np.asarray(summed).reshape(cells, cells)

    def stacked(self, measures: Sequence[str]) -> FloatArray:
        """Covariances of all cells of some measures, one after the other."""
        blocks = {pair: self.matrix(self.errors[pair]) for pair in self.pairs() if {*pair} <= {*measures}}
        return np.block(
            [[blocks[a, b] if (a, b) in blocks else blocks[b, a].T for b in measures] for a in measures]
        )

    def with_count(self, measure: str) -> tuple[Piece, ...]:
        """Covariance of a measure with counts, the measure on the left."""
        return tuple(piece.transposed() for piece in self.errors[COUNT, measure])

    def adding(self, more: Mapping[tuple[str, str], Sequence[Piece]]) -> ViewTable:
        """The same numbers with more errors."""
        return replace(self, errors={k: (*v, *more.get(k, ())) for k, v in self.errors.items()})

    def only(self, measures: Sequence[str]) -> ViewTable:
        chosen = [m for m in self.measures if m in measures]
        return replace(
            self,
            measures={m: self.measures[m] for m in chosen},
            values={m: self.values[m] for m in chosen},
            errors={(a, b): v for (a, b), v in self.errors.items() if a in chosen and b in chosen},
        )

    def measured(self, numbers: FloatArray, covariance: FloatArray) -> ViewTable:
        """The same cells with other numbers and their covariances, measure after measure."""
        size, shape = int(np.prod(self.shape)), self.shape
        slices = {m: slice(i * size, (i + 1) * size) for i, m in enumerate(self.measures)}
        errors = {(a, b): (Piece(Matrix(covariance[slices[a], slices[b]], shape)),) for a, b in self.pairs()}
        return replace(self, values={m: numbers[slices[m]].reshape(shape) for m in slices}, errors=errors)

    def times(self, factor: float) -> ViewTable:
        """All numbers times a factor, and errors with them."""
        return replace(
            self,
            values={m: x * factor for m, x in self.values.items()},
            errors={k: tuple(p.times(factor**2) for p in v) for k, v in self.errors.items()},
        )

    def on_total(self) -> ViewTable:
        """Errors of x / T, times T: what the error of the table's own total moves in all cells alike cancels."""
        variance, added_pieces = self.total_variance, {}
        if self.total_known:
            return self
        for a, b in self.pairs():
            shares = [self.values[m] / self.total for m in (a, b)]
            added_pieces[a, b] = (
                Piece(TotalInfluence(self.with_count(a), shares[1]), -1.0),
                Piece(TotalInfluence(self.with_count(b), shares[0]), -1.0, turned=True),
                Piece(SharedError(shares[0], shares[1]), variance),
            )
        return self.adding(added_pieces)

    def sharing(self, relative: float) -> ViewTable:
        """The table with one relative error more that all of its cells share."""
        if not relative:
            return self
        together = {
            (a, b): (Piece(SharedError(self.values[a], self.values[b]), relative**2),)
            for a, b in self.pairs()
        }
        return self.adding(together)


def axis_keys(release: Release, view: ReleaseView) -> list[tuple[object, ...]]:
    """A key of each axis of a view; axes with one key, of any release, have the same leaves, columns and atoms."""
    keys = list[tuple[object, ...]]()
    for number in view.axes:
        meta = release.axes[number]
        columns = tuple(replace(column, description="") for column in meta.columns)
        described = replace(meta, model=0, strategy="", columns=columns)
        rows = release.kept(("axis", number), partial(_digest, release, number))
        keys.append((described, rows))
    return keys


def _digest(release: Release, number: int) -> object:
    return run(release, f"SELECT COUNT(*), bit_xor(hash(t)) FROM axis_{number} AS t").rows[0]


def read_table(
    release: Release,
    view: ReleaseView,
    kept: Sequence[int] | None = None,
    groups: Sequence[FloatArray] | None = None,
) -> ViewTable | None:
    """A view's numbers, other axes added up.

    Args:
        release: an open release.
        view: one of its views.
        kept: positions of its axes that stay, in the order wanted; all if None.
        groups: of each axis that stays, which leaves a cell of the table adds up, shape (cells, leaves); leaves in no
            group are left out. Cells are leaves if None.

    Returns:
        The table, without sums that err together with counts (a reported attribute); None where the view has no
        counts of all cells, or was scaled to a total, whose spread over groups no table holds.
    """
    local = release.meta.local is not None
    if COUNT not in view.statistics or (not local and view.of in release.scales):
        return None
    release = replace(release, nonnegative=False)
    wanted = tuple(range(len(view.axes))) if kept is None else tuple(kept)
    axes = tuple(TakenAxis(release, view.axes[i]) for i in wanted)
    centres = {str(m): presence(m, view) for m, s in view.statistics.items() if s.mid}
    added = {str(m): s for m, s in view.statistics.items() if _tells_cells(release, s, wanted, groups)}
    if COUNT not in added:
        return None
    usable = {m: s for m, s in added.items() if m == COUNT or not s.mid or centres[m] is not None}
    counted = view.statistics[COUNT].id
    shared = {m: release.shared(counted, s.id) for m, s in usable.items() if m != COUNT}
    names = [COUNT, *sorted(m for m, how in shared.items() if how is None or type(how) is ProductReading)]
    stored = {m: _leaves(release, usable[m], wanted, axes) for m in names}
    values, errors = {}, dict[tuple[str, str], tuple[Piece, ...]]()
    grouping = None if groups is None else tuple(groups)
    pieces = {
        (a, b): _stored(release, (usable[a], usable[b]), wanted, grouping)
        for a in names
        for b in names
        if release.shared(usable[a].id, usable[b].id) is not None
    }
    for m in names:
        count = centres.get(m)
        values[m] = stored[m] + (usable[m].mid * stored[count.measure] if count is not None else 0.0)
        for axis, group in enumerate(grouping or ()):
            values[m] = np.moveaxis(np.tensordot(group, values[m], axes=(1, axis)), 0, axis)
    for i, a in enumerate(names):
        for b in names[i:]:
            errors[a, b] = _joint(a, b, usable, centres, pieces)
    where = tuple(range(len(axes)))
    described = {m: replace(usable[m], mid=0, axes=where, nonnegative=False) for m in names}
    table = ViewTable(view.name, view.of, axes, described, {m: values[m] for m in names}, errors, release)
    relative = weight_error(release)
    return table.on_total().sharing(relative) if relative else table


def _tells_cells(
    release: Release,
    statistic: StatisticMeta,
    wanted: Sequence[int],
    groups: Sequence[FloatArray] | None,
) -> bool:
    """True if every cell of some axes, the others added up, is a sum of what is stored."""
    sizes, reading = [release.axes[a].leaves for a in statistic.axes], release.reading(statistic.id)
    grouped = {} if groups is None else dict(zip(wanted, groups, strict=True))

    # Masks of long axes are made only for a reading that asks for them.
    def cells() -> Iterator[Sequence[FloatArray]]:
        yield [
            grouped[i] if i in grouped else np.eye(n) if i in wanted else np.ones((1, n))
            for i, n in enumerate(sizes)
        ]

    return not reading.listed and reading.takes(cells())


def _joint(
    a: str,
    b: str,
    usable: Mapping[str, StatisticMeta],
    centres: Mapping[str, StatisticMeta | None],
    pieces: Mapping[tuple[str, str], Piece],
) -> tuple[Piece, ...]:
    """Covariances of two plain sums: each is a centred one and mid times a count."""
    factors = []
    for m in (a, b):
        count = centres.get(m)
        factors.append({m: 1.0} | ({} if count is None else {count.measure: float(usable[m].mid)}))
    return tuple(
        pieces[m, n].times(f * g)
        for m, f in factors[0].items()
        for n, g in factors[1].items()
        if (m, n) in pieces
    )


def _stored(
    release: Release,
    statistics: tuple[StatisticMeta, StatisticMeta],
    wanted: Sequence[int],
    groups: tuple[FloatArray, ...] | None,
) -> Piece:
    """Stored covariance of two statistics of a view."""
    left, right = statistics
    where = tuple(wanted.index(i) if i in wanted else None for i in range(len(left.axes)))
    sizes = tuple(release.axes[a].leaves for a in left.axes)
    reading = cast(Reading, release.shared(left.id, right.id))
    return Piece(StoredCovariance(reading, where, sizes, groups))


def _leaves(
    release: Release, statistic: StatisticMeta, wanted: Sequence[int], axes: Sequence[TakenAxis]
) -> FloatArray:
    """Leaf estimates in stored units, shape of the wanted axes."""
    columns = [f"n{i + 1}" for i in wanted]
    roots = [f"n{i + 1} = 0" for i in range(len(statistic.axes)) if i not in wanted]
    where = f" WHERE {' AND '.join(roots)}" if roots else ""
    picked = ", ".join([*columns, release.estimate(statistic.id)])
    rows = run(release, f"SELECT {picked} FROM node_combination_{statistic.id}{where}").rows
    numbers = np.array(rows, np.int64)
    if not axes:
        return statistic.in_units(numbers[0, -1])
    shape = [axis.meta.leaves for axis in axes]
    estimates, at_leaves, at = np.zeros(shape), np.ones(len(numbers), bool), []
    for i, axis in enumerate(axes):
        leaf = np.full(axis.tree.size, -1, np.int64)
        leaf[axis.tree.leaves] = np.arange(axis.tree.n)
        at.append(leaf[numbers[:, i]])
        at_leaves &= at[-1] >= 0
    estimates[tuple(index[at_leaves] for index in at)] = statistic.in_units(numbers[at_leaves, -1])
    return estimates


def scaled(table: ViewTable, everybody: Everybody) -> ViewTable:
    """A random sample's table as everybody's: counts and sums with the errors of reports, sampling and the number.

    Args:
        table: what those who reported say.
        everybody: how many rows everybody has.
    """
    return sampled(table, everybody).sharing(everybody.error / everybody.rows)


def sampled(table: ViewTable, everybody: Everybody) -> ViewTable:
    """`scaled`, as if everybody's number were exact.

    Errors of reports are those of independent draws from everybody: sampling is in them. A sample without replacement
    errs by f (1 - f) / N less, which matters where most people report. Sums would need the spread of values inside of
    cells, which nobody published: with them nothing is taken away. Nor is it where declared people have an uncertain
    number of rows: they, not rows, are drawn without replacement.
    """
    scaled_table = table.on_total().times(everybody.rows / table.total)
    if len(scaled_table.measures) > 1 or (everybody.source == DECLARED and everybody.error):
        return scaled_table
    count = np.maximum(scaled_table.values[COUNT], 0.0)
    less = (Piece(Diagonal(count), -1.0), Piece(SharedError(count, count), 1.0 / everybody.rows))
    return scaled_table.adding({(COUNT, COUNT): less})


def release_of(tables: Sequence[ViewTable], meta: Meta) -> Release:
    """Tables as a release in memory: one view each, axes shared.

    Args:
        tables: of one release, or one table of several.
        meta: what it says of itself.
    """
    axes: list[TakenAxis] = []
    statistics: list[MadeStatistic] = []
    readings = {}
    for table in tables:
        keys = [axis.key for axis in axes]
        axes += [axis for axis in table.axes if axis.key not in keys]
        numbers = {m: len(statistics) + i for i, m in enumerate(table.measures)}
        where = tuple([axis.key for axis in axes].index(axis.key) for axis in table.axes)
        for measure, described in table.measures.items():
            step = family_step([(where, table.values[measure])])
            units = to_units(table.values[measure] / step)
            statistics.append((replace(described, view=table.view, axes=where, step=step), units))
        for (a, b), pieces in table.errors.items():
            readings[numbers[a], numbers[b]] = PooledReading(pieces, table.shape)
    return release_in_memory(meta, axes, statistics, readings)
