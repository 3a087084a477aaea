"""Raw rows to reports: what a collection would bring in, for planning, for tests and for the demo.

Draws follow the client's steps (view, slot, row, measure bit, randomizer) on arrays, with numpy's generator.
**Privacy**: nothing made here protects anybody; a simulated collection is marked as such.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpsql.client.plan import Plan, View
from dpsql.client.report import MAGIC, ORACLES
from dpsql.collecting.tallies import FOLDS, IntArray, ViewTally, oracle_of

Progress = Callable[[str], None]


@dataclass(frozen=True)
class People:
    """Rows of many people, sorted by person.

    Args:
        first: index of each person's first row, and one past the last row at the end, shape (people + 1,).
        leaves: leaf per row and axis, shape (rows, axes).
        measures: integer per row and measure, shape (rows, measures).
    """

    first: IntArray
    leaves: IntArray
    measures: IntArray

    @property
    def count(self) -> int:
        """Number of people."""
        return self.first.size - 1


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


def draw_items(plan: Plan, view: View, people: People, who: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw each person's item of a view; Square Wave's "no row" is the domain itself, and any item alike where the
    view has none for it."""
    rows = people.first[who + 1] - people.first[who]
    if view.kind == "rows":
        return np.asarray(np.minimum(rows, plan.rows_cap))
    if view.kind == "rows_bit":
        count = np.clip(rows, plan.rows_floor, plan.rows_cap) - plan.rows_floor
        draw = rng.integers(0, plan.rows_cap - plan.rows_floor, size=who.size)
        return np.asarray(draw < count, dtype=np.int64)
    filled = rng.integers(0, plan.tau, size=who.size) < rows
    items = np.full(who.size, view.domain if view.kind == "wave" else view.domain - 1, dtype=np.int64)
    if not view.empty and view.kind != "wave":
        items[~filled] = rng.integers(0, view.domain, size=who.size - int(filled.sum()))
    speaking = who[filled]
    row = people.first[speaking] + rng.integers(0, rows[filled])
    cell = _cells(view, people.leaves[row][:, list(view.axes)])
    if view.measure is not None:
        bounds = plan.measures[view.measure]
        value = (
            np.clip(people.measures[row, view.measure], bounds["lower"], bounds["upper"]) - bounds["lower"]
        )
        cell = cell + view.cells * (rng.integers(0, bounds["upper"] - bounds["lower"], size=row.size) < value)
    items[filled] = cell
    return items


def _cells(view: View, leaves: IntArray) -> IntArray:
    cell = np.zeros(len(leaves), dtype=np.int64)
    if view.kind == "boxes":
        boxes = np.array(view.boxes, dtype=np.int64).reshape(len(view.boxes), -1, 2)
        inside = (boxes[None, :, :, 0] <= leaves[:, None, :]) & (leaves[:, None, :] < boxes[None, :, :, 1])
        return np.asarray(np.argmax(inside.all(axis=2), axis=1), dtype=np.int64)
    for position, edges in enumerate(view.edges):
        cell = cell * (len(edges) - 1) + np.searchsorted(edges, leaves[:, position], side="right") - 1
    return cell


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
            items = draw_items(plan, view, people, who, rng)
            width = view.domain + int(view.kind == "wave")
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
        head = MAGIC + plan.hash + number.to_bytes(2, "big") + bytes([ORACLES[view.oracle]])
        items = draw_items(plan, view, people, who, rng)
        for person, payload in zip(who.tolist(), oracle_of(plan, view).payloads(items, rng), strict=True):
            reports[person] = head + payload
    return reports
