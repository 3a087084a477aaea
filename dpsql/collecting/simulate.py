"""Raw rows to reports: what a collection would bring in, for planning, for tests and for the demo.

**Privacy**: nothing made here protects anybody; a simulated collection is marked as such.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpsql.client.plan import Plan
from dpsql.client.report import MAGIC
from dpsql.collecting.kinds import People, kind_of
from dpsql.collecting.tallies import FOLDS, IntArray, ViewTally, oracle_of

Progress = Callable[[str], None]


def one_row_each(leaves: IntArray, measures: IntArray | None = None) -> People:
    """People with exactly one row."""
    empty = np.zeros((len(leaves), 0), dtype=np.int64) if measures is None else measures
    return People(np.arange(len(leaves) + 1), leaves, empty)


def chosen(people: People, who: IntArray) -> People:
    """Some of the people, in the order of `who`, with all their rows."""
    counts = people.first[who + 1] - people.first[who]
    first = np.concatenate([[0], np.cumsum(counts)])
    rows = np.repeat(people.first[who] - first[:-1], counts) + np.arange(first[-1])
    return People(first, people.leaves[rows], people.measures[rows])


def simulate_tallies(
    plan: Plan, people: People, rng: np.random.Generator, progress: Progress = lambda step: None
) -> list[ViewTally]:
    """Draw the tallies that everybody's reports would give, in law.

    Args:
        plan: a checked plan.
        people: everybody's rows.
        rng: source of pseudo-random numbers.
        progress: told each view.

    Returns:
        One tally per view.
    """
    share = np.array([v.share for v in plan.views], dtype=np.float64)
    drawn = rng.choice(share.size, size=people.count, p=share / share.sum())
    folds = rng.integers(0, FOLDS, size=people.count)
    tallies = []
    for number, view in enumerate(plan.views):
        progress(f"view {number + 1} of {len(plan.views)}")
        oracle, support, reports = oracle_of(plan, view), [], []
        for fold in range(FOLDS):
            who = np.nonzero((drawn == number) & (folds == fold))[0]
            items = kind_of(view).draw(plan, view, people, who, rng)
            width = view.domain + int(view.asks.silent)
            support.append(oracle.tally(np.bincount(items, minlength=width), rng))
            reports.append(who.size)
        tallies.append(ViewTally(np.array(support), np.array(reports)))
    return tallies


def simulate_reports(
    plan: Plan, people: People, rng: np.random.Generator, progress: Progress = lambda step: None
) -> list[bytes]:
    """Draw everybody's report as bytes, in the order of people."""
    share = np.array([v.share for v in plan.views], dtype=np.float64)
    drawn = rng.choice(share.size, size=people.count, p=share / share.sum())
    reports: list[bytes] = [b""] * people.count
    for number, view in enumerate(plan.views):
        progress(f"view {number + 1} of {len(plan.views)}")
        who = np.nonzero(drawn == number)[0]
        head = MAGIC + plan.hash + number.to_bytes(2, "big") + bytes([view.perturbs.code])
        items = kind_of(view).draw(plan, view, people, who, rng)
        for person, payload in zip(who.tolist(), oracle_of(plan, view).payloads(items, rng), strict=True):
            reports[person] = head + payload
    return reports
