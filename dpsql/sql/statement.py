"""Interface between the SQL side and the planner, with the state of rewriting one statement, and its arithmetic.

Arithmetic means what the statement's dialect means. Only what is certain has a type: `whole` numbers, other `numbers`
and `days`. Where PostgreSQL and others divide whole numbers, the quotient is cut towards 0: `age / 10` is 1 for every
age from 10 to 19.

NaN and infinity become NULL where they would arise: 0/0 is as unknown as an AVG over nobody. DuckDB computes by
IEEE 754: 0/0 is NaN, which it ranks above every number and lets pass `> 100`; 1/0 is infinity. Every operation that can
leave the finite numbers is put into

    LIST_FILTER(LIST_PACK(x), LAMBDA dp_v : NOT ISFINITE(TRY_CAST(dp_v AS DOUBLE)) IS FALSE)[1]

which is x, of x's own type, or NULL. A list's filter says x once: as CASE or NULLIF, which say it twice, nested
operations would double the statement at every level. The list is not spelled [x]: where x has a subquery, older parsers
write that as ARRAY(x), which is something else. Dates and intervals pass, for they are no DOUBLE. The same expression
has the same guards wherever it stands, so that GROUP BY still finds it in the select list. Integer division by 0 is
NULL by the setting `error_on_division_by_zero` of a release's connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Literal, NamedTuple

import sqlglot
from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.planner.block import Block, ErrorOf, Form, Value
from dpsql.planner.schema import Schema
from dpsql.row_expressions.expression import Node
from dpsql.sql.parse import bottom_up, refusal

MOST_BLOCKS = 64
"""Blocks of one statement: what carries their errors grows with the square."""
AT = "dp_at"
"""Row number of a block's relation; carried through the statement so that error bars find their row."""
ADDED = "dp_added"
"""Bits of the keys whose group holds leaves that the catalog adds alone (`sql.added`)."""


@dataclass(frozen=True)
class Statement:
    """A statement, taken apart.

    Args:
        blocks: the aggregate blocks.
        outer: DuckDB text over the relations `dp_block_<b>` (columns dp_at, k0.., v0..), without its WITH clause.
        common: that clause's parts.
        names: output columns.
        forms: for each output column, block number -> form; empty where the error is not defined.
        carriers: hidden output columns behind the named ones: the block each one numbers rows of.
        catalog_tables: whether information_schema is read.
        public_tables: public tables whose rows are read.
        direct: the one relation's columns, hidden ones included, where the outer statement only picks them.
        ordered: whether it sorts anything.
        asks_errors: whether it holds functions of an error that follow several groups, and is to be carried out as
            `sql.carry` says.
        keeps: whether a clause of the outer statement keeps some of its rows.
        moment: what its clock shows, in UTC; None where it does not read the clock.
        notes: what a reader should know of the rows that were asked for in other words.
        counting: for each output column how it depends on how many groups there are (`sql.added`); empty where nothing
            in the statement does, so that it reads no `dp_added`.
        key_texts: bits of keys, as in `dp_added`, each with a text that conditions on groups compare it with; an empty
            one for any other condition.
    """

    blocks: tuple[Block, ...]
    outer: str
    common: tuple[str, ...]
    names: tuple[str, ...]
    forms: tuple[dict[int, Form], ...]
    carriers: tuple[int, ...]
    catalog_tables: bool
    public_tables: tuple[str, ...]
    direct: tuple[str, ...]
    ordered: bool
    asks_errors: bool
    keeps: bool
    moment: datetime | None = None
    notes: tuple[str, ...] = ()
    counting: tuple[str, ...] = ()
    key_texts: tuple[tuple[int, str], ...] = ()

    @property
    def block_errors(self) -> bool:
        """True if a block is asked for errors of its values."""
        return any(isinstance(value, ErrorOf) for block in self.blocks for value in block.values)

    @property
    def text(self) -> str:
        return with_sources(self.common, self.outer)


@dataclass
class BlockDraft:
    """A block while its statement is being rewritten: values are added as they are met."""

    block: Block
    values: list[Value] = field(default_factory=list)

    def value(self, value: Value) -> str:
        """The column that will hold a value."""
        if value not in self.values:
            self.values.append(value)
        return f"v{self.values.index(value)}"


