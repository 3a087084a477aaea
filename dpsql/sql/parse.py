"""The text of one statement -> a tree of which every part is allowed, and errors that point back into the text.

The text is guarded before anything parses it. Then there is one list for node types and one for functions; a part that
stands on neither is refused. All that are listed are pure: no clock, no random number, no file, no setting, so the
same statement has the same answer. Functions that read and change trees come first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from functools import lru_cache
from math import isinf
from typing import TypeVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from dpsql import row_expressions
from dpsql.errors import Error, InterfaceError, NotSupportedError, ProgrammingError, SqlSyntaxError
from dpsql.intervals.errorfunctions import ERRORS
from dpsql.row_expressions.expression import COLUMN, Node, Unbounded, check_text, growth, parse_statements
from dpsql.sql.settings import read_change


def relations(select: Node) -> list[Node]:
    """The relations in FROM and its joins, in order."""
    first, joins = select.args.get("from_"), select.args.get("joins") or []
    return [*([first.this] if first is not None else []), *(join.this for join in joins)]


def ctes(query: Node) -> list[Node]:
    """The CTEs of a query."""
    clause = query.args.get("with_")
    return [] if clause is None else list(clause.expressions)


def block_number(relation: Node) -> int | None:
    """The block whose relation a table in FROM is, or None."""
    prefix, name = "dp_block_", relation.name.lower()
    is_block = isinstance(relation, exp.Table) and name.startswith(prefix)
    return int(name[len(prefix) :]) if is_block else None


def is_star(projection: Node) -> bool:
    """True if a select item is `*` or `t.*`."""
    column = isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star)
    return column or isinstance(projection, exp.Star)


def ordinal(key: Node, select: Node) -> Node:
    """Expression behind a key; a number is an ordinal of the select list."""
    is_number = isinstance(key, exp.Literal) and not key.is_string and key.name.isdecimal()
    place = int(key.name) if is_number else 0
    return unaliased(select.expressions[place - 1]) if 1 <= place <= len(select.expressions) else key


def behind(key: Node, select: Node, is_source: Callable[[exp.Column], bool]) -> Node:
    """Expression behind a key: a select item by its number, or by its alias where no source has such a column."""
    aliased = isinstance(key, exp.Column) and not key.table and not is_source(key)
    items = (item for item in select.expressions if isinstance(item, exp.Alias) and aliased)
    named_item = next((item for item in items if item.alias.lower() == key.name.lower()), None)
    return ordinal(key, select) if named_item is None else unaliased(named_item)


def expand_aliases(node: Node, aliases: Mapping[str, Node], is_source: Callable[[exp.Column], bool]) -> Node:
    """A copy of an expression with names that only the select list has replaced by their expressions.

    Args:
        node: the expression.
        aliases: by name in lower case.
        is_source: whether a relation of FROM has a column.
    """
    root = exp.Paren(this=node.copy())
    for column in list(root.find_all(exp.Column)):
        if not column.table and column.name.lower() in aliases and not is_source(column):
            column.replace(exp.Paren(this=placed(aliases[column.name.lower()], column)))
    expanded: Node = root.this
    return expanded


def placed(expression: Node, like: Node) -> Node:
    """A copy of an expression whose parts all point at the characters of another node."""
    copy = expression.copy()
    marks = next((node.meta for node in like.walk() if "start" in node.meta), {})
    for node in copy.find_all(exp.Identifier):
        node.meta.update({k: marks[k] for k in ("start", "end", "line", "col") if k in marks})
    return copy


def group_keys(select: Node) -> list[Node]:
    """Keys that the rows of a SELECT are grouped by, ordinals and ALL replaced."""
    group = select.args.get("group")
    if group is None:
        return []
    if group.args.get("all"):
        return [unaliased(projection) for projection in select.expressions if not aggregates(projection)]
    return [ordinal(key, select) for key in group.expressions]


def aggregates(node: Node) -> list[Node]:
    """Aggregate calls in an expression, outside of subqueries; those that a window evaluates are not counted."""
    if isinstance(node, (exp.Subquery, exp.Query)):
        return []
    calls: list[Node] = []
    window = isinstance(node, exp.Window)
    if is_aggregate(node) and not isinstance(node, (exp.Filter, exp.WithinGroup)):
        calls.append(node)
    for child in node.iter_expressions():
        inner = child.this if window and isinstance(child, exp.Filter) else child
        if window and child is node.this:
            for argument in inner.iter_expressions():
                calls.extend(aggregates(argument))
        else:
            calls.extend(aggregates(child))
    return calls


def conjuncts(node: Node | None) -> list[Node]:
    """The tests of an AND, or of a WHERE or HAVING, brackets removed."""
    if node is None:
        return []
    if isinstance(node, (exp.Paren, exp.Where, exp.Having)):
        return conjuncts(node.this)
    if isinstance(node, exp.And):
        return [*conjuncts(node.left), *conjuncts(node.right)]
    return [node]


def number(node: Node | None) -> Decimal | None:
    """A number as it is written, its sign and brackets included; None for anything else."""
    if isinstance(node, exp.Paren):
        return number(node.this)
    if isinstance(node, exp.Neg):
        positive = number(node.this)
        return None if positive is None else -positive
    try:
        return Decimal(node.name) if isinstance(node, exp.Literal) and not node.is_string else None
    except InvalidOperation:  # an exponent of 19 digits
        return Decimal("inf")


def add_test(select: Node, clause: type[Node], test: Node) -> None:
    """One more test of a WHERE, HAVING or QUALIFY."""
    present = select.args.get(clause.key)
    select.set(clause.key, clause(this=test if present is None else exp.and_(present.this, test, copy=False)))


def bottom_up(tree: Node, change: Callable[[Node], Node]) -> Node:
    """A tree whose nodes are changed in place, those inside of others first; new ones are not visited."""
    for node in reversed(list(tree.walk(bfs=False))):
        new = change(node)
        if new is not node and node is tree:
            tree = new
        elif new is not node:
            node.replace(new)
    return tree


def is_error_call(node: Node) -> bool:
    """True if a node is a function of an error, such as DP_STDERR."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in ERRORS


