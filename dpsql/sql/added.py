"""Groups that no raw table has, left out wherever an outer statement counts groups.

A release has leaves that its catalog adds: values outside of the domain, foreign keys that name no row, and NULL in a
column that is not `nullable`. Sums keep them, so that parts add up. Whatever depends on how many groups there are
leaves them out:

| in the statement | here |
|---|---|
| `SUM(n)`, also as a window | all rows |
| any other aggregate, and `SUM` of constants | `FILTER (WHERE (dp_added & keys) = 0)` |
| ranks | among the rows that stay; NULL for the others |
| `LAG` and other windows that read a row by its place | the rows that stay are a partition of their own |
| `LIMIT`, `DISTINCT`, `UNION` and whatever else compares rows | the other rows are dropped |
| a join of two answers | so are those whose compared keys have such leaves alone |

`dp_added` is a column of a block's relation with a bit for each key, set where the key's group holds such leaves alone.
Every query hands the column on. A group of an outer GROUP BY has the bits that all of its rows have, and a key that
rows are grouped by is not tested inside of the group: the average month of `(other)` is one of months.

Rows of a list that is joined by the key are those of the list, whatever they name; so are groups that a condition on
rows names (`relation`).

The bit `UNSEEN` marks rows of groups whose own intervals hold 0. Nothing sets it but the second reading of a statement
(`outer.readings`), which leaves them out of what is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from sqlglot import exp

from dpsql.planner.block import Block
from dpsql.row_expressions.expression import Node
from dpsql.sql import parse
from dpsql.sql.statement import ADDED

KEYS = 62
"""Keys that have a bit of their own; more than a statement's tokens can name in all but contrived ones."""
UNSEEN = 1 << KEYS
VALUE, OTHER = "value", "other"
"""A number that depends on how many groups there are; anything made of an error of one."""
RANKS = (exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile)
PLACES = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue)
"""Windows that read another row by its place."""
LAYERS = (exp.Window, exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
COUNTING = (
    exp.AggFunc,
    exp.RowNumber,
    exp.Limit,
    exp.Offset,
    exp.Fetch,
    exp.Distinct,
    exp.Join,
    exp.SetOperation,
    exp.Where,
    exp.Qualify,
    exp.If,
)
"""What depends on how many groups there are, or on which texts their keys are."""


def bit_offsets(blocks: Sequence[Block]) -> list[int]:
    """The bit of the first key of each block."""
    offsets, keys = list[int](), 0
    for block in blocks:
        offsets.append(keys)
        keys += len(block.groups)
    return offsets


def shifted(keys: int, offset: int) -> int:
    """Bits by the places of a block's keys -> bits by those of the statement's keys.

    >>> bin(shifted(0b101, 2))
    '0b10100'
    """
    return reduce(or_, (1 << (offset + j) % KEYS for j in range(keys.bit_length()) if keys >> j & 1), 0)


@dataclass
class Rows:
    """Rows of a query or of a relation in FROM.

    Args:
        flagged: whether they have the column `dp_added`.
        bits: which of its bits may be set, but for `UNSEEN`.
        keys: the bits of the keys that a column shows as they are, by the column's name in lower case.
        counting: `VALUE` for a column that depends on how many groups there are, or the function of its error, by name.
        names: columns in their order.
        alias: of the relation.
    """

    flagged: bool = False
    bits: int = 0
    keys: dict[str, int] = field(default_factory=dict)
    counting: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    alias: str = ""

    @property
    def flag(self) -> exp.Column:
        return parse.quoted_column(ADDED, self.alias)


Scope = dict[str, Rows]


def leave_out_added(
    tree: Node, blocks: Sequence[Block]
) -> tuple[Node | None, tuple[str, ...], tuple[tuple[int, str], ...]]:
    """Leave out groups that the catalog adds where groups are counted.

    Args:
        tree: a rewritten statement, over the relations of its blocks.
        blocks: its blocks.

    Returns:
        The statement, a copy, and `Rows.counting` of each column of its select list; None where nothing counts groups.
        Bits of keys with the texts that conditions on groups compare them with.
    """
    if not any(block.groups for block in blocks) or tree.find(*COUNTING) is None:
        return None, (), ()
    copy, walk = tree.copy(), _Walk(blocks)
    rows = walk.query(copy, {}, _Wanted(hands_on=False))
    counting = tuple(rows.counting.get(name, "") for name in rows.names)
    return (copy, counting, tuple(walk.texts)) if walk.changed else (None, (), tuple(walk.texts))


@dataclass(frozen=True)
class _Wanted:
    """Treatment of the rows of a query that hold added leaves alone.

    Args:
        hands_on: whether the query gets the column `dp_added`, where its rows may have it.
        drops: whether such rows are dropped.
    """

    hands_on: bool = True
    drops: bool = False


class _Walk:
    """Walks the queries of one statement."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks, self.offsets = blocks, bit_offsets(blocks)
        self.changed, self.texts = False, dict[tuple[int, str], None]()

    def query(self, node: Node, scope: Scope, wanted: _Wanted) -> Rows:
        for common in parse.ctes(node):
            scope = {**scope, common.alias.lower(): self.query(common.this, scope, _Wanted())}
        if isinstance(node, exp.Subquery):
            return self.query(node.this, scope, wanted)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, scope, wanted)
        sources = [self._source(relation, scope) for relation in parse.relations(node)]
        flagged = [source for source in sources if source.flagged]
        compared = _compared(node, sources) if len(flagged) > 1 else 0
        if compared:
            # of a LEFT JOIN's right side they are dropped before rows are joined
            self.changed = True
            joins = [None, *(node.args.get("joins") or [])]
            for join, source in zip(joins, sources, strict=True):
                if not source.bits & compared:
                    continue
                test = _kept(_either([source.flag], nullable=True), source.bits & compared)
                if join is not None and join.args.get("side") == "LEFT" and join.args.get("on") is not None:
                    join.set("on", exp.and_(join.args["on"], test, copy=False))
                else:
                    parse.add_test(node, exp.Where, test)
        flag = _either([source.flag for source in flagged], nullable=len(sources) > 1)
        bits = reduce(or_, (source.bits for source in flagged), 0) & ~compared
        sides = {join.args.get("side") or "" for join in node.args.get("joins") or []}
        if 0 < len(flagged) < len(sources) and sides <= ({""} if sources[0].flagged else {"", "LEFT"}):
            bits &= ~_compared(node, sources)  # rows of a list: a LIMIT counts them whatever they name
        return _Select(self, node, scope, sources, flag, bits).rows(wanted)

    def _set_operation(self, node: exp.SetOperation, scope: Scope, wanted: _Wanted) -> Rows:
        """UNION ALL hands rows on; what compares or limits them drops some."""
        compares = not isinstance(node, exp.Union) or bool(node.args.get("distinct"))
        if compares or wanted.drops or _is_limited(node):
            wanted = _Wanted(hands_on=wanted.hands_on and not compares, drops=True)
        branches = [self.query(branch, scope, wanted) for branch in (node.left, node.right)]
        flagged = wanted.hands_on and any(branch.flagged for branch in branches)
        if flagged:
            for side, branch in zip((node.left, node.right), branches, strict=True):
                if not branch.flagged:
                    _show_zero(side)
        first, second = branches
        pairs = list(zip(first.names, second.names, strict=False))
        keys = {a.lower(): first.keys.get(a.lower(), 0) | second.keys.get(b.lower(), 0) for a, b in pairs}
        counting = {
            a: _both(first.counting.get(a, ""), second.counting.get(b, ""))
            for a, b in pairs if a in first.counting or b in second.counting
        }  # fmt: skip
        return Rows(flagged, first.bits | second.bits, keys, counting, first.names)

    def _source(self, node: Node, scope: Scope) -> Rows:
        alias, number = node.alias_or_name, parse.block_number(node)
        if number is not None:
            block, offset = self.blocks[number], self.offsets[number]
            bits = {f"k{j}": shifted(1 << j, offset) for j in range(len(block.groups))}
            return Rows(bool(bits), reduce(or_, bits.values(), 0), bits, alias=alias)
        if isinstance(node, exp.Table) and node.name.lower() in scope:
            rows = scope[node.name.lower()]
        elif isinstance(node, exp.Subquery):
            rows = self.query(node.this, scope, _Wanted())
        else:
            return Rows(alias=alias)
        renamed = node.alias_column_names
        names = [*renamed, *rows.names[len(renamed) :]]
        pairs = list(zip(names, rows.names, strict=False))
        keys = {name.lower(): rows.keys.get(inner.lower(), 0) for name, inner in pairs}
        counting = {name: rows.counting[inner] for name, inner in pairs if inner in rows.counting}
        return Rows(rows.flagged, rows.bits, keys, counting, names, alias)


@dataclass
class _Select:
    """One SELECT, whose calls are told which rows to count."""

    walk: _Walk
    select: Node
    scope: Scope
    sources: Sequence[Rows]
    flag: Node | None
    bits: int

    def rows(self, wanted: _Wanted) -> Rows:
        """Rewrite the SELECT and say what its rows are."""
        select = self.select
        by_groups, aggregates = select.args.get("group") is not None, self._aggregates()
        distinct = select.args.get("distinct") is not None
        own = {p.alias_or_name.lower(): parse.unaliased(p) for p in select.expressions}
        keys = [self._key_bits(key, own) for key in parse.group_keys(select)]
        again = (
            str(select.parent.alias).endswith("_again") if isinstance(select.parent, exp.Subquery) else False
        )
        group_bits = reduce(or_, keys, 0)
        counting = dict[str, str]()
        for clause in ("expressions", "where", "having", "qualify", "order", "joins"):
            for root in _roots(select, clause):
                self._texts(root, picks=clause in ("where", "having", "qualify"))
                kind = self._calls(root, group_bits, again)
                if clause == "expressions" and kind:
                    counting[root.alias_or_name] = kind
        names = [projection.alias_or_name for projection in select.expressions]
        shown = {p.alias_or_name.lower(): self._key_bits(parse.unaliased(p), {}) for p in select.expressions}
        flag, bits = self.flag, self.bits
        if flag is not None and aggregates and not by_groups:
            flag, bits = None, 0
        elif flag is not None and by_groups:
            flag = exp.func("BIT_AND", flag)
        if flag is not None and (wanted.drops or distinct or _is_limited(select)) and bits:
            self._drop(flag, bits, by_groups)
            bits = 0
        hands_on = wanted.hands_on and flag is not None and not distinct
        if hands_on and flag is not None:
            select.append("expressions", exp.alias_(flag.copy(), ADDED, quoted=True))
        return Rows(hands_on, bits, shown, counting, names)

    def _aggregates(self) -> bool:
        """True if rows are aggregated at all, by groups or as one."""
        clauses = [*self.select.expressions, self.select.args.get("having")]
        calls = (node for clause in clauses if clause is not None for node in _level(clause))
        return any(isinstance(node, exp.AggFunc) and not _is_window(node) for node in calls)

    def _key_bits(self, node: Node, own: dict[str, Node]) -> int:
        """The bits of the key that a column is; 0 for anything else."""
        column = node.unnest()
        if not isinstance(column, exp.Column):
            return 0
        bits = _bits_of(column, self.sources)
        alias = own.get(column.name.lower()) if bits is None and not column.table else None
        return bits or (self._key_bits(alias, {}) if alias is not None else 0)

    def _texts(self, root: Node, *, picks: bool) -> None:
        """Remember the texts that keys are compared with; an empty one where groups are picked by a key otherwise."""
        columns = [node for node in _level(root) if isinstance(node, exp.Column)]
        for column in columns:
            test, bits = column.parent, _bits_of(column, self.sources)
            while isinstance(test, exp.Paren):
                test = test.parent
            if bits and isinstance(test, (exp.EQ, exp.NEQ, exp.In)):
                self.walk.texts |= {
                    (bits, each.this): None for each in test.iter_expressions() if each.is_string
                }
            elif bits and picks and not isinstance(test, exp.Is):
                self.walk.texts[bits, ""] = None

    def _calls(self, root: Node, group_bits: int, untouched: bool) -> str:
        """Tell the calls of an expression which rows to count, and say what it is in `Rows.counting`."""
        kinds = set[str]()
        for node in list(_level(root)):
            if isinstance(node, exp.Query):
                kinds |= set(self.walk.query(node, self.scope, _Wanted(hands_on=False)).counting.values())
            elif isinstance(node, exp.Column):
                kinds.add(self._kind(node))
            elif not untouched and self.flag is not None and _is_counted(node):
                self._count(node, group_bits)
                kinds.add("" if isinstance(node, PLACES) else VALUE)
        kinds.discard("")
        expression = parse.unaliased(root)
        if kinds and parse.is_error_call(expression):
            return str(expression.this).lower()
        if len(kinds) == 1 and isinstance(expression, exp.Column):
            return kinds.pop()
        inside = any(parse.is_error_call(node) for node in _level(root))
        return "" if not kinds else VALUE if kinds == {VALUE} and not inside else OTHER

    def _kind(self, column: exp.Column) -> str:
        name, table = column.name.lower(), column.table.lower()
        for source in self.sources:
            if table in ("", source.alias.lower()):
                for inner, kind in source.counting.items():
                    if inner.lower() == name:
                        return kind
        return ""

    def _count(self, call: Node, group_bits: int) -> None:
        """Let one aggregate or window see the rows that stay."""
        self.walk.changed = True
        assert self.flag is not None
        outermost = call
        while isinstance(outermost.parent, LAYERS) and outermost.arg_key == "this":
            outermost = outermost.parent
        if not isinstance(outermost, exp.Window):
            _filter(outermost, _kept(self.flag, self.bits & ~group_bits | UNSEEN))
            return
        flag = self.flag
        if self.select.args.get("group") is not None:  # windows see groups
            flag = exp.func("BIT_AND", flag)
        parts = outermost.args.get("partition_by") or []
        bits = self.bits & ~reduce(or_, (self._key_bits(part, {}) for part in parts), 0)
        test = _kept(flag, bits if isinstance(call, PLACES) else bits | UNSEEN)
        if outermost.args.get("order") is not None:
            outermost.set("partition_by", [*parts, test.copy()])
        if isinstance(call, RANKS):
            shown = exp.If(this=test)
            outermost.replace(exp.Case(ifs=[shown]))
            shown.set("true", outermost)
        elif not isinstance(call, PLACES):
            _filter(outermost.this, test)

    def _drop(self, flag: Node, bits: int, by_groups: bool) -> None:
        """Drop rows once all windows have seen them."""
        self.walk.changed = True
        clauses = (*self.select.expressions, *filter(None, map(self.select.args.get, ("qualify", "order"))))
        if any(isinstance(node, exp.Window) for clause in clauses for node in _level(clause)):
            # a window of its own: DuckDB takes QUALIFY only where one stands in it or in the select list
            flag = exp.Window(this=exp.Max(this=flag.copy()), partition_by=[flag.copy()])
            parse.add_test(self.select, exp.Qualify, _kept(flag, bits))
        else:
            parse.add_test(self.select, exp.Having if by_groups else exp.Where, _kept(flag, bits))


def _compared(select: Node, sources: Sequence[Rows]) -> int:
    """The bits of the keys that joins compare: in ON, USING, and between columns in WHERE."""
    joins, where = select.args.get("joins") or [], select.args.get("where")
    compared = [join.args["on"] for join in joins if join.args.get("on") is not None]
    compared += where.find_all(exp.EQ) if where is not None else []
    names = {name.name.lower() for join in joins for name in join.args.get("using") or []}
    bits = reduce(or_, (source.keys.get(name, 0) for source in sources for name in names), 0)
    for test in compared:
        columns = list(test.find_all(exp.Column))
        if len(columns) > 1:
            bits = reduce(or_, (_bits_of(column, sources) or 0 for column in columns), bits)
    return bits


def _bits_of(column: exp.Column, sources: Sequence[Rows]) -> int | None:
    """The bits of the key that a column of some relations is; None where none of them has it."""
    name, table = column.name.lower(), column.table.lower()
    keys = (source.keys for source in sources if table in ("", source.alias.lower()))
    return next((bits[name] for bits in keys if name in bits), None)


def _level(root: Node) -> Iterator[Node]:
    """The nodes of an expression; of a query inside of it the query alone."""
    yield root
    if not isinstance(root, exp.Query):
        for child in root.iter_expressions():
            yield from _level(child)


def _roots(select: Node, clause: str) -> list[Node]:
    """The expressions of a clause; of joins their conditions."""
    roots = select.args.get(clause) or []
    listed = roots if isinstance(roots, list) else [roots]
    listed = [join.args.get("on") for join in listed] if clause == "joins" else listed
    return [root for root in listed if root is not None]


def _is_window(node: Node) -> bool:
    while isinstance(node.parent, LAYERS) and node.arg_key == "this":
        node = node.parent
    return isinstance(node, exp.Window)


def _is_counted(node: Node) -> bool:
    """True if a call depends on how many rows it sees: all but sums of values."""
    if isinstance(node, exp.Sum):
        return not _sums_values(node)
    return isinstance(node, (exp.AggFunc, exp.RowNumber)) and not isinstance(node, exp.Grouping)


def _sums_values(call: exp.Sum) -> bool:
    """True if a sum is of values; else of constants, which is a number of rows."""

    def reads(node: Node) -> bool:
        if isinstance(node, (exp.Column, exp.Query)):
            return True
        tests = {id(node.this)} if isinstance(node, exp.If) else set()
        return any(reads(child) for child in node.iter_expressions() if id(child) not in tests)

    return reads(call)


def _both(first: str, second: str) -> str:
    """Kind of a column of UNION ALL in `Rows.counting`."""
    return first if first == second else OTHER if {first, second} - {"", VALUE} else VALUE


def _is_limited(query: Node) -> bool:
    return any(query.args.get(clause) is not None for clause in ("limit", "offset", "fetch"))


def _either(flags: Sequence[Node], nullable: bool) -> Node | None:
    """The bits of any of some relations; a row that an outer join made has none."""
    zero = exp.Literal.number(0)
    texts: list[Node] = [
        exp.Coalesce(this=flag, expressions=[zero.copy()]) if nullable else flag for flag in flags
    ]
    return reduce(lambda a, b: exp.BitwiseOr(this=a, expression=b), texts) if texts else None


def _kept(flag: Node | None, bits: int) -> Node:
    assert flag is not None
    masked = exp.BitwiseAnd(this=flag.copy(), expression=exp.Literal.number(bits))
    return exp.EQ(this=exp.Paren(this=masked), expression=exp.Literal.number(0))


def _filter(call: Node, test: Node) -> None:
    """Add a condition to the FILTER of a call."""
    if isinstance(call, exp.Filter):
        where = call.expression
        where.set("this", exp.and_(where.this, test, copy=False))
        return
    filtered = exp.Filter(expression=exp.Where(this=test))
    call.replace(filtered)
    filtered.set("this", call)


def _show_zero(query: Node) -> None:
    """Give a branch of UNION ALL the column that others have."""
    query = query.unnest()
    if isinstance(query, exp.SetOperation):
        _show_zero(query.left)
        _show_zero(query.right)
        return
    zero = exp.cast(exp.Literal.number(0), "BIGINT")
    query.append("expressions", exp.alias_(zero, ADDED, quoted=True))
