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
may still be in a batch, and what is aggregated then is integers only. Nothing here knows a catalog: `StreamSpec` is
what is fixed when the stream is made, `Batch` what arrives, `StreamNoise` where its noise comes from. Recovery
(`OpenStream.settle`) sends stored values again, never draws, and refuses two sides that do not fit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from dpsql.errors import BatchOrderError, IntegrityError, InternalError
from dpsql.ledger.files import beside, held, remove_aside
from dpsql.matrices.strategy import AxisBudget
from dpsql.mechanisms.continual.time_tree import Emission, NodeRead, TimeStrategy
from dpsql.mechanisms.designs.question import shared_law
from dpsql.mechanisms.distribution import Laplace, NoiseDistribution, again, shaped, signed_sum, with_stored
from dpsql.noise import Noise
from dpsql.streams.public import (
    NoisyNode,
    Segment,
    StreamManifest,
    check_segment,
    grow,
    read_head,
    read_segments,
    write_manifest,
    write_segment,
)
from dpsql.streams.state import StreamState, open_state, seal_state
from dpsql.tree import BoolArray, Exact, IntArray, Noisy

Group: TypeAlias = tuple[int, ...]
"""Positions of statistics whose noise is one draw."""


class StreamStatistic(NamedTuple):
    """One statistic of the stream and its budget.

    A noise node is a view of the other axes that spends its share, so all that depends on the noise is its law's.

    Attributes:
        law: its noise.
        axes: budgets of the other axes' rows.
        spend: what a unit's rows of one batch may cost, in the law's currency: the whole over the strategy's price.
        sensitivity: the most that a unit's rows of one batch change a sum of |cells| by, in stored units.
    """

    law: NoiseDistribution
    axes: tuple[AxisBudget, ...]
    spend: Fraction
    sensitivity: int

    @property
    def cells(self) -> int:
        """Rows of the other axes' strategies, flat (1 where time is the only axis)."""
        return prod(axis.budget.size for axis in self.axes)

    def budgets(self, share: Fraction) -> IntArray:
        """Integer budget of every cell for one noise node (int64[cells]).

        Raises:
            PrivacyError: one is too small.
        """
        return self.law.budgets(self.axes, self.spend * share, self.sensitivity).reshape(-1)

    def variance_at_unit_budget(self, share: Fraction) -> float:
        """Noise variance that a cell of all budgets would have if a node of this share were to spend all."""
        node_variance = self.law.variance_at_unit_budget(self.axes, self.spend * share, self.sensitivity)
        return float(node_variance * float(share) ** (2 / self.law.norm))

    def noised(self, exact: Exact, share: Fraction, noise: Noise) -> Noisy:
        """Exact sums (int64[cells]) with the noise of one node.

        **Privacy**: the share of the spend.
        """
        cells = Exact(exact.reshape([axis.budget.size for axis in self.axes]))
        drawn = self.law.draw(cells, self.axes, self.spend * share, self.sensitivity, noise)
        return shaped(drawn.value, [-1])


@dataclass(frozen=True)
class StreamSpec:
    """Fixed part of a stream: strategy, cells of each statistic, lifetime cap.

    Attributes:
        grains: what exact sums of each statistic are multiplied by before noise is drawn; 1 where it does not say.
        together: statistics that share a draw.
    """

    strategy: TimeStrategy
    cells: tuple[int, ...]
    lifetime: int | None = None
    grains: tuple[int, ...] = ()
    together: tuple[Group, ...] = ()

    @property
    def groups(self) -> list[Group]:
        """Those of `together`, and every other statistic alone; in order of their first."""
        shared = {statistic for group in self.together for statistic in group}
        alone = [(statistic,) for statistic in range(len(self.cells)) if statistic not in shared]
        return sorted([*self.together, *alone])

    def text(self) -> str:
        """Canonical JSON; an append under another specification is refused."""
        time = {"kind": self.strategy.kind, "law": self.strategy.law.name, **self.strategy.frozen()}
        fixed = {
            "time": time, "cells": self.cells, "lifetime": self.lifetime, "grains": self.grains,
            "together": self.together,
        }  # fmt: skip
        return json.dumps(fixed, sort_keys=True)

    def refined(self, exact: Exact, statistic: int) -> Exact:
        """Exact sums as noise is drawn for them; modulo 2^64, as they may have wrapped before."""
        return Exact(exact * self.grains[statistic]) if self.grains else exact


