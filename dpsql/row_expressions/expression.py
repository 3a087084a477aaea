"""An expression of one row, as a curator writes it in `derive`, `expr` or a source: parsed, checked, written again.

What reaches the engine is never the curator's text but what the parser understood, so no bracket, comment or
quote of the text can change what stands around it. Parts that are not on the lists of `dpsql.row_expressions` are
refused.

Errors on single rows are NULLs: `RowExpression.over` is put inside TRY by whoever runs it. What TRY does not catch is
refused here: patterns that come from rows, text that grows without bound. The engine must not take common parts out of
TRY (`disabled_optimizers`, see `dpsql.engines`).

**Privacy**: a value that follows from one row alone and can stop nothing.

Fields of the calendar, such as the hour of a time, however SQL writes them:

| written | field |
|---|---|
| `EXTRACT(HOUR FROM t)`, `hour(t)`, `date_part('hour', t)` | hour, 0 to 23 |
| `EXTRACT(DOW FROM t)`, `dayofweek(t)`, `weekday(t)` | dow, 0 to 6 from Sunday on |
| `EXTRACT(ISODOW FROM t)`, `isodow(t)` | isodow, 1 to 7 from Monday on |
| month, quarter, day, week, doy, minute | as they count |

**Limits on a statement**: on its text before a parser sees it, and on the parser's steps.

Every limit was set where parsing is still safe and quick: the parser recurses on brackets, and bidirectional control
characters make a statement read otherwise than it runs.

The parser tries one reading after another and goes back when one fails. Nested attempts multiply: a chain of JOINs
without ON took twice as long for each JOIN more. Statements that people and BI tools send take at most 1.5 steps a
token (455 of them counted), so eight a token is far from anything useful and still linear in the text. Steps, not
seconds: the same text is read or refused on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from dpsql.errors import CatalogError, InterfaceError, SqlSyntaxError
from dpsql.row_expressions import NAMED_SCALARS, OPERATORS, SCALARS, VALUES, words

if TYPE_CHECKING:
    from sqlglot.expressions import Expr


MAX_BYTES = 64 * 1024
MAX_DEPTH = 32
MAX_TOKENS = 10_000
MAX_IN_ITEMS = 1_000

# What turns a text around. Marks (U+061C, U+200E, U+200F) stand in words written from right to left.
BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
PREFIXES = frozenset({"not", "-", "+", "~"})
PIECE = re.compile(
    r"""(?P<skip>'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|--[^\n]*|/\*.*?\*/)"""
    r"""|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<word>[\w$.]+)|(?P<other>[^\s\w])""",
    re.DOTALL,
)


def check_text(text: str) -> str:
    """The text, if it is within all limits.

    Args:
        text: one SQL statement.

    Returns:
        The same text.

    Raises:
        SqlSyntaxError: too long, not valid Unicode, too deep, too many tokens or IN items.

    >>> check_text("SELECT 1")
    'SELECT 1'
    """
    if not isinstance(text, str):
        raise SqlSyntaxError("the statement is not text", hint="pass a str")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise SqlSyntaxError("the statement contains a lone surrogate", hint="send valid UTF-8") from error
    if size > MAX_BYTES:
        raise SqlSyntaxError(f"the statement has {size} bytes, the limit is {MAX_BYTES}", hint="shorten it")
    if "\x00" in text:
        raise SqlSyntaxError("the statement contains a NUL character", hint="remove it")
    if match := BIDI.search(text):
        name = f"U+{ord(match.group()):04X}"
        raise SqlSyntaxError(
            f"character {match.start() + 1} is the bidirectional control {name}", hint="remove it"
        )
    if not text.strip():
        raise SqlSyntaxError("the statement is empty", hint="write SELECT COUNT(*) FROM a table")
    _check_shape(text)
    return text


def _check_shape(text: str) -> None:
    """Bracket depth, tokens and list lengths, outside of strings and comments."""
    tokens, items, prefixes, cases = 0, [0], 0, 0
    for piece in PIECE.finditer(text):
        kind, word = piece.lastgroup, piece.group().lower()
        tokens += 1
        if kind == "open":
            items.append(0)
        elif kind == "close":
            items = items[:-1] or [0]
        elif word == ",":
            items[-1] += 1
        prefixes = prefixes + 1 if word in PREFIXES else 0
        cases = max(0, cases + (word == "case") - (word == "end"))
        if max(len(items) - 1, prefixes, cases) > MAX_DEPTH:
            raise SqlSyntaxError(f"the statement nests deeper than {MAX_DEPTH} levels", hint="flatten it")
        if items[-1] >= MAX_IN_ITEMS:
            raise SqlSyntaxError(f"a list has more than {MAX_IN_ITEMS} items", hint="use a range")
    if tokens > MAX_TOKENS:
        raise SqlSyntaxError(f"the statement has more than {MAX_TOKENS} tokens", hint="split it")


