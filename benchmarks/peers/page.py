"""docs/peers.md and its plots, from what `make peers` kept in build/peers: `python -m benchmarks.peers.page`."""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.figures import Figures
from benchmarks.page import markdown, number, write
from benchmarks.peers import adult
from benchmarks.peers.measure import DELTA, RESULTS, TOTALS, Part, Row, best, judge

mpl.use("svg")

import matplotlib.pyplot as plt

DOCS = Path(__file__).resolve().parents[2] / "docs"
TITLES = {
    "dpsql": "dpsql, one release", "buy": "dpsql, bought", "smartnoise": "smartnoise-sql", "opendp": "OpenDP",
    "cells": "OpenDP, all cells once, by hand", "pyqrlew": "pyqrlew", "tumult": "Tumult Analytics",
    "diffprivlib": "diffprivlib",
}  # fmt: skip
Rows = Mapping[Part, Row]


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
        if (part.unit, part.delta) != ("sale", delta) or part.method in ("fast", "shapes") or row.failed:
            continue
        whole = part.method in ("questions", "cells") and (part.peer == "dpsql" or part.method == "cells")
        for total in TOTALS if whole else (part.total,):
            for aggregate in range(3):
                cells = body.setdefault(engine(part), {})
                cells[aggregate, total] = "-" if part.asked < 10 else number(row.errors[aggregate])
    head = [f"{what}, K = {total:,}" for what in ("COUNT", "SUM", "AVG") for total in TOTALS]
    columns = [(aggregate, total) for aggregate in range(3) for total in TOTALS]
    return markdown(
        ["engine", *head], ([name, *(cells.get(c, "-") for c in columns)] for name, cells in body.items())
    )


def even_table(rows: Rows) -> str:
    """From how many questions on a release errs less than the best engine that is paid for each."""
    body = []
    for delta, name, power in ((0.0, "pure", 1), (DELTA, f"delta {DELTA:g}", 2)):
        ours = rows_of(rows, "dpsql", "sale", delta, "questions")[0][1].errors
        even = [100 * (ours[a] / best(rows, delta, 100, a)) ** power for a in range(3)]
        body.append([name, *(f"{each:.0f}" for each in even)])
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
    if not adult.RESULTS.exists():
        return "Not measured in this run."
    kept = json.loads(adult.RESULTS.read_text())
    body, told = [], [each for each in kept["others"] if "error" in each]
    for each in kept["others"]:
        other = number(each["error"]) if "error" in each else each["failed"]
        body.append([f"{each['rows']:,}", number(kept["ours"]), other])
    lines = [markdown(["rows", "dpsql", kept["model"].upper()], body), ""]
    lines.append(
        f"dpsql's 95% intervals hold {100 * kept['held']:.1f}% of the time; synthetic rows have none."
    )
    if told:
        rows = adult.crossing([each["rows"] for each in told], [each["error"] for each in told], kept["ours"])
        where = f"from about {rows:,.0f} rows on" if math.isfinite(rows) else "at none of these sizes"
        lines.append(
            f"dpsql is ahead {where}. A fit took {told[0]['cpu']:.0f} s of CPU or more (dpmm {told[0]['version']})."
        )
    return "\n".join(lines)


def judged(rows: Rows) -> str:
    """The figures as `make peers` prints them."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        judge(rows, Figures())
    return "```text\n" + out.getvalue() + "```"


def draw(rows: Rows, path: Path) -> None:
    """Error of COUNT against the number of questions, one panel a promise."""
    settings = {"svg.fonttype": "none", "svg.hashsalt": "dpsql", "font.family": "sans-serif"}
    with plt.rc_context(settings):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True)
        for axis, (delta, title) in zip(axes, ((0.0, "epsilon 1"), (DELTA, f"(1, {DELTA:g})")), strict=True):
            for peer, style in (
                ("smartnoise", "s--"),
                ("opendp", "^--"),
                ("pyqrlew", "v--"),
                ("diffprivlib", "x--"),
            ):
                own = sorted(
                    (p.total, r.errors[0]) for p, r in rows_of(rows, peer, "sale", delta, "questions")
                )
                if own:
                    axis.loglog(*zip(*own, strict=True), style, label=TITLES[peer], linewidth=1, markersize=5)
            for peer, method, style in (("opendp", "cells", ":"), ("dpsql", "questions", "-")):
                for _, row in rows_of(rows, peer, "sale", delta, method)[:1]:
                    label = TITLES["cells" if method == "cells" else "dpsql"]
                    axis.loglog((10, 1000), [row.errors[0]] * 2, style, label=label, linewidth=2)
            for _, row in rows_of(rows, "dpsql", "sale", delta, "buy"):
                axis.loglog([10], row.errors[:1], "o", label=TITLES["buy"], color="black")
            axis.set_title(title, fontsize=10)
            axis.set_xlabel("questions that share the budget")
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("mean absolute error of COUNT")
        axes[0].legend(fontsize=7)
        figure.tight_layout()
        figure.savefig(path, format="svg", metadata={"Date": None})
        plt.close(figure)


def main() -> None:
    """Write the page and its plot."""
    kept, rows = load(RESULTS)
    blocks = {
        "RUN": f"Measured at commit `{kept['commit']}` with {kept['sales']:,} sales.",
        "PURE": error_table(rows, 0.0), "DELTA": error_table(rows, DELTA), "EVEN": even_table(rows),
        "HELD": held_table(rows), "CUSTOMER": customer_table(rows), "COST": cost_table(rows), "CENSUS": census(),
        "FIGURES": judged(rows),
    }  # fmt: skip
    write("peers", Path(__file__).with_name("text.md"), blocks, DOCS)
    draw(rows, DOCS / "pictures" / "peers.svg")


if __name__ == "__main__":
    main()
