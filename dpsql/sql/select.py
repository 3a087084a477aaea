"""One SELECT over rows -> one block, and the SELECT over its groups that takes its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.errors import NotSupportedError, ProgrammingError, RawRowsError
from dpsql.planner.block import ROWS, Block, ErrorOf, Form, is_form
from dpsql.planner.schema import TRUE, Predicate, every
from dpsql.row_expressions.expression import Node, column_comparison
from dpsql.sql import finer_groups, parse
from dpsql.sql.aggregates import aggregate, error_call, form_of
from dpsql.sql.binding import Binding, condition, derived, expression, joined
from dpsql.sql.from_clause import bind_from, resolve
from dpsql.sql.moments import expand_moment
from dpsql.sql.semijoin import check_tests, find_paths, join_members
from dpsql.sql.statement import AT, BlockDraft, Context, RewrittenQuery, Scope, kind


@dataclass
class Builder:
    """A SELECT being turned into a block.

    Args:
        context: the statement.
        binding: the rows.
        draft: the block.
        number: of the block.
        inner: rewrites queries inside of it.
        groups: GROUP BY expressions, resolved.
        keys: what stands for them, where that is no column of the relation.
        aliases: of the select list.
        again: whether the block's groups are added up to the statement's.
        relation: the block's relation, where its columns stand beside those of answers.
        beside: aggregates of answers' columns over several groups.
    """

    context: Context
    binding: Binding
    draft: BlockDraft
    number: int
    inner: finer_groups.Inner
    groups: list[Node] = field(default_factory=list)
    keys: list[Node] = field(default_factory=list)
    aliases: dict[str, Node] = field(default_factory=dict)
    again: bool = False
    relation: str = ""
    beside: list[Node] = field(default_factory=list)

    def column(self, name: str) -> exp.Column:
        """A column of the relation that takes the rows' place."""
        return exp.column(name, self.relation or None)

    def resolved(self, node: Node) -> Node:
        """Columns resolved; names that only the select list knows replaced by what they stand for."""
        sources = self.binding.rows.sources
        node = parse.expand_aliases(
            node, self.aliases, lambda column: any(column.name.lower() in s.columns for s in sources)
        )
        node = derived(self.binding, resolve(self.binding.rows, node))
        while isinstance(node, exp.Paren):
            node = node.this
        return node

    def forms(self) -> dict[str, Form]:
        """Form of each value column so far; none where the block's groups are finer than the statement's."""
        values = [] if self.again else self.draft.values
        return {f"v{i}": v for i, v in enumerate(values) if is_form(v)}


def build(
    context: Context, select: exp.Select, scope: Scope, track: bool, inner: finer_groups.Inner
) -> RewrittenQuery:
    """Turn an aggregating SELECT over rows into a block.

    Args:
        context: the statement; gains a draft.
        select: the SELECT; changed in place to read `dp_block_<b>`.
        scope: CTEs.
        track: whether to carry row numbers for error bars.
        inner: rewrites queries inside of it.

    Returns:
        The shape of the SELECT that takes its place.
    """
    answers = finer_groups.extract_answer_joins(context, select, scope, inner)
    rows = bind_from(context, select, scope, None, [(answer.source, answer.shared) for answer in answers])
    join_members(context, rows, scope)
    later = [conjunct for conjunct in rows.conditions if finer_groups.needs_answer(conjunct)]
    answers += finer_groups.exist(context, later, scope, inner)
    rows.conditions = [conjunct for conjunct in rows.conditions if not finer_groups.needs_answer(conjunct)]
    paths = find_paths(rows, context.schema)
    check_tests(rows, paths, [*rows.conditions, *later])
    binding = Binding(rows, paths, context.schema)
    place = parse.span(select)
    draft = BlockDraft(Block(paths.root, (), (), every([]), (), (), place))
    builder = Builder(context, binding, draft, len(context.drafts), inner)
    context.add(draft)
    _select_list(builder, select)
    _groups(builder, select)
    listing = not _has_aggregates(select, with_order=False)
    met = [(conjunct, condition(binding, derived(binding, conjunct))) for conjunct in rows.conditions]
    present = [
        test for _, test in met if isinstance(test, Predicate) and test.expression in binding.presences
    ]
    binding.within = every([*present])
    met = [(conjunct, test) for conjunct, test in met if test not in present]
    where = every([*(test for _, test in met if not binding.ties_axes(test)), *joined(binding)])
    tied = [conjunct for conjunct, test in met if binding.ties_axes(test)]
    later += tied
    compared = [n for n in (*tied, *builder.groups) if column_comparison(n) and not binding.of_one_axis(n)]
    ties = [(binding.ref(n.this), type(n).__name__, binding.ref(n.expression)) for n in compared]
    groups, shape = _over_groups(builder, select, scope, track, answers, later)
    keys = tuple(expression(binding, group) for group in groups)
    draft.block = Block(
        paths.root,
        tuple(paths.joins),
        tuple(binding.columns),
        where,
        keys,
        tuple(draft.values),
        place,
        listing,
        tuple(dict.fromkeys(instance.table.name for instance in rows.instances)),
        context.release,
        tuple(binding.never_null),
        tuple(ties),
    )
    return shape


