"""Statements as text, each with a claim about its answer (`statements/STAR.sql`): nobody needs Python to add one.

The sections of a file are kinds of claims, those of `KINDS`; lines of `-- ` above a statement say what the claim needs:
the statement of plain DuckDB, rows, words. A star is a catalog and the queries that make its rows, published without
noise (`statements/STAR.yaml`), or one of `PROGRAMS`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
import yaml

from benchmarks.answers import clinic
from dpsql import errors
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import Noise, ZeroNoise
from dpsql.release import open_release
from dpsql.release.request import Request
from dpsql.results.result import Result
from tests.interfaces_release import build
from tests.release_fixture import make_rows, raw_star, write_fixture
from tests.releases import Twins, plain_tables, published, write_catalog, write_tables
from tests.statements import sections

FOLDER = Path(__file__).with_name("statements")
NOON = datetime(2025, 2, 15, 12, 0, 33, 250_000, tzinfo=UTC)
Rows = Iterable[tuple[Any, ...]]


def at(moment: datetime) -> Request:
    """A request that began then."""
    request = Request()
    request.began = moment
    return request


class Claim(NamedTuple):
    """A statement, what is said of it, and the star that it is asked of."""

    engine: ReleaseEngine
    raw: duckdb.DuckDBPyConnection
    text: str
    words: str
    dialect: str = ""

    def answer(self) -> Result:
        return self.engine.query(self.text, dialect=self.dialect)

    def plain(self) -> list[tuple[Any, ...]]:
        """DuckDB's answer over the raw rows, by the words where there are any."""
        return self.raw.execute(self.words or self.text).fetchall()


def number(value: object) -> bool:
    return isinstance(value, int | float | Decimal | None) and not isinstance(value, bool)


def equal(one: object, other: object) -> bool:
    """Equal values; SUM over no row is 0 here and NULL there, and a truncated day may be a time."""
    if number(one) and number(other):
        return math.isclose(float(one or 0), float(other or 0), rel_tol=1e-6, abs_tol=1e-5)  # type: ignore[arg-type]
    mine, plain = (str(value).removesuffix("+00:00").removesuffix(" 00:00:00") for value in (one, other))
    return mine == plain


def alike(rows: Rows, others: Rows) -> bool:
    """Both have equal rows in one order."""
    rows, others = list(rows), list(others)
    return len(rows) == len(others) and all(all(map(equal, a, b)) for a, b in zip(rows, others, strict=True))


def as_duckdb(claim: Claim) -> None:
    """The rows are DuckDB's; groups of nobody may be added, and an ORDER BY orders the others."""
    got, want = claim.answer().rows, claim.plain()
    assert want

    def found(row: tuple[Any, ...], among: Rows) -> bool:
        return any(all(map(equal, row, other)) for other in among)

    assert [row for row in want if not found(row, got)] == [], got
    assert all(equal(row[-1], 0) for row in got if not found(row, want)), got
    if "ORDER BY" in claim.text.rsplit(")", 1)[-1] and not claim.dialect:  # others put NULL elsewhere
        assert alike([row for row in got if found(row, want)], want)


def row_for_row(claim: Claim) -> None:
    """The rows are DuckDB's, and no others are there."""
    got, want = (
        [tuple(_plain(v) for v in row) for row in rows] for rows in (claim.answer().rows, claim.plain())
    )
    ordered = "ORDER BY" in claim.text.rsplit(")", 1)[-1]
    assert got == want if ordered else sorted(got, key=repr) == sorted(want, key=repr)


def _plain(value: object) -> object:
    return round(float(value), 6) if number(value) and value is not None else value  # type: ignore[arg-type]


def defined(claim: Claim) -> None:
    """As DuckDB, and no column is without an error by the statement's form."""
    as_duckdb(claim)
    assert not claim.answer().undefined


def with_errors(claim: Claim) -> None:
    """As DuckDB, and every number has an error, which is small without noise."""
    as_duckdb(claim)
    result = claim.answer()
    assert result.rows and all(0 < float(row[c] or 0) < 1 for row in result.stderr_rows for c in result.noisy)


