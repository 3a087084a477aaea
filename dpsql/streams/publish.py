"""Append a batch to a stream, from raw rows to the files that readers open. The first append makes the stream.

    plan       plan.py                  public: what is measured, the same at every append
    create     here                     private state, then the whole budget charged, then the directory
    rows       rows.py                  the batch's raw rows to exact integers
    decide     append.py, state.py      one private transaction draws and stores the noise
    present    here, public.py          the release file of the new state, from public numbers

Creation is safe to repeat: the private state holds the release id that the ledger charges, and a state that is gone is
never replaced by a fresh one, since drawing a batch's noise again would show the exact difference.

**Present state**: an ordinary release file, made of public numbers alone. Every statistic's noisy numbers are an array:
time nodes in the order of publication, then the rows of the other axes' strategies. Estimates are best along the other
axes inside each time node, then along time; statistics of one family are reconciled as in any release. So readers need
nothing but the file. The last `KEPT` states stay as files, for readers that ask `as of` a batch.

**Privacy**: docs/privacy/streams.md. The present state is post-processing of published numbers, which comes after the
decision and may be repeated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpsql.catalog import Catalog, spec_hash
from dpsql.catalog.graph import ledger_path
from dpsql.central.axes import AxisMaker, axis_maker, open_public
from dpsql.central.central import PROMISE, confirmed_source, release_spend, releases_beside, source_digests
from dpsql.central.content import descriptions, lookup_trees, notes, planned_release, with_cuts
from dpsql.central.planned import ReleasePlan
from dpsql.engines.duck import RawSide
from dpsql.errors import BatchOrderError, IntegrityError, OperationalError, ReleaseError
from dpsql.faults import CHARGED, UNCHARGED, machine, spending
from dpsql.ledger.files import file_hash, holds, signing_seed, sync
from dpsql.ledger.identity import Label, LedgerMemory, Receipt, new_release_id
from dpsql.ledger.publish import Draft, Order, publish_file
from dpsql.ledger.store import ledger_entries
from dpsql.matrices.estimated import Estimated
from dpsql.matrices.strategy import estimate
from dpsql.mechanisms.designs.measurement import DrawnMember, estimated
from dpsql.mechanisms.designs.product import PRODUCT
from dpsql.mechanisms.distribution import NoisyView, joined, published, shaped
from dpsql.noise import Noise
from dpsql.noise.discrete import Entropy
from dpsql.progress import Progress, Stage, silent
from dpsql.release import open_release
from dpsql.release.format import StreamMeta
from dpsql.release.signature import MANIFEST, StreamSnapshot
from dpsql.release.write import ReleaseBuilder, Statistic, assemble
from dpsql.streams.append import KillPoint, StreamNoise, StreamStatistic, no_kill, opened_stream, stream_lock
from dpsql.streams.plan import (
    StreamPlan,
    batch_bounds,
    batch_number,
    check_leaves,
    frozen,
    plan_stream,
    stream_column,
    thawed,
)
from dpsql.streams.public import PUBLIC_FILE, StreamManifest, create_directory, read_segments
from dpsql.streams.rows import StreamTypes, aggregate, arrive, first_types, open_batch
from dpsql.streams.state import create_state, open_state, seal_state
from dpsql.tree import FloatArray, IntArray, Noisy

STATES = "states"
KEPT = 16
"""States kept as files, the newest included."""
BLOCK = 1 << 14
"""Block size of their files: the tables are small, and there is a file a batch."""


def present_state(
    plan: StreamPlan, insecure: bool, seed: bytes | None, directory: Path, manifest: StreamManifest
) -> StreamManifest:
    """Write the release file of a manifest's newest batch, before that replaces the public one, and name it there.

    Args:
        plan: the stream.
        insecure: whether the noise came from test entropy.
        seed: the secret key that signs states; None leaves them unsigned.
        directory: the stream directory.
        manifest: with the new segment, not yet public.
    """
    folder = directory / STATES
    folder.mkdir(exist_ok=True)
    for leftover in folder.iterdir():  # of an append that did not finish
        if f"{STATES}/{leftover.name}" not in {state.file for state in manifest.states}:
            leftover.unlink()
    content = state_content(plan, manifest, _published(directory, manifest, plan), insecure)
    name = f"{STATES}/{manifest.as_of_batch:09d}.duckdb"
    fresh = directory / (name + ".new")
    content.write(fresh, seed, block_size=BLOCK)
    fresh.chmod(PUBLIC_FILE)
    sync(fresh)
    label = _label(plan, manifest.batches)
    state = StreamSnapshot(name, file_hash(fresh), manifest.as_of_batch, label)
    fresh.replace(directory / name)
    sync(folder)
    return replace(manifest, states=(*manifest.states, state)[-KEPT:])


def _published(directory: Path, manifest: StreamManifest, plan: StreamPlan) -> list[Noisy]:
    """The noisy numbers of every statistic: int64[time nodes, cells]. From the last state, if it is there."""
    cells = plan.spec().cells
    last = manifest.states[-1] if manifest.states else None
    if (
        last is None
        or last.batch != manifest.as_of_batch - 1
        or not holds(directory / last.file, last.sha256)
    ):
        return published_numbers(read_segments(directory, manifest), plan)
    newest = read_segments(directory, StreamManifest("", manifest.segments[-1:]))
    try:
        # insecure, as readers of this process may have it open
        release = open_release(directory / last.file, insecure=True)
    except ReleaseError:  # its hash was right, so the disk is at fault; the segments hold the same numbers
        return published_numbers(read_segments(directory, manifest), plan)
    with closing(release):
        earlier = [release.whole(f"measurement_{s}")["value"] for s in range(len(cells))]
    return [
        shaped(joined(published(earlier[s]), _of(newest, s, size)), [-1, size])
        for s, size in enumerate(cells)
    ]


def published_numbers(columns: dict[str, IntArray], plan: StreamPlan) -> list[Noisy]:
    """The columns of all segments as one array for each statistic: int64[time nodes, cells]."""
    return [_of(columns, s, size) for s, size in enumerate(plan.spec().cells)]


def _of(columns: dict[str, IntArray], statistic: int, cells: int) -> Noisy:
    return shaped(published(columns["value"][columns["statistic"] == statistic]), [-1, cells])


def state_content(
    stream: StreamPlan, manifest: StreamManifest, numbers: Sequence[Noisy], insecure: bool
) -> ReleaseBuilder:
    """All that the release file of a state holds.

    Args:
        stream: the stream.
        manifest: says how many batches there are.
        numbers: the noisy numbers of each statistic, int64[time nodes, cells].
        insecure: whether the noise came from test entropy.
    """
    batches = manifest.batches
    plan = stream.whole(batches)
    models = stream.models(batches)
    pairs = zip(plan.axes, models, strict=True)
    axes = {i: planned.measured(model) for i, (planned, model) in enumerate(pairs)}
    drawn = []
    for i, (statistic, unit) in enumerate(zip(stream.statistics(), stream.unit_variances(), strict=True)):
        budgets = _budgets(stream, plan, i, statistic, batches)
        drawn.append(NoisyView(shaped(numbers[i], _row_shape(plan, i)), budgets, unit, 0))
    estimates: dict[int, Estimated] = {}
    for members in plan.families:
        family = [DrawnMember(plan.statistics[i].axes, drawn[i]) for i in members]
        leaves = [_leaves(stream, plan, i, numbers[i]) for i in members]
        estimates |= zip(members, estimated(PRODUCT, family, leaves, axes, agree=True), strict=True)
    # a projection of all cells would cost more than the append
    described = [one._replace(nonnegative=False) for one in descriptions(plan)]
    noted = [replace(estimates[i], notes=notes(plan, s)) for i, s in enumerate(plan.statistics)]
    models = [axis.split.model for axis in axes.values()]
    assembled = assemble(list(map(Statistic, described, noted)), models, lookup_trees(plan))
    assembled = with_cuts(assembled, plan, drawn)
    builder = planned_release(plan, manifest.release_id, assembled, insecure=insecure)
    meta = StreamMeta(
        as_of_batch=batches - 1, as_of=_label(stream, batches), column=stream.stream.column,
        grain=stream.stream.grain, strategy=stream.batch.axes[0].choice.name, late=stream.stream.late.name,
        rows_per_batch=stream.batch.statistics[0].tau, max_batches=stream.lifetime,
    )  # fmt: skip
    return replace(builder, privacy=replace(builder.privacy, unit=stream.unit), stream=meta)


def _label(stream: StreamPlan, batches: int) -> str:
    """Label of the newest batch."""
    start = batch_bounds(batches - 1, stream.origin, stream.stream.grain)[0]
    return start.date().isoformat() if stream.stream.grain != "hour" else start.isoformat(timespec="minutes")


def _row_shape(plan: ReleasePlan, index: int) -> list[int]:
    """One dimension for each axis of a statistic, time first."""
    return [-1, *(len(strategy.budget) for strategy in plan.strategies(plan.statistics[index])[1:])]


def _leaves(stream: StreamPlan, plan: ReleasePlan, index: int, values: Noisy) -> FloatArray:
    """Best linear unbiased estimates of the leaf combinations: float64[batches, n_1, ..]."""
    rows: FloatArray = shaped(values, _row_shape(plan, index)).astype(np.float64)
    for axis, strategy in enumerate(plan.strategies(plan.statistics[index])[1:], start=1):
        rows = estimate(strategy, rows, axis)
    factor = plan.statistics[index].factor
    return stream.strategy.estimate(plan.axes[0].axis.leaves, rows) * factor


def _budgets(
    stream: StreamPlan, plan: ReleasePlan, index: int, statistic: StreamStatistic, batches: int
) -> IntArray:
    """Integer budget of each published number; 0 where it holds several nodes: the strategy tells their shares."""
    several = np.zeros(statistic.cells, dtype=np.int64)
    budgets: dict[Fraction, IntArray] = {}
    rows = []
    for batch in range(batches):
        for emission in stream.strategy.emissions(batch):
            share = emission.reads[0].share
            if share not in budgets:
                budgets[share] = statistic.budgets(share)
            rows.append(budgets[share] if len(emission.reads) == 1 else several)
    return np.array(rows, dtype=np.int64).reshape(_row_shape(plan, index))


KEY = b"the key that ranks a unit's rows"
NOT_APPENDED = "the batch was not appended; append it again"


@dataclass(frozen=True)
class Appended:
    """Outcome of `append`. For the curator: `left_out` counts raw rows.

    Args:
        path: the stream directory.
        batch: the batch's number, 0-based.
        label: the date or time that it was named by.
        added: False where the batch was public already.
        created: whether this append made the stream and charged the budget.
        charged, left: epsilon at the catalog's delta.
        left_out: raw rows that each rule left out: late, early, bounded (out of domain, or more than max_ids
            of a unit), lifetime (units past max_batches). Private.
        forgotten: why the computer's memory does not know of this charge; empty where it does, or nothing was charged.
    """

    path: Path
    batch: int
    label: str
    added: bool
    created: bool
    charged: Fraction
    left: Fraction
    left_out: dict[str, int] = field(default_factory=dict)
    forgotten: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "path": str(self.path), "batch": self.batch, "label": self.label, "added": self.added,
            "created": self.created, "charged": str(self.charged), "left": str(self.left),
            "left_out_private": self.left_out, "forgotten": self.forgotten,
        }  # fmt: skip

    def summary(self) -> str:
        """One line for people, and one where the computer's memory does not know of the charge."""
        if not self.added:
            return (
                f"batch {self.batch} ({self.label}) of {self.path} is public; data are not compared, nothing was drawn "
                "or charged; send corrections with a later batch"
            )
        spent = f"spent epsilon {float(self.charged):g}, {float(self.left):g} left"
        creation = f"made {self.path}, {spent}; " if self.created else ""
        out = ", ".join(f"{rows} {rule}" for rule, rows in self.left_out.items())
        rules = f"; rows left out (private): {out}" if out else ""
        forgotten = f"\nno memory on this computer: {self.forgotten}" if self.forgotten else ""
        return f"{creation}appended batch {self.batch} ({self.label}) to {self.path}{rules}{forgotten}"


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
        return f"batch {self.batch} ({self.label}) of {self.path} was made of the same rows"