@dataclass
class RewrittenQuery:
    """A rewritten query: its tree and what its columns are.

    Args:
        node: the tree; its projections are the named columns, then the hidden ones.
        names: output columns.
        forms: for each of them block number -> form.
        carriers: hidden column name -> block number.
        block: the block that this query is, or None.
        children: alias -> shape of each source in FROM, or branches of a set operation.
        unique: columns that no two rows have alike, in lower case; None where nothing says.
        kinds: for each output column the kind of its values; empty where nothing says.
    """

    node: Node
    names: list[str]
    forms: list[dict[int, Form]]
    carriers: dict[str, int] = field(default_factory=dict)
    block: int | None = None
    children: list[tuple[str, RewrittenQuery]] = field(default_factory=list)
    unique: frozenset[str] | None = None
    kinds: list[Kind | None] = field(default_factory=list)


@dataclass
class Context:
    """The state of one rewriting.

    Args:
        schema: the star; while a SELECT over a named release's rows is rewritten, that release's.
        text: the statement.
        carries: whether functions of an error all stay for `sql.carry`, since no one view holds a block's value.
        release: the name of the release whose rows are being read; empty where the statement names none.
        drafts: its blocks so far.
        catalog_tables: whether information_schema is read.
        public_tables: public tables whose rows are read.
        hidden: how many names were made up.
    """

    schema: Schema
    text: str
    carries: bool = False
    release: str = ""
    drafts: list[BlockDraft] = field(default_factory=list)
    catalog_tables: bool = False
    public_tables: list[str] = field(default_factory=list)
    hidden: int = 0

    def add(self, draft: BlockDraft) -> None:
        """One more block.

        Raises:
            NotSupportedError: there are too many.
        """
        if len(self.drafts) == MOST_BLOCKS:
            raise NotSupportedError(
                f"the statement asks more than {MOST_BLOCKS} questions", hint="use GROUP BY, or ask in parts"
            )
        self.drafts.append(draft)

    def named(self, table: Node) -> Schema:
        """The star that a table stands in: that of the release which its qualifier names."""
        return self.schema.named.get(table.text("db").lower(), self.schema)

    @contextmanager
    def reading(self, release: str) -> Iterator[None]:
        """Rewrite what is over the rows of a named release; of the statement's own where the name is empty."""
        previous = self.schema, self.release
        star = self.schema.named.get(release, self.schema)
        self.schema, self.release = replace(star, named=self.schema.named), release
        try:
            yield
        finally:
            self.schema, self.release = previous

    def number(self) -> int:
        """A number that no other name of the statement has."""
        self.hidden += 1
        return self.hidden

    def fresh(self) -> str:
        """A hidden column's name that no user wrote."""
        return f"dp_hidden_{self.number()}"


class Scope(NamedTuple):
    """CTEs in sight by lower-case name: those over rows of people, to be unwrapped, and those that are answers."""

    rows: dict[str, Node]
    answers: dict[str, RewrittenQuery]

    def holds(self, name: str) -> bool:
        """True if there is one of that name."""
        return name.lower() in self.rows or name.lower() in self.answers


def with_sources(definitions: Sequence[str], text: str) -> str:
    """A statement with a WITH clause."""
    return f"WITH {', '.join(definitions)} {text}" if definitions else text


Kind = Literal["whole", "number", "day"]
KindOf = Callable[[exp.Column], Kind | None]

WHOLE_CALLS = (
    exp.Length, exp.StrPosition, exp.Ascii, exp.Year, exp.Month, exp.Day, exp.Quarter, exp.Week, exp.WeekOfYear,
    exp.DayOfWeek, exp.DayOfWeekIso, exp.DayOfMonth, exp.DayOfYear, exp.Hour, exp.Minute, exp.Second, exp.DateDiff,
    exp.TsOrDsDiff, exp.IntDiv, exp.Sign,
)  # fmt: skip
NUMBER_CALLS = (exp.Sqrt, exp.Exp, exp.Ln, exp.Log, exp.Floor, exp.Ceil, exp.Round, exp.Trunc)
ALIKE = (exp.Coalesce, exp.Greatest, exp.Least)
"""Calls whose value is one of their arguments."""
MOST_DIGITS = 2
"""Casts to decimals of at least so many digits after the point are taken for exact: amounts of money have no more."""
DAYS = (exp.TsOrDsToDate, exp.DateStrToDate, exp.Date)


def kind_of_type(name: str) -> Kind | None:
    """The kind of a DuckDB or catalog type.

    >>> kind_of_type("BIGINT"), kind_of_type("DECIMAL(18,0)"), kind_of_type("decimal"), kind_of_type("VARCHAR")
    ('whole', 'number', 'number', None)
    """
    word = name.upper().partition("(")[0]
    if word in ("INT", "INTEGER", "BIGINT", "SMALLINT", "TINYINT", "HUGEINT", "UBIGINT", "UINTEGER"):
        return "whole"
    if word in ("DECIMAL", "DOUBLE", "FLOAT", "REAL", "NUMERIC"):
        return "number"
    return "day" if word == "DATE" else None


