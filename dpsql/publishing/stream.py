"""Append a batch to a stream, from raw rows to the files that readers open. The first append makes the stream.

    plan       stream_plan.py, stream_time.py     public: what is measured, the same at every append
    create     here                               private state, then the whole budget charged, then the directory
    rows       stream_rows.py                     the batch's raw rows to exact integers
    decide     stream_append.py                   one private transaction draws and stores the noise
    present    stream_present.py                  the release file of the new state, from public numbers

Creation is safe to repeat: the private state holds the release id that the ledger charges, and a state that is gone is
never replaced by a fresh one, since drawing a batch's noise again would show the exact difference.

**Privacy**: docs/privacy/streams.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from dpsql.catalog import Catalog, spec_hash
from dpsql.catalog.graph import ledger_path
from dpsql.errors import BatchOrderError, IntegrityError, OperationalError
from dpsql.ledger import Receipt, new_release_id, publish_file
from dpsql.ledger.files import PRIVATE_DIRECTORY
from dpsql.noise import Entropy, Noise
from dpsql.publishing.axes import axis_maker
from dpsql.publishing.beside import PROMISE, releases_beside
from dpsql.publishing.central import confirmed_source, release_spend, source_digests
from dpsql.publishing.predict import open_public
from dpsql.publishing.stream_append import OpenStream, opened_stream, stream_lock
from dpsql.publishing.stream_calendar import batch_bounds, batch_number
from dpsql.publishing.stream_frozen import check_leaves, frozen, thawed
from dpsql.publishing.stream_manifest import create_directory
from dpsql.publishing.stream_plan import StreamPlan, plan_stream
from dpsql.publishing.stream_present import Presenter
from dpsql.publishing.stream_recover import KillPoint, no_kill
from dpsql.publishing.stream_rows import aggregate, arrive, open_batch
from dpsql.publishing.stream_spec import noise_for
from dpsql.publishing.stream_state_file import create_state, open_state
from dpsql.publishing.stream_time import stream_column
from dpsql.publishing.stream_types import StreamTypes, first_types
from dpsql.release.stream import MANIFEST
from dpsql.sources import RawSide

KEY = b"the key that ranks a unit's rows"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Appended:
    """What `append` did. For the curator: `left_out` counts raw rows.

    Args:
        path: the stream directory.
        batch: the batch's number, 0-based.
        label: the date or time that it was named by.
        added: False where the batch was public already.
        created: whether this append made the stream and charged the budget.
        charged, left: epsilon at the catalog's delta.
        left_out: raw rows that each rule left out: late, early, bounded (out of domain, or more than max_ids
            of a unit), lifetime (units past max_batches). Private.
    """

    path: Path
    batch: int
    label: str
    added: bool
    created: bool
    charged: Fraction
    left: Fraction
    left_out: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "path": str(self.path), "batch": self.batch, "label": self.label, "added": self.added,
            "created": self.created, "charged": str(self.charged), "left": str(self.left),
            "left_out_private": self.left_out,
        }  # fmt: skip

    def summary(self) -> str:
        """One line for people."""
        if not self.added:
            return (
                f"batch {self.batch} ({self.label}) of {self.path} is public; data are not compared, nothing was drawn "
                "or charged; send corrections with a later batch"
            )
        made = (
            f"made {self.path}, charged {float(self.charged):g}, left {float(self.left):g}; "
            if self.created
            else ""
        )
        out = ", ".join(f"{rows} {rule}" for rule, rows in self.left_out.items())
        rules = f"; rows left out (private): {out}" if out else ""
        return f"{made}appended batch {self.batch} ({self.label}) to {self.path}{rules}"


@dataclass(frozen=True)
class Compared:
    """The rows of a public batch were given again, and they are the same. For the curator.

    Args:
        path: the stream directory.
        batch: the batch's number, 0-based.
        label: the date or time that it was named by.
    """

    path: Path
    batch: int
    label: str

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {"path": str(self.path), "batch": self.batch, "label": self.label, "same": True}

    def summary(self) -> str:
        """One line for people."""
        return f"batch {self.batch} ({self.label}) of {self.path} was made of the same rows"


class Earlier(NamedTuple):
    """What earlier batches have fixed.

    Args:
        types: column types of the first batch; None before it.
        batches: how many have been decided.
    """

    types: StreamTypes | None
    batches: int


def append_batch(
    catalog: Catalog,
    directory: Path,
    label: str,
    *,
    noise: Noise,
    entropy: Entropy,
    source: Path | None = None,
    now: datetime | None = None,
    progress: Progress = lambda step: None,
    kill_point: KillPoint = no_kill,
) -> Appended:
    """Publish one batch of a stream, exactly once; the first one makes the stream.

    A batch that is public already stays as it is, whatever rows come with it: they are not read.

    Args:
        catalog: a loaded catalog with a source and `stream`.
        directory: the stream directory.
        label: a date or time inside the batch.
        noise: where noise comes from.
        entropy: where the stream's secret comes from, if it is made now.
        source: a Parquet or CSV file with the rows that arrive; without it, the rows of the catalog's
            source whose time lies in the batch.
        now: refuse batches that have not begun by then; None takes this machine's clock.
        progress: told each step, in words.
        kill_point: told each step, for tests that kill there.

    Returns:
        What was done.

    Raises:
        CatalogError, SourceError: the catalog or a source is wrong; nothing was drawn.
        BatchOrderError: batches before it are missing, it has not begun, or it is past the end.
        PrivacyError and its kin, IntegrityError: the ledger or the private state refuses.

    **Privacy**: the whole stream is epsilon-DP (or rho-zCDP) in its unit, charged once.
    """
    directory = directory.absolute()
    if directory.exists() and not directory.is_dir():
        raise OperationalError(
            f"{directory} is a file", hint="a stream release is a directory; choose another"
        )
    raw_source, (stream, of, column) = confirmed_source(catalog), stream_column(catalog)
    number = batch_number(label, str(column.lower), stream.grain)
    if batch_bounds(number, str(column.lower), stream.grain)[0] > (now or datetime.now()):
        raise BatchOrderError(
            f"batch {label} has not begun yet", hint="check the label, or this machine's clock"
        )
    private = private_state(catalog, directory)
    before = earlier(private)
    is_public = number < before.batches  # then no raw row is opened: what it holds cannot show
    raw = open_public(catalog) if is_public else open_batch(catalog, raw_source, of, source, before.types)
    try:
        plan = _promised(plan_stream(catalog, axis_maker(catalog, raw), number), directory)
        receipt = _created(plan, raw, directory, private, noise, entropy)
        progress(f"planned {len(plan.batch.statistics)} statistics over {plan.batch.axes[0].choice.name}")
        present = Presenter(plan, raw.connection, noise.insecure)
        opened = opened_stream(directory, private, plan.spec(), kill_point=kill_point, present=present)
        with opened as opened_now:
            left_out = _append(opened_now, raw, plan, number, before, source is not None, noise, progress)
        return Appended(
            directory, number, label, left_out is not None, receipt.drawn, receipt.charged_epsilon,
            receipt.left_epsilon, left_out or {},
        )  # fmt: skip
    finally:
        raw.close()


def _append(
    stream: OpenStream, raw: RawSide, plan: StreamPlan, number: int, before: Earlier, own_file: bool, noise: Noise,
    progress: Progress,
) -> dict[str, int] | None:  # fmt: skip
    """Add up, draw and publish; the rows left out by rule, or None where the batch was public already.

    Raises:
        OperationalError: the first batch came from somebody else since `before` was read.
    """
    if stream.known(number):
        return None
    if stream.state.types() != (before.types.text() if before.types else ""):
        raise OperationalError("another append was first; nothing was drawn", hint="run this one again")
    progress("bounding and counting the batch")
    arrived, types = (
        arrive(raw, plan.catalog, number, own_file),
        before.types or first_types(plan.catalog, raw),
    )
    batch = aggregate(raw, plan, arrived, stream.state.keyed(KEY), stream.admitted, types)
    progress("drawing, estimating and writing")
    stream.append(batch, noise_for(plan.statistics(), noise))
    return batch.left_out


def earlier(private: Path) -> Earlier:
    """What earlier batches have fixed, from the private state; nothing where there is none yet."""
    if not private.exists():
        return Earlier(None, 0)
    with stream_lock(private):
        state = open_state(private)
        try:
            text, batches = state.types(), state.next_batch()
        finally:
            state.close()
    return Earlier(StreamTypes.parse(text) if text else None, batches)


def check_batch(catalog: Catalog, directory: Path, label: str, *, source: Path | None = None) -> Compared:
    """Compare rows with those of a public batch; appends, draws and charges nothing.

    Args:
        catalog: a loaded catalog with a source and `stream`.
        directory: the stream directory.
        label: a date or time inside the batch.
        source: as for `append_batch`.

    Raises:
        CatalogError, SourceError: the catalog or a source is wrong.
        OperationalError: there is no private state here.
        BatchOrderError: the batch has not been appended.
        BatchConflict: it was appended with other rows.

    **Privacy**: an exact test of equality of private rows, for whoever holds the private state and the rows; its
    outcome is private.
    """
    directory = directory.absolute()
    raw_source, (stream, of, column) = confirmed_source(catalog), stream_column(catalog)
    number, private = batch_number(label, str(column.lower), stream.grain), private_state(catalog, directory)
    before = earlier(private)
    if number >= before.batches:
        raise BatchOrderError(f"batch {label} has not been appended", hint="append it; nothing was compared")
    raw = open_batch(catalog, raw_source, of, source, before.types)
    try:
        arrived = arrive(raw, catalog, number, source is not None)
    finally:
        raw.close()
    state = open_state(private)
    try:
        state.compare(number, arrived.content)
    finally:
        state.close()
    return Compared(directory, number, label)


def _promised(plan: StreamPlan, directory: Path) -> StreamPlan:
    """The plan with the strategies that the stream was made with, if it has been made."""
    try:
        kept = json.loads((directory / PROMISE).read_text(encoding="utf-8"))["strategies"]
    except FileNotFoundError:
        plan.statistics()  # refuses budgets that are too small, before anything is charged
        return plan
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{directory / PROMISE} is damaged", hint="restore it from a backup") from error
    restored = thawed(plan, kept)
    check_leaves(restored, kept)
    return restored


def private_state(catalog: Catalog, directory: Path) -> Path:
    """Where a stream's private state lies: beside the ledger, named after release and lineage."""
    owner = hashlib.sha256(catalog.privacy.lineage.encode()).hexdigest()[:8]
    return ledger_path(catalog).absolute().parent / f"{directory.name}.{owner}.stream"