class Arrival(NamedTuple):
    """Arriving batch.

    Args:
        label: a date or time inside the batch.
        source: a Parquet or CSV file with the rows; None takes the rows of the catalog's source whose time lies in the
            batch.
        now: refuse batches that have not begun by then; None takes this machine's clock.
    """

    label: str
    source: Path | None = None
    now: datetime | None = None


class Chance(NamedTuple):
    """Source of randomness.

    Args:
        noise: of what is published.
        entropy: of the stream's secret, if it is made now.
    """

    noise: Noise
    entropy: Entropy


@machine("the batch was not appended", UNCHARGED)
def append_batch(
    catalog: Catalog,
    directory: Path,
    arrival: Arrival,
    chance: Chance,
    *,
    progress: Progress = silent,
    kill_point: KillPoint = no_kill,
    memory: LedgerMemory | None = None,
) -> Appended:
    """Publish one batch of a stream, exactly once; the first one makes the stream.

    A batch that is public already stays as it is, whatever rows come with it: they are not read.

    Args:
        catalog: a loaded catalog with a source and `stream`.
        directory: the stream directory.
        arrival: the batch, and its rows.
        chance: where noise and secret come from.
        progress: told each step.
        kill_point: told each step, for tests that kill there.
        memory: of this computer, by which a ledger that begins anew is noticed; None for made-up rows.

    Returns:
        What was done.

    Raises:
        CatalogError, SourceError: the catalog or a source is wrong; nothing was drawn.
        BatchOrderError: batches before it are missing, it has not begun, or it is past the end.
        PrivacyError and its kin, IntegrityError: the ledger or the private state refuses.
        MachineFault: the machine refused; the line says what is charged.

    **Privacy**: the whole stream is epsilon-DP (or spends its mu^2) in its unit, charged once.
    """
    directory = directory.absolute()
    if directory.exists() and not directory.is_dir():
        raise OperationalError(
            f"{directory} is a file", hint="a stream release is a directory; choose another"
        )
    confirmed_source(catalog)
    stream, of, column = stream_column(catalog)
    number = batch_number(arrival.label, str(column.lower), stream.grain)
    if batch_bounds(number, str(column.lower), stream.grain)[0] > (arrival.now or datetime.now()):
        raise BatchOrderError(
            f"batch {arrival.label} has not begun yet", hint="check the label, or this machine's clock"
        )
    private = private_state(catalog, directory)
    before, batches = earlier(private)
    is_public = number < batches  # then no raw row is opened: what it holds cannot show
    with closing(
        open_public(catalog).as_duckdb("stream")
        if is_public
        else open_batch(catalog, of, arrival.source, before)
    ) as raw:
        plan = _planned(catalog, axis_maker(catalog, raw), number, directory)
        receipt = _created(plan, raw, directory, private, chance, memory)
        progress(Stage("planned", plan.batch.axes[0].choice.name, {"statistics": len(plan.batch.statistics)}))
        present = partial(present_state, plan, chance.noise.insecure, signing_seed(ledger_path(catalog)))
        opened = opened_stream(directory, private, plan.spec(), kill_point=kill_point, present=present)
        left_out = None
        spending()
        with machine("the batch is not public yet", CHARGED), opened as now_open:
            if not now_open.known(number):
                progress(Stage("bounding and counting the batch"))
                if now_open.state.types() != (before.text() if before else ""):
                    # the first batch came from somebody else since the types `before` it were read
                    raise OperationalError(
                        "another append was first; nothing was drawn", hint="run this one again"
                    )
                types = before or first_types(plan.catalog, raw)
                with raw.step("counting the batch", NOT_APPENDED):
                    arrived = arrive(raw, plan.catalog, number, arrival.source is not None)
                    batch = aggregate(raw, plan, arrived, now_open.state.keyed(KEY), now_open.admitted, types)
                progress(Stage("drawing, estimating and writing"))
                now_open.append(batch, StreamNoise(plan.statistics(), chance.noise))
                left_out = batch.left_out
        return Appended(
            directory, number, arrival.label, left_out is not None, receipt.drawn, receipt.charged_epsilon,
            receipt.left_epsilon, left_out or {}, receipt.forgotten,
        )  # fmt: skip


