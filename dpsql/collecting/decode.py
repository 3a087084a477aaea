"""Report bytes to counts, strictly: the plan explains every byte, or the report is rejected.

Reports of equal length stand as rows of one byte table, so the checks are array comparisons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.client.plan import Plan
from dpsql.client.report import HEADER, MAGIC
from dpsql.collecting.tallies import FOLDS, ViewTally, empty_tallies, oracle_of
from dpsql.mechanisms.oracles.oracle import Bytes


class Decoded(NamedTuple):
    """Tallies of the accepted reports, and how many were rejected for each reason."""

    tallies: list[ViewTally]
    rejected: Counter[str]
    accepted: int


def decode_reports(plan: Plan, reports: Sequence[bytes], folds: NDArray[np.uint8]) -> Decoded:
    """Check and count reports.

    Args:
        plan: the plan that they must name.
        reports: report bytes.
        folds: fold of people of each report, 0 .. 3; must not depend on the report.

    Returns:
        Tallies, rejections by reason, and the number of accepted reports.
    """
    tallies, rejected, accepted = empty_tallies(plan), Counter[str](), 0
    lengths = np.fromiter(map(len, reports), dtype=np.int64, count=len(reports))
    for length in np.unique(lengths):
        chosen = np.nonzero(lengths == length)[0]
        if length <= HEADER:
            rejected["too short"] += chosen.size
            continue
        same = reports if chosen.size == len(reports) else [reports[i] for i in chosen.tolist()]
        table = np.frombuffer(b"".join(same), dtype=np.uint8).reshape(-1, length)
        accepted += _count_table(plan, table, folds[chosen], tallies, rejected)
    return Decoded(tallies, rejected, accepted)


def _count_table(
    plan: Plan, table: Bytes, folds: Bytes, tallies: list[ViewTally], rejected: Counter[str]
) -> int:
    """Check one table of equally long reports and add it to the tallies; returns how many were accepted."""
    views = table[:, 10].astype(np.int64) * 256 + table[:, 11]
    known = views < len(plan.views)
    codes = np.array([view.perturbs.code for view in plan.views])
    checks = [
        ("not a report of version 1", (table[:, :2] == np.frombuffer(MAGIC, np.uint8)).all(axis=1)),
        ("another plan", (table[:, 2:10] == np.frombuffer(plan.hash, np.uint8)).all(axis=1)),
        ("no such view", known),
        ("not the view's oracle", table[:, 12] == codes[np.where(known, views, 0)]),
    ]
    sound = np.ones(len(table), dtype=bool)
    for reason, passed in checks:
        rejected[reason] += int((sound & ~passed).sum())
        sound &= passed
    accepted = 0
    for number in np.unique(views[sound]):
        rows = sound & (views == number)
        payload = table[rows][:, HEADER:] if not rows.all() else table[:, HEADER:]
        fold = folds[rows]
        oracle = oracle_of(plan, plan.views[number])
        kept, reason = oracle.check(payload)
        rejected[reason] += int((~kept).sum())
        if kept.any():
            payload, fold = payload[kept], fold[kept]
            tallies[number].reports[:] += np.bincount(fold, minlength=FOLDS)
            for own in range(FOLDS):
                tallies[number].support[own] += oracle.count(payload[fold == own])
        accepted += int(kept.sum())
    return accepted
