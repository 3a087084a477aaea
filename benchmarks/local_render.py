"""Tables, plots and the page itself: measured blocks between markers, so that one section can be measured again."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

Errors = dict[str, list[float]]
STYLES = ("x:", "+:", "v--", "s-", "^-", "D-.", "o-", "*-", "1:")


def table(head: Sequence[str], rows: Mapping[str, Sequence[float]], corner: str = "method") -> str:
    """A table of errors to two digits; what was not measured is a dash."""
    lines = [f"| {corner} | " + " | ".join(head) + " |", "|---|" + "--:|" * len(head)]
    lines += [
        f"| {name} | " + " | ".join(_digits(value) for value in values) + " |"
        for name, values in rows.items()
    ]
    return "\n".join(lines)


def _digits(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2g}"


def plot(panels: Mapping[str, Errors], at: Sequence[float], labels: tuple[str, str], path: Path) -> None:
    """Errors of every method against one parameter, logarithmic.

    Args:
        panels: title and errors of each panel.
        at: values of the parameter.
        labels: of the parameter and of the error.
        path: PNG to write.
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 3.4), squeeze=False)
    for axis, (title, rows) in zip(axes[0], panels.items(), strict=True):
        for style, (name, values) in zip(STYLES, rows.items(), strict=False):
            axis.semilogy(at, values, style, label=name, markersize=4, linewidth=1)
        axis.set_xlabel(labels[0], fontsize=8)
        axis.set_ylabel(labels[1], fontsize=8)
        axis.set_title(title, fontsize=9)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(path, dpi=72, metadata={"Software": ""})
    plt.close(figure)


def page(text: str, measured: Mapping[str, str], before: str) -> str:
    """Fill a text's places in braces: with what was measured now, else with what the page held before.

    Args:
        text: the page's text with `{NAME}` on lines of their own.
        measured: blocks by name.
        before: the page as it stands.

    Example:
        >>> first = page("a {X} b", {"X": "1"}, "")
        >>> page("changed {X} b", {}, first) == first.replace("a ", "changed ")
        True
    """

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        start, end = f"<!-- measured: {name} -->\n\n", f"\n\n<!-- end of {name} -->"
        if name in measured:
            return start + measured[name] + end
        found = re.search(re.escape(start) + "(.*?)" + re.escape(end), before, re.DOTALL)
        return "(not measured yet)" if found is None else found[0]

    return re.sub(r"\{([A-Z0-9_]+)\}", fill, text)
