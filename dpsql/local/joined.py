"""Joined reports of several services to a release: a product of scores a person, added up.

Scores of one report add up to 1, so a view's margins are the estimates of fewer axes; where everybody has one row the
total is the number of people. A person's rows stand in one service's report: the scores of a cell with the bit for how
many rows there are, times R, are those of rows weighted min(r, R) / r in the mean, whatever r and the values have to do
with each other. A measure's bit says both counts (both bits together) and values in half-ranges (bit 1 minus bit 0).

| here     | there                                             | unit |
|----------|---------------------------------------------------|------|
| `counts` | sum over people of s_1 x s_2 x .. x s_K           | rows / R |
| `signed` | the same with one service's bit 1 minus bit 0     | half-ranges / R |
| moments  | over people, of a box's products: their squares and the products of both | |
| strength | variance of a part of a view                      | rows^2 |

A box's squares are the unbiased estimate of its variance given the people, plus the squared truth. That is the count
where a product's truth is 0 or 1; of rows and measures, where it may lie between, nothing is taken away.

**Privacy**: post-processing of reports that were private before they left a service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dpsql.catalog import spec_hash
from dpsql.local.collector import CollectionManifest
from dpsql.local.content import local_estimate, survey_axes
from dpsql.local.estimate import model_of
from dpsql.local.mechanisms.blue import ShareEstimate
from dpsql.local.oracles.oracle import FloatArray
from dpsql.local.pseudonyms import LinkedReports, joined_people, spooled_reports
from dpsql.local.services import Positions, Sheet, penalty, strengths
from dpsql.local.survey import Survey
from dpsql.local.tallies import layout_of
from dpsql.matrices.kronecker import AxisSplit, ProductReading
from dpsql.matrices.leaves import PrefixVariance
from dpsql.progress import Progress
from dpsql.release.assemble import Description, Statistic, assemble
from dpsql.release.format import Promise, SpentAmount
from dpsql.release.reports import BitLeftOut, LocalMeta, ManifestMeta, SlotsLeftOut
from dpsql.release.write import ReleaseBuilder

CHUNK = 4_000_000
"""Numbers held at once while people are added up."""
BOXES = 100
CAUTION = 0.8
"""Which quantile, over random boxes, of exact variance by model is put on a view's strengths."""


@dataclass(frozen=True)
class RunningSums:
    """One view's running sums over people, of counts and of one measure.

    Args:
        held: the view's axes, increasing.
        measure: the measure's position; None for counts alone.
        boxes: random runs of leaves, per axis, shape (BOXES, leaves).
        counts, signed: sums of products, axes in the order of services.
        moments: over boxes, sums of counts, of their squares, of products of both, of signed squares: shape (4, BOXES).
    """

    held: Positions
    measure: int | None
    boxes: Mapping[int, FloatArray]
    counts: FloatArray
    signed: FloatArray
    moments: FloatArray


def empty_sums(survey: Survey, sheet: Sheet, held: Positions, measure: int | None) -> RunningSums:
    """Zeros, and boxes that follow from the plans."""
    rng = np.random.default_rng(int.from_bytes(b"".join(p.hash for p in sheet.plans.values()), "big"))
    order = [a for service_axes in sheet.asked(held, measure).values() for a in service_axes]
    shape = [survey.axes[a].leaves for a in order]
    boxes = {a: _halves(survey.axes[a].leaves, rng) for a in held}
    return RunningSums(held, measure, boxes, np.zeros(shape), np.zeros(shape), np.zeros((4, BOXES)))


