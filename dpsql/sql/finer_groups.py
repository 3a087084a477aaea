"""Rows beside answers: conditions and keys that no single axis decides, over the groups of a finer block.

    SELECT region, COUNT(*) FROM shop JOIN (SELECT region AS r, .. ORDER BY n DESC LIMIT 3) AS t ON region = r
    GROUP BY region                                                                               -- a series limit
    SELECT COUNT(*) FROM shop WHERE region IN (SELECT ..)                                         -- a set
    SELECT CASE WHEN age < 30 THEN 1 WHEN region = 'north' THEN 2 END, COUNT(*) FROM shop GROUP BY 1
    SELECT COUNT(*) FROM shop WHERE age > price

A row meets such a condition by what some axes tell of it (region; `age < 30`). So the block is grouped by these parts,
DuckDB joins and tests its groups instead of rows, and adds up what lies in one group of the statement: COUNT and SUM
are sums over groups, AVG a quotient of two, MIN and MAX the least and the largest. Where the parts are keys of the
statement anyway and every group has one partner at most, there is nothing to add up.

**Privacy**: post-processing of a block's groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.planner.block import ROWS, CatalogValue, Linear, Value
from dpsql.row_expressions.expression import Node
from dpsql.sql.binding import Binding
from dpsql.sql.from_clause import FromColumns, RowRelation, equal_by_name, holds_rows, is_row_level, resolve
from dpsql.sql.parse import aggregates, conjuncts, named, quoted_column, refusal
from dpsql.sql.statement import AT, BlockDraft, Context, RewrittenQuery, Scope


class Inner(NamedTuple):
    """Rewriter of queries inside a SELECT over rows.

    Args:
        scalar: a subquery in an expression, in place.
        source: a relation of FROM that is an answer, in place; gives its alias and its shape.
    """

    scalar: Callable[[exp.Subquery], None]
    source: Callable[[Node], tuple[str, RewrittenQuery]]


class JoinedAnswer(NamedTuple):
    """An answer that rows are joined to.

    Args:
        source: its columns, as the statement may name them.
        join: its join, the relation renamed to `alias`.
        alias: a name that no user wrote.
        unique: its columns that no two of its rows have alike; None where nothing says.
        once: whether a row that has several partners still counts once.
    """

    source: FromColumns
    join: exp.Join
    alias: str
    unique: frozenset[str] | None
    once: bool = False

    @property
    def shared(self) -> set[str]:
        """Columns that USING says are the rows' own."""
        return {name.name.lower() for name in self.join.args.get("using") or []}


def extract_answer_joins(
    context: Context, select: exp.Select, scope: Scope, inner: Inner
) -> list[JoinedAnswer]:
    """Take the answers out of a FROM clause that also has rows.

    Args:
        context: the statement.
        select: changed in place.
        scope: CTEs.
        inner: rewrites the answers.

    Returns:
        The answers with their joins.
    """
    first, joins = select.args["from_"].this, list(select.args.get("joins") or [])
    if not holds_rows(context, first, scope):
        place = next(i for i, join in enumerate(joins) if holds_rows(context, join.this, scope))
        join = joins[place]
        if join.args.get("side"):
            raise refusal(
                NotSupportedError, "an answer is on the outer side of a join to rows", at=join, clause="JOIN",
                hint="start FROM the rows, or join an answer: LEFT JOIN (SELECT key, COUNT(*) .. GROUP BY 1)",
            )  # fmt: skip
        select.set("from_", exp.From(this=join.this))
        join.set("this", first)
    row_joins, answers = [], list[JoinedAnswer]()
    for join in joins:
        if holds_rows(context, join.this, scope):
            row_joins.append(join)
        else:
            answers.append(_answer(join, f"dp_answer_{context.number()}", inner))
    select.set("joins", row_joins or None)
    return answers


