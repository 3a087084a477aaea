"""A SELECT as the source of a table: over private rows one row at a time, over public ones whatever is pure.

    private    SELECT expressions FROM one file or table [JOIN public table ON .. = its key] [WHERE ..]
    public     DISTINCT, aggregates, windows, subqueries, too; no other table of the catalog may be private

Both are written again from what the parser understood. A file is read by `dpsql.engines` alone: in the written SQL
it is `read."<place>"`, and a public table of the catalog is `raw."<table>"`, whose key is checked before it is joined.

**Privacy**: each output row of a private SELECT follows from one row and from public facts, so one unit changes its own
rows and no others. An expression that fails on a row is NULL there, a condition that fails leaves the row out.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from sqlglot import exp

from dpsql.errors import CatalogError
from dpsql.row_expressions import (
    AGGREGATES,
    NAMED_OVER_ROWS,
    NAMED_SCALARS,
    OPERATORS,
    SCALARS,
    SHAPES,
    VALUES,
    WINDOWS,
    identifier,
    words,
)
from dpsql.row_expressions.expression import Node, check_row, parse_one, write
from dpsql.row_expressions.total import total
from dpsql.row_expressions.typed import TotalExpression

OVER_PUBLIC_ROWS = SHAPES | VALUES | OPERATORS | SCALARS | AGGREGATES | WINDOWS | words(
    "Explode Unnest GenerateSeries Array ReadParquet ReadCSV Exists"
)  # fmt: skip
NAMED_OVER_PUBLIC_ROWS = NAMED_SCALARS | NAMED_OVER_ROWS | words("range generate_series unnest read_csv_auto")

NOT_COLUMNS = words("""
    current_catalog current_date current_schema current_role current_time current_timestamp current_user
    localtime localtimestamp session_user user