def kind(node: Node, column: KindOf) -> Kind | None:
    """The kind of an expression's values; None where nothing says.

    Args:
        node: an expression.
        column: the kind of a column.
    """
    if isinstance(node, exp.Column):
        return column(node)
    if isinstance(node, exp.Literal):
        return None if node.is_string else "whole" if str(node.this).isdecimal() else "number"
    if isinstance(node, (exp.Paren, exp.Neg, exp.Abs, exp.Nullif, exp.Min, exp.Max)):
        return kind(node.this, column)
    if isinstance(node, exp.Cast):
        return kind_of_type(node.to.sql("duckdb"))
    if isinstance(node, exp.Extract):
        return "number" if node.meta.get("fractional") else "whole"
    if isinstance(node, WHOLE_CALLS):
        return "whole"
    if isinstance(node, NUMBER_CALLS):
        return "number"
    if isinstance(node, DAYS):
        return "day"
    if isinstance(node, ALIKE):
        return _common([node.this, *node.expressions], column)
    if isinstance(node, exp.Case):
        return _common(
            [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default")], column
        )
    if isinstance(node, exp.Div):
        return (
            "number" if {kind(node.left, column), kind(node.right, column)} <= {"whole", "number"} else None
        )
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Mod)):
        return _chain(node, column)
    return None


def _chain(node: exp.Binary, column: KindOf) -> Kind | None:
    """The kind of a chain of operations, from its first operand on: chains are as long as a statement."""
    links: list[exp.Binary] = []
    first: Node = node
    while isinstance(first, (exp.Add, exp.Sub, exp.Mul, exp.Mod)):
        links.append(first)
        first = first.left
    left_kind = kind(first, column)
    for link in reversed(links):
        right_kind = kind(link.right, column)
        if left_kind == right_kind == "day":
            left_kind = "whole" if isinstance(link, exp.Sub) else None
        else:
            left_kind = _shared({left_kind, right_kind}) if "day" not in (left_kind, right_kind) else None
    return left_kind


def _common(nodes: list[Node | None], column: KindOf) -> Kind | None:
    """The kind that values of several expressions share."""
    return _shared(
        {kind(node, column) for node in nodes if node is not None and not isinstance(node, exp.Null)}
    )


def _shared(value_kinds: set[Kind | None]) -> Kind | None:
    """The kind of all: whole numbers are numbers too."""
    if len(value_kinds) == 2 and value_kinds.issuperset(("whole", "number")):
        return "number"
    return next(iter(value_kinds)) if len(value_kinds) == 1 else None


def typed(node: Node, column: KindOf) -> Node:
    """An expression whose quotients of whole numbers and integer casts are those of its dialect.

    Args:
        node: changed in place.
        column: the kind of a column.

    Returns:
        The expression.
    """

    def change(descendant: Node) -> Node:
        if isinstance(descendant.parent, exp.Query) and descendant is not node:
            return descendant
        if isinstance(descendant, exp.Cast):
            # the sum of a cast that may change a number is not the number's
            integer = descendant.to.this in exp.DataType.INTEGER_TYPES
            if kind(descendant.this, column) != "number" or not (
                integer or descendant.to.this == exp.DataType.Type.DECIMAL
            ):
                return descendant
            descendant.meta["rounds"] = integer or _digits(descendant.to) < MOST_DIGITS
            if descendant.meta.pop("truncates", False) and integer:
                descendant.set("this", exp.Trunc(this=descendant.this.copy()))
            return descendant
        time = descendant.this if isinstance(descendant, exp.AtTimeZone) else None
        # a column of days, which `dialects` has cast as it would a time
        if isinstance(time, exp.Cast) and not time.meta.get("zoned") and kind(time.this, column) == "day":
            raise refusal(
                NotSupportedError, "AT TIME ZONE of a day, which systems take for midnight in different zones",
                at=descendant, hint="cast it first: day::timestamptz AT TIME ZONE 'Europe/Riga'",
            )  # fmt: skip
        return _division(descendant, column) if isinstance(descendant, exp.Div) else descendant

    return bottom_up(node, change)


def _division(node: exp.Div, column: KindOf) -> Node:
    if not node.args.get("typed") or {kind(node.left, column), kind(node.right, column)} != {"whole"}:
        return node
    return exp.IntDiv(this=node.left.copy(), expression=node.right.copy())