def weighted_sum(terms: Iterable[tuple[int, IntArray]], cells: int) -> IntArray:
    """The sum of int64 values times whole weights, modulo 2^64.

    Args:
        terms: weight and values of each term, int64[cells].
        cells: how many sums.

    **Privacy**: what is published is the sum plus noise modulo 2^64, a function of the noisy whole number, however far
    either lies outside of 64 bits. Cutting what has wrapped before would tear two neighbours apart.

    >>> weighted_sum([(1 << 30, np.array([1, 1 << 40])), (-1, np.array([5, 0]))], 2).tolist() == [(1 << 30) - 5, 0]
    True
    """
    total = np.zeros(cells, dtype=np.int64)
    for weight, values in terms:
        total += weight * values
    return total


@dataclass(frozen=True)
class Batch:
    """One batch, aggregated.

    Attributes:
        number: 0-based, without gaps; an empty day is a batch of zeros.
        content: bytes that identify its raw rows; stored as an HMAC only.
        increments: per statistic, int64[cells]: exact sums over the batch's rows.
        people: the privacy units in it, if the release has a lifetime cap.
        left_out: rows left out per rule (late, over the cap, unknown key); for the curator only.
        types: the column types of its rows; the first batch's hold for all.
    """

    number: int
    content: bytes
    increments: tuple[Exact, ...]
    people: tuple[str, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)
    types: str = ""


class StreamNoise:
    """The draws of a stream: a node spends its share of the statistic's spend, all batches together the whole.

    Args:
        statistics: of the stream.
        noise: where noise comes from.
    """

    def __init__(self, statistics: Sequence[StreamStatistic], noise: Noise) -> None:
        self.statistics, self.noise = statistics, noise

    def node(self, group: Group, read: NodeRead, exacts: Sequence[Exact]) -> list[Noisy]:
        """Exact sums of statistics that share a draw (int64[cells] each), with the noise of one node.

        **Privacy**: the share of the spend, for all statistics of the group together.
        """
        first = self.statistics[group[0]]
        if len(group) == 1:
            return [first.noised(exacts[0], read.share, self.noise)]
        shape = [axis.budget.size for axis in first.axes]
        cells = [Exact(exact.reshape(shape)) for exact in exacts]
        views = self._law(group).draw_together(
            cells, first.axes, first.spend * read.share, self._sensitivities(group), self.noise
        )
        return [shaped(view.value, [-1]) for view in views]

    def ahead(self, group: Group, time: AxisBudget) -> list[IntArray]:
        """Noise of all batches for statistics that share a draw, int64[batches, cells] each.

        **Privacy**: the spend, once added to what batches hold; it is given nothing exact.
        """
        first = self.statistics[group[0]]
        axes = (time, *first.axes)
        zeros = Exact(np.zeros([axis.budget.size for axis in axes], np.int64))
        views = self._law(group).draw_together(
            [zeros] * len(group), axes, first.spend, self._sensitivities(group), self.noise
        )
        return [view.value.reshape(time.budget.size, -1) for view in views]

    def stored(
        self, group: Group, time: AxisBudget, exacts: Sequence[Exact], drawn: Sequence[IntArray]
    ) -> list[Noisy]:
        """The exact sums of one batch (int64[cells] each), with what `ahead` gave for it.

        **Privacy**: all batches of a unit together the spend, as `ahead` says.
        """
        first = self.statistics[group[0]]
        leaf = self._law(group).leaf_noise((time, *first.axes), first.spend, self._sensitivities(group))
        return with_stored(leaf, exacts, drawn, self.noise)

    def _law(self, group: Group) -> Laplace:
        return shared_law([(self.statistics[s].law, self.statistics[s].spend) for s in group])

    def _sensitivities(self, group: Group) -> list[int]:
        return [self.statistics[s].sensitivity for s in group]


KillPoint: TypeAlias = Callable[[str], None]
Present: TypeAlias = Callable[[Path, StreamManifest], StreamManifest]
"""Writes the release file of a state that is about to be public, from public numbers; names it in the manifest."""


def no_kill(step: str) -> None:
    """Go on."""


