"""`dpsql design`: the views, cuts, measures and shares that answer some questions with the least predicted error.

    questions   statements -> what each of their numbers needs: a table, axes with the ends that are asked, measures
    axes        ends that are asked -> leaves of an axis
    views       needs -> views; two are put together where that errs less; budgets follow from errors
    text        views as a person would write them, put into the catalog's own text

Every prediction is the planner's: a candidate is planned, and a release without estimates gives the error of its
answers.

**Privacy**: a function of the catalog, of the statements and of public tables; it spends nothing. The views become
public with the release: somebody who chose the questions by what private rows hold has published that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import log, sqrt
from pathlib import Path
from typing import Any

import yaml

from dpsql.catalog import Catalog, made_view, parse_catalog
from dpsql.catalog.base import Problem
from dpsql.catalog.checks import check_catalog
from dpsql.catalog.derived import written_measure
from dpsql.catalog.graph import KeyPath, max_ids, view_axes
from dpsql.catalog.summaries import summaries_of
from dpsql.central.axes import open_public
from dpsql.central.selection import planning_maker
from dpsql.contributions.rehearsal import Guess, crowds, stated_guess
from dpsql.curator.design.axes import (
    Entry,
    grains_of,
    new_summaries,
    with_summaries,
    with_views,
    without_unused,
)
from dpsql.curator.design.questions import (
    DesignQuestion,
    Need,
    NewMeasures,
    named,
    new_measures,
    places_of,
    read_questions,
    scaffold,
    squares,
    with_measures,
    with_squares,
)
from dpsql.curator.design.views import Designed, Designer, QuestionErrors, weights_of
from dpsql.curator.dry_release import dry_answerer, priced_plan
from dpsql.engines.registry import Engine
from dpsql.errors import CatalogError, Error, InterfaceError, PrivacyError
from dpsql.executor.engine import PredictedColumn, predict
from dpsql.row_expressions import free_name

PERCENT = 100

OWN_SHARE, MOST_OWN = Fraction(1, 10), 8
"""Of the budget, for own views that a design keeps, and most of them: with an eightieth each, counts of thousands stand
out."""


@dataclass(frozen=True)
class QuestionForecast:
    """One statement under the designed views.

    Args:
        sql: the statement.
        columns: its noisy columns with their standard errors.
        relative: squared error over squared answer, its root: the part of a typical answer that noise is; None without
            a guess of how many rows there are, or without noise.
        refusal: why it is not served, or None.
    """

    sql: str
    columns: tuple[PredictedColumn, ...]
    relative: float | None
    refusal: str | None


@dataclass(frozen=True)
class CatalogDesign:
    """A designed catalog.

    Args:
        text: its YAML.
        views: name -> view, as they stand there.
        measures: table -> new measures.
        summaries: new facts about people.
        questions: the statements, in their order.
        tried: how many views were planned.
        notes: what of the catalog played no part.
    """

    text: str
    views: Mapping[str, Entry]
    measures: NewMeasures
    summaries: Mapping[str, Entry]
    questions: tuple[QuestionForecast, ...]
    tried: int
    notes: tuple[str, ...] = ()

    @property
    def served(self) -> int:
        """Number of statements with an answer."""
        return sum(question.refusal is None for question in self.questions)


Gained = tuple[NewMeasures, Mapping[str, Entry], Mapping[str, Entry]]
"""Measures and summaries that statements need and the catalog lacks; and its own views that may stay."""


def design_catalog(
    text: str, file: Path, statements: Sequence[str], guess: Guess | None, *, keep: bool = False
) -> CatalogDesign:
    """Views for some statements.

    Args:
        text: the catalog's YAML.
        file: where it lies, for relative places.
        statements: SQL.
        guess: about how many units and rows there are, in public.
        keep: whether the catalog's own views by columns that no designed view has stay; else they are replaced.

    Raises:
        InterfaceError: no statement.
        CatalogError: the catalog is wrong, or no view can be made.
    """
    if not statements:
        raise InterfaceError(
            "no question is named", hint="write statements into the workload, each ended by `;`"
        )
    original = parse_catalog(text, str(file), file)
    if original.stream is not None or (original.collection is not None and original.source is None):
        raise CatalogError(
            "views are designed for a catalog that is published at once", hint="write them by hand"
        )
    own_views = yaml.safe_load(text)["views"] if keep else {}
    gained = new_measures(original, statements), new_summaries(original, statements), own_views
    catalog = with_summaries(with_measures(original, gained[0]), gained[1])
    wanted = squares(catalog, statements)
    with closing(open_public(catalog)) as public:
        while True:
            try:
                return _designed(text, with_squares(catalog, wanted), public, statements, gained, guess)
            except (CatalogError, PrivacyError):
                # a square may have no room in its share: the widest goes first
                if not wanted:
                    raise
                wanted = wanted[:-1]


def _designed(
    text: str,
    catalog: Catalog,
    public: Engine,
    statements: Sequence[str],
    gained: Gained,
    guess: Guess | None,
) -> CatalogDesign:
    # a statement that groups rows of a fact by the person names neither her table nor her columns
    facts, unit = named(statements), catalog.privacy.unit.table
    measures, gained_summaries, own_views = gained
    of_people = [f"{unit}.{n}" for n, summary in summaries_of(catalog).items() if summary.of.lower() in facts]
    places = places_of(catalog, public, (*statements, *of_people))
    if not places:
        raise CatalogError("the statements name no column with a domain", hint="declare bounds or categories")
    rough = without_unused(scaffold(catalog, places))
    priced = priced_plan(rough, planning_maker(rough, public))
    with dry_answerer(priced) as answerer:
        axes = {places[int(s.view.rpartition(" ")[2])]: s.axes[0] for s in answerer.release.statistics}
        questions = read_questions(priced, axes, answerer, statements)
        grains = grains_of(answerer, axes)
    designer = Designer(catalog, grains, public, planning_maker(catalog, public))
    designed = designer.design([need for question in questions for need in question.needs])
    questions = tuple(_unless_refused(question, designer.refused) for question in questions)
    if not designed:
        why = next((question.refusal for question in questions if question.refusal), "nothing is asked")
        hint = next((tie for q in questions for tie in q.ties), "correct the catalog or the statements")
        raise CatalogError(f"no statement can be served: {why}"[:600], hint=hint)
    variants = _variants(written(designed), written(designer.apart), catalog)
    best = min(variants, key=lambda variant: _total(catalog, public, variant, questions))
    best = _keep_own_views(best, catalog, own_views)
    asked = {name for view in best.values() for name in view["measures"]}
    used = {table: new for table, new in measures.items() if any(f"{table}.{name}" in asked for name in new)}
    summaries, read = summaries_of(catalog), summaries_of(_with(catalog, best))
    new = {name: entry for name, entry in gained_summaries.items() if name in read}
    unused = [name for name in summaries if name not in read and name not in gained_summaries]
    foreseen = _foreseen(catalog, public, best, questions, guess)
    best = {name: _as_asked(view, catalog) for name, view in best.items()}
    new_text = with_views(text, best, used, str(unit), new, unused)
    left_out = (f"{name} is left out: no question uses it" for name in unused)
    unheard = (
        f"views.{name}: `workload` of {axis.axis} is not used; the file of questions replaces it"
        for name, view in catalog.views.items() for axis in view.axes if axis.workload
    )  # fmt: skip
    ties = dict.fromkeys(tie for question in questions for tie in question.ties)
    notes = (*unheard, *left_out, *_coarse(foreseen), *ties)
    return CatalogDesign(new_text, best, used, new, foreseen, designer.tried, notes)


def _coarse(questions: Sequence[QuestionForecast]) -> Iterator[str]:
    """Questions that a view answers by bins inside of which values differ."""
    for number, question in enumerate(questions, 1):
        for column in question.columns:
            what = f"bins of {column.mixed} with several values" if column.mixed else ""
            what = what or (f"{column.cut_bins} cut bins" if column.cut else "")
            if what:
                yield (
                    f"question {number}: {column.name} comes from {what} (view {column.view}), and its interval "
                    "includes the error of spreading them evenly; finer `cuts` narrow it"
                )


def _unless_refused(question: DesignQuestion, refused: Mapping[Need, str]) -> DesignQuestion:
    """A question that no view can serve says why."""
    why = next((refused[need] for need in question.needs if need in refused), question.refusal)
    return replace(question, refusal=why)


def written(designed: Sequence[Designed]) -> dict[str, Entry]:
    """Views with names and round shares, the largest first.

    Args:
        designed: the views.
    """
    ordered = sorted(designed, key=lambda view: -view.weight)
    shares = rounded([view.weight for view in ordered])
    views: dict[str, Entry] = {}
    for view, share in zip(ordered, shares, strict=True):
        measure_shares = rounded(list(view.parts.values()))
        even = max(measure_shares) - min(measure_shares) <= Fraction(2, PERCENT)
        measures: Any = list(view.parts)
        if not even:
            measures = {n: f"{float(p):g}" for n, p in zip(view.parts, measure_shares, strict=True)}
        axes = [axis.entry["axis"] if len(axis.entry) == 1 else axis.entry for axis in view.axes]
        description = {"of": view.of, "axes": axes, "measures": measures}
        views[_name(view, views)] = {**description, "share": f"{float(share):g}"}
    return views


def _keep_own_views(
    views: Mapping[str, Entry], catalog: Catalog, own_views: Mapping[str, Entry]
) -> Mapping[str, Entry]:
    """Designed views, and some of the catalog's own: of the same tables, by columns that they lack.

    Args:
        views: designed for the questions.
        catalog: the catalog with its own views.
        own_views: those views as they are written, the first ones the most wanted; they split `OWN_SHARE`.
    """
    designed = {column for name, view in views.items() for column in _axis_columns(catalog, name, view)}
    lacking = {name: v for name, v in own_views.items() if not _axis_columns(catalog, name, v) <= designed}
    counted, kept = {view["of"] for view in views.values()}, dict[str, Entry]()
    for name, view in lacking.items():
        own_view = {**view, "share": f"{float(OWN_SHARE / MOST_OWN):g}"}
        if view["of"] in counted and name not in views and len(kept) < MOST_OWN:
            with suppress(CatalogError):  # such as a table that designed views may not join
                _with(catalog, {**_with_shares_times(views, 1 - OWN_SHARE), name: own_view})
                kept[name] = own_view
    return {**_with_shares_times(views, 1 - OWN_SHARE * len(kept) / MOST_OWN), **kept}


def _with_shares_times(views: Mapping[str, Entry], factor: Fraction) -> dict[str, Entry]:
    """Views with so much of their declared shares."""
    shares = {name: Fraction(view["share"]) * factor for name, view in views.items() if "share" in view}
    return {
        n: {**v, "share": f"{float(shares[n]):.12g}"} if n in shares else dict(v) for n, v in views.items()
    }


def _axis_columns(catalog: Catalog, name: str, view: Entry) -> frozenset[tuple[str, KeyPath, str]]:
    """Columns of a view's axes: counted table, foreign keys, column."""
    axes = view_axes(catalog, made_view(name, view))
    return frozenset(
        (axis.of, axis.path, column)
        for axis in axes for column in (axis.column, *(c.column for c in axis.by)) if column
    )  # fmt: skip


