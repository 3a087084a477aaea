"""Rewrites of other systems' spellings into those of DuckDB.

| written | becomes |
|---|---|
| `TO_CHAR(t, 'YYYY-MM')` | `STRFTIME(t, '%Y-%m')` |
| `TO_TIMESTAMP(n)` | 1970-01-01, moved by so many seconds |
| `x = ANY (ARRAY['a', 'b'])`, `x = ANY ('{a,b}')` | `x IN ('a', 'b')` |
| `(SELECT DATE '2025-01-31' + 1)` | its expression |
| `WIDTH_BUCKET(x, 0, 100, 5)` | `CASE WHEN x < 0 THEN 0 WHEN x >= 100 THEN 6 ELSE FLOOR((x - 0) * 5 / 100) + 1 END` |
| `(a) = (b)` | `a = b` |
| `OFFSET 5 ROWS FETCH NEXT 10 ROWS ONLY` | `LIMIT 10 OFFSET 5` |
| `FROM (a JOIN b ON ..) JOIN c ON ..` | `FROM a JOIN b ON .. JOIN c ON ..` |
| `GROUP BY ROLLUP`, `CUBE`, `GROUPING SETS` | a UNION ALL of one GROUP BY each |

    SELECT region, age, COUNT(*) FROM shop GROUP BY ROLLUP (region, age)

asks by region and age, by region, and of all rows; a key that a branch does not group by is NULL in it. ORDER BY and
LIMIT stay with the whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import chain, combinations, product

from sqlglot import exp, parse_one

from dpsql.errors import NotSupportedError
from dpsql.planner.schema import Schema, SchemaTable
from dpsql.row_expressions.expression import Node
from dpsql.sql import parse
from dpsql.sql.from_clause import base_tables


def normal(tree: Node) -> Node:
    """A parsed statement with such spellings replaced.

    Args:
        tree: changed in place.

    Raises:
        NotSupportedError: what would mean something else in other words.

    >>> import sqlglot
    >>> normal(sqlglot.parse_one("SELECT a = ANY ('{x,y}') FROM t", read="duckdb")).sql("duckdb")
    "SELECT a IN ('x', 'y') FROM t"
    """
    return parse.bottom_up(
        tree, lambda node: SPELLINGS[type(node)](node) if type(node) in SPELLINGS else node
    )


def _called(node: Node) -> Node:
    one = str(node.this).lower() == "trunc" and len(node.expressions) == 1
    return exp.Trunc(this=node.expressions[0]) if one else node


def _since_1970(node: Node) -> Node:
    """A time without a zone, as all times of a release are."""
    start = exp.cast(exp.Literal.string("1970-01-01"), "TIMESTAMP")
    return exp.DateAdd(this=start, expression=node.this, unit=exp.var("SECOND"))


ARRAY = re.compile(r"\{[^{}\"\\\\,]+(,[^{}\"\\\\,]+)*\}")
"""PostgreSQL's text of an array of plain words; quotes, NULLs and arrays in it are not read."""


def _compared(node: Node) -> Node:
    """`= ANY (list)`, and columns in brackets."""
    for side in ("this", "expression"):
        if isinstance(node.args[side], exp.Paren) and isinstance(node.args[side].unnest(), exp.Column):
            node.set(side, node.args[side].unnest())
    return _any_of(node)


def _any_of(node: Node) -> Node:
    """x = ANY (list), and x <> ALL (list)."""
    inside = node.expression
    if not isinstance(inside, exp.Any if isinstance(node, exp.EQ) else exp.All):
        return node
    collection = inside.this.this if isinstance(inside.this, exp.Paren) else inside.this
    if isinstance(collection, exp.Query):
        membership = exp.In(
            this=node.this,
            query=collection if isinstance(collection, exp.Subquery) else exp.Subquery(this=collection),
        )
    elif isinstance(collection, (exp.Array, exp.Tuple)):
        membership = exp.In(this=node.this, expressions=collection.expressions)
    elif isinstance(collection, exp.Literal) and ARRAY.fullmatch(str(collection.this)):
        words = str(collection.this)[1:-1].split(",")
        membership = exp.In(this=node.this, expressions=[exp.Literal.string(word.strip()) for word in words])
    else:
        return node
    return membership if isinstance(node, exp.EQ) else exp.Not(this=membership)


