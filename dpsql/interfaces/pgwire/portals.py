"""Portals: types of parameters that a client does not name, and cursors and COPY in SQL.

What a binary client sends has the form that the server has named:

| `$1` stands | its type |
|---|---|
| in `$1::t`, `CAST($1 AS t)` | `t` |
| in a comparison, BETWEEN, IN | that of the other side |
| in `x = ANY($1)` | an array of x's |
| in LIKE, `~` | text |
| in LIMIT, OFFSET | int8 |
| anywhere else | text |

DuckDB's parser reads the statement; one that it cannot read has texts.

| statement | |
|---|---|
| `DECLARE c [NO SCROLL] CURSOR [WITH HOLD] FOR SELECT ..` | the whole answer is kept until the cursor is closed |
| `FETCH [NEXT, PRIOR, FIRST, LAST, n, ALL, FORWARD n, BACKWARD n, ABSOLUTE n, RELATIVE n] FROM c` | rows |
| `MOVE ..` | the same without rows |
| `COPY (SELECT ..) TO STDOUT [WITH] (FORMAT text, csv or binary, HEADER, DELIMITER, NULL)` | rows as a file |
"""

from __future__ import annotations

import csv
import io
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from dpsql.errors import Error, NotSupportedError, ProgrammingError
from dpsql.interfaces.pgwire.protocol import (
    ARRAYS,
    FLOAT8,
    INT4,
    INT8,
    NUMERIC,
    OIDS_BY_NAME,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    StatementRefused,
    WireColumn,
    as_binary,
    as_text,
    universal,
    with_length,
)
from dpsql.interfaces.pgwire.rewrite import Node, parse, walk
from dpsql.interfaces.python.dbapi import TOKEN, literal
from dpsql.release.request import size_of

SPELLED = {
    "integer": INT4, "bigint": INT8, "double": FLOAT8, "double precision": FLOAT8, "decimal": NUMERIC,
    "boolean": OIDS_BY_NAME["bool"], "smallint": OIDS_BY_NAME["int2"], "real": OIDS_BY_NAME["float4"],
    "timestamp with time zone": TIMESTAMPTZ,
    "string": TEXT, "char": TEXT, "int": INT4, "float": FLOAT8,
}  # fmt: skip
PATTERNS = frozenset(
    {"~~", "!~~", "~~*", "!~~*", "regexp_matches", "like_escape", "||", "lower", "upper", "concat"}
)
RESULTS = {"count": INT8, "count_star": INT8, "date_trunc": TIMESTAMP, "date_part": FLOAT8, "sum": FLOAT8,
           "avg": FLOAT8, "lower": TEXT, "upper": TEXT, "now": TIMESTAMPTZ}  # fmt: skip
CAST = re.compile(r"::\s*\w+\s*\[\]")


def infer(connection: duckdb.DuckDBPyConnection, sql: str, columns: Mapping[str, int]) -> dict[int, int]:
    """The types of a statement's parameters.

    Args:
        connection: parses the statement, runs nothing of it.
        sql: with `$n`.
        columns: types of columns by name in lower case.

    Returns:
        Number of the parameter -> OID, for those that the statement says something of.
    """
    try:
        tree = parse(connection, sql)
    except (Error, duckdb.Error):
        return {}
    types: dict[int, int] = {}
    for parameter, kind in _evidence(tree, columns):
        types.setdefault(parameter, kind)
    return types


