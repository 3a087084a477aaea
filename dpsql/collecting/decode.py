"""Report bytes to counts, strictly: the plan explains every byte, or the report is rejected.

Reports of equal length stand as rows of one byte table, so the checks are array comparisons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.client.plan import Plan, View
from dpsql.client.report import HEADER, MAGIC, ORACLES
from dpsql.collecting.tallies import FOLDS, IntArray, ViewTally, empty_tallies, oracle_of, tally_width
from dpsql.mechanisms.local.simulate import olh_table, support_counts

Bytes = NDArray[np.uint8]
CHUNK = 252  # rows added in single bytes before they could overflow


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
    codes = np.array([ORACLES[v.oracle] for v in plan.views])
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
        view = plan.views[number]
        kept, reason = payload_ok(view, payload)
        rejected[reason] += int((~kept).sum())
        if kept.any():
            _add(plan, view, payload[kept], fold[kept], tallies[number])
        accepted += int(kept.sum())
    return accepted


def payload_ok(view: View, payload: Bytes) -> tuple[NDArray[np.bool_], str]:
    """Which payloads are in range, and the reason for those that are not."""
    if view.oracle == "OUE":
        size = (view.domain + 7) // 8
        if payload.shape[1] != size:
            return np.zeros(len(payload), dtype=bool), "payload length"
        spare = 8 * size - view.domain
        return (payload[:, -1] & ((1 << spare) - 1)) == 0, "padding bits"
    start = 2 if view.oracle == "OLH" else 0
    limit = view.extra if view.oracle == "OLH" else tally_width(view)
    if not start < payload.shape[1] <= start + 4:
        return np.zeros(len(payload), dtype=bool), "payload length"
    number = payload[:, start:]
    shaped = (number[:, -1] < 128) & (number[:, :-1] >= 128).all(axis=1)
    shortest = (number[:, -1] > 0) | (number.shape[1] == 1)
    return shaped & shortest & (varints(number) < limit), "value out of range"


def varints(number: Bytes) -> IntArray:
    """The integers that equally long, checked LEB128 numbers stand for."""
    value = np.zeros(len(number), dtype=np.int64)
    for position in range(number.shape[1]):
        value |= (number[:, position].astype(np.int64) & 0x7F) << (7 * position)
    return value


def _add(plan: Plan, view: View, payload: Bytes, folds: Bytes, tally: ViewTally) -> None:
    """Add accepted payloads to a view's tally, in place."""
    tally.reports[:] += np.bincount(folds, minlength=FOLDS)
    if view.oracle == "OUE":
        for fold in range(FOLDS):
            tally.support[fold] += _bit_sums(payload[folds == fold], view.domain)
        return
    if view.oracle == "OLH":
        oracle = oracle_of(plan, view)
        seeds = payload[:, 0].astype(np.int64) * 256 + payload[:, 1]
        held = varints(payload[:, 2:])
        for fold in range(FOLDS):
            mine = folds == fold
            tally.support[fold] += support_counts(oracle, olh_table(oracle, seeds[mine], held[mine]))
        return
    width = tally.support.shape[1]
    flat = np.bincount(folds.astype(np.int64) * width + varints(payload), minlength=FOLDS * width)
    tally.support[:] += flat.reshape(FOLDS, width)


def _bit_sums(packed: Bytes, domain: int) -> IntArray:
    """Ones per bit position; chunks are summed in bytes, which is eight times less to move."""
    total = np.zeros(domain, dtype=np.int64)
    step = CHUNK * 64
    for start in range(0, len(packed), step):
        bits = np.unpackbits(packed[start : start + step], axis=1, count=domain)
        whole = len(bits) // CHUNK * CHUNK
        if whole:
            blocks = bits[:whole].reshape(-1, CHUNK, domain)
            total += np.add.reduce(blocks, axis=1, dtype=np.uint8).sum(axis=0, dtype=np.int64)
        total += bits[whole:].sum(axis=0, dtype=np.int64)
    return total
