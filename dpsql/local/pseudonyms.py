"""Reports of several services, joined by the person's pseudonym, however many there are.

A spool may hold reports of one service or of several; a report names its service's plan by hash. Pseudonyms are the
spools' tokens. They are hashed under the collector's secret key as soon as they are read. Hash and payload go to files
by service and by the hash's first bits, in a private folder that ends with the run; then people are joined from one
part of the files after the other, so memory holds one part alone.

Of several reports of one pseudonym at one service the least in byte order is kept, so the order of files does not
matter; whoever is not known to every service is left out and counted.

**Privacy**: reports were private before they left a service. No raw pseudonym is written anywhere; its hash under the
key is, for as long as the run lasts.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpsql.client.device import HEADER, MAGIC
from dpsql.client.plan import Plan
from dpsql.engines.duck import private_folder
from dpsql.local.collector import CollectionManifest
from dpsql.local.files import open_state
from dpsql.local.oracles.oracle import FloatArray, Oracle, Packed, item_scores
from dpsql.local.services import Sheet
from dpsql.local.spools import Spool, check_damage, counted_file
from dpsql.local.tallies import oracle_of
from dpsql.progress import Progress, Stage

ROWS = 100_000
"""Reports that are looked at at once."""
PERSON = 16
"""Bytes of a hashed pseudonym."""
PARTS = 64
"""Parts of all people: of ten million reports one holds 160,000."""


class ServiceReports(NamedTuple):
    """One service's reports about some people: their oracle, and their payloads in the order of people."""

    oracle: Oracle
    packed: Packed

    def scores(self, first: int, last: int) -> FloatArray:
        """Unbiased indicators of all items for some of the people, shape (people, items)."""
        return item_scores(self.oracle, self.oracle.supports(self.packed[first:last]))


class LinkedReports(NamedTuple):
    """Some of the people known to every service, and what each service heard of them (same order)."""

    people: int
    heard: Mapping[str, ServiceReports]


class Spooled(NamedTuple):
    """Reports by service and part of the people.

    Args:
        folder: a private one, with a file for each service, part and length of payload.
        files: spools that were read.
        reports: what they held.
        rejected: by reason; `joined_people` adds to it.
    """

    folder: Path
    files: int
    reports: int
    rejected: Counter[str]

    def manifest(self, sheet: Sheet, people: int) -> CollectionManifest:
        """Manifest of the count, once all people are joined."""
        reasons = {reason: n for reason, n in sorted(self.rejected.items()) if n}
        return CollectionManifest(self.files, self.reports, people * len(sheet.plans), reasons)


@contextmanager
def spooled_reports(
    sheet: Sheet, spools: Sequence[Path], key: bytes, progress: Progress
) -> Iterator[Spooled]:
    """Read spools into a private folder that ends with the `with` block.

    Args:
        sheet: the collection.
        spools: Parquet, CSV and JSON-lines files; a file given twice counts once.
        key: secret bytes under which pseudonyms are hashed.
        progress: told each file.

    Raises:
        OperationalError: there is no such file.
        MachineFault: one cannot be read or counted, or no folder can be made.
    """
    folder = private_folder()
    try:
        yield _read(sheet, spools, key, Path(folder.name), progress)
    finally:
        folder.cleanup()


def _read(sheet: Sheet, spools: Sequence[Path], key: bytes, folder: Path, progress: Progress) -> Spooled:
    rejected, seen, total = Counter[str](), set[str](), 0
    connection = open_state(next(iter(sheet.plans.values())))
    try:
        for path in spools:
            content = counted_file(path)
            if content.digest in seen:
                progress(Stage("known", path.name))
                continue
            seen.add(content.digest)
            spool, count = Spool(path, content, (), Counter()), 0
            for reports, tokens in _portions(connection, spool):
                count += len(reports)
                for file, records in _records(sheet, reports, tokens, key, rejected).items():
                    with (folder / file).open("ab") as out:
                        out.write(records)
            rejected += spool.unreadable
            total += count + spool.unreadable.total()
            progress(Stage("counted", path.name, {"reports": count}))
    finally:
        connection.close()
    return Spooled(folder, len(seen), total, rejected)


