"""Budgets, estimates and noise: what the noisy integers must agree with.

| check | recomputed from |
|---|---|
| budgets of all rows | strategies and charges, in integers; then the largest path sum |
| estimates, node sums, variances | the noisy integers, by the code that publishes |
| scale of the noise | what least squares leaves unexplained, for strategies with more rows than leaves |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod, sqrt
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.inspection.replan import Replanned, only_linear
from dpsql.inspection.report import Check
from dpsql.inspection.tables import differences, read_table, same
from dpsql.mechanisms.axis.strategy import axis_budgets
from dpsql.mechanisms.central.rounding import node_sums
from dpsql.mechanisms.family.measurement import LinearRows, Terms
from dpsql.mechanisms.law import NoisyView
from dpsql.publishing.content import release_content
from dpsql.release import Release
from dpsql.tree import Tree

IntArray = npt.NDArray[np.int64]

GRAIN = 64
"""Units of 2^-20 by which another machine's floating point may move an estimate, beside a millionth of it."""

FEWEST = 223
"""Degrees of freedom below which halved noise is within `FAR`: 0.75 f / sqrt(5 f) reaches 5 at 223."""

FINE = 1 << 10
"""Parts of one in which residuals take estimates: far below any noise, and far from overflow."""

FAR = 5.0
"""Standard errors at which a noise scale counts as wrong: one correct release in a million."""


@dataclass(frozen=True)
class Stored:
    """The noisy integers of one statistic as the file holds them.

    Args:
        view: values and budgets, with the row variance that the plan gives.
        linear: their rows.
        terms: what they were drawn with.
    """

    view: NoisyView
    linear: LinearRows
    terms: Terms

    def rows(self, cells: IntArray) -> IntArray:
        """What measuring some cells would have given without noise."""
        return self.linear.measure(cells, self.terms.strategies)


def read_views(release: Release, made: Replanned) -> dict[int, Stored]:
    """The linear statistics' integers; a table of the wrong size or order is left out."""
    found = {}
    for index, linear in made.linear.items():
        statistic = made.plan.statistics[index]
        terms = statistic.terms(made.plan.axes)
        shape = linear.shape(terms.strategies)
        columns = read_table(release, f"measurement_{index}")
        order = [np.broadcast_to(each, shape).ravel() for each in np.indices(shape, sparse=True)]
        if len(columns["value"]) != prod(shape) or any(
            not np.array_equal(columns[f"r{i + 1}"], each) for i, each in enumerate(order)
        ):
            continue
        variance = statistic.measurement.unit_variance(terms)
        value, budget = (columns[name].astype(np.int64).reshape(shape) for name in ("value", "budget"))
        found[index] = Stored(NoisyView(value, budget, variance, terms.sensitivity), linear, terms)
    return found


def check_budgets(release: Release, made: Replanned, stored: dict[int, Stored]) -> Iterator[Check]:
    """Row counts, row budgets and path sums in integers; charges in fractions."""
    lacking = [f"measurement_{i}" for i in made.linear if i not in stored]
    yield Check("as many noisy integers as planned, in order", not lacking, ", ".join(lacking))
    wrong, over = [], []
    for index, each in stored.items():
        terms, budget = each.terms, each.view.budget
        cap = terms.law.column_cap(axis_budgets(terms.strategies), terms.spend, terms.sensitivity)
        if not np.array_equal(budget, each.linear.budgets(terms)):
            wrong.append(f"measurement_{index}")
        if each.linear.largest_column(budget, terms) > cap:
            over.append(f"measurement_{index}")
    yield Check("row budgets are those of the plan", not wrong, ", ".join(wrong))
    yield Check("no path of row budgets spends more than its view's part", not over, ", ".join(over))
    yield _check_spends(release, made)


def _check_spends(release: Release, made: Replanned) -> Check:
    planned = [[purpose, str(charge)] for purpose, charge in made.plan.lines]
    total = sum((Fraction(charge) for _, charge in release.meta["spends"]), Fraction(0))
    promise = release.meta["privacy"]
    claimed = Fraction(promise.get("rho", promise["epsilon"]))
    good = release.meta["spends"] == planned and total == claimed
    return Check(
        "the parts of the budget add up to the promise", good, f"{float(total):g} of {float(claimed):g}"
    )


