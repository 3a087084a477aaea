"""One page maker for docs/accuracy: a topic's text with places in braces, filled with what was measured.

| in `benchmarks/<topic>/` | holds |
|---|---|
| `text.md` | the page's sentences, and `{NAME}` on a line of its own for each measured block |
| `page.py` | which blocks there are and how they are made; `make page-<topic>` runs it |
| `measure.py` | the figures that the project promises; `make bench-<topic>` runs it |

Measured blocks stand between markers on the page, so that one section can be measured again and the others stay.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

Errors = dict[str, list[float]]
DOCS = Path(__file__).resolve().parents[1] / "docs" / "accuracy"
PLOTS = DOCS / "plots"
STYLES = ("x:", "+:", "v--", "s-", "^-", "D-.", "o-", "*-", "1:")


def table(head: Sequence[str], rows: Mapping[str, Sequence[float]], corner: str = "method") -> str:
    """A table of errors to two digits; what was not measured is a dash."""
    return markdown([corner, *head], ([name, *map(_digits, values)] for name, values in rows.items()))


def markdown(header: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    """A markdown table; numbers are aligned to the right.

    Example:
        >>> print(markdown(["n", "error"], [["8", "1.5"]]))
        | n | error |
        |---|--:|
        | 8 | 1.5 |
    """
    head = list(header)
    lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in body])


def number(value: float) -> str:
    """Three digits, thousands apart, powers of ten where a number is hopeless."""
    if value >= 1e6:
        return f"{value:.1e}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


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


def write(name: str, text: Path, measured: Mapping[str, str], folder: Path = DOCS) -> None:
    """Write a page of docs/accuracy.

    Args:
        name: of the page, without its ending.
        text: the topic's text.md.
        measured: blocks by name; what is not among them stays as the page has it.
        folder: where the page is.
    """
    file = folder / f"{name}.md"
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    file.write_text(page(text.read_text(encoding="utf-8"), measured, before), encoding="utf-8")


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