def _over_groups(
    builder: Builder,
    select: exp.Select,
    scope: Scope,
    track: bool,
    answers: list[finer_groups.JoinedAnswer],
    later: list[Node],
) -> tuple[list[Node], RewrittenQuery]:
    """The block's groups, and the SELECT over them."""
    of_one_axis, lacks_axis = builder.binding.of_one_axis, builder.binding.lacks_axis
    block_keys = [
        group
        for group in builder.groups
        if not finer_groups.needs_answer(group)
        and (isinstance(group, exp.Column) or of_one_axis(group) or lacks_axis(group))
    ]
    if not (answers or later or len(block_keys) < len(builder.groups)):
        return builder.groups, _outer(builder, select, track)
    relation = f"dp_block_{builder.number}"
    finer = finer_groups.Finer(
        builder.context, builder.binding, scope, builder.inner, relation, list(block_keys)
    )
    keys = [finer.over(group.copy()) for group in builder.groups]
    tests = finer_groups.waiting(
        builder.binding.rows, answers, [derived(builder.binding, conjunct) for conjunct in later], finer
    )
    builder.again = finer.keys != block_keys or not all(map(finer_groups.one_partner, answers))
    if not builder.again:
        builder.relation, builder.keys = relation, keys
        shape = _outer(builder, select, track)
        finer_groups.add_waiting(select, answers, tests)
        return finer.keys, shape
    shape = _outer(builder, select, False)
    again = finer_groups.regrouped(keys, builder.draft, answers, tests, relation, builder.beside)
    select.set("from_", exp.From(this=again))
    return finer.keys, replace(shape, forms=[{} for _ in shape.forms], block=None)


def _has_aggregates(select: exp.Select, with_order: bool = True) -> bool:
    expressions: list[Node] = [*select.expressions]
    for key in ("having", "qualify", *(("order",) if with_order else ())):
        if select.args.get(key) is not None:
            expressions.append(select.args[key])
    return any(parse.aggregates(expression) for expression in expressions)


def _select_list(builder: Builder, select: exp.Select) -> None:
    """Refuse raw rows; remember what the aliases stand for."""
    grouped = select.args.get("group") is not None or select.args.get("distinct") is not None
    root = builder.binding.paths.root
    if not grouped and not _has_aggregates(select):
        for projection in select.expressions:
            if not parse.is_star(projection):  # a name that no table has is the error that comes first
                resolve(builder.binding.rows, projection)
        raise parse.refusal(
            RawRowsError,
            f"the statement asks for rows of {root}, and a release contains no rows",
            at=next(iter(select.expressions), None),
            clause="SELECT",
            nearest=builder.context.schema.example(root),
        )
    for projection in select.expressions:
        if parse.is_star(projection):
            raise parse.refusal(
                RawRowsError,
                "SELECT * over groups would need every column",
                at=projection,
                clause="SELECT",
                nearest=builder.context.schema.example(root),
            )
        if isinstance(projection, exp.Alias):
            builder.aliases.setdefault(projection.alias.lower(), projection.this)


