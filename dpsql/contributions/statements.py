"""SQL statements of the user-level recipe for the engine that holds the rows, in exact integers.

Per-person numbers never leave the engine: what comes out is a histogram of people, a clipped total, or
weighted cells. Sums are of the wide type, so no order of addition and no number of threads changes them, and every
value is cut before it is squared, so no row whatever can make a statement fail.

    people     unit: n, s<i>
    norms      unit: norm (2^p nu^2)
    weights    unit: w in units of 2^-20

One text serves every engine (`engines.joined_rows`). Where a common table may be computed again (Spark), norms and
weights have a line for each row instead of each unit, made by windows: a unit's rows are then counted in the scan that
weighs them, and rows that arrive meanwhile move no bound.

The weight of a person follows from the joint whitened norm of all that she adds to all views.
Bounding each view on its own pays for a worst case in every view at once, which nobody is. Here a person's rows
are measured through every view's own rows, each divided by the noise that the view will get, and the one joint
norm is clipped: w = min(1, K / nu). Everything is an exact integer: w counts 2^-20, so w c and w y do too.

| here | there | unit |
|---|---|---|
| `WhitenedStatistic.share` | b_v cf, b_v (1 - cf): adds up to at most 1 | part of mu^2_shape |
| `WhitenedStatistic.typical` | t_v^2, (t_v d)^2: what a typical person adds, squared | stored units squared |
| `coefficient` | ceil(2^p b / t^2) | per squared row |
| `norm` | 2^p nu_u^2 | - |
| `clip` | 2^p K^2 | - |
| `UNIT` | one weight of 1 | 2^-20 |

With c_u and y_u a person's histograms of rows and of centred values, A_v the view's rows, cf the counts' part, d the
spread of a value and m_i leaves on the axes along which a person's rows differ,

    nu_u^2 = sum over views of b_v [cf |A_v c_u|^2 / t_v^2 + (1 - cf) |A_v y_u|^2 / (t_v d)^2]
    t_v^2 = tau + tau^2 prod_i |A_i 1/m_i|^2

**Privacy**: docs/privacy/people.md. With N = sum_s c_s Q_s and W^2 N <= UNIT^2 K2, noise of variance
V_s = UNIT^2 K2 / (mu^2 c_s), which `Gaussian.draw_at` adds 4 to, spends sum_s W^2 Q_s / V_s <= mu^2, whatever the
coefficients are. A person's norm and weight depend on her rows and on released values alone.
Numbers are raw; the caller noises what is fetched before it is stored or shown.
**Source**: docs/method/rows.md, "One weight a person".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import ceil, isqrt, prod
from typing import NamedTuple

import numpy as np

from dpsql.axis.model import search
from dpsql.central.placed_rows import CountedCells, CountedRows
from dpsql.central.planned import ReleasePlan
from dpsql.engines.counting import StatisticGroup, cell_numbers, counts, cut
from dpsql.engines.dialect import Dialect
from dpsql.engines.joined_rows import Digit, PlacedRows, common_table, packed_value, with_tables
from dpsql.engines.registry import Relations
from dpsql.errors import InternalError
from dpsql.matrices.strategy import Strategy, gathers
from dpsql.tree import Exact

UNIT = 1 << 20
"""A weight of 1 in the units that are stored."""

LARGEST_NORM = 1 << 86
"""Norms from here on get weight 0, so that UNIT^2 times a norm stays inside 127 bits."""

LARGEST_VARIANCE = 1 << 106
"""sigma stays below 2^53, a tenth of a percent of what 64-bit draws hold."""

LARGEST_PURE = (1 << 22) - 1
"""T stays below 2^22, so that T in units of 2^-20 leaves 64-bit noise its headroom (rule N4)."""

_FINEST = 12  # the smallest coefficient is about 2^12, so that rounding up costs at most 2^-12 of it
_HIGHEST = 74  # 2^p at most: norms up to 2^12 times the typical one are told apart
_ROW_BITS = 16  # bits kept of a squared row of a strategy with large entries


@dataclass(frozen=True)
class WhitenedStatistic:
    """One statistic as the norm sees it.

    Args:
        share: its part of the shape's budget.
        typical: squared size of what a typical person adds, from released values and public facts.
        total: product of its strategies' totals: rows are integers of 1/total.
    """

    share: Fraction
    typical: Fraction
    total: int = 1

    @property
    def shift(self) -> int:
        """Squared rows are divided by 2^shift and rounded up, so that they stay small."""
        return max(0, 2 * (self.total.bit_length() - 1) - _ROW_BITS)


@dataclass(frozen=True)
class Whitening:
    """The coefficients of the joint norm.

    Args:
        parts: the statistics.
        coefficient: one positive integer for each.
        point: p; a typical person's norm is about 2^p.
    """

    parts: tuple[WhitenedStatistic, ...]
    coefficient: tuple[int, ...]
    point: int

    def largest_row(self, index: int) -> int:
        """The row value of a statistic from which on a person is left out (weight 0).

        Rows may be cut to it: one that reaches it makes the norm at least `LARGEST_NORM` by itself.
        """
        return isqrt((LARGEST_NORM << self.parts[index].shift) // self.coefficient[index]) + 1

    def variance(self, index: int, clip: int, mu2: Fraction) -> Fraction:
        """V of a row of budget 1 of one statistic, in squared stored units of 1 / UNIT.

        Args:
            index: the statistic.
            clip: 2^p K^2.
            mu2: what all statistics may spend together.

        **Privacy**: the statistics together spend mu2 at any coefficients; see the module.
        """
        scaled = (UNIT**2 * clip) << self.parts[index].shift
        return Fraction(scaled) / (mu2 * self.coefficient[index])

    def largest_clip(self, mu2: Fraction) -> int:
        """The largest 2^p K^2 at which every sigma stays inside 64-bit noise, at least 1.

        Args:
            mu2: what all statistics may spend together.
        """
        room = (LARGEST_VARIANCE / self.variance(i, 1, mu2) for i in range(len(self.parts)))
        return max(1, int(min(room)))


def whiten(parts: Sequence[WhitenedStatistic]) -> Whitening:
    """Integer coefficients, rounded up, at one common binary point.

    Args:
        parts: the statistics; their shares add up to at most 1.

    Returns:
        The whitening.

    Raises:
        InternalError: shares above 1, or a part without share or size.
    """
    if sum((statistic.share for statistic in parts), Fraction(0)) > 1:
        raise InternalError("the shares of a shape add up to more than 1")
    if not parts or any(statistic.share <= 0 or statistic.typical <= 0 for statistic in parts):
        raise InternalError("every statistic of a shape needs a share and a size")
    exact = [
        statistic.share * (1 << statistic.shift) / (statistic.typical * statistic.total**2)
        for statistic in parts
    ]
    smallest = min(exact)
    wanted = _FINEST + ceil(1 / smallest).bit_length()
    point = max(0, min(_HIGHEST, wanted))
    return Whitening(tuple(parts), tuple(ceil(coefficient * (1 << point)) for coefficient in exact), point)


def typical_square(strategies: Sequence[Strategy], sticky: Sequence[bool], tau: int) -> Fraction:
    """t_v^2: the squared norm of tau rows dealt evenly over a view's cells.

    Args:
        strategies: one for each axis.
        sticky: axes on which all rows of a person share one leaf.
        tau: rows of a typical person, released.

    Returns:
        tau + tau^2 prod of ||A_i 1/m_i||^2 over the axes that are not sticky; tau + tau^2 / m_v for leaves.

    **Privacy**: released values and public facts only.
    """
    gathered = [
        Fraction(1) if stuck else even_square(strategy)
        for strategy, stuck in zip(strategies, sticky, strict=True)
    ]
    return tau + tau**2 * prod(gathered, start=Fraction(1))


def even_square(strategy: Strategy) -> Fraction:
    """||H 1/n||^2 / total^2, budgets multiplied in: how much of one row dealt evenly over the leaves is seen.

    Where rows gather leaves it is a hair above the exact value.
    """
    rows = strategy.entries()
    if rows is None:
        raise InternalError("the rows of a shape are written down")
    square = int(((rows.sums().astype(object) * strategy.budget) ** 2).sum())
    return Fraction(square + gathers(strategy), (strategy.leaves * strategy.total) ** 2)


def pure_bound(tau: int, reach: int, spread: int) -> int:
    """T: the most that a person's weighted centred values may add up to.

    Args:
        tau: most weighted rows.
        reach: the most that one centred value can be.
        spread: how far a typical value is from the centre.

    Returns:
        min(tau reach, spread max(tau, 4 sqrt tau)), at least 1 and at most `LARGEST_PURE`.
    """
    return max(1, min(tau * reach, spread * max(tau, isqrt(16 * tau)), LARGEST_PURE))


WEIGHT = "w"
"""Column of the number that each row of a unit counts for."""


class NormView(NamedTuple):
    """One view as the norm sees it.

    Args:
        axes: axis id -> strategy.
        values: index of a statistic in the whitening -> SQL of what it sums per row.
    """

    axes: Mapping[int, Strategy]
    values: Mapping[int, str]


class Layer(NamedTuple):
    """Rows of a strategy that lie side by side on an axis and have one entry.

    Args:
        starts: first leaves of the rows; they end where the next one starts.
        entry: their integer, budget multiplied in.
    """

    starts: tuple[int, ...]
    entry: int

    def key(self, axis: int) -> str:
        """SQL of the number of the row that holds a leaf."""
        if self.starts == tuple(range(len(self.starts))):
            return f"a{axis}"
        return search(f"a{axis}", [str(start) for start in self.starts], 0, len(self.starts))


def wide(value: int | str, dialect: Dialect) -> str:
    """SQL of a whole number of the wide type; some engines read more than 64 bits as a float."""
    return f"CAST({repr(str(value)) if isinstance(value, int) else value} AS {dialect.wide})"


def make_people(relations: Relations, rows: str, of: str, values: Sequence[str]) -> str:
    """One line per unit with its number of rows and the sum of each measure; returns the table's name."""
    dialect = relations.dialect
    sums = "".join(f", {_total(value, dialect)} AS s{i}" for i, value in enumerate(values))
    return relations.make(f"people {of}", f"SELECT unit, count(*) AS n{sums} FROM {rows} GROUP BY unit")