CODES = {
    "yyyy": "%Y", "yy": "%y", "mm": "%m", "dd": "%d", "ddd": "%j", "hh24": "%H", "hh12": "%I", "hh": "%I", "mi": "%M",
    "ss": "%S", "us": "%f", "iyyy": "%G", "iw": "%V", "am": "%p", "pm": "%p", "fmmm": "%-m", "fmdd": "%-d",
    "fmhh24": "%-H",
}  # fmt: skip
"""Codes of TO_CHAR in either case, and STRFTIME's for the same text."""


NAMES = {
    "Month": "%B", "Day": "%A", "Mon": "%b", "Dy": "%a", "FMMonth": "%B", "FMDay": "%A", "FMMon": "%b", "FMDy": "%a",
}  # fmt: skip
"""Codes of names, and STRFTIME's."""
FILLED, WIDTH = ("Month", "Day"), 9
"""Names that blanks fill up, and to which width."""
NAMES_FIRST = sorted(NAMES, key=len, reverse=True)
LONGEST_FIRST = sorted(CODES, key=len, reverse=True)
PIECE = re.compile(
    rf'(?P<text>"[^"]*"|[^A-Za-z"]+)|(?P<name>{"|".join(NAMES_FIRST)})|(?P<code>(?i:{"|".join(LONGEST_FIRST)}))|(?P<other>.)'
)


def _to_char(node: Node) -> Node:
    """TO_CHAR of a time, piece by piece.

    Raises:
        NotSupportedError: a code that would mean something else.
    """
    written = node.args.get("format")
    if not isinstance(written, exp.Literal) or not written.is_string:
        return node
    pieces: list[Node] = []
    run = ""
    for piece in PIECE.finditer(str(written.this)):
        text, code = piece.group(), piece.group().lower()
        if piece.lastgroup == "other":
            raise parse.refusal(
                NotSupportedError, f"TO_CHAR with the format {str(written.this)[:40]!r}", at=written,
                hint="it takes YYYY, MM, DD, HH24, MI, SS, IYYY, IW, Month, Mon, Day, Dy and quoted text",
            )  # fmt: skip
        if piece.lastgroup == "name" and text in FILLED:
            # a month's or a weekday's name is filled up with blanks
            blank, width = exp.Literal.string(" "), exp.Literal.number(WIDTH)
            single = exp.Pad(
                this=_formatted(node.this, NAMES[text]), expression=width, fill_pattern=blank, is_left=False
            )
        else:
            plain = text.strip('"').replace("%", "%%")
            run += (
                NAMES[text]
                if piece.lastgroup == "name"
                else CODES.get(code, plain)
                if piece.lastgroup == "code"
                else plain
            )
            continue
        pieces += [*([_formatted(node.this, run)] if run else []), single]
        run = ""
    pieces += [_formatted(node.this, run)] if run or not pieces else []
    return reduce(lambda first, second: exp.DPipe(this=first, expression=second), pieces)


def _formatted(time: Node, text: str) -> Node:
    return exp.TimeToStr(this=time.copy(), format=exp.Literal.string(text))


def _fetch(node: Node) -> Node:
    plain = node.args.get("limit_options")
    if plain is not None and (plain.args.get("percent") or plain.args.get("with_ties")):
        return node
    return exp.Limit(expression=node.args.get("count") or exp.Literal.number(1))


def _joined(select: Node) -> Node:
    """A FROM clause without brackets around joins."""
    first = select.args.get("from_")
    if first is None:
        return select
    joins = [join for nested in select.args.get("joins") or [] for join in _spread(nested)]
    inner = _relations(first.this)
    first.set("this", inner[0])
    select.set("joins", [*inner[1], *joins] or None)
    return select


