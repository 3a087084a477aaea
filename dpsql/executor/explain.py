"""A statement's plan: numbered stages in words, the DuckDB statements last; and as a value that adds up to the answer.

**Privacy**: post-processing of a release.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from dpsql.executor import small_numbers
from dpsql.executor.recombine import AxisNodes, BoxQuery, TermEstimates, axis_nodes, runs
from dpsql.executor.relation import Relation
from dpsql.executor.run import run
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, PARTS, STDERR, nullable
from dpsql.intervals.linear import covariance
from dpsql.intervals.partial_bins import interpolated
from dpsql.intervals.reads import reads
from dpsql.planner.answerability import listed_words
from dpsql.planner.axis_query import AxisCells, masks
from dpsql.planner.block import Block, Linear, Noisy, is_summed, one
from dpsql.planner.schema import TRUE, Condition, Every, Predicate, Some, Term
from dpsql.release import Release, StatisticMeta
from dpsql.release.format import UNIT

MOST_NODES = 1 << 14
"""Node combinations of one sum that `explain --json` lists: some megabytes of text."""
MOST_WORDS = 8
"""Nodes of an axis that words name."""
NOTHING = 1e-9
"""Part of a variance that is rounding."""


def condition_words(condition: Condition) -> str:
    """A condition in words."""
    if isinstance(condition, Predicate):
        text = condition.expression.words()
        return f"not true: {text}" if condition.negated else text
    if isinstance(condition, (Every, Some)):
        word = " and " if isinstance(condition, Every) else " or "
        return "(" + word.join(condition_words(operand) for operand in condition.parts) + ")"
    return "every row" if condition.value else "no row"


def explain_relation(number: int, relation: Relation, release: Release) -> tuple[list[str], list[str]]:
    """The stages of one block.

    Args:
        number: the block's number.
        relation: its answer.
        release: the release.

    Returns:
        Lines in words, and the DuckDB statements that ran.
    """
    block = relation.block
    joins = ", ".join(".".join(path) for path in block.joins)
    lines = [f"block {number}: rows of {block.root}" + (f", joined along {joins}" if joins else "")]
    if block.columns:
        lines.append(f"condition: {condition_words(block.where)}")
    if block.groups:
        lines.append(f"grouped by {', '.join(group.words() for group in block.groups)}")
    lines += [note.text for note in relation.notes]
    for answered in map(small_numbers.shown, relation.answered):
        lines += _plan_words(answered, block, release)
    return lines, [lookup.sql for answered in relation.answered for lookup in answered.lookups]


def _plan_words(answered: TermEstimates, block: Block, release: Release) -> list[str]:
    plan = answered.plan
    view = plan.view
    if not view.statistics:
        return []
    axes = ", ".join(release.axes[i].name for i in view.axes) or "no axis"
    lines = [f"view {view.name}: {view.cells} cells over {axes}"]
    cut = interpolated(plan, list(answered.totals), release)
    sums = sums_of(answered, next(iter(answered.totals)), release) if answered.totals else []
    for position, axis in enumerate(view.axes):
        words = cells_words(plan.cells[position])
        if position in cut:
            bins, share = cut[position]
            words += f" ({bins} bin{'s' * (bins > 1)} cut: {share:.0%} of what is taken is interpolated)"
        nodes = (
            _nodes_words(axis_nodes_json(sums[0], position, release), plan.cells[position]) if sums else ""
        )
        lines.append(f"axis {release.axes[axis].name}: {words}{nodes}")
    lines += listed_words(release, view)
    lines += [_noise_words(noise) for noise in noise_json(answered, release)]
    for form, numbers in composites(answered, block):
        value = value_words(form)
        lines.append(_error_words(value, error_json(value, numbers, release)))
        if np.any(np.isinf(STDERR.values(numbers, DEFAULT_LEVEL))):
            lines.append(f"{value}: intervals have an open end, nothing bounds the error")
    return lines


NodeSum = tuple[int, float, tuple[AxisNodes, ...]]
"""Node combinations whose stored estimates, times their weights, add up to a part of a term: id of the statistic,
factor of the estimates in the term's units, and the nodes of each axis."""