def _groups(builder: Builder, select: exp.Select) -> None:
    """GROUP BY expressions: columns, aliases, ordinals, ALL; SELECT DISTINCT groups by everything."""
    group = select.args.get("group")
    if group is None:
        distinct = select.args.get("distinct")
        if distinct is not None and not _has_aggregates(select, with_order=False):
            if distinct.args.get("on"):
                raise parse.refusal(
                    NotSupportedError, "DISTINCT ON picks rows", clause="SELECT", hint="use GROUP BY"
                )
            items = [parse.unaliased(key) for key in select.expressions]
            select.set("distinct", None)
        else:
            items = []
    else:
        if any(group.args.get(kind) for kind in ("cube", "rollup", "grouping_sets", "totals")):
            raise parse.refusal(
                NotSupportedError,
                "CUBE, ROLLUP and GROUPING SETS are not supported",
                clause="GROUP BY",
                hint="use UNION ALL of one GROUP BY each",
            )
        items = parse.group_keys(select)
        for key, item in zip(group.expressions, items, strict=False):  # ALL is written without any
            if item is key and isinstance(key, exp.Literal) and not key.is_string:
                raise parse.no_item(key, "GROUP BY", len(select.expressions))
    for key in items:
        resolved = builder.resolved(key)
        if parse.aggregates(resolved):
            raise parse.refusal(
                ProgrammingError,
                "GROUP BY contains an aggregate",
                at=key,
                clause="GROUP BY",
                hint="group by a column",
            )
        if resolved not in builder.groups and resolved.find(exp.Column) is not None:
            builder.groups.append(resolved)


def _outer(builder: Builder, select: exp.Select, track: bool) -> RewrittenQuery:
    """Rewrite every clause over the columns k<j> and v<j> of the block's relation."""

    def over(node: Node) -> Node:
        return rewritten(builder, builder.resolved(node))

    names, items, forms, kinds = [], [], [], []
    for projection in select.expressions:
        names.append(parse.output_name(projection))
        kinds.append(kind(builder.resolved(parse.unaliased(projection)), builder.binding.kind))
        node = over(parse.unaliased(projection))
        items.append(parse.named(node, names[-1]))
        form = form_of(node, builder.forms())
        forms.append({builder.number: form} if form is not None else {})
    qualify, order = select.args.get("qualify"), select.args.get("order")
    having = parse.conjuncts(select.args.get("having"))
    conditions = [over(_aliased(builder, conjunct)) for conjunct in having if not _always_true(conjunct)]
    select.set("where", exp.Where(this=exp.and_(*conditions)) if conditions else None)
    if qualify is not None:
        select.set("qualify", exp.Qualify(this=over(qualify.this)))
    if order is not None:
        _order(order, names, over)
    carriers = {}
    if track and not select.args.get("distinct"):
        hidden = builder.context.fresh()
        items.append(parse.named(builder.column(AT), hidden))
        carriers[hidden] = builder.number
    for key in ("group", "having", "joins", "from_"):
        select.set(key, None)
    select.set("expressions", items)
    select.set("from_", exp.From(this=exp.Table(this=exp.to_identifier(f"dp_block_{builder.number}"))))
    # the keys identify a row if all of them are shown
    shown = {parse.unaliased(projection).name: name.lower() for projection, name in zip(items, names, strict=False)
             if isinstance(parse.unaliased(projection), exp.Column)}  # fmt: skip
    keys = [f"k{j}" for j in range(len(builder.groups))]
    unique = frozenset(shown[key] for key in keys) if all(key in shown for key in keys) else None
    return RewrittenQuery(select, names, forms, carriers, builder.number, unique=unique, kinds=kinds)


