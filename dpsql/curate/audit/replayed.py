"""Statistics whose noisy numbers chose what was measured next, made again from the integers in the file.

What was chosen is no secret: it follows from integers that the release holds. So an audit chooses again, and compares
budgets, estimates, variance models and meta with the file's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from dpsql.curate.audit.contents import differences, near, read_table, same
from dpsql.curate.audit.replan import Replanned
from dpsql.curate.audit.report import Check
from dpsql.mechanisms.family.measurement import DrawReplay
from dpsql.mechanisms.law import NoisyRows, published
from dpsql.publishing.bounding import DrawnRelease
from dpsql.publishing.content import release_content
from dpsql.publishing.planned import PlannedStatistic
from dpsql.release import Release
from dpsql.release.format import to_json
from dpsql.release.write import StatisticPart
from dpsql.variance.model import Columns


def replays(made: Replanned) -> dict[int, DrawReplay]:
    """What makes statistics again that are no fixed rows over cells, by index."""
    candidates = {i: s.measurement.replay for i, s in enumerate(made.plan.statistics) if s.sensitivity}
    return {i: replay for i, replay in candidates.items() if replay is not None}


def check_replayed(release: Release, made: Replanned) -> Iterator[Check]:
    """Budgets, estimates, models and meta of such statistics are what publishing makes of their integers."""
    indices = replays(made)
    if not indices:
        return
    views: dict[int, NoisyRows] = {}
    firsts: dict[str, int] = {}
    wrong: list[str] = []
    settled: list[PlannedStatistic] = []
    for index, replay in indices.items():
        statistic = made.plan.statistics[index]
        first = firsts.setdefault(statistic.view, index)
        terms = statistic.terms(made.plan.axes)._replace(beside=views.get(first))
        columns = read_table(release, f"measurement_{index}")
        views[index] = replay.restored(published(columns["value"]), terms)
        settled.append(replace(statistic, measurement=statistic.measurement.settled(views[index])))
        if not np.array_equal(columns["budget"], views[index].budget):
            wrong.append(f"measurement_{index}")
    yield Check("budgets follow from what noisy numbers chose", not wrong, ", ".join(wrong))
    drawn = DrawnRelease(replace(made.plan, statistics=tuple(settled)), tuple(views.values()))
    content = release_content(drawn, release.meta.release_id, insecure=release.meta.insecure_entropy)
    models = [model.columns() for model in content.models]
    wrong = [line for index, recomputed in zip(indices, content.statistics, strict=True)
             for line in _differences(release, index, recomputed, models)]  # fmt: skip
    yield Check("what noisy numbers chose follows from them", not wrong, ", ".join(wrong[:5]))


def _differences(
    release: Release, index: int, recomputed: StatisticPart, models: Sequence[Columns]
) -> Iterator[str]:
    """Where one statistic is not what its integers say."""
    columns, stored = read_table(release, f"node_combination_{index}"), release.statistics[index]
    pairs = [("estimate", recomputed.content.nodes), ("nonnegative", recomputed.content.nonnegative)]
    if any(values is not None and not near(columns.get(name), values.ravel()) for name, values in pairs):
        yield f"node_combination_{index}"
    if len(stored.models) != len(recomputed.meta.models):
        yield f"statistics.{index}.models"
    for k, recomputed_model in zip(stored.models, recomputed.meta.models, strict=False):
        if not same(read_table(release, f"variance_{k}"), models[recomputed_model]):
            yield f"variance_{k}"
    expected = to_json(replace(recomputed.meta, id=index, models=stored.models))
    yield from differences(to_json(stored), expected, f"statistics.{index}")
