"""Checks of a stream directory: that its files are the named ones, and that its newest state follows from its segments.

Strategies are taken from the promise, which the ledger seals; axes over public tables are taken from the state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dpsql.catalog import Catalog, catalog_from_json
from dpsql.catalog.graph import ledger_path
from dpsql.errors import Error
from dpsql.inspection.replan import axes_from_file
from dpsql.inspection.report import AuditReport, Check
from dpsql.ledger import ledger_entries
from dpsql.ledger.files import holds
from dpsql.mechanisms.stream.schedule import emissions
from dpsql.publishing.beside import PROMISE
from dpsql.publishing.stream_frozen import thawed
from dpsql.publishing.stream_manifest import Manifest, read_head, read_manifest
from dpsql.publishing.stream_plan import StreamPlan, plan_stream
from dpsql.publishing.stream_present import StateEstimates, published_numbers, state_estimates
from dpsql.publishing.stream_segments import read_segments
from dpsql.publishing.stream_spec import IntArray
from dpsql.release import Release, open_release
from dpsql.release.stream import MANIFEST

FOLDERS = ("segments", "states")


def audit_stream(directory: Path, catalog: Catalog | None) -> AuditReport:
    """Check a stream release offline.

    Args:
        directory: the stream directory.
        catalog: the curator's catalog, for the ledger; None leaves the ledger out.

    Raises:
        ReleaseError: it cannot be opened at all.

    **Privacy**: reads public files and, with a catalog, the ledger; never the private state.
    """
    release = open_release(directory, insecure=True)
    try:
        return AuditReport(directory, tuple(_checks(directory, release, catalog)))
    finally:
        release.close()


def _checks(directory: Path, release: Release, catalog: Catalog | None) -> Iterator[Check]:
    test = bool(release.meta.get("insecure_entropy"))
    yield Check("noise from the system's entropy", not test, "test entropy protects nobody" if test else "")
    try:
        head, manifest = read_head(directory), read_manifest(directory)
        yield from _check_files(directory, head, manifest)
        promise = json.loads((directory / PROMISE).read_text(encoding="utf-8"))
        if catalog is not None:
            yield from _check_ledger(directory, promise, catalog)
        inside = catalog_from_json(json.dumps(promise["catalog"]))
        plan = thawed(plan_stream(inside, axes_from_file(release, inside), 0), promise["strategies"])
        columns = read_segments(directory, manifest)
        yield _check_schedule(plan, columns, manifest.batches)
        published = published_numbers(columns, plan)
        yield _check_promise(release, promise, manifest, plan)
        yield from _check_state(release, state_estimates(plan, manifest.batches, published), published)
    except Error as error:
        yield Check("made again from its promise", False, str(error))
    except (OSError, KeyError, ValueError, TypeError) as error:
        yield Check("readable as a stream of this version", False, type(error).__name__)


def _check_files(directory: Path, head: Manifest, manifest: Manifest) -> Iterator[Check]:
    """Every named file is there as it was published, and no other file is."""
    named = {entry.file: entry.sha256 for entry in (*head.pages, *manifest.segments)}
    named |= {state.file: state.sha256 for state in head.states}
    named |= dict([head.base] if head.base else [])
    wrong = sorted(name for name, sha256 in named.items() if not holds(directory / name, sha256))
    yield Check(f"{len(named)} files as they were published", not wrong, ", ".join(wrong[:5]))
    found = {str(path.relative_to(directory)) for path in directory.rglob("*")}
    others = sorted(found - {*named, MANIFEST, *FOLDERS})
    yield Check("no file but those that the manifest names", not others, ", ".join(others[:5]))


def _check_ledger(directory: Path, promise: dict[str, Any], catalog: Catalog) -> Iterator[Check]:
    entries = [e for e in ledger_entries(ledger_path(catalog)) if e.release_id == promise["release_id"]]
    yield Check("charged to the ledger once", len(entries) == 1)
    for entry in entries:
        yield Check("the promise is the one that was charged", holds(directory / PROMISE, entry.sha256))
        spends = [[line.purpose, str(line.amount), line.currency] for line in entry.spend_lines()]
        yield Check("the promise names the amounts that were charged", spends == promise["spends"])


def _check_schedule(plan: StreamPlan, columns: dict[str, IntArray], batches: int) -> Check:
    """Each batch published the nodes that its strategy says, all their cells, and nothing else."""
    wanted = [
        (statistic, emission.level, emission.lo, emission.hi, cell)
        for batch in range(batches)
        for statistic, cells in enumerate(plan.spec().cells)
        for emission in emissions(plan.strategy, plan.currency, batch)
        for cell in range(cells)
    ]
    found = np.stack([columns[name] for name in ("statistic", "level", "lo", "hi", "cell")], axis=1)
    held = found.shape == (len(wanted), 5) and bool((found == np.array(wanted)).all())
    return Check("numbers only where the strategy publishes them", held, f"{len(found)} numbers")


def _check_promise(release: Release, promise: dict[str, Any], manifest: Manifest, plan: StreamPlan) -> Check:
    """The newest state repeats the promise."""
    meta = release.meta
    said = {
        "release id": {meta["release_id"], promise["release_id"], manifest.release_id},
        "unit": {meta["privacy"]["unit"], promise["unit"], plan.unit},
        "specification": {meta["spec_hash"], promise["spec_hash"]},
        "batch": {meta["stream"]["as_of_batch"], manifest.as_of_batch},
        "spends": {str(meta["spends"]), str([line[:2] for line in promise["spends"]])},
    }
    differ = sorted(what for what, values in said.items() if len(values) > 1)
    if meta["catalog"] != promise["catalog"]:
        differ.append("catalog")
    return Check("the newest state repeats the promise", not differ, ", ".join(differ))


def _check_state(release: Release, made: StateEstimates, published: list[IntArray]) -> Iterator[Check]:
    """The newest state is what follows from the segments."""
    for table, column, wanted in (
        ("measurement", "value", published), ("node_combination", "estimate", made.nodes)
    ):  # fmt: skip
        wrong = []
        for i, values in enumerate(wanted):
            query = f"SELECT {column} FROM {table}_{i} ORDER BY rowid"
            stored = release.connection.cursor().execute(query).fetchnumpy()[column]
            wrong += (
                [] if np.array_equal(np.asarray(stored, dtype=np.int64), values.ravel()) else [f"{table}_{i}"]
            )
        yield Check(f"every {table.replace('_', ' ')} follows from the segments", not wrong, ", ".join(wrong))
    parts = [sorted(part.values()) for part in made.components]
    stored_parts = [sorted(s2 for _, s2 in statistic.components) for statistic in release.statistics]
    held = all(np.allclose(a, b, rtol=1e-9) for a, b in zip(parts, stored_parts, strict=True))
    yield Check("variance factors follow from the promise", held)