def earlier(private: Path) -> tuple[StreamTypes | None, int]:
    """Read the state fixed by earlier batches from the private state: column types of the first one, None before it,
    and how many have been decided."""
    if not private.exists():
        return None, 0
    with stream_lock(private), closing(open_state(private)) as state:
        text, batches = state.types(), state.next_batch()
    return StreamTypes.parse(text) if text else None, batches


def check_batch(catalog: Catalog, directory: Path, arrival: Arrival) -> Compared:
    """Compare rows with those of a public batch; appends, draws and charges nothing.

    Args:
        catalog: a loaded catalog with a source and `stream`.
        directory: the stream directory.
        arrival: the batch, and its rows.

    Raises:
        CatalogError, SourceError: the catalog or a source is wrong.
        OperationalError: there is no private state here.
        BatchOrderError: the batch has not been appended.
        BatchConflict: it was appended with other rows.

    **Privacy**: an exact test of equality of private rows, for whoever holds the private state and the rows; its
    outcome is private.
    """
    directory = directory.absolute()
    confirmed_source(catalog)
    stream, of, column = stream_column(catalog)
    number = batch_number(arrival.label, str(column.lower), stream.grain)
    private = private_state(catalog, directory)
    types, batches = earlier(private)
    if number >= batches:
        raise BatchOrderError(
            f"batch {arrival.label} has not been appended", hint="append it; nothing was compared"
        )
    opened = open_batch(catalog, of, arrival.source, types)
    with closing(opened) as raw, raw.step("reading the batch", "nothing was compared"):
        _, content, _ = arrive(raw, catalog, number, arrival.source is not None)
    with closing(open_state(private)) as state:
        state.compare(number, content)
    return Compared(directory, number, arrival.label)


