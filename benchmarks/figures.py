"""Promised figures, a `figure` line each with bound and verdict; everything else that is measured is a `table` line.

A promise over many cells is one figure, the worst of them: each cell is printed as a `table` line when it is measured,
and the figure, which names its worst cell, when the run ends.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


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


def exit_code(measure: Callable[..., object], **options: object) -> int:
    """Measure figures in a folder that goes away; 0 if all hold.

    Args:
        measure: a module's function. It is given `figures` and `folder` where it names them; one that judges by itself
            returns its exit code.
        options: its other arguments.
    """
    figures, named = Figures(), inspect.signature(measure).parameters
    with tempfile.TemporaryDirectory(prefix="dpsql-bench-") as place:
        given: dict[str, object] = {"figures": figures, "folder": Path(place)}
        code = measure(**{name: value for name, value in given.items() if name in named}, **options)
    return figures.finish() or int(isinstance(code, int) and code)


def main(measure: Callable[..., object]) -> None:
    """Measure as the command line says, and leave with the exit code.

    Each argument of the function but `figures` and `folder` is one of the command, of its default's type: keywords are
    `--options`, False is a switch, a tuple any of its words. Without arguments the promised figures are measured.
    """
    module = inspect.getmodule(measure)
    parser = argparse.ArgumentParser(
        description=module.__doc__ if module else None, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, parameter in inspect.signature(measure).parameters.items():
        if name in ("figures", "folder"):
            continue
        default, keyword = parameter.default, parameter.kind is parameter.KEYWORD_ONLY
        options: dict[str, Any] = {"default": default, "type": type(default)}
        if default is False:
            options = {"action": "store_true"}
        elif isinstance(default, tuple):
            options = {"default": default, "nargs": "*"}
        elif not keyword:
            options["nargs"] = "?"
        parser.add_argument(f"--{name}" if keyword else name, **options)
    sys.exit(exit_code(measure, **vars(parser.parse_args())))


def sections(named: Sequence[str], parts: Mapping[str, Callable[[], object]]) -> None:
    """Measure the parts that are named, or all."""
    for name in named or parts:
        parts[name]()
