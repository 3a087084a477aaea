"""A row-level FROM clause -> tables and columns of the star.

Base tables, wide tables and derived tables without aggregates become `RowRelation`: a flat list of table instances
and the conditions on them. A derived table that only renames or filters is thereby unwrapped, however deeply a BI tool
nests it. Sources that are answers already are none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from sqlglot import exp

from dpsql.catalog.checks import plain_name
from dpsql.errors import NotSupportedError, ProgrammingError, UnknownName, UnknownTable
from dpsql.planner.schema import Schema, SchemaTable, nearest
from dpsql.row_expressions.expression import Node
from dpsql.sql.parse import aggregates, conjuncts, is_star, output_name, placed, refusal, relations, unaliased
from dpsql.sql.statement import Context, Scope


@dataclass
class Instance:
    """One base table in a FROM clause. `left` marks the null-supplying side of a LEFT JOIN."""

    number: int
    table: SchemaTable
    left: bool = False


@dataclass(frozen=True)
class Edge:
    """A join along a declared foreign key, from the instance that holds it to the one it points at."""

    parent: int
    foreign_key: str
    child: int


@dataclass
class FromColumns:
    """Columns of one FROM item: output name to expression over instances, in order."""

    alias: str
    columns: dict[str, Node]
    names: dict[str, str] = field(default_factory=dict)


MOST_PARTS = 20_000
"""Nodes that are written in place of columns: expressions over expressions double from query to query."""


@dataclass
class RowRelation:
    """A row-level relation over base tables."""

    instances: list[Instance] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    conditions: list[Node] = field(default_factory=list)
    sources: list[FromColumns] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    parts: int = 0

    def add(self, table: SchemaTable, alias: str) -> FromColumns:
        """Put one more base table into the relation."""
        instance = Instance(len(self.instances), table)
        self.instances.append(instance)
        columns: dict[str, Node] = {
            low: column_of(instance.number, name) for low, name in table.columns.items()
        }
        return FromColumns(alias, columns, dict(table.columns))

    def of(self, node: exp.Column) -> tuple[Instance, str]:
        """The instance and column that a resolved column stands for.

        Raises:
            NotSupportedError: it is a column of an answer that rows are joined to.
        """
        if node.meta.get("answer"):
            raise refusal(
                NotSupportedError, f"{node.name} of an answer would be repeated for each row", at=node,
                clause="SELECT", hint="group by it, or join the answer to the aggregated rows",
            )  # fmt: skip
        instance = self.instances[int(node.table[1:])]
        return instance, node.name


def column_of(number: int, name: str) -> exp.Column:
    """The resolved column `i<number>.name`."""
    column = exp.Column(
        this=exp.Identifier(this=name, quoted=True), table=exp.Identifier(this=f"i{number}", quoted=False)
    )
    column.meta["resolved"] = True
    return column


FEW_COLUMNS = 5


def _columns_hint(name: str, candidates: Sequence[str]) -> str:
    """All columns where they are few, else the nearest of them."""
    columns = list(dict.fromkeys(candidates))
    if len(columns) <= FEW_COLUMNS:
        return f"there are {', '.join(columns)}"
    near = get_close_matches(name, columns, FEW_COLUMNS, 0)
    return f"the nearest are {', '.join(near)}; information_schema.columns lists all {len(columns)}"


def lookup(rows: RowRelation, node: exp.Column) -> Node:
    """The expression that a column name stands for.

    Args:
        rows: the FROM clause.
        node: the column as written.

    Returns:
        A fresh expression over resolved columns, placed where the name stood.

    Raises:
        UnknownName: no such column, or several.
    """
    name, qualifier = node.name.lower(), node.table.lower()
    if not any(name in source.columns for source in rows.sources):
        name = plain_name(name)  # "alk.phos" of a file is alk_phos in its catalog
    if qualifier and not any(source.alias.lower() == qualifier for source in rows.sources):
        candidates = [source.alias for source in rows.sources]
        raise refusal(
            UnknownName,
            f"there is no table {node.table!r} in FROM",
            at=node,
            clause="FROM",
            hint=nearest(qualifier, candidates) or f"FROM has {', '.join(candidates)}",
        )
    columns = [
        source.columns[name]
        for source in rows.sources
        if name in source.columns and qualifier in ("", source.alias.lower())
    ]
    if not columns:
        candidates = [name for source in rows.sources for name in source.names.values()]
        raise refusal(
            UnknownName,
            f"there is no column {node.name!r}",
            at=node,
            clause="column",
            hint=nearest(name, candidates) or _columns_hint(name, candidates),
        )
    if len(columns) > 1 and name not in rows.shared and any(column != columns[0] for column in columns[1:]):
        aliases = [s.alias for s in rows.sources if name in s.columns]
        raise refusal(
            UnknownName,
            f"column {node.name!r} is in {' and '.join(aliases)}",
            at=node,
            clause="column",
            hint=f"write {aliases[0]}.{node.name}",
        )
    rows.parts += sum(1 for _ in columns[0].walk())
    if rows.parts > MOST_PARTS:
        raise refusal(
            NotSupportedError,
            "the statement's columns are made of too many parts once they are written out",
            hint="use fewer nested expressions",
        )
    return placed(columns[0], node)


def resolve(rows: RowRelation, node: Node) -> Node:
    """A copy of an expression with every column resolved; subqueries are left alone.

    >>> import sqlglot
    >>> rows = RowRelation()
    >>> table = SchemaTable("t", None, {"a": "A"}, {}, {}, {}, frozenset(), {}, frozenset(), True)
    >>> rows.sources.append(rows.add(table, "t"))
    >>> resolve(rows, sqlglot.parse_one("t.a + 1")).sql()
    'i0."A" + 1'
    """
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
        return node.copy() if node.meta.get("resolved") else lookup(rows, node)
    copy = node.copy()
    _resolve_inside(rows, copy)
    return copy


def _resolve_inside(rows: RowRelation, node: Node) -> None:
    for child in list(node.iter_expressions()):
        if isinstance(child, (exp.Subquery, exp.Query)):
            continue
        if child.meta.get("resolved"):
            continue
        if isinstance(child, exp.Column) and not isinstance(child.this, exp.Star):
            child.replace(_bracketed(lookup(rows, child), node))
        else:
            _resolve_inside(rows, child)


def _bracketed(expression: Node, parent: Node) -> Node:
    """Operators that take an operator's place keep their brackets."""
    needs = isinstance(expression, (exp.Binary, exp.Unary, exp.Case, exp.Between, exp.In))
    return exp.Paren(this=expression) if needs and not isinstance(parent, exp.Paren) else expression


