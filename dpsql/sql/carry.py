"""The outer statement once more, with the cells of every noisy column carried beside it as hidden columns.

    SELECT SUM(n) AS total FROM (SELECT v0 AS n FROM dp_block_0) AS t

becomes a statement that also yields the list of all cells that `total` is the sum of, each with its weight. Each SELECT
hands the lists of its columns to the one around it. What `follow` says of an expression is said here of queries: which
rows are public, which were picked by a noisy value, which are put together.

Functions of an error inside the statement, such as DP_STDERR(total), are answered before it runs: a probe yields the
cells of its argument for all rows, and the call becomes a look-up of the row's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sqlglot import exp

from dpsql.intervals.errorfunctions import ErrorFunction
from dpsql.planner.block import Block, CatalogValue, ErrorOf, Value
from dpsql.row_expressions import identifier as quoted
from dpsql.row_expressions.expression import Node, parse_statements
from dpsql.sql import parse
from dpsql.sql.aggregates import error_call
from dpsql.sql.dependence import (
    EMPTY,
    NOWHERE,
    Dependence,
    Extreme,
    MovingOperand,
    NoisyLineage,
    Unknown,
    divided,
    final_parts,
    noisy_lineages,
)
from dpsql.sql.follow import FromRelation, NameScope, Output, chooses, extreme, follow, moves, verbatim
from dpsql.sql.statement import ADDED, AT, Statement

BLOCKS, VALUES = 2**12, 2**12
"""More blocks and values than a statement's tokens can ask for."""
WHOLE, ABOVE, BELOW = 0, 1, 2
"""Parts of a value: itself, and both sides of a ratio."""
PARTS = 3
PICKED = "rows were picked by a noisy value"
ERROR = Unknown("the error of a value has no error of its own")


def code(block: int, value: int, part: int) -> int:
    """The number of one part of a value of a block; a cell is its row times `STEP` plus this."""
    return (block * VALUES + value) * PARTS + part


STEP = BLOCKS * VALUES * PARTS


def place_of(number: int) -> tuple[int, int, int]:
    """The block, the value and the side of it that `code` numbered.

    >>> place_of(code(3, 5, ABOVE))
    (3, 5, 1)
    """
    value_number, part = divmod(number, PARTS)
    return *divmod(value_number, VALUES), part


class LineageColumns(NamedTuple):
    """A column with the places of its hidden parts.

    Args:
        value: place of the column itself.
        follows: what it is; its texts are of no use any more.
        at: places of the texts of `NoisyLineage.parts`; lists of cells take two places, numbers first.
        extreme: of MIN and MAX, with the list of their values at `at[0]`, each laid out as `member`.
    """

    value: int
    follows: NoisyLineage
    at: tuple[int, ...]
    extreme: Extreme | None = None

    @property
    def member(self) -> LineageColumns:
        """One value of an extreme, in a row of its own."""
        return emitted(0, self.follows, 1)


class Probe(NamedTuple):
    """A query that yields the cells of an error function's argument.

    Args:
        sql: DuckDB text; its columns are a key, then as `column` says.
        common: parts of its WITH clause.
        column: the argument.
        error, level: what is asked of it.
    """

    sql: str
    common: tuple[str, ...]
    column: LineageColumns
    error: ErrorFunction
    level: float


@dataclass(frozen=True)
class Carried:
    """A statement that carries cells.

    Args:
        probes: queries to run first, in order; the i-th is looked up in `dp_error_<i>`.
        common, outer: DuckDB text, as of `Statement`.
        columns: for each named column where its cells are; None where it has no noise, or why there are none.
        width: how many columns stand before the hidden ones.
        wide: whether a row may be made of all groups: windows, joins and scalar subqueries.
    """

    probes: tuple[Probe, ...]
    common: tuple[str, ...]
    outer: str
    columns: tuple[LineageColumns | Unknown | None, ...]
    width: int
    wide: bool


def carry(statement: Statement) -> Carried:
    """The statement that carries the cells of its columns.

    Args:
        statement: a rewritten statement.

    Returns:
        Its text, and where the cells are.

    Raises:
        RecursionError: it nests too deep.
        SqlSyntaxError: it can be read in too many ways.
    """
    (tree,) = parse_statements(statement.text, "duckdb")
    scalar = any(not isinstance(node.parent, (exp.From, exp.Join)) for node in tree.find_all(exp.Subquery))
    wide = scalar or tree.find(exp.Window, exp.Join) is not None
    carrier = Carrier(statement.blocks)
    visible = len(statement.names)
    output = carrier.query(tree, {}, visible)
    common = tuple(cte.sql(dialect="duckdb") for cte in parse.ctes(tree))
    tree.set("with_", None)
    width, columns = len(output.names), list[LineageColumns | Unknown | None]()
    at = width
    for place, follows in enumerate(output.follows[:visible]):
        if isinstance(follows, NoisyLineage):
            columns.append(emitted(place, follows, at))
            at = columns[-1].at[-1] + 1  # type: ignore[union-attr]
        elif isinstance(follows, Extreme):
            columns.append(LineageColumns(place, follows.member, (at,), follows))
            at += 1
        else:
            columns.append(follows)
    return Carried(
        tuple(carrier.probes), common, tree.sql(dialect="duckdb"), tuple(columns), width, wide,
    )  # fmt: skip