def _aliased(builder: Builder, condition: Node) -> Node:
    """A condition of HAVING with aliases of aggregates spelt out: SUM(income) AS income, where income is no group."""
    groups = {group.name.lower() for group in builder.groups if isinstance(group, exp.Column)}
    spelt = exp.Paren(this=condition.copy())
    aggregated = {id(c) for call in parse.aggregates(spelt) for c in call.find_all(exp.Column)}
    for column in list(spelt.find_all(exp.Column)):
        alias = None if column.table else builder.aliases.get(column.name.lower())
        inner = id(column) in aggregated or column.find_ancestor(exp.Select) is not None
        if alias is not None and not inner and column.name.lower() not in groups and parse.aggregates(alias):
            column.replace(exp.Paren(this=alias.copy()))
    return spelt


def _always_true(node: Node) -> bool:
    """HAVING COUNT(1) > 0, which BI tools add: every group of the domain is shown."""
    counts = isinstance(node, exp.GT) and isinstance(node.left, exp.Count)
    return counts and node.expression == exp.Literal.number(0)


def _order(order: exp.Order, names: list[str], over: Callable[[Node], Node]) -> None:
    outputs = {name.lower(): name for name in names}
    for term in order.expressions:
        node = term.this
        if isinstance(node, exp.Literal):
            continue
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in outputs:
            term.set("this", parse.quoted_column(outputs[node.name.lower()]))
        else:
            term.set("this", over(node))


def rewritten(builder: Builder, node: Node) -> Node:
    """A resolved expression over groups, as an expression over the block's relation."""
    for j, group in enumerate(builder.groups):
        if node == group:
            return builder.keys[j].copy() if builder.keys else builder.column(f"k{j}")
    if parse.is_error_call(node):
        # DP_STDERR(x), DP_INTERVAL_LOW(x[, level]) and others.
        error, inner, level = error_call(node)
        form = form_of(rewritten(builder, inner.copy()), builder.forms())
        if form is not None and not builder.context.carries:
            return builder.column(builder.draft.value(ErrorOf(error, form, level)))
        for argument in node.expressions[: 1 + error.compares]:  # it stays, for `sql.carry`
            argument.replace(rewritten(builder, argument))
        return node
    if parse.is_aggregate(node) and any(map(finer_groups.is_of_answer, node.find_all(exp.Column))):
        if builder.binding.within != TRUE:  # the count of partners would be of all rows
            reason = "an answer's column is aggregated over rows where a measure is NULL or is not"
            raise parse.refusal(NotSupportedError, reason, at=node, clause="SELECT")
        if not builder.again:
            return finer_groups.of_partners(node, builder.column(builder.draft.value(ROWS)), False)
        if node not in builder.beside:
            builder.beside.append(node.copy())
        return exp.column(f"j{builder.beside.index(node)}")
    moment = expand_moment(builder.binding, node) if parse.is_aggregate(node) else None
    if moment is not None:
        return rewritten(builder, moment)
    if parse.is_aggregate(node):
        return builder.column(builder.draft.value(aggregate(builder.binding, node)))
    if isinstance(node, exp.Subquery):
        finer_groups.asked_once(builder.binding.rows, node)
        builder.inner.scalar(node)
        return node
    if isinstance(node, exp.Column):
        raise parse.refusal(
            ProgrammingError,
            f"column {node.name!r} is neither grouped nor aggregated",
            at=node,
            clause="SELECT",
            hint="add it to GROUP BY",
        )
    skip = node.this if isinstance(node, exp.Window) else None  # it stays; its arguments are over groups
    for child in list(node.iter_expressions()):
        if child is skip:
            for argument in list(child.iter_expressions()):
                argument.replace(rewritten(builder, argument))
        else:
            child.replace(rewritten(builder, child))
    return node