def people_per_bin(relations: Relations, people: str, amount: str, edges: Sequence[int]) -> Exact:
    """Number of people in each bin of an amount.

    Args:
        relations: where `people` is.
        people: a table whose lines of one unit have the same amount.
        amount: SQL of a non-negative integer.
        edges: upper ends of the bins; an overflow bin follows.

    Returns:
        int64, shape (len(edges) + 1,).
    """
    whens = (f"WHEN amount <= {wide(edge, relations.dialect)} THEN {i}" for i, edge in enumerate(edges))
    per_unit = f"SELECT max({amount}) AS amount FROM {people} GROUP BY unit"
    binned = f"SELECT CASE {' '.join(whens)} ELSE {len(edges)} END AS bin FROM ({per_unit}) AS u"
    found = relations.fetch(f"SELECT bin, count(*) AS people FROM ({binned}) AS b GROUP BY bin")
    counts = np.zeros(len(edges) + 1, dtype=np.int64)
    counts[found["bin"]] = found["people"]
    return Exact(counts)


def clipped_total(relations: Relations, people: str, amount: str, bound: int) -> int:
    """The sum over people of an amount clipped to [-bound, bound], itself cut at `LARGEST`."""
    dialect = relations.dialect
    clipped = f"greatest(least({wide(amount, dialect)}, {wide(bound, dialect)}), {wide(-bound, dialect)})"
    found = relations.fetch(f"SELECT {cut(f'sum({clipped})', dialect)} AS total FROM {people}")
    return int(found["total"][0])


