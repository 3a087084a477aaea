"""Append one batch to a stream release: decided once, privately; published; marked. Never drawn twice.

    step        what is on disk                                            a crash after it
    checked     nothing new                                                nothing happened
    drawn       one private transaction is open                            rolled back: the batch is still
    the next committed   sums, counters, draws and noised values = the decision     recovery re-sends the
    stored values segment     the segment file, which no manifest names                  written again from
    the stored values
    manifest    the manifest names it: the batch is public                 recovery marks it
    marked      the outbox is empty                                        done

Read `opened_stream`, then `OpenStream.append`. The caller picks rows between the two: `admitted` says who
may still be in a batch, and what is aggregated then is integers only.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.budget import combine
from dpsql.errors import BatchOrderError, IntegrityError, InternalError, OperationalError
from dpsql.ledger.files import PRIVATE_FILE
from dpsql.mechanisms.stream.choose import StreamStrategy
from dpsql.mechanisms.stream.laminar import Currency
from dpsql.mechanisms.stream.schedule import Emission, Read, emissions, open_starts
from dpsql.noise import Noise
from dpsql.publishing.stream_segments import (
    Manifest,
    NoisyNode,
    Segment,
    check_segment,
    create_directory,
    read_manifest,
    read_segments,
    write_manifest,
    write_segment,
)
from dpsql.publishing.stream_state import BoolArray, StreamState, create_state, open_state

IntArray = NDArray[np.int64]
KillPoint: TypeAlias = Callable[[str], None]
Draw: TypeAlias = Callable[[int, Read], IntArray]
"""Noise of one node for one statistic (its position): int64[cells]."""


class StreamStatistic(NamedTuple):
    """One statistic of the stream and its budget.

    Attributes:
        name: for messages.
        cells: rows of the other axes' strategy, flat (1 where time is the only axis).
        cap: what the statistic spends, in units of 1/denominator of epsilon (pure).
        denominator: t of rule N4, sensitivity included (pure).
        budget: int64[cells], relative budgets of the other axes' rows, and their largest path sum.
        total: largest path sum of `budget`.
        sigma2: Gaussian variance of a row at the whole time budget (zCDP), or None.
    """

    name: str
    cells: int
    cap: int = 0
    denominator: int = 1
    budget: IntArray = np.ones(1, np.int64)
    total: int = 1
    sigma2: Fraction | None = None


@dataclass(frozen=True)
class StreamSpec:
    """What is fixed when the release is made: strategy, currency, cells of each statistic, lifetime cap."""

    strategy: StreamStrategy
    currency: Currency
    cells: tuple[int, ...]
    lifetime: int | None = None

    def text(self) -> str:
        """Canonical JSON; an append under another specification is refused."""
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True)
class Batch:
    """One batch, aggregated.

    Attributes:
        number: 0-based, without gaps; an empty day is a batch of zeros.
        content: bytes that identify its raw rows; stored as an HMAC only.
        increments: per statistic, int64[cells]: exact sums over the batch's rows.
        people: the privacy units in it, if the release has a lifetime cap.
        left_out: rows left out per rule (late, over the cap, unknown key); for the curator only.
    """

    number: int
    content: bytes
    increments: tuple[IntArray, ...]
    people: tuple[str, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)


def no_kill(step: str) -> None:
    """Go on."""


def noise_for(statistics: Sequence[StreamStatistic], noise: Noise) -> Draw:
    """The draws of a stream: a node's units are the statistic's cap, split over time first, then over the
    other axes.

    **Privacy**: flooring at each step only lowers a budget, so the path sums of the product stay within the
    cap.
    """

    def draw(statistic: int, read: Read) -> IntArray:
        entry = statistics[statistic]
        if entry.sigma2 is not None:
            rows = np.empty(entry.cells, dtype=np.int64)
            for budget in np.unique(entry.budget):
                # budgets of Gaussian rows are parts of a standard deviation, time shares are parts of rho
                sigma2 = (
                    entry.sigma2 * Fraction(read.total, read.budget) * Fraction(entry.total, int(budget)) ** 2
                )
                same = np.broadcast_to(entry.budget == budget, (entry.cells,))
                rows[same] = noise.gaussian(sigma2, int(same.sum()))
            return rows
        time = np.array([read.budget], dtype=np.int64)
        units = combine(entry.cap, [(time, read.total), (entry.budget, entry.total)])[0]
        return noise.laplace(np.broadcast_to(units, (entry.cells,)), entry.denominator)

    return draw


def contribution(rows: int, batches: int) -> int:
    """Rows that one person can add to one running sum: c rows a batch, D batches in a lifetime.

    Pure noise scales with it; under zCDP rho scales with its square, since all rows may meet in one node.

    >>> contribution(3, 4), contribution(3, 4) ** 2
    (12, 144)
    """
    return rows * batches


def create_stream(
    directory: Path,
    private: Path,
    spec: StreamSpec,
    *,
    release_id: str,
    secret: bytes,
    base: str | None = None,
) -> None:
    """Make an empty stream release: the private state first, then the public directory.

    Args:
        directory: the release directory.
        private: the private state file, outside of the release directory.
        spec: what stays fixed.
        release_id: identity of the release; the whole budget is charged to it before, in the ledger.
        secret: 32 random bytes.
        base: name of a file already in the directory with catalog and axes, or None.

    Raises:
        OperationalError: one of the two exists already, or the state would lie inside the release.
    """
    if private.resolve().is_relative_to(directory.resolve()):
        raise OperationalError(
            "the private state must not lie inside the release", hint="choose another path for it"
        )
    state = create_state(private, {"release_id": release_id, "spec": spec.text()}, secret)
    state.close()
    create_directory(directory, release_id, base)


@contextmanager
def opened_stream(
    directory: Path, private: Path, spec: StreamSpec, *, kill_point: KillPoint = no_kill
) -> Iterator[OpenStream]:
    """The stream, locked and recovered; one appender at a time, among threads and processes.

    Raises:
        IntegrityError: the two sides do not fit together, for instance after an old private file was
            restored.
        OperationalError: a side is missing, or another append is running.
    """
    with _locked(private):
        kill_point("locked")
        state = open_state(private)
        try:
            if state.setting("spec") != spec.text().encode():
                raise IntegrityError(
                    "this stream was made with another specification", hint="make a new release"
                )
            manifest = _recover(directory, state, kill_point)
            kill_point("recovered")
            yield OpenStream(directory, state, spec, manifest, kill_point)
        finally:
            state.close()


@dataclass
class OpenStream:
    """A stream whose lock is held. `manifest` is what is public now."""

    directory: Path
    state: StreamState
    spec: StreamSpec
    manifest: Manifest
    kill_point: KillPoint

    def known(self, number: int, content: bytes) -> bool:
        """Is the batch published already? See `StreamState.known`; also refuses batches past the horizon."""
        strategy = self.spec.strategy
        known = self.state.known(number, content)
        if not known and number >= strategy.horizon and not strategy.unbounded:
            raise BatchOrderError(
                f"batch {number} is past the {strategy.horizon} batches planned for",
                hint="start a new release for the rows after them",
            )
        return known

    def admitted(self, people: Sequence[str]) -> BoolArray:
        """Which people may still be in a batch; all of them where there is no lifetime cap."""
        if self.spec.lifetime is None:
            return np.ones(len(people), dtype=np.bool_)
        return self.state.admitted(people, self.spec.lifetime)

    def append(self, batch: Batch, draw: Draw) -> Manifest:
        """Publish one batch, exactly once.

        Args:
            batch: the aggregated batch; one that is published already is a no-op.
            draw: the noise, from `noise_for`.

        Returns:
            The manifest after the append.

        Raises:
            BatchConflict: the batch was published with other rows.
            BatchOrderError: batches before it are missing, or it is past the horizon.
            InternalError: the increments do not fit the statistics.

        **Privacy**: noise is drawn inside the transaction that stores it, before anything is public. What
        the public side shows afterwards are the stored values, whatever crashes in between.
        """
        if self.known(batch.number, batch.content):
            return self.manifest
        if tuple(x.shape for x in batch.increments) != tuple((cells,) for cells in self.spec.cells):
            raise InternalError(
                "the increments of a batch do not fit the statistics", hint="nothing was published"
            )
        self.kill_point("checked")
        with self.state.transaction():
            self._decide(batch, draw)
            self.kill_point("drawn")
        self.kill_point("committed")
        self.manifest = _publish(self.directory, self.state, self.manifest, batch.number, self.kill_point)
        return self.manifest

    def _decide(self, batch: Batch, draw: Draw) -> None:
        """Inside the transaction: record, count, add up, draw, and put the noised values into the outbox."""
        state, length = self.state, batch.number + 1
        state.record(batch.number, batch.content, batch.left_out)
        if self.spec.lifetime is not None:
            state.count_people(batch.people, self.spec.lifetime)
        for statistic, increment in enumerate(batch.increments):
            before = state.sums(batch.number, statistic, increment.size)
            state.keep_sums(length, statistic, before + increment)
            for emission in emissions(self.spec.strategy, self.spec.currency, batch.number):
                values = self._exact(emission, statistic, increment.size)
                for read in emission.reads:
                    values = values + read.sign * self._noise(read, statistic, length, draw)
                state.send(
                    batch.number, NoisyNode(statistic, emission.level, emission.lo, emission.hi, values)
                )
        state.forget_sums(open_starts(self.spec.strategy, length))
        state.forget_noise(length)

    def _exact(self, emission: Emission, statistic: int, cells: int) -> IntArray:
        """The exact (weighted) sum over an emission's batches, from the sums kept."""
        if emission.weights is None:
            newest = self.state.sums(emission.hi, statistic, cells)
            return newest - self.state.sums(emission.lo, statistic, cells)
        value = np.zeros(cells, dtype=np.int64)
        below = self.state.sums(emission.lo, statistic, cells)
        for position, weight in enumerate(emission.weights, start=emission.lo + 1):
            above = self.state.sums(position, statistic, cells)
            value, below = value + weight * (above - below), above
        return value

    def _noise(self, read: Read, statistic: int, length: int, draw: Draw) -> IntArray:
        """The node's draw: the one kept, or a fresh one, kept if later batches read it again."""
        kept = self.state.drawn(read.node, statistic)
        if kept is not None:
            return kept
        fresh = draw(statistic, read)
        if read.until > length + 1:
            self.state.keep_noise(read.node, statistic, read.until, fresh)
        return fresh