def _evidence(tree: Node, columns: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """(number, type) wherever a parameter meets something with a type; casts come first."""
    nodes = list(walk(tree))
    for node in nodes:
        if node.get("class") == "CAST" and (number := _number(node["child"])):
            yield number, cast_oid(node["type_expr"])
    for node in nodes:
        sides = _sides(node)
        kinds = [kind for side in sides if (kind := _type_of(side, columns))]
        for side in sides if kinds else ():
            if number := _number(side):
                yield number, kinds[0]
        if node.get("class") == "FUNCTION" and node["function_name"] in PATTERNS:
            for argument in node["arguments"]:
                if number := _number(argument["expression"]):
                    yield number, TEXT
        for key in ("limit", "offset"):
            if isinstance(node.get(key), dict) and (number := _number(node[key])):
                yield number, INT8
        subquery = node.get("subquery_type") if node.get("class") == "SUBQUERY" else None
        if subquery == "ANY" and (number := _listed(node)):
            yield number, ARRAYS.get(_type_of(node["child"], columns) or TEXT, ARRAYS[TEXT])


def _sides(node: Node) -> list[Node]:
    """Expressions that are of one type."""
    if node.get("class") == "COMPARISON":
        return [node["left"], node["right"]]
    if node.get("class") == "BETWEEN":
        return [node["input"], node["lower"], node["upper"]]
    if node.get("type") in ("COMPARE_IN", "COMPARE_NOT_IN", "OPERATOR_COALESCE"):
        return list(node["children"])
    if node.get("class") == "FUNCTION" and node.get("function_name") in ("+", "-", "*", "/"):
        return [argument["expression"] for argument in node["arguments"]]
    return []


def _listed(node: Node) -> int:
    """The parameter of `= ANY($1)`; 0 if it is none."""
    query = node["subquery"]["node"]
    first = (query.get("select_list") or [{}])[0]
    arguments = first.get("arguments", ())
    return _number(arguments[0]["expression"]) if first.get("function_name") == "unnest" and arguments else 0


def _number(node: Node) -> int:
    """Index of the parameter of a node; 0 if it is none."""
    identifier = str(node.get("identifier", ""))
    return int(identifier) if node.get("class") == "PARAMETER" and identifier.isdigit() else 0


def cast_oid(kind: Node) -> int:
    """The OID of a type as a statement names it."""
    name = str(kind["type_name"]).lower()
    if name == "list" and kind.get("children"):
        return ARRAYS.get(cast_oid(kind["children"][0]), ARRAYS[TEXT])
    return SPELLED.get(name) or OIDS_BY_NAME.get(name, TEXT)


def _type_of(node: Node, columns: Mapping[str, int]) -> int | None:
    """The type of an expression; None where it says nothing."""
    match node.get("class"):
        case "COLUMN_REF":
            return columns.get(node["column_names"][-1].lower())
        case "CAST":
            return cast_oid(node["type_expr"])
        case "CONSTANT":
            kind = node["literal"]["kind"]
            return {"INTEGER": INT4, "DECIMAL": NUMERIC, "DOUBLE": FLOAT8}.get(kind)
        case "FUNCTION":
            kinds = [kind for side in _sides(node) if (kind := _type_of(side, columns))]
            return RESULTS.get(node["function_name"]) or next(iter(kinds), None)
    return None


def bind(sql: str, values: list[Any], oids: list[int]) -> str:
    """The statement with `$1, $2, ..` outside of quotes replaced by literals.

    A list is written as an array. NULL for an array is an array of NULL, so that a statement can be described before
    its parameters are known.

    Raises:
        ProgrammingError: a number without a value.

    >>> bind("SELECT a = ANY($1), '$1'", [["x"]], [1009])
    "SELECT a = ANY(ARRAY['x']), '$1'"
    """
    pieces: list[str] = []
    for token in TOKEN.finditer(sql):
        text = token.group()
        if token.lastgroup == "number":
            number = int(text[1:])
            if not 1 <= number <= len(values):
                raise ProgrammingError(f"there is no value for {text}")
            value = values[number - 1]
            is_array = number <= len(oids) and oids[number - 1] in ARRAYS.values()
            text = _written([None] if value is None and is_array else value)
        pieces.append(text)
    return "".join(pieces)


def without_array_casts(sql: str) -> str:
    """The statement without casts of arrays to types of arrays: what is compared with a list has types of its own.

    >>> without_array_casts("a = ANY(ARRAY['x']::text[]) AND b = ']::int[]'")
    "a = ANY(ARRAY['x']) AND b = ']::int[]'"
    """
    if "]" not in sql:
        return sql
    pieces: list[str] = []
    place = 0
    for token in TOKEN.finditer(sql):
        if token.start() < place:
            continue
        place = token.end()
        cast = CAST.match(sql, token.start()) if token.group() == "::" and pieces[-1:] == ["]"] else None
        if cast is None:
            pieces.append(token.group())
        else:
            place = cast.end()
    return "".join(pieces)


def _written(value: Any) -> str:
    if isinstance(value, list):
        return f"ARRAY[{', '.join(_written(element) for element in value)}]"
    if hasattr(value, "tzinfo") and hasattr(value, "year"):
        return literal(universal(value))
    return literal(value)


DECLARE = re.compile(
    r'DECLARE\s+(?P<name>"[^"]+"|\w+)\s+(?:BINARY\s+|ASENSITIVE\s+|INSENSITIVE\s+|NO\s+SCROLL\s+|SCROLL\s+)*CURSOR\s+'
    r"(?:(?P<hold>WITH\s+HOLD)\s+|WITHOUT\s+HOLD\s+)?FOR\s+(?P<query>.*)",
    re.IGNORECASE | re.DOTALL,
)
FETCH = re.compile(
    r"(?:FETCH|MOVE)\s+(?:(?P<way>NEXT|PRIOR|FIRST|LAST|FORWARD|BACKWARD|ABSOLUTE|RELATIVE)\s+)?"
    r'(?:(?P<count>ALL|[-+]?\d+)\s+)?(?:(?:FROM|IN)\s+)?(?P<name>"[^"]+"|\w+)',
    re.IGNORECASE,
)
COPY = re.compile(
    r"COPY\s*\((?P<query>.*)\)\s*TO\s+STDOUT\s*(?:WITH\s*)?(?P<options>.*)", re.IGNORECASE | re.DOTALL
)
ENDLESS = 1 << 40
SIGNATURE = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


CopyForm = tuple[str, bool, str, str]
"""Row format of COPY: `text`, `csv` or `binary`; whether a line of names comes first; what stands between values, and
for NULL."""


@dataclass(frozen=True)
class WireAnswer:
    """Rows with their columns, or a bare tag.

    Args:
        tag: what CommandComplete says, without the number of rows.
        columns: None for a bare tag.
        rows: Python values.
        flags: what the client is told beside the rows.
        standing: flags that other answers have too; a connection is told each once.
        copy: how the rows are written as a file; None for rows.
        reported: names and values of settings that have changed.
    """

    tag: str
    columns: tuple[WireColumn, ...] | None = None
    rows: Sequence[tuple[Any, ...]] = ()
    flags: tuple[str, ...] = ()
    standing: tuple[str, ...] = ()
    copy: CopyForm | None = None
    reported: tuple[tuple[str, str], ...] = ()


class DeclaredCursor:
    """A kept answer, and how many of its rows lie before the cursor's place: 0 before the first row; k on the k-th.

    Args:
        answer: with all its rows.
        hold: whether it outlives its transaction.
    """

    def __init__(self, answer: WireAnswer, hold: bool) -> None:
        self.answer, self.hold, self.place = answer, hold, 0
        self.size = size_of(answer.rows)

    def rows(self, way: str, count: str) -> Sequence[tuple[Any, ...]]:
        """Move as FETCH says; the rows on the way."""
        rows, total = self.answer.rows, len(self.answer.rows)
        number = ENDLESS if count == "ALL" else int(count or 1)
        if way in ("FIRST", "LAST", "ABSOLUTE", "RELATIVE"):
            target = {"FIRST": 1, "LAST": total, "RELATIVE": self.place + number}.get(way, number)
            target += total + 1 if way == "ABSOLUTE" and number < 0 else 0
            self.place = min(max(target, 0), total + 1)
            return rows[self.place - 1 : self.place] if 1 <= self.place <= total else ()
        if way in ("PRIOR", "BACKWARD") or number < 0:
            first = max(self.place - 1 - abs(number), 0)
            passed = rows[first : max(self.place - 1, 0)][::-1]
            self.place = first + 1 if len(passed) == abs(number) else 0
            return passed
        passed = rows[self.place : self.place + number]
        self.place = min(self.place + number, total + 1)
        return passed


def bare(name: str) -> str:
    """A name as it is kept: without quotes, or in lower case."""
    return name[1:-1] if name.startswith('"') else name.lower()


def copy_form(options: str) -> CopyForm:
    """The options behind TO STDOUT, in today's spelling or the old one.

    Raises:
        NotSupportedError: one that is not known here.

    >>> copy_form("(FORMAT csv, HEADER)"), copy_form("BINARY")[0]
    (('csv', True, ',', ''), 'binary')
    """
    words = re.findall(r"'(?:[^']|'')*'|\w+", options)
    form, header, delimiter, null = "text", False, None, None
    while words:
        word = words.pop(0).strip("'").upper()
        if word in ("FORMAT", "AS"):
            continue
        if word in ("TEXT", "CSV", "BINARY"):
            form = word.lower()
        elif word == "HEADER":
            header = not words or words[0].upper() not in ("FALSE", "OFF")
            words = words[1:] if words and words[0].upper() in ("TRUE", "ON", "FALSE", "OFF") else words
        elif word in ("DELIMITER", "NULL", "ENCODING", "QUOTE", "ESCAPE") and words:
            words = words[1:] if words[0].upper() == "AS" else words
            value = words.pop(0)[1:-1].replace("''", "'")
            delimiter, null = value if word == "DELIMITER" else delimiter, value if word == "NULL" else null
        else:
            raise NotSupportedError(f"COPY with {word} is not supported", hint="write (FORMAT csv, HEADER)")
    usual = (",", "") if form == "csv" else ("\t", "\\N")
    return form, header, delimiter or usual[0], usual[1] if null is None else null


def copied(columns: Sequence[WireColumn], rows: Sequence[tuple[Any, ...]], form: CopyForm) -> Iterator[bytes]:
    """Rows as COPY writes them, one piece a row."""
    kind, header, delimiter, null = form
    if kind == "binary":
        head = SIGNATURE
        for row in rows:
            raw = [as_binary(value, oid) for value, (_, oid, _) in zip(row, columns, strict=True)]
            yield head + struct.pack("!h", len(raw)) + b"".join(map(with_length, raw))
            head = b""
        yield head + struct.pack("!h", -1)
        return
    lines = [tuple(name for name, _, _ in columns)] if header else []
    for row in (*lines, *rows):
        texts = [None if (text := as_text(value)) is None else text.decode() for value in row]
        if kind == "csv":
            line = io.StringIO()
            writer = csv.writer(line, delimiter=delimiter, lineterminator="\n")
            writer.writerow([null if text is None else text for text in texts])
            yield line.getvalue().encode()
        else:
            words = (null if text is None else text.translate(ESCAPES) for text in texts)
            yield f"{delimiter.join(words)}\n".encode()


def no_cursor(name: str) -> StatementRefused:
    """There is no cursor of a name."""
    return StatementRefused("34000", f"there is no cursor {name}", hint="declare it first")
