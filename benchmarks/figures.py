"""Promised figures, a `figure` line each with bound and verdict; everything else that is measured is a `table` line.

A promise over many cells is one figure, the worst of them: each cell is printed as a `table` line when it is measured,
and the figure, which names its worst cell, when the run ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Cell(NamedTuple):
    """One measured cell of a promise: its value, how far past its bound, and the bound in words."""

    name: str
    value: float
    beyond: float
    bound: str


class Figures:
    """Collects figures, prints each, and says whether all hold."""

    def __init__(self) -> None:
        self.short = 0
        self.cells: dict[str, list[Cell]] = {}

    def at_most(self, name: str, value: float, bound: float, of: str = "") -> None:
        """A figure that must not pass its bound; with `of`, one cell of a promise over many."""
        self._take(name, Cell(of, value, value - bound, f"<= {bound:g}"))

    def at_least(self, name: str, value: float, bound: float, of: str = "") -> None:
        """A figure that must reach its bound; with `of`, one cell of a promise over many."""
        self._take(name, Cell(of, value, bound - value, f">= {bound:g}"))

    def within(self, name: str, value: float, low: float, high: float, of: str = "") -> None:
        """A figure that must lie between two bounds; with `of`, one cell of a promise over many."""
        self._take(name, Cell(of, value, max(low - value, value - high), f"{low:g} to {high:g}"))

    def table(self, name: str, value: float) -> None:
        """A number that nobody promises."""
        print(f"table {name}: {value:.6g}", flush=True)

    def finish(self) -> int:
        """Print the promises over many cells; exit code 0 if every figure holds."""
        for name, cells in self.cells.items():
            worst = max(cells, key=lambda cell: (not cell.beyond <= 0, cell.beyond))
            self._print(f"{name}, worst of {len(cells)} ({worst.name})", worst)
        self.cells.clear()
        return 1 if self.short else 0

    def _take(self, name: str, cell: Cell) -> None:
        if cell.name:
            self.table(f"{name}, {cell.name}", cell.value)
            self.cells.setdefault(name, []).append(cell)
        else:
            self._print(name, cell)

    def _print(self, name: str, cell: Cell) -> None:
        holds = cell.beyond <= 0
        self.short += not holds
        print(f"figure {name}: {cell.value:.6g} ({cell.bound}) {'ok' if holds else 'short'}", flush=True)


def exit_code(measure: Callable[[Figures], None]) -> int:
    """Measure figures; 0 if all hold."""
    figures = Figures()
    measure(figures)
    return figures.finish()
