"""What a query gives back: rows, and for every number how far it may be off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpsql.answer.errorfunctions import HIGH, LOW, MODEL_BOUND, PARTS, STDERR, ErrorFunction
from dpsql.answer.notes import Reads
from dpsql.errors import DataError, InterfaceError
from dpsql.extras import extra

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from matplotlib.axes import Axes

Grid = tuple[tuple[Any, ...], ...]
ERRORS = ("stderr", "low", "high", "bound")
"""What a noisy column's name goes on with, in the columns that tell of its error."""

ROWS = "; rows, columns, stderr_rows and interval_rows need nothing"
"""What to take instead of a library's tables."""

ErrorGrid = Callable[[ErrorFunction, float], Grid]


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
            therefore biased, estimates; doors that show no notes show these.
        grid: computes standard errors and interval ends.
        stages: computes `plan`.
        reads: what the statement takes from the release.
        ordered: whether the statement sorts.
        reasons: computes `undefined`.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    provenance: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    grid: ErrorGrid = field(default=lambda error, level: (), repr=False, compare=False)
    stages: Callable[[], tuple[str, ...]] = field(default=tuple, repr=False, compare=False)
    reads: Reads = Reads.TOTALS
    flags: tuple[str, ...] = ()
    ordered: bool = False
    reasons: Callable[[], Mapping[str, str]] = field(default=dict, repr=False, compare=False)

    @cached_property
    def undefined(self) -> Mapping[str, str]:
        """Columns that noise moves but whose error is not defined, each with the reason."""
        return self.reasons()

    @cached_property
    def plan(self) -> tuple[str, ...]:
        """How it was answered: numbered stages in words, the DuckDB statements last."""
        return self.stages()

    @cached_property
    def model_bound(self) -> Grid:
        """The most that cutting a bin may add to every cell, beside the noise; 0 where none is cut."""
        return self.grid(MODEL_BOUND, 0.0)

    @cached_property
    def components(self) -> Mapping[str, Grid]:
        """Standard errors of every cell by what they come from: `noise`, `scale`, `spread`, `tail`, `within_leaf`.

        `stderr` is of noise and scale together, an interval of all five. Only tables with `max_ids: auto` have scale,
        spread and tail, only views by `blocks` have `within_leaf`; elsewhere they are 0. `channel` is a part of noise.
        """
        return {name: self.grid(part, 0.0) for name, part in PARTS.items()}

    @cached_property
    def stderr(self) -> pd.DataFrame:
        """Standard error of every cell, in `df()`'s shape; None where it is not defined."""
        return self._frame(self.stderr_rows)

    @cached_property
    def stderr_rows(self) -> Grid:
        """`stderr` as plain tuples."""
        return self.grid(STDERR, 0.0)

    def interval(self, level: float = 0.95) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Low and high ends of every noisy cell's interval, each in `df()`'s shape; None where not defined.

        Columns without noise, such as the labels of groups, hold what `df()` holds.

        Args:
            level: chance that an interval holds the answer without noise; the plain answer over all rows where
                shapes were scaled (`max_ids: auto`).

        Raises:
            InterfaceError: a level outside (0, 1).
        """
        low, high = self.interval_rows(level)
        return self._frame(self._labelled(low)), self._frame(self._labelled(high))

    def _labelled(self, ends: Grid) -> Grid:
        """Ends of intervals, and the answer's own values in columns without noise."""
        noisy = frozenset(self.noisy)
        return tuple(
            tuple(end if c in noisy else row[c] for c, end in enumerate(each))
            for row, each in zip(self.rows, ends, strict=True)
        )

    def interval_rows(self, level: float = 0.95) -> tuple[Grid, Grid]:
        """`interval` as plain tuples."""
        if not 0.0 < level < 1.0:
            raise InterfaceError("an interval's level lies between 0 and 1", hint="for instance 0.95")
        return self.grid(LOW, level), self.grid(HIGH, level)

    def df(self, errors: bool = False, level: float = 0.95) -> pd.DataFrame:
        """The rows as a pandas data frame; needs the `pandas` extra, as `stderr` and `interval` do.

        Args:
            errors: whether every noisy column is followed by its `with_errors` columns.
            level: of their intervals.

        Raises:
            InterfaceError: pandas is not installed.
        """
        if not errors:
            return self._frame(self.rows)
        names, rows = self.with_errors(level)
        return _data_frame(names, rows)

    def arrow(self, errors: bool = False, level: float = 0.95) -> pa.Table:
        """The rows as an Arrow table; needs the `arrow` extra.

        Args:
            errors, level: as for `df`.

        Raises:
            InterfaceError: pyarrow is not installed.
        """
        arrow = extra("arrow", ROWS)
        names, rows = self.with_errors(level) if errors else (self.columns, self.rows)
        columns = [arrow.array([row[c] for row in rows]) for c in range(len(names))]
        return arrow.Table.from_arrays(columns, names=list(names))

    def with_errors(self, level: float = 0.95) -> tuple[tuple[str, ...], Grid]:
        """Names and rows in which every noisy column is followed by what is known of its error.

        Args:
            level: of the intervals.

        Returns:
            After `n` come `n_stderr`, `n_low` and `n_high` (its interval), `n_bound` (the most that cutting a bin may
            add, 0 where none is cut), None where they are not defined. A name that is taken gets a `_` more.
        """
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
        return tuple(name for name, _ in columns), tuple(zip(*(values for _, values in columns), strict=True))

    @cached_property
    def noisy(self) -> tuple[int, ...]:
        """Positions of the columns that have a standard error in some row."""
        return tuple(
            c for c in range(len(self.columns)) if any(row[c] is not None for row in self.stderr_rows)
        )

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

    def plot(self, kind: str | None = None, *, level: float = 0.95, ax: Axes | None = None) -> Axes:
        """Draw the answer with its error bars; needs the `plot` extra.

        Args:
            kind: `bar`, `step` or `heat`; by default what fits the keys.
            level: of the error bars.
            ax: where to draw; by default a new figure.

        Raises:
            InterfaceError: no noisy column, too many keys, or an unknown kind.
        """
        from dpsql.answer.output import plot

        return plot(self, kind, level=level, ax=ax)

    def _frame(self, rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
        return _data_frame(self.columns, rows)

    def __str__(self) -> str:
        """A table for people: each number with plus or minus its 95% half-width; what a reader should know below."""
        from dpsql.answer.output import text_table

        return text_table(self)

    def _repr_html_(self) -> str:
        """The same table for notebooks."""
        from dpsql.answer.output import html_table

        return html_table(self)


def _data_frame(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """A frame whose names may repeat."""
    pandas = extra("pandas", ROWS)

    frame: pd.DataFrame = pandas.DataFrame([list(row) for row in rows], columns=range(len(names)))
    frame.columns = pandas.Index(names)
    return frame
