"""User-level accuracy on two real stars: `make bench-userlevel` prints one `figure` line per number.

Every release chooses its bounds privately, weights each customer once and draws its own noise, by the code that
publishes; noise comes from a seeded generator. Relative errors are against the plain answer over all rows, so what
bounding loses is in them; coverage is of the noise alone, against the same release without noise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.figures import Figures
from benchmarks.userlevel.questions import AGGREGATES, CLASSES, SEEN, answers, exact, questions
from benchmarks.userlevel.releases import Star, open_star
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.publishing.central import publish_release
from dpsql.star import load_catalog

ROOT = Path(__file__).resolve().parents[2]
MEDIAN_SLACK, P90_SLACK = 1.15, 1.25

TO_REACH: dict[str, dict[str, tuple[str, ...]]] = {
    "foodmart": {
        "total": ("2.2/5", "1.8/5", "2.7/6"),
        "one-way group": ("9.3/50", "13.2/53", "3.7/19"),
        "one range": ("3.2/8", "4.2/12", "2.8/9"),
        "two ranges joined": ("6.2/25", "8.0/31", "4.3/15"),
        "month": ("3.5/8", "4.6/10", "2.7/7"),
    },
    "online_retail": {
        "total": ("8.9/14", "19.5/24", "12.5/17"),
        "one-way group": ("13.3/53", "12.9/55", "6.8/46"),
        "one range": ("8.1/23", "11.1/23", "6.3/19"),
        "two ranges joined": ("14.7/92", "16.8/77", "11.9/85"),
        "month": ("9.6/19", "12.5/25", "5.3/14"),
    },
    "foodmart pure": {
        "total": ("1.4/5",),
        "one-way group": ("15/67",),
        "one range": ("7.3/24",),
        "two ranges joined": ("12/45",),
        "month": ("5.6/15",),
    },
}
"""Median and p90 of the relative error, in percent: COUNT, SUM, AVG."""


PUBLISH_SECONDS = {"foodmart_user": 20.0, "online_retail_user": 60.0, "ssb_user": 60.0}


class Measured(NamedTuple):
    """What many releases of one star gave, by (class, aggregate).

    Args:
        errors: relative errors, in percent; AVG below noise is refused and left out.
        held: whether the noise's 95% interval held the noiseless answer, by (signal class, aggregate).
    """

    errors: dict[tuple[str, str], list[float]]
    held: dict[tuple[str, str], list[bool]]


def measure(star: Star, releases: int, first: int = 0) -> Measured:
    """Ask all questions of many releases.

    Args:
        star: the star.
        releases: how many.
        first: seed of the first one.
    """
    truth = star.truth()
    asked = questions(truth, "price", "month")
    right = [exact(truth[q.view], q.masks) for q in asked]
    found = Measured(defaultdict(list), defaultdict(list))
    for seed in range(first, first + releases):
        release = star.release(seed)
        for question, true in zip(asked, right, strict=True):
            noiseless = exact(release.noiseless[question.view], question.masks)
            for name, answer in answers(release.views[question.view], question.masks).items():
                if np.isnan(answer.value):
                    continue
                found.errors[question.kind, name].append(100 * abs(answer.value / true[name] - 1))
                if answer.signal >= SEEN:
                    signal = "above 10" if answer.signal >= 10 else "3 to 10"
                    found.held[signal, name].append(answer.low <= noiseless[name] <= answer.high)
    return found


def star_of(name: str) -> Star:
    """The star of a name in `TO_REACH`: its catalog, with pure epsilon if the name says so."""
    star, _, pure = name.partition(" ")
    return open_star(ROOT / "catalog" / f"{star}_user.yaml", pure=bool(pure))


def error_figures(figures: Figures, name: str, measured: Measured) -> None:
    """Lines of the table "numbers to reach"."""
    for kind in CLASSES:
        for aggregate, bounds in zip(AGGREGATES, TO_REACH[name][kind], strict=False):
            errors, (median, p90) = measured.errors[kind, aggregate], map(float, bounds.split("/"))
            what = f"userlevel {name}, {kind}, {aggregate}, relative error %"
            figures.at_most(f"{what} median", float(np.median(errors)), round(median * MEDIAN_SLACK, 2))
            figures.at_most(f"{what} p90", float(np.quantile(errors, 0.9)), round(p90 * P90_SLACK, 2))


def coverage_figures(figures: Figures, name: str, measured: Measured) -> None:
    """Lines of the noise-only coverage, by signal class: how far from 95%, at most 2."""
    for signal in ("above 10", "3 to 10"):
        for aggregate in AGGREGATES:
            share = 100 * float(np.mean(measured.held[signal, aggregate]))
            what = f"userlevel {name}, COUNT/SE {signal}, {aggregate}, noise coverage % off 95"
            figures.at_most(what, abs(share - 95), 2)


def publish_figures(figures: Figures) -> None:
    """Seconds to publish a whole release, ledger and file included."""
    for name, bound in PUBLISH_SECONDS.items():
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{name}.yaml"
            file.write_text((ROOT / "catalog" / file.name).read_text())
            start = time.perf_counter()
            publish_release(
                load_catalog(file),
                Path(folder) / "out.dpsql",
                noise=ExactNoise(insecure_test_entropy(1)),
                key=bytes(32),
            )
            figures.at_most(f"userlevel publish {name}, seconds", time.perf_counter() - start, bound)


def main() -> int:
    """Print all figures; 1 if any is short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=90, help="of each star")
    releases, figures = parser.parse_args().releases, Figures()
    for name in TO_REACH:
        measured = measure(star_of(name), releases)
        error_figures(figures, name, measured)
        if not name.endswith(" pure"):
            coverage_figures(figures, name, measured)
    publish_figures(figures)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