def sums_of(answered: TermEstimates, term: Term, release: Release) -> list[NodeSum]:
    """The sums of nodes that a term is made of; none where it is fitted, and no sum of what is stored."""
    plan, sums = answered.plan, list[NodeSum]()
    # as totals are added up: a centre of the noise alone is for errors
    statistics = {m: replace(statistic, noise_mid=None) for m, statistic in plan.view.statistics.items()}
    for read in reads(replace(plan, view=replace(plan.view, statistics=statistics)), term):
        masks, fitted = plan.box_masks(read.box), release.fitted(read.statistic)
        if fitted is not None and not fitted.takes([masks]):
            return []
        query = BoxQuery([read.statistic], [read.box], [release.reading(read.statistic).stored(masks)])
        axes = tuple(axis_nodes(plan, i, query, release) for i in range(len(plan.cells)))
        sums.append((read.statistic, read.factor * release.statistics[read.statistic].step, axes))
    return sums


def axis_nodes_json(node_sum: NodeSum, position: int, release: Release) -> list[dict[str, Any]]:
    """The nodes of one axis of a sum: interval of leaves, level, weight, and whether the node was measured.

    `measured` is null where the strategy's rows are no single intervals.
    """
    number, _, axes = node_sum
    statistic, nodes = release.statistics[number], axes[position].nodes
    groups, weights = nodes.group.tolist(), nodes.weight.tolist()
    if position in release.reading(number).listed:
        return [
            {"group": g, "number": n, "weight": w}
            for g, n, w in zip(groups, nodes.node.tolist(), weights, strict=True)
        ]
    tree, drawn = release.tree(statistic.axes[position]), None
    if len(statistic.models) == len(statistic.axes):
        drawn = release.measured(statistic.models[position])
    return [
        {
            "group": g, "from": (lo := int(tree.lo[node])), "to": (hi := int(tree.hi[node])),
            "level": int(tree.level[node]), "weight": w, "measured": None if drawn is None else (lo, hi) in drawn,
        }
        for g, node, w in zip(groups, nodes.node.tolist(), weights, strict=True)
    ]  # fmt: skip


def _nodes_words(nodes: Sequence[Mapping[str, Any]], cells: AxisCells) -> str:
    """The nodes of the first group that has any, and how many of all look-up nodes nobody measured."""
    intervals = [node for node in nodes if "from" in node]
    if not intervals:
        return ""
    group = min(node["group"] for node in intervals)
    first = sorted((n for n in intervals if n["group"] == group), key=lambda node: int(node["from"]))
    words = [
        (f"{node['weight']:.3g} x " if node["weight"] != 1 else "")
        + f"[{node['from']}, {node['to']}) at level {node['level']}"
        for node in first[:MOST_WORDS]
    ]
    words += [".."] if len(first) > MOST_WORDS else []
    unmeasured = sum(node["measured"] is False for node in intervals)
    named = f"; {_key_words(cells.keys[group])}" if cells.types else ""
    noted = f"; {unmeasured} of {len(intervals)} nodes were not measured: they are sums of others"
    return f"{named} = {' + '.join(words)}" + (noted if unmeasured else "")


def noise_json(answered: TermEstimates, release: Release) -> list[dict[str, Any]]:
    """The noise of the statistics that are read, those of one strategy, budget and currency together."""
    drawn: dict[tuple[str, str, str], list[StatisticMeta]] = {}
    for statistic in (release.statistics[each] for each in answered.wanted):
        drawn.setdefault((statistic.mechanism, statistic.currency, statistic.budget), []).append(statistic)
    return [
        {
            "measures": [statistic.measure for statistic in statistics],
            "noise": mechanism,
            currency: float(Fraction(budget)),
            **({} if release.meta.local else _unit_noise(statistics)),
        }
        for (mechanism, currency, budget), statistics in drawn.items()
    ]  # fmt: skip


def _unit_noise(statistics: Sequence[StatisticMeta]) -> dict[str, list[float]]:
    """Sensitivities, and scales of a measured row that has all of the budget: sensitivity over epsilon or mu."""
    budget = float(Fraction(statistics[0].budget))
    unit = budget if statistics[0].currency == "epsilon" else math.sqrt(budget)
    sensitivity = [statistic.sensitivity / 10**statistic.scale for statistic in statistics]
    return {"sensitivity": sensitivity, "scale": [each / unit for each in sensitivity]}


def _noise_words(noise: Mapping[str, Any]) -> str:
    currency = "epsilon" if "epsilon" in noise else "mu2"
    words = f"noise of {', '.join(noise['measures'])}: {noise['noise']}; {currency} {noise[currency]:.4g}"
    if "scale" not in noise:
        return words
    sensitivities, scales = (
        ", ".join(f"{number:.6g}" for number in noise[key]) for key in ("sensitivity", "scale")
    )
    return f"{words}, sensitivity {sensitivities}, scale {scales} at the whole budget"