def check_estimates(release: Release, made: Replanned, stored: dict[int, Stored]) -> Iterator[Check]:
    """Estimates, variances and meta are what publishing makes of these integers."""
    with duckdb.connect(":memory:") as scratch:
        plan, identity = only_linear(made), str(release.meta["release_id"])
        views = [stored[i].view for i in made.linear if i in stored]
        if len(views) != len(made.linear) or not views:
            yield Check("estimates follow from the noisy integers", None, "no statistic can be recomputed")
            return
        content = release_content(
            plan, views, scratch, identity, insecure=bool(release.meta["insecure_entropy"])
        )
    wrong = []
    for index, statistic in zip(made.linear, content.statistics, strict=True):
        columns = read_table(release, f"node_combination_{index}")
        pairs = [("estimate", statistic.nodes), ("nonnegative", statistic.nonnegative)]
        if any(values is not None and not _near(columns.get(name), values.ravel()) for name, values in pairs):
            wrong.append(f"node_combination_{index}")
    yield Check("estimates follow from the noisy integers", not wrong, ", ".join(wrong))
    used = {axis for i in made.linear for axis in made.plan.statistics[i].axes}
    used |= {s["joint"] for s in content.meta["statistics"] if s["joint"] is not None}
    models = [k for k in used if not same(read_table(release, f"variance_{k}"), content.models[k].columns())]
    yield Check(
        "variance models follow from the catalog", not models, ", ".join(f"variance_{k}" for k in models)
    )
    yield _check_meta(release, made, content.meta)


def _near(stored: npt.NDArray[np.generic] | None, made: IntArray) -> bool:
    if stored is None or stored.shape != made.shape:
        return False
    return bool(np.all(np.abs(stored.astype(np.float64) - made) <= GRAIN + 1e-6 * np.abs(made)))


def _check_meta(release: Release, made: Replanned, meta: Mapping[str, Any]) -> Check:
    """The promise and every entry about a recomputable statistic or an axis of the catalog."""
    wrong: list[str] = []
    if len(made.linear) == len(made.plan.statistics):
        wrong += differences(release.meta["privacy"], meta["privacy"], "privacy")
    for position, index in enumerate(made.linear):
        expected = meta["statistics"][position] | {"id": index}
        wrong += differences(release.meta["statistics"][index], expected, f"statistics.{index}")
    for i in {axis for s in made.linear for axis in made.plan.statistics[s].axes} - made.borrowed:
        wrong += differences(release.meta["axes"][i], meta["axes"][i], f"axes.{i}")
    return Check("meta follows from the catalog", not wrong, ", ".join(wrong[:5]))


def check_sums(release: Release) -> Check:
    """Inner nodes are sums of leaves, of every statistic."""
    wrong = []
    for index, statistic in enumerate(release.statistics):
        trees = [release.tree(axis) for axis in statistic.axes]
        columns = read_table(release, f"node_combination_{index}")
        shape = tuple(tree.size for tree in trees)
        for name in ("estimate", "nonnegative") if statistic.nonnegative else ("estimate",):
            values = columns[name].astype(np.int64)
            if values.size != prod(shape) or not _adds_up(values.reshape(shape), trees):
                wrong.append(f"node_combination_{index}.{name}")
    return Check("inner nodes are sums of their leaves", not wrong, ", ".join(wrong))


def _adds_up(nodes: IntArray, trees: Sequence[Tree]) -> bool:
    leaves = nodes[np.ix_(*(tree.leaves for tree in trees))]
    return bool(np.array_equal(node_sums(leaves, trees), nodes))


def check_noise(stored: dict[int, Stored]) -> Check:
    """What least squares leaves unexplained has the size that the budgets promise."""
    squares, freedom = 0.0, 0
    for each in stored.values():
        spare = each.view.value.size - prod(strategy.leaves for strategy in each.terms.strategies)
        if spare > 0:
            squares += _unexplained(each)
            freedom += spare
    what = "the noise has its promised size"
    if freedom == 0:
        return Check(what, None, "no rows beyond the leaves to tell it by")
    off = (squares - freedom) / sqrt(5 * freedom)  # Laplace: variance of a square is 5, not 2
    detail = f"{sqrt(squares / freedom):.3f} of the promised scale over {freedom} degrees of freedom"
    if freedom < FEWEST:
        return Check(what, None, f"{detail}, too few to tell")
    return Check(what, abs(off) < FAR, detail)


def _unexplained(stored: Stored) -> float:
    """Squared residuals of least squares over their variances; estimates are taken to 2^-10 in integers."""
    leaves = stored.linear.leaf_estimates(stored.view, stored.terms.strategies)
    whole = np.rint(leaves).astype(np.int64)
    rest = np.rint((leaves - whole) * FINE).astype(np.int64)
    left = stored.view.value.astype(np.float64)
    for part, unit in ((whole, 1), (rest, FINE)):
        left = left - stored.rows(part) / unit
    return float(
        np.sum((left * stored.linear.weights(stored.terms.strategies)) ** 2) / stored.view.unit_variance
    )