def wide_source(rows: RowRelation, schema: Schema, fact: SchemaTable, alias: str) -> FromColumns:
    """The star as one table: the fact's columns and those of every dimension, left joined."""
    root = rows.add(fact, alias)
    taken = dict(root.columns)
    spelled = dict(root.names)
    pending = [(len(rows.instances) - 1, fact)]
    while pending:
        number, table = pending.pop(0)
        for foreign_key, target in table.foreign_keys.items():
            dimension = schema.table(target)
            if dimension is None or len(rows.instances) > 64:
                continue
            offered = rows.add(dimension, alias)
            child = len(rows.instances) - 1
            rows.instances[child].left = True
            rows.edges.append(Edge(number, foreign_key, child))
            for low, expression in offered.columns.items():
                if dimension.key and low == dimension.key.lower() and low in taken:
                    continue
                name = low if low not in taken else f"{dimension.name}_{low}".lower()
                if name not in taken:
                    taken[name] = expression
                    spelled[name] = (
                        offered.names[low] if name == low else f"{dimension.name}_{offered.names[low]}"
                    )
            pending.append((child, dimension))
    return FromColumns(alias, taken, spelled)


JOINS = frozenset(("", "LEFT", "RIGHT", "INNER", "CROSS", "OUTER", "NATURAL"))
"""Words before JOIN that name one side whose rows are kept, or none."""
SCHEMAS = frozenset({"", "main", "public", "dbo", "default"})


def sources(select: exp.Select) -> list[Node]:
    """The relations in FROM and its joins, in order."""
    joins = select.args.get("joins")
    if joins and select.args.get("from_") is None:
        raise refusal(ProgrammingError, "a JOIN without FROM", at=joins[0], clause="FROM", hint="write FROM")
    return relations(select)


def holds_rows(context: Context, node: Node, scope: Scope) -> bool:
    """True if a source is row-level: a base or wide table, or a query that only filters and renames one.

    Raises:
        UnknownTable: no table of that name.
    """
    if isinstance(node, exp.Table):
        if not isinstance(node.this, exp.Identifier):
            return False
        if not node.db and scope.holds(node.name):
            return node.name.lower() in scope.rows
        if node.db.lower() == "information_schema":
            return False
        return _known_table(context, node)
    inner = node.unnest()
    return isinstance(inner, exp.Select) and is_row_level(context, inner, scope)