def exist(context: Context, tests: list[Node], scope: Scope, inner: Inner) -> list[JoinedAnswer]:
    """Take conditions that a row has a partner in an answer for the joins that they are.

    Args:
        context: the statement.
        tests: resolved conditions; lose those.
        scope: CTEs.
        inner: rewrites the answers.

    Returns:
        The answers; each of their rows has to be one group's partner, else a join would repeat rows.
    """
    answers = []
    for test in list(tests):
        query = test.this if isinstance(test, exp.Exists) else None
        if not isinstance(query, exp.Select) or not query.args.get("from_") or query.args.get("joins"):
            continue
        source = query.args["from_"].this
        plain = not any(
            query.args.get(clause) for clause in ("group", "having", "limit", "offset", "qualify", "with_")
        )
        if plain and not any(map(aggregates, query.expressions)) and not holds_rows(context, source, scope):
            where = query.args.get("where")
            join = exp.Join(this=source, on=where and where.this)
            answers.append(_answer(join, f"dp_answer_{context.number()}", inner)._replace(once=True))
            tests.remove(test)
    return answers


def _answer(join: exp.Join, alias: str, inner: Inner) -> JoinedAnswer:
    words = {str(join.args.get(word) or "").upper() for word in ("method", "side", "kind")} - {""}
    if not words <= {"LEFT", "INNER", "CROSS", "OUTER"}:
        raise refusal(
            NotSupportedError, f"{' '.join(sorted(words))} JOIN of rows to an answer", at=join, clause="JOIN",
            hint="use INNER JOIN or LEFT JOIN",
        )  # fmt: skip
    name, shape = inner.source(join.this)
    columns: dict[str, Node] = {column.lower(): of_answer(column, alias) for column in shape.names}
    table_alias = join.this.args.get("alias")
    renamed = exp.TableAlias(
        this=exp.to_identifier(alias), columns=table_alias and table_alias.args.get("columns")
    )
    join.this.set("alias", renamed)
    return JoinedAnswer(
        FromColumns(name, columns, {n.lower(): n for n in shape.names}), join, alias, shape.unique
    )


def of_answer(name: str, alias: str) -> exp.Column:
    """A column of an answer, in an expression over rows."""
    column = quoted_column(name, alias)
    column.meta.update(resolved=True, answer=True)
    return column


def is_of_answer(column: exp.Column) -> bool:
    """True if a resolved column is an answer's."""
    return bool(column.meta.get("answer"))


def needs_answer(node: Node) -> bool:
    """True if a resolved condition asks for more than a row: an answer's column, or a query."""
    return node.find(exp.Query) is not None or any(map(is_of_answer, node.find_all(exp.Column)))


@dataclass
class Finer:
    """The groups of a block that waiting conditions and keys are made of.

    Args:
        context: the statement.
        binding: its rows.
        scope: CTEs.
        inner: rewrites queries.
        relation: the block's.
        keys: resolved expressions, each over one axis; they gain what is asked for.
    """

    context: Context
    binding: Binding
    scope: Scope
    inner: Inner
    relation: str
    keys: list[Node] = field(default_factory=list)

    def over(self, node: Node) -> Node:
        """A resolved expression over rows and answers, as one over the block's groups and the answers.

        Args:
            node: changed in place.
        """
        if isinstance(node, exp.Exists):
            raise refusal(
                NotSupportedError, "EXISTS asks for rows other than a partner by its key", at=node, clause="WHERE",
                hint="compare with IN, or with a query that counts",
            )  # fmt: skip
        if isinstance(node, exp.Subquery):
            asked_once(self.binding.rows, node)
            self.inner.scalar(node)
            return node
        if self._is_key(node):
            if node not in self.keys:
                self.keys.append(node.copy())
            return exp.column(f"k{self.keys.index(node)}", self.relation)
        for child in list(node.iter_expressions()):
            if isinstance(node, exp.In) and child is node.args.get("query"):
                # IN over rows asks for the values that there are; which, the catalog says
                query = child.unnest()
                if isinstance(query, exp.Select) and is_row_level(self.context, query, self.scope):
                    query.set("distinct", exp.Distinct())
            branches = isinstance(node, exp.Case) and isinstance(child, exp.If)
            for operand in list(child.iter_expressions()) if branches else [child]:
                operand.replace(self.over(operand))
        return node

    def _is_key(self, node: Node) -> bool:
        columns = list(node.find_all(exp.Column))
        if not columns or needs_answer(node):
            return False
        return isinstance(node, exp.Column) or self.binding.of_one_axis(node)


