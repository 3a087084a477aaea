r"""Operations that are spelled alike in two systems and mean something else: what a statement's dialect means by them.

| written | in | means here |
|---|---|---|
| `a / b` of integers | PostgreSQL, Trino, T-SQL, SQLite, .. | `a // b` (`sql.typed`, which knows the columns' types) |
| `CAST(x AS INT)` | T-SQL, SQLite, Spark, .. | the integer towards 0; elsewhere the nearest |
| `LIKE '50\%'` | PostgreSQL, MySQL, BigQuery, .. | `LIKE '50\%' ESCAPE '\'` |
| `a ~ 'x'` | DuckDB | all of the text matches; elsewhere a part of it |
| `SUBSTRING(a, -1, 3)` | PostgreSQL | characters -1, 0 and 1; elsewhere counted from the end |
| day 1 of a week | MySQL, BigQuery, Spark, T-SQL | Sunday; in DuckDB and PostgreSQL that is 0 |
| `t::timestamptz` | everywhere | `t::timestamp` in UTC: times of a release have no zone |
| `t::timestamptz AT TIME ZONE 'Asia/Tokyo'` | everywhere | what Tokyo's clock shows at t |
| `t::timestamp AT TIME ZONE 'Asia/Tokyo'` | everywhere | the moment, in UTC, at which that clock shows t |

Column names by dialect: unquoted identifiers, and select items without an alias.

| dialect | `SELECT Region` | `SELECT COUNT(*)` | `SELECT n::int` | `SELECT 2 * SUM(x)` |
|---|---|---|---|---|
| PostgreSQL and its kin | `region` | `count` | `n` | `?column?` |
| BigQuery | `Region` | `f0_`, numbered from the left | `f0_` | `f0_` |
| Trino, Presto, Athena | `Region` | `_col0`, by its place | `_col0` | `_col0` |
| others, DuckDB among them | `Region` | DuckDB's name of the expression | | |

**Times: fields that a catalog derives.** `EXTRACT(HOUR FROM sold_at)` is the column `sold_hour` where a view has that:

    tables: {sales: {derive: {sold_hour: "hour(sold_at)"}, columns: {sold_hour: {type: int, lower: 0, upper: 23}}}}

An axis of 24 hours errs by far less than the hours of a year added up. Where a SELECT also asks for the time itself,
a field is replaced only if some view has both.

**Clock.** `CURRENT_DATE`, `NOW()` and others are the moment at which a statement began, in UTC:

| written | becomes |
|---|---|
| `CURRENT_DATE`, `CURDATE()`, `today()` | `DATE '2026-11-26'` |
| `NOW()`, `CURRENT_TIMESTAMP`, `LOCALTIMESTAMP`, `GETDATE()` | `TIMESTAMP '2026-11-26 11:05:33'` |

Every call of one statement is the same moment, and a note under the answer states it. What is kept of a statement (its
answer, its shape) is not used for the next one that reads the clock.

**Series.** `generate_series(first, last[, step])` in FROM is a public list between constants, for days without a row.

**Privacy**: reads a statement and the catalog, no release.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from itertools import count

import duckdb
from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.executor.run import run_apart
from dpsql.planner.schema import Schema
from dpsql.release.request import moment
from dpsql.row_expressions.expression import Node, calendar_field, column_name
from dpsql.sql.from_clause import base_tables
from dpsql.sql.parse import bottom_up, named, number, output_name, refusal
from dpsql.sql.statement import RewrittenQuery

POSTGRES = frozenset({"postgres", "redshift", "materialize", "risingwave"})
MYSQL = frozenset({"mysql", "singlestore", "doris", "starrocks"})
SPARK = frozenset({"spark", "spark2", "databricks"})
TRUNCATING = SPARK | {"tsql", "fabric", "sqlite", "hive", "clickhouse", "drill"}
"""Dialects in which an integer cast drops the digits after the point."""
BACKSLASH = POSTGRES | MYSQL | SPARK | {"bigquery", "hive", "clickhouse"}
"""Dialects in which a backslash in a LIKE pattern takes the next character as it is."""
SUNDAY_1 = MYSQL | SPARK | {"bigquery", "hive", "tsql", "fabric"}
"""Dialects in which Sunday is day 1 of a week."""
MONDAY_0 = MYSQL | SPARK
"""Dialects whose WEEKDAY counts from Monday."""
SUNDAY_WEEKS = MYSQL | {"bigquery", "tsql", "fabric"}
"""Dialects whose weeks are not those of ISO 8601."""
DAY_OF_WEEK = ("DAYOFWEEK", "DOW", "WEEKDAY", "DW")
ZONED = (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ)


def native(tree: Node, dialect: str) -> Node:
    """A parsed statement in which such operations say what their dialect means.

    Args:
        tree: changed in place.
        dialect: the parser's name of it.

    Returns:
        The statement.

    Raises:
        NotSupportedError: what has no equal here.

    >>> import sqlglot
    >>> native(sqlglot.parse_one("SELECT a LIKE '5\\\\%' FROM t", read="postgres"), "postgres").sql("duckdb")
    "SELECT a LIKE '5\\\\%' ESCAPE '\\\\' FROM t"
    """
    return bottom_up(tree, lambda node: CHANGES[type(node)](node, dialect) if type(node) in CHANGES else node)


def _like(node: Node, dialect: str) -> Node:
    pattern = node.expression
    escaped = isinstance(pattern, exp.Literal) and "\\" in str(pattern.this)
    if dialect not in BACKSLASH or not escaped or isinstance(node.parent, exp.Escape):
        return node
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def _matches(node: Node, dialect: str) -> Node:
    """DuckDB's own operator; its REGEXP_MATCHES stands in the text as a call, whose name has a place there."""
    operator = dialect == "duckdb" and not node.args.get("flag") and "start" not in node.meta
    if not operator:
        return node
    return exp.Anonymous(this="regexp_full_match", expressions=[node.this.copy(), node.expression.copy()])


