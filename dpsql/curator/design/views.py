"""Needs -> views: two of them are one view where that errs less, and every statistic gets the budget that errs least.

Every question has the same say: what is least is the sum over questions of log E, so that no hopeless one takes the
budget of the others. E is what the planner predicts, squared and relative to what is expected to be answered: the sum
of e_m / s_m^p over the statistics that an answer is made of, at shares s_m of the budget (p is 2 for Laplace, 1 for
Gaussian noise). At the least, s_m is in proportion to the sum over questions of the part of E that comes from m. So a
view gets a share for each question that it serves, and its cost, the sum of log E less p n log n for n questions, adds
up with those of other views: one view for two is worth while where it costs less.

A round of the shares is s_m <- (s_m^p sum over q of (e_qm / s_m^p) / E_q)^(1 / (p + 1)), scaled to add up to 1. Answers
are expected to be their part of the leaves. The last choice, between views put together and views of the same columns
left apart, is made by whole catalogs, planned as they will be published.

**Privacy**: predictions follow from the catalog, from statements and from public tables.
**Source**: docs/method/views.md, "Designed for questions".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from math import log, prod
from operator import attrgetter
from typing import Any

import numpy as np

from dpsql.axis.model import CategoryRule, KeyListRule, OrderedRule
from dpsql.catalog import Catalog, made_view
from dpsql.catalog.base import COUNT, COUNTS
from dpsql.central.axes import AxisMaker
from dpsql.contributions.rehearsal import crowds
from dpsql.curator.design.axes import AxisWriter, DesignedAxis, Grain, without_unused
from dpsql.curator.design.questions import Need, ScaffoldAxis
from dpsql.curator.dry_release import Priced, dry_answerer, priced_plan
from dpsql.engines.registry import Engine
from dpsql.errors import Error, NoViewError
from dpsql.executor.engine import ReleaseEngine
from dpsql.executor.relation import choose
from dpsql.planner.block import is_summed
from dpsql.planner.plan import ViewPlan
from dpsql.planner.schema import Term
from dpsql.tree import FloatArray

MOST_CELLS = 2**21
FEW_CELLS = 2**12
"""Views without a common axis are tried together only up to so many cells."""

GROUPS = 64
"""Groups of a question whose errors are looked at."""

LEAST = 1e-9
ROUNDS = 40
"""Steps towards the best parts of measures; each brings the sum of logs down."""

ORDER = attrgetter("sql", "number")
"""Needs in the order of their statements and blocks."""

FEW_QUESTIONS = 0.1
"""The weight of a view that is asked for nothing noisy."""


@dataclass(frozen=True)
class Designed:
    """One view.

    Args:
        needs: what it serves.
        of: the table.
        axes: its axes.
            errors: for each need measure -> squared relative error at the whole budget; empty where there is no noise.
        measures: all of its measures.
        power: how fast squared errors fall with the budget.
    """

    needs: tuple[Need, ...]
    of: str
    axes: tuple[DesignedAxis, ...]
    errors: tuple[Mapping[str, float], ...]
    measures: tuple[str, ...]
    power: int

    @cached_property
    def parts(self) -> dict[str, float]:
        """Shares of the measures in the view's share."""
        noisy = [errors for errors in self.errors if errors]
        shares = dict.fromkeys(self.measures, 1 / len(self.measures))
        for _ in range(ROUNDS):
            relative_errors = dict.fromkeys(self.measures, LEAST)
            for errors in noisy:
                total = self._error(errors, shares)
                for name, error in errors.items():
                    relative_errors[name] += error / shares[name] ** self.power / total
            steps = {
                n: (relative_error * shares[n] ** self.power) ** (1 / (self.power + 1))
                for n, relative_error in relative_errors.items()
            }
            shares = {name: step / sum(steps.values()) for name, step in steps.items()}
        return shares

    @property
    def weight(self) -> float:
        """Its part of the budget, up to a factor that all views share: the questions that it serves."""
        return max(float(sum(bool(errors) for errors in self.errors)), FEW_QUESTIONS)

    @cached_property
    def cost(self) -> float:
        """Addition to the sum of log errors."""
        logs = sum(log(self._error(errors, self.parts)) for errors in self.errors if errors)
        return logs - self.power * self.weight * log(self.weight)

    def _error(self, errors: Mapping[str, float], shares: Mapping[str, float]) -> float:
        return sum(error / shares[name] ** self.power for name, error in errors.items())