def add_people(sheet: Sheet, sums: RunningSums, some: LinkedReports) -> None:
    """Add some people's products to a view's sums."""
    services = sheet.asked(sums.held, sums.measure)
    widest = max(sums.counts.size, *(plan.views[0].domain for plan in sheet.plans.values()))
    step = max(CHUNK // widest, 1)
    for first in range(0, some.people, step):
        size = min(step, some.people - first)
        counts = signed = np.ones((size, 1))
        inside = values = np.ones((size, BOXES))
        for name, service_axes in services.items():
            covered = _covered([sums.boxes[a] for a in service_axes]).T
            rows, bits = _cell_scores(sheet, some, name, first, first + size, service_axes)
            signed_scores = bits if sheet.tells(name, sums.measure) else rows
            counts, signed = _outer(counts, rows), _outer(signed, signed_scores)
            inside, values = inside * (rows @ covered), values * (signed_scores @ covered)
        sums.counts[...] += counts.sum(axis=0).reshape(sums.counts.shape)
        sums.signed[...] += signed.sum(axis=0).reshape(sums.signed.shape)
        products = (inside, inside**2, inside * values, values**2)
        sums.moments[...] += np.array([product.sum(axis=0) for product in products])


def _cell_scores(
    sheet: Sheet, cohort: LinkedReports, name: str, first: int, last: int, service_axes: Positions
) -> tuple[FloatArray, FloatArray]:
    """One service's scores over the cells of some of its axes: of rows, and of bit 1 minus bit 0, (people, cells)."""
    plan = sheet.plans[name]
    scores, layout = cohort.heard[name].scores(first, last), layout_of(plan.views[0])
    rows = scores[:, layout.rows]
    bits = np.zeros_like(rows) if layout.bits is None else scores[:, layout.bits]
    dropped = tuple(i + 1 for i, a in enumerate(sheet.axes[name]) if a not in service_axes)
    shape = [len(scores), *(axis.leaves for axis in plan.axes)]

    def cells(items: FloatArray) -> FloatArray:
        return np.asarray(items.reshape(shape).sum(axis=dropped).reshape(len(scores), -1))

    return cells(rows + bits), cells(bits - rows)


def _halves(leaves: int, rng: np.random.Generator) -> FloatArray:
    """Random runs of leaves, from one leaf to all but one, shape (BOXES, leaves)."""
    low = rng.integers(0, leaves, BOXES)
    length = rng.integers(1, max(leaves, 2), BOXES)
    at = (np.arange(leaves)[None, :] - low[:, None]) % leaves
    return np.asarray(at < length[:, None], dtype=np.float64)


def _covered(masks: Sequence[FloatArray]) -> FloatArray:
    """Cells of several axes inside each box, shape (BOXES, cells)."""
    cells = np.ones((BOXES, 1))
    for mask in masks:
        cells = _outer(cells, mask)
    return cells


def _outer(left: FloatArray, right: FloatArray) -> FloatArray:
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)


@dataclass(frozen=True)
class JoinedTable:
    """One statistic of a view: rows, or a measure's values around `mid`, in the view's order of axes, and strengths."""

    axes: Positions
    values: FloatArray
    strengths: Mapping[Positions, float]
    mid: int = 0


def count_table(survey: Survey, sheet: Sheet, sums: RunningSums, people: int) -> JoinedTable:
    """Unbiased rows of a view, and strengths that hold for `CAUTION` of random boxes at least.

    Args:
        survey: the catalog's questions.
        sheet: the collection.
        sums: of the view.
        people: whose reports were joined.
    """
    plain = strengths(sheet, sums.held, people)
    truth = sums.moments[0] if sheet.rows == 1 else 0.0
    raised = _raised(survey, sums, plain, sums.moments[1] - truth)
    factor = float(sheet.rows) ** 2
    values = _in_order(sheet, sums, sums.counts) * sheet.rows
    return JoinedTable(sums.held, values, {positions: s * raised * factor for positions, s in plain.items()})


def measure_table(survey: Survey, sheet: Sheet, sums: RunningSums, people: int) -> JoinedTable:
    """Unbiased sums of a measure around the value that lets them err independently of counts."""
    assert sums.measure is not None
    lower, upper = survey.measures[sums.measure].bounds
    half, (_, squares, products, signed) = (upper - lower) / 2, sums.moments
    slope = float(np.clip(products.sum() / max(float(squares.sum()), 1e-300), -1.0, 1.0))
    mid = min(max(round((lower + upper) / 2 + half * slope), lower), upper)
    shift = (lower + upper) / 2 - mid
    values = _in_order(sheet, sums, half * sums.signed + shift * sums.counts) * sheet.rows
    of_counts = strengths(sheet, sums.held, people)
    plain = {
        positions: half**2 * s + shift**2 * of_counts[positions]
        for positions, s in strengths(sheet, sums.held, people, sums.measure).items()
    }
    seen = half**2 * signed + 2 * half * shift * products + shift**2 * squares
    raised, factor = _raised(survey, sums, plain, seen), float(sheet.rows) ** 2
    return JoinedTable(
        sums.held, values, {positions: s * raised * factor for positions, s in plain.items()}, mid
    )


def _in_order(sheet: Sheet, sums: RunningSums, values: FloatArray) -> FloatArray:
    """Axes from the order of services to the view's."""
    order = [a for service_axes in sheet.asked(sums.held, sums.measure).values() for a in service_axes]
    return np.moveaxis(values, range(len(order)), [sums.held.index(a) for a in order])


def _raised(survey: Survey, sums: RunningSums, plain: Mapping[Positions, float], seen: FloatArray) -> float:
    """By how much the boxes' exact variances are above the model's."""
    splits = tuple(AxisSplit(PrefixVariance(even_model(survey.axes[a].leaves))) for a in sums.held)
    model_variance = ProductReading(splits, plain).covariance([sums.boxes[a] for a in sums.held]).noise
    return max(float(np.quantile(seen / model_variance, CAUTION)), 1.0)


def even_model(leaves: int) -> FloatArray:
    """I - J/m: what a report's scores leave of each other when they add up to 1."""
    return model_of(ShareEstimate(np.zeros(leaves), np.eye(leaves) - 1 / leaves))