def composites(answered: TermEstimates, block: Block) -> Iterator[tuple[Noisy, Composite]]:
    """The values of a block that a plan answers, each once, with their numbers."""
    for value in dict.fromkeys(value for value in block.values if is_summed(value)):
        if value.terms and all(term in answered.totals for term in value.terms):
            yield value, Composite.of_form(value, answered)


def value_words(form: Noisy) -> str:
    """A value as a formula of terms."""
    if len(form.sides) == 1:
        return _side_words(form.sides[0])
    above, below = form.sides
    return f"({_side_words(above)}) / ({_side_words(below)})"


def _side_words(side: Linear) -> str:
    summands = [
        ("" if weight == 1 else f"{weight:g} ")
        + str(term)
        + ("" if term.condition == TRUE else f" where {condition_words(term.condition)}")
        for term, weight in side.weights
    ]
    return " + ".join(summands + ([f"{side.constant:g}"] if side.constant or not summands else []))


def error_json(value: str, numbers: Composite, release: Release) -> dict[str, Any]:
    """The error of a value in every group: half of its interval over 1.96, and the variance by components.

    The noise's variance is the sum of each statistic's, and of what two of one release have in common.
    """
    moved = (
        numbers.quotient.reads() if numbers.by_sides and numbers.quotient is not None else numbers.slope.reads
    )
    statistics = dict.fromkeys(source.statistic for source in moved)
    components = {}
    for statistic in statistics:
        of_one = {source: weights for source, weights in moved.items() if source.statistic == statistic}
        name = f"noise of {release.statistics[statistic].measure}"
        components[name] = covariance(of_one, of_one, len(numbers.middle)).noise
    if numbers.slope.weight_variance is not None:
        components["rows a person"] = numbers.slope.weight_variance
    whole = PARTS["noise"].values(numbers, DEFAULT_LEVEL) ** 2
    components["noise in common"] = whole - sum(components.values())
    components = {name: v for name, v in components.items() if np.any(np.abs(v) > NOTHING * np.abs(whole))}
    for name in ("scale", "spread", "tail", "within_leaf"):
        variance = PARTS[name].values(numbers, DEFAULT_LEVEL) ** 2
        if np.any(np.nan_to_num(variance) != 0):
            components[name.replace("_", " ")] = variance
    interpolation_bound = numbers.interpolation_bound()
    return {
        "value": value, "half of the 95% interval / 1.96": nullable(STDERR.values(numbers, DEFAULT_LEVEL)),
        "variance": {name: nullable(variance) for name, variance in components.items()},
        **({"cut bins": nullable(interpolation_bound)} if np.any(interpolation_bound != 0) else {}),
    }  # fmt: skip


def _error_words(value: str, error: Mapping[str, Any]) -> str:
    variance = " + ".join(f"{_span(numbers)} {name}" for name, numbers in error["variance"].items()) or "0"
    cut = f"; cut bins move it by up to {_span(error['cut bins'])}" if "cut bins" in error else ""
    return (
        f"{value}: half of the 95% interval / 1.96 is {_span(error['half of the 95% interval / 1.96'])}; "
        f"variance = {variance}{cut}"
    )


def _span(numbers: Sequence[float | None]) -> str:
    """The least and the largest number, once where they are one."""
    known = [number for number in numbers if number is not None]
    if not known:
        return "NULL"
    low, high = (f"{number:.6g}" for number in (min(known), max(known)))
    return low if low == high else f"{low} to {high}"


