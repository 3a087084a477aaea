"""Caveats that no interval expresses: the population of an answer, and possible bias.

**Whom.** A central release counts the rows that its curator holds. A local one counts the people who reported, exactly
and without a word about the others: with 10,000 reports of 50,000 people COUNT(*) is 10,000 with an error of 0. Its
catalog says whom they stand for (`participation:` under `collection:`). As they are, reports of

| word | who reported | stands for everybody in |
|---|---|---|
| `all` | everybody of the population | every answer |
| `random` | a random sample | averages, shares and quantiles |
| `unknown` | nobody says | nothing |

Counts and sums of a random sample are scaled to everybody where their number is known (`dpsql.federation.population`).

**Bias.** Tables with `max_ids: auto` publish weighted shapes and one common factor. The factor puts back what weighting
left out of the table as a whole; a group whose units own more or fewer rows than others stays off by some of it.

Texts in conditions that no leaf of an axis lists: an answer of 0 with the spelling that was probably meant.

`region = 'Scotlnd'` is 0 by the catalog, without noise, and looks like an answer about Scotland.

**Privacy**: functions of the statement, of public axis tables and of lists of keys that were published.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import NamedTuple

from dpsql.catalog.columns import NONRESPONSES
from dpsql.catalog.summaries import counts_for
from dpsql.executor.run import run
from dpsql.intervals.reads import weight_error
from dpsql.planner.answerability import adaptive_caveat, entropy_caveat, overlap_caveat
from dpsql.planner.block import Block
from dpsql.planner.leaf_values import AxisQuery
from dpsql.planner.plan import ViewPlan
from dpsql.planner.schema import Expression, Predicate, Term
from dpsql.release import Release
from dpsql.release.format import OTHER, AxisMeta, ColumnMeta, MeasureScale, Meta, RowsBeyondBound, ScaleMeta
from dpsql.row_expressions import identifier


class Note(NamedTuple):
    """A sentence under an answer; a flag is one without which its numbers would be misread."""

    text: str
    flag: bool = False


class Reads(Enum):
    """Views, measures and axes that a statement reads from a release."""

    CATALOG = "public facts alone"
    AVERAGES = "averages, shares and quantiles alone"
    TOTALS = "counts or sums"


class ParticipationNote(NamedTuple):
    """Population that the reports of a local release represent.

    Args:
        word: the catalog's.
        note: under every answer, but for what the catalog alone says.
        everybody: what stands for everybody of the population.
    """

    word: str
    note: str
    everybody: frozenset[Reads]


PARTICIPATIONS = {participation.word: participation for participation in (
    ParticipationNote("all", "of the {} who reported: everybody, by the catalog", frozenset(Reads)),
    ParticipationNote(
        "random", "of the {} who reported, not of everybody: a random sample, by the catalog",
        frozenset((Reads.CATALOG, Reads.AVERAGES)),
    ),
    ParticipationNote("unknown", "of the {} who reported, not of everybody", frozenset((Reads.CATALOG,))),
)}  # fmt: skip
"""Every participation by its word."""


def reads_of(blocks: Iterable[Block]) -> Reads:
    """Collect what the aggregate blocks of a statement read from a release.

    Arithmetic outside of a block is not looked at: a share that the outer statement works out reads counts.
    """
    values = [value.subject for block in blocks for value in block.values]
    noisy = [value for value in values if value is not None and value.is_noisy]
    if not noisy:
        return Reads.CATALOG
    return Reads.AVERAGES if all(value.scale_free for value in noisy) else Reads.TOTALS


def reported_notes(meta: Meta, block: Block) -> list[Note]:
    """Notes on whom a block's numbers are about; none for a central release."""
    if meta.local is None or reads_of([block]) is Reads.CATALOG:
        return []
    stands_for, reported = meta.local.stands_for, f"{meta.local.reporters:,}"
    if stands_for is None:
        return [Note(PARTICIPATIONS[meta.local.participation].note.format(reported), flag=True)]
    rows = f"{stands_for.rows:,.0f}" + (f" +- {stands_for.error:,.0f}" if stands_for.error else "")
    if stands_for.margins:
        margins = f"weighted to the margins of {' and '.join(stands_for.margins)} in {stands_for.source}"
        caveat = "right only where the respondents of a group represent everybody in it"
        whom = "respondents of a random sample" if stands_for.random else "respondents, not a random sample"
        return [Note(f"of everybody: {reported} {whom}, {margins}; {caveat}", flag=True)]
    return [
        Note(
            f"of everybody: shares of a random sample of {reported}, times {rows} rows ({stands_for.source})",
            flag=True,
        )
    ]