def _as_asked(view: Entry, catalog: Catalog) -> Entry:
    """A view that asks squares of a measure, not the measure that the catalog makes of them."""
    measures = view["measures"]
    names = [written_measure(catalog.tables, name) for name in measures]
    shared = isinstance(measures, Mapping)
    return {**view, "measures": dict(zip(names, measures.values(), strict=True)) if shared else names}


def _name(view: Designed, taken: Mapping[str, Entry]) -> str:
    """The finest column of each axis, joined by `by`."""
    words = [str((axis.entry.get("by") or [axis.entry["axis"]])[-1]).rpartition(".")[2] for axis in view.axes]
    name = "_by_".join(words)
    return free_name({view_name.lower() for view_name in taken}, name, f"{view.of}_{name}")


def rounded(weights: Sequence[float]) -> list[Fraction]:
    """Parts of 1 in whole percents, none below one, that add up to at most 1; of many parts in tenths of a percent.

    >>> [str(part) for part in rounded([0.5, 0.25, 0.25001])]
    ['1/2', '1/4', '1/4']
    """
    steps = PERCENT if len(weights) <= PERCENT // 4 else 10 * PERCENT
    total = sum(weights)
    counts = [max(1, int(steps * weight / total)) for weight in weights]
    while (remaining := steps - sum(counts)) != 0:
        lacking = [steps * weight / total - count for weight, count in zip(weights, counts, strict=True)]
        at = max(range(len(counts)), key=lambda i: lacking[i] if remaining > 0 else counts[i])
        counts[at] += 1 if remaining > 0 else -1
    return [Fraction(count, steps) for count in counts]


