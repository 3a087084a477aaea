"""Joined reports of several services to a release: a product of scores a person, added up, and how noisy it is.

| here     | there                                             | unit |
|----------|---------------------------------------------------|------|
| table    | sum over people of s_1 x s_2 x .. x s_K           | rows |
| exact    | sum of squares of a box's products minus its count | rows^2 |
| strength | variance of a part of a view                      | rows^2 |

Scores of one report add up to 1, so a view's margins are the estimates of fewer axes, and the total is the number of
people. `exact` is the unbiased estimate of a box's variance given the people: a product's square has the mean of its
variance plus the square of its truth, which is 0 or 1.

**Privacy**: post-processing of reports that were private before they left a service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpsql.axis import table_sql
from dpsql.catalog import spec_hash
from dpsql.collecting.content import ARITY, axis_metas, statistic_content
from dpsql.collecting.estimate import model_of
from dpsql.collecting.pseudonyms import Joined
from dpsql.collecting.services import Positions, Sheet, penalty, strengths
from dpsql.collecting.survey import Survey
from dpsql.mechanisms.central.rounding import round_family
from dpsql.mechanisms.local.blue import Estimate
from dpsql.mechanisms.oracles.oracle import FloatArray
from dpsql.release.format import FORMAT, StatisticMeta, to_json
from dpsql.release.write import ARRAYS, AxisContent, ReleaseContent
from dpsql.tree import kary_tree
from dpsql.variance.kronecker import AxisSplit, KroneckerVariance
from dpsql.variance.prefix import PrefixVariance

CHUNK = 4_000_000
"""Numbers held at once while people are added up."""
BOXES = 100
CAUTION = 0.8
"""Which quantile, over random boxes, of exact variance by model is put on a view's strengths."""


class JoinedTable(NamedTuple):
    """A view's estimated rows, in its axes' order, and its strengths."""

    axes: Positions
    values: FloatArray
    strengths: Mapping[Positions, float]


def joined_table(survey: Survey, sheet: Sheet, joined: Joined, held: Positions) -> JoinedTable:
    """Estimate one view.

    Args:
        survey: the catalog's questions.
        sheet: the collection.
        joined: the joined reports.
        held: the view's axes, increasing.

    Returns:
        Unbiased rows, and strengths that hold for `CAUTION` of random boxes at least.
    """
    asked = sheet.asked(held)
    sizes = [survey.axes[a].leaves for a in held]
    order = [a for own in asked.values() for a in own]
    total = np.zeros([survey.axes[a].leaves for a in order])
    rng = np.random.default_rng(int.from_bytes(b"".join(p.hash for p in sheet.plans.values()), "big"))
    boxes = {a: _halves(survey.axes[a].leaves, rng) for a in held}
    counts, squares = np.zeros(BOXES), np.zeros(BOXES)
    for parts in _chunks(sheet, joined, asked, total.size):
        product, inside = parts[0], np.ones((len(parts[0]), BOXES))
        for (name, own), part in zip(asked.items(), parts, strict=True):
            inside *= part @ _covered([boxes[a] for a in own]).T
            product = part if name == next(iter(asked)) else _outer(product, part)
        total += product.sum(axis=0).reshape(total.shape)
        counts += inside.sum(axis=0)
        squares += (inside**2).sum(axis=0)
    values = np.moveaxis(total, range(len(order)), [held.index(a) for a in order])
    plain = strengths(sheet, held, joined.people)
    splits = tuple(AxisSplit(PrefixVariance(even_model(m))) for m in sizes)
    known = KroneckerVariance(splits, plain).quadratic([boxes[a] for a in held])
    raised = max(float(np.quantile((squares - counts) / known, CAUTION)), 1.0)
    return JoinedTable(held, values, {part: s * raised for part, s in plain.items()})


def even_model(leaves: int) -> FloatArray:
    """I - J/m: what a report's scores leave of each other when they add up to 1."""
    return model_of(Estimate(np.zeros(leaves), np.eye(leaves) - 1 / leaves))


def _halves(leaves: int, rng: np.random.Generator) -> FloatArray:
    """Random runs of leaves, from one leaf to all but one, shape (BOXES, leaves)."""
    low = rng.integers(0, leaves, BOXES)
    length = rng.integers(1, max(leaves, 2), BOXES)
    at = (np.arange(leaves)[None, :] - low[:, None]) % leaves
    return np.asarray(at < length[:, None], dtype=np.float64)


