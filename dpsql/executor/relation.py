"""A block -> the relation of its groups: the view that answers, keys, noisy values, and what their error bars need.

Every view that can answer is a candidate. The one with the narrowest 95% intervals answers, bounds of interpolation
included; ties go to the fewest cells, then to the name. Where no candidate interpolates, its predicted variance says.

| `on_partial_bin` | where a predicate or a group cuts a bin |
|---|---|
| `limit`, the default | it is interpolated; refused if more than half of any group would be |
| `interpolate` | it is interpolated, however much of the answer that is |
| `refuse` | refused |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from dpsql.catalog.base import PEOPLE
from dpsql.errors import NotSupportedError, NoViewError, PartialBinError
from dpsql.executor import small_numbers
from dpsql.executor.recombine import TermEstimates, answer_terms
from dpsql.intervals import partial_bins
from dpsql.intervals.composite import Composite, mean_half_width, mostly_bound
from dpsql.intervals.errorfunctions import FEW, ErrorFunction, nullable
from dpsql.planner import answerability, domain_values
from dpsql.planner.axis_query import AxisCells
from dpsql.planner.block import Block, CatalogValue, ErrorOf, Form, Linear, Noisy, Ratio, ShapePlans, Value
from dpsql.planner.domain_values import FUNCTIONS
from dpsql.planner.notes import (
    Note,
    absent_value_notes,
    bias_notes,
    bounding_notes,
    chosen_texts,
    counted_null_notes,
    domain_notes,
    key_text_notes,
    reported_notes,
)
from dpsql.planner.plan import (
    SAMPLE,
    Places,
    ReleaseView,
    ViewPlan,
    make_plan,
    needed_measures,
    no_view,
    place,
    predicted,
    views_of,
    wanted_view,
)
from dpsql.planner.quantiles import Prefix, quantiles, quantiles_of
from dpsql.planner.schema import TRUE, Expression, Schema, Term
from dpsql.release import Release
from dpsql.release.format import AxisMeta
from dpsql.sql.added import shifted


def choose(
    block: Block,
    terms: Sequence[Term],
    release: Release,
    schema: Schema,
    asked: partial_bins.PartialBin | None = None,
    along: Expression | None = None,
) -> ViewPlan:
    """The best plan for some terms of a block.

    Args:
        block: the block.
        terms: which terms must be answered together.
        release: an open release.
        schema: its star.
        asked: what the session does with bins that are cut.
        along: the column of a quantile, which lies inside of bins by its nature.

    Returns:
        The plan.

    Raises:
        PartialBinError: views hold what it needs, but more than half of it would be interpolated.
        NoViewError: no view has what the block needs; says what is lacking, view by view.
    """
    reasons, plans, coarse_plans = [], list[ViewPlan](), list[ViewPlan]()
    refused: PartialBinError | None = None
    candidates = partial(_candidates, block, terms, release, schema)
    plans_of_shape = block.plans or ShapePlans()
    views, lacking = plans_of_shape.once(("views", *terms), release, asked, candidates)
    for view, placed, lacks in views:
        if placed is None:
            reasons += [lacks] if lacks else []
            continue
        plan = make_plan(block, terms, view, placed, release)
        untaken = answerability.unanswerable_reason(plan, terms, release)
        if along is not None and answerability.entropy_caveat(plan, terms, release):
            untaken = (
                f"{view.name} answers three axes and more by maximum entropy, and a quantile is not a count"
            )
        if untaken:
            reasons.append(untaken)
            continue
        rule = partial_bins.partial_bin(plan, release, asked)
        if rule == "refuse" and (cut := partial_bins.axes_cut(plan, release)):
            reasons.append(f"{view.name} would cut a bin of {cut}; put the bounds on its edges")
        elif rule == "refuse" and (mixed := partial_bins.mixed_axes(plan, terms, release)):
            reasons.append(
                f"{view.name} has bins of {mixed} with several values, and would spread them evenly"
            )
        elif rule == "limit" and (refusal := partial_bins.partial_refusal(plan, terms, release, along)):
            refused = refused or answerability.unshown_refusal(plan, release) or refusal
            coarse = partial_bins.with_coarse_bins(plan, release) if along is None else None
            coarse_plans += [coarse] if coarse is not None else []
        else:
            plans.append(plan)
    reasons += [
        f"{name} has sets of up to {view.ways} of its axes" for name, view in release.catalog.views.items()
        if view.ways and view.of.lower() == block.root.lower()
    ]  # fmt: skip
    plans = plans or coarse_plans
    joins = lacking is not None and block.columns[lacking].partner
    if not plans and not joins and any(term.measure == PEOPLE for term in terms):
        raise refused or answerability.no_unit_view(block, terms, reasons, release, schema)
    if not plans:
        raise refused or no_view(block, reasons, schema, lacking, wanted_view(block, terms, release.catalog))
    if len(plans) == 1:
        return plans[0]
    spread = along is None and any(interpolates(plan, terms, release) for plan in plans)
    widths = relative_widths(block, plans, terms, release) if spread else None
    errors = widths or [predicted(plan, terms, release) for plan in plans]
    ranked = zip(errors, plans, strict=True)
    return min(
        ranked,
        key=lambda option: (
            -_steps(option[1], along, release),
            widths is None and interpolates(option[1], terms, release),
            # the variance of a biased estimate is no measure of its error, and unbiased views come first
            any(option[1].view.statistics[term.measure].biased for term in terms),
            float(f"{option[0]:.9g}"),  # views of one family tie but for rounding
            option[1].view.cells,
            option[1].view.name,
        ),
    )[1]


def interpolates(plan: ViewPlan, terms: Sequence[Term], release: Release) -> bool:
    """True if a plan spreads the rows of some bin evenly."""
    return any(cells.cut for cells in plan.cells) or bool(partial_bins.mixed_axes(plan, terms, release))


def relative_widths(
    block: Block, plans: Sequence[ViewPlan], terms: Sequence[Term], release: Release
) -> list[float] | None:
    """Mean half-widths of 95% intervals over a few groups, of each form over the least of all plans, added up.

    None where nothing lies in cut bins, as in a forecast, which has no rows.

    Args:
        block: the block.
        plans: plans that answer all of the terms.
        terms: what they answer.
        release: an open release.
    """
    subjects = dict.fromkeys(value.subject for value in block.values)
    forms = [form for form in subjects if isinstance(form, Linear | Ratio) and set(form.terms) <= set(terms)]
    widths, bounded = [], False
    for plan in plans:
        index = _group_index(block, plan)
        rows = len(index[0]) if index else 1
        few = np.unique(np.linspace(0, rows - 1, SAMPLE).astype(np.int64)) if rows else np.zeros(0, np.int64)
        answered = answer_terms(plan, terms, index, release).at(few)
        widths.append([mean_half_width(form, answered) for form in forms])
        bounded |= any(np.any(mass.most != 0) for mass in answered.cuts.values())
    if not bounded:
        return None
    least = [min(column) for column in zip(*widths, strict=True)]
    return [
        sum(1.0 if width == best else math.inf if best == 0 else width / best
            for width, best in zip(row, least, strict=True))
        for row in widths
    ]  # fmt: skip


def _candidates(
    block: Block, terms: Sequence[Term], release: Release, schema: Schema
) -> tuple[list[tuple[ReleaseView, Places | None, str]], int | None]:
    """Views that could answer some terms of a block, constants aside.

    Returns:
        Each view with the places of the block's columns, or None and what it lacks; and the number of a column that the
        last view without a column lacks.
    """
    places: list[tuple[ReleaseView, Places | None, str]] = []
    lacking: int | None = None
    for view in views_of(release):
        if view.of.lower() != block.root.lower():
            continue
        if not needed_measures(terms, view):
            cut = {s.measure for s in release.statistics if s.cut and s.view == view.name}
            measures = ", ".join(
                f"{term.measure}, whose sums did not fit 64 bits" if term.measure in cut else term.measure
                for term in terms if term.measure not in view.statistics
            )  # fmt: skip
            # that nobody's people are counted is what `no_unit_view` says first
            places.append((view, None, "" if measures == PEOPLE else f"{view.name} lacks {measures}"))
            continue
        placed = place(block, terms, view, release, schema)
        if not isinstance(placed, str):
            places.append((view, placed, ""))
            continue
        if release.declares(view.name):
            places.append((view, None, f"{view.name} lacks {placed}"))
        lacking = next((i for i, ref in enumerate(block.columns) if str(ref) == placed), lacking)
    return places, lacking


def _steps(plan: ViewPlan, along: Expression | None, release: Release) -> int:
    """Leaves of the axis that a quantile runs along: the finest tells most of it."""
    axes = [q.axis for q in plan.questions if along is not None and along in q.groups]
    return max((release.axes[axis].leaves for axis in axes), default=0)


MOST_KEPT = 2048
"""Groups whose composites are kept for further errors: some hundred kilobytes."""


@dataclass(frozen=True, eq=False)
class Relation:
    """The groups of a block.

    Args:
        block: the block.
        names, types, columns: of the relation, dp_at first.
        answered: the plans, each with the terms it answers.
        notes: what a reader should know.
        prefixes: for each quantile asked its type and every group's running counts.
        added: for each group the bits of the keys whose leaves all are such as the catalog adds: values outside of the
            domain, foreign keys without a row, NULL in a column that is not `nullable`.
        conceals: whether the rule of small numbers hides some number.
    """

    block: Block
    names: tuple[str, ...]
    types: tuple[str, ...]
    columns: tuple[list[Any], ...]
    answered: tuple[TermEstimates, ...] = ()
    notes: tuple[Note, ...] = ()
    prefixes: dict[CatalogValue, tuple[str, list[Prefix]]] = field(default_factory=dict)
    added: tuple[int, ...] = ()
    conceals: bool = False
    _composites: dict[Noisy, Composite] = field(default_factory=dict, init=False, repr=False)
    _hidden: dict[Form, small_numbers.BoolArray] = field(default_factory=dict, init=False, repr=False)

    @property
    def min_people(self) -> int:
        return self.answered[0].errors.release.min_people if self.answered else 0

    def hidden(self, form: Form) -> small_numbers.BoolArray:
        if form not in self._hidden:
            of, rows, release = self.block.root, self.answered[0].errors.rows, self.answered[0].errors.release
            prefixes = self.prefixes.get(form, ("", []))[1] if isinstance(form, CatalogValue) else []
            few = small_numbers.few_counted([prefix.counts for prefix in prefixes], of, release)
            self._hidden[form] = (
                few if prefixes else small_numbers.hidden_rows(form, self.answered_for(form), rows)
            )
        return self._hidden[form]

    @property
    def concealed(self) -> Relation:
        """The same with its hidden numbers, and their errors, NULL."""
        columns, conceals = list(self.columns), False
        for at, value in enumerate(self.block.values, 1 + len(self.block.groups)):
            if self.min_people and value.subject is not None and value.subject.is_noisy:
                columns[at] = small_numbers.without(columns[at], self.hidden(value.subject))
                conceals |= bool(self.hidden(value.subject).any())
        return replace(self, columns=tuple(columns), conceals=conceals)

    def answered_for(self, form: Value) -> TermEstimates | None:
        """The plan that holds all terms of a form, or None."""
        wanted = form.terms
        return next((a for a in self.answered if all(term in a.totals for term in wanted)), None)

    def holds(self, form: Form) -> bool:
        """True if one plan holds all of a form."""
        return not form.sides or self.answered_for(form) is not None

    def text_notes(self, compared: Sequence[tuple[int, str]], offset: int) -> Iterator[Note]:
        """Notes on texts that conditions on groups compare keys with.

        Args:
            compared: bits of the statement's keys, each with a text.
            offset: the bit of the first key.
        """
        for j, group in enumerate(self.block.groups):
            texts = [text for bits, text in compared if bits & shifted(1 << j, offset)]
            if texts and self.types[1 + j] == "VARCHAR":
                added = (bits >> j & 1 for bits in self.added)
                keys = dict(zip(self.columns[1 + j], added, strict=True))
                yield from key_text_notes(group.words(), keys, texts)

    def at(self, groups: Sequence[int]) -> Relation:
        """The same for some of its groups, by their rows; for their errors alone."""
        rows = np.array(groups, np.int64)
        prefixes = {
            form: (kind, [counts[group] for group in groups])
            for form, (kind, counts) in self.prefixes.items()
        }
        answered = tuple(terms.at(rows) for terms in self.answered)
        return replace(self, answered=answered, prefixes=prefixes)

    def errors_of(
        self, error: ErrorFunction, form: Form | None, level: float
    ) -> tuple[str, list[Any] | None]:
        """Standard error, interval end or another error of a form for each group.

        Args:
            error: which one.
            form: the form.
            level: of the interval.

        Returns:
            (DuckDB type, values); no values where the error is not defined, none of hidden numbers.
        """
        if form is not None and error is FEW:
            return error.type, small_numbers.marks(form, self.hidden(form), self.answered_for(form))
        kind, values = self._errors_of(error, form, level)
        if form is None or values is None or not self.min_people:
            return kind, values
        return kind, small_numbers.without(values, self.hidden(form))

    def _errors_of(
        self, error: ErrorFunction, form: Form | None, level: float
    ) -> tuple[str, list[Any] | None]:
        if isinstance(form, CatalogValue):
            kind, prefixes = self.prefixes.get(form, ("DOUBLE", []))
            of = error.of_quantile
            kind = kind if error.takes_level else error.type
            return kind, None if of is None or not prefixes else [
                of(prefix.ends, level) for prefix in prefixes
            ]
        answered = self.answered_for(form) if form is not None else None
        if form is None or answered is None:
            return error.type, None
        composite = self._composites.get(form) or Composite.of_form(form, answered)
        if len(composite.middle) <= MOST_KEPT:
            self._composites[form] = composite
        return error.type, error.column(composite, level)


def answer_block(
    block: Block,
    release: Release,
    schema: Schema,
    asked: partial_bins.PartialBin | None = None,
    quantile_of: Expression | None = None,
) -> Relation:
    """Answer a block.

    Args:
        block: the block.
        release: an open release.
        schema: its star.
        asked: what the session does with bins that are cut; None as the catalog says.
        quantile_of: a group expression that lies inside of bins by its nature.

    Returns:
        The relation of its groups, in catalog order.
    """
    terms = list(dict.fromkeys(term for value in block.values for term in value.terms))
    notes = reported_notes(release.meta, block)
    if not terms or (block.listing and not _answerable(block, terms, release, schema)):
        plan = domain_values.catalog_plan(block, release, schema)
        subjects = [*block.groups, *(known.expression for known in domain_values.catalog_values(block))]
        shown = ", ".join(dict.fromkeys(subject.words() for subject in subjects))
        source = f"from the catalog, no noise: {shown or 'the answer'}"
        if quantiles_of(block):
            source = "the groups come from the catalog; quantiles come from noisy counts along the axis"
        notes += [Note(source), *domain_values.reached_notes(block, schema)]
        for of in release.catalog.tables if quantiles_of(block) else ():
            notes += bounding_notes(of, release) if of.lower() == block.root.lower() else []
        if terms:
            notes.append(Note("no view can order them by a count; that order is dropped"))
        return _assemble(block, [(plan, [])], release, schema, notes, asked).concealed
    choice = partial(choose, block, release=release, schema=schema, asked=asked, along=quantile_of)
    plans = _plans(block, terms, choice)
    for plan, plan_terms in plans:
        biases = partial(bias_notes, plan, plan_terms, release)
        # Which axes a condition cuts follows from its constants.
        caveats = [
            caveat(plan, plan_terms, release)
            for caveat in (answerability.entropy_caveat, answerability.adaptive_caveat)
        ]
        question = ("biases", plan.view.name, plan.view.axes, *caveats, *plan_terms)
        notes += biases() if block.plans is None else block.plans.once(question, release, asked, biases)
    notes += domain_notes(plans[0][0], release) if quantile_of is None else []
    notes += absent_value_notes(plans[0][0], release)
    notes += counted_null_notes(block, release)
    notes += [Note(line, flag=True) for plan, _ in plans for line in partial_bins.coarse_notes(plan)]
    relation = _assemble(block, plans, release, schema, notes, asked)
    # a quantile needs the counts of all steps
    return relation if quantile_of is not None else relation.concealed


def _answerable(block: Block, terms: Sequence[Term], release: Release, schema: Schema) -> bool:
    try:
        choose(block, terms, release, schema, "interpolate")
    except NoViewError:
        return False
    return True


def _plans(
    block: Block, terms: list[Term], choice: Callable[[list[Term]], ViewPlan]
) -> list[tuple[ViewPlan, list[Term]]]:
    """One plan for all terms where there is one that cuts no bin, else one for each value."""
    shared: ViewPlan | None = None
    try:
        shared = choice(terms)
        if len(block.values) == 1 or not any(cells.cut for cells in shared.cells):
            return [(shared, terms)]
    except NoViewError:
        if len(block.values) == 1:
            raise
    planned_terms: list[tuple[ViewPlan, list[Term]]] = []
    for value in block.values:
        wanted = list(value.terms)
        if wanted and not any(set(wanted) <= set(done) for _, done in planned_terms):
            planned_terms.append((choice(wanted), wanted))
    if shared is not None and all(plan.view.name == shared.view.name for plan, _ in planned_terms):
        return [(shared, terms)]
    keys = [tuple(cells.keys for cells in plan.cells if cells.types) for plan, _ in planned_terms]
    if any(plan_keys != keys[0] for plan_keys in keys):
        if shared is not None:
            return [(shared, terms)]
        raise NotSupportedError(
            "the aggregates need views whose groups differ", hint="ask for them one by one"
        )
    return planned_terms


def _assemble(
    block: Block,
    plans: list[tuple[ViewPlan, list[Term]]],
    release: Release,
    schema: Schema,
    notes: list[Note],
    on_partial_bin: partial_bins.PartialBin | None,
) -> Relation:
    plan = plans[0][0]
    index = _group_index(block, plan)
    answered = tuple(
        answer_terms(p, t, index if p is plan else _group_index(block, p), release, block.plans)
        for p, t in plans
    )
    # the rows of a sum are added up with it, so its plan may answer a later value too
    noted: set[Term] = set()
    for a, (p, _) in zip(map(small_numbers.shown, answered), plans, strict=True):
        terms = [term for _, t in plans for term in t if term in a.totals and term not in noted]
        notes += [
            Note(line) for line in partial_bins.cut_notes(p, list(dict.fromkeys(terms)), a.cuts, release)
        ]
        if mostly_bound(block, a) and (finer := partial_bins.finer_note(p, block, terms, release)):
            notes.append(
                Note(f"the bound of interpolation is more than half of an answer: {finer}", flag=True)
            )
        noted.update(terms)
    names, types = ["dp_at"], ["BIGINT"]
    columns: list[list[Any]] = [list(range(len(index[0]) if index else 1))]
    added = np.zeros(len(columns[0]), object)  # any number of keys
    for j, group in enumerate(block.groups):
        position = next(i for i, q in enumerate(plan.questions) if group in q.groups)
        place = plan.questions[position].groups.index(group)
        keys = plan.cells[position].keys
        names.append(f"k{j}")
        types.append(plan.cells[position].types[place])
        columns.append([keys[g][place] for g in index[position]])
        is_added = _is_added(plan.cells[position], release.axes[plan.questions[position].axis])
        chosen = {text for test in plan.questions[position].filters for text in chosen_texts(test)}
        is_added &= np.array([key[place] not in chosen for key in keys], bool)
        added += is_added[index[position]].astype(object) * (1 << j)
    prefixes = _quantiles(block, columns, release, schema, on_partial_bin)
    views = dict.fromkeys((k, prefix.view) for k, (_, groups) in prefixes.items() for prefix in groups)
    if any(schema.dangles(block.root, ref) for ref in block.columns):
        notes += domain_values.key_notes(block, [p for p, _ in plans], release, schema)
    notes += domain_values.catalog_notes(block, plan, release, schema)
    notes += [Note(f"the quantile of {k.expression.words()} comes from the view {view}") for k, view in views]
    notes += [
        Note(f"{k.extreme} of {k.expression.words()} is its {100 * k.at:.0f}% quantile: one row decides an extreme")
        for k in prefixes if k.extreme
    ]  # fmt: skip
    notes += [
        Note(f"{FUNCTIONS[known.function].format(known.expression.words())} {OF_CATALOG}")
        for known in domain_values.catalog_values(block) if known.function in FUNCTIONS
    ]  # fmt: skip
    relation = Relation(block, (), (), (), answered, tuple(notes), prefixes)
    for i, value in enumerate(block.values):
        kind, column = _column(value, relation, plan, index, release, schema)
        names.append(f"v{i}")
        types.append(kind)
        columns.append(column)
    bits = tuple(added.tolist())
    return replace(relation, names=tuple(names), types=tuple(types), columns=tuple(columns), added=bits)


OF_CATALOG = "is of the values that the catalog lists, not of those that occur"


def _is_added(cells: AxisCells, axis: AxisMeta) -> np.ndarray:
    """True if all leaves of each group are such as the catalog adds; False for a group without leaves."""
    special = [leaf for leaf in (axis.missing_leaf, axis.other_leaf) if leaf is not None]
    leaves, declared = np.zeros((2, len(cells.keys)), np.int64)
    np.add.at(leaves, cells.group, 1)
    np.add.at(declared, cells.group[~np.isin(cells.leaf, special)], 1)
    return np.asarray((leaves > 0) & (declared == 0))


def _quantiles(
    block: Block,
    columns: list[list[Any]],
    release: Release,
    schema: Schema,
    on_partial_bin: partial_bins.PartialBin | None,
) -> dict[CatalogValue, tuple[str, list[Prefix]]]:
    """Running counts for every quantile that the block asks, alone or inside an error bar."""
    forms = [value.subject for value in block.values]
    keys = list(zip(*columns[1:], strict=True)) if len(columns) > 1 else [()]
    prefixes: dict[CatalogValue, tuple[str, list[Prefix]]] = {}

    def ask(block: Block, along: Expression) -> tuple[Sequence[list[Any]], Sequence[str], TermEstimates]:
        inner = answer_block(block, release, schema, on_partial_bin, along)
        return inner.columns, inner.types, inner.answered[0]

    for form in forms:
        if isinstance(form, CatalogValue) and form.function == "quantile" and form not in prefixes:
            if not any(schema.axis_columns(block.columns[c]) for c in form.expression.columns):
                raise domain_values.not_an_axis(form, block, schema)
            prefixes[form] = quantiles(form, block, keys, ask, release, schema)
    return prefixes


def _group_index(block: Block, plan: ViewPlan) -> tuple[np.ndarray, ...]:
    """For each axis the group of each row: the axes vary in the order of GROUP BY, the first slowest."""
    if not block.groups:  # one row: no axis has groups
        return tuple(np.zeros(1, np.int64) for _ in plan.cells)
    first = {}
    for position, question in enumerate(plan.questions):
        places = [block.groups.index(group) for group in question.groups]
        first[position] = min(places, default=len(block.groups) + position)
    order = sorted(first, key=lambda position: first[position])
    grids = np.indices([plan.shape[i] for i in order]).reshape(len(order), -1)
    index = [np.zeros(0, np.int64)] * len(order)
    for nth, axis in enumerate(order):
        index[axis] = grids[nth]
    if plan.boxes_of(TRUE) != [(None,) * len(plan.cells)]:
        # Groups that meet WHERE at all, where it ties several axes together.
        occupied = np.zeros(plan.shape, bool)
        for box in plan.boxes_of(TRUE):
            in_box = np.ones(plan.shape, bool)
            for axis, mask in enumerate(plan.box_masks(box)):
                along = [1] * len(plan.shape)
                along[axis] = -1
                # unlisted values that perhaps meet WHERE are shown too, with an interval that says so
                in_box &= (mask > 0).any(axis=1).reshape(along)
            occupied |= in_box
        keep = occupied[tuple(index)]
        index = [axis_index[keep] for axis_index in index]
    return tuple(index)


def _column(
    value: Value,
    relation: Relation,
    plan: ViewPlan,
    index: tuple[np.ndarray, ...],
    release: Release,
    schema: Schema,
) -> tuple[str, list[Any]]:
    """One value column: (DuckDB type, values)."""
    rows = len(index[0]) if index else 1
    if isinstance(value, ErrorOf):
        kind, errors = relation.errors_of(value.error, value.subject, value.level)
        return kind, [None] * rows if errors is None else errors
    if isinstance(value, CatalogValue):
        if value.function == "quantile":
            kind, groups = relation.prefixes[value]
            return kind, [prefix.value() for prefix in groups]
        kind, flat = domain_values.known_values(value, relation.block, plan, release, schema)
        return kind, [flat[i] for i in np.ravel_multi_index(index, plan.shape)] if index else flat[:1]
    answered = relation.answered_for(value)
    if answered is None:
        return "DOUBLE", [None] * rows
    linear = value.sides[0] if len(value.sides) == 1 else None
    central = Composite.of_form(value, answered).central() if linear is None else answered.value(linear)
    return "DOUBLE", nullable(central)
