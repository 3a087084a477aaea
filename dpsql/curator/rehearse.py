"""Releases of made-up rows: each question of a workload answered many times and compared with the exact answer.

Public tables keep their rows. Private ones are made up from the catalog's domains and a public guess of how many units
own how many rows (`prove.madeup`), under three distributions of rows per unit with the same mean:

| law | rows per unit |
|---|---|
| `even` | everybody owns about the mean |
| `log-normal` | as the guess says; the middle unit owns mean / sqrt(e) rows unless it says otherwise |
| `skewed` | the middle unit owns a quarter of the mean, few own most |

Units have a place of their own in every domain, and those with more rows lie further up, so that errors which do not
cancel out between groups show. One more release of the `skewed` rows has 80 times the epsilon: beyond its intervals
lies what is no noise.

**Privacy**: a function of the catalog, public tables and the guess; private tables and the ledger stay closed. Releases
carry the mark of test entropy and lie in a folder that is removed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import ceil, comb, inf
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import NamedTuple

import duckdb

from dpsql.catalog import Catalog, parse_catalog
from dpsql.catalog.catalog import catalog_text
from dpsql.catalog.model import MOST
from dpsql.central.central import publish_release
from dpsql.contributions.rehearsal import Guess, stated_guess
from dpsql.curator.design import design_catalog
from dpsql.curator.prove.layouts import ONE_FILE
from dpsql.curator.prove.madeup import SPREAD, MadeUpStar, Manner, made_up
from dpsql.errors import CatalogError, Error, InterfaceError
from dpsql.federation.session import OpenReleases, open_session
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.progress import Progress, Stage, silent
from dpsql.results.render import Grid
from dpsql.results.result import Result
from dpsql.row_expressions import identifier, literal

LOG_NORMAL, SKEWED = "log-normal", "skewed"
LOUD = 80
"""Times the catalog's epsilon: an error of .2% then stands far outside of an interval of noise."""
MOST_ROWS = 200_000
"""Rows of a table that are made up; relative widths of larger tables are smaller."""
GREEN, RED = 0.05, 0.5
"""Half-widths, as parts of the answer, below and above which a question is green and red."""
APART = 3
"""Times that half-widths of the laws may differ before a question is called served by none of them."""
LEVEL, LOUD_LEVEL, ROOM = 0.95, 0.9999, 1e-6
"""Of intervals; of the loud release's, where a miss of one cell shall be no chance; and room for floats' rounding."""
GATE = 0.01
SPREAD_OF_VALUES = 0.25
"""Standard deviation of a unit's values around a place of her own, in widths of their domain."""
SAMPLE = 4_000
"""Places that a mean is found by."""

Key = tuple[object, ...]
Exact = Mapping[Key, Mapping[int, object]]


@dataclass(frozen=True)
class RehearsedColumn:
    """One noisy column of a statement over all made-up releases.

    Args:
        name: as the statement calls it.
        half: median half-width of its 95% intervals, the laws together; None where most have an open end.
        by_law: the same under each law, in its order.
        typical: median size of the exact answer, or of the answer where it was not computed.
        covered, intervals: how many intervals hold the exact answer, of how many compared.
        loud: cells of the loud release outside of their intervals, and all of its cells.
        chance: of so many misses among one random cell a release, where intervals hold 95%.
    """

    name: str
    half: float | None
    by_law: tuple[float | None, ...]
    typical: float
    covered: int
    intervals: int
    loud: tuple[int, int]
    chance: float

    @property
    def light(self) -> str:
        """`green`, `yellow` or `red` by the half-width; `unclear` where the laws disagree on it."""
        known = [half for half in self.by_law if half is not None]
        if self.half is None or len(known) < len(self.by_law) or max(known) > APART * min(known):
            return "unclear" if known else "red"
        relative = self.half / self.typical if self.typical else inf
        return "green" if relative < GREEN else "yellow" if relative <= RED else "red"


