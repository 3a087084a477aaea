"""Limits on a statement: on its text before a parser sees it, and on the parser's steps.

Every limit was set where parsing is still safe and quick: the parser recurses on brackets, and bidirectional control
characters make a statement read otherwise than it runs.

The parser tries one reading after another and goes back when one fails. Nested attempts multiply: a chain of JOINs
without ON took twice as long for each JOIN more. Statements that people and BI tools send take at most 1.5 steps a
token (455 of them counted), so eight a token is far from anything useful and still linear in the text. Steps, not
seconds: the same text is read or refused on every machine.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import sqlglot
from sqlglot import Token, TokenType, exp

from dpsql.errors import InterfaceError, SqlSyntaxError

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


def parse(text: str, dialect: str) -> list[Expr]:
    """The statements of a text that `guard` has passed.

    Args:
        text: SQL.
        dialect: a dialect's name, known to exist.

    Returns:
        One tree a statement, without empty ones.

    Raises:
        SqlSyntaxError: it can be read in too many ways.
        InterfaceError: sqlglot is installed compiled.
        sqlglot.errors.SqlglotError, RecursionError, and plain errors of the tokenizer: it does not parse.

    >>> [tree.sql() for tree in parse("SELECT 1; ", "duckdb")]
    ['SELECT 1']
    >>> parse("SELECT * FROM a " + "JOIN b " * 20, "duckdb")
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
