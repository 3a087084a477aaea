"""What a reader should know of an answer that no error bar tells: whom it is about, and what may have biased it.

**Whom.** A central release counts the rows that its curator holds. A local one counts the people who reported, exactly
and without a word about the others: with 10,000 reports of 50,000 people COUNT(*) is 10,000 with an error of 0. Its
catalog says whom they stand for (`participation:` under `collection:`). As they are, reports of

| word | who reported | stands for everybody in |
|---|---|---|
| `all` | everybody of the population | every answer |
| `random` | a random sample | averages, shares and quantiles |
| `unknown` | nobody says | nothing |

Counts and sums of a random sample are scaled to everybody where their number is known (`dpsql.answer.population`).

**Bias.** Tables with `max_ids: auto` publish weighted shapes and one common factor. The factor puts back what weighting
left out of the table as a whole; a group whose units own more or fewer rows than others stays off by some of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from dpsql.answer.block import Block, ErrorOf, Known, Ratio, Term, Value, terms_of
from dpsql.answer.errorbars import weight_error
from dpsql.answer.people import asks_only_people, people_caveat
from dpsql.answer.plan import Plan
from dpsql.release import Release
from dpsql.release.format import Meta, ScaleMeta
from dpsql.star.tables import NONRESPONSES

QUANTILES = ("median", "quantile")


class Note(NamedTuple):
    """A sentence under an answer; a flag is one without which its numbers would be misread."""

    text: str
    flag: bool = False


class Reads(Enum):
    """What a statement takes from a release."""

    CATALOG = "public facts alone"
    AVERAGES = "averages, shares and quantiles alone"
    TOTALS = "counts or sums"


class Participation(NamedTuple):
    """Whom the reports of a local release stand for.

    Args:
        word: the catalog's.
        note: under every answer, but for what the catalog alone says.
        everybody: what stands for everybody of the population.
    """

    word: str
    note: str
    everybody: frozenset[Reads]


PARTICIPATIONS = {each.word: each for each in (
    Participation("all", "of the {} who reported: everybody, says the catalog", frozenset(Reads)),
    Participation(
        "random", "of the {} who reported, not of everybody: a random sample, says the catalog",
        frozenset((Reads.CATALOG, Reads.AVERAGES)),
    ),
    Participation("unknown", "of the {} who reported, not of everybody", frozenset((Reads.CATALOG,))),
)}  # fmt: skip
"""Every participation by its word."""


def reads_of(blocks: Iterable[Block]) -> Reads:
    """What the aggregate blocks of a statement take from a release.

    Arithmetic outside of a block is not looked at: a share that the outer statement works out reads counts.
    """
    values = [
        value.form if isinstance(value, ErrorOf) else value for block in blocks for value in block.values
    ]
    noisy = [value for value in values if value is not None and is_noisy(value)]
    if not noisy:
        return Reads.CATALOG
    return Reads.AVERAGES if all(_has_no_size(value) for value in noisy) else Reads.TOTALS


def is_noisy(value: Value) -> bool:
    """Whether a value is made of people's rows, not of the catalog alone."""
    return bool(terms_of(value)) or (isinstance(value, Known) and value.function in QUANTILES)


def _has_no_size(value: Value) -> bool:
    """Whether a value stays as it is when everybody counts twice."""
    if isinstance(value, Ratio):
        return value.above.constant == 0 == value.below.constant
    return isinstance(value, Known)


def reported_notes(meta: Meta, block: Block) -> list[Note]:
    """What a reader of a block's numbers should know about whom they are about; nothing for a central release."""
    if meta.local is None or reads_of([block]) is Reads.CATALOG:
        return []
    whole, reported = meta.local.stands_for, f"{meta.local.reporters:,}"
    if whole is None:
        return [Note(PARTICIPATIONS[meta.local.participation].note.format(reported), flag=True)]
    rows = f"{whole.rows:,.0f}" + (f" +- {whole.error:,.0f}" if whole.error else "")
    told = f"of everybody: shares of a random sample of {reported}, times {rows} rows ({whole.source})"
    return [Note(told, flag=True)]