class RehearsedQuestion(NamedTuple):
    """One statement.

    Args:
        sql: the statement.
        columns: its noisy columns; none where it is refused or has no noise.
        refusal: why some release refuses it; empty where none does.
        uncompared: why plain DuckDB has no exact answer; empty where it has.
        notes: under the first answer.
    """

    sql: str
    columns: tuple[RehearsedColumn, ...] = ()
    refusal: str = ""
    uncompared: str = ""
    notes: tuple[str, ...] = ()

    @property
    def width(self) -> float:
        """The widest relative half-width of its columns; infinite where it is refused, or the laws disagree."""
        if self.refusal or any(column.light == "unclear" for column in self.columns):
            return inf
        return max((c.half / c.typical if c.half and c.typical else inf for c in self.columns), default=0.0)


OfferedChange = tuple[str, tuple[int, ...]]
"""A change of a catalog in words, and the numbers of the questions that are usable under it."""


@dataclass(frozen=True)
class RehearsalReport:
    """Answers of made-up releases, with the verdicts.

    Args:
        laws: their names.
        releases: of each law, and the loud one.
        units, rows: that were made up.
        questions: in the order of the workload.
        misses: `statement: column` whose misses are no chance (Holm over all columns at 1%).
        offers: changes under which most questions are usable, the best first; none unless they were wanted.
    """

    laws: tuple[str, ...]
    releases: int
    units: int
    rows: int
    questions: tuple[RehearsedQuestion, ...]
    misses: tuple[str, ...]
    offers: tuple[OfferedChange, ...] = ()

    @property
    def usable(self) -> tuple[int, ...]:
        """Numbers of the questions that are neither red nor unclear."""
        return tuple(number for number, question in enumerate(self.questions, 1) if question.width <= RED)


def rehearse_catalog(
    catalog: Catalog, workload: Sequence[str], guess: Guess, *, releases: int = 8, progress: Progress = silent
) -> RehearsalReport:
    """Publish made-up rows of a catalog and compare every interval with the exact answer.

    Args:
        catalog: with a source, whose public tables are read.
        workload: statements.
        guess: about how many units own how many rows, in public.
        releases: of each law.
        progress: told each law.

    Raises:
        CatalogError: a stream, or a catalog whose people report for themselves.
        InterfaceError: the guess is of too many rows to make up.
        SourceError: a public table cannot be read.

    **Privacy**: opens public tables alone, and no ledger but throw-away ones.
    """
    if catalog.stream is not None or catalog.collection is not None:
        raise CatalogError(
            "rehearse: streams and collections cannot be rehearsed",
            hint="`dpsql plan` forecasts a stream, `dpsql simulate` a collection",
        )
    if guess.rows > MOST_ROWS:
        raise InterfaceError(
            f"rehearse: at most {MOST_ROWS:,} rows are made up",
            hint=f"state --rows {MOST_ROWS} and fewer --units in proportion; more rows only narrow intervals",
        )
    workload = workload or [f"SELECT COUNT(*) AS n FROM {identifier(of)}" for of in catalog.star.tables]
    star, laws, answers = made_up(catalog), _laws(guess), list[list[_Answers]]()
    with tempfile.TemporaryDirectory(prefix="dpsql-rehearse-") as folder:
        for number, (law, amounts) in enumerate(laws.items()):
            progress(Stage("publishing made-up rows,", law, done=number, total=len(laws)))
            place = Path(folder) / law
            written = _written(star, amounts, place)
            # noise is each law's own: one draw for all would be one miss in all
            first = number * (releases + 1)
            answers.append(_ask(place, written, releases, workload, first=first, loud=law == SKEWED))
    questions = tuple(_question(sql, [of[i] for of in answers]) for i, sql in enumerate(workload))
    return RehearsalReport(
        tuple(laws), releases, guess.units, guess.rows, questions, tuple(_beyond_chance(questions))
    )


MORE, FEWER, OFFERS, OFFER_RELEASES = 3, 3, 3, 2
"""Times the epsilon that a change spends; one of so many questions that it keeps; how many changes are shown; releases
of each law that judge one."""


