"""Result of a query: rows, with the error and interval of every number."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress, islice
from typing import TYPE_CHECKING, Any

from dpsql.errors import DataError, InterfaceError
from dpsql.extras import extra
from dpsql.intervals.errorfunctions import (
    DEFAULT_LEVEL,
    FEW,
    HIGH,
    LOW,
    MODEL_BOUND,
    PARTS,
    STDERR,
    ErrorFunction,
)
from dpsql.planner.notes import Reads
from dpsql.release.request import paced, requested
from dpsql.results import render
from dpsql.results.render import NUMBERS, Grid

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ERRORS = ("stderr", "low", "high", "bound")
"""What a noisy column's name goes on with, in the columns that tell of its error."""

ROWS = "; rows, columns, stderr_rows and interval_rows need nothing"
"""What to take instead of a library's tables."""

UNBOUNDED = "a denominator may be 0"
"""Why an interval may have no ends where a standard error is defined: Fieller's interval of a quotient."""
OPEN = "too few people for the noise"
"""Why an interval has an open end where the part that bounding left out has no upper bound."""
UNASKED = "people have rows that they were not asked about"
"""Why an end of a local release's interval is open: nothing bounds the rows beyond those that a report covers."""
PAST = "it may lie beyond the bounds of its column"
"""Why a quantile's interval has one end: so many rows lie beyond them."""
LOST = "noise hides a number that it is made of"
"""Why a number may have no error where others of its column have one: it follows an average that is NULL."""

ErrorGrid = Callable[[ErrorFunction, float, int | None], Grid]
"""Computes an error of the first so many rows; None for all."""