def _substring(node: Node, dialect: str) -> Node:
    start, length = number(node.args.get("start")), number(node.args.get("length"))
    if dialect not in POSTGRES or start is None or start >= 1 or start % 1:
        return node
    if node.args.get("length") is not None and (length is None or length % 1):
        raise refusal(
            NotSupportedError, "SUBSTRING before the first character with a length that is computed", at=node,
            hint="begin at 1",
        )  # fmt: skip
    node.set("start", exp.Literal.number(1))
    if length is not None:
        node.set("length", exp.Literal.number(max(0, start + length - 1)))
    return node


def _day_of_week(node: Node, dialect: str) -> Node:
    if dialect not in SUNDAY_1:
        return node
    return exp.Paren(this=exp.Add(this=node.copy(), expression=exp.Literal.number(1)))


def _extract(node: Node, dialect: str) -> Node:
    field = node.this.name.upper()
    if dialect in POSTGRES and dialect != "redshift":
        node.meta["fractional"] = True  # a numeric, whose quotient by an integer keeps its digits
    if dialect in SUNDAY_WEEKS and field in ("WEEK", "WK", "WW"):
        raise _odd_week(node)
    return _day_of_week(node, dialect) if field in DAY_OF_WEEK else node


def _week(node: Node, dialect: str) -> Node:
    if dialect in SUNDAY_WEEKS:
        raise _odd_week(node)
    return node


def _odd_week(node: Node) -> NotSupportedError:
    return refusal(
        NotSupportedError, "weeks here are those of ISO 8601, and this dialect counts others", at=node,
        hint="group by the days, or write the statement in DuckDB's dialect",
    )  # fmt: skip


def _called(node: Node, dialect: str) -> Node:
    """WEEKDAY, which the parser has no type for."""
    if str(node.this).lower() != "weekday" or dialect not in MONDAY_0:
        return node
    iso = exp.DayOfWeekIso(this=node.expressions[0].copy())
    return exp.Paren(this=exp.Sub(this=iso, expression=exp.Literal.number(1)))


def _cast(node: Node, dialect: str) -> Node:
    assert isinstance(node, exp.Cast)
    if node.to.this in exp.DataType.INTEGER_TYPES and dialect in TRUNCATING:
        node.meta["truncates"] = True
    if node.to.this not in ZONED:
        return node
    text = node.this
    if isinstance(text, exp.Literal) and text.is_string:
        text.set("this", _in_utc(str(text.this)))
    node.set("to", exp.DataType.build("TIMESTAMP"))
    node.meta["zoned"] = True
    return node