def _relations(relation: Node) -> tuple[Node, list[exp.Join]]:
    """A relation, and what is joined to it inside of its brackets."""
    relation_joins = relation.args.get("joins") or []
    inner = relation.this if isinstance(relation, exp.Subquery) and not relation.alias else None
    if isinstance(inner, (exp.Table, exp.Subquery)):
        first, joins = _relations(inner)
    elif relation_joins:
        first, joins = relation, []
    else:
        return relation, []
    relation.set("joins", None)
    return first, [*joins, *(flat_join for join in relation_joins for flat_join in _spread(join))]


def _spread(join: exp.Join) -> list[exp.Join]:
    """A join to joined relations, one after the other.

    Raises:
        NotSupportedError: an outer join to an inner one, which takes both partners or none.
    """
    first, inner = _relations(join.this)
    if not inner:
        return [join]
    side = str(join.args.get("side") or "")
    if side and any(str(inner_join.args.get("side") or "") != side for inner_join in inner):
        raise parse.refusal(
            NotSupportedError, f"a {side} JOIN to joined tables takes all of their partners or none", at=first,
            clause="JOIN", hint=f"{side} JOIN them one after the other",
        )  # fmt: skip
    on = join.args.get("on")
    join.set("this", first)
    if on is not None and not side:  # it may name any of them
        join.set("on", None)
        last = inner[-1]
        last.set("on", on if last.args.get("on") is None else exp.and_(last.args["on"], on, copy=False))
    return [join, *inner]


def _constant(node: Node) -> Node:
    """A scalar subquery without FROM or any other clause is its expression."""
    select = node.this
    plain = isinstance(select, exp.Select) and {key for key, value in select.args.items() if value} == {
        "expressions"
    }
    lists = (exp.In, exp.Any, exp.All)
    in_expression = (
        isinstance(node.parent, (exp.Condition, exp.Alias, exp.Select)) and node.arg_key != "from_"
    )
    if (
        not plain
        or not in_expression
        or isinstance(node.parent, lists)
        or node.alias
        or len(select.expressions) != 1
    ):
        return node
    single = select.expressions[0]
    single = single.this if isinstance(single, exp.Alias) else single
    return (
        node
        if isinstance(single, exp.Star) or single.find(exp.Column, exp.AggFunc)
        else exp.Paren(this=single)
    )


def _width_bucket(node: Node) -> Node:
    """The number of one of equal bins, 0 below them and one more than there are above them.

    Raises:
        NotSupportedError: bounds that are no numbers, or that lie the other way round.
    """
    low, high, bins = (parse.number(node.args.get(key)) for key in ("min_value", "max_value", "num_buckets"))
    if low is None or high is None or bins is None or bins < 1 or bins != int(bins) or low >= high:
        raise parse.refusal(
            NotSupportedError,
            "WIDTH_BUCKET with these bounds",
            at=node,
            hint="write WIDTH_BUCKET(x, 0, 100, 5)",
        )
    value, bounds = node.this, (node.args["min_value"], node.args["max_value"], node.args["num_buckets"])
    text = (
        "CASE WHEN x < {0} THEN 0 WHEN x >= {1} THEN {2} + 1 WHEN x IS NULL THEN NULL "
        "ELSE CAST(FLOOR((x - {0}) * {2} / ({1} - {0})) AS INT) + 1 END"
    ).format(*(bound.sql("duckdb") for bound in bounds))
    parsed = parse_one(text, read="duckdb")
    return parsed.transform(
        lambda part: exp.Paren(this=value.copy()) if isinstance(part, exp.Column) else part
    )


SPELLINGS: dict[type[Node], Callable[[Node], Node]] = {
    exp.Anonymous: _called, exp.ToChar: _to_char, exp.Fetch: _fetch, exp.EQ: _compared, exp.NEQ: _any_of,
    exp.Select: _joined, exp.UnixToTime: _since_1970, exp.Subquery: _constant, exp.WidthBucket: _width_bucket,
}  # fmt: skip
"""Node types of such spellings."""