def make_norms(
    relations: Relations, rows: str, of: str, views: Sequence[NormView], whitening: Whitening
) -> str:
    """The joint whitened norm of each unit; returns the table's name.

    **Privacy**: a unit's norm is a function of its own rows and of released values; sums are exact.
    """
    way = _norms_of_units if relations.dialect.materialised else _norms_of_rows
    return relations.make_by_unit(
        f"norms {of}", lambda rows: way(rows, views, whitening, relations.dialect), rows
    )


def make_weights(relations: Relations, norms: str, of: str, clip: int) -> str:
    """The weight w of each unit under zCDP: the largest W <= 2^20 with W^2 norm <= 2^40 clip."""
    weight = _root(clip, relations.dialect)
    return relations.make(f"weights {of}", f"SELECT q.*, {weight} AS {WEIGHT} FROM {norms} AS q")


def make_pure_weights(
    relations: Relations,
    rows: str,
    of: str,
    tau: int,
    bounds: Sequence[tuple[str, int]],
) -> str:
    """The weight of each unit under pure epsilon: W n <= 2^20 tau and W sum |y| <= 2^20 T for each measure."""
    dialect = relations.dialect
    sizes = [f"abs({wide(value, dialect)})" for value, _ in bounds]
    if dialect.materialised:
        sums = "".join(f", {_total(size, dialect)} AS y{i}" for i, size in enumerate(sizes))
        query = f"SELECT unit, {wide('count(*)', dialect)} AS n{sums} FROM {rows} GROUP BY unit"
    else:
        sums = "".join(f", {_total(size, dialect, 'unit')} AS y{i}" for i, size in enumerate(sizes))
        query = (
            f"SELECT r.*, {wide('count(*) OVER (PARTITION BY unit)', dialect)} AS n{sums} FROM {rows} AS r"
        )
    owned = relations.make(f"sizes {of}", query)
    most = _most(tau, [bound for _, bound in bounds], dialect)
    weight = f"CAST(least({wide(UNIT, dialect)}, {most}) AS BIGINT)"
    return relations.make(f"weights {of}", f"SELECT q.*, {weight} AS {WEIGHT} FROM {owned} AS q")