def forget_people(catalog: Catalog, directory: Path, people: Sequence[str]) -> int:
    """Erase from a stream's private state in how many batches some people were; no later batch admits them.

    Args:
        catalog: the catalog of the stream.
        directory: the stream directory.
        people: keys of its privacy unit, as SQL writes them.

    Returns:
        How many of them it knew: none where a release does not limit the batches of a person.

    Raises:
        OperationalError: there is no private state here.

    **Privacy**: private; a segment that comes shows no more than if they had been in all their batches.
    """
    private = private_state(catalog, directory.absolute())
    if not private.exists():
        raise OperationalError(f"there is no private state {private}", hint="name the stream's own catalog")
    with stream_lock(private):
        with closing(open_state(private)) as state:
            seal_state(private, closed=False)
            with state.transaction():
                known_people = state.forget_people(people)
        seal_state(private, closed=True)
    return known_people


def _planned(catalog: Catalog, make_axis: AxisMaker, number: int, directory: Path) -> StreamPlan:
    """The plan, with the strategies that the stream was made with, if it has been made."""
    try:
        strategies = json.loads((directory / PROMISE).read_text(encoding="utf-8"))["strategies"]
    except FileNotFoundError:
        plan = plan_stream(catalog, make_axis, number)
        plan.statistics()  # refuses budgets that are too small, before anything is charged
        return plan
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{directory / PROMISE} is damaged", hint="restore it from a backup") from error
    restored = thawed(catalog, make_axis, number, strategies)
    check_leaves(restored, strategies)
    return restored