def emitted(value: int, follows: NoisyLineage, start: int) -> LineageColumns:
    """A column whose parts stand from some place on."""
    return LineageColumns(value, follows, tuple(range(start, start + len(final_parts(follows)))))


class Pick(NamedTuple):
    """A clause that keeps rows by a noisy value: `joins`, `where`, `having`, `qualify`, or `order` with its LIMIT; and
    `expressions` where a CASE shows a value or NULL by one."""

    select: Node
    clause: str
    sight: NameScope


class Carrier:
    """Walks the queries of one statement and lets each carry its cells."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks
        self.probes: list[Probe] = []
        self.picks: list[Pick] = []
        self.common: dict[str, Node] = {}
        self.hidden = 0

    def query(self, node: Node, scope: dict[str, Output], last: int = 0) -> Output:
        """Let a query carry the cells of its columns.

        Args:
            node: changed in place: its projections gain hidden columns.
            scope: CTEs in sight.
            last: how many columns of the whole statement are named; 0 for a query inside of it.
        """
        scope = self._common(node, scope)
        if isinstance(node, exp.Subquery):
            return self.query(node.this, scope, last)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, scope, last)
        return self._select(node, scope, last)

    def _common(self, node: Node, scope: dict[str, Output]) -> dict[str, Output]:
        """The CTEs in sight of a query, its own included."""
        for common in parse.ctes(node):
            scope = {**scope, common.alias.lower(): self.query(common.this, scope)}
            self.common[common.alias] = common.this
        return scope

    def _set_operation(self, node: exp.SetOperation, scope: dict[str, Output], last: int) -> Output:
        """UNION ALL hands the cells of its branches on; what compares rows does not."""
        branches, why = self._branches(node, scope)
        names = branches[0][1].names
        columns = list(zip(*(output.follows for _, output in branches), strict=True))
        picked = next((output.picked for _, output in branches if output.picked), "")
        if why and any(map(any, columns)):
            return Output(names, [Unknown(why) if any(column) else None for column in columns], picked or why)
        dependences = [_either(column) for column in columns]
        for select, output in branches:
            aligned = [
                _as(dependence, wanted)
                for dependence, wanted in zip(output.follows, dependences, strict=True)
            ]
            self._project(select, aligned, last)
        limited, order = node.args.get("limit") or node.args.get("offset"), node.args.get("order")
        noisy = {
            name.lower()
            for name, dependence in zip(names, dependences, strict=True)
            if dependence is not None
        }
        if limited and order and any(c.name.lower() in noisy for c in order.find_all(exp.Column)):
            picked = picked or PICKED
            self.picks.append(Pick(node, "order", NameScope(self.query, [], scope)))
        return Output(names, self._hidden(dependences, last), picked)

    def _branches(self, node: Node, scope: dict[str, Output]) -> tuple[list[tuple[Node, Output]], str]:
        """The SELECTs of a set operation with what they yield before anything is projected, and why their rows cannot
        be told apart; empty for UNION ALL."""
        node = node.unnest()
        scope = self._common(node, scope)
        if not isinstance(node, exp.SetOperation):
            return [(node, self._select(node, scope, -1))], ""
        (left, a), (right, b) = (self._branches(operand, scope) for operand in (node.left, node.right))
        all_rows = isinstance(node, exp.Union) and not node.args.get("distinct")
        return [*left, *right], a or b or (
            "" if all_rows else f"{node.key.upper()} compares rows with noisy values"
        )

    def _select(self, select: Node, scope: dict[str, Output], last: int) -> Output:
        """A SELECT; with `last` below 0 nothing is projected, for the texts are those of its own columns."""
        sources = [self._source(relation, scope) for relation in parse.relations(select)]
        sight = NameScope(self.query, sources, scope, next((s.picked for s in sources if s.picked), ""))
        self._errors(select, "where", sight)
        where = select.args.get("where")
        joins = select.args.get("joins") or []
        tests = [join.args["on"] for join in joins if join.args.get("on") is not None]
        tests += [exp.column(name.name) for join in joins for name in join.args.get("using") or []]
        for clause, conditions in (("joins", tests), ("where", [where] if where is not None else [])):
            if any(is_noisy(test, sight) for test in conditions):
                sight.rows = sight.rows or PICKED
                self.picks.append(Pick(select, clause, sight))
        sight.own = {
            projection.alias_or_name.lower(): parse.unaliased(projection) for projection in select.expressions
        }
        self._errors(select, "having", sight)
        having, sight.groups = select.args.get("having"), sight.rows
        if having is not None and is_noisy(having, sight):
            sight.groups = sight.rows or PICKED
            self.picks.append(Pick(select, "having", sight))
        for clause in ("expressions", "qualify", "order"):
            self._errors(select, clause, sight)
        follows = self._columns(select, sight, last > 0)
        names = [projection.alias_or_name for projection in select.expressions]
        # QUALIFY, or LIMIT after ORDER BY, keeps rows by a noisy value
        qualify, order = select.args.get("qualify"), select.args.get("order")
        limited = select.args.get("limit") or select.args.get("offset") or select.args.get("fetch")
        keys = [] if order is None else [parse.ordinal(term.this, select) for term in order.expressions]
        ordered = limited is not None and any(is_noisy(key, sight) for key in keys)
        chosen = ["qualify"] * (qualify is not None and is_noisy(qualify, sight)) + ["order"] * ordered
        self.picks += [Pick(select, clause, sight) for clause in chosen]
        picked = sight.groups or (PICKED if chosen else "")
        if last < 0:
            return Output(names, follows, picked)
        self._project(select, follows, last)
        return Output(names, self._hidden(follows, last), picked)

    def _columns(self, select: Node, sight: NameScope, shown: bool) -> list[Dependence]:
        """Lineage of each item of a select list; MIN and MAX have ends where they are shown as they are."""
        why = "GROUP BY compares noisy values" if grouped_by_noise(select, sight) else ""
        items = [parse.unaliased(projection) for projection in select.expressions]
        dependences = [(extreme(item, sight) if shown else None) or follow(item, sight) for item in items]
        for projection, follows in zip(select.expressions, dependences, strict=True):
            branching = projection.find_all(exp.Case) if isinstance(follows, NoisyLineage) else ()
            if any(chooses(case, sight) for case in branching):
                self.picks.append(Pick(select, "expressions", sight))
        if select.args.get("distinct") is not None and any(dependences):
            why = "DISTINCT compares rows with noisy values"
        return [Unknown(why) if why and dependence is not None else dependence for dependence in dependences]

    def _source(self, node: Node, scope: dict[str, Output]) -> FromRelation:
        alias, number = node.alias_or_name, parse.block_number(node)
        if number is not None:  # a block: its keys are public, its values are cells
            block = self.blocks[number]
            of_block: dict[str, Dependence] = {AT: None, ADDED: None}
            of_block |= {f"k{j}": None for j in range(len(block.groups))}
            of_block |= {
                f"v{j}": value_cells(value, number, j, alias) for j, value in enumerate(block.values)
            }
            return FromRelation(alias, of_block, "")
        if isinstance(node, exp.Table) and node.name.lower() in scope:
            output = scope[node.name.lower()]
        elif isinstance(node, exp.Subquery):
            output = self.query(node.this, scope)
        else:
            return FromRelation(alias, {}, "")
        columns = node.alias_column_names
        names = [*columns, *output.names[len(columns) :]]
        pairs = zip(names, output.follows, strict=True)
        return FromRelation(
            alias, {name.lower(): _from(column, alias) for name, column in pairs}, output.picked
        )

    def _hidden(self, follows: list[Dependence], last: int) -> list[Dependence]:
        """Columns under the names that `_project` gave them."""
        return follows if last else [self._named(dependence, i) for i, dependence in enumerate(follows)]

    def _named(self, follows: Dependence, column: int) -> Dependence:
        if not isinstance(follows, NoisyLineage):
            return follows
        names = iter(_hidden_names(column, len(follows.parts)))
        return follows.mapped(lambda _: next(names))

    def _project(self, select: Node, follows: Sequence[Dependence], last: int) -> None:
        """Add the hidden columns of a SELECT, in the order of the columns they belong to."""
        for column, dependence in enumerate(follows[:last] if last else follows):
            texts = [dependence.listed] if isinstance(dependence, Extreme) else []
            if isinstance(dependence, NoisyLineage):
                texts = final_parts(dependence) if last else list(dependence.parts)
            if texts:
                for name, text in zip(_hidden_names(column, len(texts)), texts, strict=True):
                    select.append("expressions", exp.alias_(verbatim(text), name, quoted=True))

    def _errors(self, select: Node, clause: str, sight: NameScope) -> None:
        """Replace functions of an error in a clause by look-ups, once a probe has been written for each."""
        roots = select.args.get(clause)
        for root in roots if isinstance(roots, list) else [roots] if roots is not None else []:
            for call in [node for node in root.find_all(exp.Anonymous) if parse.is_error_call(node)]:
                if call.find_ancestor(exp.Select) is select:
                    call.replace(self._look_up(call, select, clause, sight))

    def _look_up(self, call: Node, select: Node, clause: str, sight: NameScope) -> Node:
        error, argument, level = error_call(call)
        argument = sight.spelled(argument)
        follows = follow(argument, sight)
        if not isinstance(follows, NoisyLineage):
            return exp.cast(exp.null(), "DOUBLE")
        value = f"CAST({argument.sql(dialect='duckdb')} AS DOUBLE)"
        key = f"HASH({', '.join([value, *follows.parts])})"
        texts = [f"{key} AS k", value, *final_parts(follows)]
        # keys and cells before the clause that asks and those after it
        probe = select.copy()
        if select.args.get("group") is not None:
            probe.set(
                "group", exp.Group(expressions=[sight.spelled(key) for key in parse.group_keys(select)])
            )
        for later in [*BEFORE.get(clause, ()), "qualify", "order", "limit", "offset", "distinct", "with_"]:
            probe.set(later, None)
        probe.set("expressions", [verbatim(text) for text in texts])
        common = tuple(
            f"{quoted(alias)} AS ({query.sql(dialect='duckdb')})" for alias, query in self.common.items()
        )
        self.probes.append(Probe(probe.sql(dialect="duckdb"), common, emitted(1, follows, 2), error, level))
        number = len(self.probes) - 1
        return verbatim(f"(SELECT MAP(LIST(k), LIST(e)) FROM dp_error_{number})[{key}]")


BEFORE = {"where": ("where", "group", "having"), "having": ("having",)}
"""A clause with what comes after it: a probe for it runs without them."""


def value_cells(value: Value, block: int, number: int, alias: str) -> Dependence:
    """Derivative of a block's value: by its own cell, or for a ratio by one cell a side; NULLs made by noise
    have no weight."""
    if isinstance(value, ErrorOf):
        return ERROR
    if isinstance(value, CatalogValue):
        return Unknown("a quantile's error is not a standard error") if value.function == "quantile" else None
    table = f"{quoted(alias)}."

    def cell(part: int) -> str:
        weight = f"CASE WHEN {table}v{number} IS NULL THEN CAST('nan' AS DOUBLE) ELSE CAST(1 AS DOUBLE) END"
        return f"[{{'c': {table}{AT} * {STEP} + {code(block, number, part)}, 'w': {weight}}}]"

    if len(value.sides) == 1:
        return NoisyLineage(cell(WHOLE), plain=True)
    above, below = (
        MovingOperand(f"{table}v{number}{letter}", NoisyLineage(cell(part))) for letter, part in RATIO.items()
    )
    return divided(above, below)


RATIO = {"a": ABOVE, "b": BELOW}
"""Both sides of a ratio in a block's relation are columns of their own, by the letter after the value's name."""


def _hidden_names(column: int, count: int) -> list[str]:
    return [f"dp_cells_{column}_{number}" for number in range(count)]


def _from(follows: Dependence, alias: str) -> Dependence:
    """A column's hidden names as they are called from outside."""
    if not isinstance(follows, NoisyLineage):
        return follows
    table = f"{quoted(alias)}." if alias else ""
    return follows.mapped(lambda hidden: f"{table}{quoted(hidden)}")


