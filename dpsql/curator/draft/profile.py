"""Profiles of raw tables: rows, types, bounds, few values. Files, DuckDB and PostgreSQL are asked in the same
SQL.

CSV columns are text; a column is a number, a date or a time where every one of its values reads as one. One pass over
each table counts all that its columns' types are decided by, and a second one what their bounds are.

Texts that write days, times or numbers otherwise than ISO 8601 or with a point: a draft proposes none of these as
types, since `01/02/2023` is two days and `1,234` two numbers. It says which expressions of `derive` read all values of
a column, and the curator writes the one that is right.

**Privacy**: sees raw rows. What comes out is for the curator, and the draft marks it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import duckdb

from dpsql.axis.model import ABSENT as ABSENT_TEXTS
from dpsql.catalog.source import CSV, DUCKDB, PARQUET, POSTGRESQL, Csv, SourceKind
from dpsql.engines import open_sources
from dpsql.engines.duck import RawSide
from dpsql.engines.file_formats import LONGEST
from dpsql.engines.postgresql import PostgresSession
from dpsql.engines.schema_union import one_row_a_person
from dpsql.engines.server import every_column
from dpsql.engines.values import FLOATS, INTEGERS, TIMES, decimal_digits, family
from dpsql.errors import SourceError
from dpsql.row_expressions import identifier, literal

FEW = 60
"""Different values that are listed one by one."""

MANY_CODES, CODE_ROWS = 1000, 10
"""So many different values are listed too where a value has this many rows on average: teams and airports repeat, names
of people and remarks do not."""

ODD = 0.001
"""Part of the rows at either end that bounds leave out: typing errors and wholesale customers lie there."""

DIGITS = 4
"""Digits behind the point that are looked for in floating-point columns."""


DAY_FORMS = (
    "%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y",
    "%b %d, %Y", "%d %b %Y",
)  # fmt: skip
CLOCKS = ("", " %H:%M", " %H:%M:%S")
FIELDS = {"%Y": "[0-9]{4}", "%y": "[0-9]{2}", "%b": "[A-Za-z]{3}"}
SYMBOLS = ("", "%", "€", "$", "£")
"""What may stand beside a number: one of them in all values of a column."""

CANDIDATE = "[A-Za-z]{0,3}[ €$£+-]*[0-9][0-9., :/€$£%-]*( [A-Z][a-z]{2} [0-9]{4}.*)?"
"""Texts that may be any of these: most columns hold others, and are counted no further."""
CODES = "[0-9]+"
"""Digits alone that are no number yet begin with 0: postcodes."""


class Reading(NamedTuple):
    """An expression that reads every value of a text column.

    Args:
        ending: of the derived column's name.
        expression: over the column.
        declared: keys of the derived column; bounds are the curator's.
    """

    ending: str
    expression: str
    declared: str


WrittenForm = tuple[str, Reading]
"""A way to write days, times or numbers: a test of a text and its reading, both in SQL over `{x}`."""


def _forms() -> tuple[WrittenForm, ...]:
    forms = []
    for day, clock in product(DAY_FORMS, CLOCKS):
        text = (day + clock).replace(".", "[.]")
        pattern = re.sub("%[A-Za-z]", lambda match: FIELDS.get(match[0], "[0-9]{1,2}"), text)
        called = literal(day + clock)
        ending, kind = ("time", "type: timestamp, grain: hour") if clock else ("day", "type: date")
        test = f"regexp_full_match({{x}}, {literal(pattern)}) AND try_strptime({{x}}, {called}) IS NOT NULL"
        read = Reading(ending, f"strptime({{x}}, {called})", f"{kind}, lower: .., upper: ..")
        forms.append((test, read))
    for symbol, (thousands, point) in product(SYMBOLS, ((".", ","), (",", "."))):
        bare = f"replace({{x}}, {literal(symbol)}, '')" if symbol else "{x}"
        there = f"contains({{x}}, {literal(symbol)}) AND " if symbol else ""
        number = f"[+-]?([0-9]{{1,3}}([{thousands}][0-9]{{3}})+|[0-9]+)([{point}][0-9]+)?"
        expression = f"replace({bare}, {literal(thousands)}, '')"
        expression = expression if point == "." else f"replace({expression}, ',', '.')"
        read = Reading("number", expression, "type: decimal, scale: 2, lower: .., upper: .., measure: true")
        forms.append((f"{there}regexp_full_match(trim({bare}), {literal(number)})", read))
    hour = Reading("hour", "CAST(left({x}, 2) AS INT)", "type: int, lower: 0, upper: 23")
    return (*forms, ("regexp_full_match({x}, '[0-2][0-9]:[0-9]{2}(:[0-9]{2})?')", hour))


FORMS = _forms()


def readings(
    fetch: Callable[[str], Sequence[Sequence[Any]]], relation: str, kinds: Mapping[str, str]
) -> Mapping[str, tuple[Reading, ...]]:
    """Readings that fit all values of text columns, and of whole numbers that are days.

    Args:
        fetch: the rows of a SELECT, in DuckDB's SQL.
        relation: what a FROM clause names.
        kinds: column -> DuckDB type.

    Returns:
        Column -> expressions; of columns that one of them reads.
    """
    texts = [name for name, kind in kinds.items() if kind == "VARCHAR"]
    numbers = [name for name, kind in kinds.items() if kind in INTEGERS]
    alike = ("TRUE", *(f"regexp_full_match({{x}}, {literal(pattern)})" for pattern in (CANDIDATE, CODES)))
    figures = [
        f"count(*) FILTER (WHERE {{x}} NOT IN {ABSENT} AND {test})".replace("{x}", identifier(column))
        for column in texts for test in alike
    ]  # fmt: skip
    counts = list(fetch(f"SELECT {', '.join([*figures, 'count(*)'])} FROM {relation}")[0])
    columns = dict[str, tuple[Reading, ...]]()
    for i, name in enumerate(texts):
        values, candidates, codes = counts[3 * i : 3 * i + 3]
        if not values or candidates < values or codes == values:
            continue
        column = identifier(name)
        tests = ", ".join(f"bool_and({test})" for test, _ in FORMS).replace("{x}", column)
        fits = fetch(f"SELECT {tests} FROM {relation} WHERE {column} NOT IN {ABSENT}")[0]
        readers = (read for (_, read), fit in zip(FORMS, fits, strict=True) if fit)
        columns[name] = tuple(r._replace(expression=r.expression.replace("{x}", column)) for r in readers)
    day = "{x} BETWEEN 19000101 AND 21001231 AND try_strptime(CAST({x} AS VARCHAR), '%Y%m%d') IS NOT NULL"
    days = [f"bool_and({day.replace('{x}', identifier(name))})" for name in numbers]
    fits = fetch(f"SELECT {', '.join([*days, 'count(*)'])} FROM {relation}")[0]
    for name in (name for name, fit in zip(numbers, fits, strict=False) if fit):
        read = "make_date({x} // 10000, {x} // 100 % 100, {x} % 100)".replace("{x}", identifier(name))
        columns[name] = (Reading("day", read, "type: date, lower: .., upper: .."),)
    return columns


class Nature(NamedTuple):
    """Nature of a column's values.

    Args:
        word: the catalog's type.
        counts: whether they are numbers.
        timed: whether they are days or moments.
    """

    word: str
    counts: bool = False
    timed: bool = False


WHOLE, DECIMAL = Nature("int", counts=True), Nature("decimal", counts=True)
DAY, MOMENT = Nature("date", timed=True), Nature("timestamp", timed=True)
TRUTH, TEXT = Nature("bool"), Nature("string")
_NATURES = {"integer": WHOLE, "text": TEXT, "UUID": TEXT, "BOOLEAN": TRUTH}
"""By family of the stored type."""


@dataclass(frozen=True)
class ColumnFacts:
    """Profile of a column.

    Args:
        name: the column.
        nature: what its values are; None for types that no catalog has.
        scale: digits behind the point.
        low, high: smallest and largest number or time as text, without the odd ones; None where there is none.
        inner: the values between which 99.8% of the rows lie, as text.
        ends: the smallest and the largest value, as text.
        distinct: how many different values.
        nullable: whether a NULL was seen.
        unique: whether no value stands twice and none is NULL.
        values: all values in order, where they are few; otherwise empty.
        guessed: whether its type was read from its values, as of CSV files.
        present: rows in which it is not NULL.
        named: whether a question of the workload names it.
        readings: of texts, expressions that read all of them as a day, a time or a number.
        rare: whether values of too few people were taken out of `values`.
    """

    name: str
    nature: Nature | None
    scale: int = 0
    low: str | None = None
    high: str | None = None
    inner: tuple[str, str] | None = None
    ends: tuple[str, str] | None = None
    distinct: int = 0
    nullable: bool = False
    unique: bool = False
    values: tuple[str, ...] = ()
    guessed: bool = False
    present: int = 0
    named: bool = False
    readings: tuple[Reading, ...] = ()
    rare: bool = False

    @property
    def repeats(self) -> bool:
        """True if its values come again and again, as codes and years do."""
        return 1 < self.distinct <= MANY_CODES and self.present >= CODE_ROWS * self.distinct


@dataclass(frozen=True)
class TableFacts:
    """Profile of a table.

    Args:
        name: as the draft calls it.
        place: file or table of the source.
        rows: how many.
        columns: in the source's order.
        left_out: lines of its file that are no rows.
        repeated: a column that is unique once whole rows that stand twice are put together; None elsewhere.
        people_of: the table whose rows, put together by `key`, make this one's people; empty of a table of the source.
    """

    name: str
    place: str
    rows: int
    columns: tuple[ColumnFacts, ...]
    left_out: int = 0
    repeated: str | None = None
    people_of: str = ""

    @property
    def unique_columns(self) -> list[str]:
        """Columns that may be its key."""
        unique = [column.name for column in self.columns if column.unique]
        return unique or ([self.repeated] if self.repeated else [])

    def column(self, name: str) -> ColumnFacts:
        """The column of that name."""
        return next(column for column in self.columns if column.name == name)


@dataclass
class SourceFiles:
    """Parquet, CSV or DuckDB, opened as publishing opens them; CSV columns get the types that all their values have.

    Args:
        kind: in the catalog.
        root: as the catalog writes it.
        places: table -> file or table of the source.
        csv: the CSV dialect; None for other sources.
        unread_files: files of tables that are not read: a source has files of one ending.
    """

    kind: SourceKind
    root: str
    places: Mapping[str, str]
    csv: Csv | None = None
    unread_files: Sequence[str] = ()
    _raw: RawSide = field(init=False)
    _typed: dict[str, dict[str, str]] = field(default_factory=dict)
    _people: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Open the source; `left_out` says of a table how many lines of its file are no rows."""
        self._raw = open_sources(self.kind, Path(self.root), self.places, csv=self.csv)
        self.left_out, self.close = self._raw.left_out, self._raw.close
        for table in self._raw.from_csv:
            self._typed[table] = self._types_of(table)

    def columns(self, table: str) -> Mapping[str, str]:
        """Column -> type in DuckDB's words."""
        return self._typed.get(table) or self._raw.columns[table]

    def put_together(self, people: str, of: str, key: str) -> None:
        """Make a relation of people from rows of a table, one a key (`people_of`)."""
        rows = one_row_a_person(people, f"SELECT * FROM {self.relation(of)}", self.columns(of), key)
        self._people[people] = f"({rows}) AS typed"

    def relation(self, table: str) -> str:
        """Relation of a FROM clause."""
        if table in self._people:
            return self._people[table]
        place, typed = f"raw.{identifier(table)}", self._typed.get(table)
        if typed is None:
            columns = self._raw.columns[table].items()
            floats = [identifier(name) for name, kind in columns if kind in FLOATS]
            known = ", ".join(f"nullif({name}, CAST('NaN' AS DOUBLE)) AS {name}" for name in floats)
            return f"(SELECT * REPLACE ({known}) FROM {place}) AS typed" if floats else place
        named = ((identifier(name), kind) for name, kind in typed.items())
        casts = (f"TRY_CAST({name} AS {kind}) AS {name}" for name, kind in named)
        return f"(SELECT {', '.join(casts)} FROM {place}) AS typed"

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a SELECT, in the SQL that DuckDB and PostgreSQL share."""
        return self._raw.connection.execute(sql).fetchall()

    def readings(self, table: str) -> Mapping[str, tuple[Reading, ...]]:
        """Column -> what `derive` may read it by; none where nothing can be derived."""
        return readings(self.fetch, self.relation(table), self.columns(table))

    def _types_of(self, table: str) -> dict[str, str]:
        """The narrowest type that every value of a text column reads as."""
        names = list(self._raw.columns[table])
        quoted = [identifier(name) for name in names]
        tests = [f"count({name}) FILTER (WHERE {name} NOT IN {ABSENT})" for name in quoted]
        tests += [  # values that are written in a form and are valid in it
            f"count(*) FILTER (WHERE regexp_full_match({name}, {literal(form)}) "
            f"AND TRY_CAST({name} AS {kind}) IS NOT NULL)"
            for name in quoted
            for kind, form in CSV_TYPES
        ]
        counts = self.fetch(f"SELECT {', '.join(tests)} FROM raw.{identifier(table)}")[0]
        types, width = {}, len(CSV_TYPES)
        for i, name in enumerate(names):
            reads = counts[len(names) + i * width : len(names) + (i + 1) * width]
            fits = [kind for (kind, _), n in zip(CSV_TYPES, reads, strict=True) if n == counts[i] > 0]
            types[name] = fits[0] if fits else "VARCHAR"
        return types


CSV_TYPES = (
    ("BOOLEAN", "true|false|TRUE|FALSE|True|False"),
    ("BIGINT", "-?(0|[1-9][0-9]{0,17})"),  # 02134 is a code, not a number
    # 1E5 is a code; pandas writes 1e-05, Stata and SAS .5
    ("DOUBLE", r"-?((0|[1-9][0-9]{0,14})(\.[0-9]+)?|\.[0-9]+)(e[+-][0-9]{1,3})?"),
    ("DATE", "[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    ("TIMESTAMP", r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"),
    (
        "TIMESTAMP WITH TIME ZONE",
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)",
    ),
)
"""Types of CSV columns, the narrowest first, and how their values are written."""

ABSENT = f"({', '.join(map(literal, sorted(ABSENT_TEXTS)))})"
"""Texts that stand for no value: R writes NA. In a column of numbers or times, publishing reads them as NULL."""


class Postgres:
    """Tables of a PostgreSQL schema, asked in one read-only transaction as `SourceFiles` are."""

    kind = POSTGRESQL
    csv = None
    left_out: Mapping[str, int] = {}
    unread_files = ()

    def __init__(self, address: str) -> None:
        """Open the schema that the server's search path names first."""
        self.root = address
        self._session = PostgresSession(address, 3600)
        self.close = self._session.close
        listed = self._session.rows(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1",
            "listing the tables",
        )
        self.places = {plain(str(name)): identifier(str(name)) for (name,) in listed}
        stored = {table: self._session.table(place) for table, place in self.places.items()}
        self._tables = {table: as_stored for table, as_stored in stored.items() if as_stored is not None}
        self._columns = {
            table: every_column(self._session.name, self._session.dialect, as_stored, key=False)
            for table, as_stored in self._tables.items()
        }

    def columns(self, table: str) -> Mapping[str, str]:
        return {name: column.kind for name, column in self._columns[table].items()}

    def relation(self, table: str) -> str:
        selected = (f"{column.sql} AS {identifier(name)}" for name, column in self._columns[table].items())
        return f"(SELECT {', '.join(selected)} FROM {self._tables[table].place}) AS typed"

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return self._session.rows(sql, "reading the tables")

    def readings(self, table: str) -> Mapping[str, tuple[Reading, ...]]:
        return {}  # servers derive nothing from texts yet