WORDS = ("rollup", "cube", "grouping_sets")
MOST = 64
"""Branches that one statement may have."""

Keys = tuple[Node, ...]


def spread_sets(tree: Node, schema: Schema) -> Node:
    """A statement in which every SELECT has at most one list of keys.

    Args:
        tree: a parsed statement; changed in place.
        schema: the star.

    Returns:
        The statement.

    Raises:
        NotSupportedError: more than MOST lists of keys.
    """
    for select in list(tree.find_all(exp.Select)):
        group = select.args.get("group")
        if group is None:
            continue
        listed = any(type(element) in LISTS for element in _elements(group))
        if not listed and not any(part.find(exp.Grouping) for part in _parts(select)):
            continue
        if listed:
            # a window over groups of several lists sees all of them at once
            windowed = next(
                (expression for expression in _parts(select) if expression.find(exp.Window)), None
            )
            if windowed is not None:
                raise parse.refusal(
                    NotSupportedError, "a window over ROLLUP, CUBE or GROUPING SETS runs over the groups of all lists",
                    at=windowed, clause="SELECT",
                    hint="put the GROUP BY into a derived table, and the window around it",
                )  # fmt: skip
        _spell_out(select, group, list(chain.from_iterable(base_tables(select, schema).values())))
        union = _united(select, group)
        if select is tree:
            tree = union
        else:
            select.replace(union)
    return tree


def _spell_out(select: Node, group: Node, tables: Sequence[SchemaTable]) -> None:
    """Put expressions in the place of aliases in GROUP BY and GROUPING, under the names that items have."""
    items = [parse.named(parse.unaliased(item), parse.output_name(item)) for item in select.expressions]
    select.set("expressions", items)
    listings = [group, *(grouping for part in _parts(select) for grouping in part.find_all(exp.Grouping))]
    for column in [column for listing in listings for column in listing.find_all(exp.Column)]:
        # a column comes before an alias of its name: `age / 10 AS age .. ROLLUP (age)` is by age
        key = parse.behind(column, select, lambda called: any(t.column(called.name) for t in tables))
        if key is not column:
            column.replace(key.copy())


def _united(select: Node, group: Node) -> Node:
    sets = [tuple(chain.from_iterable(choice)) for choice in product(*_choices(group, select))]
    if len(sets) > MOST:
        raise parse.refusal(
            NotSupportedError, f"GROUP BY asks for {len(sets)} lists of keys, the limit is {MOST}",
            clause="GROUP BY", hint="name the lists that you need in GROUPING SETS",
        )  # fmt: skip
    keys = list(dict.fromkeys(chain.from_iterable(sets)))
    outer = {clause: select.args.get(clause) for clause in ("order", "limit", "offset", "with_")}
    order = outer["order"]
    names = [item.alias for item in select.expressions]
    distinct = select.args.get("distinct") is not None
    for expression in order.expressions if order is not None else ():
        expression.set("this", _place(expression.this, select, distinct))
    for clause in outer:
        select.set(clause, None)
    branches = [_branch(select, grouping_set, keys) for grouping_set in sets]
    union = reduce(lambda left, right: exp.Union(this=left, expression=right, distinct=distinct), branches)
    if len(names) < len(select.expressions):  # the union orders by columns that are not shown
        alias = exp.TableAlias(this=exp.to_identifier("dp_sets"))
        source = exp.From(this=exp.Subquery(this=union, alias=alias))
        union = exp.Select(
            expressions=[parse.named(parse.quoted_column(name), name) for name in names], from_=source
        )
    for clause, value in outer.items():
        union.set(clause, value)
    return union


def _parts(select: Node) -> list[Node]:
    """Expressions that a SELECT computes over its groups."""
    clauses = (select.args.get(clause) for clause in ("having", "qualify", "order"))
    return [*select.expressions, *(clause for clause in clauses if clause is not None)]