def with_offers(
    catalog: Catalog,
    workload: Sequence[str],
    guess: Guess,
    report: RehearsalReport,
    progress: Progress = silent,
) -> RehearsalReport:
    """A report with the changes that make most questions usable, each of them rehearsed.

    Args:
        catalog, workload, guess: as of `rehearse_catalog`; the catalog was read from a file.
        report: its report.
        progress: as of `rehearse_catalog`.

    Raises:
        Error: as `rehearse_catalog`.

    **Privacy**: as of `rehearse_catalog`; no private table is opened.
    """
    kept = _within_reach(report)
    every = tuple(range(1, len(workload) + 1))
    changes = [(*change, every) for change in _changes(catalog, guess)]
    if catalog.file is not None and 0 < len(kept) < len(workload):
        chosen = [workload[number - 1] for number in kept]
        designed = design_catalog(catalog_text(catalog.file), catalog.file, chosen, guess).text
        fewer = parse_catalog(designed, str(catalog.file), catalog.file)
        named = f"only the questions {', '.join(map(str, kept))}"
        changes.append((named, fewer, guess, kept))
        changes += [
            (f"{named}; {words}", changed, stated, kept) for words, changed, stated in _changes(fewer, guess)
        ]
    offers = list[OfferedChange]()
    for words, changed, stated, numbers in changes:
        asked = [workload[number - 1] for number in numbers]
        under = rehearse_catalog(changed, asked, stated, releases=OFFER_RELEASES, progress=progress)
        offers.append((words, tuple(numbers[position - 1] for position in under.usable)))
    better = [offer for offer in offers if len(offer[1]) > len(report.usable)]
    # equal numbers stay in their order: one change before two
    return replace(report, offers=tuple(sorted(better, key=lambda offer: -len(offer[1]))[:OFFERS]))


