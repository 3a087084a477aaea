"""`auto` against the best of what ships, on DPBench: the promised histograms and the eight that no promise names."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

import pandas as pd

from benchmarks.baselines import registry
from benchmarks.figures import Figures

PROMISED = ("NETTRACE", "SEARCHLOGS", "HEPTH", "INCOME")
EPSILONS = (0.01, 0.1, 1.0)
RIVALS = [*(name for name in registry.SHIPPED if name != "auto"), "DAWA"]


class Cell(NamedTuple):
    """`auto` against the best rival on one histogram at one epsilon; errors over all ranges, spread 0 if exact."""

    label: str
    error: float
    spread: float
    best: str
    least: float
    least_spread: float

    @property
    def ratio(self) -> float:
        """Error of `auto` over that of the best rival."""
        return self.error / self.least


def against_best(rows: pd.DataFrame, names: Iterable[str], rivals: list[str]) -> list[Cell]:
    """For each histogram and epsilon, `auto` and the best rival."""
    whole = rows[rows.length == 0].set_index(["data", "epsilon", "mechanism"])
    error, spread = whole.error.to_dict(), whole.spread.to_dict()
    out = []
    for data, epsilon in product(names, EPSILONS):
        best = min(rivals, key=lambda name: error[(data, epsilon, name)])
        own, rival = (data, epsilon, "auto"), (data, epsilon, best)
        out.append(Cell(f"{data}, {epsilon:g}", error[own], spread[own], best, error[rival], spread[rival]))
    return out


def promise(rows: pd.DataFrame, figures: Figures) -> None:
    """Figures of `auto` on the four promised histograms, from the measured section "chosen"."""
    cells = against_best(rows, PROMISED, RIVALS)
    near = sum(cell.ratio <= 1.15 for cell in cells)
    figures.at_least("DPBench cells with auto within 15% of the best", near, 10)
    figures.at_most("DPBench worst ratio of auto to the best", max(cell.ratio for cell in cells), 2.0)
