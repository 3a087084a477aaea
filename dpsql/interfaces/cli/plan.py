"""Commands of the curator before anything is spent: plan, what a release will cost and answer; and rehearse, releases
of made-up rows, each answer compared with the exact one."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpsql import api
from dpsql.errors import InterfaceError
from dpsql.interfaces.cli import FILE, CommandOutput, cli, steps, tells
from dpsql.progress import silent

if TYPE_CHECKING:
    from dpsql.contributions.rehearsal import Guess
    from dpsql.curator.forecast import (
        KeyForecast,
        NotTaken,
        PlanReport,
        QueryForecast,
        Refreshes,
        StatisticForecast,
    )
    from dpsql.curator.rehearsal import UninformativeView
    from dpsql.curator.rehearse import RehearsalReport, RehearsedColumn, RehearsedQuestion
    from dpsql.executor.engine import PredictedColumn


@cli.command()
@click.argument("catalog", type=FILE)
@click.option("--workload", type=FILE, help="file of SQL statements, each ended by `;`")
@click.option("--mechanisms", is_flag=True, help="show how each view is measured, and what was compared")
@click.option(
    "--units",
    type=click.IntRange(1),
    help="public guess for max_ids: auto and reported columns: how many own rows",
)
@click.option(
    "--rows", type=click.IntRange(1),
    help="public guess for max_ids: auto and reported columns: how many rows there are",
)  # fmt: skip
@click.option("--most-rows", type=click.FloatRange(1), help="public guess: rows that hardly any unit exceeds")
@click.option(
    "--keys",
    multiple=True,
    metavar="TABLE.COLUMN=NUMBER",
    help="public guess: keys that will be found of a column with categories: private; default 400",
)
@tells
def plan(catalog: Path, workload: Path | None, mechanisms: bool, **known: Any) -> CommandOutput:
    """Say how far each answer over CATALOG will be off and what publishing it will cost; spends nothing.

    Questions come first, each with the 95% interval that will be printed and what it is made of; --mechanisms adds how
    views are measured, beside flat, tree, tents and Gaussian. No private table is opened. With --units and --rows,
    tables with `max_ids: auto` are rehearsed on made-up rows and get the errors that a release will show, and reported
    columns the error of their channel; state what is public anyway, not what a private table says.
    """
    sizes = dict(map(_size, known.pop("keys")))
    asked = statements(workload) if workload else ()
    report = api.plan(catalog, asked, guess=stated_guess(**known), keys=sizes)
    return CommandOutput(asdict(report), plan_text(report, mechanisms=mechanisms), result=True)


def stated_guess(units: int | None, rows: int | None, most_rows: float | None = None) -> Guess | None:
    """The curator's public guess, or None where there is none.

    Raises:
        InterfaceError: only part of it is stated, or no table is like that.
    """
    from dpsql.contributions.rehearsal import Guess

    if units is None or rows is None:
        if (units, rows, most_rows) != (None, None, None):
            raise InterfaceError("a guess needs both --units and --rows")
        return None
    return Guess(units, rows, most=most_rows)


def _size(text: str) -> tuple[str, int]:
    """A column and how many keys it may have.

    Raises:
        InterfaceError: the text says neither.
    """
    name, _, number = text.partition("=")
    if not number.isdecimal() or "." not in name:
        raise InterfaceError("--keys: write TABLE.COLUMN=NUMBER, such as sales.product=400")
    return name.strip(), int(number)


def statements(file: Path) -> tuple[str, ...]:
    """The statements of a workload file; shell commands in it are left out.

    Raises:
        InterfaceError: the file cannot be read.
    """
    from dpsql.interfaces.python.dbapi import split

    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InterfaceError(f"there is no file {file}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InterfaceError(f"{file} cannot be read as text ({type(error).__name__})") from error
    pieces, _ = split(text + "\n;")
    return tuple(piece.text for piece in pieces if not piece.command and piece.text.strip())


HALF = 1.96
"""Half of a 95% interval in standard errors."""


def plan_text(report: PlanReport, *, mechanisms: bool = False) -> str:
    """A report for people: the questions first.

    Args:
        report: a plan's report.
        mechanisms: whether it says how views are measured, and what was compared.
    """
    lines = ["answers (±: half of the 95% interval that will be printed)"] if report.queries else []
    for number, query in enumerate(report.queries, 1):
        lines += _query_lines(number, query)
    if report.break_even is not None:
        lines.append(f"more accurate than paying per query after {report.break_even} queries")
    lines += [
        f"{column}: its channel's error is not included; state --units and --rows of those who will report"
        for column in report.unforeseen
    ]
    lines += class_lines(report)
    lines += _release_lines(report)
    if mechanisms:
        lines.append(
            "views and measures (typical: standard error of a random range on every axis; names of a cube: a cell)"
        )
        lines += [line for statistic in report.statistics for line in _statistic_lines(statistic)]
        if report.not_taken:
            lines.append("what was compared, and why other mechanisms were not taken")
            lines += [line for not_taken in report.not_taken for line in _not_taken_lines(not_taken)]
    elif report.statistics:
        lines.append("how each view is measured, and what was compared: --mechanisms")
    return "\n".join(lines)


def _release_lines(report: PlanReport) -> list[str]:
    """Contents of the release, its cost, and warnings."""
    views = len({statistic.view for statistic in report.statistics})
    cells = sum(statistic.cells for statistic in report.statistics)
    size = f"about {report.bytes / 2**20:.1f} MiB and {report.seconds:.1f} s"
    sizes = f"{len(report.statistics)} statistics, {cells:,} cells, {size}"
    lines = [f"the release: {views} views, {sizes}, counting rows on top"]
    lines += [f"  {draw.line}" for draw in report.draws]
    lines += [bound.line() for bound in report.bounds]
    lines += [measure.line() for measure in report.excess]
    lines += [_keys_line(forecast) for forecast in report.keys]
    lines += report.sums
    lines.append(f"it spends {report.cap_share:.3g} of the lineage's cap{_other_words(report)}")
    return lines if report.refreshes is None else [*lines, _refreshes_line(report.refreshes)]


def _other_words(report: PlanReport) -> str:
    """Widths of the same views in the other currency."""
    if report.other_errors is None:
        return ""
    change, word = abs(1 - report.other_errors), "narrower" if report.other_errors < 1 else "wider"
    same = f"{word} at the same {report.other_at}"
    return f"; `delta: {report.other_delta}` would make its intervals {change:.0%} {same}"


def _keys_line(forecast: KeyForecast) -> str:
    """At how many people a key is shown."""
    if not forecast.people:
        return f"{forecast.column}: {forecast.supposed} keys, all listed before; nothing is spent on them"
    even, sure = forecast.people
    return (
        f"{forecast.column}: {forecast.share:.3g}% of the budget finds its keys ({forecast.supposed} are assumed): "
        f"a key that counts for {even:,} people is shown with chance .5, for {sure:,} with .98"
    )


def _refreshes_line(quota: Refreshes) -> str:
    """Number of releases left that share a cap, and when it ends."""
    epsilon, cap, spent = (f"{float(Fraction(text)):.4g}" for text in (quota.epsilon, quota.cap, quota.spent))
    lines = f"refreshes: each spends epsilon {epsilon}, one of {quota.planned} equal shares of {cap}{quota.at_delta}; "
    if not quota.left:
        return f"{lines}none is left: {spent} is spent, and publish refuses"
    return f"{lines}{quota.left} left, {spent} spent; the cap ends with the {_nth(quota.left)} from now"


def _nth(number: int) -> str:
    """An ordinal number.

    >>> _nth(1), _nth(12), _nth(22), _nth(113)
    ('1st', '12th', '22nd', '113th')
    """
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _statistic_lines(s: StatisticForecast) -> list[str]:
    rows = f"at most {s.tau} rows a unit"
    if s.tau == 1:
        rows = "one row a unit" + (", so that M = 1" if s.measure.counts_rows else "")
    elif not s.tau:
        rows = "rows a unit chosen at publish"
    charge = f"{s.currency} {float(Fraction(s.charge)):.4g}"
    line = (
        f"  {s.view}: {s.measure} of {s.of}, {charge}, {s.noise}, {rows}; {s.cells} cells, {s.nodes} stored"
    )
    lines = [line + (f", typical {s.typical:.4g}" if s.tau else "")]
    for strategy, expected_error in s.both[:1]:
        behind = "; ".join(f"{name} {error:.4g}" for name, error in s.both[1:])
        lines.append(f"    {' and '.join(s.axes)}: {strategy} {expected_error:.4g} (runner-up: {behind})")
    for axis, strategy, expected_error, runners_up in s.axis_forecasts:
        behind = "; ".join(f"{name} {error:.4g}" for name, error in runners_up[:3])
        lines.append(
            f"    {axis}: {strategy} {expected_error:.4g}" + (f" (runners-up: {behind})" if behind else "")
        )
    return lines


def _not_taken_lines(not_taken: NotTaken) -> list[str]:
    """Mechanism of an axis or some views, the ones with larger errors, and the refusals with their reasons."""
    error = "" if not_taken.expected_error is None else f" {not_taken.expected_error:.4g}"
    lost = "; ".join(f"{name} {loser_error:.4g}" for name, loser_error in not_taken.lost)
    bound = not_taken.expected_error
    if not_taken.lost and bound is not None and not_taken.lost[0][1] < bound:
        words = f", at most{error} (without data-dependent selection: {lost})"
    else:
        words = error + (f" (behind: {lost})" if lost else "")
    lines = [f"  {not_taken.what}: {not_taken.taken}{words}"]
    lines += [f"    compared by {not_taken.asked}"] if not_taken.asked else []
    for reason in dict.fromkeys(refusal.reason for refusal in not_taken.refused):
        names = "; ".join(refusal.name for refusal in not_taken.refused if refusal.reason == reason)
        lines.append(f"    not {names}: {reason}")
    return lines


def _query_lines(number: int, query: QueryForecast) -> list[str]:
    lines = [f"{number}. {' '.join(query.sql.split())}"]
    if query.refusal is not None:
        return [*lines, f"   no answer: {query.refusal}"]
    for column in query.columns:
        if column.median is None or column.least is None or column.most is None:
            why = "depends on the answer"
            if column.open_groups:
                why = "no upper end: too few people for the noise"
            if column.wants_guess:
                why = f"needs `guess: {{units: .., rows: ..}}` on {column.wants_guess} in the catalog"
            lines.append(f"   {column.name}: {why}{_cut_words(column)}")
            continue
        relative = "" if column.relative is None else f", {column.relative * HALF:.1%} of a typical answer"
        # Compared as printed: ends that are equal by algebra may differ in their last bits.
        ends = f"{column.least * HALF:.4g}", f"{column.most * HALF:.4g}"
        spread = f" ({ends[0]} to {ends[1]})" if ends[0] != ends[1] else ""
        groups = "one number" if column.groups == 1 else f"{column.groups} groups"
        open_groups = f", {column.open_groups} of them without an upper end" if column.open_groups else ""
        lines.append(
            f"   {column.name}: ± {column.median * HALF:.4g}{spread}{relative}, {groups}, view {column.view}"
            f"{_component_words(column)}{open_groups}{_cut_words(column)}"
        )
    if query.break_even is not None:
        lines.append(f"   more accurate than paying per query after {query.break_even} such queries")
    return lines


def _component_words(column: PredictedColumn) -> str:
    """Components of an interval besides the noise, each as half of a 95% interval of its own."""
    if column.components.keys() <= {"noise"}:
        return ""
    components = column.components.items()
    return "; " + ", ".join(f"{name.replace('_', ' ')} {error * HALF:.3g}" for name, error in components)


def _cut_words(column: PredictedColumn) -> str:
    """Number of cut bins, and the share of the answer that lies in them."""
    if not column.cut:
        return ""
    bins = "a bin" if column.cut_bins == 1 else f"{column.cut_bins} bins"
    return (
        f", cuts {bins}: {column.interpolated:.0%} of what is asked is interpolated, which widens intervals"
    )


def class_lines(report: PlanReport) -> list[str]:
    """Kinds of questions, view by view, then what to coarsen or drop.

    Args:
        report: a plan's report.

    Returns:
        Lines; where no guess was stated, a word on how to state one; none without such tables.
    """
    if report.wants_guess:
        return [
            "write `guess: {units: .., rows: ..}` into the catalog, public guesses, and errors are forecast"
        ]
    if not report.classes:
        return []
    lines = ["relative errors of typical questions on made-up tables like yours (half of the 95% interval)"]
    lines += [
        f"  {c.view or c.of}, {c.kind}: {_errors(c.measure, c.error, c.mean_error)}" for c in report.classes
    ]
    for blind in report.blind:  # people drown in the noise
        what = f"sums of {', '.join(blind.measures)}" if blind.measures else "rows"
        lines.append(
            f"  table {blind.of} is blind: too few people for the noise, {what} will have a lower end only"
        )
    lines += [_hopeless_line(h) for h in report.hopeless]
    if report.stands_for > 1:
        lines.append(
            f"  a sample was made up: each unit represents {report.stands_for}; totals may be better than stated"
        )
    return lines


def _errors(measure: str, *errors: float | None) -> str:
    error, mean = ("without an upper end" if half is None else f"± {HALF * half:.1%}" for half in errors)
    return f"COUNT {error}" if measure == "count" else f"SUM of {measure} {error}, AVG {mean}"


def _hopeless_line(hopeless: UninformativeView) -> str:
    error = "no upper end" if hopeless.error is None else f"predicted error {hopeless.error:.0%}"
    if not hopeless.view:
        return f"  table {hopeless.of} is hopeless ({error}): coarsen its axes or drop it"
    advice = f", view {hopeless.coarser} answers better" if hopeless.coarser else ""
    return f"  view {hopeless.view} is hopeless ({error}): coarsen or drop it{advice}"


@cli.command()
@click.argument("catalog", type=FILE)
@click.option(
    "--workload", type=FILE, help="file of SQL statements, each ended by `;`; else each table's rows"
)
@click.option("--units", type=click.IntRange(1), help="public guess: how many own rows")
@click.option("--rows", type=click.IntRange(1), help="public guess: how many rows there are")
@click.option("--most-rows", type=click.FloatRange(1), help="public guess: rows that hardly any unit exceeds")
@click.option(
    "--releases", type=click.IntRange(1, 1000), default=8, show_default=True, help="per law of rows"
)
@click.option("--offers", is_flag=True, help="also rehearse changes, and show those that help most")
@tells
def rehearse(
    catalog: Path, workload: Path | None, releases: int, offers: bool, **guessed: Any
) -> CommandOutput:
    """Publish made-up rows for CATALOG and compare each answer with the exact one; spends nothing.

    Rows are made up from the catalog, its public tables and a public guess of how many there are (--units and --rows,
    or `guess:` in the catalog), under three laws of rows per unit. Private tables and the ledger stay closed. It finds
    gross misses only. With --releases 100 it is a gate: exit code 1 says that a question misses more than by chance.
    """
    from dpsql.catalog import load_catalog
    from dpsql.curator.rehearse import public_guess, rehearse_catalog, with_offers

    asked = statements(workload) if workload else ()
    star = load_catalog(catalog)
    guess = public_guess(star, guessed["units"], guessed["rows"], guessed["most_rows"])
    with steps("rehearse") as progress:
        report = rehearse_catalog(star, asked, guess, releases=releases, progress=progress or silent)
        if offers and asked:
            report = with_offers(star, asked, guess, report, progress or silent)
    value = {**asdict(report), "usable": list(report.usable)}
    return CommandOutput(value, rehearsal_text(report), result=True, code=int(bool(report.misses)))


def rehearsal_text(report: RehearsalReport) -> str:
    """A report for people: a line for each noisy column, and what the rehearsal does not say."""
    lines = [
        f"{report.releases} releases of made-up rows under each of {len(report.laws)} laws of rows per unit "
        f"({', '.join(report.laws)}): {report.units:,} units, {report.rows:,} rows; nothing is spent"
    ]
    for number, question in enumerate(report.questions, 1):
        lines += [f"{number}. {question.sql}", *(f"   {line}" for line in _question_lines(question))]
    lines += [f"misses more often than chance would (1%, Holm): {miss}" for miss in report.misses]
    lines += [
        f"{len(report.usable)} of {len(report.questions)} questions are usable: half of each interval is at most "
        "half of its answer under every law",
        *(
            f"{len(usable)} usable ({', '.join(map(str, usable))}): {words}"
            for words, usable in report.offers
        ),
    ]
    return "\n".join([*lines, "made-up rows show gross misses only; no real row was read"])


def _question_lines(question: RehearsedQuestion) -> list[str]:
    if question.refusal:
        return [f"refused: {question.refusal}"]
    if not question.columns:
        return ["no noise: a public fact"]
    lines = [_column_line(column) for column in question.columns]
    lines += [f"not compared: {question.uncompared}"] if question.uncompared else []
    return [*lines, *(f"note: {note}" for note in question.notes)]


def _column_line(column: RehearsedColumn) -> str:
    """A column in a line: its half-width, by law, its coverage and its light."""
    known = [half for half in column.by_law if half is not None]
    words = [f"{column.name}: {column.light}"]
    if column.half is None or not known:
        words.append("most intervals have an open end")
    else:
        apart = f" (by law: {min(known):.3g} to {max(known):.3g})" if len(known) > 1 else ""
        words.append(f"covers 95%, half about {column.half:.3g}{apart} of about {column.typical:.3g}")
    if column.light == "unclear":
        words.append(
            "not served: a law of rows leaves an end open"
            if None in column.by_law
            else f"the laws of rows disagree by more than 3 times: at worst {column.worst:.2g} of the answer"
        )
    if column.intervals:
        words.append(f"covered {column.covered:,} of {column.intervals:,}")
    outside, cells = column.loud
    words += [f"{outside} of {cells} cells miss where noise is small"] if outside else []
    return ", ".join(words)