def these_rows(claim: Claim) -> None:
    """The rows are those of the words, as JSON."""
    assert alike(claim.answer().rows, json.loads(claim.words)), claim.answer().rows


def bounded(claim: Claim) -> None:
    """Values are interpolated within bins: DuckDB's numbers by group are within `model_bound`."""
    result = claim.answer()
    assert any("have several values" in note for note in result.notes)
    keyed = {row[0]: (row, bounds) for row, bounds in zip(result.rows, result.model_bound, strict=True)}
    for key, *values in claim.plain():
        row, bounds = keyed[key]
        for mine, plain, bound in zip(row[1:], values, bounds[1:], strict=True):
            assert bound is not None and abs(float(mine) - float(plain)) <= bound + 1e-6, (mine, plain, bound)
    assert any(bound for bounds in result.model_bound for bound in bounds)


def errors_alike(claim: Claim) -> None:
    """Value and error are those of the statement in the words."""
    mine, want = claim.answer(), claim.engine.query(claim.words)
    assert float(mine.scalar()) == pytest.approx(float(want.scalar()))
    # where ages beyond the bounds may be meant they have more cases in one spelling than in the other
    near = pytest.approx(want.stderr_rows[0][0], rel=2e-2 if "age" in claim.words else 1e-6)
    assert mine.stderr_rows[0][0] == near
    asked = claim.text.replace("SELECT ", "SELECT DP_STDERR(", 1).replace(" FROM", ") FROM", 1)
    assert float(claim.engine.query(asked).scalar()) == near


def covered(claim: Claim) -> list[float | None]:
    """DuckDB's numbers are in their intervals; groups are in one order, those of nobody last. Gives the widths."""
    result, widths = claim.answer(), list[float | None]()
    low, high = result.interval_rows()
    for row, below, above in zip(claim.plain(), low, high, strict=False):
        for c in result.noisy:
            bottom, top = below[c], above[c]
            if bottom is None or top is None:
                widths.append(None)
                continue
            assert float(bottom) - 1e-3 <= float(row[c]) <= float(top) + 1e-3, (row[c], bottom, top)
            widths.append(float(top) - float(bottom))
    return widths


def decided(claim: Claim) -> None:
    """Covered within an interval of less than one row, and nothing is said of unlisted values."""
    assert all(width is not None and width < 1.0 for width in covered(claim))
    assert not any("unlisted values" in note for note in claim.answer().notes)


def open_ended(claim: Claim) -> None:
    """No interval has an end."""
    assert set(covered(claim)) == {None}


def closed(claim: Claim) -> None:
    """Covered, and every interval has both ends."""
    assert None not in covered(claim)


def wide(claim: Claim) -> None:
    """Covered, value included, within an interval of some width."""
    widths, result = covered(claim), claim.answer()
    assert widths and all(width is not None and 0 < width < 1000 for width in widths)
    low, high = result.interval_rows()
    assert all(a[-1] <= row[-1] <= b[-1] for a, row, b in zip(low, result.rows, high, strict=True))


def grouped(claim: Claim) -> None:
    """Rows outside of the domain that a condition may mean are in a group; the sum over the groups covers them."""
    answer, truth = claim.answer(), dict(claim.plain())
    rows = {row[0]: ends for row, *ends in zip(answer.rows, *answer.interval_rows(), strict=True)}
    for value in truth.keys() & rows.keys() - {None, "(other)"}:
        assert rows[value][0][1] - 0.1 <= truth[value] <= rows[value][1][1] + 0.1, value
    outside = sum(count for value, count in truth.items() if value not in rows)
    room = max((high[1] for value, (_, high) in rows.items() if value in (None, "(other)", "o")), default=0)
    assert outside <= room + 0.1
    (low,), (high,) = claim.engine.query(f"SELECT SUM(n) FROM ({claim.text}) AS t").interval_rows()
    assert low[0] - 0.1 <= sum(truth.values()) <= high[0] + 0.1
    assert outside == 0 or any("unlisted values" in note for note in answer.notes)


def notes(claim: Claim) -> None:
    """Each line of the words is in a note; after `not ` it is in none."""
    _said(claim, claim.answer().notes)


