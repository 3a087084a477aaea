"""`dpsql report`: one HTML file that needs no network, for whoever has to trust or use a release.

What it computes with is `page_model`: axes with labels, marginal counts, and variance tables. How it looks and moves
stands in page.css and page.js.

| here | meaning |
|---|---|
| cut | a boundary between leaves; a range [a, b) of cuts holds the leaves a .. b-1 |
| rest, share | of a range on one axis: u'Cu - k(g.u)^2 and g.u, from which every view's variance is made |

A page cannot run the engine, so each axis's model is tabulated over pairs of cuts: all of them up to
MOST_CUTS, else an even choice and every cut that a coarser axis of the same name has. At these cuts the
page's prediction is exact. A view whose axes were measured together brings its model whole, a few thousand numbers.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from fractions import Fraction
from hashlib import sha256
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.executor.engine import ReleaseEngine
from dpsql.executor.recombine import answer_terms
from dpsql.executor.run import run
from dpsql.executor.small_numbers import BoolArray, is_few
from dpsql.federation.session import OpenReleases
from dpsql.interfaces.python import describe
from dpsql.interfaces.web.page import SHARED, asset, document
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, interval, nullable
from dpsql.intervals.reads import cell_variance, weight_error
from dpsql.matrices.kronecker import AxisSplit
from dpsql.planner.axis_query import AxisCells
from dpsql.planner.block import one
from dpsql.planner.leaf_values import AxisQuery
from dpsql.planner.notes import PARTICIPATIONS, beyond_notes
from dpsql.planner.plan import ViewPlan, views_of
from dpsql.planner.schema import TRUE, Term
from dpsql.release import ColumnMeta, Release, StatisticMeta
from dpsql.release.format import Promise, RowsBeyondBound, ScaleMeta, SpentAmount, to_json
from dpsql.release.promises import FREE, RULE, promise_together, promise_words, short
from dpsql.release.reports import LocalMeta, ShuffledMeta
from dpsql.results.render import shown, split_margin
from dpsql.row_expressions import identifier

HERE = "dpsql.interfaces.web.report"

POLICY = (
    "default-src 'none'; style-src '{style}'; script-src {scripts}; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing may be fetched: the page works offline and tells nobody what is looked at. Its own scripts and style are
named by their hashes, so that nothing else in it can run."""

MOST_QUESTIONS = 12

SIMULATED = (
    "These reports were simulated on one machine that saw all rows. The release shows what a collection would "
    "bring; it protects nobody."
)


def report_page(release: Release, beside: OpenReleases | None = None) -> str:
    """The page as HTML.

    Args:
        release: an open release.
        beside: it and others that are open together: what they promise, and whom each stands for.

    Returns:
        A whole document.

    **Privacy**: shows what the release publishes to everybody anyway.
    """
    model = page_model(release)
    alone = OpenReleases((release,), (ReleaseEngine(release),))
    sections = [
        f"<h1>{escape(model['name'])}</h1>",
        f"<p>{escape(str(model['description']))}</p>" if model["description"] else "",
        f'<p class="soft">release {escape(str(model["id"]))}</p>',
        *_headlines(describe.totals(alone)),
        *_questions(describe.well_answered(alone, MOST_QUESTIONS)),
        "<h2>How good is my question?</h2>",
        '<div id="ask"></div><div id="answer" aria-live="polite"></div>',
        "<h2>What is promised</h2>",
        *_promise(release.meta.privacy),
        *([f"<p>{RULE.format(release.min_people)}</p>"] if release.min_people else []),
        *collected(release.meta.local),
        *(_together(beside) if beside is not None else ()),
        "<h2>What was spent</h2>",
        table(("on", "part"), _spent(release.meta.spends)),
        f"<p>{FREE}</p>",
        *_scales(release.meta.scales, model["weight_error"] > 0),
        *_bounding(release),
        *(_view(view, model) for view in model["views"]),
    ]
    model_json = json.dumps(model, separators=(",", ":")).replace("<", "\\u003c")
    sheet = asset(HERE, "page.css")
    scripts = [asset(SHARED, "chart.js"), asset(HERE, "page.js")]
    hashes = " ".join(f"'{_hash(script)}'" for script in scripts)
    policy = POLICY.format(style=_hash(asset(SHARED, "look.css") + sheet), scripts=hashes)
    code = "".join(f"<script>{script}</script>\n" for script in scripts)
    scripted = f'<script type="application/json" id="model">{model_json}</script>\n{code}'
    return document(f"{model['name']}: release report", "\n".join(sections), sheet, policy, scripted)