def _publish(
    directory: Path, state: StreamState, manifest: Manifest, batch: int, kill_point: KillPoint
) -> Manifest:
    """Send a decided batch out of the outbox, name it in the manifest, mark it."""
    segment = write_segment(directory, batch, state.outbox(batch))
    kill_point("segment")
    grown = replace(manifest, segments=(*manifest.segments, segment))
    write_manifest(directory, grown)
    kill_point("manifest")
    state.mark(batch, segment.sha256)
    kill_point("marked")
    return grown


def _recover(directory: Path, state: StreamState, kill_point: KillPoint) -> Manifest:
    """Compare the two sides, finish what a crash left behind from stored values, refuse anything else.

    Raises:
        IntegrityError: the public side is ahead of the private one, behind it, or holds other segments.
    """
    manifest = read_manifest(directory)
    if manifest.release_id.encode() != state.setting("release_id"):
        raise IntegrityError("the private state belongs to another release", hint="name the one made with it")
    decided = state.batches()
    public = manifest.segments
    if len(public) > len(decided):
        raise IntegrityError(
            f"{len(public)} batches are public but the private state knows {len(decided)}",
            hint="an old copy was restored: bring back the newest one; nothing was drawn",
        )
    marked = [entry.segment for entry in decided if entry.segment is not None]
    if marked != [segment.sha256 for segment in public[: len(marked)]]:
        raise IntegrityError(
            "published batches are missing or are not the ones that were decided",
            hint="restore the release directory from a backup; nothing was drawn",
        )
    if public:
        check_segment(directory, public[-1])
    for entry in decided[len(marked) :]:
        if entry.number < len(public):
            _check_sent(directory, manifest, public[entry.number], state.outbox(entry.number))
            state.mark(entry.number, public[entry.number].sha256)
        else:
            manifest = _publish(directory, state, manifest, entry.number, kill_point)
    return manifest


def _check_sent(directory: Path, manifest: Manifest, segment: Segment, stored: Sequence[NoisyNode]) -> None:
    """Refuse to mark a public segment whose values are not the stored ones: the state is a copy that went
    its own way.

    Raises:
        IntegrityError: they differ.
    """
    found = read_segments(directory, replace(manifest, segments=(segment,)))["value"]
    wanted = np.concatenate([node.values for node in stored])
    if not np.array_equal(found, wanted):
        raise IntegrityError(
            f"batch {segment.batch} is public with other values than the private state decided",
            hint="bring back the state that published it; nothing was drawn",
        )


@contextmanager
def _locked(private: Path) -> Iterator[None]:
    """Hold the stream's lock file beside the private state; a crash lets go of it.

    Raises:
        OperationalError: another append is running, or the file cannot be made.
    """
    try:
        handle = os.open(private.with_name(private.name + ".lock"), os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    except OSError as error:
        raise OperationalError(f"the private state {private} cannot be locked ({error.strerror})") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