def is_aggregate(node: Node) -> bool:
    """True if a node is a call over rows, with what belongs to it: FILTER, WITHIN GROUP, and functions of its
    error."""
    while isinstance(node, (exp.Filter, exp.WithinGroup)):
        node = node.this
    return is_error_call(node) or (isinstance(node, exp.AggFunc) and not isinstance(node, exp.Grouping))


def output_name(node: Node) -> str:
    """The name DuckDB would give a select item.

    >>> import sqlglot
    >>> output_name(sqlglot.parse_one("SUM(a.b)"))
    'sum(a.b)'
    """
    name = node.alias_or_name if isinstance(node, (exp.Alias, exp.Column)) else ""
    if name:
        return str(name)
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return "count_star()"
    return node.sql(dialect="duckdb", normalize_functions="lower")


def named(node: Node, name: str) -> exp.Alias:
    """The node as a select item of that name."""
    return exp.Alias(this=node, alias=exp.Identifier(this=name, quoted=True))


def unaliased(node: Node) -> Node:
    """The expression under a select item's alias."""
    return node.this if isinstance(node, exp.Alias) else node


def quoted_column(name: str, table: str = "") -> exp.Column:
    """A quoted column, with its table if one is given."""
    place = exp.Identifier(this=table, quoted=True) if table else None
    return exp.Column(this=exp.Identifier(this=name, quoted=True), table=place)


E = TypeVar("E", bound=Error)
Span = tuple[int, int]


def span(node: Node | None) -> Span | None:
    """First and last character of a node in the text it was parsed from, or None."""
    if node is None:
        return None
    starts, ends = [], []
    for descendant in node.walk():
        if "start" in descendant.meta and "end" in descendant.meta:
            starts.append(int(descendant.meta["start"]))
            ends.append(int(descendant.meta["end"]))
    return (min(starts), max(ends)) if starts else None


def refusal(
    kind: type[E],
    reason: str,
    *,
    clause: str = "",
    at: Node | None = None,
    nearest: str = "",
    hint: str = "",
) -> E:
    """An error that knows its place; `pointed` adds the caret once the whole text is at hand.

    Args:
        kind: class of the error.
        reason: one line.
        clause: SELECT, FROM, WHERE ..
        at: the node to underline.
        nearest: the nearest statement that works.
        hint: what to do; by default the nearest statement.

    Returns:
        The error, to be raised.
    """
    advice = hint or (f"try {nearest}" if nearest else "")
    error = kind(" ".join(reason.split()), hint=" ".join(advice.split()))
    return error.at(clause, span(at), nearest)


def pointed(error: E, text: str) -> E:
    """The same error with the line of the statement and carets under its part.

    Args:
        error: an error, with or without a position.
        text: the statement.

    Returns:
        The error; its message stays one line.
    """
    if error.position is None or error.caret:
        return error
    start, end = error.position
    if not 0 <= start < len(text):
        return error
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", start)
    line = text[begin : stop if stop >= 0 else len(text)]
    width = max(1, min(end + 1, begin + len(line)) - start)
    error.caret = f"{line}\n{' ' * (start - begin)}{'^' * width}"
    return error


DEFAULT_DIALECT = "duckdb"


