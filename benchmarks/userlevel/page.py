"""The page "what can I ask at epsilon 1": docs/accuracy/userlevel.md and its plot.

python -m benchmarks.userlevel.page [--releases N]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from benchmarks.page import PLOTS, markdown, write
from benchmarks.userlevel.measure import PLANNED, Measured, measure, star_of
from benchmarks.userlevel.predicted import over_shown
from benchmarks.userlevel.questions import AGGREGATES, CLASSES

mpl.use("Agg")

import matplotlib.pyplot as plt

Errors = Mapping[tuple[str, str], Sequence[float]]

LIMITS = (5, 10, 25)
TITLES = {
    "foodmart": "FoodMart, (1, 1e-6), zCDP",
    "online_retail": "Online Retail, (1, 1e-6), zCDP",
    "ssb": "SSB, (1, 1e-6), zCDP",
    "blackfriday": "Black Friday, (1, 1e-6), zCDP",
    "shop": "The bundled shop, (1, 1e-6), zCDP",
    "foodmart pure": "FoodMart, epsilon 1, pure",
}


def _table(found: Measured) -> str:
    body = []
    for kind in CLASSES:
        for aggregate in AGGREGATES:
            values = np.array(found.errors[kind, aggregate])
            if not len(values):
                continue
            held = 100 * float(np.mean(found.held[kind, aggregate]))
            width = float(np.median(found.widths[kind, aggregate]))
            body.append(
                [
                    kind, aggregate, f"{np.median(values):.2g}%", f"{np.quantile(values, 0.9):.2g}%",
                    f"{held:.0f}%", f"{width:.1f}",
                ]
            )  # fmt: skip
    return markdown(
        ["question", "aggregate", "median error", "p90", "intervals hold", "half-width over need"], body
    )


def _plans(plans: Mapping[str, Mapping[tuple[str, str], float]]) -> str:
    """What the plan says over what releases show."""
    body = []
    for star, own in plans.items():
        for aggregate in AGGREGATES:
            ratios = [f"{own[kind, aggregate]:.2f}" if (kind, aggregate) in own else "-" for kind in CLASSES]
            body.append([TITLES[star].removesuffix(", (1, 1e-6), zCDP"), aggregate, *ratios])
    return markdown(["predicted over shown", "aggregate", *CLASSES], body)


def _plot(found: Mapping[str, Errors], path: Path) -> None:
    """Share of answers under each error, one panel for each star."""
    labels = [f"{kind}\n{aggregate}" for kind in CLASSES for aggregate in AGGREGATES]
    figure, axes = plt.subplots(1, len(found), figsize=(4.6 * len(found), 4.2), sharey=True)
    for axis, (name, errors) in zip(np.atleast_1d(axes), found.items(), strict=True):
        for limit, shade in zip(reversed(LIMITS), ("#cfe3f5", "#7fb2de", "#2b6ca8"), strict=True):
            shares = [
                100 * np.mean(np.array(errors[kind, a] or [np.inf]) < limit)
                for kind in CLASSES
                for a in AGGREGATES
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


def main() -> None:
    """Measure, write the page and its plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--releases", type=int, default=90, help="of each star")
    releases = parser.parse_args().releases
    found, plans = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name in TITLES:
            star, case = star_of(name, Path(folder))
            found[name] = measure(star, case.price, case.month, releases)
            plans[name] = over_shown(star, case.price, case.month, case.guess, PLANNED)
    tables = [f"### {TITLES[name]}, {releases} releases\n\n{_table(own)}" for name, own in found.items()]
    blocks = {"TABLES": "\n\n".join(tables), "PLAN": _plans(plans)}
    write("userlevel", Path(__file__).with_name("text.md"), blocks)
    _plot({name: own.errors for name, own in found.items()}, PLOTS / "userlevel.png")


if __name__ == "__main__":
    main()