class Designer(AxisWriter):
    """Plans candidate views of one catalog, each once.

    Its results are `apart`, the views before those of different axes were put together, and `refused`, needs that no
    view of their own can serve, and why.

    Args:
        catalog: the catalog; its own views play no part.
        grains: as of `AxisWriter`.
        public: its public tables.
        make: builds axes.
    """

    def __init__(
        self, catalog: Catalog, grains: Mapping[ScaffoldAxis, Grain], public: Engine, make: AxisMaker
    ) -> None:
        super().__init__(catalog, grains)
        self.public, self.make, self.apart = public, make, tuple[Designed, ...]()
        self.refused: dict[Need, str] = {}
        self._known: dict[frozenset[Need], Designed | None] = {}

    @property
    def tried(self) -> int:
        """Number of views planned."""
        return len(self._known)

    @property
    def power(self) -> int:
        """Exponent of squared errors in the budget."""
        return 1 if self.catalog.privacy.delta else 2

    def design(self, needs: Sequence[Need]) -> list[Designed]:
        """The views for some needs.

        Args:
            needs: what statements need; all of the catalog's counted tables.
        """
        groups: dict[tuple[Any, ...], list[Need]] = {}
        for need in (need for need in needs if need.measures):
            groups.setdefault((need.of, need.places), []).append(need)
        apart = [view for group in groups.values() for view in self._joined(self._alike(group))]
        listed = [need for need in needs if not need.measures]
        self.apart = (*apart, *self._for_lists(apart, listed))
        joined = self._joined(apart)
        return [*joined, *self._for_lists(joined, listed)]

    def _alike(self, needs: Sequence[Need]) -> list[Designed]:
        """A view for each set of axes that needs would have if each were alone: some ask for years, some for days."""
        groups: dict[str, list[Need]] = {}
        for need in needs:
            axes = sorted(str(axis.entry) for axis in self._axes(frozenset({need})))
            groups.setdefault(str(axes), []).append(need)
        views: list[Designed | None] = []
        for group in groups.values():
            group_view = self._view(frozenset(group))
            # None: one of them cannot be served, or not beside the others
            views += [self._view(frozenset({need})) for need in group] if group_view is None else [group_view]
        return [view for view in views if view is not None]

    def _joined(self, views: Sequence[Designed]) -> list[Designed]:
        """Views, two of them put together as long as that gains."""
        views = list(views)
        while best := self._best_pair(views):
            first, second, merged = best
            views = [view for view in views if view not in (first, second)] + [merged]
        return views

    def _best_pair(self, views: Sequence[Designed]) -> tuple[Designed, Designed, Designed] | None:
        """The two views that gain most by being one."""
        mergers = []
        for first, second in combinations(views, 2):
            if first.of != second.of:
                continue
            merged = self._merged(first, second)
            if merged is not None:
                mergers.append((first.cost + second.cost - merged.cost, first, second, merged))
        best = max(mergers, key=lambda merger: merger[0], default=None)
        return best[1:] if best is not None and best[0] > 0 else None

    def _merged(self, first: Designed, second: Designed) -> Designed | None:
        """The view that serves both, unless it is too large to be worth a try."""
        needs = frozenset((*first.needs, *second.needs))
        if needs not in self._known:
            cells = prod(axis.leaves for axis in self._axes(needs))
            common = {p for n in first.needs for p in n.places} & {p for n in second.needs for p in n.places}
            if cells > (MOST_CELLS if common else FEW_CELLS):
                self._known[needs] = None
        return self._view(needs)

    def _axes(self, needs: frozenset[Need], *, coarsest: bool = False) -> tuple[DesignedAxis, ...]:
        """The axes that all of the needs look at, each fine enough for all of them, or no finer than that."""
        columns: dict[ScaffoldAxis, frozenset[tuple[str, str]]] = {}
        for need in sorted(needs, key=ORDER):
            for p, place_columns in need.columns.items():
                columns[p] = columns.get(p, frozenset()) | place_columns
        finest = [p for p in columns if not any(self._tells(q, p, columns[p]) for q in columns if q != p)]
        ends = {p: [end for need in needs for end in need.ends.get(p, ())] for p in finest}
        # A quantile along an axis without a condition there is as fine as the leaves.
        quantiles = [need for need in needs if need.of_quantile]
        fine = {p: any(p in each.columns and not each.ends.get(p) for each in quantiles) for p in finest}
        return tuple(self.axis(p, columns[p], ends[p], coarsest=coarsest, fine=fine[p]) for p in finest)

    def _tells(self, finer: ScaffoldAxis, coarser: ScaffoldAxis, columns: frozenset[tuple[str, str]]) -> bool:
        """True if one axis has another's columns among its levels: a city's has its nation's. A join asks for none."""
        if finer.path != coarser.path or finer.column is None:
            return False
        axis = self.catalog.tables[finer.table].columns[finer.column].axis
        levels = () if axis is None else axis.levels[:-1]
        return columns <= {(finer.table, level) for level in levels}

    def _view(self, needs: frozenset[Need]) -> Designed | None:
        if needs not in self._known:
            # who is in two leaves would count twice among people: leaves may be too fine for ranges of them
            axes = self._axes(needs)
            view = self._priced_on(needs, axes)
            if view is None and not all(m.sums_rows for need in needs for m in need.measures):
                coarsest = self._axes(needs, coarsest=True)
                view = self._priced_on(needs, coarsest) if coarsest != axes else None
            for need in needs if view is not None else ():
                self.refused.pop(need, None)
            self._known[needs] = view
        return self._known[needs]

    def _priced_on(self, needs: frozenset[Need], axes: tuple[DesignedAxis, ...]) -> Designed | None:
        ordered = tuple(sorted(needs, key=ORDER))
        of = ordered[0].of
        measures = list(dict.fromkeys(m for need in ordered for m in need.measures))
        description = {"of": of, "axes": [axis.entry for axis in axes], "measures": measures, "share": "0.99"}
        try:
            alone = without_unused(
                self.catalog.model_copy(update={"views": {"one": made_view("one", description)}})
            )
            priced = priced_plan(alone, self.make)
            with dry_answerer(priced) as answerer:
                errors = QuestionErrors(answerer, weights_of(priced, crowds(alone, self.public, priced.plan)))
                need_errors = [errors.of(need) for need in ordered]
        except Error as error:
            if len(ordered) == 1:
                self.refused[ordered[0]] = str(error)
            return None  # the view cannot be planned: its needs stay apart
        scale = (0.99 / len(measures)) ** self.power
        scaled_errors = tuple({name: error * scale for name, error in each.items()} for each in need_errors)
        return Designed(ordered, of, axes, scaled_errors, tuple(measures), self.power)

    def _for_lists(self, views: Sequence[Designed], needs: Sequence[Need]) -> Iterator[Designed]:
        """Views for columns whose values are listed and which no view has."""
        view_columns = {
            c for view in views for need in view.needs for columns in need.columns.values() for c in columns
        }
        for need in needs:
            missing = {c for columns in need.columns.values() for c in columns} - view_columns
            if missing and need.of:
                axes = self._axes(frozenset({need}))
                yield Designed((need,), need.of, axes, ({},), (COUNT,), self.power)