def parse(text: str, dialect: str = "") -> Node:
    """Guard the text and parse its one statement.

    Args:
        text: the statement.
        dialect: a sqlglot dialect; empty for the default, which reads DuckDB and Postgres.

    Returns:
        A query: SELECT, set operation or parenthesised query.

    Raises:
        SqlSyntaxError: a guard's limit, not parsable, not exactly one statement, not a query.
        InterfaceError: unknown dialect.
    """
    reader = known_dialect(dialect)
    check_text(text)
    try:
        statements = parse_statements(text, reader)
    except ParseError as error:
        raise _located(error, text) from error
    except (
        SqlglotError,
        RecursionError,
        ValueError,
        IndexError,
        AttributeError,
        TypeError,
        KeyError,
    ) as error:
        # the tokenizer raises plain Python errors on some broken input
        raise SqlSyntaxError("the statement does not parse", hint="check quotes and brackets") from error
    if len(statements) != 1:
        raise SqlSyntaxError(f"there are {len(statements)} statements", hint="send exactly one")
    tree = statements[0]
    while isinstance(tree, exp.Subquery) and not tree.alias:
        tree = tree.this
    if not isinstance(tree, exp.Query):
        raise refusal(
            SqlSyntaxError,
            f"{type(tree).__name__.upper()} is not a query",
            at=tree,
            hint=_instead(text),
            clause="statement",
        )
    for select in tree.find_all(exp.Select):
        starred = not select.expressions or any(isinstance(e, exp.Star) for e in select.expressions)
        if starred and select.args.get("from_") is None:
            raise refusal(
                SqlSyntaxError,
                "SELECT names no columns",
                at=select,
                clause="SELECT",
                hint="write SELECT 1, or a FROM",
            )
    for literal in tree.find_all(exp.Literal):
        if not literal.is_string and isinf(float(number(literal) or 0)):
            reason = f"{literal.name[:40]} is beyond the numbers that can be computed with"
            raise refusal(NotSupportedError, reason, at=literal, hint="write one of 1e-308 to 1e308")
    tree.meta["dialect"] = reader
    return tree


def _instead(text: str) -> str:
    """Alternative to a statement that is no query: a single question has no session to set anything for."""
    change = read_change(text)
    if change is None or change.verb == "SHOW":
        return "a release only answers SELECT"
    return "set it in a connection, the shell or the server; for one question pass nonnegative=True"


@lru_cache(maxsize=64)
def known_dialect(dialect: str) -> str:
    """The dialect's name, checked."""
    name = dialect.strip().lower() or DEFAULT_DIALECT
    try:
        sqlglot.Dialect.get_or_raise(name)
    except (ValueError, SqlglotError) as error:
        hint = "for instance duckdb, postgres, tsql"
        raise InterfaceError(f"there is no SQL dialect {dialect!r}", hint=hint) from error
    return name


OPENING = ("select", "with", "from", "values")
"""Words by which a query begins."""
_TOP = re.compile(r"\bselect\s+(distinct\s+)?top\s*\(?\s*(\d+)", re.IGNORECASE)


def _located(error: ParseError, text: str) -> SqlSyntaxError:
    detail = error.errors[0] if error.errors else {}
    highlight = str(detail.get("highlight") or "")
    place = f" near {highlight[:40]!r}" if highlight.strip() else ""
    quote = f' quote it if it is a name ("{highlight}"),' if highlight.isidentifier() else ""
    line, column = detail.get("line"), detail.get("col")
    at = f" at line {line}, column {column}" if line else ""
    hint = f"check the spelling there,{quote} or name its dialect"
    if top := _TOP.search(text):
        hint = f'TOP is of T-SQL: name the dialect "tsql", or end with LIMIT {top[2]}'
    first = re.match(r"\s*([A-Za-z]+)", text)
    verb = get_close_matches(first[1].lower(), OPENING, 1) if first else []
    if first and verb and verb[0] != first[1].lower():
        return SqlSyntaxError(f"no query begins with {first[1]!r}", hint=f"did you mean {verb[0].upper()}?")
    return refusal(SqlSyntaxError, f"the statement does not parse{at}{place}", clause="statement", hint=hint)


NAMED = row_expressions.NAMED_SCALARS | row_expressions.NAMED_OVER_ROWS

ALLOWED = (
    row_expressions.SHAPES
    | {"Exists", "DateBin", "AtTimeZone", "ExplodingGenerateSeries", "GenerateSeries"}
    | row_expressions.VALUES
    | row_expressions.OPERATORS
    | row_expressions.SCALARS
    | row_expressions.AGGREGATES
    | row_expressions.WINDOWS
)

REASONS = {
    "Rand": "random numbers would make the answer differ from time to time",
    "Placeholder": "a placeholder has no value here; bind it in execute()",
    "Parameter": "a placeholder has no value here; bind it in execute()",
    "IgnoreNulls": "the value of a single row is not published; group by it, or use MIN or MAX",
    "Lateral": "a lateral join would read rows",
    "Pivot": "PIVOT is not supported; use COUNT(*) FILTER (WHERE ..)",
}


