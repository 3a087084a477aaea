"""The parser with a bound on its steps, so that no text keeps it busy.

The parser tries one reading after another and goes back when one fails. Nested attempts multiply: a chain of JOINs
without ON took twice as long for each JOIN more. Statements that people and BI tools send take at most 1.5 steps a
token (455 of them counted), so eight a token is far from anything useful and still linear in the text. Steps, not
seconds: the same text is read or refused on every machine.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import sqlglot
from sqlglot import Token, TokenType, exp

from dpsql.errors import InterfaceError, SqlSyntaxError

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

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