def _digits(target: exp.DataType) -> int:
    """Digits after the point of a decimal type, as DuckDB reads it."""
    parameters = target.expressions
    return int(parameters[1].name) if len(parameters) > 1 else 0 if parameters else 3


GUARD = "LIST_FILTER(LIST_PACK(dp_x), LAMBDA dp_v : NOT ISFINITE(TRY_CAST(dp_v AS DOUBLE)) IS FALSE)[1]"
CHAIN = (exp.Add, exp.Sub, exp.Mul)
"""What is not finite once an operand is not; a quotient is so for its numerator."""
DEEP = 8
"""So many operations of a chain are guarded, the outermost ones, which see to the rest. A guard takes 45 of the 1,000
frames that Python's parser may nest when the statement is read again (`sql.carry`)."""

OPERATIONS = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Pow, exp.Sqrt, exp.Exp, exp.Ln,
    exp.Log, exp.Cbrt, exp.Sin, exp.Cos, exp.Tan, exp.Asin, exp.Acos, exp.Atan, exp.Atan2,
    exp.Degrees, exp.Radians, exp.Sum, exp.Avg, exp.Stddev, exp.StddevPop, exp.StddevSamp,
    exp.Variance, exp.VariancePop, exp.Corr, exp.CovarPop, exp.CovarSamp, exp.Median, exp.Quantile,
    exp.PercentileCont, exp.PercentileDisc, exp.ApproxQuantile,
)  # fmt: skip
NAMED = ("div", "mod", "cbrt", "log2", "log10", "ln", "median", "quantile", "quantile_cont", "quantile_disc")
FLOATS = (exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT)
CALLS = (exp.Filter, exp.Window, exp.WithinGroup)
"""What belongs to an aggregate's call, and is guarded with it."""


def finite(node: Node) -> Node:
    """An expression or a query with NULL in place of every NaN and infinity.

    Args:
        node: changed in place.

    Returns:
        The node, or its guard.

    >>> finite(sqlglot.parse_one("1 / b", read="duckdb")).sql("duckdb")
    'LIST_FILTER(LIST_PACK(1 / b), LAMBDA dp_v : NOT ISFINITE(TRY_CAST(dp_v AS DOUBLE)) IS FALSE)[1]'
    """
    root = node
    for descendant in reversed(list(node.walk(bfs=False))):
        if not _computes(descendant):
            continue
        outermost = descendant
        while isinstance(outermost.parent, CALLS) and outermost.arg_key == "this":
            outermost = outermost.parent
        if _seen_to(outermost):
            continue
        guard, place = _guard()
        if outermost is root:
            root = guard
        else:
            outermost.replace(guard)
        place.replace(outermost)
    return root


def unguarded(node: Node) -> Node:
    """Expression under a finiteness guard, or the node itself."""
    inner = node.this if isinstance(node, exp.Bracket) else None
    packed = inner.this if isinstance(inner, exp.ArrayFilter) else None
    if isinstance(packed, exp.Anonymous) and packed.name == "LIST_PACK":
        return packed.expressions[0]  # type: ignore[no-any-return]
    return node


def _computes(node: Node) -> bool:
    """True if an operation may give a number that is not finite."""
    if isinstance(node, exp.Cast):
        return node.to.this in FLOATS
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() in NAMED
    if isinstance(node, (exp.Add, exp.Sub)) and isinstance(node.expression, exp.Interval):
        return False  # a date
    return isinstance(node, OPERATIONS)


def _seen_to(node: Node) -> bool:
    """True if enough guards further up see to this operation."""
    depth, above = 0, node.parent
    while isinstance(above, (*CHAIN, exp.Paren)) or (isinstance(above, exp.Div) and node.arg_key == "this"):
        depth += not isinstance(above, exp.Paren)
        node, above = above, above.parent
    return depth >= DEEP


def _guard() -> tuple[Node, Node]:
    """A guard and the place in it for what it guards."""
    guard = _parsed().copy()
    return guard, next(column for column in guard.find_all(exp.Column) if column.name == "dp_x")


@lru_cache(maxsize=1)
def _parsed() -> Node:
    guard = sqlglot.parse_one(GUARD, read="duckdb")
    # As DuckDB counts: sqlglot would infer types below each guard, and simplify 0 + 1, whenever it writes one.
    guard.set("expressions", [exp.Literal.number(1)])
    guard.set("offset", 1)
    return guard