""")
"""Words that the engine takes for functions where there is no such column."""

HINT = "write SELECT .. FROM one file [JOIN a public table ON its key] [WHERE ..], or vouch for it by `trusted: true`"


JOINS = (("", ""), ("", "INNER"), ("LEFT", ""), ("LEFT", "INNER"), ("LEFT", "OUTER"))
"""Sides and kinds of joins that multiply nothing and keep the private row first."""


class Arm(NamedTuple):
    """A public table that a SELECT over private rows may join."""

    table: str
    key: str


@dataclass(frozen=True)
class Query:
    """A checked SELECT.

    Args:
        sql: over `read."<place>"` and `raw."<table>"`; of a trusted one the curator's own words.
        reads: the files (or tables of a database) that it reads, as the catalog writes them.
        keys: public tables of the catalog that it joins, with their keys.
        probe: a SELECT of both sides of each join, whose types must agree; empty without a join.
        columns: names of its columns; None where a star makes that the file's matter.
        trusted: nobody checked it, the curator vouches for it.
        text: as the curator writes it, of a checked one over private rows.
    """

    sql: str
    reads: tuple[str, ...]
    keys: tuple[Arm, ...] = ()
    probe: str = ""
    columns: tuple[str, ...] | None = None
    trusted: bool = False
    text: str = ""

    @property
    def joins(self) -> tuple[str, ...]:
        """The public tables that it joins."""
        return tuple(arm.table for arm in self.keys)


def is_select(text: str) -> bool:
    """True if a table's source is a statement rather than the name of a file or table.

    >>> is_select("SELECT * FROM 'a.parquet'"), is_select("selected.parquet")
    (True, False)
    """
    return (
        text.lstrip(" \t\r\n(")
        .lower()
        .startswith(("select ", "select\n", "select\t", "with ", "with\n", "from "))
    )


def normal(place: str) -> str:
    """One spelling of a place below the root.

    >>> normal("./day/../sales.parquet")
    'sales.parquet'
    """
    return posixpath.normpath(place.replace("\\", "/")) if place else place


def checked_select(text: str, arms: Mapping[str, Arm]) -> Query:
    """Check a SELECT over private rows.

    Args:
        text: the statement as the curator wrote it.
        arms: what may be joined: name of a public table, or its file -> the table and its key.

    Returns:
        The SELECT, row-local and written again.

    Raises:
        CatalogError: it does not look at one row at a time; names the part.

    >>> checked_select("SELECT price * 2 AS double FROM 'sales.parquet' AS s WHERE price > 0", {}).sql
    'SELECT TRY("s"."price" * 2) AS "double" FROM read."sales.parquet" AS "s" WHERE TRY("s"."price" > 0)'
    """
    return _checked_select(text, tuple(sorted(arms.items())))


@lru_cache(maxsize=256)
def _checked_select(text: str, arms: tuple[tuple[str, Arm], ...]) -> Query:
    tree = parse_one(text)
    if not isinstance(tree, exp.Select):
        raise _refused(f"{type(tree).__name__.upper()} reads more than one row at a time")
    # nothing that looks at other rows, counts them or orders them
    for name, value in tree.args.items():
        if value and name.rstrip("_") not in ("expressions", "from", "joins", "where", "kind"):
            raise _refused(f"{name.rstrip('_').upper()} reads more than one row of a private table")
    if tree.args.get("kind"):
        raise _refused("SELECT AS STRUCT or VALUE makes no columns")
    source = _clause(tree, "from")
    if source is None:
        raise _refused("there is no FROM")
    place = _place(source.this)
    alias = _alias(source.this, place)
    aliases, joined, probed = [alias], list[Arm](), list[str]()
    relation = f"read.{identifier(place)} AS {identifier(alias)}"
    for join in _parts(tree, "joins"):
        alias, arm, text_of_join, sides = _joined(join, aliases, dict(arms))
        aliases.append(alias)
        joined.append(arm)
        relation += f" {text_of_join}"
        probed += sides
    items, names = _items(tree, aliases)
    where = _clause(tree, "where")
    condition = "" if where is None else f" WHERE {_value(where.this, aliases, wrap=True)}"
    return Query(
        f"SELECT {', '.join(items)} FROM {relation}{condition}",
        (place,),
        tuple(joined),
        f"SELECT {', '.join(probed)} FROM {relation}" if joined else "",
        names,
        text=text,
    )


class TotalItem(NamedTuple):
    """A column of a SELECT on a server.

    Args:
        name: of the column.
        expression: what it is.
        plain: the source's column that it is, or empty where it is computed.
    """

    name: str
    expression: TotalExpression
    plain: str


def total_select(
    text: str, kinds: Mapping[str, str], columns: tuple[str, ...]
) -> tuple[list[TotalItem], TotalExpression | None]:
    """The columns and the condition of a SELECT over one private table, as total expressions.

    Args:
        text: what `checked_select` accepts, without a join.
        kinds: column of the table in lower case -> type in DuckDB's words; of types that are read.
        columns: all of them, in order.

    Raises:
        CatalogError: one is not total.
    """
    tree = parse_one(text)
    items = []
    for selected in tree.expressions:
        inner = selected.this if isinstance(selected, exp.Column) else selected
        if isinstance(inner, exp.Star):
            left_out = {c.name.lower() for name in ("except", "exclude") for c in _parts(inner, name)}
            for name in columns:
                if name.lower() in kinds and name.lower() not in left_out:
                    items.append(TotalItem(name, total(exp.column(name), kinds), name))
            continue
        value = selected.this if isinstance(selected, exp.Alias) else selected
        plain = value.name if isinstance(value, exp.Column) else ""
        items.append(TotalItem(selected.alias_or_name, total(value, kinds), plain))
    where = _clause(tree, "where")
    return items, None if where is None else total(where.this, kinds)


def _refused(reason: str) -> CatalogError:
    return CatalogError(reason, hint=HINT)


def _parts(node: Node, name: str) -> list[Node]:
    """An argument of a node; the parser has renamed some by an underscore between versions."""
    value = node.args.get(name) or node.args.get(f"{name}_") or []
    return list(value) if isinstance(value, list) else [value]


def _clause(node: Node, name: str) -> Node | None:
    nodes = _parts(node, name)
    return nodes[0] if nodes else None


def _place(table: Node) -> str:
    """The file or table that FROM names.

    Raises:
        CatalogError: a subquery, a function other than a file reader with its file alone, a place outside the root.
    """
    if not isinstance(table, exp.Table):
        raise _refused(f"FROM {type(table).__name__.upper()} is not one file or table")
    extras = {name for name, value in table.args.items() if value} - {"this", "db", "catalog", "alias"}
    if extras:
        raise _refused(f"{sorted(extras)[0].rstrip('_').upper()} behind a table of FROM")
    columns = table.args["alias"].args.get("columns") if table.args.get("alias") else None
    if columns:
        raise _refused("FROM gives other names to columns; use AS in the select list")
    if isinstance(table.this, exp.Identifier):
        place = ".".join(identifier_node.name for identifier_node in table.parts)
    elif isinstance(table.this, (exp.ReadParquet, exp.ReadCSV)):
        values = [v for v in (table.this.this, *table.this.expressions) if v is not None]
        if len(values) != 1 or not (isinstance(values[0], exp.Literal) and values[0].is_string):
            raise _refused(
                "a file reader takes the file's name and no options; the dialect is declared in `source`"
            )
        place = str(values[0].name)
    else:
        raise _refused(f"FROM reads {table.this.sql('duckdb')[:40]}")
    place = normal(place)
    if place.startswith(("/", "..")) or "://" in place or any(c in place for c in "*?["):
        raise _refused(f"`{place}` is not one file below `source.root`")
    return place


def _alias(table: Node, place: str) -> str:
    stem = posixpath.basename(place)
    return str(table.alias or (table.name if table.args.get("db") else stem.rpartition(".")[0]) or stem)


def _joined(join: Node, aliases: list[str], arms: Mapping[str, Arm]) -> tuple[str, Arm, str, tuple[str, str]]:
    """A public table joined on its key, which multiplies nothing: its alias, itself, the JOIN, and both its sides."""
    side, kind = str(join.args.get("side") or ""), str(join.args.get("kind") or "")
    extras = {name for name, value in join.args.items() if value} - {"this", "side", "kind", "on", "using"}
    if extras or (side, kind) not in JOINS:
        word = " ".join([*sorted(str(join.args[e]) for e in extras), side, kind]).strip() or "this"
        raise _refused(f"{word} JOIN is neither INNER nor LEFT")
    place = _place(join.this)
    arm = arms.get(place)
    if arm is None:
        raise _refused(f"`{place}` is joined and is not a public table of the catalog with a key")
    alias = _alias(join.this, place)
    if alias.lower() in {name.lower() for name in aliases}:
        raise _refused(f"two tables of FROM are called `{alias}`")
    left = _other_side(join, alias, arm, aliases)
    right = f"{identifier(alias)}.{identifier(arm.key)}"
    text = f"{'LEFT ' if side else ''}JOIN raw.{identifier(arm.table)} AS {identifier(alias)} ON {left} = {right}"
    return alias, arm, text, (left, right)


def _other_side(join: Node, alias: str, arm: Arm, aliases: list[str]) -> str:
    """Column compared with the key of a joined table."""
    needed = f"JOIN {arm.table} needs ON <expression> = {alias}.{arm.key}, its key, and nothing else"
    using = [column.name.lower() for column in _parts(join, "using")]
    if using:
        if using != [arm.key.lower()]:
            raise _refused(needed)
        return f"{identifier(aliases[0])}.{identifier(arm.key)}"
    on = join.args.get("on")
    while isinstance(on, exp.Paren):
        on = on.this
    if isinstance(on, exp.EQ):
        for key, value in ((on.right, on.left), (on.left, on.right)):
            is_joined = isinstance(key, exp.Column) and key.table.lower() == alias.lower()
            if is_joined and key.name.lower() == arm.key.lower():
                return _value(value, aliases)
    raise _refused(needed)


def _items(tree: Node, aliases: list[str]) -> tuple[list[str], tuple[str, ...] | None]:
    """The select list, and its names unless a star hides them."""
    items: list[str] = []
    names: list[str] = []
    star = False
    for selected in tree.expressions:
        inner = selected.this if isinstance(selected, exp.Column) else selected
        if isinstance(inner, exp.Star):
            items.append(_star(selected, inner, aliases))
            star = True
            continue
        name = (
            selected.alias
            if isinstance(selected, exp.Alias)
            else selected.name
            if isinstance(selected, exp.Column)
            else ""
        )
        if not name:
            raise _refused(f"`{selected.sql('duckdb')[:60]}` has no name; write AS <column>")
        items.append(
            f"{_value(selected.this if isinstance(selected, exp.Alias) else selected, aliases)} AS {identifier(name)}"
        )
        names.append(name)
    if len({name.lower() for name in names}) < len(names):
        raise _refused("two columns of the SELECT have one name")
    return items, None if star else tuple(names)


def _star(selected: Node, star: Node, aliases: list[str]) -> str:
    """`*` or `t.*`, with EXCLUDE."""
    left_out = [column for name in ("except", "exclude") for column in _parts(star, name)]
    extras = {k for k, v in star.args.items() if v} - {"except", "except_", "exclude", "exclude_"}
    if extras or not all(isinstance(column, (exp.Identifier, exp.Column)) for column in left_out):
        raise _refused("a star takes EXCLUDE alone")
    table = selected.table if isinstance(selected, exp.Column) else ""
    if not table and len(aliases) > 1:
        raise _refused("`*` takes the columns of all joined tables; write <table>.*")
    owner = _known(table, aliases) if table else aliases[0]
    exclude = f" EXCLUDE ({', '.join(identifier(column.name) for column in left_out)})" if left_out else ""
    return f"{identifier(owner)}.*{exclude}"


def _known(alias: str, aliases: list[str]) -> str:
    for name in aliases:
        if name.lower() == alias.lower():
            return name
    raise _refused(f"`{alias}` is not a table of FROM")


def _value(tree: Node, aliases: list[str], *, wrap: bool = False) -> str:
    """An expression written again, each column with its table; NULL where it fails, unless it is a plain column."""
    check_row(tree)
    for column in tree.find_all(exp.Column):
        if not column.table and len(aliases) > 1:
            raise _refused(f"`{column.name}` may be in several tables; write <table>.{column.name}")
        column.set("table", exp.to_identifier(_known(column.table or aliases[0], aliases), quoted=True))
    text = write(tree, {})
    return text if isinstance(tree, exp.Column) and not wrap else f"TRY({text})"


@lru_cache(maxsize=256)
def public_select(text: str) -> Query:
    """Check a SELECT over public rows alone.

    Args:
        text: the statement; that all it reads is public is for the caller to see (`Query.reads`).

    Returns:
        The statement, written again.

    Raises:
        CatalogError: it holds what is not pure; names the part.

    >>> public_select("SELECT DISTINCT zone FROM 'zone.parquet'").sql
    'SELECT DISTINCT "zone" FROM "read"."zone.parquet" AS "zone"'
    """
    tree = parse_one(text)
    if not isinstance(tree, exp.Query):
        raise CatalogError(
            f"{type(tree).__name__.upper()} is not a SELECT", hint="write SELECT .. FROM a file"
        )
    inner = {str(cte.alias).lower() for cte in tree.find_all(exp.CTE)}
    for node in tree.walk():
        name = type(node).__name__
        if isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc)):
            name = str(node.this).lower()
            pure = name in NAMED_OVER_PUBLIC_ROWS
        else:
            pure = name in OVER_PUBLIC_ROWS
        if not pure or (isinstance(node, exp.Column) and not node.table and node.name.lower() in NOT_COLUMNS):
            shown = node.name if isinstance(node, exp.Column) else name.lower()
            raise CatalogError(
                f"{shown} is not on the list of pure functions",
                hint="a public table is the same whenever it is read",
            )
    reads: dict[str, None] = {}

    def with_place(node: Node) -> Node:
        if not isinstance(node, exp.Table) or (not node.db and node.name.lower() in inner):
            return node
        if isinstance(node.this, (exp.GenerateSeries, exp.Unnest)):
            return node
        place = _place(node)
        reads[place] = None
        alias = exp.TableAlias(this=exp.to_identifier(_alias(node, place), quoted=True))
        return exp.Table(
            this=exp.to_identifier(place, quoted=True), db=exp.to_identifier("read", quoted=True), alias=alias
        )

    return Query(write(tree.transform(with_place), {}), tuple(reads))


def trusted_select(text: str) -> Query:
    """A SELECT that nobody checks; what it reads is named as far as it parses."""
    try:
        tree = parse_one(text)
    except CatalogError:
        return Query(text, (), trusted=True)
    reads: dict[str, None] = {}
    for table in tree.find_all(exp.Table):
        literals = [] if isinstance(table.this, exp.Identifier) else list(table.this.find_all(exp.Literal))
        for name in [literal.name for literal in literals if literal.is_string] or [
            ".".join(p.name for p in table.parts)
        ]:
            reads[normal(name)] = None
    return Query(text, tuple(reads), trusted=True)