@dataclass(frozen=True)
class WeightedRows:
    """All placed rows count, each for the weight of its unit: a `Bound` of the template.

    Args:
        rows: the placed rows.
        weights: those of their units.
    """

    rows: str
    weights: str

    def statement(self, rows: PlacedRows, groups: Sequence[StatisticGroup], dialect: Dialect) -> str:
        numbers = cell_numbers(rows, groups)
        listed = [f"{packed_value(number)} AS {number.name}" for number in numbers]
        listed += [*(measure.name for measure in rows.measures), WEIGHT]
        weighted = f"{self.rows} JOIN {self.weights} USING (unit)" if dialect.materialised else self.weights
        table = common_table("x", f"SELECT {', '.join(listed)} FROM {weighted}", dialect)
        return with_tables([table], counts("x", numbers, groups, WEIGHT, dialect))


def weighted_cells(
    relations: Relations,
    plan: ReleasePlan,
    of: str,
    bound: WeightedRows,
    columns: Mapping[str, str],
) -> CountedCells:
    """Cells of rows that count with a number of their unit, in units of 2^-20: those of all views by one statement."""
    axes = sorted({axis for s in plan.row_statistics(of).values() for axis in s.axes})
    digits = tuple(Digit(f"a{axis}", (), "", 0, plan.axes[axis].axis.leaves) for axis in axes)
    measures = tuple(Digit(name, (), "", 0, 1) for name in columns.values())
    counted = CountedRows(PlacedRows((), digits, measures, None), columns)
    return CountedCells(relations, plan, of, counted, bound)


def layers(strategy: Strategy) -> list[Layer]:
    """The rows of a strategy, as few layers as they make; together they are all of its rows.

    Raises:
        InternalError: they are not intervals of ones that lie side by side.
    """
    entries = strategy.entries()
    if entries is None:
        raise InternalError("the rows of a user-level view are written down")
    if not gathers(strategy):
        return [Layer(tuple(range(strategy.leaves)), 1)]
    if len(entries.entry):
        raise InternalError("the rows of a user-level view are ones on their intervals")
    starts_of: list[tuple[list[int], int]] = []
    # layers by where they end, and by their entry
    ending: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    intervals = zip(entries.start.tolist(), entries.stop.tolist(), strategy.budget.tolist(), strict=True)
    for start, stop, budget in sorted(intervals, key=lambda row: (row[0], -row[1])):
        fits = ending[start, budget]
        if not fits and start:
            raise InternalError("the rows of a user-level view lie side by side")
        if not fits:
            starts_of.append(([], budget))
        layer = fits.pop(0) if fits else len(starts_of) - 1
        starts_of[layer][0].append(start)
        ending[stop, budget].append(layer)
    if any(fits and end != strategy.leaves for (end, _), fits in ending.items()):
        raise InternalError("the rows of a user-level view hold every leaf")
    return [Layer(tuple(starts), entry) for starts, entry in starts_of]


def gatherings(view: NormView) -> Iterator[tuple[tuple[str, ...], int]]:
    """The rows of a view's strategies, every way to take one layer of each axis: SQL of their keys, and their entry."""
    per_axis = [[(layer.key(axis), layer.entry) for layer in layers(s)] for axis, s in view.axes.items()]
    for taken in product(*per_axis):
        entry = 1
        for _, factor in taken:
            entry *= factor
        yield tuple(key for key, _ in taken), entry


def _norms_of_units(rows: str, views: Sequence[NormView], whitening: Whitening, dialect: Dialect) -> str:
    """SELECT unit, norm: the squared rows of each view's statistics times their coefficients, added up."""
    parts = []
    for view in views:
        for taken, entry in gatherings(view):
            keys = [f"{key} AS k{i}" for i, key in enumerate(taken)]
            named = ["unit", *(f"k{i}" for i in range(len(keys)))]
            values = [f"{value} AS x{i}" for i, value in view.values.items()]
            summed = {i: "1" if value == "1" else f"x{i}" for i, value in view.values.items()}
            sums = [f"{_total(value, dialect)} AS v{i}" for i, value in summed.items()]
            keyed = f"SELECT {', '.join(['unit', *keys, *values])} FROM {rows}"
            inner = f"SELECT {', '.join([*named, *sums])} FROM ({keyed}) AS k GROUP BY {', '.join(named)}"
            squares = (_square(f"v{i}", i, entry, whitening, dialect) for i in view.values)
            parts.append(f"SELECT unit, {' + '.join(squares)} AS part FROM ({inner}) AS c")
    return f"SELECT unit, sum(part) AS norm FROM ({' UNION ALL '.join(parts)}) AS p GROUP BY unit"