def _elements(group: Node) -> list[Node]:
    """The elements of GROUP BY; `a, b WITH ROLLUP` has an empty list, which stands for all keys before it."""
    lists = [element for word in WORDS for element in group.args.get(word) or []]
    if len(lists) == 1 and not lists[0].expressions:
        return [type(lists[0])(expressions=group.expressions)]
    return [*group.expressions, *lists]


def _choices(group: Node, select: Node) -> list[list[Keys]]:
    """For each element of GROUP BY the lists of keys that it stands for."""
    choices: list[list[Keys]] = []
    for element in _elements(group):
        lists = LISTS.get(type(element))
        keys = [_keys(member, select) for member in (element.expressions if lists else [element])]
        choices.append([tuple(chain.from_iterable(choice)) for choice in (lists(keys) if lists else [keys])])
    return choices


LISTS: dict[type[Node], Callable[[list[Keys]], list[list[Keys]]]] = {
    exp.Rollup: lambda keys: [keys[:stop] for stop in range(len(keys), -1, -1)],
    exp.Cube: lambda keys: [
        list(some) for size in range(len(keys), -1, -1) for some in combinations(keys, size)
    ],
    exp.GroupingSets: lambda keys: [[key] for key in keys],
}
"""Elements that stand for several lists of keys."""


def _keys(element: Node, select: Node) -> Keys:
    """The keys of one element: one, or several in brackets."""
    if isinstance(element, exp.Paren):
        return _keys(element.this, select)
    inner = element.expressions if isinstance(element, exp.Tuple) else [element]
    return tuple(parse.ordinal(key, select) for key in inner)


def _place(key: Node, select: Node, distinct: bool) -> Node:
    """Ordering expression valid in a union: a name, or the ordinal of the item that a key repeats; a hidden
    item's name where a key is neither."""
    for place, projection in enumerate(select.expressions, 1):
        if parse.unaliased(projection) == key:
            return exp.Literal.number(place)
    plain = isinstance(key, exp.Literal) or (isinstance(key, exp.Column) and not key.table)
    if plain or distinct:
        return key
    name = f"dp_order_{len(select.expressions)}"
    select.append("expressions", parse.named(key.copy(), name))
    return parse.quoted_column(name)


def _branch(select: Node, grouping_set: Keys, keys: list[Node]) -> Node:
    """The SELECT by some of the keys; the others are NULL in it."""
    branch = select.copy()
    away = [key for key in keys if key not in grouping_set]
    for item in branch.expressions:
        item.set("this", _without(item.this, away, grouping_set, select))
    having = branch.args.get("having")
    if having is not None:
        branch.set("having", exp.Having(this=_without(having.this, away, grouping_set, select)))
    branch.set("group", exp.Group(expressions=[key.copy() for key in grouping_set]) if grouping_set else None)
    return branch


def _among(node: Node, keys: Iterable[Node]) -> bool:
    """True if an expression is one of some keys; a column may have its table before it or not."""

    def same(key: Node) -> bool:
        columns = isinstance(node, exp.Column) and isinstance(key, exp.Column)
        tables = {node.text("table").lower(), key.text("table").lower()}
        return node == key or (
            columns and node.name.lower() == key.name.lower() and (len(tables) == 1 or "" in tables)
        )

    return any(map(same, keys))


def _without(node: Node, away: list[Node], grouping_set: Keys, select: Node) -> Node:
    """An expression with NULL for keys that are not grouped by, outside of aggregates; GROUPING(key) says which."""
    if isinstance(node, exp.Grouping):
        bits = [int(not _among(parse.ordinal(key, select), grouping_set)) for key in node.expressions]
        return exp.Literal.number(reduce(lambda mask, bit: 2 * mask + bit, bits, 0))
    if _among(node, away) and not _among(node, grouping_set):
        return exp.null()
    if not parse.is_aggregate(node):
        for child in list(node.iter_expressions()):
            child.replace(_without(child, away, grouping_set, select))
    return node