def _covered(masks: Sequence[FloatArray]) -> FloatArray:
    """Cells of several axes inside each box, shape (BOXES, cells)."""
    cells = masks[0]
    for mask in masks[1:]:
        cells = _outer(cells, mask)
    return cells


def _outer(left: FloatArray, right: FloatArray) -> FloatArray:
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)


def _chunks(
    sheet: Sheet, joined: Joined, asked: Mapping[str, Positions], cells: int
) -> Iterator[list[FloatArray]]:
    """Scores over each service's part of a view, some people at a time."""
    widest = max(cells, *(plan.views[0].domain for plan in sheet.plans.values()))
    step = max(CHUNK // widest, 1)
    for first in range(0, joined.people, step):
        parts = []
        for name, own in asked.items():
            scores = joined.heard[name].scores(first, min(first + step, joined.people))
            shape = [axis.leaves for axis in sheet.plans[name].axes]
            dropped = tuple(i + 1 for i, a in enumerate(sheet.axes[name]) if a not in own)
            parts.append(scores.reshape(-1, *shape).sum(axis=dropped).reshape(len(scores), -1))
        yield parts


def joined_content(survey: Survey, sheet: Sheet, joined: Joined, release_id: str) -> ReleaseContent:
    """All that the release file of a collection by services will hold."""
    tables = {held: joined_table(survey, sheet, joined, held) for held, _ in survey.views.values()}
    named = [(name, tables[held]) for name, (held, _) in survey.views.items()]
    units = round_family([(t.axes, t.values) for _, t in named])
    trees = [kary_tree(axis.leaves, ARITY) for axis in survey.axes]
    models = [PrefixVariance(even_model(axis.leaves)) for axis in survey.axes]
    contents = [
        statistic_content(leaves, None, [trees[a] for a in t.axes])
        for leaves, (_, t) in zip(units, named, strict=True)
    ]
    meta = _promise(survey, sheet, joined, release_id)
    meta["axes"] = [to_json(m) for m in axis_metas(survey)]
    meta["models"] = [m.kind for m in models]
    meta["statistics"] = [to_json(_statistic(survey, sheet, i, n, t)) for i, (n, t) in enumerate(named)]
    meta["scales"] = []
    meta["bounding"] = []
    axes = [AxisContent(a.arrays(), table_sql(a, ARRAYS), t) for a, t in zip(survey.axes, trees, strict=True)]
    return ReleaseContent(meta, axes, models, contents)


def _statistic(survey: Survey, sheet: Sheet, number: int, view: str, found: JoinedTable) -> StatisticMeta:
    return StatisticMeta(
        id=number, view=view, of=survey.of, measure="count", axes=found.axes, mid=0, scale=0, kind="int",
        sensitivity=1, budget=str(sheet.epsilon), currency="epsilon",
        mechanism=f"local: product over {len(sheet.asked(found.axes))} services",
        cells=int(found.values.size), components=tuple(sorted(found.strengths.items())),
    )  # fmt: skip


def _promise(survey: Survey, sheet: Sheet, joined: Joined, release_id: str) -> dict[str, Any]:
    """Who is promised what, and what was collected."""
    simulated = {"simulated": True} if sheet.simulated else {}
    crossing = {held for held, _ in survey.views.values() if len(sheet.asked(held)) > 1}
    privacy: dict[str, Any] = {
        "unit": survey.catalog.privacy.unit,
        "neighbours": "replace_one",
        "trust": "local",
        "epsilon": str(sheet.epsilon),
        "delta": "0",
        "rows_per_unit": {survey.of: 1},
        "adds_up": "the services' epsilons add up to this one; that a person is known to a service is not hidden, "
        "and whoever is also in a central release of the same people is promised, for replacing one person, twice "
        "its add-or-remove epsilon plus this one",
    }
    return {
        "format": FORMAT,
        "release_id": release_id,
        "catalog": sheet.catalog,
        "spec_hash": spec_hash(survey.catalog),
        "privacy": privacy | simulated,
        "spends": [[f"one report of {p.collection}", str(p.epsilon)] for p in sheet.plans.values()],
        "insecure_entropy": False,
        "local": {
            "collection": sheet.collection,
            "participation": survey.participation,
            "manifest": joined.manifest._asdict(),
            "people": joined.people,
            "tau": 1,
            "services": {name: str(plan.epsilon) for name, plan in sheet.plans.items()},
            "times_the_variance_of_a_device_join": {
                " and ".join(survey.axes[a].name for a in held): penalty(sheet, held)
                for held in sorted(crossing)
            },
        }
        | simulated,
    }