def domain_notes(plan: ViewPlan, release: Release) -> list[Note]:
    """Notes on groups of values outside the domain: numbers and times have no label for them but NULL."""
    columns, never = [], []
    for question, cells in zip(plan.questions, plan.cells, strict=True):
        axis = release.axes[question.axis]
        if axis.null_leaf is None and axis.other_leaf is not None and _asks_null(question, axis):
            never.append(f"{axis.table}.{axis.columns[0].column}")
        if question.groups and axis.other_leaf in cells.leaf and axis.columns[0].type != "VARCHAR":
            columns.append(f"{axis.table}.{axis.columns[0].column}")
    lines = (
        (columns, "groups without a value of {} also contain values outside the catalog's domain"),
        (never, "the catalog declares {} never NULL; NULLs count as values outside the domain"),
    )
    return [Note(line.format(" and ".join(names))) for names, line in lines if names]


def counted_null_notes(block: Block, release: Release) -> list[Note]:
    """COUNT of a column that the catalog calls never NULL counts rows: publishing gives those with NULL a place too."""
    measures = {statistic.measure for statistic in release.statistics}
    summed = ", and its sums and averages use the middle of its bounds for them"
    return [
        Note(
            f"the catalog declares {column} never NULL; COUNT({column}) counts NULLs too"
            + (summed if column in measures else "")
        )
        for column in block.never_null
    ]


def _asks_null(question: AxisQuery, axis: AxisMeta) -> bool:
    """True if a condition asks for NULL in the axis's own column."""
    own = {number for number, name in question.columns if name == axis.columns[0].name}
    own -= {number for number, _ in question.partners}
    asked = (predicate.expression for predicate in (*question.filters, *question.classes))
    return any(expression.of_null and expression.columns <= own for expression in asked)


def channel_notes(plan: ViewPlan, release: Release) -> list[Note]:
    """Population of answers from a view with a reported attribute."""
    columns = {f"{release.axes[i].table}.{release.axes[i].columns[0].column}" for i in plan.view.axes}
    return [
        Note(
            f"{column.column} is what people's devices reported (epsilon {column.epsilon_local} towards the curator); "
            "answers about it are of those who reported, the others are where it IS NULL"
            + NONRESPONSES[column.nonresponse].note
        )
        for column in release.meta.reported if column.column in columns
    ]  # fmt: skip


def scale_notes(plan: ViewPlan, terms: Sequence[Term], release: Release) -> list[Note]:
    """Notes on how a view was scaled, and on rows beyond the contribution bound.

    Args:
        plan: the plan.
        terms: what is read.
        release: says what the scale is.
    """
    scale = release.scales.get(plan.view.of)
    if scale is None or not any(term.measure.sums_rows for term in terms):
        return []
    unit = release.meta.privacy.unit.partition(".")[0]
    notes = [Note(_factors(scale, unit, bool(weight_error(release))))]
    notes += [Note(line, flag=True) for line in _open(scale, terms)]
    notes += [Note(line) for line in _hidden(scale, unit)]
    beyond = 1 - 1 / scale.measure("").factor
    if beyond > WORTH_A_NOTE:
        notes.append(
            Note(
                f"about {beyond:.0%} of the rows of {scale.of} were excluded by weights; a group may have none of them "
                "or more than twice its share"
            )
        )
    return notes


def _open(scale: ScaleMeta, terms: Sequence[Term]) -> Iterator[str]:
    """Reasons why intervals of totals and averages have no upper end."""
    for factor in dict.fromkeys(scale.measure(term.measure) for term in terms):
        if None in (factor.error.up, factor.mean_error.up):
            summed = factor.measure and not factor.measure.is_count
            aggregates = f"sums of {factor.measure}" if summed else "counts and sums"
            yield (
                f"{scale.of}: too few people for the noise: intervals of {aggregates} have a lower end only; those of "
                "shares, averages and quantiles span all possible values"
            )


