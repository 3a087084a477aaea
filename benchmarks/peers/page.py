"""benchmarks/results/peers.md and its plot, from what the peers' benchmarks kept in build/peers."""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.figures import Figures
from benchmarks.page import markdown, number, write
from benchmarks.peers import adult
from benchmarks.peers.measure import DELTA, RESULTS, TOTALS, Part, Row, break_even, judge

mpl.use("svg")

import matplotlib.pyplot as plt

DOCS = Path(__file__).resolve().parents[2] / "docs"
TITLES = {
    "dpsql": "dpsql, one release", "buy": "dpsql, bought", "smartnoise": "smartnoise-sql", "opendp": "OpenDP",
    "cells": "OpenDP, all cells once, by hand", "pyqrlew": "pyqrlew", "tumult": "Tumult Analytics",
    "diffprivlib": "diffprivlib",
}  # fmt: skip
Rows = Mapping[Part, Row]
LINES: dict[str, dict[str, Any]] = {
    peer: {"color": color, "marker": marker, "linestyle": dashes, "linewidth": 1.2, "markersize": 5}
    for peer, color, marker, dashes in (
        ("smartnoise", "#4b0a77", "s", "--"),
        ("opendp", "#2a7fb8", "^", "-."),
        ("pyqrlew", "#4dac5a", "v", ":"),
        ("tumult", "#b5261e", "D", "-"),
        ("diffprivlib", "#e6b422", "o", (0, (6, 2))),
    )
}
"""How a peer's points look. Lightness differs by ten of a hundred: seen in grey, and by the colour-blind too."""
LEVELS: dict[tuple[str, str], dict[str, Any]] = {
    ("opendp", "cells"): {"color": "#808080", "linestyle": ":", "linewidth": 2},
    ("dpsql", "questions"): {"color": "black", "linestyle": "-", "linewidth": 2},
}
"""How a release looks, whose error does not grow with the questions."""


def load(path: Path) -> tuple[dict[str, Any], dict[Part, Row]]:
    """What was kept, and its rows by part."""
    kept = json.loads(path.read_text())
    return kept, {Part(*part): Row(*row) for part, row in kept["rows"]}


def engine(part: Part) -> str:
    """What a table calls it."""
    return TITLES[part.method if part.method in TITLES else part.peer]


def error_table(rows: Rows, delta: float) -> str:
    """Errors at every K, unit sale."""
    body: dict[str, dict[tuple[int, int], str]] = {}
    for part, row in rows.items():
        if (part.unit, part.delta) != ("sale", delta) or part.method in ("fast", "shapes"):
            continue
        whole = part.method in ("questions", "cells") and (part.peer == "dpsql" or part.method == "cells")
        cells = body.setdefault(engine(part), {})
        for total, aggregate in product(TOTALS if whole else (part.total,), range(3)):
            cells[aggregate, total] = row.failed or number(row.errors[aggregate])
    head = [f"{what}, K = {total:,}" for what in ("COUNT", "SUM", "AVG") for total in TOTALS]
    columns = [(aggregate, total) for aggregate in range(3) for total in TOTALS]
    return markdown(
        ["engine", *head], ([name, *(cells.get(c, "-") for c in columns)] for name, cells in body.items())
    )


def even_table(rows: Rows) -> str:
    """From how many questions on a release errs less than the best engine that is paid for each."""
    body = []
    for delta, name in ((0.0, "pure"), (DELTA, f"delta {DELTA:g}")):
        body.append([name, *(f"{questions:.0f}" for questions in break_even(rows, delta))])
    return markdown(["promise", "COUNT", "SUM", "AVG"], body)


def rows_of(rows: Rows, peer: str, unit: str, delta: float, method: str) -> list[tuple[Part, Row]]:
    """Parts of a kind that came to something."""
    return [
        (part, row)
        for part, row in rows.items()
        if (part.peer, part.unit, part.delta, part.method) == (peer, unit, delta, method) and not row.failed
    ]


def held_table(rows: Rows) -> str:
    """How often 95% intervals hold."""
    body = []
    for part, row in rows.items():
        if row.failed or all(math.isnan(each) for each in row.held) or part.asked < 10:
            continue
        promise = "pure" if part.delta == 0 else f"delta {part.delta:g}"
        told = ["-" if math.isnan(each) else f"{100 * each:.0f}%" for each in row.held]
        body.append(
            [
                f"{engine(part)}, {part.unit}, {promise}, K = {part.total:,}",
                f"{part.asked * part.runs}",
                *told,
            ]
        )
    return markdown(["engine, unit, promise", "answers", "COUNT", "SUM", "AVG"], body)


def customer_table(rows: Rows) -> str:
    """Errors where the unit is a customer."""
    body = []
    for part, row in rows.items():
        if part.unit == "customer":
            promise = "pure" if part.delta == 0 else f"delta {part.delta:g}"
            told = [row.failed, "", ""] if row.failed else [number(each) for each in row.errors]
            body.append([f"{engine(part)}, {promise}", *told])
    return markdown(["engine, promise", "COUNT", "SUM", "AVG"], body)