MOVED = (exp.Paren, exp.Add, exp.Sub, exp.TimestampTrunc, exp.DateTrunc)
"""What gives a time with a zone where its first part is one."""


def _is_zoned(node: Node) -> bool:
    """True if an expression is a moment, in UTC here, and not what some clock shows."""
    return bool(node.meta.get("zoned")) or (isinstance(node, MOVED) and _is_zoned(node.this))


def _in_zone(node: Node, dialect: str) -> Node:
    """AT TIME ZONE in DuckDB's words, by its table of zones; UTC takes the place of the session's zone."""
    zone, time = node.args.get("zone"), node.this
    if node.meta.get("by_place"):
        return node
    if not isinstance(zone, exp.Literal) or not zone.is_string:
        raise refusal(NotSupportedError, "AT TIME ZONE with a zone that is computed", at=node,
                      hint="write its name: AT TIME ZONE 'Europe/Riga'")  # fmt: skip
    shown, name = _is_zoned(time), str(zone.this)
    moved: Node = exp.Cast(this=time.copy(), to=exp.DataType.build("TIMESTAMP"))
    moved.meta["zoned"] = shown
    if name.upper() != "UTC":
        if name.lower() not in zones():
            raise refusal(NotSupportedError, f"there is no time zone {name[:40]!r}", at=zone,
                          hint="write its place, such as 'Europe/Riga', since short names differ")  # fmt: skip
        there, here = (exp.Literal.string("UTC"), zone.copy()), (zone.copy(), exp.Literal.string("UTC"))
        for name_literal in there if shown else here:
            moved = exp.AtTimeZone(this=moved, zone=name_literal)
            moved.meta["by_place"] = True
    moved.meta["zoned"] = not shown
    return moved


@cache
def zones() -> frozenset[str]:
    """DuckDB's names of time zones by their place, in lower case."""
    names = duckdb.connect().execute("SELECT name FROM pg_timezone_names() WHERE name LIKE '%/%'").fetchall()
    return frozenset(name.lower() for (name,) in names if not name.startswith("Etc/"))


def _in_utc(text: str) -> str:
    """A time as it is written, without its zone."""
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:  # DuckDB says what is wrong with it
        return text
    return text if time.tzinfo is None else str(time.astimezone(UTC).replace(tzinfo=None))


CHANGES: dict[type[Node], Callable[[Node, str], Node]] = {
    exp.Like: _like, exp.ILike: _like, exp.RegexpLike: _matches, exp.RegexpFullMatch: _matches,
    exp.Substring: _substring,
    exp.DayOfWeek: _day_of_week, exp.Extract: _extract, exp.Week: _week, exp.Anonymous: _called, exp.Cast: _cast,
    exp.TryCast: _cast, exp.AtTimeZone: _in_zone,
}  # fmt: skip
"""Node types of such operations."""


BY_PLACE = frozenset({"trino", "presto", "athena"})
NAMELESS = "?column?"
TYPES = {
    "INT": "int4", "BIGINT": "int8", "SMALLINT": "int2", "DOUBLE": "float8", "FLOAT": "float4", "DECIMAL": "numeric",
    "BOOLEAN": "bool",
}  # fmt: skip
"""PostgreSQL's own names of types, which a cast constant is called."""
CALLED: dict[type[Node], str] = {
    exp.TimestampTrunc: "date_trunc", exp.DateTrunc: "date_trunc", exp.Extract: "extract", exp.Trim: "btrim",
    exp.Coalesce: "coalesce", exp.Exists: "exists",
    exp.GroupConcat: "string_agg",
}  # fmt: skip
"""Calls whose name is not the word in the text."""