def asked_once(rows: RowRelation, query: exp.Subquery) -> None:
    """Refuse a query that names the rows around it.

    Args:
        rows: around it.
        query: in an expression over them.

    Raises:
        NotSupportedError: it is correlated.
    """
    inner_names = {source.alias_or_name.lower() for source in query.find_all(exp.Table, exp.Subquery)}
    around = {source.alias.lower() for source in rows.sources} - inner_names
    for column in query.find_all(exp.Column):
        if column.table and column.table.lower() in around:
            raise refusal(
                NotSupportedError, "a correlated subquery would be evaluated for each row", at=column,
                clause="subquery", hint="compute it for all groups in a derived table, and join that",
            )  # fmt: skip


def waiting(
    rows: RowRelation, answers: Sequence[JoinedAnswer], tests: Sequence[Node], finer: Finer
) -> list[Node]:
    """Conditions over a block's groups that DuckDB tests after answers are joined.

    Args:
        rows: the FROM clause.
        answers: joined to it.
        tests: resolved conditions that wait.
        finer: gains the keys.
    """
    for answer in answers:
        answer.join.set("on", _on(rows, answer, finer))
        answer.join.set("using", None)
        if answer.once and not one_partner(answer):
            raise refusal(
                NotSupportedError, "EXISTS asks for an answer that may have several rows for one", at=answer.join,
                clause="WHERE", hint="GROUP BY what is compared, inside of it, or compare with IN",
            )  # fmt: skip
    return [finer.over(test) for test in tests]


def add_waiting(select: exp.Select, answers: Sequence[JoinedAnswer], tests: Sequence[Node]) -> None:
    """Join and test in a SELECT over the block's relation."""
    if answers:
        select.set("joins", [answer.join for answer in answers])
    where = select.args.get("where")
    conditions = [*tests, *([where.this] if where is not None else [])]
    select.set("where", exp.Where(this=exp.and_(*conditions, copy=False)) if conditions else None)


def _on(rows: RowRelation, answer: JoinedAnswer, finer: Finer) -> Node | None:
    near = [source for source in rows.sources if source.alias.lower() != answer.source.alias.lower()]
    around = replace(rows, sources=[answer.source, *near])
    conditions = [resolve(around, condition) for condition in conjuncts(answer.join.args.get("on"))]
    conditions += [equal_by_name(near, answer.source, name) for name in answer.join.args.get("using") or []]
    return (
        exp.and_(*(finer.over(_plain(condition)) for condition in conditions), copy=False)
        if conditions
        else None
    )


def one_partner(answer: JoinedAnswer) -> bool:
    """True if every group has one partner at most: the answer's own keys are each equal to something of the
    group."""
    if answer.unique is None:
        return False
    equal = set()
    for condition in conjuncts(answer.join.args.get("on")):
        pair = (condition.left, condition.right) if isinstance(condition, (exp.EQ, exp.NullSafeEQ)) else ()
        for side, opposite in (pair, pair[::-1]) if pair else ():
            is_answer_column = isinstance(side, exp.Column) and side.table == answer.alias
            if is_answer_column and not any(
                column.table == answer.alias for column in opposite.find_all(exp.Column)
            ):
                equal.add(side.name.lower())
    return answer.unique <= equal


def _plain(condition: Node) -> Node:
    """`a = b OR (a IS NULL AND b IS NULL)`, as Tableau writes it, as one comparison; other conditions as they are."""
    if not isinstance(condition, exp.Or):
        return condition
    first, second = (conjuncts(side) for side in (condition.left, condition.right))
    if len(first) != 1 or not isinstance(first[0], exp.EQ):
        return condition
    nulls = [
        conjunct.this
        for conjunct in second
        if isinstance(conjunct, exp.Is) and isinstance(conjunct.expression, exp.Null)
    ]
    sides = (first[0].left, first[0].right)
    same = len(nulls) == len(second) == 2 and all(side in nulls for side in sides)
    return exp.NullSafeEQ(this=sides[0], expression=sides[1]) if same else condition