def _variants(
    views: Mapping[str, Entry], apart: Mapping[str, Entry], catalog: Catalog
) -> list[Mapping[str, Entry]]:
    """The views joined and apart, with their shares; under a delta also without, and as cubes: the planner measures
    these together. Views apart share more axes, and are reconciled on them."""
    variants = [views, *([apart] if apart != views else [])]
    if not catalog.privacy.delta:
        # the numbers of a pure view share one draw, unless its rows are chosen or looked at
        joint = [{n: {**v, "measures": list(v["measures"])} for n, v in each.items()} for each in variants]
        return [*(variant for variant in joint if variant not in variants), *variants]
    plain, sets = (
        {name: {k: v for k, v in view.items() if k != "share"} for name, view in each.items()}
        for each in (views, apart)
    )
    cubes = _cubes(sets)
    return [*variants, plain, *([cubes] if cubes != sets else [])]


def _cubes(views: Mapping[str, Entry]) -> Mapping[str, Entry]:
    """For each table whose views have at most two axes, three axes or more together, one cube in their place, where a
    catalog may have it."""
    merged_views: dict[str, Entry] = {}
    for of in dict.fromkeys(view["of"] for view in views.values()):
        table_views = {name: view for name, view in views.items() if view["of"] == of}
        axes = list({str(axis): axis for view in table_views.values() for axis in view["axes"]}.values())
        widest = max(len(view["axes"]) for view in table_views.values())
        if len(axes) < 3 or len(table_views) < 3 or widest > 2:
            merged_views |= table_views
            continue
        measures = list(dict.fromkeys(m for view in table_views.values() for m in view["measures"]))
        cube = {"of": of, "axes": axes, "measures": measures, "ways": 2}
        try:
            made_view(f"{of}_cube", cube)
        except CatalogError:  # such as more axes than a view may have
            merged_views |= table_views
        else:
            merged_views[f"{of}_cube"] = cube
    return merged_views


