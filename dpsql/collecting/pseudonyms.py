"""Reports of several services, joined by the person's pseudonym.

A spool may hold reports of one service or of several; a report names its service's plan by hash. Pseudonyms are the
spools' tokens. They are hashed under the collector's secret key as soon as they are read, and no release holds them.
Of several reports of one pseudonym at one service the least in byte order is kept, so the order of files does not
matter; whoever is not known to every service is left out and counted.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.client.plan import Plan
from dpsql.client.report import HEADER, MAGIC
from dpsql.collecting.collector import Manifest
from dpsql.collecting.services import Sheet
from dpsql.collecting.spools import file_hash, read_spool
from dpsql.collecting.state import open_state
from dpsql.collecting.tallies import oracle_of
from dpsql.mechanisms.oracles.oracle import FloatArray, Oracle, Packed, item_scores

Progress = Callable[[str], None]
Held = dict[bytes, bytes]
"""Payload by hashed pseudonym."""


class Heard(NamedTuple):
    """One service's joined reports: their oracle, and their payloads in the order of people."""

    oracle: Oracle
    packed: Packed

    def scores(self, first: int, last: int) -> FloatArray:
        """Unbiased indicators of all items for some of the people, shape (people, items)."""
        return item_scores(self.oracle, self.oracle.supports(self.packed[first:last]))


class Joined(NamedTuple):
    """People known to every service, what each service heard of them (same order), and what was counted."""

    people: int
    heard: dict[str, Heard]
    manifest: Manifest


def join_spools(sheet: Sheet, spools: Sequence[Path], key: bytes, progress: Progress) -> Joined:
    """Read spools and join reports by pseudonym.

    Args:
        sheet: the collection.
        spools: Parquet and JSON-lines files; a file given twice counts once.
        key: secret bytes under which pseudonyms are hashed.
        progress: told each file.

    Raises:
        OperationalError: a file cannot be opened.
    """
    held: dict[str, Held] = {name: {} for name in sheet.plans}
    rejected, seen, total = Counter[str](), set[str](), 0
    connection = open_state(next(iter(sheet.plans.values())))
    try:
        for path in spools:
            digest = file_hash(path)
            if digest in seen:
                progress(f"{path.name}: known")
                continue
            seen.add(digest)
            spool = read_spool(connection, path)
            rejected += spool.unreadable
            total += len(spool.reports) + sum(spool.unreadable.values())
            _hold(sheet, held, spool.reports, spool.tokens, key, rejected)
            progress(f"{path.name}: {len(spool.reports)} reports")
    finally:
        connection.close()
    everywhere = sorted(set.intersection(*(set(own) for own in held.values())))
    rejected["pseudonym not at every service"] = sum(len(own) - len(everywhere) for own in held.values())
    heard = {name: _heard(sheet.plans[name], [own[p] for p in everywhere]) for name, own in held.items()}
    reasons = {reason: n for reason, n in sorted(rejected.items()) if n}
    return Joined(
        len(everywhere), heard, Manifest(len(seen), total, len(everywhere) * len(sheet.plans), reasons)
    )


def _hold(
    sheet: Sheet,
    held: dict[str, Held],
    reports: Sequence[bytes],
    tokens: Sequence[str | None] | None,
    key: bytes,
    rejected: Counter[str],
) -> None:
    """Check one spool's reports and keep them by hashed pseudonym."""
    given = np.array(tokens if tokens is not None else [None] * len(reports), dtype=object)
    said = np.array([bytes(r) for r in reports] + [b""], dtype=object)[:-1]
    known = np.array([r[2:10] for r in said.tolist()] + [b""], dtype=object)[:-1]
    named = np.array([t is not None for t in given], dtype=bool)
    rejected["no pseudonym"] += int((~named).sum())
    rejected["another plan"] += int(named.sum())
    for name, plan in sheet.plans.items():
        mine = np.nonzero(named & (known == plan.hash))[0]
        rejected["another plan"] -= mine.size
        for i in mine[_sound(plan, said[mine].tolist(), rejected)].tolist():
            person = hashlib.blake2b(given[i].encode(), key=key, digest_size=16).digest()
            payload = said[i][HEADER:]
            rejected["repeated pseudonym"] += int(person in held[name])
            held[name][person] = min(payload, held[name].get(person, payload))


def _sound(plan: Plan, reports: Sequence[bytes], rejected: Counter[str]) -> NDArray[np.bool_]:
    """Which reports are answers to a service's plan; the others are counted by reason."""
    view, sound = plan.views[0], np.zeros(len(reports), dtype=bool)
    head = MAGIC + plan.hash + b"\0\0" + bytes([view.perturbs.code])
    lengths = np.fromiter(map(len, reports), dtype=np.int64, count=len(reports))
    for length in np.unique(lengths).tolist():
        at = np.nonzero(lengths == length)[0]
        if length <= HEADER:
            rejected["too short"] += at.size
            continue
        table = np.frombuffer(b"".join(reports[i] for i in at.tolist()), np.uint8).reshape(-1, length)
        right = (table[:, :HEADER] == np.frombuffer(head, np.uint8)).all(axis=1)
        kept, reason = oracle_of(plan, view).check(table[:, HEADER:])
        rejected["not version 1, the view or its oracle"] += int((~right).sum())
        rejected[reason] += int((right & ~kept).sum())
        sound[at] = right & kept
    return sound


def _heard(plan: Plan, payloads: Sequence[bytes]) -> Heard:
    """Payloads as an array."""
    oracle = oracle_of(plan, plan.views[0])
    return Heard(oracle, oracle.packed(payloads))
