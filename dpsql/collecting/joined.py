"""Reports of several services to a release: joined by the person's pseudonym, a product of scores a person, added up.

A spool may hold reports of one service or of several; a report names its service's plan by hash. Pseudonyms are the
spools' tokens. They are hashed under the collector's secret key as soon as they are read, and no release holds them.
Of several reports of one pseudonym at one service the least in byte order is kept, so the order of files does not
matter; whoever is not known to every service is left out and counted.

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

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpsql.client.plan import Plan
from dpsql.client.report import HEADER, MAGIC
from dpsql.collecting.collector import Manifest
from dpsql.collecting.content import statistic_content, survey_axes
from dpsql.collecting.estimate import model_of
from dpsql.collecting.files import open_state
from dpsql.collecting.services import Positions, Sheet, penalty, strengths
from dpsql.collecting.spools import Spool, counted_file
from dpsql.collecting.survey import Survey
from dpsql.collecting.tallies import oracle_of
from dpsql.mechanisms.family.reconcile import round_family
from dpsql.mechanisms.local.blue import Estimate
from dpsql.mechanisms.oracles.oracle import FloatArray, Oracle, Packed, item_scores
from dpsql.progress import Progress, Stage
from dpsql.release.format import LocalMeta, ManifestMeta, Promise, Spend, StatisticMeta
from dpsql.release.write import ReleaseBuilder, StatisticPart
from dpsql.star import spec_hash
from dpsql.variance.kronecker import AxisSplit, ProductReading
from dpsql.variance.leaves import PrefixVariance

Held = dict[bytes, bytes]
"""Payload by hashed pseudonym."""


class Heard(NamedTuple):
    """One service's joined reports: their oracle, and their payloads in the order of people."""

    oracle: Oracle
    packed: Packed

    def scores(self, first: int, last: int) -> FloatArray:
        """Unbiased indicators of all items for some of the people, shape (people, items)."""
        return item_scores(self.oracle, self.oracle.supports(self.packed[first:last]))


class Joined(NamedTuple):
    """People known to every service, what each service heard of them (same order), and what was counted."""

    people: int
    heard: dict[str, Heard]
    manifest: Manifest


def join_spools(sheet: Sheet, spools: Sequence[Path], key: bytes, progress: Progress) -> Joined:
    """Read spools and join reports by pseudonym.

    Args:
        sheet: the collection.
        spools: Parquet and JSON-lines files; a file given twice counts once.
        key: secret bytes under which pseudonyms are hashed.
        progress: told each file.

    Raises:
        OperationalError: a file cannot be opened.
    """
    held: dict[str, Held] = {name: {} for name in sheet.plans}
    rejected, seen, total = Counter[str](), set[str](), 0
    connection = open_state(next(iter(sheet.plans.values())))
    try:
        for path in spools:
            content = counted_file(path)
            if content.digest in seen:
                progress(Stage("known", path.name))
                continue
            seen.add(content.digest)
            spool, count = Spool(path, content, (), Counter()), 0
            for reports, tokens in _portions(connection, spool):
                count += len(reports)
                _hold(sheet, held, reports, tokens, key, rejected)
            rejected += spool.unreadable
            total += count + spool.unreadable.total()
            progress(Stage("counted", path.name, {"reports": count}))
    finally:
        connection.close()
    everywhere = sorted(set.intersection(*(set(own) for own in held.values())))
    rejected["pseudonym not at every service"] = sum(len(own) - len(everywhere) for own in held.values())
    heard = {name: _heard(sheet.plans[name], [own[p] for p in everywhere]) for name, own in held.items()}
    reasons = {reason: n for reason, n in sorted(rejected.items()) if n}
    return Joined(
        len(everywhere), heard, Manifest(len(seen), total, len(everywhere) * len(sheet.plans), reasons)
    )


ROWS = 100_000
"""Reports that are looked at at once."""


def _portions(
    connection: duckdb.DuckDBPyConnection, spool: Spool
) -> Iterator[tuple[list[bytes], list[str | None]]]:
    """A file's reports and their pseudonyms, some at a time; of a damaged file none."""
    try:
        for portion in spool.portions(connection):
            # All of it is readable before any of it is kept; no pseudonym gets to a table, which might be spilled.
            connection.execute(f"SELECT max(report), max(token) FROM {portion}").fetchall()
            rows = connection.execute(f"SELECT report, token FROM {portion}")
            while some := rows.fetchmany(ROWS):
                yield [report for report, _ in some], [token for _, token in some]
    except duckdb.Error:
        spool.unreadable["unreadable file"] += 1