def weights_of(priced: Priced, shares: Mapping[int, FloatArray]) -> dict[int, FloatArray]:
    """The part of the rows that each leaf is expected to have: even over values, and over keys of public tables."""
    weights = {}
    for i, planned in enumerate(priced.plan.axes):
        leaves, rule = planned.axis.leaves, planned.axis.rule
        if i in shares:
            weights[i] = shares[i]
            continue
        special = len(planned.axis.special) if isinstance(rule, CategoryRule | KeyListRule) else 0
        values = np.ones(leaves - special)
        if isinstance(rule, OrderedRule):
            values = np.diff([*rule.starts.tolist(), rule.upper + 1]).astype(np.float64)
        # NULL, MISSING and OTHER: no question is expected to be about them
        behind = np.zeros(leaves - len(values))
        weights[i] = np.concatenate([values, behind]) / values.sum()
    return weights


@dataclass(frozen=True)
class QuestionErrors:
    """Squared relative errors of questions, measure by measure: of a view alone, or of a whole release.

    Args:
        answerer: over a dry release.
        weights: axis -> part of the rows in each leaf.
    """

    answerer: ReleaseEngine
    weights: Mapping[int, FloatArray]

    def of(self, need: Need) -> dict[str, float]:
        """Measure -> squared error over squared answer, the mean over the need's values; nothing where none is noisy.

        Raises:
            NoViewError: nothing answers it.
        """
        values = [value for value in need.block.values if is_summed(value) and value.terms]
        release, schema = self.answerer.release, self.answerer.schema
        choice = partial(choose, need.block, release=release, schema=schema, asked="interpolate")
        try:
            terms = list(dict.fromkeys(term for value in values for term in value.terms))
            plans = [choice(terms)] * len(values)
        except NoViewError:  # people and sums are answered apart, as they will be
            if len(values) < 2:
                raise
            plans = [choice(list(value.terms)) for value in values]
        errors: dict[str, float] = {}
        for value, plan in zip(values, plans, strict=True):
            for term in dict.fromkeys(value.terms):
                for name, error in self._term(plan, term, mean=value.mean).items():
                    errors[name] = errors.get(name, 0.0) + error / len(values)
        return {name: error for name, error in errors.items() if error > 0}

    def _term(self, plan: ViewPlan, term: Term, *, mean: bool) -> dict[str, float]:
        """Errors of a term: its own noise, and that of the count that its centre is multiplied by."""
        release, statistic = self.answerer.release, plan.view.statistics[term.measure]
        count = plan.view.statistics.get(COUNT, statistic)  # a view of people alone has no other
        variances, counted, row_shares = np.zeros(1), np.zeros(1), np.zeros(1)
        for box in plan.boxes_of(term.condition):
            masks = _sampled(plan.by_leaf.box_masks(box))
            if masks is None:
                return {}
            axes = [self.weights[i] for i in plan.view.axes]
            row_shares = row_shares + prod(mask @ weight for mask, weight in zip(masks, axes, strict=True))
            variances = variances + release.reading(statistic.id).covariance(masks).noise
            counted = counted + release.reading(count.id).covariance(masks).noise
        occurs = row_shares > 0
        expected = float(np.sum(row_shares[occurs] ** 2))
        if expected <= 0:
            return {}
        noise, counts = float(np.sum(variances[occurs])) / expected, float(np.sum(counted[occurs])) / expected
        if term.measure in COUNTS:
            return {term.measure: noise}
        # assumed average of a value: a quarter of its range above its lower bound; never 0
        mid, reach = statistic.mid, statistic.sensitivity
        typical = (mid - reach / 2) or reach / 2 or 1.0
        centre = (typical - mid if mean else mid) / typical
        return {term.measure: noise / typical**2, COUNT: counts * centre**2}


def _sampled(masks: Sequence[FloatArray]) -> list[FloatArray] | None:
    """A few groups over all axes: the n-th of each axis, spread by different strides; None where there are none."""
    if not all(len(mask) for mask in masks):
        return None
    if not masks:  # everybody, on no axis
        return []
    number = min(GROUPS, prod(len(mask) for mask in masks))
    shape = [len(mask) for mask in masks]
    flat = np.linspace(0, prod(shape) - 1, number).astype(np.int64)
    return [mask[at] for mask, at in zip(masks, np.unravel_index(flat, shape), strict=True)]