def _factors(scale: ScaleMeta, unit: str, inside: bool) -> str:
    """The factors of rows and of each measure, as far as noise lets them be seen."""
    factors = [
        f"{f'sums of {each.measure}' if each.measure else 'counts'} by {each.factor:.2f}{_plus_minus(each)}"
        for each in scale.measures
        if each.left_out is not None and not each.measure.is_count
    ]
    if not factors:
        return f"{scale.of}: the total number of rows is hidden by noise"
    caveat = "; that error is shared by all groups" + (" and part of their error bars" if inside else "")
    return f"{scale.of}: at most {scale.tau} rows per {unit} were counted and scaled up: {', '.join(factors)}{caveat}"


def _plus_minus(scale: MeasureScale) -> str:
    """Half of the 95% interval of a factor; nothing where it has no upper end."""
    return "" if scale.error.up is None else f" (+- {NORMAL * (scale.error.down + scale.error.up) / 2:.1%})"


NORMAL = 1.96
"""Standard errors on each side of a 95% interval."""

WORTH_A_NOTE = 0.01
"""A part of the rows left out by weights from which groups have a note."""


def _hidden(scale: ScaleMeta, unit: str) -> Iterator[str]:
    """The units that noise may hide, where they may own more rows than intervals of totals reach up to."""
    up = scale.measure("").error.up
    if up is None or not scale.unseen or scale.rows <= 0:
        return
    reach, share = NORMAL * up, scale.unseen * scale.unseen_above / scale.rows
    percent = float(f"{100 * reach:.2g}")
    if share > reach:
        yield (
            f"{scale.of}: noise may hide up to {scale.unseen:,} units of {unit} with more than {scale.unseen_above:,} "
            f"rows each; if they own more than {percent:g}% of all rows, totals are too low by the excess"
        )


def bias_notes(plan: ViewPlan, terms: Sequence[Term], release: Release) -> list[Note]:
    """Notes on biased estimates: their intervals cover noise alone."""
    name, read = plan.view.name, [plan.view.statistics[term.measure] for term in terms]
    caveats = [caveat(plan, terms, release) for caveat in (overlap_caveat, entropy_caveat, adaptive_caveat)]
    notes = [*(Note(caveat, flag=True) for caveat in caveats if caveat), *scale_notes(plan, terms, release)]
    if any(statistic.biased for statistic in read):
        warning = f"is biased ({read[0].mechanism}): errors and intervals cover its noise alone"
        notes.append(Note(f"view {name} {warning}"))
    positive = [statistic for statistic in read if release.estimate(statistic.id) == "nonnegative"]
    if positive:
        refitted = all(statistic.nonnegative_model is not None for statistic in positive)
        whose = "from repeating their fit" if refitted else "those of the unbiased ones"
        notes.append(Note(f"non-negative estimates of view {name}: biased; errors are {whose}", flag=True))
    elif release.nonnegative and any(statistic.measure.counts_rows for statistic in read):
        notes.append(Note(f"view {name} has no non-negative estimates: its counts are unbiased"))
    outside = [
        Note(
            f"values of {axis.name} outside its declared range are not counted here: its sums may have no ends"
        )
        for axis in (release.axes[question.axis] for question in plan.questions if question.factors)
        if axis.other_leaf is not None
    ]
    of_rows = any(term.measure.sums_rows for term in terms)
    bounded = bounding_notes(plan.view.of, release) if of_rows else []
    bounded += excess_notes(plan, terms, release)
    return [*channel_notes(plan, release), *notes, *outside, *summary_notes(plan, terms, release), *bounded]