@dataclass(frozen=True)
class Result:
    """An answer. Immutable; the same question has the same one. `print` shows it with its margins.

    Args:
        columns: names of the select list.
        types: their DuckDB types.
        rows: the values, noise included.
        provenance: release id, privacy unit, budgets, views used.
        notes: what a reader should know.
        flags: those of the notes without which numbers would be misread, such as that counts are non-negative, and
            therefore biased, estimates; interfaces that show no notes show these.
        grid: computes standard errors and interval ends of the rows that are shown.
        stages: computes `plan`.
        reads: what the statement takes from the release.
        ordered: whether the statement sorts.
        reasons: computes `undefined`.
        moved: computes the positions of the columns that noise moves and whose error is defined.
        decompositions: computes `decomposition`.
        counts: positions of noisy counts.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    provenance: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    grid: ErrorGrid = field(default=lambda error, level, most: (), repr=False, compare=False)
    stages: Callable[[], tuple[str, ...]] = field(default=tuple, repr=False, compare=False)
    reads: Reads = Reads.TOTALS
    flags: tuple[str, ...] = ()
    ordered: bool = False
    reasons: Callable[[], Mapping[str, str]] = field(default=dict, repr=False, compare=False)
    moved: Callable[[], tuple[int, ...]] = field(default=tuple, repr=False, compare=False)
    decompositions: Callable[[], list[dict[str, Any]]] = field(default=list, repr=False, compare=False)
    counts: tuple[int, ...] = field(default=(), repr=False, compare=False)

    @cached_property
    def undefined(self) -> Mapping[str, str]:
        """Columns that noise moves but whose error is not defined, each with the reason."""
        return self.reasons()

    @cached_property
    def plan(self) -> tuple[str, ...]:
        """Stages of the plan in words, numbered, DuckDB statements last."""
        return self.stages()

    @cached_property
    def decomposition(self) -> list[dict[str, Any]]:
        """Decomposition of the answer as a value, a block each: nodes with their estimates, noise, and errors."""
        return self.decompositions()

    @cached_property
    def model_bound(self) -> Grid:
        """The most that cutting a bin may add to every cell, a part of its interval; 0 where none is cut."""
        return self.grid(MODEL_BOUND, 0.0, None)

    @cached_property
    def components(self) -> Mapping[str, Grid]:
        """Standard errors of every cell by what they come from: `noise`, `scale`, `spread`, `tail`, `within_leaf`.

        An interval is of all five and of `model_bound`; `stderr` is half of it over 1.96. Only tables with
        `max_ids: auto` have scale, spread and tail, only views by `blocks` have `within_leaf`; elsewhere they are 0.
        `channel` is a part of noise. Whoever adds answers up takes components: the interval of a sum is not the sum of
        intervals.
        """
        return {name: self.grid(component, DEFAULT_LEVEL, None) for name, component in PARTS.items()}

    @cached_property
    def stderr(self) -> pd.DataFrame:
        """Half of every cell's 95% interval divided by 1.96, in `df()`'s shape; None where it has no such interval."""
        return _data_frame(self.columns, self.stderr_rows)

    @cached_property
    def stderr_rows(self) -> Grid:
        """`stderr` as plain tuples."""
        return self.grid(STDERR, DEFAULT_LEVEL, None)

    def interval(self, level: float = 0.95) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Low and high ends of every noisy cell's interval, each in `df()`'s shape; None where not defined or open.

        Columns without noise, such as the labels of groups, hold what `df()` holds.

        Args:
            level: chance that an interval holds the answer without noise; the exact answer over all rows where
                shapes were scaled (`max_ids: auto`).

        Raises:
            InterfaceError: a level outside (0, 1).
        """
        low, high = self.interval_rows(level)
        return _data_frame(self.columns, self._labelled(low)), _data_frame(self.columns, self._labelled(high))

    def _labelled(self, ends: Grid) -> Grid:
        """Ends of intervals, and the answer's own values in columns without noise."""
        noisy = {*self.noisy, *(c for c, name in enumerate(self.columns) if name in self.undefined)}
        return tuple(
            tuple(end if c in noisy else row[c] for c, end in enumerate(row_ends))
            for row, row_ends in zip(self.rows, ends, strict=True)
        )

    def interval_rows(self, level: float = 0.95) -> tuple[Grid, Grid]:
        """`interval` as plain tuples."""
        if not 0.0 < level < 1.0:
            raise InterfaceError("an interval's level lies between 0 and 1", hint="for instance 0.95")
        if level != DEFAULT_LEVEL:
            return self.grid(LOW, level, None), self.grid(HIGH, level, None)
        return self._default_ends

    @cached_property
    def _default_ends(self) -> tuple[Grid, Grid]:
        return self.grid(LOW, DEFAULT_LEVEL, None), self.grid(HIGH, DEFAULT_LEVEL, None)

    def df(self, errors: bool = False, level: float = 0.95) -> pd.DataFrame:
        """The rows as a pandas data frame.

        Args:
            errors: whether every noisy column is followed by its `with_errors` columns.
            level: of their intervals.
        """
        if not errors:
            return _data_frame(self.columns, self.rows)
        names, rows = self.with_errors(level)
        return _data_frame(names, rows)

    def arrow(self, errors: bool = False, level: float = 0.95) -> pa.Table:
        """The rows as an Arrow table; needs the `arrow` extra.

        Args:
            errors, level: as for `df`.

        Returns:
            Columns of the statement's types, also where there is no row; one whose values do not fit its type has that
            of its values. The schema's metadata hold provenance and notes under `dpsql`.

        Raises:
            InterfaceError: pyarrow is not installed.
        """
        arrow = extra("arrow", ROWS)
        names, rows = self.with_errors(level) if errors else (self.columns, self.rows)
        types = iter(render.arrow_types(self.types))
        kinds = [next(types) if name in self.columns else arrow.float64() for name in names]
        columns = [render.arrow_column([row[c] for row in rows], kind) for c, kind in enumerate(kinds)]
        about = json.dumps({**self.provenance, "notes": self.notes}, default=str)
        return arrow.Table.from_arrays(columns, names=list(names)).replace_schema_metadata({"dpsql": about})

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table of `arrow` by Arrow's C stream interface, which polars, pandas, pyarrow and others read."""
        return self.arrow().__arrow_c_stream__(requested_schema)

    def with_errors(self, level: float = 0.95) -> tuple[tuple[str, ...], Grid]:
        """Names and rows in which every noisy column is followed by what is known of its error.

        Args:
            level: of the intervals.

        Returns:
            After `n` come `n_stderr`, `n_low` and `n_high` (its interval), `n_bound` (how much of it cutting a bin may
            add, 0 where none is cut), None where they are not defined. A name that is taken gets a `_` more.
        """
        with requested():
            low, high = self.interval_rows(level)
            grids = dict(zip(ERRORS, (self.stderr_rows, low, high, self.model_bound), strict=True))
            names, columns = list(self.columns), []
            for c, name in enumerate(self.columns):
                columns.append((name, [row[c] for row in self.rows]))
                for error, grid in grids.items() if c in self.noisy else ():
                    free = f"{name}_{error}"
                    while free in names:
                        free += "_"
                    names.append(free)
                    columns.append((free, [row[c] for row in grid]))
            # their values are counted already
            rows = paced(
                zip(*(values for _, values in columns), strict=True),
                lambda part: sum(map(sys.getsizeof, part)),
            )
            return tuple(name for name, _ in columns), tuple(rows)

    def rounded(self) -> Result:
        """Counts as whole numbers, as interfaces show them; errors stay."""
        if not self.counts:
            return self
        whole = [c for c in self.counts if self.types[c] == "DOUBLE"]
        rows = (
            tuple(round(v) if c in whole and v is not None else v for c, v in enumerate(row))
            for row in self.rows
        )
        types = tuple("BIGINT" if c in whole else kind for c, kind in enumerate(self.types))
        return replace(self, rows=tuple(rows), types=types)

    def with_intervals(self, level: float = 0.95) -> Result:
        """The answer with two columns more after every noisy column: the ends of its interval.

        Args:
            level: of the intervals.

        Returns:
            After `n` come `n_low` and `n_high`, None where they are not defined or open. They are bounds, no estimates:
            no error is stated of them.

        **Privacy**: a function of the release alone, as the intervals are.
        """
        with requested():
            low, high = self.interval_rows(level)
            noisy = frozenset(self.noisy)
            ends: list[tuple[int, Grid | None]] = []
            names, types, taken = list[str](), list[str](), set(self.columns)
            for c, (name, kind) in enumerate(zip(self.columns, self.types, strict=True)):
                ends.append((c, None))
                names.append(name)
                types.append(kind)
                for suffix, grid in (("low", low), ("high", high)) if c in noisy else ():
                    free = f"{name}_{suffix}"
                    while free in taken:
                        free += "_"
                    taken.add(free)
                    ends.append((c, grid))
                    names.append(free)
                    types.append(kind if kind.startswith(("DATE", "TIMESTAMP")) else "DOUBLE")
            rows = tuple(
                tuple(row[c] if grid is None else grid[r][c] for c, grid in ends)
                for r, row in enumerate(paced(self.rows))
            )
            return replace(
                self, columns=tuple(names), types=tuple(types), rows=rows, grid=_spread(self.grid, ends),
                moved=lambda: tuple(i for i, (c, end) in enumerate(ends) if end is None and c in self.moved()),
            )  # fmt: skip

    def gaps(self, level: float = 0.95) -> Mapping[str, str]:
        """Columns of which some rows have no error, or an interval without ends, each with the reason."""
        reasons = {}
        low, high = self.interval_rows(level) if self.moved() else ((), ())
        for c in self.moved():
            noise = [row[c] for row in self.noise_rows]
            ends = zip(noise, low, high, strict=True)
            if rows := [r for r, (n, a, b) in enumerate(ends) if n is not None and None in (a[c], b[c])]:
                tails = self.grid(PARTS["tail"], DEFAULT_LEVEL, None)
                open_end = UNASKED if "local" in self.provenance else OPEN
                reasons[self.columns[c]] = open_end if any(tails[r][c] is None for r in rows) else UNBOUNDED
            elif rows := [r for r, n in enumerate(noise) if self.rows[r][c] is not None and n is None]:
                one_end = any((low[r][c] is None) != (high[r][c] is None) for r in rows)
                reasons[self.columns[c]] = PAST if one_end else LOST
        return reasons

    @cached_property
    def noisy(self) -> tuple[int, ...]:
        """Positions of the columns that have noise in some row, whether or not it is known how much, or their intervals
        have both ends."""
        moved = self.moved()
        return tuple(
            c for c in range(len(self.columns))
            if any(row[c] is not None for row in self.noise_rows)
            or (c in moved and any(row[c] is not None for row in self.rows))
        )  # fmt: skip

    @cached_property
    def noise_rows(self) -> Grid:
        """Standard errors of the noise alone; None where a cell has none."""
        return self.grid(PARTS["noise"], DEFAULT_LEVEL, None)

    @cached_property
    def few(self) -> Grid:
        """Marks of the rule of small numbers: `min_people` of a hidden number, below 0 of a doubtful one, or 0."""
        return self.grid(FEW, DEFAULT_LEVEL, None)

    @cached_property
    def marked(self) -> tuple[tuple[bool, ...], ...]:
        """Cells whose standard error is at least half of their number, or whose interval has an open end: `?`."""
        return self.unreliable(render.MARKED)

    def unreliable(self, relative: float) -> tuple[tuple[bool, ...], ...]:
        """Noisy cells whose standard error is at least so many times the number, or whose interval has an open end."""
        rows = zip(self.rows, self.noise_rows, self.stderr_rows, strict=True)
        return tuple(
            tuple(
                noise is not None and value is not None and _is_unreliable(value, error, relative)
                for value, noise, error in zip(*row, strict=True)
            )
            for row in rows
        )

    def head(self, most: int) -> Result:
        """The first rows alone, whose errors are the only ones that are computed."""
        if len(self.rows) <= most:
            return self

        def grid(error: ErrorFunction, level: float, fewer: int | None) -> Grid:
            return self.grid(error, level, most if fewer is None else min(most, fewer))

        return replace(self, rows=self.rows[:most], grid=grid)

    def scalar(self) -> Any:
        """The one value of a 1 x 1 answer.

        Raises:
            DataError: the answer has another shape.
        """
        if len(self.rows) != 1 or len(self.columns) != 1:
            raise DataError(
                f"the answer has {len(self.rows)} rows and {len(self.columns)} columns, not one value",
                hint="use df() or rows",
            )
        return self.rows[0][0]

    def __str__(self) -> str:
        """A table for people: each number with plus or minus its 95% half-width; what a reader should know below."""
        return render.text_table(self)

    def _repr_html_(self) -> str:
        """The same table for notebooks."""
        return render.html_table(self)