class JoinedTables(NamedTuple):
    """Joint tables of all people: statistics with their views, the number of people, and what was counted."""

    statistics: list[tuple[str, int | None, JoinedTable]]
    people: int
    manifest: CollectionManifest


def joined_tables(
    survey: Survey, sheet: Sheet, spools: Sequence[Path], key: bytes, progress: Progress
) -> JoinedTables:
    """Join reports by pseudonym, a part of the people after the other, and estimate every view.

    Args:
        survey: the catalog's questions.
        sheet: the collection.
        spools: files of reports; a file given twice counts once.
        key: secret bytes under which pseudonyms are hashed.
        progress: told each file.

    Raises:
        OperationalError: a file cannot be opened.
    """
    view_sums = [
        (name, measure, empty_sums(survey, sheet, view_axes, measure))
        for measure in [None, *range(len(survey.measures))]
        for name, (view_axes, told) in survey.views.items()
        if measure is None or measure in told
    ]
    people = 0
    with spooled_reports(sheet, spools, key, progress) as spooled:
        for cohort in joined_people(sheet, spooled):
            people += cohort.people
            for _, _, sums in view_sums:
                add_people(sheet, sums, cohort)
        manifest = spooled.manifest(sheet, people)
    return JoinedTables(
        [
            (name, measure, (count_table if measure is None else measure_table)(survey, sheet, sums, people))
            for name, measure, sums in view_sums
            if people
        ],
        people,
        manifest,
    )


def joined_content(survey: Survey, sheet: Sheet, joined: JoinedTables, release_id: str) -> ReleaseBuilder:
    """All that the release file of a collection by services will hold."""
    axes = survey_axes(survey)
    statistics = [
        Statistic(
            _description(survey, sheet, view, measure, view_table),
            local_estimate(
                view_table.values,
                view_table.strengths,
                f"product over {len(sheet.asked(view_table.axes, measure))} services",
            ),
        )
        for view, measure, view_table in joined.statistics
    ]
    models = [PrefixVariance(even_model(axis.leaves)) for axis in survey.axes]
    assembled = assemble(statistics, models, [axis.content.tree for axis in axes])
    return ReleaseBuilder(
        release_id,
        sheet.catalog,
        spec_hash(survey.catalog),
        _promise(survey, sheet),
        [SpentAmount(f"one report of {p.collection}", str(p.epsilon)) for p in sheet.plans.values()],
        insecure=False,
        axes=axes,
        models=assembled.models,
        statistics=assembled.statistics,
        bounding=_bounding(survey, sheet),
        local=_collected(survey, sheet, joined),
    )


def _description(
    survey: Survey, sheet: Sheet, view: str, measure: int | None, view_table: JoinedTable
) -> Description:
    summed = None if measure is None else survey.measures[measure]
    return Description(
        view=view,
        of=survey.of,
        measure="count" if summed is None else summed.name,
        axes=view_table.axes,
        sensitivity=sheet.rows,
        budget=sheet.epsilon,
        currency="epsilon",
        family=measure,
        mid=view_table.mid,
        scale=0 if summed is None else summed.scale,
    )


def _bounding(survey: Survey, sheet: Sheet) -> list[SlotsLeftOut | BitLeftOut]:
    """Rows of a person beyond R, of which nobody was asked how many there are."""
    return [BitLeftOut(survey.of, sheet.rows, sheet.rows)] if sheet.rows > 1 else []


def _promise(survey: Survey, sheet: Sheet) -> Promise:
    return Promise(
        unit=survey.catalog.privacy.unit.name,
        neighbours="replace_one",
        trust="local",
        epsilon=str(sheet.epsilon),
        rows_per_unit={survey.of: sheet.rows},
        adds_up="the services' epsilons add up to this one; that a person is known to a service is not hidden, "
        "and whoever is also in a central release of the same people is promised, for replacing one person, twice "
        "its add-or-remove epsilon plus this one",
        simulated=sheet.simulated or None,
    )


def _collected(survey: Survey, sheet: Sheet, joined: JoinedTables) -> LocalMeta:
    """Metadata of the reports, and how much noisier they are than reports of devices that hold all axes."""
    crossing = {view_axes for view_axes, _ in survey.views.values() if len(sheet.asked(view_axes)) > 1}
    return LocalMeta(
        collection=sheet.collection,
        participation=survey.participation.name,
        everybody=survey.everybody,
        manifest=ManifestMeta(**joined.manifest._asdict()),
        tau=sheet.rows,
        people=joined.people,
        services={name: str(plan.epsilon) for name, plan in sheet.plans.items()},
        times_the_variance_of_a_device_join={
            " and ".join(survey.axes[a].name for a in view_axes): penalty(sheet, view_axes)
            for view_axes in sorted(crossing)
        },
        simulated=sheet.simulated or None,
    )
