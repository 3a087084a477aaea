"""The present state of a stream as an ordinary release file, made of public numbers alone.

Every statistic's noisy numbers are an array: time nodes in the order of publication, then the rows of the other axes'
strategies. Estimates are best along the other axes inside each time node, then along time; statistics of one family
are reconciled as in any release. So readers need nothing but the file.

The last `KEPT` states stay as files, for readers that ask `as of` a batch.

**Privacy**: post-processing of published numbers, which comes after the decision and may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from dpsql.central.content import descriptions, lookup_trees, notes, planned_release, with_cuts
from dpsql.central.planned import ReleasePlan
from dpsql.errors import ReleaseError
from dpsql.ledger.files import file_hash, holds, sync
from dpsql.matrices.estimated import Estimated
from dpsql.matrices.strategy import estimate
from dpsql.mechanisms.designs.measurement import DrawnMember, estimated
from dpsql.mechanisms.designs.product import PRODUCT
from dpsql.mechanisms.distribution import NoisyView, joined, published, shaped
from dpsql.release import open_release
from dpsql.release.format import StreamMeta
from dpsql.release.signature import StreamSnapshot
from dpsql.release.write import ReleaseBuilder, Statistic, assemble
from dpsql.streams.append import StreamStatistic
from dpsql.streams.plan import StreamPlan, batch_bounds
from dpsql.streams.public import PUBLIC_FILE, StreamManifest, read_segments
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