SelectReader = SourceFiles | Postgres


def open_reader(source: str | Path, encoding: str = "utf-8") -> SelectReader:
    """Open what a curator points at.

    Args:
        source: a folder of Parquet or CSV files, one such file, a DuckDB file, or `postgresql://..`.
        encoding: of CSV files.

    Raises:
        SourceError: nothing readable is there.
    """
    if str(source).startswith(("postgresql://", "postgres://")):
        return Postgres(str(source))
    path = Path(source)
    if path.suffix.lower() in ENDINGS and path.is_file():
        return _files(path.parent, [path], encoding)
    if path.is_file():
        try:
            with duckdb.connect(str(path), read_only=True) as connection:
                rows = connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
        except duckdb.Error as error:
            raise SourceError(
                f"{path} is not a DuckDB file", hint="give a DuckDB file or a folder"
            ) from error
        return SourceFiles(DUCKDB, str(path), {plain(str(row[0])): str(row[0]) for row in rows})
    if not path.exists():
        raise SourceError(
            f"there is no folder or file {path}", hint="give a folder of tables or a DuckDB file"
        )
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    for ending in ENDINGS:
        if members := [file for file in files if file.suffix.lower() == ending]:
            return _files(path, members, encoding, (file for file in files if file.suffix.lower() in ENDINGS))
    if any(file.suffix.lower() in EXCEL for file in files):
        raise SourceError(f"{path} is or has Excel files", hint="save each sheet as CSV (UTF-8)")
    raise SourceError(
        f"{path} contains no Parquet or CSV file", hint="give a folder of tables or a DuckDB file"
    )