def channel_notes(plan: Plan, release: Release) -> list[Note]:
    """Whom answers of a view with a reported attribute are about."""
    held = {f"{release.axes[i].table}.{release.axes[i].columns[0].column}" for i in plan.view.axes}
    return [
        Note(
            f"{each.column} is what people's devices reported (epsilon {each.epsilon_local} towards the curator); "
            "answers about it are of those who reported, the others are where it IS NULL"
            + NONRESPONSES[each.nonresponse].note
        )
        for each in release.meta.reported if each.column in held
    ]  # fmt: skip


def scale_notes(plan: Plan, terms: Sequence[Term], release: Release) -> list[Note]:
    """How the view's numbers got their scale, and how much of them nobody may count for.

    Args:
        plan: the plan.
        terms: what is read.
        release: says what the scale is.
    """
    scale = release.scales.get(plan.view.of)
    if scale is None or asks_only_people(terms):
        return []
    unit = release.meta.privacy.unit.partition(".")[0]
    notes = [Note(_factors(scale, bool(weight_error(release))))]
    notes += [Note(line) for line in _above(scale, terms, unit)]
    sticky = [release.axes[i].name for i in plan.view.axes if release.axes[i].name in scale.sticky]
    if scale.weighted_down:
        many = f"{scale.of}: {scale.weighted_down:.0%} of the rows are of units of {unit} with more than {scale.tau}"
        notes.append(Note(many + (f"; groups along {', '.join(sticky)} may be off most" if sticky else "")))
    return notes


def _factors(scale: ScaleMeta, inside: bool) -> str:
    """The factors of rows and of each measure, as far as noise lets them be seen."""
    parts = [
        f"{f'sums of {own.measure}' if own.measure else 'counts'} times {own.factor:.3g} (error {own.error.noise:.1%})"
        for own in scale.measures
        if own.left_out is not None
    ]
    if not parts:
        return f"{scale.of}: noise hides how many rows there are in all"
    told = "; its error is common to all of them" + (" and part of their error bars" if inside else "")
    return f"{scale.of}: shapes are brought to scale: {', '.join(parts)}{told}"


TOLD = 0.005
"""A part of a total that is not worth a note."""


def _above(scale: ScaleMeta, terms: Sequence[Term], unit: str) -> Iterator[str]:
    """What lies above what one unit may count for, of each measure that is read."""
    for own in dict.fromkeys(scale.measure(term.measure) for term in terms):
        if own.above > TOLD:
            what = own.measure or "rows"
            yield (
                f"about {own.above:.0%} of {what} lies above what one unit of {unit} may count for; it is put back by "
                "estimate, and intervals allow for it"
            )


def bias_notes(plan: Plan, terms: Sequence[Term], release: Release) -> list[Note]:
    """What a reader should know about estimates that are biased: their intervals tell of noise alone."""
    name, read = plan.view.name, [plan.view.statistics[term.measure] for term in terms]
    caveat = people_caveat(plan, terms, release)
    notes = [*([Note(caveat, flag=True)] if caveat else []), *scale_notes(plan, terms, release)]
    if any(statistic.biased for statistic in read):
        told = f"is biased ({read[0].mechanism}): errors and intervals tell of its noise alone"
        notes.append(Note(f"view {name} {told}"))
    positive = [statistic for statistic in read if release.estimate(statistic.id) == "nonnegative"]
    if positive:
        own = all(statistic.nonnegative_model is not None for statistic in positive)
        whose = "from repeating their fit" if own else "those of the unbiased ones"
        notes.append(Note(f"non-negative estimates of view {name}: biased; errors are {whose}", flag=True))
    elif release.nonnegative and any(statistic.measure == "count" for statistic in read):
        notes.append(Note(f"view {name} has no non-negative estimates: its counts are unbiased"))
    outside = [
        Note(f"rows out of the domain of {axis.name} are left out of its sums and averages")
        for axis in (release.axes[question.axis] for question in plan.questions if question.factors)
        if axis.other_leaf is not None
    ]
    return [*channel_notes(plan, release), *notes, *outside, *bounding_notes(plan.view.of, release)]


def bounding_notes(of: str, release: Release) -> list[Note]:
    """What bounding did to the rows of a table, which no error bar tells."""
    lines = [WEIGHED.format(of)] if release.catalog.tables[of].bounding.weighs else []
    return [
        Note(line) for line in [*lines, *(each.note() for each in release.meta.bounding if each.of == of)]
    ]


WEIGHED = "rows of {} are weighted: all rows of one unit count for max_ids rows at most"