def summary_notes(plan: ViewPlan, terms: Sequence[Term], release: Release) -> list[Note]:
    """Notes on the bound of one person's contribution to sums and averages of facts about people."""
    table = release.catalog.privacy.unit.table
    measures = [plan.view.statistics[term.measure].measure for term in terms]
    axes = [release.axes[question.axis] for question in plan.questions if question.factors]
    summed = [(measure.table, measure.column) for measure in measures if not measure.is_count]
    summed += [(axis.columns[0].table, axis.columns[0].column) for axis in axes]
    notes = []
    for owner, column in dict.fromkeys(summed):
        summary = (
            release.catalog.tables[owner].summaries.get(column) if owner in release.catalog.tables else None
        )
        if summary is not None and counts_for(summary):
            notes.append(Note(f"a row of {table} counts for {counts_for(summary)} of {column}"))
    return notes


def nobody_notes(of: str, release: Release) -> Iterator[Note]:
    """Rows of a table that no unit owns, since a key on the way to the unit may be NULL; nothing measures how many."""
    counted, table = release.catalog.star.tables.get(of), of
    unit = None if counted is None else counted.unit
    owned = unit is None or unit.table == release.catalog.privacy.unit.table
    for column in () if unit is None or owned else (*unit.path, unit.column):
        key = release.catalog.tables[table].foreign_keys[column]
        if key.nullable:
            yield Note(
                f"{of}: rows whose {table}.{column} is NULL have no owner and are not counted; their number is unknown",
                flag=True,
            )
        table = key.references


def bounding_notes(of: str, release: Release) -> list[Note]:
    """Notes on contribution bounding of a table's rows."""
    weighed = [*nobody_notes(of, release)]
    weighed += [Note(WEIGHED.format(of))] if release.catalog.tables[of].bounding.weighs else []
    return [*weighed, *beyond_notes(of, release)]


def beyond_notes(of: str, release: Release) -> Iterator[Note]:
    """Rows of a table beyond its contribution bound."""
    for table in release.meta.bounding:
        if table.of != of:
            continue
        if isinstance(table, RowsBeyondBound) and max(table.people, 0) < release.min_people:
            yield Note(FEW_BEYOND.format(of, "max_ids", release.min_people), flag=True)
        else:
            yield Note(table.note(), table.misread)


def excess_notes(plan: ViewPlan, terms: Sequence[Term], release: Release) -> list[Note]:
    """Notes on values beyond the bounds of measures whose sums are read, of rows that a curator holds."""
    notes = list[Note]()
    for measure in dict.fromkeys(term.measure for term in terms if not term.measure.is_count):
        beyond = release.meta.excess_of(plan.view.of, measure)
        if beyond is not None and max(beyond.units, 0) < release.min_people:
            notes.append(Note(FEW_BEYOND.format(measure, "its bounds", release.min_people), flag=True))
        elif beyond is not None:
            notes.append(Note(beyond.note(), beyond.misread))
        elif release.meta.local is None:
            notes.append(Note(UNKNOWN_EXCESS.format(measure), flag=True))
    return notes


FEW_BEYOND = "{}: what lies beyond {} is of fewer than {} people by the estimate; intervals allow for it"
UNKNOWN_EXCESS = "{}: values beyond its bounds count as the nearest bound; their number was not measured"
WEIGHED = "rows of {} are weighted: all rows of one unit together count as at most max_ids rows"


_TEXT = re.compile(r"'((?:[^']|'')*)'")
LIKENESS = 0.6
"""Least ratio of `difflib` at which two spellings are taken for one value: `Scotlnd` and `Scotland` have .93, two of
the fifty states rarely more than .55."""
MOST_TEXTS = 4
"""Absent texts that are named; the note counts the others."""


def absent_value_notes(plan: ViewPlan, release: Release) -> list[Note]:
    """Flags for texts that a plan's conditions compare a column with and that the column's axis does not list.

    Args:
        plan: a plan over the asked axes.
        release: its release.

    Returns:
        One flag for each condition with such a text.
    """
    notes: dict[Note, None] = {}
    for question in plan.questions:
        axis, names = release.axes[question.axis], dict(question.columns)
        columns = {column.name: column for column in axis.columns if column.type == "VARCHAR"}
        for predicate in (*question.filters, *question.classes):
            numbers = predicate.expression.columns & names.keys()
            column = columns.get(names[min(numbers)]) if axis.atomic and numbers else None
            if column is not None and len(predicate.expression.columns) == 1:
                notes |= dict.fromkeys(_of_condition(predicate, column, question, release))
    return list(notes)