def _either(column: Sequence[Dependence]) -> Dependence:
    """Column of a UNION ALL: a quotient or function where all branches agree, else by cells."""
    noisy = noisy_lineages(column)
    if not isinstance(noisy, list):
        return noisy
    if len(noisy) == len(column) and all(dependence.shape == noisy[0].shape for dependence in noisy):
        return replace(noisy[0], plain=all(dependence.plain for dependence in noisy))
    linear = all(dependence.linear for dependence in noisy)
    return NoisyLineage(EMPTY, None, "" if linear else NOWHERE, linear=linear)


def _as(dependence: Dependence, wanted: Dependence) -> Dependence:
    """A branch's column in the form that the whole column has."""
    if not isinstance(wanted, NoisyLineage):
        return wanted
    value = dependence if isinstance(dependence, NoisyLineage) else NoisyLineage(EMPTY)
    if wanted.shape == value.shape or wanted.linear:
        return value
    return NoisyLineage(value.cells, None, value.denominators or NOWHERE, linear=False)


def is_noisy(node: Node, sight: NameScope) -> bool:
    """True if anything that a clause compares is noisy."""
    if isinstance(node, (exp.Where, exp.Having, exp.Qualify)):
        return is_noisy(node.this, sight)
    return moves(node, sight)


def grouped_by_noise(select: Node, sight: NameScope) -> bool:
    """True if noisy values decide which rows are in a group: then no cells of one row stand for it."""
    return any(is_noisy(key, sight) for key in parse.group_keys(select))