FREE, A_TOKEN = 1_000, 8
"""Steps that every text has, and those for each of its tokens."""


@lru_cache(maxsize=64)
def bounded_parser(dialect: str) -> tuple[Any, type[Any]]:
    """A dialect and its parser, whose steps are counted: it steps by `_advance` alone, forwards and backwards."""
    reader = sqlglot.Dialect.get_or_raise(dialect)

    class BoundedParser(reader.parser_class):  # type: ignore[name-defined, misc]  # known once the dialect is
        FUNCTIONS: ClassVar[dict[str, Any]] = {
            **reader.parser_class.FUNCTIONS,
            "TO_CHAR": exp.ToChar.from_arg_list,  # some dialects translate its codes, and not all of them truly
        }
        _steps_left = FREE

        def parse(self, raw_tokens: Any, sql: str | None = None) -> Any:
            self._steps_left = FREE + A_TOKEN * len(raw_tokens)
            return super().parse(raw_tokens, sql)

        def _parse_cube_or_rollup(self, with_prefix: bool = False) -> Any:
            if with_prefix:
                return super()._parse_cube_or_rollup(with_prefix)
            for word, kind in ((TokenType.CUBE, exp.Cube), (TokenType.ROLLUP, exp.Rollup)):
                if self._match(word):  # sqlglot itself reads no comparison as a key
                    return kind(expressions=self._parse_wrapped_csv(self._parse_disjunction))
            return None

        def _parse_grouping_set(self) -> Any:
            return self._parse_cube_or_rollup() or self._parse_disjunction()

        def _advance(self, times: int = 1) -> None:
            self._steps_left -= 1
            if self._steps_left < 0:
                raise SqlSyntaxError(
                    "the statement can be read in too many ways", hint="give every JOIN its ON or USING"
                )
            super()._advance(times)

    return reader, BoundedParser


ESCAPES = {"d": TokenType.DATE, "t": TokenType.TIME, "ts": TokenType.TIMESTAMP}
"""Words of ODBC's and JDBC's literals, `{d '2025-01-31'}`."""


def _literals(tokens: list[Token]) -> list[Token]:
    """Tokens with such literals as `DATE '2025-01-31'`."""
    rewritten: list[Token] = []
    for token in tokens:
        rewritten.append(token)
        kinds = [recent.token_type for recent in rewritten[-4:]]
        if kinds[:1] + kinds[2:] == [TokenType.L_BRACE, TokenType.STRING, TokenType.R_BRACE]:
            word = rewritten[-3]
            kind = ESCAPES.get(word.text.lower())
            if kind is not None:
                typed = Token(kind, kind.name, word.line, word.col, word.start, word.end)
                rewritten[-4:] = [typed, rewritten[-2]]
    return rewritten


def parse_statements(text: str, dialect: str) -> list[Expr]:
    """The statements of a text that `check_text` has passed.

    Args:
        text: SQL.
        dialect: a dialect's name, known to exist.

    Returns:
        One tree a statement, without empty ones.

    Raises:
        SqlSyntaxError: it can be read in too many ways.
        InterfaceError: sqlglot is installed compiled.
        sqlglot.errors.SqlglotError, RecursionError, and plain errors of the tokenizer: it does not parse.

    >>> [tree.sql() for tree in parse_statements("SELECT 1; ", "duckdb")]
    ['SELECT 1']
    >>> parse_statements("SELECT * FROM a " + "JOIN b " * 20, "duckdb")
    Traceback (most recent call last):
    dpsql.errors.SqlSyntaxError: the statement can be read in too many ways; give every JOIN its ON or USING
    """
    reader, bounded = bounded_parser(dialect)
    try:
        parser = bounded(dialect=reader)
    except TypeError as error:  # of a compiled class nothing inherits
        raise InterfaceError(
            "sqlglot is installed compiled, and its parser's steps cannot be counted",
            hint="pip uninstall sqlglotc, then pip install --force-reinstall --no-deps sqlglot",
        ) from error
    trees = parser.parse(_literals(reader.tokenize(text)), text)
    return [tree for tree in trees if tree is not None]


if TYPE_CHECKING:
    from sqlglot.expressions import Expr

    Node: TypeAlias = Expr
else:
    Node = getattr(exp, "Expr", exp.Expression)  # the parser has renamed its base class between versions