def decomposition(number: int, relation: Relation, release: Release) -> dict[str, Any]:
    """The plan of one block as a value: what the words say, and every node with its stored estimate.

    A term in a row is the sum over its `sums` of factor times the sum of weight times estimate of the row's nodes; a
    value is its constant and its terms times their weights, or one such sum over another; `columns` and the keys of
    `rows` are what the last DuckDB statement calls them. `nodes` is null where a
    term has more than `MOST_NODES`, and `sums` is empty where a term is fitted and no sum.

    Args:
        number: the block's number.
        relation: its answer.
        release: the release.
    """
    block, views = relation.block, []
    keys = [f"k{i}" for i in range(len(block.groups))]
    columns = [relation.columns[relation.names.index(key)] for key in keys]
    for answered in relation.answered:
        if not answered.plan.view.statistics:
            continue
        terms = list(answered.totals)
        numbered = {term: i for i, term in enumerate(terms)}
        values = [
            {
                "columns": [f"v{i}" for i, each in enumerate(block.values) if each == value],
                "sides": [
                    {"constant": side.constant, "terms": [[numbered[term], weight] for term, weight in side.weights]}
                    for side in value.sides
                ],
            }
            | error_json(value_words(value), numbers, release)
            for value, numbers in composites(answered, block) if not relation.conceals
        ]  # fmt: skip
        views.append({
            "view": answered.plan.view.name,
            "noise": noise_json(answered, release),
            "terms": [
                {
                    "term": _side_words(one(term)),
                    "sums": [_sum_json(each, answered, release) for each in sums_of(answered, term, release)],
                }
                for term in terms
            ],
            "values": values,
        })  # fmt: skip
    return {
        "block": number, "table": block.root, "joined": [".".join(path) for path in block.joins],
        "condition": condition_words(block.where), "grouped by": [group.words() for group in block.groups],
        "rows": [dict(zip(keys, map(str, row), strict=True)) for row in zip(*columns, strict=True)], "views": views,
    }  # fmt: skip


def _sum_json(node_sum: NodeSum, answered: TermEstimates, release: Release) -> dict[str, Any]:
    statistic, factor, nodes_of_axes = node_sum
    axes = [axis_nodes_json(node_sum, i, release) for i in range(len(nodes_of_axes))]
    return {
        "measure": release.statistics[statistic].measure, "factor": factor,
        "axes": [
            {"axis": release.axes[axis].name, "leaves": release.axes[axis].leaves, "nodes": nodes}
            for axis, nodes in zip(answered.plan.view.axes, axes, strict=True)
        ],
        "nodes": _combinations(node_sum, answered, release),
    }  # fmt: skip


def _combinations(
    node_sum: NodeSum, answered: TermEstimates, release: Release
) -> list[dict[str, Any]] | None:
    """The node combinations of every row: places in the axes' lists, weight, and the stored estimate."""
    statistic, _, axes = node_sum
    index, lists = answered.errors.index, [axis.nodes for axis in axes]
    places = [
        [np.flatnonzero(nodes.group == g) for g in range(axis.groups)]
        for nodes, axis in zip(lists, axes, strict=True)
    ]
    rows = [
        [of_axis[i[row]] for of_axis, i in zip(places, index, strict=True)]
        for row in range(answered.errors.rows)
    ]
    # a node may be of fewer people than the answer that it is a part of
    if release.min_people or sum(math.prod(len(each) for each in row) for row in rows) > MOST_NODES:
        return None
    # a combination without a line has the estimate 0
    columns = [f"n{i + 1}" for i in range(len(axes))]
    wanted = [np.unique(axis.nodes.node).tolist() for axis in axes]
    where = " AND ".join(f"{column} IN (SELECT unnest(?::INTEGER[]))" for column in columns)
    picked = ", ".join([*columns, release.estimate(statistic)])
    sql = f"SELECT {picked} FROM node_combination_{statistic} WHERE {where or 'true'}"
    found: dict[tuple[int, ...], float] = defaultdict(float)
    found.update({row[:-1]: row[-1] / UNIT for row in run(release, sql, wanted).rows})
    return [
        {
            "row": r, "nodes": [int(place) for place in combination],
            "weight": math.prod(float(nodes.weight[p]) for nodes, p in zip(lists, combination, strict=True)),
            "estimate": found[tuple(int(nodes.node[p]) for nodes, p in zip(lists, combination, strict=True))],
        }
        for r, row in enumerate(rows) for combination in product(*row)
    ]  # fmt: skip


def cells_words(cells: AxisCells, most: int = 6) -> str:
    """Leaf intervals of each group, the first few."""
    mask = masks(cells, None)
    row, *ends = runs(mask > 0)
    start, stop = map(cells.place, ends)
    names = [f"{_key_words(key)}: " if cells.types else "" for key in cells.keys]
    spans = [f"{names[r]}[{a}, {b})" for r, a, b in zip(row, start, stop, strict=True)]
    remainder = f" and {len(spans) - most} more" if len(spans) > most else ""
    return (", ".join(spans[:most]) or "no leaf") + remainder + f" of {cells.leaves} leaves"


def _key_words(key: Sequence[Any]) -> str:
    """A group's values."""
    return ", ".join("NULL" if value is None else str(value) for value in key)
