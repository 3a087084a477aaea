"""Averages of customers whose heaviest buy dear: how far factors of rows and sums are taken to differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.userlevel.measure import BAR, least_held
from benchmarks.userlevel.questions import answers, questions
from benchmarks.userlevel.releases import open_star
from benchmarks.userlevel.simulator import releases
from benchmarks.userlevel.stars import Views
from tests.userlevel_star import uneven_rows, write_star

RELEASES = 60


def held(folder: Path, worth: float) -> float:
    """The share, in percent, of releases whose interval holds the average over all rows.

    Args:
        folder: where to write the star.
        worth: values grow with their owner's rows to this power.
    """
    rows, customers = uneven_rows(5000, 8)
    owned = np.bincount([person for person, _, _ in rows if person is not None])
    dear = [
        (person, min(round(float(amount or 0) * (owned[person or 0] / 7) ** worth, 2), 100.0), day)
        for person, amount, day in rows
    ]
    star = open_star(write_star(folder, dear, customers))
    views = Views(("days",), (), (), (), ())
    asked = next(each for each in questions(star.truth, views, {}) if "total" in each.kinds)
    place, right = asked.kinds.index("total"), asked.right["AVG"]
    found = [answers(release, asked, star.measure)["AVG"] for release in releases(star, RELEASES)]
    return 100 * float(np.mean([a.low[place] <= right[place] <= a.high[place] for a in found]))


def test_averages_hold_where_heavy_customers_buy_like_others(tmp_path: Path) -> None:
    assert held(tmp_path, 0.0) >= least_held(BAR, RELEASES)


def test_averages_hold_where_heavy_customers_buy_dear(tmp_path: Path) -> None:
    """Their rows are worth 10% more: 0 of 20 held when factors were taken to differ by 2.5%."""
    assert held(tmp_path, 0.3) >= least_held(BAR, RELEASES)