def _within_reach(report: RehearsalReport) -> tuple[int, ...]:
    """Numbers of the questions with the narrowest intervals: a third of all, and no fewer than are usable."""
    by_width = sorted(
        range(1, len(report.questions) + 1), key=lambda number: report.questions[number - 1].width
    )
    number = max(len(report.usable), len(by_width) // FEWER, 1)
    return tuple(sorted(n for n in by_width[:number] if report.questions[n - 1].width < inf))


def _changes(catalog: Catalog, guess: Guess) -> Iterator[tuple[str, Catalog, Guess]]:
    """More epsilon, and a bound by rule where publishing would choose one; with the guess under that rule."""
    privacy = catalog.privacy
    if privacy.epsilon is not None and privacy.epsilon < (more := min(privacy.epsilon * MORE, privacy.cap)):
        spent = catalog.model_copy(update={"privacy": privacy.model_copy(update={"epsilon": more})})
        yield f"epsilon {float(more):g} instead of {float(privacy.epsilon):g}", spent, guess
    chosen = [name for name in catalog.star.tables if catalog.tables[name].chooses_rows]
    if chosen:
        most = ceil(guess.most or 2 * guess.mean)
        rule: dict[str, object] = {"max_ids": most, "clipped_share": Fraction(0)}
        tables = {name: catalog.tables[name].model_copy(update=rule) for name in chosen}
        by_rule = catalog.model_copy(update={"tables": {**catalog.tables, **tables}})
        words = (
            f"`max_ids: {most}, clipped_share: 0` in {', '.join(chosen)}, where a rule lets nobody own more"
        )
        yield words, by_rule, replace(guess, most=most)


def public_guess(catalog: Catalog, units: int | None, rows: int | None) -> Guess:
    """The numbers that a curator states, or those that her catalog does.

    Args:
        catalog: of which each table's `guess:` is taken where nothing is stated.
        units, rows: as of `Guess`.

    Raises:
        InterfaceError: neither states how many there are.

    **Privacy**: a function of the catalog and of public numbers.
    """
    stated, most_rows = stated_guess(catalog), None
    means, tables = ({}, {}) if stated is None else (stated.means, dict(stated.tables))
    if units is not None or rows is not None:
        tables = {}  # of all tables alike
    elif stated is not None:
        units, rows, most_rows = stated.units, stated.rows, stated.most
    if units is None or rows is None:
        raise InterfaceError(
            "rehearse: the number of rows is unknown",
            hint="state public guesses: --units and --rows",
        )
    # `clipped_share: 0` states that nobody owns more rows than max_ids
    exceeded_by_nobody = {
        of: table.max_ids
        for of, table in catalog.tables.items()
        if isinstance(table.max_ids, int) and table.clipped_share == 0
    }
    if most_rows is None and exceeded_by_nobody:
        most_rows = max(min(exceeded_by_nobody.values()), rows / units)
    for of in tables.keys() & exceeded_by_nobody.keys():
        most = tables[of].most or max(float(exceeded_by_nobody[of]), tables[of].mean)
        tables[of] = replace(tables[of], most=most)
    return Guess(min(units, rows), rows, most=most_rows, means=means, tables=tables)


def _laws(guess: Guess) -> dict[str, Guess]:
    """The guess under each law, of every table."""
    typical = {
        "even": max(1.0, guess.mean),
        LOG_NORMAL: guess.median,
        SKEWED: min(max(1.0, guess.mean / 4), guess.median),
    }
    tables = {of: _laws(own) for of, own in guess.tables.items()}
    return {
        law: replace(guess, typical=rows, tables={of: laws[law] for of, laws in tables.items()})
        for law, rows in typical.items()
    }


def _written(star: MadeUpStar, law: Guess, place: Path) -> Catalog:
    """Write the rows of all units; the catalog that reads them.

    Whoever owns many rows of one table owns many of each.
    """
    units = max(own.units for own in (law, *law.tables.values()))
    rows_by_table = {
        of: [0] * (units - own.units) + own.amounts(own.units).tolist()
        for of, own in {"": law, **law.tables}.items()
    }
    moved = _towards_means(star, law, rows_by_table)
    star = MadeUpStar(star.catalog, star.public, star.seed, moved)
    table_rows = dict[str, list[tuple[object, ...]]]()
    for unit in range(1, units + 1):
        numbers = {of: int(rows[unit - 1]) for of, rows in rows_by_table.items()}
        own = _manner(numbers.pop(""), numbers, unit / units, Random(f"{star.seed} {unit}"))
        for table, made in star.rows_of(unit, own).items():
            table_rows.setdefault(table, []).extend(made)
    return star.side(place, ONE_FILE, table_rows, crowd=False).catalog


def _towards_means(
    star: MadeUpStar, law: Guess, rows_by_table: Mapping[str, Sequence[int]]
) -> dict[str, Callable[[float], float]]:
    """Where values stand so that measures have the means that are guessed."""
    rng, moved = Random(star.seed), dict[str, Callable[[float], float]]()
    for measure, told in law.means.items():
        table, column = measure.split(".")
        spec = star.catalog.tables[table].written.get(column)
        if spec is None or spec.lower is None:  # an expression of other columns
            continue
        low, high = spec.bounds
        wanted = min(max((told * 10.0**spec.digits - low) / (high - low), 1e-6), 1.0)
        rows = rows_by_table.get(table, rows_by_table[""])
        units = rng.choices(range(1, len(rows) + 1), weights=rows, k=SAMPLE)
        middle = fmean(_near((unit / len(rows) + rng.random()) / 2, rng) for unit in units)
        moved[measure] = partial(_moved, wanted, middle)
    return moved


def _moved(wanted: float, middle: float, place: float) -> float:
    """A place nearer to the lower bound, or to the upper one, so that places have another mean."""
    return place * wanted / middle if wanted < middle else 1 - (1 - place) * (1 - wanted) / (1 - middle)


def _near(centre: float, rng: Random) -> float:
    """A place in [0, 1]; squares: the first categories are frequent and large values are rare."""
    return min(max(rng.gauss(centre, SPREAD_OF_VALUES), 0.0), 1.0) ** 2


def _manner(rows: int, numbers: Mapping[str, int], rank: float, rng: Random) -> Manner:
    """A unit with so many rows of each counted table, around a place of her own that rises with her rank."""
    centre = (rank + rng.random()) / 2

    def where(at: Callable[[float], object], beyond: object, draws: Random) -> object:
        return at(_near(centre, draws))

    return SPREAD._replace(name=f"{rows} rows", where=where, times=0, more=rows, numbers=numbers)


_Answer = tuple[Result, Grid, Grid]
"""A release's answer, with the ends of its intervals: both are computed while the release is open."""
_Cell = tuple[float, float, bool | None]
"""One number of one release: the size of the exact answer, or of the number where there is none; half of its interval,
infinite where an end is open; whether the interval holds the exact answer, None where there is none."""


@dataclass(frozen=True)
class _Answers:
    """One statement's answers under one law.

    Args:
        quiet: of the releases with the catalog's epsilon, in order.
        loud: of the loud release, where there is one.
        exact: plain DuckDB's rows by key.
        refusal, uncompared: as of `RehearsedQuestion`.
    """

    quiet: tuple[_Answer, ...] = ()
    loud: tuple[_Answer, ...] = ()
    exact: Exact = field(default_factory=dict)
    refusal: str = ""
    uncompared: str = ""

    @property
    def noisy(self) -> list[int]:
        """Positions of columns that are noisy in some release."""
        return sorted({c for result, _, _ in (*self.quiet, *self.loud) for c in result.noisy})

    @property
    def keys(self) -> list[int]:
        """Positions of the other columns."""
        return [c for c in range(len(self.quiet[0][0].columns)) if c not in self.noisy]

    def cells(self, answer: _Answer, column: int) -> Iterator[_Cell]:
        """A column's numbers; days and texts have no relative error."""
        result, lows, highs = answer
        for row, low, high in zip(result.rows, lows, highs, strict=True):
            if not isinstance(row[column], int | float | Decimal):
                continue
            # a median has its column's type, decimals too
            lower, upper = (None if end is None else float(end) for end in (low[column], high[column]))
            half = inf if lower is None or upper is None else (upper - lower) / 2
            exact = self.exact.get(_key(row, self.keys), {}).get(column)
            if not isinstance(exact, float):
                yield abs(float(row[column])), half, None
                continue
            room = ROOM * max(1.0, abs(exact))
            above = lower is None or exact >= lower - room
            yield abs(exact), half, above and (upper is None or exact <= upper + room)


def _ask(
    place: Path, written: Catalog, releases: int, workload: Sequence[str], *, first: int, loud: bool
) -> list[_Answers]:
    """Publish the rows of one law so often, each time with noise of its own, and ask every release everything."""
    # The catalog with `LOUD` times its epsilon, as far as catalogs go
    privacy, most = written.privacy, Fraction(MOST)
    changes = {"cap": privacy.cap} | ({"epsilon": privacy.epsilon} if privacy.epsilon else {})
    changes = {name: min(value * LOUD, most) for name, value in changes.items()}
    catalogs = [written] * releases + [
        written.model_copy(update={"privacy": privacy.model_copy(update=changes)})
    ] * loud
    with ExitStack() as stack:
        sessions = list[OpenReleases]()
        for number, catalog in enumerate(catalogs, first):
            folder = place / str(number)  # a ledger must know each release of its lineage that lies near
            folder.mkdir()
            target, ledger = folder / "made-up.dpsql", str(folder / "ledger.duckdb")
            noise, key = ExactNoise(insecure_test_entropy(number)), number.to_bytes(32, "big")
            publish_release(catalog.model_copy(update={"ledger": ledger}), target, noise=noise, key=key)
            sessions.append(stack.enter_context(closing(open_session([target], insecure=True))))
        exact = stack.enter_context(closing(_exact_database(place, written)))
        return [_answers(sql, sessions, exact, loud=loud) for sql in workload]


def _exact_database(place: Path, written: Catalog) -> duckdb.DuckDBPyConnection:
    """The made-up rows in memory, in a database that opens no file once they are there."""
    exact = duckdb.connect(":memory:", config={"python_enable_replacements": "false"})
    for name in written.tables:
        file = literal(str(place / f"{name}.parquet"))
        exact.execute(f"CREATE TABLE {identifier(f'raw {name}')} AS FROM {file}")
    exact.execute("SET enable_external_access = false")
    exact.execute("SET lock_configuration = true")
    for name, table in written.tables.items():
        derived = "".join(f", {sql} AS {identifier(column)}" for column, sql in table.derive.items())
        exact.execute(f"CREATE VIEW {identifier(name)} AS SELECT *{derived} FROM {identifier(f'raw {name}')}")
    return exact


def _answers(
    sql: str, sessions: Sequence[OpenReleases], exact: duckdb.DuckDBPyConnection, *, loud: bool
) -> _Answers:
    answered = []
    try:
        for session in sessions:
            result = session.query(sql)
            level = LOUD_LEVEL if loud and session is sessions[-1] else LEVEL
            answered.append((result, *result.interval_rows(level)))
    except Error as refusal:
        return _Answers(refusal=str(refusal))
    answers = _Answers(tuple(answered[: len(answered) - loud]), tuple(answered[len(answered) - loud :]))
    try:
        rows = exact.execute(sql).fetchall()  # a statement that the guard has let pass
    except duckdb.Error as error:
        return replace(answers, uncompared=f"plain DuckDB has no exact answer ({type(error).__name__})")
    keyed = {_key(row, answers.keys): dict(enumerate(map(_number, row))) for row in rows}
    return replace(answers, exact=keyed)


def _key(row: Sequence[object], keys: Sequence[int]) -> Key:
    """A group's key; a day is the same as a time or as a date."""
    values = (row[column] for column in keys)
    return tuple(str(v).removesuffix(" 00:00:00") if isinstance(v, date) else _number(v) for v in values)


def _number(value: object) -> object:
    return float(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else value


def _question(sql: str, laws: Sequence[_Answers]) -> RehearsedQuestion:
    """Forecast of one statement under all laws of rows a unit."""
    if refusal := next((answers.refusal for answers in laws if answers.refusal), ""):
        return RehearsedQuestion(sql, refusal=refusal)
    noisy = sorted({column for answers in laws for column in answers.noisy})
    uncompared = next((answers.uncompared for answers in laws if answers.uncompared), "")
    first = laws[0].quiet[0][0]
    columns = tuple(_column(sql, laws, column, first.columns[column]) for column in noisy)
    return RehearsedQuestion(sql, columns, uncompared=uncompared, notes=first.notes)


def _column(sql: str, laws: Sequence[_Answers], column: int, name: str) -> RehearsedColumn:
    by_law = [[list(answers.cells(answer, column)) for answer in answers.quiet] for answers in laws]
    loud = [cell for answers in laws for answer in answers.loud for cell in answers.cells(answer, column)]
    every = [cell for releases in by_law for cells in releases for cell in cells]
    compared = [held for _, _, held in every if held is not None]
    rng, drawn = Random(sql), list[bool]()
    for cells in (cells for releases in by_law for cells in releases):
        known = [held for _, _, held in cells if held is not None]
        drawn += [rng.choice(known)] if known else []
    return RehearsedColumn(
        name, _middle([half for _, half, _ in every]),
        tuple(_middle([half for cells in releases for _, half, _ in cells]) for releases in by_law),
        _middle([size for size, _, _ in every]) or 0.0, sum(compared), len(compared),
        (sum(held is False for _, _, held in loud), len(loud)), _chance(drawn.count(False), len(drawn)),
    )  # fmt: skip


def _middle(values: Sequence[float]) -> float | None:
    """The median; None where it is open or there is none."""
    middle = median(values) if values else inf
    return middle if middle < inf else None


def _chance(misses: int, draws: int) -> float:
    """Of at least so many misses where each has a chance of 5%."""
    return sum(comb(draws, k) * (1 - LEVEL) ** k * LEVEL ** (draws - k) for k in range(misses, draws + 1))


def _beyond_chance(questions: Sequence[RehearsedQuestion]) -> Iterator[str]:
    """Columns that miss more often than chance would, by Holm's steps over all of them."""
    columns = sorted(
        (column.chance, f"{question.sql}: {column.name}")
        for question in questions
        for column in question.columns
    )
    for done, (chance, name) in enumerate(columns):
        if chance > GATE / (len(columns) - done):
            return
        yield name