def name_columns(tree: Node, dialect: str, text: str) -> Node:
    """A parsed statement whose columns are called as its dialect calls them.

    Args:
        tree: changed in place.
        dialect: the parser's name of it.
        text: what the user wrote.

    >>> import sqlglot
    >>> name_columns(sqlglot.parse_one("SELECT 1, N FROM t", read="postgres"), "postgres", "SELECT 1, N FROM t").sql()
    'SELECT 1 AS "?column?", n FROM t'
    """
    if dialect in POSTGRES:
        for identifier in tree.find_all(exp.Identifier):
            if not identifier.args.get("quoted"):
                identifier.set("this", str(identifier.this).lower())
    for select in tree.find_all(exp.Select):
        if isinstance(select.parent, (exp.In, exp.Exists)):
            continue
        call = _caller(dialect, text)
        for place, projection in enumerate(list(select.expressions)):
            star = isinstance(projection, exp.Star) or isinstance(projection.this, exp.Star)
            nameless = not isinstance(projection, (exp.Alias, exp.Column)) and (
                not star or isinstance(projection, exp.Count)
            )
            name = call(place, projection) if nameless else ""
            if name:
                projection.replace(named(projection.copy(), name))
    return tree


def _caller(dialect: str, text: str) -> Callable[[int, Node], str]:
    """Function that names an unaliased select item by its position; None where DuckDB's own name is used."""
    if dialect in POSTGRES:
        return lambda place, node: figure(node, text) or NAMELESS
    if dialect in BY_PLACE:
        return lambda place, node: f"_col{place}"
    numbers = count()
    return lambda place, node: f"f{next(numbers)}_" if dialect == "bigquery" else ""


def figure(node: Node, text: str) -> str:
    """PostgreSQL's name of an expression; empty where it has none."""
    if isinstance(node, (exp.Paren, exp.Filter, exp.WithinGroup, exp.Window, exp.AtTimeZone, exp.Collate)):
        return figure(node.this, text) if not isinstance(node, exp.AtTimeZone) else "timezone"
    if isinstance(node, exp.Column):
        return node.name
    if isinstance(node, exp.Cast):
        return figure(node.this, text) or TYPES.get(node.to.this.name, node.to.this.name.lower())
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        return (figure(default, text) if default is not None else "") or "case"
    if isinstance(node, exp.Subquery):
        inner = node.this.expressions[0] if isinstance(node.this, exp.Select) else node.this
        return inner.alias if isinstance(inner, exp.Alias) else figure(inner, text)
    if type(node) in CALLED:
        return CALLED[type(node)]
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    if not isinstance(node, exp.Func) or (isinstance(node, exp.Binary) and not isinstance(node, exp.AggFunc)):
        return ""
    written = text[node.meta["start"] : node.meta["end"] + 1].lower() if "start" in node.meta else ""
    return written if written.isidentifier() else node.sql_name().lower()


def map_fields(tree: Node, schema: Schema) -> None:
    """Replace every field of a time by the column that holds it.

    Args:
        tree: a parsed statement; changed in place.
        schema: the star.
    """
    if not schema.fields:
        return
    for select in list(tree.find_all(exp.Select)):
        sources = base_tables(select, schema)
        calls = [
            (node, field)
            for node in select.find_all(exp.Expression)
            if node.find_ancestor(exp.Select) is select and (field := calendar_field(node)) is not None
        ]
        inside = {id(column) for node, _ in calls for column in node.find_all(exp.Column)}
        plain = {column_name(c) for c in select.find_all(exp.Column) if id(c) not in inside}
        for node, field in calls:
            # no field where several tables could be meant
            tables = [
                table
                for called, named in sources.items()
                if field.table.lower() in ("", called)
                for table in named
                if table.column(field.column) is not None
            ]
            key = (tables[0].name.lower(), field.column.lower(), field.name) if len(tables) == 1 else None
            name = None if key is None else schema.fields.get(key)
            if name is not None and ((field.table, field.column) not in plain or key in schema.beside):
                held: Node = exp.column(name, table=field.table or None, quoted=True)
                shown = node.parent is select and node.arg_key == "expressions"
                node.replace(exp.alias_(held, output_name(node), quoted=True) if shown else held)