MOST_BYTES = 16 * 1024
MOST_GROWTH = 64
"""A text may become this many times as long, or 64,000 characters where it does not come from a column."""
COLUMN = 1000
"""Characters of a column's texts, for the bound above."""

ROW = (OPERATORS | SCALARS | VALUES) - {"Tuple"}

TYPES = words("""
    BOOLEAN TINYINT SMALLINT INT BIGINT INT128 UTINYINT USMALLINT UINT UBIGINT UINT128 DECIMAL FLOAT DOUBLE
    VARCHAR TEXT CHAR DATE TIME TIMESTAMP TIMESTAMPNTZ TIMESTAMPTZ DATETIME INTERVAL
""")

PATTERNS = words("Like ILike SimilarTo RegexpLike RegexpILike RegexpReplace RegexpExtract Escape")
NAMED_PATTERNS = words("regexp_matches regexp_full_match")
NAMED_PADS = words("lpad rpad")
NAMED_DATES = words("strftime")
SMALL, A_CODE = 64, 16
"""Characters of a number, a date, a day's name; and of what one character of a date's pattern becomes."""


@dataclass(frozen=True)
class RowExpression:
    """A checked expression.

    Args:
        columns: the columns it mentions, in order, as it spells them.
        sql: how it is written again, columns quoted.
    """

    columns: tuple[str, ...]
    sql: str
    _tree: Node = field(repr=False, compare=False)

    def over(self, columns: Mapping[str, str]) -> str:
        """The expression with SQL in place of its columns.

        Args:
            columns: column in lower case -> SQL that binds as tightly as a name; others stay as they are.

        >>> row_expression("price * 2").over({"price": 'TRY_CAST("price" AS BIGINT)'})
        'TRY_CAST("price" AS BIGINT) * 2'
        """
        return write(self._tree, columns)


@lru_cache(maxsize=1024)
def row_expression(text: str) -> RowExpression:
    """Check an expression over one table's columns.

    Args:
        text: SQL without a SELECT.

    Returns:
        The expression.

    Raises:
        CatalogError: it does not parse, or is more than a pure expression of one row.

    >>> row_expression("EXTRACT(hour FROM sold_at)").columns
    ('sold_at',)
    """
    tree = parse_one(text)
    check_row(tree)
    for column in tree.find_all(exp.Column):
        if column.table:
            raise CatalogError(f"`{column.sql()}` names a table", hint="write the column's name alone")
    return RowExpression(
        tuple(dict.fromkeys(c.name for c in tree.find_all(exp.Column))), write(tree, {}), tree
    )


def parse_one(text: str) -> Node:
    """One expression or statement as a tree, within the limits on a statement.

    Raises:
        CatalogError: too long, too deep, not parsable, or not exactly one.
    """
    try:
        if len(check_text(text).encode()) > MOST_BYTES:
            raise CatalogError(f"the SQL is longer than {MOST_BYTES} bytes", hint="shorten it")
        trees = parse_statements(text, "duckdb")
    except SqlSyntaxError as error:
        raise CatalogError(str(error)) from None
    except (SqlglotError, RecursionError, ValueError, IndexError, AttributeError, TypeError, KeyError):
        # the tokenizer raises plain Python errors on some broken input
        raise CatalogError("the SQL does not parse", hint="check quotes and brackets") from None
    if len(trees) != 1:
        raise CatalogError(f"there are {len(trees)} statements", hint="write exactly one")
    return trees[0]


def write(tree: Node, columns: Mapping[str, str]) -> str:
    """A checked tree as DuckDB's SQL: every name quoted, no comments, read back once to be sure.

    Raises:
        CatalogError: what is written does not read back as the same.
    """
    try:
        text = tree.sql("duckdb", identify=True, comments=False)
        again = sqlglot.parse_one(text, read="duckdb")
        if again.sql("duckdb", identify=True, comments=False) != text:
            raise CatalogError(
                "the SQL cannot be written again as it was read", hint="write it in a simpler form"
            )
        if not columns:
            return text
        replaced = tree.transform(lambda node: _replaced(node, columns))
        return str(replaced.sql("duckdb", identify=True, comments=False))
    except (SqlglotError, RecursionError, ValueError):
        raise CatalogError("the SQL cannot be written again", hint="write it in a simpler form") from None


class ColumnName(NamedTuple):
    """A column as an expression writes it: the table before its dot, or an empty text, and its name."""

    table: str
    name: str


def column_name(node: Node) -> ColumnName | None:
    """The column that an expression is, brackets removed; None where it is more than one."""
    column = node.unnest()
    return ColumnName(column.table, column.name) if isinstance(column, exp.Column) else None