def cost_table(rows: Rows) -> str:
    """CPU, set-up, lines, versions: one row an engine."""
    body, seen = [], set()
    for part, row in rows.items():
        name = {"fast": "dpsql, repeated shapes", "shapes": "dpsql, new shapes"}.get(
            part.method, engine(part)
        )
        skipped = part.peer == "dpsql" and part.method not in ("fast", "shapes", "buy")
        if part.unit != "sale" or skipped or name in seen:
            continue
        seen.add(name)
        if row.failed:
            body.append([name, "-", "-", "-", row.failed])
        else:
            body.append([name, f"{1e3 * row.cpu:.1f} ms", f"{row.setup:.1f} s", str(row.lines), row.version])
    return markdown(["engine", "CPU a question", "CPU before the first", "lines", "version"], body)


def census() -> str:
    """What the comparison on the census came to."""
    kept = json.loads(adult.RESULTS.read_text())
    names = [name for name in adult.MODELS if any(name in row for row in kept["sizes"])]
    body = []
    for row in kept["sizes"]:
        others = [row.get(name, {"failed": "not tried"}) for name in names]
        told = [number(each["error"]) if "error" in each else each["failed"] for each in others]
        body.append([f"{row['rows']:,}", number(float(np.mean(row["dpsql"]["errors"]))), *told])
    fits = [(name, row[name]) for row in kept["sizes"] for name in names if "error" in row.get(name, {})]
    rate = np.mean([row["dpsql"]["held"] for row in kept["sizes"]])
    lines = [
        markdown(["rows", "dpsql", *(name.upper() for name in names)], body),
        "",
        *(adult.told(kept, name) + "." for name in names),
        f"dpsql's 95% intervals hold {100 * rate:.1f}% of the time; synthetic rows have none.",
    ]
    for name in names:
        spent = [each["cpu"] for of, each in fits if of == name]
        if spent:
            lines.append(f"A fit of {name.upper()} took {min(spent):,.0f} to {max(spent):,.0f} s of CPU.")
    ours = max(row["dpsql"]["cpu"] for row in kept["sizes"])
    lines.append(
        f"A release with all its answers took {ours:.1f} s or less. dpsql at commit `{kept['commit']}`, "
        f"dpmm {fits[0][1]['version'] if fits else ''}."
    )
    return "\n".join(lines)


def measured_at(kept: Mapping[str, Any]) -> str:
    """At which commits, with how many rows."""
    shown = {who: ", ".join(f"`{each}`" for each in at) for who, at in kept["commits"].items()}
    return f"Measured with {kept['sales']:,} sales: dpsql at {shown['dpsql']}, the others' scripts at {shown['peers']}."


def judged(rows: Rows) -> str:
    """The figures as `make bench TOPIC=peers` prints them."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        judge(rows, Figures())
    return "```text\n" + out.getvalue() + "```"


def draw(rows: Rows, path: Path) -> None:
    """Error of COUNT against the number of questions, one panel a promise."""
    settings = {"svg.fonttype": "none", "svg.hashsalt": "dpsql", "font.family": "sans-serif"}
    with plt.rc_context(settings):
        figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True)
        known: dict[str, Any] = {}
        for axis, (delta, title) in zip(axes, ((0.0, "epsilon 1"), (DELTA, f"(1, {DELTA:g})")), strict=True):
            for place, (peer, style) in enumerate(LINES.items()):
                own = [
                    (p.total * 1.06 ** (place - 2), r.errors[0])
                    for p, r in rows_of(rows, peer, "sale", delta, "questions")
                ]
                if own:
                    axis.loglog(*zip(*sorted(own), strict=True), label=TITLES[peer], **style)
            for (peer, method), style in LEVELS.items():
                for _, row in rows_of(rows, peer, "sale", delta, method)[:1]:
                    label = TITLES["cells" if method == "cells" else "dpsql"]
                    axis.loglog((10, 1000), [row.errors[0]] * 2, label=label, **style)
            for _, row in rows_of(rows, "dpsql", "sale", delta, "buy"):
                axis.loglog([10], row.errors[:1], "*", label=TITLES["buy"], color="black", markersize=9)
            axis.set_title(title, fontsize=10)
            axis.set_xlabel("questions that share the budget")
            axis.grid(alpha=0.3)
            shown = axis.get_legend_handles_labels()
            known.update(zip(shown[1], shown[0], strict=True))
        axes[0].set_ylabel("mean absolute error of COUNT")
        figure.legend(known.values(), known.keys(), fontsize=7, loc="center right")
        figure.tight_layout(rect=(0, 0, 0.79, 1))
        figure.savefig(path, format="svg", metadata={"Date": None})
        plt.close(figure)


def main() -> None:
    """Write the page and its plot."""
    kept, rows = load(RESULTS)
    blocks = {
        "RUN": measured_at(kept),
        "PURE": error_table(rows, 0.0), "DELTA": error_table(rows, DELTA), "EVEN": even_table(rows),
        "HELD": held_table(rows), "CUSTOMER": customer_table(rows), "COST": cost_table(rows),
        "FIGURES": judged(rows),
    }  # fmt: skip
    if adult.RESULTS.exists():  # else the page keeps what it says
        blocks["CENSUS"] = census()
    write("peers", blocks)
    draw(rows, DOCS / "pictures" / "peers.svg")


if __name__ == "__main__":
    main()