def _created(
    plan: StreamPlan, raw: RawSide, directory: Path, private: Path, noise: Noise, entropy: Entropy
) -> Receipt:
    """Make the stream if there is none; charge its budget once; refuse sides that are not from one making.

    Raises:
        IntegrityError: the stream was charged with another private state, or its manifest is gone.
        PrivacyError and its kin: the ledger refuses.
    """
    try:
        private.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OperationalError(f"{directory} cannot be made ({error.strerror})") from error
    with stream_lock(private):
        if not private.exists():
            if (directory / MANIFEST).exists():
                raise IntegrityError(
                    f"the private state {private} of this stream is gone", hint="restore its newest copy"
                )
            create_state(private, {"release_id": new_release_id(), "spec": plan.spec().text()}, entropy(32))
        state = open_state(private)
        try:
            release_id, started = state.setting("release_id").decode(), state.next_batch() > 0
        finally:
            state.close()
        receipt = _charged(plan, raw, directory, release_id, noise)
        if receipt.release_id != release_id:
            raise IntegrityError(
                f"{directory.name} was charged with another private state than {private}",
                hint="restore the newest copy of the old one; nothing was drawn",
            )
        if not (directory / MANIFEST).exists():
            if started:
                raise IntegrityError(f"the manifest of {directory} is gone", hint="restore the directory")
            create_directory(directory, release_id, PROMISE)
    return receipt


def _charged(plan: StreamPlan, raw: RawSide, directory: Path, release_id: str, noise: Noise) -> Receipt:
    """Charge the whole budget once, with a public file that says what for."""
    catalog, privacy = plan.catalog, plan.catalog.privacy
    spend = release_spend(catalog, plan.batch, plan.unit)
    promise = {
        "release_id": release_id, "catalog": json.loads(catalog.to_json()), "spec_hash": spec_hash(catalog),
        "unit": plan.unit, "neighbours": privacy.neighbours, "insecure_entropy": noise.insecure,
        "spends": [[line.purpose, str(line.amount), line.currency] for line in spend.lines],
        "strategies": frozen(plan),
    }  # fmt: skip

    def build(path: Path) -> None:
        path.write_text(json.dumps(promise) + "\n", encoding="utf-8")

    return publish_file(
        ledger_path(catalog),
        spend,
        release_id=release_id,
        label=directory.name,
        spec_hash=spec_hash(catalog),
        digests=lambda: source_digests(raw, spend.tables),
        build=build,
        target=directory / PROMISE,
        public=releases_beside(directory, privacy.lineage),
    )
