"""Several releases about the same people: which one answers, one estimate from all, and what they promise together.

| here  | unit |
|-------|------|
| error | standard error of a cell: noise and scale together |
| share | weight of a release in a cell, by inverse error |

Noise of one release is independent of every other's, unless both were made of one collection's reports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from dpsql.answer.errorfunctions import HIGH, LOW, MODEL_BOUND, STDERR, ErrorFunction
from dpsql.budget import NEIGHBOURS
from dpsql.release.format import Meta

if TYPE_CHECKING:
    from dpsql.answer import Result
    from dpsql.answer.result import Grid

ROW = "row"
REPLACE_ONE = "replace_one"
NOT_ADDITIVE = "combined cell by cell: parts no longer add up to the whole exactly"


@dataclass(frozen=True)
class Source:
    """One release's answer.

    Args:
        name: the release, as provenance calls it.
        meta: its `meta` table.
        result: its answer.
    """

    name: str
    meta: Meta
    result: Result


@dataclass(frozen=True)
class Blend:
    """Answers of several releases, row by row the same groups, with weights for every noisy cell.

    Args:
        sources: the releases' answers.
        places: per source, the row of its answer that belongs to each row of the first one.
        shares: per row and column the sources' weights, or None for a group key.
    """

    sources: tuple[Source, ...]
    places: tuple[tuple[int, ...], ...]
    shares: tuple[tuple[tuple[float, ...] | None, ...], ...]

    def cells(self, grids: Sequence[Grid], row: int, column: int) -> list[Any]:
        """One cell of each source."""
        return [grid[place[row]][column] for grid, place in zip(grids, self.places, strict=True)]

    def values(self) -> Grid:
        """Weighted means; keys as they are."""
        grids = [source.result.rows for source in self.sources]
        return self._each(lambda row, column, s: _weighted(self.cells(grids, row, column), s), grids[0])

    def grid(self, error: ErrorFunction, level: float) -> Grid:
        """Error bars of the weighted means, as `Result.grid` gives them; None where a mean has no such error."""
        return BLENDED[error](self, level) if error in BLENDED else self._each(lambda r, c, s: None)

    def model_bound(self, level: float) -> Grid:
        """The weighted mean of the sources' bounds."""
        bounds = [source.result.model_bound for source in self.sources]
        return self._each(lambda r, c, s: _bounded(self.cells(bounds, r, c), s))

    def stderr(self, level: float) -> Grid:
        """Noise and scale error of independent sources together."""
        errors = [source.result.stderr_rows for source in self.sources]
        return self._each(lambda r, c, s: _spread(self.cells(errors, r, c), s))

    def low(self, level: float) -> Grid:
        """The mean less the widest source's number of standard errors."""
        return self._end(level, -1.0)

    def high(self, level: float) -> Grid:
        """The mean plus as many."""
        return self._end(level, 1.0)

    def _end(self, level: float, sign: float) -> Grid:
        means, spread = self.values(), self.stderr(level)
        wide = [self._widths(source, level) for source in self.sources]
        return self._each(lambda r, c, s: means[r][c] + sign * max(self.cells(wide, r, c)) * spread[r][c])

    def _widths(self, source: Source, level: float) -> Grid:
        """Standard errors on each side of a source's interval; a normal's where it has none."""
        normal = NormalDist().inv_cdf(0.5 + level / 2)
        low, high = source.result.interval_rows(level)
        return tuple(
            tuple(
                (b - a) / 2 / e if e and a is not None and b is not None and b > a else normal
                for a, b, e in zip(*rows, strict=True)
            )
            for rows in zip(low, high, source.result.stderr_rows, strict=True)
        )

    def _each(self, cell: Callable[[int, int, tuple[float, ...]], Any], keys: Grid | None = None) -> Grid:
        """Every cell, keys as given or None."""
        return tuple(
            tuple(
                (keys and keys[r][c]) if share is None else cell(r, c, share) for c, share in enumerate(row)
            )
            for r, row in enumerate(self.shares)
        )


BLENDED: dict[ErrorFunction, Callable[[Blend, float], Grid]] = {
    STDERR: Blend.stderr, LOW: Blend.low, HIGH: Blend.high, MODEL_BOUND: Blend.model_bound,
}  # fmt: skip
"""What is known of a mean's errors."""


def blend(sources: Sequence[Source], opened: Sequence[Meta]) -> Result | None:
    """The inverse-variance estimate of independent answers, or None where they cannot be blended.

    Args:
        sources: answers to one statement, the one with the smallest error first; where it sorts its rows, all must
            agree on the order.
        opened: `meta` of all releases that are open, those that do not answer included.

    Returns:
        An answer with the first one's rows; None unless releases are independent, every column is a group key or
        an aggregate with a standard error, and all answers list the same groups.

    **Privacy**: post-processing; weights depend on published variances alone.
    """
    if len(sources) < 2 or not independent([source.meta for source in sources]):
        return None
    best, keys = sources[0].result, _key_columns(sources)
    if keys is None:
        return None
    places = _places(sources, keys)
    if places is None or (best.ordered and len(set(places)) > 1):
        return None
    errors = [source.result.stderr_rows for source in sources]
    shares = tuple(
        tuple(
            None if c in keys else _shares([e[p[r]][c] for e, p in zip(errors, places, strict=True)])
            for c in range(len(best.columns))
        )
        for r in range(len(best.rows))
    )
    mixed = Blend(tuple(sources), places, shares)
    facts = {
        "release": [source.name for source in sources],
        "all_together": promise_together(opened),
        "estimate": "inverse-variance mean of independent releases",
        "combined": [
            _fact(source, _mean([row[i] for row in _flat(shares)])) for i, source in enumerate(sources)
        ],
    }
    notes = tuple(dict.fromkeys([*(n for s in sources for n in s.result.notes), NOT_ADDITIVE]))
    flags = tuple(dict.fromkeys(flag for source in sources for flag in source.result.flags))
    stages = [f"{source.name}: {line}" for source in sources for line in source.result.plan]
    return replace(
        best, rows=mixed.values(), provenance={**best.provenance, **facts}, notes=notes, flags=flags, grid=mixed.grid,
        stages=lambda: tuple(stages),
    )  # fmt: skip