DATES = (exp.CurrentDate,)
TIMES = (exp.CurrentTimestamp, exp.Localtimestamp, exp.CurrentDatetime)
NAMED_DATES = frozenset({"today", "curdate"})
NAMED_TIMES = frozenset({
    "getdate", "getutcdate", "sysdatetime", "sysutcdatetime", "get_current_timestamp", "transaction_timestamp",
    "statement_timestamp", "clock_timestamp", "sysdate", "now",
})  # fmt: skip


def fold_clock(tree: Node) -> tuple[Node, datetime | None]:
    """Write the moment at which the request began in place of the clock.

    Args:
        tree: a parsed statement; changed in place.

    Returns:
        The statement, and that moment in UTC without its zone; None where it does not read the clock.
    """
    dates = [node for node in tree.walk() if _is_clock(node, DATES, NAMED_DATES)]
    times = [node for node in tree.walk() if _is_clock(node, TIMES, NAMED_TIMES)]
    if not dates and not times:
        return tree, None
    now = moment().replace(tzinfo=None, microsecond=0)
    for calls, value, kind in ((dates, now.date(), "DATE"), (times, now, "TIMESTAMP")):
        for call in calls:
            literal = exp.cast(exp.Literal.string(str(value)), kind)
            literal.meta["zoned"] = kind == "TIMESTAMP"
            call.replace(literal)
    return tree, now


def _is_clock(node: Node, types: tuple[type[Node], ...], names: frozenset[str]) -> bool:
    """True if a node reads the clock: by its type, or as a call that the parser has no type for."""
    called = isinstance(node, exp.Anonymous) and not node.expressions and str(node.this).lower() in names
    return called or isinstance(node, types)


MOST_STEPS = 100_000
"""Rows of a series: the hours of eleven years."""
SERIES = (exp.ExplodingGenerateSeries, exp.GenerateSeries)


def read_series(node: Node) -> tuple[str, RewrittenQuery]:
    """Put a derived table in the place of a series.

    Args:
        node: the call in FROM, its parts on the lists; replaced.

    Returns:
        Its alias and its shape.

    Raises:
        NotSupportedError: its ends are computed from other tables, or too far apart.
    """
    call, alias = node.this, node.args.get("alias")
    if call.args.get("is_end_exclusive"):
        raise refusal(
            NotSupportedError, "RANGE leaves out its end", at=call, clause="FROM", hint="use generate_series"
        )
    if call.find(exp.Column, exp.Query, exp.AggFunc):
        raise refusal(
            NotSupportedError, "generate_series between ends that are computed from tables", at=call, clause="FROM",
            hint="write them as constants, such as DATE '2025-01-31' or CURRENT_DATE",
        )  # fmt: skip
    ends = [call.args[key] for key in ("start", "end", "step") if call.args.get(key) is not None]
    if len(ends) == 3 and number(ends[2]) is None:
        ends = [
            exp.cast(end, kind)
            for end, kind in zip(ends, ("TIMESTAMP", "TIMESTAMP", "INTERVAL"), strict=True)
        ]
    series = exp.Anonymous(this="generate_series", expressions=ends)
    counted = f"SELECT COUNT(*) FROM (SELECT 1 FROM {series.sql('duckdb')} LIMIT {MOST_STEPS + 1})"
    try:
        steps = run_apart(counted, []).rows[0][0]
    except duckdb.Error as error:
        raise refusal(
            NotSupportedError, "generate_series with these ends and this step", at=call, clause="FROM",
            hint="write generate_series(DATE '2025-01-01', DATE '2025-01-31', INTERVAL '1 day')",
        ) from error  # fmt: skip
    if steps > MOST_STEPS:
        raise refusal(
            NotSupportedError, f"generate_series of more than {MOST_STEPS} rows", at=call, clause="FROM",
            hint="take longer steps",
        )  # fmt: skip
    name = node.alias or "generate_series"
    columns = alias.args.get("columns") if alias is not None else None
    column = columns[0].name if columns else name
    table = exp.Table(
        this=series, alias=exp.TableAlias(this=exp.to_identifier("s"), columns=[exp.to_identifier("n")])
    )
    select = exp.Select(expressions=[named(exp.column("n", "s"), column)]).from_(table)
    node.replace(exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True))))
    return name, RewrittenQuery(select, [column], [{}], unique=frozenset({column.lower()}))