def of_partners(call: Node, count: Node, several: bool) -> Node:
    """An aggregate of an answer's columns over the rows that are joined to it, by how many rows a group has.

    Args:
        call: MIN, MAX, SUM, AVG or COUNT of an expression over answers' columns alone.
        count: of the rows of a group, all of which have the same partner.
        several: whether it is about several groups together.

    Raises:
        NotSupportedError: another aggregate, or an argument that also reads rows.
    """
    value: Node = call.this
    plain = (exp.Min, exp.Max, exp.Sum, exp.Avg, exp.Count)
    answers_alone = isinstance(value, Node) and all(map(is_of_answer, value.find_all(exp.Column)))
    if not isinstance(call, plain) or not answers_alone or value.find(exp.Query):
        raise refusal(
            NotSupportedError, f"{call.key.upper()} of an answer's column and of rows together", at=call,
            clause="SELECT", hint="MIN, MAX, SUM, AVG and COUNT of an answer's columns alone can be worked out",
        )  # fmt: skip

    def total(node: Node) -> Node:
        return exp.Sum(this=node) if several else node

    if isinstance(call, (exp.Min, exp.Max)):
        if several:
            raise refusal(
                NotSupportedError, f"{call.key.upper()} over partners of several groups, of which some may have no row",
                at=call, clause="SELECT", hint="group by what the answer is joined on; SUM, AVG and COUNT add up",
            )  # fmt: skip
        return value.copy()
    absent = exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null())
    zero = exp.Literal.number(0)
    counted = total(exp.Case(ifs=[exp.If(this=absent, true=zero)], default=count.copy()))
    if isinstance(call, exp.Count):
        return counted
    weighted = total(exp.Mul(this=count.copy(), expression=exp.Paren(this=value.copy())))
    if isinstance(call, exp.Sum):
        return weighted
    return (
        exp.Div(this=weighted, expression=exp.Nullif(this=counted, expression=zero.copy()))
        if several
        else value.copy()
    )


def regrouped(
    keys: Sequence[Node],
    draft: BlockDraft,
    answers: Sequence[JoinedAnswer],
    tests: Sequence[Node],
    relation: str,
    beside: Sequence[Node] = (),
) -> exp.Subquery:
    """The relation `k0.., v0..` of a statement's groups, made of those of its finer block.

    Args:
        keys: the statement's keys over the finer groups.
        draft: its values become those that these are made of.
        answers, tests: what is joined, and conditions.
        relation: the finer block's.
        beside: aggregates of answers' columns, the further columns `j0..`.

    Returns:
        A derived table.
    """
    values = list(draft.values)
    draft.values.clear()
    items = [named(key, f"k{j}") for j, key in enumerate(keys)]
    items += [named(_again(value, draft, relation), f"v{i}") for i, value in enumerate(values)]
    if beside:
        count = exp.column(draft.value(ROWS), relation)
        items += [named(of_partners(call, count, True), f"j{i}") for i, call in enumerate(beside)]
    if not items:
        items = [named(exp.true(), "dp_any")]
    select = exp.Select(expressions=items).from_(exp.Table(this=exp.to_identifier(relation)))
    add_waiting(select, answers, tests)
    if keys:
        select.set("group", exp.Group(expressions=[exp.Literal.number(j + 1) for j in range(len(keys))]))
        first = exp.Min(this=exp.column(AT, relation))
        select.set("order", exp.Order(expressions=[exp.Ordered(this=first)]))
    return exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(f"{relation}_again")))


def _again(value: Value, draft: BlockDraft, relation: str) -> Node:
    """A value of several groups together."""

    def total(form: Linear) -> Node:
        summed = exp.Sum(this=exp.column(draft.value(form), relation))
        return exp.Coalesce(this=summed, expressions=[exp.Literal.number(0)])

    if value.sides:
        first, *others = (total(side) for side in value.sides)
        zero = exp.Literal.number(0)
        return (
            exp.Div(this=first, expression=exp.Nullif(this=others[0], expression=zero)) if others else first
        )
    extreme = (
        {"min": exp.Min, "max": exp.Max}.get(value.function) if isinstance(value, CatalogValue) else None
    )
    if extreme is None:
        raise refusal(
            NotSupportedError, "quantiles and distinct values of several groups do not add up", clause="SELECT",
            hint="group by one axis at a time, and compare with constants",
        )  # fmt: skip
    return extreme(this=exp.column(draft.value(value), relation))