def _hold(
    sheet: Sheet,
    held: dict[str, Held],
    reports: Sequence[bytes],
    tokens: Sequence[str | None],
    key: bytes,
    rejected: Counter[str],
) -> None:
    """Check one spool's reports and keep them by hashed pseudonym."""
    given = np.array([*tokens, None], dtype=object)[:-1]
    said = np.array([bytes(r) for r in reports] + [b""], dtype=object)[:-1]
    known = np.array([r[2:10] for r in said.tolist()] + [b""], dtype=object)[:-1]
    named = np.array([t is not None for t in given], dtype=bool)
    rejected["no pseudonym"] += int((~named).sum())
    rejected["another plan"] += int(named.sum())
    for name, plan in sheet.plans.items():
        mine = np.nonzero(named & (known == plan.hash))[0]
        rejected["another plan"] -= mine.size
        for i in mine[_sound(plan, said[mine].tolist(), rejected)].tolist():
            person = hashlib.blake2b(given[i].encode(), key=key, digest_size=16).digest()
            payload = said[i][HEADER:]
            rejected["repeated pseudonym"] += int(person in held[name])
            held[name][person] = min(payload, held[name].get(person, payload))


def _sound(plan: Plan, reports: Sequence[bytes], rejected: Counter[str]) -> NDArray[np.bool_]:
    """Which reports are answers to a service's plan; the others are counted by reason."""
    view, sound = plan.views[0], np.zeros(len(reports), dtype=bool)
    head = MAGIC + plan.hash + b"\0\0" + bytes([view.perturbs.code])
    lengths = np.fromiter(map(len, reports), dtype=np.int64, count=len(reports))
    for length in np.unique(lengths).tolist():
        at = np.nonzero(lengths == length)[0]
        if length <= HEADER:
            rejected["too short"] += at.size
            continue
        table = np.frombuffer(b"".join(reports[i] for i in at.tolist()), np.uint8).reshape(-1, length)
        right = (table[:, :HEADER] == np.frombuffer(head, np.uint8)).all(axis=1)
        kept, reason = oracle_of(plan, view).check(table[:, HEADER:])
        rejected["not version 1, the view or its oracle"] += int((~right).sum())
        rejected[reason] += int((right & ~kept).sum())
        sound[at] = right & kept
    return sound


def _heard(plan: Plan, payloads: Sequence[bytes]) -> Heard:
    """Payloads as an array."""
    oracle = oracle_of(plan, plan.views[0])
    return Heard(oracle, oracle.packed(payloads))


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
    known = ProductReading(splits, plain).covariance([boxes[a] for a in held]).noise
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


def joined_content(survey: Survey, sheet: Sheet, joined: Joined, release_id: str) -> ReleaseBuilder:
    """All that the release file of a collection by services will hold."""
    tables = {held: joined_table(survey, sheet, joined, held) for held, _ in survey.views.values()}
    named = [(name, tables[held]) for name, (held, _) in survey.views.items()]
    units = round_family([(t.axes, t.values) for _, t in named])
    axes = survey_axes(survey)
    statistics = [
        StatisticPart(
            _statistic(survey, sheet, i, name, t),
            statistic_content(leaves, None, [axes[a].content.tree for a in t.axes]),
        )
        for i, (leaves, (name, t)) in enumerate(zip(units, named, strict=True))
    ]
    return ReleaseBuilder(
        release_id,
        sheet.catalog,
        spec_hash(survey.catalog),
        _promise(survey, sheet),
        [Spend(f"one report of {p.collection}", str(p.epsilon)) for p in sheet.plans.values()],
        insecure=False,
        axes=axes,
        models=[PrefixVariance(even_model(axis.leaves)) for axis in survey.axes],
        statistics=statistics,
        local=_collected(survey, sheet, joined),
    )


def _statistic(survey: Survey, sheet: Sheet, number: int, view: str, found: JoinedTable) -> StatisticMeta:
    return StatisticMeta(
        id=number, view=view, of=survey.of, measure="count", axes=found.axes, mid=0, scale=0, kind="int",
        sensitivity=1, budget=str(sheet.epsilon), currency="epsilon",
        mechanism=f"local: product over {len(sheet.asked(found.axes))} services",
        cells=int(found.values.size), reading=ProductReading.name, models=found.axes,
        components=tuple(sorted(found.strengths.items())),
    )  # fmt: skip


def _promise(survey: Survey, sheet: Sheet) -> Promise:
    """Who is promised what."""
    return Promise(
        unit=survey.catalog.privacy.unit.name,
        neighbours="replace_one",
        trust="local",
        epsilon=str(sheet.epsilon),
        rows_per_unit={survey.of: 1},
        adds_up="the services' epsilons add up to this one; that a person is known to a service is not hidden, "
        "and whoever is also in a central release of the same people is promised, for replacing one person, twice "
        "its add-or-remove epsilon plus this one",
        simulated=sheet.simulated or None,
    )


def _collected(survey: Survey, sheet: Sheet, joined: Joined) -> LocalMeta:
    """What was collected, and how much noisier it is than reports of devices that hold all axes."""
    crossing = {held for held, _ in survey.views.values() if len(sheet.asked(held)) > 1}
    return LocalMeta(
        collection=sheet.collection,
        participation=survey.participation.name,
        everybody=survey.everybody,
        manifest=ManifestMeta(**joined.manifest._asdict()),
        tau=1,
        people=joined.people,
        services={name: str(plan.epsilon) for name, plan in sheet.plans.items()},
        times_the_variance_of_a_device_join={
            " and ".join(survey.axes[a].name for a in held): penalty(sheet, held) for held in sorted(crossing)
        },
        simulated=sheet.simulated or None,
    )