def _records(
    sheet: Sheet, reports: Sequence[bytes], tokens: Sequence[str | None], key: bytes, rejected: Counter[str]
) -> dict[str, bytearray]:
    """Checked reports as hashed pseudonym and payload, by the file that they go to."""
    pseudonyms = np.array([*tokens, None], dtype=object)[:-1]
    report_bytes = np.array([bytes(r) for r in reports] + [b""], dtype=object)[:-1]
    plan_hashes = np.array([r[2:10] for r in report_bytes.tolist()] + [b""], dtype=object)[:-1]
    named = np.array([t is not None for t in pseudonyms], dtype=bool)
    rejected["no pseudonym"] += int((~named).sum())
    rejected["another plan"] += int(named.sum())
    records: dict[str, bytearray] = defaultdict(bytearray)
    for service, plan in enumerate(sheet.plans.values()):
        positions = np.nonzero(named & (plan_hashes == plan.hash))[0]
        rejected["another plan"] -= positions.size
        for i in positions[_sound(plan, report_bytes[positions].tolist(), rejected)].tolist():
            person = hashlib.blake2b(pseudonyms[i].encode(), key=key, digest_size=PERSON).digest()
            payload = report_bytes[i][HEADER:]
            records[f"{service}.{person[0] % PARTS}.{len(payload)}"] += person + payload
    return records


def joined_people(sheet: Sheet, spooled: Spooled) -> Iterator[LinkedReports]:
    """People known to every service, one part of them after the other; each report is read once.

    Args:
        sheet: the collection.
        spooled: from `spooled_reports`; its `rejected` is complete when the last part is.
    """
    for shard in range(PARTS):
        by_service = [_payloads(spooled, service, shard) for service in range(len(sheet.plans))]
        everywhere = sorted(set.intersection(*(set(payloads) for payloads in by_service)))
        lost = sum(len(payloads) - len(everywhere) for payloads in by_service)
        spooled.rejected["pseudonym not at every service"] += lost
        heard = {
            name: _heard(plan, [payloads[person] for person in everywhere])
            for (name, plan), payloads in zip(sheet.plans.items(), by_service, strict=True)
        }
        if everywhere:
            yield LinkedReports(len(everywhere), heard)


def _payloads(spooled: Spooled, service: int, shard: int) -> dict[bytes, bytes]:
    """Payload by hashed pseudonym; the least of several."""
    payloads: dict[bytes, bytes] = {}
    for file in sorted(spooled.folder.glob(f"{service}.{shard}.*")):
        step, content = PERSON + int(file.suffix[1:]), file.read_bytes()
        for at in range(0, len(content), step):
            person, payload = content[at : at + PERSON], content[at + PERSON : at + step]
            spooled.rejected["repeated pseudonym"] += int(person in payloads)
            payloads[person] = min(payload, payloads.get(person, payload))
        file.unlink()
    return payloads


def _portions(
    connection: duckdb.DuckDBPyConnection, spool: Spool
) -> Iterator[tuple[list[bytes], list[str | None]]]:
    """A file's reports and their pseudonyms, some at a time; of a damaged file none."""
    try:
        for portion in spool.portions(connection):
            # All of it is readable before any of it is kept; no pseudonym gets to a table, which might be spilled.
            connection.execute(f"SELECT max(report), max(token) FROM {portion}").fetchall()
            rows = connection.execute(f"SELECT report, token FROM {portion}")
            while block := rows.fetchmany(ROWS):
                yield [report for report, _ in block], [token for _, token in block]
    except duckdb.Error as error:
        check_damage(spool, connection, error)
        spool.unreadable["unreadable file"] += 1


def _sound(plan: Plan, reports: Sequence[bytes], rejected: Counter[str]) -> NDArray[np.bool_]:
    """Mask of reports that answer a service's plan; the others are counted by reason."""
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
        valid, reason = oracle_of(plan, view).check(table[:, HEADER:])
        rejected["not version 1, the view or its oracle"] += int((~right).sum())
        rejected[reason] += int((right & ~valid).sum())
        sound[at] = right & valid
    return sound


def _heard(plan: Plan, payloads: Sequence[bytes]) -> ServiceReports:
    oracle = oracle_of(plan, plan.views[0])
    return ServiceReports(oracle, oracle.packed(payloads))