def base_tables(select: Node, schema: Schema) -> dict[str, tuple[SchemaTable, ...]]:
    """Tables of the star by their alias in FROM, in lower case; of a wide table all that it may hold."""
    wide, tables = schema.wide(), dict[str, tuple[SchemaTable, ...]]()
    for relation in relations(select):
        name, above = relation.name.lower(), relation.find_ancestor(exp.CTE)
        # a CTE may read the table whose name it takes
        inside = above is not None and above.alias.lower() == name
        shadowed = any(common.alias.lower() == name for common in select.root().find_all(exp.CTE))
        if isinstance(relation, exp.Table) and (inside or not shadowed):
            table = schema.table(name)
            every = tuple(schema.tables.values()) if name in wide else ()
            tables[relation.alias_or_name.lower()] = every if table is None else (table,)
    return tables


def _known_table(context: Context, node: exp.Table) -> bool:
    name, schema = node.name, context.named(node)
    if node.db.lower() not in SCHEMAS | {schema.name.lower(), *schema.named, *context.schema.named}:
        raise refusal(
            UnknownName,
            f"there is no schema {node.db!r}",
            at=node,
            clause="FROM",
            hint=f"write {name} or main.{name}"
            + "".join(f", or {release_name}.{name}" for release_name in schema.named),
        )
    if schema.table(name) is None and name.lower() not in schema.wide():
        names = [*(table.name for table in schema.tables.values()), *schema.wide()]
        raise refusal(
            UnknownTable,
            f"there is no table {name!r}",
            at=node,
            clause="FROM",
            hint=nearest(name, names) or f"tables: {', '.join(names[:12])}",
        )
    return True


def is_row_level(context: Context, select: exp.Select, scope: Scope) -> bool:
    """True if a SELECT yields one row per row of its FROM clause."""
    if select.args.get("with_") is not None or not sources(select):
        return False
    clauses = ("group", "having", "distinct", "limit", "offset", "qualify")
    if any(select.args.get(clause) for clause in clauses):
        return False
    if any(aggregates(projection) or projection.find(exp.Window) for projection in select.expressions):
        return False
    return all(holds_rows(context, source, scope) for source in sources(select))


def bind_from(
    context: Context,
    select: exp.Select,
    scope: Scope,
    into: RowRelation | None = None,
    beside: Sequence[tuple[FromColumns, set[str]]] = (),
) -> RowRelation:
    """The row-level FROM clause of a SELECT, derived tables unwrapped.

    Args:
        context: the statement.
        select: a SELECT whose sources are all row-level.
        scope: CTEs.
        into: the relation that a derived table is unwrapped into.
        beside: columns of answers that it is joined to, and names that USING says are the rows' own.

    Returns:
        Its instances and conditions; `sources` are this SELECT's own names.
    """
    shared = into or RowRelation()
    rows = RowRelation(shared.instances, shared.edges, shared.conditions, [], set())
    first = select.args["from_"].this
    rows.sources.append(_source(context, first, scope, rows))
    for join in [*(first.args.get("joins") or []), *(select.args.get("joins") or [])]:
        _join(context, rows, join, scope)
    for source, shared_names in beside:
        rows.sources.append(source)
        rows.shared |= shared_names
    for condition in conjuncts(select.args.get("where")):
        rows.conditions += _factored(resolve(rows, condition))
    return rows


def _factored(condition: Node) -> list[Node]:
    """Tests that must all be true: those that stand in every branch of an OR, as the joins of TPC-H Q19 do, and the OR
    of what the branches have left."""
    if not isinstance(condition.unnest(), exp.Or):
        return [condition]
    branches = [conjuncts(branch) for branch in condition.unnest().flatten()]
    common = [test for test in branches[0] if all(_same_test(test, branch) for branch in branches[1:])]
    if not common:
        return [condition]
    remaining = [[test for test in branch if not _same_test(test, common)] for branch in branches]
    if not all(remaining):  # a OR (a AND b) is a
        return common
    return [*common, exp.Paren(this=exp.or_(*(exp.and_(*tests) for tests in remaining)))]


def _same_test(test: Node, tests: Sequence[Node]) -> bool:
    """True if a test is among others, the sides of an equality in either order."""
    turned = exp.EQ(this=test.right, expression=test.left) if isinstance(test, exp.EQ) else test
    return test in tests or turned in tests