def private_state(catalog: Catalog, directory: Path) -> Path:
    """Path of a stream's private state: beside the ledger, named after release and lineage."""
    owner = hashlib.sha256(catalog.privacy.lineage.encode()).hexdigest()[:8]
    return ledger_path(catalog).absolute().parent / f"{directory.name}.{owner}.stream"


def _created(
    plan: StreamPlan,
    raw: RawSide,
    directory: Path,
    private: Path,
    chance: Chance,
    memory: LedgerMemory | None,
) -> Receipt:
    """Make the stream if there is none; charge its budget once; refuse sides that are not from one making.

    Raises:
        IntegrityError: the stream was charged with another private state, or its manifest is gone.
        PrivacyError and its kin: the ledger refuses.
    """
    if private.resolve().is_relative_to(directory.resolve()):
        raise OperationalError(
            "the private state must not lie inside the release", hint="move the ledger or the release"
        )
    with stream_lock(private):
        if not private.exists():
            if (directory / MANIFEST).exists():
                raise IntegrityError(
                    f"the private state {private} of this stream is gone", hint="restore its newest copy"
                )
            settings = {"release_id": new_release_id(), "spec": plan.spec().text()}
            create_state(private, settings, chance.entropy(32))
        with closing(open_state(private)) as state:
            release_id, started = state.setting("release_id").decode(), state.next_batch() > 0
        if started and not (directory / MANIFEST).exists():
            raise _absent(plan.catalog, directory, release_id)
        with machine(f"{directory} cannot be made", UNCHARGED):
            directory.mkdir(parents=True, exist_ok=True)
        receipt = _charged(plan, raw, directory, release_id, chance.noise, memory)
        if receipt.release_id != release_id:
            raise IntegrityError(
                f"{directory.name} was charged with another private state than {private}",
                hint="restore the newest copy of the old one; nothing was drawn",
            )
        if not (directory / MANIFEST).exists():
            with machine("the stream is not in place yet", CHARGED):
                create_directory(directory, release_id, PROMISE)
    return receipt


