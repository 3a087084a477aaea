"""What a query gives back: rows, and for every number how far it may be off."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpsql.answer.participation import Reads
from dpsql.errors import DataError, InterfaceError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Grid = tuple[tuple[Any, ...], ...]
NONNEGATIVE = "non-negative estimates"
"""How the note begins that flags them."""
REPORTED = "of those who reported"
"""How the note begins that says whom a local release's answer is about."""

ERRORS = ("stderr", "low", "high", "bound")
"""What a noisy column's name goes on with, in the columns that tell of its error."""

ErrorGrid = Callable[[str, float], Grid]


@dataclass(frozen=True)
class Result:
    """An answer. Immutable; the same question has the same one.

    Args:
        columns: names of the select list.
        types: their DuckDB types.
        rows: the values, noise included.
        provenance: release id, privacy unit, budgets, views used.
        notes: what a reader should know.
        grid: computes standard errors and interval ends.
        stages: computes `plan`.
        reads: what the statement takes from the release.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    provenance: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    grid: ErrorGrid = field(default=lambda what, level: (), repr=False, compare=False)
    stages: Callable[[], tuple[str, ...]] = field(default=tuple, repr=False, compare=False)
    reads: Reads = Reads.TOTALS

    @cached_property
    def plan(self) -> tuple[str, ...]:
        """How it was answered: numbered stages in words, the DuckDB statements last."""
        return self.stages()

    @property
    def flags(self) -> tuple[str, ...]:
        """The notes without which numbers would be misread; doors that show no notes show these.

        That counts are non-negative, and therefore biased, estimates; that they are of those who reported.
        """
        return tuple(note for note in self.notes if note.startswith((NONNEGATIVE, REPORTED)))

    @cached_property
    def model_bound(self) -> Grid:
        """The most that cutting a bin may add to every cell, beside the noise; 0 where none is cut."""
        return self.grid("model", 0.0)

    @cached_property
    def scale_error(self) -> Grid:
        """What the standard error of a table's common scale adds to every cell beside `stderr`.

        0 where none was estimated, and where it is part of `stderr`, as the weight of rows of a local release is.
        """
        return self.grid("scale", 0.0)

    @cached_property
    def stderr(self) -> pd.DataFrame:
        """Standard error of every cell, in `df()`'s shape; None where it is not defined."""
        return self._frame(self.stderr_rows)

    @cached_property
    def stderr_rows(self) -> Grid:
        """`stderr` as plain tuples."""
        return self.grid("stderr", 0.0)

    def interval(self, level: float = 0.95) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Low and high ends of every cell's interval, each in `df()`'s shape; None where not defined.

        Args:
            level: chance that an interval holds the answer that would have been given without noise.

        Raises:
            InterfaceError: a level outside (0, 1).
        """
        low, high = self.interval_rows(level)
        return self._frame(low), self._frame(high)

    def interval_rows(self, level: float = 0.95) -> tuple[Grid, Grid]:
        """`interval` as plain tuples."""
        if not 0.0 < level < 1.0:
            raise InterfaceError("an interval's level lies between 0 and 1", hint="for instance 0.95")
        return self.grid("low", level), self.grid("high", level)

    def df(self, errors: bool = False, level: float = 0.95) -> pd.DataFrame:
        """The rows as a pandas data frame.

        Args:
            errors: whether every noisy column is followed by its `with_errors` columns.
            level: of their intervals.
        """
        if not errors:
            return self._frame(self.rows)
        names, rows = self.with_errors(level)
        return _data_frame(names, rows)

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
        from dpsql.answer.plot import plot

        return plot(self, kind, level=level, ax=ax)

    def _frame(self, rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
        return _data_frame(self.columns, rows)

    def _repr_html_(self) -> str:
        """A table for notebooks: each number with plus or minus its 95% half-width; what a reader should know below."""
        low, high = self.interval_rows(0.95)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = []
        for r, row in enumerate(self.rows[:100]):
            errors = zip(self.stderr_rows[r], low[r], high[r], self.model_bound[r], strict=True)
            cells = [_cell(value, *each) for value, each in zip(row, errors, strict=True)]
            body.append(f"<tr>{''.join(cells)}</tr>")
        more = f"<p>{len(self.rows) - 100} more rows</p>" if len(self.rows) > 100 else ""
        notes = "".join(f"<p><small>{html.escape(note)}</small></p>" for note in self.notes)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{more}{notes}"


def _data_frame(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """A frame whose names may repeat."""
    import pandas as pd

    frame = pd.DataFrame([list(row) for row in rows], columns=range(len(names)))
    frame.columns = pd.Index(names)
    return frame


def _cell(
    value: Any, stderr: float | None, low: float | None, high: float | None, bound: float | None
) -> str:
    """A number with its margin, and with what cutting a bin may add where one is cut."""
    if stderr is None or not isinstance(value, (int, float)):
        return f"<td>{html.escape('' if value is None else str(value))}</td>"
    half = "&infin;" if low is None or high is None else f"{(high - low) / 2:,.3g}"
    cut = "" if bound == 0 else " ~&infin;" if bound is None else f" ~{bound:,.2g}"
    return f"<td>{value:,.6g} <small>&plusmn; {half}{cut}</small></td>"