def _source(context: Context, node: Node, scope: Scope, rows: RowRelation) -> FromColumns:
    """One row-level source, its instances added to the relation."""
    if isinstance(node, exp.Table):
        query = scope.rows.get(node.name.lower()) if not node.db else None
        if query is not None:
            return _unwrapped(context, query, node.alias_or_name, scope, rows)
        table = context.schema.table(node.name)
        if table is not None:
            return rows.add(table, node.alias_or_name)
        fact = context.schema.table(context.schema.wide()[node.name.lower()])
        assert fact is not None
        return wide_source(rows, context.schema, fact, node.alias_or_name)
    return _unwrapped(context, node.unnest(), node.alias_or_name, scope, rows)


def _unwrapped(context: Context, node: Node, alias: str, scope: Scope, rows: RowRelation) -> FromColumns:
    """A derived table that renames and filters: its names, over the same instances."""
    assert isinstance(node, exp.Select)
    inner = bind_from(context, node, scope, rows)
    columns: dict[str, Node] = {}
    names: dict[str, str] = {}
    for projection in node.expressions:
        if is_star(projection):
            for source, name in starred(inner, projection):
                columns.setdefault(name, source.columns[name])
                names.setdefault(name, source.names[name])
            continue
        name = output_name(projection)
        columns[name.lower()] = resolve(inner, unaliased(projection))
        names[name.lower()] = name
    return FromColumns(alias, columns, names)


def starred(rows: RowRelation, star: Node) -> Iterator[tuple[FromColumns, str]]:
    """The columns that `*` or `t.*` stands for, in lower case, each with its source; a merged one stands once."""
    table, merged = star.table.lower() if isinstance(star, exp.Column) else "", set[str]()
    for source in rows.sources:
        if table in ("", source.alias.lower()):
            yield from ((source, name) for name in source.columns if name not in merged)
            merged |= rows.shared & source.columns.keys()


def _join(context: Context, rows: RowRelation, join: exp.Join, scope: Scope) -> None:
    """One more source, with its ON or USING conditions."""
    words = [str(join.args.get(word) or "").upper() for word in ("method", "side", "kind")]
    if not set(words) <= JOINS:
        kind = " ".join(filter(None, words))
        full = f"{kind} JOIN would list partners that no row has, and rows that have none"
        raise refusal(
            NotSupportedError,
            full if "FULL" in words else f"{kind} JOIN is not supported",
            at=join,
            clause="JOIN",
            hint="use INNER JOIN or LEFT JOIN from the fact to the dimension, or IN and NOT EXISTS over its key",
        )
    left, right = "LEFT" in words, "RIGHT" in words
    instances, conditions = len(rows.instances), len(rows.conditions)
    source = _source(context, join.this, scope, rows)
    if (left or right) and len(rows.conditions) > conditions:
        raise refusal(
            NotSupportedError,
            "an outer join to a filtered derived table",
            at=join,
            clause="JOIN",
            hint="put the filter into WHERE or into a CASE",
        )
    rows.sources.append(source)
    for instance in rows.instances[instances:] if left else rows.instances[:instances] if right else []:
        instance.left = True
    on = join.args.get("on")
    for condition in conjuncts(on):
        resolved = resolve(rows, condition)
        if (left or right) and not isinstance(resolved, exp.EQ):
            raise refusal(
                NotSupportedError,
                "an outer join takes key equalities only",
                at=condition,
                clause="JOIN",
                hint="put other conditions into WHERE or into a CASE",
            )
        rows.conditions += _factored(resolved)
    names = list(join.args.get("using") or [])
    if "NATURAL" in words:
        earlier = {name for joined in rows.sources[:-1] for name in joined.columns}
        names = [exp.to_identifier(name) for name in source.columns if name in earlier]
    rows.conditions += [equal_by_name(rows.sources[:-1], source, name) for name in names]
    rows.shared |= {name.name.lower() for name in names}


def equal_by_name(sources: Sequence[FromColumns], joined: FromColumns, name: Node) -> exp.EQ:
    """The equality that USING states: the first column of that name is the joined relation's.

    Raises:
        UnknownName: one side has no such column.
    """
    key = name.name.lower()
    columns = [source.columns[key] for source in (*sources, joined) if key in source.columns]
    if len(columns) < 2 or key not in joined.columns:
        raise refusal(
            UnknownName,
            f"USING names {name.name!r}, which is not in both tables",
            at=name,
            clause="JOIN",
            hint="write ON with the key of each",
        )
    return exp.EQ(this=columns[0].copy(), expression=columns[-1].copy())