def column_names(node: Node) -> list[ColumnName]:
    """Every column of an expression."""
    return [ColumnName(column.table, column.name) for column in node.find_all(exp.Column)]


def over_columns(tree: Node, sql: Callable[[ColumnName], str]) -> str:
    """A checked expression of one row as DuckDB's SQL, NULL where it fails, each column written by a function.

    Args:
        tree: what `check_row` accepts.
        sql: a column -> SQL that binds as tightly as a name.

    Raises:
        CatalogError: what is written does not read back as the same.
    """
    write(tree, {})

    def replaced(node: Node) -> Node:
        name = column_name(node) if isinstance(node, exp.Column) else None
        return node if name is None else exp.Var(this=sql(name))

    return f"TRY({tree.copy().transform(replaced).sql('duckdb', identify=True, comments=False)})"


def _replaced(node: Node, columns: Mapping[str, str]) -> Node:
    if isinstance(node, exp.Column) and node.name.lower() in columns:
        return exp.Var(this=columns[node.name.lower()])
    return node


def check_row(tree: Node) -> None:
    """Refuse what is more than a pure expression of one row.

    Raises:
        CatalogError: names the part.
    """
    for node in tree.walk():
        name = type(node).__name__
        if isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc)):
            name = str(node.this).lower()
            if isinstance(node, exp.AnonymousAggFunc) or name not in NAMED_SCALARS:
                raise _refused(f"function {name}")
        elif name not in ROW:
            names = getattr(node, "sql_names", None) if isinstance(node, exp.Func) else None
            raise _refused(str(names()[0]).lower() if names else name.upper())
        _check_part(node)
    try:
        longest = growth(tree, columns)
    except Unbounded as error:
        raise CatalogError(str(error), hint="write it as a whole number") from None
    if longest > MOST_GROWTH * COLUMN:
        raise CatalogError(
            f"text could become more than {MOST_GROWTH} times as long",
            hint="repeat, pad or replace by fewer characters; running out of memory would reveal a row",
        )


def _refused(construct: str) -> CatalogError:
    return CatalogError(
        f"{construct} is not on the list of pure functions of one row",
        hint="use columns of the row and functions of docs/curator.md, or prepare the column in the source's data",
    )


def _check_part(node: Node) -> None:
    """Check what the lists cannot express: types, and that patterns are literals."""
    if isinstance(node, exp.Column) and (not isinstance(node.this, exp.Identifier) or node.args.get("db")):
        raise CatalogError(f"`{node.sql()}` is not a column", hint="write a column's name")
    if isinstance(node, exp.DataType) and not (
        isinstance(node.this, exp.DataType.Type) and node.this.name in TYPES
    ):
        raise _refused(f"type {node.sql('duckdb')}")
    called = str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
    if type(node).__name__ in PATTERNS or called in NAMED_PATTERNS:
        arguments = node.expressions[1:] if called else [p for k, p in node.args.items() if k != "this"]
        loose = [p for p in arguments if isinstance(p, Node) and not isinstance(p, (exp.Literal, exp.Null))]
        if loose:
            raise CatalogError("a pattern comes from a column", hint="write the pattern as a literal")
    if isinstance(node, exp.Escape) and len(node.expression.name) != 1:
        raise CatalogError("ESCAPE takes one character", hint="such as ESCAPE '!'")


def columns(node: Node) -> int | None:
    """Columns as `growth` expects them, wherever they come from."""
    return COLUMN if isinstance(node, exp.Column) else None


class Unbounded(ValueError):
    """Error for a text that is repeated or padded by an amount that does not stand in the statement."""


def growth(node: Node, known: Callable[[Node], int | None]) -> int:
    """The most characters of an expression's value: DuckDB's memory limit does not count texts being computed.

    It computes 2,048 at a time, so a bound on each is a bound on all.

    Args:
        node: the expression.
        known: those of a column or another part, None if its parts tell.

    Raises:
        Unbounded: nothing in the statement bounds it.

    >>> growth(parse_one("replace(name, 'a', 'bb') || '!'"), columns)
    2001
    """
    if (known_length := known(node)) is not None:
        return known_length
    if isinstance(node, exp.Literal):
        return len(node.name)
    of = {id(child): growth(child, known) for child in node.iter_expressions()}
    lengths = list(of.values())
    called = str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
    if isinstance(node, (exp.DPipe, exp.Concat)):
        return sum(lengths)
    if isinstance(node, exp.ConcatWs):
        return sum(lengths) + len(lengths) * max(lengths)
    if isinstance(node, exp.Repeat):
        return of[id(node.this)] * _number(node.args.get("times"))
    if isinstance(node, exp.Pad) or called in NAMED_PADS:
        length = node.expressions[1:2] if called else [node.expression]
        return max(lengths) + _number(length[0] if length else None)
    if isinstance(node, (exp.Replace, exp.RegexpReplace)):
        return of[id(node.this)] * max(1, of.get(id(node.args.get("replacement")), 0))
    if isinstance(node, exp.TimeToStr) or called in NAMED_DATES:
        return A_CODE * max([SMALL, *lengths])
    return max([SMALL, *lengths])