def _check_sent(directory: Path, segment: Segment, stored: Sequence[NoisyNode]) -> None:
    """Refuse to mark a public segment whose values are not the stored ones: the state is a copy that diverged.

    Raises:
        IntegrityError: they differ.
    """
    values = read_segments(directory, StreamManifest("", (segment,)))["value"]
    wanted = np.concatenate([node.values for node in stored])
    if not np.array_equal(values, wanted):
        raise IntegrityError(
            f"batch {segment.batch} is public with other values than the private state decided",
            hint="bring back the state that published it; nothing was drawn",
        )


@contextmanager
def opened_stream(
    directory: Path,
    private: Path,
    spec: StreamSpec,
    *,
    kill_point: KillPoint = no_kill,
    present: Present = lambda directory, manifest: manifest,
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
        remove_aside(private)
        state, settled = open_state(private), False
        try:
            if state.setting("spec") != spec.text().encode():
                raise IntegrityError(
                    "this stream was made with another specification", hint="make a new release"
                )
            seal_state(private, closed=False)
            stream = OpenStream(directory, state, spec, kill_point, present)
            stream.settle()
            settled = True
            kill_point("recovered")
            yield stream
        finally:
            state.close()
            if settled:
                seal_state(private, closed=True)


class OpenStream:
    """A stream whose lock is held. `manifest` is what is public now, as stored: pages are not read."""

    def __init__(
        self, directory: Path, state: StreamState, spec: StreamSpec, kill_point: KillPoint, present: Present
    ) -> None:
        self.directory, self.state, self.spec = directory, state, spec
        self.kill_point, self.present = kill_point, present
        self.manifest = read_head(directory)

    def settle(self) -> None:
        """Compare the two sides, finish what a crash left behind from stored values, refuse anything else.

        Raises:
            IntegrityError: the public side is ahead of the private one, behind it, or holds other segments.
        """
        state, manifest, public = self.state, self.manifest, self.manifest.segments
        if manifest.release_id.encode() != state.setting("release_id"):
            raise IntegrityError(
                "the private state belongs to another release", hint="name the one made with it"
            )
        if manifest.batches > state.next_batch():
            raise IntegrityError(
                f"{manifest.batches} batches are public but the private state knows {state.next_batch()}",
                hint="an old copy was restored: bring back the newest one; nothing was drawn",
            )
        decided = state.segments(manifest.first)
        marked = [segment for segment in decided if segment is not None]
        if marked != [segment.sha256 for segment in public[: len(marked)]]:
            raise IntegrityError(
                "published batches are missing or are not the ones that were decided",
                hint="restore the release directory from a backup; nothing was drawn",
            )
        if public:
            check_segment(self.directory, public[-1])
        for place in range(len(marked), len(decided)):
            number = manifest.first + place
            if place < len(public):
                _check_sent(self.directory, public[place], state.outbox(number))
                state.mark(number, public[place].sha256)
            else:
                self._send(number)

    def _send(self, batch: int) -> None:
        """Send a decided batch out of the outbox, name it in the manifest with the new state, mark it."""
        directory, manifest = self.directory, self.manifest
        segment = write_segment(directory, batch, self.state.outbox(batch))
        self.kill_point("segment")
        grown = self.present(directory, grow(directory, manifest, segment))
        self.kill_point("state")
        write_manifest(directory, grown)
        for dropped in set(manifest.states) - set(grown.states):
            (directory / dropped.file).unlink(missing_ok=True)
        self.kill_point("manifest")
        self.state.mark(batch, segment.sha256)
        self.kill_point("marked")
        self.manifest = grown

    def known(self, number: int) -> bool:
        """Is the batch published already? See `StreamState.known`; also refuses batches past the horizon."""
        published, horizon = self.state.known(number), self.spec.strategy.horizon
        if not published and horizon is not None and number >= horizon:
            raise BatchOrderError(
                f"batch {number} is past the {horizon} batches planned for",
                hint="start a new release for the rows after them",
            )
        return published

    def admitted(self, people: Sequence[str]) -> BoolArray:
        """People who may still be in a batch; all of them where there is no lifetime cap."""
        if self.spec.lifetime is None:
            return np.ones(len(people), dtype=np.bool_)
        return self.state.admitted(people, self.spec.lifetime)

    def append(self, batch: Batch, draw: StreamNoise) -> StreamManifest:
        """Publish one batch, exactly once.

        Args:
            batch: the aggregated batch; one that is published already is a no-op, whatever it holds.
            draw: the noise.

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
        self._send(batch.number)
        return self.manifest

    def decide(self, batch: Batch, draw: StreamNoise) -> None:
        """Inside a transaction: record, count, add up, draw, and put the noised values into the outbox."""
        state, length = self.state, batch.number + 1
        state.record(batch.number, batch.content, batch.left_out)
        if batch.number == 0:
            state.fix_types(batch.types)
        if self.spec.lifetime is not None:
            state.count_people(batch.people, self.spec.lifetime)
        for statistic, increment in enumerate(batch.increments):
            prior_sums = state.sums(batch.number, statistic, increment.size)
            state.keep_sums(length, statistic, prior_sums + increment)
        if batch.number == 0 and self.spec.strategy.ahead is not None:
            # the noise of every batch to come, each until its batch is decided
            for group in self.spec.groups:
                ahead = draw.ahead(group, self.spec.strategy.ahead)
                for statistic, batches in zip(group, ahead, strict=True):
                    for number, cells in enumerate(batches):
                        state.keep_noise(number, statistic, number + 2, cells)
        nodes = [node for group in self.spec.groups for node in self._nodes(group, batch.number, draw)]
        for node in sorted(nodes, key=lambda node: node.statistic):
            state.send(batch.number, node)
        state.forget_sums(self.spec.strategy.needed(length))
        state.forget_noise(length)

    def _nodes(self, group: Group, batch: int, draw: StreamNoise) -> Iterator[NoisyNode]:
        """Nodes that a batch publishes of statistics that share their draws."""
        for emission in self.spec.strategy.emissions(batch):
            values = [self.spec.refined(self._exact(emission, s, self.spec.cells[s]), s) for s in group]
            for read in emission.reads:  # another node's noise on top: what it is added to counts as exact
                noisy = self._noised(values, read, group, batch + 1, draw)
                values = [Exact(number) for number in noisy]
            for statistic, number in zip(group, noisy, strict=True):
                yield NoisyNode(statistic, emission.level, emission.lo, emission.hi, number)

    def _exact(self, emission: Emission, statistic: int, cells: int) -> Exact:
        """The exact (weighted) sum over an emission's batches, from the sums kept."""
        if emission.weights is None:
            newest = self.state.sums(emission.hi, statistic, cells)
            return Exact(newest - self.state.sums(emission.lo, statistic, cells))
        ends = range(emission.lo, emission.hi + 1)
        sums = (self.state.sums(position, statistic, cells) for position in ends)
        increments = (above - below for below, above in pairwise(sums))
        return Exact(weighted_sum(zip(emission.weights.tolist(), increments, strict=True), cells))

    def _noised(
        self, exacts: Sequence[Exact], read: NodeRead, group: Group, length: int, draw: StreamNoise
    ) -> list[Noisy]:
        """The sums with the node's noise: its draw is the one kept, or a fresh one, kept if it is read again.

        Raises:
            IntegrityError: it was drawn ahead and is gone.
        """
        stored = [self.state.drawn(read.node, statistic) for statistic in group]
        node_noise, time = [cells for cells in stored if cells is not None], self.spec.strategy.ahead
        if time is not None and len(node_noise) == len(group):
            return draw.stored(group, time, exacts, node_noise)
        if len(node_noise) == len(group):
            return [again(e, cells, read.sign) for e, cells in zip(exacts, node_noise, strict=True)]
        if time is not None:
            raise IntegrityError(
                f"{self.state.path} lacks the noise of batch {length - 1}",
                hint="make a new release: noise that was drawn ahead is never drawn again",
            )
        drawn = draw.node(group, read, [Exact(read.sign * exact) for exact in exacts])
        noisy = [signed_sum(number, read.sign) for number in drawn]
        if read.until > length + 1:
            for statistic, number, exact in zip(group, noisy, exacts, strict=True):
                self.state.keep_noise(read.node, statistic, read.until, read.sign * (number - exact))
        return noisy


@contextmanager
def stream_lock(private: Path) -> Iterator[None]:
    """Hold the stream's lock file beside the private state; a crash lets go of it.

    Raises:
        MachineFault: the file cannot be made, or whoever holds it did not let go in time.
    """
    with held(beside(private, ".lock")):
        yield