def _headlines(rated: Sequence[describe.RatedQuestion]) -> list[str]:
    """Totals and averages in large letters, each with its margin, and what must be known to read them."""
    if not rated:
        return []
    cards = []
    for question, answer, _ in rated:
        value, margin = split_margin(shown(answer)[0][0][0])
        words = f"<dt>{escape(question.words)}</dt>"
        cards.append(f"<div>{words}<dd>{escape(value)} <small>{escape(margin)}</small></dd></div>")
    flags = dict.fromkeys(flag for _, answer, _ in rated for flag in answer.flags)
    return [
        f'<dl class="headlines">{"".join(cards)}</dl>',
        *(f"<p>{escape(flag)}</p>" for flag in flags),
        '<p class="soft">± is half of a 95% interval; -/+ shows its reach to either side.</p>',
    ]


def _questions(rated: Sequence[describe.RatedQuestion]) -> list[str]:
    """Questions that the release answers well."""
    rows = [(asked.words, " ".join(asked.sql.split()), f"± {error:.1%}") for asked, _, error in rated]
    if not rows:
        return []
    head = ("question", "in SQL", "standard error to expect")
    return ["<h2>What you can ask</h2>", f'<div class="wide" tabindex="0">{table(head, rows)}</div>']


def _spent(spends: Sequence[SpentAmount]) -> list[tuple[str, ...]]:
    total = sum(Fraction(spend.amount) for spend in spends)
    return [
        (spend.purpose, f"{float(Fraction(spend.amount) / total):.0%}" if total else "0") for spend in spends
    ]


def _together(opened: OpenReleases) -> list[str]:
    """Releases that are open together: what they promise a person who is in all of them, and who answers for whom."""
    promised = promise_together([release.meta for release in opened.releases])
    words = (
        "no single epsilon: their promises are of different kinds"
        if promised is None
        else f"epsilon {promised['epsilon']} for replacing everything of one {promised['unit']}"
    )
    rows = [(release.name, release.meta.release_id) for release in opened.releases]
    standing = [] if opened.router is None else opened.router.words()
    return [
        "<h2>Opened together</h2>",
        table(("release", "id"), rows),
        f"<p>Whoever is in all of them is promised {escape(words)}, whichever answers.</p>",
        *(f"<p>{escape(line)}</p>" for line in standing),
    ]


AMOUNTS = ("epsilon", "delta", "mu2")


def _promise(promise: Promise) -> list[str]:
    rows = [
        (key, short(value) if key in AMOUNTS else _words(value)) for key, value in to_json(promise).items()
    ]
    return [*(f"<p>{escape(words)}</p>" for words in promise_words(promise)), table(("part", "value"), rows)]