def independent(metas: Sequence[Meta]) -> bool:
    """Whether no two releases share a draw of noise: different releases, and no two of one collection's reports.

    A device answers a collection once, so whatever is made of its reports, under whichever plan, shares their noise.
    """
    return len({_draw(meta) for meta in metas}) == len(metas)


def _draw(meta: Meta) -> str:
    """What a release's noise was drawn for: itself, or a collection."""
    return meta.release_id if meta.local is None else meta.local.collection


def promise_together(metas: Sequence[Meta]) -> dict[str, str] | None:
    """What somebody is promised who is in all releases: epsilons for replacing what is hers, added up.

    A release that is open twice, and all that is made of one collection's reports, were drawn once and cost once.

    Args:
        metas: the releases' `meta` tables; adding or removing a person counts twice when replacing one.

    Returns:
        Neighbours, unit and epsilon, or None where a release's promise is not a pure epsilon, or where the releases
        protect different units. What is promised to a person holds for each of her rows, not the other way round.
    """
    costs: dict[str, Fraction] = {}
    units = set()
    for meta in metas:
        promise = meta.privacy
        if Fraction(promise.delta) > 0:
            return None
        moves = NEIGHBOURS[REPLACE_ONE].moves, NEIGHBOURS[promise.neighbours].moves
        cost = Fraction(*moves) * Fraction(promise.epsilon)
        costs[_draw(meta)] = max(cost, costs.get(_draw(meta), cost))
        if meta.local is None:  # a report is all that a device says about its person, whatever it is called
            units.add(promise.unit)
    if len(units - {ROW}) > 1:
        return None
    unit = ROW if ROW in units else min(units, default="person")
    return {"neighbours": REPLACE_ONE, "unit": unit, "epsilon": str(sum(costs.values()))}


def mean_error(result: Result) -> float:
    """Mean total error of an answer's noisy values; 0 for an answer without any."""
    return _mean([error for row in result.stderr_rows for error in row if error is not None])


def rank(source: Source) -> tuple[int, float]:
    """What the best answer has least of: cells without an error (NULLs), then mean error."""
    return sum(e is None for row in source.result.stderr_rows for e in row), mean_error(source.result)


def routed(sources: Sequence[Source], left_out: Sequence[str], opened: Sequence[Meta]) -> dict[str, Any]:
    """Why the first of several answers was taken, and what all releases promise together.

    Args:
        sources: the best first.
        left_out: releases that could answer, but only for those who reported to them.
        opened: `meta` of all releases that are open, those that do not answer included.
    """
    return {
        "chosen": sources[0].name,
        "because": "smallest mean predicted error",
        "mean_errors": {source.name: mean_error(source.result) for source in sources},
        "left_out": list(left_out),
        "all_together": promise_together(opened),
    }


def _fact(source: Source, share: float) -> dict[str, Any]:
    return {"release": source.name, "mean_error": mean_error(source.result), "mean_share": round(share, 4)}


def _flat(shares: Sequence[Sequence[tuple[float, ...] | None]]) -> list[tuple[float, ...]]:
    return [share for row in shares for share in row if share is not None]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _key_columns(sources: Sequence[Source]) -> set[int] | None:
    """Columns without errors in every answer; None if a column has them in some rows or answers only."""
    keys = set()
    for column in range(len(sources[0].result.columns)):
        known = {row[column] is not None for s in sources for row in s.result.stderr_rows}
        if known != {True} and known != {False}:
            return None
        if known == {False}:
            keys.add(column)
    return keys if len(keys) < len(sources[0].result.columns) else None


def _places(sources: Sequence[Source], keys: set[int]) -> tuple[tuple[int, ...], ...] | None:
    """Per source the row of each of the first one's groups; None where groups differ or repeat."""
    found = [[_key(row, keys) for row in source.result.rows] for source in sources]
    if any(len(set(each)) < len(each) or set(each) != set(found[0]) for each in found):
        return None
    return tuple(tuple(each.index(key) for key in found[0]) for each in found)


def _key(row: Sequence[Any], keys: set[int]) -> tuple[str, ...]:
    return tuple(str(row[c]) for c in sorted(keys))


def _shares(errors: Sequence[float]) -> tuple[float, ...]:
    """Weights by inverse squared error; a value without any takes all."""
    if min(errors) == 0:
        exact = errors.index(0)
        return tuple(float(i == exact) for i in range(len(errors)))
    inverse = [1 / error**2 for error in errors]
    return tuple(each / sum(inverse) for each in inverse)


def _weighted(values: Sequence[Any], shares: Sequence[float]) -> float:
    return sum(share * float(value) for value, share in zip(values, shares, strict=True) if share)


def _bounded(bounds: Sequence[float | None], shares: Sequence[float]) -> float | None:
    """The weighted mean of bounds; None where one that counts is not known."""
    known = [(bound, share) for bound, share in zip(bounds, shares, strict=True) if share]
    return None if any(bound is None for bound, _ in known) else _weighted(*zip(*known, strict=True))


def _spread(errors: Sequence[float], shares: Sequence[float]) -> float:
    return float(sum((share * error) ** 2 for error, share in zip(errors, shares, strict=True)) ** 0.5)
