"""Append one batch to a stream release: decided once, privately; published; marked. Never drawn twice.

    step        what is on disk                                      a crash after it
    checked     nothing new                                          nothing happened
    drawn       one private transaction is open                      rolled back: the batch is still the next
    committed   sums, counters, draws, noised values: the decision   recovery re-sends the stored values
    segment     the segment file, which no manifest names            written again from the stored values
    state       the release file of the new state, likewise          written again from public numbers
    manifest    the manifest names both: the batch is public         recovery marks it
    marked      the outbox is empty                                  done

Read `opened_stream`, then `OpenStream.append`. The caller picks rows between the two: `admitted` says who
may still be in a batch, and what is aggregated then is integers only.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpsql.errors import BatchOrderError, IntegrityError, InternalError, OperationalError
from dpsql.ledger.files import PRIVATE_FILE
from dpsql.mechanisms.stream.schedule import Emission, Read, emissions, open_starts
from dpsql.publishing.stream_manifest import Manifest, create_directory
from dpsql.publishing.stream_recover import KillPoint, Present, no_kill, no_state, send, settle
from dpsql.publishing.stream_segments import NoisyNode
from dpsql.publishing.stream_spec import Batch, Draw, IntArray, StreamSpec
from dpsql.publishing.stream_state import BoolArray, StreamState
from dpsql.publishing.stream_state_file import create_state, open_state


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
    create_state(private, {"release_id": release_id, "spec": spec.text()}, secret)
    create_directory(directory, release_id, base)


@contextmanager
def opened_stream(
    directory: Path,
    private: Path,
    spec: StreamSpec,
    *,
    kill_point: KillPoint = no_kill,
    present: Present = no_state,
) -> Iterator[OpenStream]:
    """The stream, locked and recovered; one appender at a time, among threads and processes.

    Args:
        directory: the release directory.
        private: the private state file.
        spec: what stays fixed.
        kill_point: told each step, for tests that kill there.
        present: writes the release file of each new state; by default there are segments alone.

    Raises:
        IntegrityError: the two sides do not fit together, for instance after an old private file was
            restored.
        OperationalError: a side is missing, or the state is open to others.
    """
    with stream_lock(private):
        kill_point("locked")
        state = open_state(private)
        try:
            if state.setting("spec") != spec.text().encode():
                raise IntegrityError(
                    "this stream was made with another specification", hint="make a new release"
                )
            manifest = settle(directory, state, kill_point, present)
            kill_point("recovered")
            yield OpenStream(directory, state, spec, manifest, kill_point, present)
        finally:
            state.close()


@dataclass
class OpenStream:
    """A stream whose lock is held. `manifest` is what is public now, as stored: pages are not read."""

    directory: Path
    state: StreamState
    spec: StreamSpec
    manifest: Manifest
    kill_point: KillPoint
    present: Present = no_state

    def known(self, number: int) -> bool:
        """Is the batch published already? See `StreamState.known`; also refuses batches past the horizon."""
        strategy = self.spec.strategy
        known = self.state.known(number)
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
            batch: the aggregated batch; one that is published already is a no-op, whatever it holds.
            draw: the noise, from `noise_for`.

        Returns:
            The manifest after the append.

        Raises:
            BatchOrderError: batches before it are missing, or it is past the horizon.
            InternalError: the increments do not fit the statistics.

        **Privacy**: noise is drawn inside the transaction that stores it, before anything is public. What
        the public side shows afterwards are the stored values, whatever crashes in between.
        """
        if self.known(batch.number):
            return self.manifest
        if tuple(x.shape for x in batch.increments) != tuple((cells,) for cells in self.spec.cells):
            raise InternalError(
                "the increments of a batch do not fit the statistics", hint="nothing was published"
            )
        self.kill_point("checked")
        with self.state.transaction():
            self.decide(batch, draw)
            self.kill_point("drawn")
        self.kill_point("committed")
        self.manifest = send(
            self.directory, self.state, self.manifest, batch.number, self.kill_point, self.present
        )
        return self.manifest

    def decide(self, batch: Batch, draw: Draw) -> None:
        """Inside a transaction: record, count, add up, draw, and put the noised values into the outbox."""
        state, length = self.state, batch.number + 1
        state.record(batch.number, batch.content, batch.left_out)
        if batch.number == 0:
            state.fix_types(batch.types)
        if self.spec.lifetime is not None:
            state.count_people(batch.people, self.spec.lifetime)
        for statistic, increment in enumerate(batch.increments):
            before = state.sums(batch.number, statistic, increment.size)
            state.keep_sums(length, statistic, before + increment)
            for emission in emissions(self.spec.strategy, self.spec.currency, batch.number):
                values = self._exact(emission, statistic, increment.size)
                for read in emission.reads:
                    values = self._noised(values, read, statistic, length, draw)
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

    def _noised(self, values: IntArray, read: Read, statistic: int, length: int, draw: Draw) -> IntArray:
        """The sums with the node's noise: its draw is the one kept, or a fresh one, kept if it is read again."""
        kept = self.state.drawn(read.node, statistic)
        if kept is not None:
            return values + read.sign * kept
        noised = read.sign * draw(statistic, read, read.sign * values)
        if read.until > length + 1:
            self.state.keep_noise(read.node, statistic, read.until, read.sign * (noised - values))
        return noised


@contextmanager
def stream_lock(private: Path) -> Iterator[None]:
    """Hold the stream's lock file beside the private state; a crash lets go of it.

    Raises:
        OperationalError: the file cannot be made.
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