def _words(value: object) -> str:
    """A part of the promise: tables and what is said of them, or a list, or a word.

    >>> _words({"sales": 20, "customer": 1}), _words(["a", "b"]), _words(True)
    ('sales 20, customer 1', 'a, b', 'True')
    """
    if isinstance(value, dict):
        return ", ".join(f"{key} {element}" for key, element in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def collected(local: LocalMeta | None) -> list[str]:
    """The page's part about people's own reports; nothing for a central release.

    Args:
        local: what they reported, or None.

    Returns:
        HTML.
    """
    if local is None:
        return []
    manifest = local.manifest
    rows = [
        ("collection", local.collection),
        ("reports accepted", f"{manifest.accepted:,} of {manifest.reports:,}".replace(",", " ")),
        *((f"rejected: {why}", str(count)) for why, count in manifest.rejected.items()),
        ("rows of one person that are counted (tau)", str(local.tau)),
        *_told(local),
    ]
    about = PARTICIPATIONS[local.participation].note.format(f"{local.reporters:,}")
    whom = f"<p>Counts, sums and averages are {escape(about)}.</p>"
    stamp = [f"<p><strong>{SIMULATED}</strong></p>"] if local.simulated else []
    return ["<h2>Who reported</h2>", whom, *stamp, table(("what", "value"), rows), *_shuffled(local.shuffled)]


def _told(local: LocalMeta) -> Iterator[tuple[str, str]]:
    """Facts that not every collection states."""
    if local.row_weight_error:
        weight = f"{local.row_weight or 1.0:.3g} ± {local.row_weight_error:.2g}"
        yield "weight of a row, for those beyond tau", weight
    for axis, chance in (local.missing_at_random or {}).items():
        rejected = " (rejected)" if chance < 0.05 else ""
        yield f"rows of {axis} missing at random, p-value", f"{chance:.2g}{rejected}"
    if local.first_round is not None:
        yield "reports of row counts, in the first round", str(local.first_round.reports_of_row_counts)
    if local.influence is not None and local.influence.rows_at_most is not None:
        reach = f"{local.influence.rows_at_most:,.0f} rows"
        yield "one hostile report moves a count over one axis by at most", reach
    # Where the smooth counts, stored beside the unbiased ones, leave the latter's intervals too often.
    for axis, share in (local.smooth_outside_unbiased or {}).items():
        yield f"ranges of {axis} where smooth counts leave the 95% interval", f"{share:.1%}"
    if local.plan_hash is not None:
        yield "hash of the plan", local.plan_hash


def _shuffled(shuffled: ShuffledMeta | None) -> list[str]:
    if shuffled is None:
        return []
    head = "<h2>With an anonymous shuffler in between</h2>"
    if shuffled.void is not None:
        return [head, f"<p>Nothing more is promised: {escape(shuffled.void)}.</p>"]
    promise = (
        f"All {shuffled.people} reports together are also ({shuffled.epsilon:.4g}, {shuffled.delta:g})-differentially "
        f"private, against whoever sees them shuffled. This holds only if {shuffled.holds_if}. Otherwise the promise "
        "above stands alone."
    )
    return [head, f"<p>{escape(promise)}</p>"]


def _scales(scales: Sequence[ScaleMeta], inside: bool) -> list[str]:
    """R of each table and measure, and what bounding may have biased."""
    if not scales:
        return []
    head = (
        "table", "measure", "factor R", "error of R", "left out by the low bound", "above what one unit counts for",
    )  # fmt: skip
    rows = [
        (
            scale.of, scaled.measure or "rows", f"{scaled.factor:.3g}", f"{scaled.error.noise:.1%}",
            "hidden by noise" if scaled.left_out is None else f"about {scaled.left_out:.0%}, put back by R",
            f"{scaled.above:.0%}",
        )
        for scale in scales
        for scaled in scale.measures
    ]  # fmt: skip
    where = "is part of their error bars" if inside else "comes on top of the error bars"
    note = (
        "Counts and sums of these tables are shapes, measured with few rows of each unit, times the factor R. Its "
        f"error is common to all of them and {where}; averages and shares are unaffected."
    )
    biased = " ".join(
        f"{scale.of}: answers may be biased where excluded rows differ from the others"
        + ("; the number of rows is published exactly." if scale.public_rows else ".")
        for scale in scales
    )
    return [
        "<h2>How shapes got their scale</h2>", f"<p>{note}</p>", table(head, rows), f"<p>{escape(biased)}</p>"
    ]  # fmt: skip


def _bounding(release: Release) -> list[str]:
    """Rows of a unit beyond the contribution bound, table by table, as far as known."""
    tables = dict.fromkeys(bounded.of for bounded in release.meta.bounding)
    notes = [f"<p>{escape(note.text)}</p>" for of in tables for note in beyond_notes(of, release)]
    return ["<h2>Rows beyond the contribution bound</h2>", *notes] if notes else []


def _view(view: dict[str, Any], model: dict[str, Any]) -> str:
    axes = ", ".join(model["axes"][number]["name"] for number in view["axes"]) or "no axis"
    statistics = view["statistics"]
    rows = [(s["measure"], s["mechanism"], f"{s['currency']} {short(s['budget'])}") for s in statistics]
    return (
        f"<h2>View {escape(view['name'])}</h2>"
        f"<p>{escape(view['of'])} by {escape(axes)}: {view['cells']} cells</p>"
        f"{table(('measure', 'mechanism', 'budget'), rows)}"
        f'<div id="view-{escape(view["name"])}"></div>'
    )


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """An HTML table.

    Args:
        head: names of the columns.
        rows: their cells, as text.

    Example:
        >>> table(("a",), [("<1",)])
        '<table><tr><th scope="col">a</th></tr><tr><td>&lt;1</td></tr></table>'
    """

    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{names}</tr>{lines}</table>"


def _hash(text: str) -> str:
    """Hash of an inline script or style for a policy."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


MOST_CUTS = 160
MOST_BARS = 400
FloatArray = npt.NDArray[np.float64]


def page_model(release: Release) -> dict[str, Any]:
    """Everything the page needs, as JSON values.

    Args:
        release: an open release.

    Returns:
        name, the relative errors of the weight of rows and of scales, the bounds
        of tables whose rows beyond them are measured, axes and views.

    **Privacy**: published values and public facts alone.
    """
    tables = describe.describe(release)
    labels = [axis_labels(release, i) for i in range(len(release.axes))]
    return {
        "name": release.name,
        "id": release.meta.release_id,
        "description": release.catalog.description,
        "weight_error": weight_error(release),
        "scales": {
            scale.of: {scaled.measure or "count": _short(scaled.error.noise, 2) for scaled in scale.measures}
            for scale in release.meta.scales
        },
        "beyond": {
            table.of: table.tau
            for table in release.meta.bounding
            if isinstance(table, RowsBeyondBound) and table.rows is not None
        },
        "axes": [_axis(release, i, labels, tables) for i in range(len(release.axes))],
        "views": [
            _view_model(release, name, tables) for name in dict.fromkeys(s.view for s in _of_rows(release))
        ],
    }


def _of_rows(release: Release) -> list[StatisticMeta]:
    """Measures that count and sum rows: the page adds cells up, which people do not."""
    return [statistic for statistic in release.statistics if statistic.measure.sums_rows]


class AxisLabels(NamedTuple):
    """Labels of an axis's ordinary leaves.

    Args:
        column: the column of the axis table that tells the leaves apart, or None where it takes several.
        ranges: whether leaves are consecutive ranges of that column, so that `>=` and `<=` select them.
        ends: first and last value of each leaf, as text.
    """

    column: ColumnMeta | None
    ranges: bool
    ends: list[tuple[str, str]]


def axis_labels(release: Release, axis: int) -> AxisLabels:
    """The first column of an axis that tells its leaves apart, and its values leaf by leaf."""
    labels = AxisLabels(None, False, [])
    for column in release.axes[axis].columns:
        name = identifier(column.name)
        text = f"SELECT min({name}), max({name}), count(DISTINCT {name}) FROM axis_{axis}"
        rows = run(release, f"{text} WHERE kind = 0 GROUP BY leaf ORDER BY leaf").rows
        ends = [(str(low), str(high)) for low, high, _ in rows]
        if any(low is None for low, _, _ in rows):
            continue
        ordered = all(a[1] < b[0] for a, b in pairwise(rows))
        if ordered and column.type not in ("VARCHAR", "BOOLEAN"):
            return AxisLabels(column, True, ends)
        if all(count == 1 for _, _, count in rows) and len({low for low, _ in ends}) == len(ends):
            return AxisLabels(column, False, ends)
        labels = labels if labels.ends else AxisLabels(None, False, ends)
    return labels


def _axis(
    release: Release, number: int, labels: list[AxisLabels], tables: tuple[describe.TableInfo, ...]
) -> dict[str, Any]:
    axis, leaf_labels = release.axes[number], labels[number]
    twins = [labels[i].ends for i, twin in enumerate(release.axes) if twin.name == axis.name and i != number]
    cuts = chosen_cuts(leaf_labels.ends, twins)
    split = release.split(axis.model)
    kind = leaf_labels.column.type if leaf_labels.column else "VARCHAR"
    return {
        "name": axis.name,
        "of": axis.of,
        "leaves": axis.leaves,
        "strategy": axis.strategy,
        "column": describe.asked_name(axis, leaf_labels.column, tables) if leaf_labels.column else "",
        "quoted": not any(word in kind for word in ("INT", "DOUBLE", "DECIMAL")),
        "ranges": leaf_labels.ranges,
        "cuts": cuts,
        "first": [leaf_labels.ends[cut][0] if cut < len(leaf_labels.ends) else "" for cut in cuts],
        "last": [leaf_labels.ends[cut - 1][1] if cut else "" for cut in cuts],
        "values": [first for first, _ in leaf_labels.ends] if len(leaf_labels.ends) <= MOST_CUTS else [],
        "total": float(split.total),
        **_tables(split, cuts),
    }


def chosen_cuts(own: list[tuple[str, str]], twins: list[list[tuple[str, str]]]) -> list[int]:
    """Boundaries that the page offers.

    >>> chosen_cuts([("1", "1"), ("2", "2")], [])
    [0, 1, 2]
    """
    n = len(own)
    if n <= MOST_CUTS:
        return list(range(n + 1))
    place = {first: i for i, (first, _) in enumerate(own)}
    few = [twin for twin in twins if len(twin) <= MOST_CUTS]
    shared = {place[first] for twin in few for first, _ in twin if first in place}
    return sorted({*np.linspace(0, n, MOST_CUTS + 1).astype(int).tolist(), *shared})


def _tables(split: AxisSplit, cuts: list[int]) -> dict[str, Any]:
    """`rest` of every range of cuts (row by row, a < b) and `prefix`, the share of everything below a cut."""
    spread = np.concatenate([[0.0], np.cumsum(split.spread)])
    at = np.array(cuts, np.int64)
    low, high = np.triu_indices(len(at), 1)
    variance = split.model.ranges(at[low], at[high])
    share = spread[at[high]] - spread[at[low]]
    remainder = np.maximum(np.asarray(variance, np.float64) - split.total * share**2, 0.0)
    return {
        "rest": [_short(value) for value in remainder],
        "prefix": [_short(float(value), 9) for value in spread[at]],
    }


def _short(value: float, digits: int = 6) -> float:
    return float(f"{value:.{digits}g}")


def _view_model(release: Release, name: str, tables: tuple[describe.TableInfo, ...]) -> dict[str, Any]:
    statistics = [s for s in _of_rows(release) if s.view == name]
    of = statistics[0].of
    return {
        "name": name,
        "of": of,
        "table": describe.widest(tables, of).name,
        "axes": list(statistics[0].axes),
        "cells": statistics[0].cells,
        "statistics": [_statistic(release, s) for s in statistics],
        "histograms": [
            _histogram(release, s, position)
            for s in statistics
            if s.measure.counts_rows
            for position in range(len(s.axes))
        ],
    }


def _statistic(release: Release, statistic: StatisticMeta) -> dict[str, Any]:
    local = release.meta.local is not None
    names = ("measure", "mid", "scale", "mechanism", "budget", "currency")
    return {
        **{name: getattr(statistic, name) for name in names},
        "components": [[list(subset), float(sigma2)] for subset, sigma2 in statistic.components],
        # noise variance of one cell, from which the page has the tails of Laplace noise; 0 for other noise
        "cell": 0.0 if local or release.meta.privacy.mu2 else cell_variance(release, statistic.id),
    }


def _histogram(release: Release, statistic: StatisticMeta, position: int) -> dict[str, Any]:
    """Noisy marginal counts along one axis, leaves joined where there are too many to draw."""
    axis = statistic.axes[position]
    meta = release.axes[axis]
    step = -(-meta.leaves // MOST_BARS)
    starts = np.arange(0, meta.leaves, step)
    # Estimates of one axis's leaves over everything else, from the stored nodes.
    tree = release.tree(statistic.axes[position])
    root_conditions = [f"n{i + 1} = 0" for i in range(len(statistic.axes)) if i != position]
    text = f"SELECT n{position + 1} AS node, estimate FROM node_combination_{statistic.id} WHERE "
    among = [f"n{position + 1} BETWEEN 0 AND {tree.size - 1}", "estimate IS NOT NULL"]
    rows = release.read(
        text + " AND ".join([*among, *root_conditions]), (), lambda cursor: cursor.fetchnumpy()
    )
    by_node = np.zeros(tree.size)
    by_node[np.asarray(rows["node"], np.int64)] = statistic.in_units(rows["estimate"])
    counts = np.add.reduceat(np.asarray(by_node[np.asarray(tree.leaves, np.int64)], np.float64), starts)
    few, low, high = _ends(release, statistic, position, np.arange(meta.leaves) // step)
    names = [first for first, _ in axis_labels(release, axis).ends]
    special = {meta.null_leaf: "NULL", meta.missing_leaf: "MISSING", meta.other_leaf: "OTHER"}
    return {
        "axis": axis,
        "bars": [
            None if hidden else _short(float(value), 7) for value, hidden in zip(counts, few, strict=True)
        ],
        "low": low,
        "high": high,
        "labels": [special.get(int(i)) or (names[i] if i < len(names) else "") for i in starts],
    }


def _ends(
    release: Release, statistic: StatisticMeta, position: int, group: npt.NDArray[np.int64]
) -> tuple[BoolArray, list[float | None], list[float | None]]:
    """Groups of one axis's leaves whose counts are hidden, and ends of 95% intervals of counts; None where open."""
    cells, index, groups = [], [], int(group[-1]) + 1
    for place, number in enumerate(statistic.axes):
        leaves = release.axes[number].leaves
        zeros, ones = np.zeros(leaves, np.int64), np.ones(leaves)
        shown = place == position
        keys = tuple((i,) for i in range(groups)) if shown else ((),)
        types, leaf_groups = (("BIGINT",), group) if shown else ((), zeros)
        cells.append(AxisCells(leaves, keys, types, leaf_groups, zeros, np.arange(leaves), ones, ((),)))
        index.append(np.arange(groups) if shown else np.zeros(groups, np.int64))
    view = next(v for v in views_of(release) if v.name == statistic.view and v.axes == statistic.axes)
    questions = tuple(AxisQuery(axis, ()) for axis in view.axes)
    plan = ViewPlan(view, questions, tuple(cells), TRUE, ((),) * len(cells))
    term = Term(statistic.measure)
    answered = answer_terms(plan, [term], tuple(index), release)
    ends = interval(Composite.of_form(one(term), answered), DEFAULT_LEVEL)
    few = is_few(term, answered)
    low, high = (
        [None if end is None else _short(end, 7) for end in nullable(np.where(few, np.nan, side))]
        for side in ends
    )
    return few, low, high