def lost_lines(file: Path, left_out: int) -> str:
    """A sentence on lines of a CSV file that are no rows: those that are not UTF-8, or those of another width.

    Args:
        file: the file.
        left_out: how many lines are no rows.
    """
    lines = file.read_bytes().removesuffix(b"\n").split(b"\n")
    odd = sum(not _decodes(line, "utf-8") for line in lines)
    if not odd:
        why = f"{left_out:,} of {len(lines):,} lines have more or fewer fields than the first"
        return f"{file.name}: {why}; correct them, or leave them out with --skip-lines"
    # cp1252 has no sign for five bytes; latin-1 reads everything, so it comes last
    encoding = next(name for name in ("cp1252", "latin-1") if all(_decodes(line, name) for line in lines))
    return f"{file.name}: {odd:,} of {len(lines):,} lines are not UTF-8; they read as {encoding}: --encoding {encoding}"


def _decodes(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def called(source: str | Path) -> str:
    """A name for what a curator points at: its folder, file or database.

    >>> called("data/shop/"), called("postgresql://me@host:5432/orders?sslmode=require")
    ('shop', 'orders')
    """
    path = urlsplit(str(source)).path if "://" in str(source) else str(source)
    return plain(Path(path).stem or "catalog")


EXCEL = (".xlsx", ".xls", ".xlsm")
ENDINGS = {".parquet": PARQUET, ".csv": CSV, ".tsv": CSV}


def _files(root: Path, files: Sequence[Path], encoding: str, beside: Iterable[Path] = ()) -> SourceFiles:
    kind = ENDINGS[files[0].suffix.lower()]
    dialect = (
        Csv.model_validate({"delimiter": _delimiter(files), "encoding": encoding}) if kind is CSV else None
    )
    unread = tuple(file.name for file in beside if file not in files)
    return SourceFiles(kind, str(root), {plain(file.stem): file.name for file in files}, dialect, unread)


def _delimiter(files: Sequence[Path]) -> str:
    """The delimiter that stands most often in the header lines, which are no rows; a comma where none does."""
    headers = b""
    for file in files:
        with file.open("rb") as stream:
            headers += stream.readline(LONGEST)
    return max(",;\t|", key=lambda mark: headers.count(mark.encode()))


def plain(text: str) -> str:
    """A name that a catalog accepts.

    >>> plain("2024 sales"), plain("shop")
    ('t_2024_sales', 'shop')
    """
    word = "".join(c if c.isalnum() else "_" for c in text)
    return word if word and not word[0].isdigit() else f"t_{word}"


def look(reader: SelectReader, named: frozenset[str] = frozenset()) -> tuple[TableFacts, ...]:
    """Profile every table.

    Args:
        reader: an open source.
        named: every word of the workload, in small letters.

    Returns:
        One entry for each table, in the source's order.
    """
    return tuple(_table(reader, table, place, named) for table, place in reader.places.items())


def _table(reader: SelectReader, table: str, place: str, named: frozenset[str]) -> TableFacts:
    kinds, relation = reader.columns(table), reader.relation(table)
    names = list(kinds)
    figures = [
        figure for name in names
        for figure in (f"count({identifier(name)})", f"count(DISTINCT {identifier(name)})", *_digits(name, kinds[name]))
    ]  # fmt: skip
    rows, *counted = reader.fetch(f"SELECT {', '.join(['count(*)', *figures])} FROM {relation}")[0]
    columns, at, read_by, is_named = [], 0, reader.readings(table), table.lower() in named
    for name in names:
        present, distinct = counted[at : at + 2]
        finer = counted[at + 2 : at + 2 + len(_digits(name, kinds[name]))]
        at += 2 + len(finer)
        scale = _scale(kinds[name], finer)
        facts = ColumnFacts(
            name, _nature(kinds[name], scale), scale, distinct=distinct, nullable=present < rows,
            unique=rows > 0 and distinct == rows and present == rows, guessed=reader.csv is not None,
            present=present, named=is_named and name.lower() in named, readings=read_by.get(name, ()),
        )  # fmt: skip
        columns.append(_with_values(_with_bounds(facts, reader, relation), reader, relation))
    table_facts = TableFacts(table, place, int(rows), tuple(columns), reader.left_out.get(table, 0))
    return replace(table_facts, repeated=_repeated(table_facts, reader, relation))


def _digits(name: str, kind: str) -> list[str]:
    """Number of values with more than 0, 1, .. decimal digits."""
    if kind not in FLOATS:
        return []
    value = f"CAST({identifier(name)} AS DOUBLE PRECISION)"
    return [
        f"count(*) FILTER (WHERE abs({value} * 1e{n} - round({value} * 1e{n})) > 1e-6)" for n in range(DIGITS)
    ]


def _scale(kind: str, finer: Sequence[int]) -> int:
    declared = decimal_digits(kind)
    if declared:
        return min(declared.places, 9)
    return next((n for n, count in enumerate(finer) if not count), DIGITS if finer else 0)


def _nature(kind: str, scale: int) -> Nature | None:
    if kind in FLOATS or decimal_digits(kind):
        return DECIMAL if scale else WHOLE
    if kind in TIMES:
        return DAY if kind == "DATE" else MOMENT
    return _NATURES.get(family(kind))


def _with_bounds(facts: ColumnFacts, reader: SelectReader, relation: str) -> ColumnFacts:
    """Bounds of numbers and times: the ends of what most rows hold, and whether others lie beyond."""
    if facts.nature is None or not (facts.nature.counts or facts.nature.timed):
        return facts
    name = identifier(facts.name)
    ends = ", ".join(
        f"CAST({end} AS VARCHAR)"
        for end in (f"min({name})", f"max({name})", *(
            f"percentile_disc({at}) WITHIN GROUP (ORDER BY {name})" for at in (ODD, 1 - ODD)
        ))
    )  # fmt: skip
    minimum, maximum, low, high = reader.fetch(f"SELECT {ends} FROM {relation} WHERE {name} IS NOT NULL")[0]
    if minimum is None or not all(isfinite(_number(end, facts.nature)) for end in (low, high)):
        return facts
    first, last, start, end = (_number(text, facts.nature) for text in (minimum, maximum, low, high))
    odd = not last - first <= 2 * (end - start)  # else what lies beyond is as near as the rest
    return replace(
        facts, low=low if odd else minimum, high=high if odd else maximum, inner=(low, high), ends=(minimum, maximum),
    )  # fmt: skip


def _number(text: str, nature: Nature) -> float:
    """A bound as a number: of a date or a time its day."""
    return float(date.fromisoformat(text[:10]).toordinal()) if nature.timed else float(text)


def _with_values(facts: ColumnFacts, reader: SelectReader, relation: str) -> ColumnFacts:
    text_codes = facts.nature is TEXT and (facts.repeats or (facts.named and facts.distinct <= MANY_CODES))
    if facts.nature is None or not (0 < facts.distinct <= FEW or text_codes):
        return facts
    name = identifier(facts.name)
    listed = reader.fetch(
        f"SELECT DISTINCT CAST({name} AS VARCHAR) AS v FROM {relation} WHERE {name} IS NOT NULL ORDER BY 1"
    )
    return replace(facts, values=tuple(str(row[0]) for row in listed))


def _repeated(table: TableFacts, reader: SelectReader, relation: str) -> str | None:
    """The first column that is a key once repeated rows are put together, in a table without a key."""
    if any(column.unique for column in table.columns) or not table.rows:
        return None
    apart = reader.fetch(f"SELECT count(*) FROM (SELECT DISTINCT * FROM {relation}) AS apart")[0][0]
    return next((c.name for c in table.columns if c.distinct == apart < table.rows and not c.nullable), None)