def _absent(catalog: Catalog, directory: Path, release_id: str) -> IntegrityError:
    """Reason why batches cannot be appended here: the stream of this name lies elsewhere, or its manifest is
    gone."""
    entries = ledger_entries(ledger_path(catalog))
    place = next((Path(e.target).parent for e in entries if e.release_id == release_id), directory)
    if place == directory:
        return IntegrityError(f"the manifest of {directory} is gone", hint="restore the directory")
    return IntegrityError(
        f"the stream {directory.name!r} was made in {place}",
        hint="name that directory; if it was moved here, its manifest is missing",
    )


def _charged(
    plan: StreamPlan,
    raw: RawSide,
    directory: Path,
    release_id: str,
    noise: Noise,
    memory: LedgerMemory | None,
) -> Receipt:
    """Charge the whole budget once, with a public file that says what for."""
    catalog, privacy = plan.catalog, plan.catalog.privacy
    spend = release_spend(catalog, plan.batch, raw, plan.unit)
    promise = {
        "release_id": release_id, "catalog": json.loads(catalog.to_json()), "spec_hash": spec_hash(catalog),
        "unit": plan.unit, "neighbours": privacy.neighbours, "insecure_entropy": noise.insecure,
        "spends": [[line.purpose, str(line.amount), line.currency] for line in spend.lines],
        "strategies": frozen(plan),
    }  # fmt: skip

    def build(draft: Draft) -> None:
        draft.file.write_text(json.dumps(promise) + "\n", encoding="utf-8")

    order = Order(
        Label(privacy.lineage, directory.name, spec_hash(catalog)), directory / PROMISE, release_id, build,
        partial(source_digests, raw, plan.catalog, spend.tables),
        public=tuple(releases_beside(directory, privacy.lineage)), memory=memory, draws=False,
    )  # fmt: skip
    return publish_file(ledger_path(catalog), spend, order)