def _norms_of_rows(rows: str, views: Sequence[NormView], whitening: Whitening, dialect: Dialect) -> str:
    """The same beside every row, from one scan: one row of each cell of a unit carries the cell's square."""
    sums, parts = [], []
    rows_of_views = [(view, *gathered) for view in views for gathered in gatherings(view)]
    for k, (view, keys, entry) in enumerate(rows_of_views):
        window = ", ".join(["unit", *keys])
        sums.append(f"row_number() OVER (PARTITION BY {window} ORDER BY unit) AS f{k}")
        sums += [f"{_total(value, dialect, window)} AS v{k}x{i}" for i, value in view.values.items()]
        squares = (_square(f"v{k}x{i}", i, entry, whitening, dialect) for i in view.values)
        parts.append(f"CASE WHEN f{k} = 1 THEN {' + '.join(squares)} ELSE {wide(0, dialect)} END")
    summed = f"SELECT r.*, {', '.join(sums)} FROM {rows} AS r"
    return f"SELECT c.*, sum({' + '.join(parts)}) OVER (PARTITION BY unit) AS norm FROM ({summed}) AS c"


def _total(value: str, dialect: Dialect, window: str = "") -> str:
    """SQL of a sum of the wide type, 0 of nothing; over a window of rows where one is named."""
    if window:
        return f"coalesce(sum({wide(value, dialect)}) OVER (PARTITION BY {window}), {wide(0, dialect)})"
    # engines add up in the wide type: a cast of each row, or of each 1, takes a third of the norms
    total = "count(*)" if value == "1" else dialect.total(value, True)
    return f"coalesce({wide(total, dialect)}, {wide(0, dialect)})"


def _square(value: str, index: int, entry: int, whitening: Whitening, dialect: Dialect) -> str:
    """SQL of what one row of a strategy adds to the norm: squared, cut, its last bits rounded up."""
    shift = whitening.parts[index].shift
    times = value if entry == 1 else f"{value} * {wide(entry, dialect)}"
    least = f"least(abs({times}), {wide(whitening.largest_row(index), dialect)})"
    square = f"{least} * {least}"
    if shift:
        raised = f"{square} + {wide((1 << shift) - 1, dialect)}"
        square = dialect.wide_quotient(raised, wide(1 << shift, dialect))
    return f"{wide(whitening.coefficient[index], dialect)} * ({square})"


def _root(clip: int, dialect: Dialect) -> str:
    """SQL of the largest integer W <= 2^20 with W^2 norm <= 2^40 clip, a BIGINT; 0 without norm, or beyond its largest.

    That is W <= sqrt(2^40 clip // norm). Where the quotient reaches 2^40 it is not computed; below, the square root of
    the integer is exact to the floor in double precision.
    """
    norm = f"greatest(norm, {wide(1, dialect)})"
    ratio = dialect.wide_quotient(wide(min(UNIT**2 * clip, UNIT**2 * LARGEST_NORM), dialect), norm)
    root = f"CAST(floor(sqrt(CAST({ratio} AS {dialect.double}))) AS BIGINT)"
    return (
        f"CASE WHEN norm = {wide(0, dialect)} OR norm >= {wide(LARGEST_NORM, dialect)} THEN CAST(0 AS BIGINT) "
        f"WHEN norm <= {wide(clip, dialect)} THEN CAST({UNIT} AS BIGINT) ELSE {root} END"
    )


def _most(tau: int, bounds: Sequence[int], dialect: Dialect) -> str:
    """SQL of the largest weight of a unit at which her rows are within tau, and her sums within bounds."""
    limits = [dialect.wide_quotient(wide(UNIT * tau, dialect), "n")]
    limits += [
        dialect.wide_quotient(wide(UNIT * bound, dialect), f"greatest(y{i}, {wide(1, dialect)})")
        for i, bound in enumerate(bounds)
    ]
    return f"least({', '.join(limits)})" if len(limits) > 1 else limits[0]
