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

    def df(self) -> pd.DataFrame:
        """The rows as a pandas data frame."""
        return self._frame(self.rows)

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
        import pandas as pd

        frame = pd.DataFrame([list(row) for row in rows], columns=range(len(self.columns)))
        frame.columns = pd.Index(self.columns)
        return frame

    def _repr_html_(self) -> str:
        """A table for notebooks: each number with plus or minus its 95% half-width; what a reader should know below."""
        low, high = self.interval_rows(0.95)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = []
        for r, row in enumerate(self.rows[:100]):
            cells = [_cell(value, low[r][c], high[r][c]) for c, value in enumerate(row)]
            body.append(f"<tr>{''.join(cells)}</tr>")
        more = f"<p>{len(self.rows) - 100} more rows</p>" if len(self.rows) > 100 else ""
        notes = "".join(f"<p><small>{html.escape(note)}</small></p>" for note in self.notes)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{more}{notes}"


def _cell(value: Any, low: float | None, high: float | None) -> str:
    if low is None or high is None or not isinstance(value, (int, float)):
        return f"<td>{html.escape('' if value is None else str(value))}</td>"
    return f"<td>{value:,.6g} <small>&plusmn; {(high - low) / 2:,.3g}</small></td>"