def check(tree: Node) -> None:
    """Refuse the statement if any part of it is not on the lists.

    Args:
        tree: a parsed statement.

    Raises:
        NotSupportedError: names the part, its place and, where there is one, the way round.
    """
    for node in tree.walk():
        node_type = type(node).__name__
        if node_type in ALLOWED:
            if isinstance(node, exp.Table):
                _check_table(node)
            if isinstance(node, exp.With) and node.args.get("recursive"):
                raise refusal(NotSupportedError, "recursive CTEs are not supported", clause="WITH", at=node)
            continue
        if isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc)):
            called = str(node.this).lower()
            if called in NAMED or called in ERRORS:
                continue
            raise refusal(
                NotSupportedError,
                f"function {called} is not on the list of pure functions",
                at=node,
                hint="docs/sql.md has the list",
            )
        reason = REASONS.get(node_type, f"{node_type} is not supported")
        raise refusal(
            NotSupportedError,
            reason,
            at=node if not isinstance(node, exp.Query) else None,
            hint="" if node_type in REASONS else "docs/sql.md lists what is",
        )


def check_ordinals(query: Node, count: int) -> None:
    """Refuse ORDER BY a number that no item of the select list has: a hidden column may have it.

    Args:
        query: a SELECT or what UNION and its kin make of several.
        count: how many items were written, stars spelled out.

    Raises:
        ProgrammingError: with the number's place.
    """
    order = query.args.get("order")
    for key in (term.this for term in order.expressions) if order is not None else ():
        if isinstance(key, exp.Literal) and key.is_int and not 1 <= int(key.this) <= count:
            raise no_item(key, "ORDER BY", count)


def no_item(key: exp.Literal, clause: str, count: int) -> ProgrammingError:
    """The refusal of a number that is no place in a select list of some items."""
    reason = f"{clause} {key.this}: there is no such select item"
    return refusal(ProgrammingError, reason, at=key, clause=clause, hint=f"use 1 to {count}")


def _check_table(node: exp.Table) -> None:
    """A table is a plain name: no function, no file, no sample, no time travel."""
    extras = {k for k, v in node.args.items() if v} - {"this", "db", "catalog", "alias"}
    if not extras and isinstance(node.this, (exp.ExplodingGenerateSeries, exp.GenerateSeries)):
        return
    if extras or not isinstance(node.this, exp.Identifier):
        raise refusal(
            NotSupportedError,
            "FROM takes names of tables and generate_series, not other functions, files or samples",
            at=node,
            clause="FROM",
            hint="name a table",
        )


MOST_TEXT = 2**16
"""Characters of a value: 2,048 of them, which DuckDB holds at a time, are 128 MB."""
OF_ROWS = (exp.GroupConcat, exp.ArrayAgg)


def check_growth(tree: Node) -> None:
    """Refuse a statement whose texts can become longer than `MOST_TEXT` characters, before it is computed.

    A query's columns are no longer than its longest expression, whose columns are those of the queries it reads. Lists
    and texts made of many rows do count against DuckDB's memory limit; what they become is bounded no more, so that
    they cannot grow again.

    Args:
        tree: a parsed statement, its parts on the lists.

    Raises:
        NotSupportedError: they can, or nothing bounds them.
    """
    try:
        _longest(tree, {})
    except Unbounded as error:
        raise refusal(NotSupportedError, str(error), at=tree, hint="write it as a whole number") from None


def _longest(query: Node, common: Mapping[str, int]) -> int:
    """The most characters of a query's columns."""
    scope = dict(common)
    for relation in ctes(query):
        scope[relation.alias.lower()] = _longest(relation.this, scope)
    if isinstance(query, exp.Table):
        return scope.get(query.name.lower(), COLUMN)
    if isinstance(query, exp.Subquery):
        return _longest(query.this, scope)
    if isinstance(query, exp.SetOperation):
        return max(_longest(query.left, scope), _longest(query.right, scope))
    column = max([COLUMN, *(_longest(relation, scope) for relation in relations(query))])

    def known(node: Node) -> int | None:
        if isinstance(node, exp.Column):
            return column
        if isinstance(node, exp.Query):
            return _longest(node, scope)
        return MOST_TEXT if isinstance(node, OF_ROWS) else None

    arguments = [argument for key, argument in query.args.items() if key not in ("with_", "from_")]
    nodes = [
        node for argument in arguments for node in (argument if isinstance(argument, list) else [argument])
    ]
    lengths = [growth(node, known) for node in nodes if isinstance(node, Node)]
    longest = max([column, *lengths])
    if longest > MOST_TEXT:
        raise refusal(
            NotSupportedError,
            f"a text could become {longest} characters long, the limit is {MOST_TEXT}",
            hint="repeat, pad, replace or concatenate less",
        )
    return longest
