"""The dry release: axes and variance models of a planned release, for the answering side to say standard errors.

It has no estimates, but of tables with `max_ids: auto` whose release was rehearsed on a made-up table: these are there
as they would be published, with estimates of the made-up rows.

**Privacy**: made of the catalog, of public tables and of public guesses. A dry release is marked as not private, so
nothing opens it by mistake.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dpsql.answer.answerer import Answerer
from dpsql.curate.bounds import none_beyond
from dpsql.curate.rehearsal import Rehearsal
from dpsql.curate.reported import foreseen
from dpsql.mechanisms.law import nothing_drawn
from dpsql.publishing.axes import AxisMaker
from dpsql.publishing.content import Components, planned_release, statistic_metas
from dpsql.publishing.plan import plan_release
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan
from dpsql.publishing.squares import with_squares
from dpsql.publishing.userlevel.guess import Guess
from dpsql.release import open_release
from dpsql.release.write import StatisticContent, StatisticPart
from dpsql.star import Catalog
from dpsql.streams.plan import whole_stream
from dpsql.variance import AxisVariance
from dpsql.variance.kronecker import AxisSplit
from dpsql.variance.reading import Together


@dataclass(frozen=True)
class Priced:
    """A plan with what decides its errors.

    Args:
        plan: the plan.
        models: the variance model of each axis.
        units: row variance of each statistic at full axis budgets.
    """

    plan: ReleasePlan
    models: list[AxisVariance]
    units: list[float]


def priced_plan(catalog: Catalog, make_axis: AxisMaker) -> Priced:
    """Plan a catalog; a stream is planned as it will be at its horizon.

    Args:
        catalog: a checked catalog.
        make_axis: builds an axis from public facts.
    """
    if catalog.stream is not None:
        return Priced(*whole_stream(catalog, make_axis))
    plan = with_squares(plan_release(catalog, make_axis), catalog)
    models = [planned.strategy.variance() for planned in plan.axes]
    return Priced(
        plan, models, [one_row(statistic).unit_variance(plan.axes) for statistic in plan.statistics]
    )


def write_dry_release(
    priced: Priced,
    path: Path,
    catalog: Catalog | None = None,
    guess: Guess | None = None,
    rehearsal: Rehearsal | None = None,
) -> None:
    """Write the planned release without estimates: axes and variance models alone.

    Args:
        priced: what would be measured.
        path: where; must not exist.
        catalog: as it was written, where that is not the plan's: with the values of reported columns.
        guess: of the people who report; nobody without one.
        rehearsal: of tables with `max_ids: auto`, on made-up rows.

    **Privacy**: nothing private was read to make it, and it is marked so that `connect` refuses it.
    """
    plan = priced.plan
    known = replace(plan, statistics=tuple(one_row(s) for s in plan.statistics))
    models: list[AxisVariance | Together] = list(priced.models)
    models += plan.joint.values()
    empty = [nothing_drawn(len(s.axes)) for s in plan.statistics]
    statistics = [
        StatisticPart(
            meta, StatisticContent(e, e, e, e if meta.nonnegative else None, e if meta.difference else None)
        )
        for meta, e in zip(statistic_metas(known, _components(priced)), empty, strict=True)
    ]
    builder = planned_release(known, "dry", models, statistics, insecure=True)
    builder = replace(builder, bounding=[*builder.bounding, *none_beyond(plan)])
    if rehearsal is not None:
        builder = rehearsal.put_into(builder)
    foreseen(builder, catalog or plan.catalog, plan, guess).write(path)


def _components(priced: Priced) -> list[Components]:
    """The variance factors that the parts of every statistic will have once views are reconciled."""
    totals = {i: AxisSplit(model).total for i, model in enumerate(priced.models)}
    statistics = priced.plan.statistics
    components: dict[int, Components] = {}
    for members in priced.plan.families:
        family = [(statistics[i].axes, priced.units[i]) for i in members]
        sigma2 = statistics[members[0]].measurement.components(family, totals)
        for i, (axes, _) in zip(members, family, strict=True):
            components[i] = {part: value for part, value in sigma2.items() if set(part) <= set(axes)}
    return [components[i] for i in range(len(statistics))]


def one_row(statistic: PlannedStatistic) -> PlannedStatistic:
    """The statistic as it stands; where publishing chooses tau, that of units with one row."""
    return statistic.bounded_to(statistic.tau or 1)


@contextmanager
def dry_answerer(
    priced: Priced,
    catalog: Catalog | None = None,
    guess: Guess | None = None,
    rehearsal: Rehearsal | None = None,
) -> Iterator[Answerer]:
    """An answerer of the planned release, which knows standard errors and no estimate but made-up ones.

    It is gone after the block.

    Args:
        priced, catalog, guess, rehearsal: as for `write_dry_release`.
    """
    with tempfile.TemporaryDirectory(prefix="dpsql-plan-") as folder:
        path = Path(folder) / "dry.dpsql"
        write_dry_release(priced, path, catalog, guess, rehearsal)
        release = open_release(path, insecure=True)
        try:
            yield Answerer(release)
        finally:
            release.close()