def flags(claim: Claim) -> None:
    """Each line of the words is in one flag and no more; after `not ` it is in none."""
    said = claim.answer().flags
    _said(claim, said)
    for line in claim.words.splitlines():
        assert sum(line in str(flag) for flag in said) <= 1, said


def clock(claim: Claim) -> None:
    """The statement reads the moment at which its request began; the words say what it means at `NOON`."""
    with at(NOON).working():
        found = claim.answer()
    want = claim.engine.query(claim.words, dialect="postgres")
    assert found.rows == want.rows and 0 < want.rows[0][0] < 900
    assert "the time is 2025-02-15 12:00:33 UTC, when the statement began" in found.notes
    assert found.provenance["moment"] == "2025-02-15 12:00:33" and "moment" not in want.provenance


def names(claim: Claim) -> None:
    """Columns are called as their dialect calls them."""
    assert list(claim.answer().columns) == claim.words.split(", ")


def _said(claim: Claim, said: Iterable[str]) -> None:
    for line in claim.words.splitlines():
        absent = line.startswith("not ")
        assert any(line.removeprefix("not ") in str(note) for note in said) is not absent, (line, said)


def refused(claim: Claim, kind: str) -> None:
    """An error of the section's class; all parts of the words between ` .. ` are in its sentence.

    `at`: the words are the clause, a colon, and the part of the statement that the caret marks.
    """
    kind, _, where = kind.partition(" ")
    with pytest.raises(getattr(errors, kind)) as caught:
        claim.answer()
    error = caught.value
    assert "\n" not in str(error) and error.exit_code == 1
    assert error.caret or where != "with a caret"
    if where != "at":
        assert all(part in str(error) for part in claim.words.split(" .. ")), error
        return
    clause, _, part = (each.strip() for each in claim.words.partition(":"))
    assert error.clause == clause
    if part:
        assert error.position is not None
        line, carets = error.caret.split("\n")
        marked = line[carets.index("^") : carets.rindex("^") + 1]
        assert part.split("(")[0] in marked or marked in part, (marked, error.caret)


def null(claim: Claim, north: bool = False) -> None:
    """The last column is NULL; `outside the north`, where it is not."""
    rows = claim.answer().rows
    assert rows and all(row[-1] is None for row in rows if row[0] != "north" or not north), rows
    assert not north or {row[0]: row[-1] for row in rows}["north"] is not None


def answered(claim: Claim) -> None:
    """Some row is shown."""
    assert claim.answer().rows


def uncut(claim: Claim) -> None:
    """No leaf is interpolated for the last column."""
    assert all(row[-1] == 0 for row in claim.answer().model_bound)


KINDS: dict[str, Callable[[Claim], object]] = {
    "as duckdb": as_duckdb, "row for row": row_for_row, "defined": defined, "with errors": with_errors,
    "rows": these_rows, "bounded": bounded, "errors alike": errors_alike, "covered": covered, "decided": decided,
    "open": open_ended, "closed": closed, "wide": wide, "grouped": grouped, "notes": notes, "flags": flags,
    "clock": clock, "names": names, "null": null, "null outside the north": partial(null, north=True),
    "answered": answered, "uncut": uncut,
}  # fmt: skip


def check(claim: Claim, section: str) -> None:
    """A section is a kind, a refusal with its class, perhaps `in` a dialect or `, noting` what each answer says."""
    kind, _, note = section.partition(", noting ")
    kind, _, dialect = kind.partition(" in ")
    claim = claim._replace(dialect=dialect)
    if kind.startswith("refused "):
        refused(claim, kind.removeprefix("refused "))
    else:
        KINDS[kind](claim)
    assert not note or any(note in str(each) for each in claim.answer().notes)


def hand_written(folder: Path, known_only: bool = True) -> Twins:
    rows = make_rows()
    file = write_fixture(folder / "fixture.dpsql", rows, 1e-18 if known_only else 1.0)
    return ReleaseEngine(open_release(file)), raw_star(rows, known_only=known_only)


def of_interfaces(folder: Path) -> Twins:
    return ReleaseEngine(open_release(build(folder))), duckdb.connect()


