"""The present state of a stream as an ordinary release file, made of public numbers alone.

Every statistic's noisy numbers are an array: time nodes in the order of publication, then the rows of the other axes'
strategies. Estimates are best along the other axes inside each time node, then along time; statistics of one family
are reconciled as in any release. So readers need nothing but the file.

The last `KEPT` states stay as files, for readers that ask `as of` a batch.

**Privacy**: post-processing of published numbers, which comes after the decision and may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from dpsql.axis import table_sql
from dpsql.ledger.files import file_hash, holds, sync
from dpsql.mechanisms.axis.strategy import estimate, row_count
from dpsql.mechanisms.central.reconcile import Measured
from dpsql.mechanisms.laminar import FloatArray
from dpsql.mechanisms.stream.axis import batch_estimates, batch_variance
from dpsql.mechanisms.stream.schedule import emissions
from dpsql.noise import laplace_variance
from dpsql.publishing.content import LOOKUP_ARITY, reconciled_nodes
from dpsql.publishing.describe import Components, release_meta
from dpsql.publishing.planned import ReleasePlan
from dpsql.publishing.stream_calendar import batch_bounds
from dpsql.publishing.stream_manifest import PUBLIC_FILE, Manifest
from dpsql.publishing.stream_plan import StreamPlan, column_norm
from dpsql.publishing.stream_segments import read_segments
from dpsql.publishing.stream_spec import IntArray, StreamStatistic
from dpsql.release import open_release
from dpsql.release.stream import State
from dpsql.release.write import ARRAYS, AxisContent, ReleaseContent, StatisticContent, write_release
from dpsql.tree import Tree, kary_tree
from dpsql.variance import AxisVariance
from dpsql.variance.kronecker import AxisSplit

STATES = "states"
KEPT = 16
"""States kept as files, the newest included."""
BLOCK = 1 << 14
"""Block size of their files: the tables are small, and there is a file a batch."""


@dataclass(frozen=True)
class Presenter:
    """Writes the state that a manifest stands for; `opened_stream` calls it before it replaces the manifest.

    Args:
        plan: the stream.
        connection: any connection; types of derived axis columns are asked of it.
        insecure: whether the noise came from test entropy.
    """

    plan: StreamPlan
    connection: duckdb.DuckDBPyConnection
    insecure: bool

    def __call__(self, directory: Path, manifest: Manifest) -> Manifest:
        """Write the release file of a manifest's newest batch; the manifest that names it.

        Args:
            directory: the stream directory.
            manifest: with the new segment, not yet public.
        """
        folder = directory / STATES
        folder.mkdir(exist_ok=True)
        for left in folder.iterdir():  # of an append that did not finish
            if f"{STATES}/{left.name}" not in {state.file for state in manifest.states}:
                left.unlink()
        published = _published(directory, manifest, self.plan)
        content = state_content(self.plan, self.connection, manifest, published, self.insecure)
        name = f"{STATES}/{manifest.as_of_batch:09d}.duckdb"
        fresh = directory / (name + ".new")
        write_release(fresh, content, block_size=BLOCK)
        fresh.chmod(PUBLIC_FILE)
        sync(fresh)
        state = State(name, file_hash(fresh), manifest.as_of_batch, content.meta["stream"]["as_of"])
        fresh.replace(directory / name)
        sync(folder)
        return replace(manifest, states=(*manifest.states, state)[-KEPT:])


def _published(directory: Path, manifest: Manifest, plan: StreamPlan) -> list[IntArray]:
    """The noisy numbers of every statistic: int64[time nodes, cells]. From the last state, if it is there."""
    cells = plan.spec().cells
    last = manifest.states[-1] if manifest.states else None
    if (
        last is None
        or last.batch != manifest.as_of_batch - 1
        or not holds(directory / last.file, last.sha256)
    ):
        return published_numbers(read_segments(directory, manifest), plan)
    newest = read_segments(directory, Manifest("", manifest.segments[-1:]))
    before = open_release(directory / last.file, insecure=True)  # as readers of this process may have it open
    query = "SELECT value FROM measurement_{} ORDER BY rowid"
    earlier = [before.connection.execute(query.format(s)).fetchnumpy()["value"] for s in range(len(cells))]
    before.close()
    return [
        np.concatenate([np.asarray(earlier[s], dtype=np.int64).reshape(-1, size), _of(newest, s, size)])
        for s, size in enumerate(cells)
    ]


def published_numbers(columns: dict[str, IntArray], plan: StreamPlan) -> list[IntArray]:
    """The columns of all segments as one array for each statistic: int64[time nodes, cells]."""
    return [_of(columns, s, size) for s, size in enumerate(plan.spec().cells)]


def _of(columns: dict[str, IntArray], statistic: int, cells: int) -> IntArray:
    own: IntArray = columns["value"][columns["statistic"] == statistic]
    return own.reshape(-1, cells)


@dataclass(frozen=True)
class StateEstimates:
    """What follows from the published numbers: the plan, and per axis a model and a tree, per statistic node sums in
    units of 2^-20 and the variance factors of its parts.
    """

    plan: ReleasePlan
    models: list[AxisVariance]
    trees: list[Tree]
    nodes: list[IntArray]
    components: list[Components]


def state_estimates(stream: StreamPlan, batches: int, published: Sequence[IntArray]) -> StateEstimates:
    """Best estimates of the present state.

    Args:
        stream: the stream.
        batches: how many are public.
        published: the noisy numbers of each statistic, int64[time nodes, cells].
    """
    plan, statistics = stream.whole(batches), stream.statistics()
    models = [
        batch_variance(stream.strategy, stream.currency, batches),
        *(planned.strategy.variance() for planned in plan.axes[1:]),
    ]
    trees = [kary_tree(planned.axis.leaves, LOOKUP_ARITY) for planned in plan.axes]
    measured = [
        Measured(s.axes, _leaves(stream, plan, i, published[i]), unit_variance(stream, statistics[i]))
        for i, s in enumerate(plan.statistics)
    ]
    nodes, components = reconciled_nodes(plan, measured, [AxisSplit(model) for model in models], trees)
    return StateEstimates(plan, models, trees, nodes, components)


def state_content(
    stream: StreamPlan,
    connection: duckdb.DuckDBPyConnection,
    manifest: Manifest,
    published: Sequence[IntArray],
    insecure: bool,
) -> ReleaseContent:
    """All that the release file of a state holds.

    Args:
        stream: the stream.
        connection: any connection; types of derived axis columns are asked of it.
        manifest: says how many batches there are.
        published: the noisy numbers of each statistic, int64[time nodes, cells].
        insecure: whether the noise came from test entropy.
    """
    batches = manifest.batches
    made = state_estimates(stream, batches, published)
    plan, statistics = made.plan, stream.statistics()
    meta = release_meta(
        plan, connection, manifest.release_id, made.models, made.components, insecure=insecure
    )
    meta["privacy"]["unit"] = stream.unit
    for entry in meta["statistics"]:
        entry["nonnegative"] = (
            False  # a projection of all cells at every append would cost more than the append
        )
    meta["stream"] = _stream_meta(stream, batches)
    axes = [
        AxisContent(planned.axis.arrays(), table_sql(planned.axis, ARRAYS), tree)
        for planned, tree in zip(plan.axes, made.trees, strict=True)
    ]
    contents = [
        StatisticContent(
            _shaped(plan, i, published[i]), _budgets(stream, plan, i, statistic, batches), made.nodes[i]
        )
        for i, statistic in enumerate(statistics)
    ]
    return ReleaseContent(meta, axes, made.models, contents)


def _stream_meta(stream: StreamPlan, batches: int) -> dict[str, Any]:
    """What a release says about its stream; `as_of` is the beginning of its newest batch."""
    start = batch_bounds(batches - 1, stream.origin, stream.stream.grain)[0]
    label = start.date().isoformat() if stream.stream.grain != "hour" else start.isoformat(timespec="minutes")
    return {
        "as_of_batch": batches - 1, "as_of": label, "column": stream.stream.column, "grain": stream.stream.grain,
        "strategy": stream.batch.axes[0].choice.name, "late": stream.stream.late,
        "rows_per_batch": stream.batch.statistics[0].tau, "max_batches": stream.lifetime,
    }  # fmt: skip


def _shaped(plan: ReleasePlan, index: int, values: IntArray) -> IntArray:
    """Numbers of a statistic with one dimension for each axis, time first."""
    rows = [row_count(strategy) for strategy in plan.strategies(plan.statistics[index])[1:]]
    return values.reshape(-1, *rows)


def _leaves(stream: StreamPlan, plan: ReleasePlan, index: int, values: IntArray) -> FloatArray:
    """Best linear unbiased estimates of the leaf combinations: float64[batches, n_1, ..]."""
    rows: FloatArray = _shaped(plan, index, values).astype(np.float64)
    for axis, strategy in enumerate(plan.strategies(plan.statistics[index])[1:], start=1):
        rows = estimate(strategy, rows, axis)
    batches = plan.axes[0].axis.leaves
    return batch_estimates(stream.strategy, stream.currency, batches, rows)


def _budgets(
    stream: StreamPlan, plan: ReleasePlan, index: int, statistic: StreamStatistic, batches: int
) -> IntArray:
    """Budget of each published number: its units of epsilon, or of zCDP's standard deviation; 0 where it holds
    several noise nodes, whose budgets the schedule tells."""
    known: dict[tuple[int, int], IntArray] = {}
    rows = []
    for batch in range(batches):
        for emission in emissions(stream.strategy, stream.currency, batch):
            read = emission.reads[0]
            alone = read.budget * (len(emission.reads) == 1), read.total
            if alone not in known:
                known[alone] = _units(stream, statistic, alone)
            rows.append(known[alone])
    return _shaped(plan, index, np.array(rows, dtype=np.int64))


def _units(stream: StreamPlan, statistic: StreamStatistic, time: tuple[int, int]) -> IntArray:
    """Units of every cell at one time budget."""
    if time[0] == 0:
        return np.zeros(statistic.cells, dtype=np.int64)
    if stream.currency == "zcdp":
        return statistic.budget
    read = stream.reads()[0]._replace(budget=time[0], total=time[1])
    return statistic.units(read)


def unit_variance(stream: StreamPlan, statistic: StreamStatistic) -> float:
    """Variance of a number that would spend the statistic's whole budget, for `batch_variance` to multiply.

    Discrete noise and floored budgets cost two small factors: the floors' on average by precision, the discreteness'
    at its largest, so errors are never understated by it.
    """
    if statistic.sigma2 is not None:
        return float(statistic.sigma2 / Fraction(column_norm(stream.strategy)))
    scale = float(statistic.denominator)
    floors, weights, discrete = 0.0, 0.0, 0.0
    for read in stream.reads():
        real = statistic.units(read)
        ideal = np.array(statistic.cap * read.budget / read.total)
        for budget, total in ((statistic.budget, statistic.total), *statistic.further):
            ideal = np.multiply.outer(ideal, budget / total)
        square = np.broadcast_to(ideal.reshape(-1) ** 2, real.shape)
        floors += float((square**2 / real.astype(np.float64) ** 2).sum())
        weights += float(square.sum())
        ratio = (
            laplace_variance(real, statistic.denominator) * real.astype(np.float64) ** 2 / (2.0 * scale**2)
        )
        discrete = max(discrete, float(np.max(ratio)))
    return 2.0 * (scale / statistic.cap) ** 2 * floors / weights * discrete