def hide(result: Result, min_relative_error: float) -> Result:
    """The answer without the groups suppressed as noise, and a note of how many there were.

    Groups that remain were picked by their noise: small ones that are shown are those that noise made larger. The note
    says how many are hidden, so that nobody takes the others for all.

    Args:
        result: the answer.
        min_relative_error: as for `suppressed`.

    Raises:
        InterfaceError: no number above 0.
    """
    visible = [not lost for lost in render.suppressed(result, min_relative_error)]
    hidden = len(visible) - sum(visible)
    if not hidden:
        return result

    def grid(error: ErrorFunction, level: float, row_limit: int | None) -> Grid:
        return tuple(islice(compress(result.grid(error, level, None), visible), row_limit))

    note = (
        f"{hidden} of {len(visible)} groups are hidden: the standard error of each of their numbers is at least "
        f"{min_relative_error:g} times the number"
    )
    rows = tuple(compress(result.rows, visible))
    return replace(result, rows=rows, grid=grid, notes=(*result.notes, note), flags=(*result.flags, note))


def _spread(grid: ErrorGrid, ends: Sequence[tuple[int, Grid | None]]) -> ErrorGrid:
    """Errors of an answer whose noisy columns have their intervals beside them, which have none."""

    def spread(error: ErrorFunction, level: float, most: int | None) -> Grid:
        return tuple(
            tuple(row[c] if end is None else None for c, end in ends) for row in grid(error, level, most)
        )

    return spread


def _is_unreliable(value: Any, error: float | None, relative: float) -> bool:
    """True if an error hides a number; None is the error of an open interval."""
    if error is None or not isinstance(value, NUMBERS):  # a day has no size that an error could hide
        return error is None
    return error > 0 and error >= relative * abs(float(value))


def _data_frame(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """A frame whose names may repeat."""
    import pandas

    frame = pandas.DataFrame([list(row) for row in rows], columns=range(len(names)))
    frame.columns = pandas.Index(names)
    return frame