def texts_of(expression: Expression) -> list[str]:
    """Texts that an expression is written with."""
    return [text.replace("''", "'") for text in _TEXT.findall(expression.words())]


def chosen_texts(predicate: Predicate) -> list[str]:
    """Texts of which a condition wants a column to be one."""
    return texts_of(predicate.expression) if predicate.expression.choices and not predicate.negated else []


def _of_condition(
    predicate: Predicate, column: ColumnMeta, question: AxisQuery, release: Release
) -> Iterator[Note]:
    expression, words, axis = predicate.expression, predicate.expression.words(), question.axis
    texts, constants = texts_of(expression), expression.choices or expression.barred
    if not texts or not (constants or " LIKE " in words.upper()):
        return
    keys = release.meta.key_list(column.table, column.column)
    lists = "the catalog lists" if keys is None else f"the list of {keys.keys} keys has"
    among = "its rows are among those of unlisted values, and intervals allow for them"
    among += f"; {keys.missing} shown" if keys is not None else ""
    if release.axes[axis].other_leaf is None:
        if predicate.negated or (not expression.choices and constants):
            return  # no row has another value, so nothing is barred
        among = "no row has it"
    sql = (  # unlisted values have a word of their own, which may be asked for
        f"SELECT DISTINCT {identifier(column.name)} FROM axis_{axis} WHERE kind IN (0, {OTHER}) ORDER BY ALL"
    )
    listed = release.kept(sql, lambda: [str(row[0]) for row in run(release, sql).rows])
    name = f"{column.table}.{column.column}"
    if constants:
        absent = [text for text in dict.fromkeys(texts) if text not in listed]
        if absent:
            yield Note(f"{lists} no value {_described(absent, listed)} for {name}; {among}", flag=True)
        return
    values = (
        f"SELECT {identifier(column.name)} AS dp_c{min(expression.columns)} FROM axis_{axis} WHERE kind = 0"
    )
    met = f"SELECT COUNT(*) FROM ({values}) WHERE {expression.sql}"
    if not predicate.negated and not release.kept(met, lambda: run(release, met).rows[0][0]):
        known = [str(row[0]) for row in run(release, f"{values} ORDER BY 1").rows]
        shown = ", ".join(known[:MOST_TEXTS]) + (", .." if len(known) > MOST_TEXTS else "")
        yield Note(f"{lists} no value with {words}: {name} has {shown}; {among}", flag=True)


def key_text_notes(words: str, keys: Mapping[str | None, int], texts: Sequence[str]) -> Iterator[Note]:
    """Flags for conditions on groups that no group meets, or that one group meets for many values.

    Args:
        words: the key, as written.
        keys: of the groups that are shown, each with whether the catalog adds it.
        texts: that the key is compared with; an empty one for any other condition.
    """
    other = next((key for key, is_added in keys.items() if is_added and key is not None), None)
    if other is not None and "" in texts:
        yield Note(f"a condition on {words} takes all unlisted values for one, {other!r}", flag=True)
    absent = [text for text in texts if text and text not in keys]
    if absent:
        listed = [key for key in keys if key is not None and key != other]
        among = f"; rows of unlisted values are in the group {other!r}" if other is not None else ""
        yield Note(f"no group of {words} is {_described(absent, listed)}{among}", flag=True)


def _described(texts: list[str], listed: Sequence[str]) -> str:
    more = f" and {len(texts) - MOST_TEXTS} more" if len(texts) > MOST_TEXTS else ""
    return ", ".join(_with_nearest(text, listed) for text in texts[:MOST_TEXTS]) + more


def _with_nearest(text: str, listed: Sequence[str]) -> str:
    """The text in quotes, with the listed value of the nearest spelling."""
    folded = {value.casefold(): value for value in reversed(listed)}
    near = folded.get(text.casefold()) or next(iter(get_close_matches(text, listed, 1, LIKENESS)), None)
    return f"'{text}'" if near is None else f"'{text}' (nearest: '{near}')"