def _number(node: object) -> int:
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal():
        return int(node.name)
    raise Unbounded("a length comes from a column")


RANGES = {
    "minute": (0, 59), "hour": (0, 23), "dow": (0, 6), "isodow": (1, 7), "day": (1, 31), "doy": (1, 366),
    "week": (1, 53), "month": (1, 12), "quarter": (1, 4),
}  # fmt: skip
"""What each field may be."""
OF_TIMES = ("minute", "hour")
"""Fields that days do not have."""

_WORDS = {
    "dayofweek": "dow",
    "weekday": "dow",
    "dayofyear": "doy",
    "dayofmonth": "day",
    "mon": "month",
    "hours": "hour",
}
_CALLS = {
    exp.Hour: "hour", exp.Minute: "minute", exp.DayOfWeek: "dow", exp.DayOfWeekIso: "isodow", exp.Day: "day",
    exp.DayOfMonth: "day", exp.DayOfYear: "doy", exp.Week: "week", exp.WeekOfYear: "week", exp.Month: "month",
    exp.Quarter: "quarter",
}  # fmt: skip


class CalendarField(NamedTuple):
    """A field of a column.

    Args:
        name: which one.
        table: what stands before the column's dot, or nothing.
        column: the column.
    """

    name: str
    table: str
    column: str


def calendar_field(node: Node) -> CalendarField | None:
    """The field of a column that an expression is; None for every other one.

    >>> from dpsql.row_expressions.expression import parse_one
    >>> calendar_field(parse_one("EXTRACT(dow FROM s.sold_at)")), calendar_field(parse_one("hour(sold_at) + 1"))
    (CalendarField(name='dow', table='s', column='sold_at'), None)
    """
    name, source = _called(node)
    name = _WORDS.get(name, name)
    column = column_name(source) if source is not None else None
    return CalendarField(name, *column) if name in RANGES and column is not None else None


COMPARISONS = {"GT": ">", "GTE": ">=", "LT": "<", "LTE": "<=", "EQ": "=", "NEQ": "<>"}
"""The parser's word for a comparison -> its operator."""


ColumnComparison = tuple[str, str, str]
"""A comparison of two columns, such as a return with its deadline: a column, a key of `COMPARISONS`, a column."""


def column_comparison(node: Node) -> ColumnComparison | None:
    """The comparison of two columns that an expression is; None for every other one.

    >>> from dpsql.row_expressions.expression import parse_one
    >>> column_comparison(parse_one("r.back > due")), column_comparison(parse_one("back > 3"))
    (('back', 'GT', 'due'), None)
    """
    left, right, word = node.args.get("this"), node.args.get("expression"), type(node).__name__
    if word not in COMPARISONS or not isinstance(left, exp.Column) or not isinstance(right, exp.Column):
        return None
    return left.name, word, right.name


def instant(text: str) -> str:
    """SQL for the time that a text says, in UTC whatever its zone is, as long as the session's zone is UTC.

    Args:
        text: SQL of a text. DuckDB's cast to TIMESTAMP would drop the zone, so that 10:00+02:00 became ten o'clock.
    """
    return f"TRY_CAST(TRY_CAST({text} AS TIMESTAMP WITH TIME ZONE) AS TIMESTAMP)"


def _called(node: Node) -> tuple[str, Node | None]:
    """The field's name as it is written, and what it is of."""
    if isinstance(node, exp.Extract):
        return node.name.lower(), node.expression
    if isinstance(node, exp.Anonymous):
        arguments, name = node.expressions, node.name.lower()
        if name in ("date_part", "datepart") and len(arguments) == 2 and arguments[0].is_string:
            return arguments[0].name.lower(), arguments[1]
        return name, arguments[0] if name == "weekday" and len(arguments) == 1 else None
    alone = not any(value for key, value in node.args.items() if key != "this")
    name = next((name for kind, name in _CALLS.items() if type(node) is kind), "")
    return name, node.this if name and alone else None