def of_clinic(folder: Path) -> Twins:
    seen = clinic.made(3)
    return clinic.publish(folder / "clinic", seen), clinic.filled(clinic.TABLES, seen)


PROGRAMS: dict[str, Callable[[Path], Twins]] = {
    "fixture": hand_written, "whole": partial(hand_written, known_only=False), "shop": of_interfaces,
    "clinic": of_clinic,
}  # fmt: skip
"""Stars that a program makes; `whole` has the rows whose keys name nobody, and its release has noise."""


def star(
    name: str, folder: Path, noise: Noise | None = None, changes: Mapping[str, str] | None = None
) -> Twins:
    """A release and plain DuckDB over the same rows, without those that `removed` says belong to nobody.

    Args:
        name: of a star's file, or of one that a program makes.
        folder: made if it is absent.
        noise: none unless given.
        changes: of words of the file.
    """
    if name in PROGRAMS:
        return PROGRAMS[name](folder)
    file = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    for old, new in (changes or {}).items():
        assert old in file, old
        file = file.replace(old, new)
    tables, text = file.split("\n---\n")
    queries = yaml.safe_load(tables)
    removed = queries.pop("removed", "")
    if "kind: csv" in text:
        write_tables(folder, queries, "csv")
        queries = {}
    engine, raw = published(write_catalog(folder, text, queries), noise or ZeroNoise()), plain_tables(folder)
    raw.execute(removed or "SELECT 1")
    return engine, raw


@pytest.fixture(scope="module")
def stars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Twins]]:
    made = dict[str, Twins]()

    def of_name(name: str) -> Twins:
        if name not in made:
            made[name] = star(name, tmp_path_factory.mktemp(name))
        return made[name]

    yield of_name
    for engine, _ in made.values():
        engine.release.close()


SLOW = {"clinic"}
"""Stars that say the same of rows that were not made for it."""
CASES = [
    pytest.param(file.stem, section, text, words, id=f"{file.stem}-{section}-{text[:60]}",
                 marks=[pytest.mark.slow] if file.stem in SLOW else [])
    for file in sorted(FOLDER.glob("*.sql"))
    for section, statements in sections(file).items()
    for text, words in statements
]  # fmt: skip
HAND_WRITTEN = {"fixture", "whole"}


@pytest.mark.parametrize(
    ("name", "section", "text", "words"), [c for c in CASES if c.values[0] in HAND_WRITTEN]
)
def test_a_statement(stars: Callable[[str], Twins], name: str, section: str, text: str, words: str) -> None:
    check(Claim(*stars(name), text, words), section)


@pytest.mark.usefixtures("publishes")
@pytest.mark.parametrize(
    ("name", "section", "text", "words"), [c for c in CASES if c.values[0] not in HAND_WRITTEN]
)
def test_a_statement_about_a_published_star(
    stars: Callable[[str], Twins], name: str, section: str, text: str, words: str
) -> None:
    check(Claim(*stars(name), text, words), section)


def test_a_wrong_claim_fails(stars: Callable[[str], Twins]) -> None:
    """Each kind over a statement that it is not true of."""
    total = "SELECT COUNT(*) FROM sales"
    wrong = dict.fromkeys(KINDS, (total, "SELECT 899")) | {
        "rows": (total, "[[899]]"), "errors alike": (total, f"{total} WHERE qty > 0"), "clock": (total, total),
        "grouped": ("SELECT 1 AS k, COUNT(*) AS n FROM sales GROUP BY 1", "SELECT 1, 899"),
        "answered": ("SELECT age, COUNT(*) FROM customer GROUP BY 1 HAVING age < 0", ""),
        "uncut": ("SELECT COUNT(*) FROM shop WHERE price < 12", ""),
        "refused NoViewError": (total, ""), "refused RawRowsError": (f"{total} WHERE amount > 5", ""),
    }  # fmt: skip
    for section, (text, words) in wrong.items():
        with pytest.raises((AssertionError, pytest.fail.Exception, errors.Error)):
            check(Claim(*stars("fixture"), text, words), section)