def _with(catalog: Catalog, views: Mapping[str, Entry]) -> Catalog:
    """The catalog with other views, checked as a whole."""
    new_catalog = catalog.model_copy(update={"views": {n: made_view(n, v) for n, v in views.items()}})
    new_catalog = without_unused(new_catalog)
    try:
        check_catalog(new_catalog)
    except Problem as problem:
        raise CatalogError(f"{'.'.join(problem.path)}: {problem}") from None
    return new_catalog


def _total(
    catalog: Catalog, public: Engine, views: Mapping[str, Entry], questions: Sequence[DesignQuestion]
) -> tuple[int, float]:
    """Number of refused questions, and the sum of the others' log errors, after views are reconciled."""
    try:
        errors = _errors(_with(catalog, views), public, questions)
    except (CatalogError, PrivacyError):
        return len(questions) + 1, 0.0
    return errors.count(None), sum(log(error) for error in errors if error)


def _errors(catalog: Catalog, public: Engine, questions: Sequence[DesignQuestion]) -> list[float | None]:
    """Each question's squared relative error, if there were one row; None where it has none."""
    priced, found = priced_plan(catalog, planning_maker(catalog, public)), list[float | None]()
    with dry_answerer(priced) as answerer:
        errors = QuestionErrors(answerer, weights_of(priced, crowds(catalog, public, priced.plan)))
        for question in questions:
            needs = [need for need in question.needs if need.measures]
            try:
                found.append(sum(sum(errors.of(need).values()) for need in needs) if needs else None)
            except Error:
                found.append(None)  # refused: the prediction says why
    return found


def _foreseen(
    catalog: Catalog,
    public: Engine,
    views: Mapping[str, Entry],
    questions: Sequence[DesignQuestion],
    guess: Guess | None,
) -> tuple[QuestionForecast, ...]:
    new_catalog = _with(catalog, views)
    squared = _errors(new_catalog, public, questions)
    priced = priced_plan(new_catalog, planning_maker(new_catalog, public))
    forecasts = []
    guess = guess or stated_guess(new_catalog)
    means = None if guess is None else guess.means
    with dry_answerer(priced, guess=guess) as answerer:
        for question, error in zip(questions, squared, strict=True):
            columns: tuple[PredictedColumn, ...] = ()
            refusal = question.refusal
            try:
                columns = predict(answerer, question.sql, means) if refusal is None else ()
            except Error as why:
                refusal = str(why)
            relative = None
            if guess is not None and error is not None:
                relative = sqrt(error) / _crowd(new_catalog, question, guess)
            forecasts.append(QuestionForecast(question.sql, columns, relative, refusal))
    return tuple(forecasts)


def _crowd(catalog: Catalog, question: DesignQuestion, guess: Guess) -> float:
    """Expected count of everything, in the unit of predicted errors: rows, or people where they are counted;
    where publishing chooses how many rows of a unit count, errors are those of units with one row."""
    chosen = any(
        not all(m.sums_rows for m in n.measures)
        or catalog.tables[n.of].chooses_rows
        or max_ids(catalog, n.of) == 1
        for n in question.needs
    )
    of_people = catalog.privacy.unit.table is not None and chosen
    return float(guess.units if of_people else guess.rows)
