"""Writes docs/accuracy/local.md and its plots: `python -m benchmarks.local_page [--people N] [--runs N]`.

Tables of seeds 003 and 001 are measured here; the figures that promises name come from `python -m benchmarks.local`,
whose output is read from a file (`--figures`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from benchmarks.local_axis import shapes
from benchmarks.local_grid import METHODS, Setting, Star, axis_errors, make_star, star_errors, tau_errors

mpl.use("Agg")

import matplotlib.pyplot as plt

PAGE = Path("docs/accuracy/local.md")
PLOTS = Path("docs/accuracy/plots")
TEXT = Path(__file__).with_name("local_text.md")
DIMENSIONS = [Setting(1.0, 0.3, d) for d in (1, 2, 3)]
EPSILONS = [Setting(e, 0.3, 2) for e in (1.0, 2.0, 3.0, 4.0, 5.0)]
VOLUMES = [Setting(1.0, v, 2) for v in (0.07, 0.15, 0.3)]
Errors = dict[str, list[float]]


def measured(stars: Sequence[Star], settings: Sequence[Setting], count: int) -> Errors:
    """Mean NMSE of every method at every setting over populations."""
    found: Errors = {name: [] for name in METHODS}
    for setting in settings:
        each = [star_errors(star, setting, count, 1000 + run) for run, star in enumerate(stars)]
        for name in METHODS:
            found[name].append(float(np.mean([errors[name] for errors in each])))
        print(setting, {name: f"{values[-1]:.2e}" for name, values in found.items()}, flush=True)
    return found


def table(head: Sequence[str], rows: Mapping[str, Sequence[float]]) -> str:
    """A table of errors in scientific notation."""
    lines = ["| method | " + " | ".join(head) + " |", "|---|" + "--:|" * len(head)]
    lines += [
        f"| {name} | " + " | ".join(f"{value:.2g}" for value in values) + " |"
        for name, values in rows.items()
    ]
    return "\n".join(lines)


def plot(rows: Errors, at: Sequence[float], label: str, title: str, path: Path) -> None:
    """Errors of every method against one parameter, logarithmic."""
    figure, axis = plt.subplots(figsize=(5.2, 3.4))
    for style, (name, values) in zip(("x:", "+:", "v--", "s-", "^-", "o-"), rows.items(), strict=True):
        axis.semilogy(at, values, style, label=name, markersize=4, linewidth=1)
    axis.set_xlabel(label, fontsize=8)
    axis.set_ylabel("COUNT NMSE", fontsize=8)
    axis.set_title(title, fontsize=9)
    axis.tick_params(labelsize=7)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(path, dpi=72, metadata={"Software": ""})
    plt.close(figure)


def figure_lines(printed: str) -> str:
    """The figures of a run, one a line."""
    lines = [line.removeprefix("figure ") for line in printed.splitlines() if line.startswith("figure ")]
    return "\n".join(["```", *lines, "```"])


def one_axis(people: int, runs: int) -> tuple[list[str], Errors]:
    """Every one-axis method on the four shapes at epsilon 1, and the bell at 0.5 and 2."""
    cases = [(name, "1") for name in shapes(256)] + [("normal", "0.5"), ("normal", "2")]
    head, rows = [], {}
    for number, (name, epsilon) in enumerate(cases):
        found = axis_errors(shapes(256)[name], people, epsilon, runs, number)
        head.append(f"{name}, {epsilon}")
        for method, value in found.items():
            rows.setdefault(method, []).append(value)
        print(name, epsilon, {k: f"{v:.2e}" for k, v in found.items()}, flush=True)
    return head, rows


def main() -> None:
    """Measure, plot, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--figures", type=Path, required=True, help="output of `python -m benchmarks.local`")
    given = parser.parse_args()
    stars = [make_star(given.people, run) for run in range(given.runs)]
    parts = {
        "PEOPLE": f"{given.people:,}", "RUNS": str(given.runs), "QUERIES": str(given.queries),
        "FIGURES": figure_lines(given.figures.read_text()),
        "DIMENSIONS": table(["1 predicate", "2", "3"], measured(stars, DIMENSIONS, given.queries)),
    }  # fmt: skip
    by_epsilon = measured(stars, EPSILONS, given.queries)
    by_volume = measured(stars, VOLUMES, given.queries)
    parts["EPSILONS"] = table([f"epsilon {s.epsilon:g}" for s in EPSILONS], by_epsilon)
    parts["VOLUMES"] = table([f"volume {s.volume:g}" for s in VOLUMES], by_volume)
    taus = {
        f"epsilon {e:g}": np.mean(
            [tau_errors(star, Setting(e, 0.3, 2), given.queries, 2000 + r) for r, star in enumerate(stars)],
            axis=0,
        ).tolist()
        for e in (1.0, 3.0, 5.0)
    }
    parts["TAUS"] = table([f"tau {t}" for t in (1, 2, 3, 4)], taus)
    head, rows = one_axis(given.people, given.runs)
    parts["ONE"] = table(head, rows)
    title = f"star join, {given.people:,} people, two predicates"
    plot(by_epsilon, [s.epsilon for s in EPSILONS], "epsilon", title, PLOTS / "local_epsilon.png")
    plot(
        by_volume, [s.volume for s in VOLUMES], "volume of each predicate", title, PLOTS / "local_volume.png"
    )
    text = TEXT.read_text()
    for name, value in parts.items():
        text = text.replace("{" + name + "}", value)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
