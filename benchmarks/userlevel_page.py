"""The page "what can I ask at epsilon 1": docs/accuracy/userlevel.md and its plot, from measured errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from benchmarks.userlevel_questions import AGGREGATES, CLASSES

mpl.use("Agg")

import matplotlib.pyplot as plt

Errors = Mapping[tuple[str, str], Sequence[float]]

LIMITS = (5, 10, 25)
TITLES = {
    "foodmart": "FoodMart, (1, 1e-6), zCDP",
    "online_retail": "Online Retail, (1, 1e-6), zCDP",
    "foodmart pure": "FoodMart, epsilon 1, pure",
}
TEXT = Path(__file__).with_name("userlevel_text.md")


def write_page(folder: Path, found: Mapping[str, Errors], releases: int) -> None:
    """Write the page and its plot.

    Args:
        folder: docs/accuracy.
        found: star -> relative errors in percent, by (class, aggregate).
        releases: of each star.
    """
    tables = "\n\n".join(f"### {TITLES[name]}\n\n{_table(errors)}" for name, errors in found.items())
    text = TEXT.read_text().replace("{tables}", tables).replace("{releases}", str(releases))
    (folder / "userlevel.md").write_text(text)
    _plot(found, folder / "plots" / "userlevel.png")


def _table(errors: Errors) -> str:
    lines = [
        "| question | aggregate | median error | p90 | under 5% | under 10% | under 25% |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for kind in CLASSES:
        for aggregate in AGGREGATES:
            values = np.array(errors[kind, aggregate])
            shares = " | ".join(f"{100 * np.mean(values < limit):.0f}%" for limit in LIMITS)
            median, p90 = np.median(values), np.quantile(values, 0.9)
            lines.append(f"| {kind} | {aggregate} | {median:.1f}% | {p90:.1f}% | {shares} |")
    return "\n".join(lines)


def _plot(found: Mapping[str, Errors], path: Path) -> None:
    """Share of answers under each error, one panel for each star."""
    labels = [f"{kind}\n{aggregate}" for kind in CLASSES for aggregate in AGGREGATES]
    figure, axes = plt.subplots(1, len(found), figsize=(4.6 * len(found), 4.2), sharey=True)
    for axis, (name, errors) in zip(np.atleast_1d(axes), found.items(), strict=True):
        for limit, shade in zip(reversed(LIMITS), ("#cfe3f5", "#7fb2de", "#2b6ca8"), strict=True):
            shares = [
                100 * np.mean(np.array(errors[kind, a]) < limit) for kind in CLASSES for a in AGGREGATES
            ]
            axis.barh(range(len(shares)), shares, color=shade, label=f"error under {limit}%")
        axis.set_title(TITLES[name], fontsize=9)
        axis.set_xlim(0, 100)
        axis.set_xlabel("% of answers", fontsize=8)
        axis.tick_params(labelsize=7)
    np.atleast_1d(axes)[0].set_yticks(range(len(labels)), labels, fontsize=6)
    np.atleast_1d(axes)[0].invert_yaxis()
    np.atleast_1d(axes)[-1].legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=72, metadata={"Software": ""})
