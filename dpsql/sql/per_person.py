"""Rows of one fact grouped by the person, as rows of the people's table and columns that the catalog made of them.

    FROM (SELECT customer_id, COUNT(*) AS n FROM sales GROUP BY customer_id HAVING COUNT(*) >= 3) q
    FROM (SELECT customer_id, visits AS n FROM customer WHERE visits >= 1 AND visits >= 3) q

An aggregate with its WHERE and FILTER is a column if a summary of the catalog has its spelling
(`dpsql.row_expressions.aggregate`). People without such rows have no group, so a condition leaves them out: a count
that is at least 1, or a least value that is not NULL. SUM is NULL where there is nothing to add and a summary's sum is
0, so a count beside it must say which. What cannot be told is refused, with the line that a catalog would need.

| written | becomes |
|---|---|
| a derived table, a CTE | rows of the people's table |
| `key IN (SELECT key FROM fact .. GROUP BY key HAVING ..)` | a condition on her columns |
| `.. JOIN people USING (key)` beside one | the same rows |
| `people LEFT JOIN (..) USING (key)` | all people; NULL for those without such rows |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.planner.schema import PersonFact, Schema, SchemaTable
from dpsql.row_expressions.aggregate import Aggregate, both, catalog_text, read_call, spelling
from dpsql.row_expressions.expression import ColumnName, Node
from dpsql.sql.parse import aggregates, behind, conjuncts, group_keys, named, output_name, refusal, unaliased

NOTE = "people without a row of {} are left out, and so are rows whose key is NULL or names nobody"
"""What SQL over raw rows does otherwise: it makes a group of the NULL key and of each key that names nobody."""
PLAIN = ("with_", "limit", "offset", "qualify", "windows")
CONDITIONAL = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Like, exp.ILike)
"""Conditions that are not true where one of their columns is NULL."""
NAMES = {
    "count": "visits",
    "sum": "total",
    "min": "least",
    "max": "greatest",
    "bool_or": "any_row",
    "bool_and": "every_row",
}


class MissingSummary(NotSupportedError):
    """No column of the people's table holds an aggregate; `wanted`: the fact and the `is` of one that would."""

    wanted: tuple[str, str] = ("", "")


def map_people(tree: Node, schema: Schema) -> tuple[str, ...]:
    """Replace every query that groups rows of a fact by the person.

    Args:
        tree: a parsed statement; changed in place.
        schema: the star.

    Returns:
        What a reader should know of the rows.

    Raises:
        NotSupportedError: no column of the people's table holds what one asks for; says the line that would.
    """
    people = schema.table(schema.unit.table) if schema.unit is not None else None
    if people is None or people.key is None:
        return ()
    if any((c.table, c.column) == (people.name, people.key) for axis in schema.axes for c in axis.columns):
        return ()  # the key itself is published: grouping by it is a query like any other
    notes: dict[str, None] = {}
    for query in [node for node in tree.find_all(exp.Select) if _is_inner(node)]:
        mapping = _Mapping.of(query, schema, people)
        if mapping is not None:
            mapping.replace()
            notes[NOTE.format(mapping.fact.of)] = None
    return tuple(notes)


def _is_inner(query: exp.Select) -> bool:
    """True if a SELECT stands in FROM, in a CTE or behind IN."""
    above = query.parent
    if isinstance(above, exp.Subquery):
        above = above.parent
        return isinstance(above, exp.From | exp.Join | exp.In)
    return isinstance(above, exp.CTE | exp.In)


@dataclass
class _Mapping:
    """One query over the rows of a fact, by person.

    Args:
        query: the SELECT.
        schema: the star.
        people: their table.
        fact: the fact.
        places: alias or name of a relation of FROM, in lower case -> foreign keys from the fact to it.
        required: foreign keys to tables without whose row a fact row is left out.
        condition: what rows must meet, without conditions on the people's own columns.
        outside: conditions on the people's own columns.
        needs: columns that tell whether a SUM is NULL.
    """

    query: exp.Select
    schema: Schema
    people: SchemaTable
    fact: PersonFact
    places: dict[str, tuple[str, ...]] = field(default_factory=dict)
    required: list[tuple[str, ...]] = field(default_factory=list)
    condition: Node | None = None
    outside: list[Node] = field(default_factory=list)

    @classmethod
    def of(cls, query: exp.Select, schema: Schema, people: SchemaTable) -> _Mapping | None:
        """The mapping of a query that groups by the person; None for every other one."""
        source = query.args.get("from_")
        table = source.this if source is not None else None
        if not isinstance(table, exp.Table) or table.db.lower() not in ("", "main", "public"):
            return None
        fact = schema.person_facts.get(table.name.lower())
        if fact is None:
            return None
        mapping = cls(query, schema, people, fact)
        mapping.places[table.alias_or_name.lower()] = ()
        grouped = query.args.get("group") is not None
        if not (grouped or query.args.get("distinct") is not None) or not mapping._joins():
            return None
        if not mapping._by_person():
            return None
        mapping._split()
        if not grouped and mapping.present() is None:
            return None  # whose keys there are is a question that other views may answer
        return mapping

    def _joins(self) -> bool:
        """Read the joins along declared keys; False where there are others and the query is not by person."""
        for join in self.query.args.get("joins") or []:
            place = self._joined(join)
            if place is None and self._by_person():
                of = self.fact.of
                raise self._refused(
                    f"rows of {of} by person are joined to something else than by a declared key", join
                )
            if place is None:
                return False
            self.places[join.this.alias_or_name.lower()] = place
            on_the_way = place == self.fact.path[: len(place)]
            if not on_the_way and str(join.args.get("side") or "").upper() != "LEFT":
                self.required.append(place)
        return True

    def _by_person(self) -> bool:
        return any(map(self._is_key, self._keys()))

    def _joined(self, join: exp.Join) -> tuple[str, ...] | None:
        """Foreign keys to the table of a join; None where it is no join along one."""
        target = self.schema.table(join.this.name) if isinstance(join.this, exp.Table) else None
        side = str(join.args.get("side") or "").upper()
        if target is None or target.key is None or side not in ("", "LEFT") or join.args.get("method"):
            return None
        using = [name.name.lower() for name in join.args.get("using") or []]
        equal = [test for test in conjuncts(join.args.get("on")) if isinstance(test, exp.EQ)]
        if len(using) + len(conjuncts(join.args.get("on"))) != 1 or len(using) + len(equal) != 1:
            return None
        alias = join.this.alias_or_name.lower()
        foreign = using
        if equal:
            sides = (equal[0].this, equal[0].expression)
            keys = [s for s in sides if isinstance(s, exp.Column) and s.table.lower() == alias]
            others = [s for s in sides if isinstance(s, exp.Column) and s.table.lower() != alias]
            if len(keys) != 1 or len(others) != 1 or keys[0].name.lower() != target.key.lower():
                return None
            foreign = [others[0].name.lower()]
        elif using[0] != target.key.lower():
            return None
        for place in list(dict.fromkeys(self.places.values())):
            table = self._table(place)
            column = next((name for name in table.foreign_keys if name.lower() == foreign[0]), None)
            if column is not None and table.foreign_keys[column].lower() == target.name.lower():
                return (*place, column)
        return None

    def _table(self, place: tuple[str, ...]) -> SchemaTable:
        table = self.schema.table(self.fact.of)
        for column in place:
            assert table is not None
            table = self.schema.table(table.foreign_keys[column])
        assert table is not None
        return table

    def _meaning(self, column: exp.Column) -> tuple[tuple[str, ...], str] | None:
        """The place and the catalog's spelling of a column."""
        for alias, place in self.places.items():
            name = self._table(place).column(column.name)
            if name is not None and column.table.lower() in ("", alias):
                return place, name
        return None

    def _is_key(self, node: Node) -> bool:
        """True if an expression is the person's key, on the fact, on the way or in the people's table."""
        meaning = self._meaning(node) if isinstance(node, exp.Column) else None
        if meaning is None:
            return False
        place, name = meaning
        return (*place, name) == self.fact.path or (place == self.fact.path and name == self.people.key)

    def _is_hers(self, node: Node) -> bool:
        """True if an expression has columns of the people's table alone."""
        columns = [self._meaning(column) for column in node.find_all(exp.Column)]
        return bool(columns) and all(
            meaning is not None and meaning[0] == self.fact.path for meaning in columns
        )

    def _keys(self) -> list[Node]:
        """GROUP BY expressions, ordinals and aliases replaced; all of the select list of SELECT DISTINCT."""
        if self.query.args.get("group") is None:
            return [unaliased(projection) for projection in self.query.expressions]
        return [
            behind(key, self.query, lambda column: self._meaning(column) is not None)
            for key in group_keys(self.query)
        ]

    def _split(self) -> None:
        """Conditions on rows, and conditions on the people's own columns."""
        for key in self._keys():
            if not (self._is_key(key) or self._is_hers(key)):
                raise self._refused(f"{key.sql()} is not a column of {self.people.name}", key)
        if any(self.query.args.get(clause) for clause in PLAIN):
            raise self._refused("LIMIT, OFFSET and QUALIFY pick rows of people", self.query)
        where = self.query.args.get("where")
        rows: list[Node] = []
        for test in conjuncts(where.this if where is not None else None):
            if test.find(exp.Query) is not None:
                raise self._refused("a query inside the condition", test)
            if _is_not_null(test) and self._is_key(test.this.this):
                continue
            (self.outside if self._is_hers(test) else rows).append(test)
        self.condition = exp.and_(*[test.copy() for test in rows]) if rows else None
        for place in self.required:
            if not any(self._needs(test, place) for test in rows):
                name = self._table(place).name
                raise self._refused(
                    f"the JOIN leaves out rows without a partner in {name}, and no column counts the others",
                    self.query, hint=f"LEFT JOIN {name}, or leave it out",
                )  # fmt: skip

    def _needs(self, test: Node, place: tuple[str, ...]) -> bool:
        """True if a condition is not true of rows without a partner at a place."""
        columns = [self._meaning(column) for column in test.find_all(exp.Column)]
        return isinstance(test, CONDITIONAL) and any(m is not None and m[0] == place for m in columns)

    def _spelt(self, column: ColumnName) -> str:
        """A column's spelling, as `SummaryInput.spelling` has it."""
        meaning = self._meaning(exp.column(column.name, column.table))
        return ".".join(column) if meaning is None else ".".join((*meaning[0], meaning[1])).lower()

    def _column(self, call: Aggregate) -> exp.Column | None:
        """The column of the people's table that holds an aggregate of all rows; None where there is none."""
        name = self.fact.summaries.get(spelling(call, self._spelt))
        return None if name is None else self._own(name)

    def _over(self, call: Aggregate) -> Aggregate:
        """An aggregate of the query, over the rows that its WHERE leaves.

        Rows where its argument is NULL count for nothing, so `WHERE x IS NOT NULL` says nothing of COUNT(x).
        """
        tests = conjuncts(self.condition)
        value = call.arguments[0] if len(call.arguments) == 1 else None
        if isinstance(value, exp.Column):
            tests = [test for test in tests if not (_is_not_null(test) and self._same(test.this.this, value))]
        if not tests:
            return call
        return call._replace(condition=both(exp.and_(*[test.copy() for test in tests]), call.condition))

    def _own(self, name: str) -> exp.Column:
        return exp.column(
            exp.to_identifier(name, quoted=True), exp.to_identifier(self.people.name, quoted=True)
        )

    def _value(self, node: Node) -> Node:
        """Replacement of one aggregate of the query."""
        call = read_call(node)
        inner = None if call is None else self._over(call)
        column = None if inner is None else self._column(inner)
        if call is None or inner is None or column is None:
            raise self._missing(inner, node)
        if call.function in ("mode", "arg_min", "arg_max"):
            raise self._refused(
                f"{call.function.upper()} picks among equals by chance",
                node,
                hint=f"write the column {column.name}",
            )
        if call.function != "sum" or (call.condition is None and not self._may_be_null(call.arguments[0])):
            return column
        # SUM is NULL where there is nothing to add, and the column is 0
        plain = (
            None
            if self._may_be_null(call.arguments[0])
            else self._column(Aggregate("count", condition=inner.condition))
        )
        count = plain or self._column(inner._replace(function="count"))
        if count is None:
            raise self._missing(inner._replace(function="count"), node)
        return exp.Case(ifs=[exp.If(this=_at_least_one(count), true=column)])

    def _may_be_null(self, node: Node) -> bool:
        """True if the catalog says that a value may be NULL; what is no plain column may."""
        meaning = self._meaning(node) if isinstance(node, exp.Column) else None
        return meaning is None or meaning[1] in self._table(meaning[0]).nullable

    def present(self, parts: Sequence[Node] = ()) -> Node | None:
        """The condition that she has a row that meets the query's condition; None where no summary tells.

        Args:
            parts: what else the query reads of her: a condition on the same columns needs no view of more of them.
        """
        read = {column.name for part in parts for column in part.find_all(exp.Column)}
        tests = list(self._presences())
        return min(tests, key=lambda test: next(test.find_all(exp.Column)).name not in read, default=None)

    def _presences(self) -> Iterator[Node]:
        """Every condition over one summary that says the same: a row that meets the query's condition is there."""
        count = self._column(Aggregate("count", condition=self.condition))
        if count is not None:
            yield _at_least_one(count)
        met = None if self.condition is None else self._column(Aggregate("bool_or", (self.condition,)))
        if met is not None:
            yield met
        facts = self._table(())
        for column in facts.columns.values():
            value = exp.column(column)
            if self._may_be_null(value) and not self._is_never_null(value):
                continue
            counted = self._column(self._over(Aggregate("count", (value,))))
            if counted is not None:
                yield _at_least_one(counted)
            for function in ("min", "max"):
                extreme = self._column(self._over(Aggregate(function, (value,))))
                if extreme is not None:
                    yield exp.Not(this=exp.Is(this=extreme, expression=exp.Null()))

    def _is_never_null(self, value: exp.Column) -> bool:
        """True if the query's condition leaves out rows where a column of the fact is NULL."""
        tests = conjuncts(self.condition)
        return any(
            (_is_not_null(test) and self._same(test.this.this, value))
            or (
                isinstance(test, CONDITIONAL) and any(self._same(c, value) for c in test.find_all(exp.Column))
            )
            for test in tests
        )

    def _same(self, node: Node, value: exp.Column) -> bool:
        return isinstance(node, exp.Column) and self._meaning(node) == self._meaning(value) is not None

    def _mapped(self, node: Node) -> Node:
        """An expression over groups, as one over the people's columns."""
        root = exp.Paren(this=node.copy())
        for call in list(aggregates(root)):
            whole = call
            while isinstance(whole.parent, exp.Filter | exp.WithinGroup):
                whole = whole.parent
            whole.replace(_bracketed(self._value(whole)))
        for column in list(root.find_all(exp.Column)):
            if column.table.lower() == self.people.name.lower() and column.this.quoted:
                continue
            meaning = self._meaning(column)
            if self._is_key(column):
                column.replace(self._own(str(self.people.key)))
            elif meaning is not None and meaning[0] == self.fact.path:
                column.replace(self._own(meaning[1]))
            else:
                raise self._refused(
                    f"{column.sql()} is neither a column of {self.people.name} nor an aggregate", column
                )
        mapped: Node = root.this
        return mapped

    def replace(self) -> None:
        """Put rows of the people's table in the place of the query."""
        items = [(output_name(p), self._mapped(unaliased(p))) for p in self._items()]
        having = self.query.args.get("having")
        tests = [self._mapped(test) for test in self.outside]
        tests += [self._mapped(test) for test in conjuncts(having.this if having is not None else None)]
        present = self.present([*(value for _, value in items), *tests])
        if not any(map(_tells_rows, tests)):
            if present is None:
                once = "" if tests else self._counted_once()
                raise self._missing(Aggregate("count", condition=self.condition), self.query, once)
            tests = [present, *tests]
        conditions = tests
        above = self.query.parent
        if isinstance(above, exp.Subquery) and isinstance(above.parent, exp.In):
            above = above.parent
        if isinstance(above, exp.In):
            if self._in_people(above, conditions):
                return
        else:
            items, conditions = self._beside_people(items, conditions)
        plain = exp.Select(expressions=[named(value, name) for name, value in items])
        plain.set("from_", exp.From(this=exp.Table(this=exp.to_identifier(self.people.name, quoted=True))))
        if conditions:
            plain.set("where", exp.Where(this=exp.and_(*map(_bracketed, conditions))))
        self.query.replace(plain)

    def _counted_once(self) -> str:
        """Of a list of keys alone, what counts those who are in it without a summary; else nothing."""
        key, *others = map(unaliased, self._items())
        if others or not isinstance(key, exp.Column) or not self._is_key(key):
            return ""
        return f"; COUNT(DISTINCT {key.name}) counts each of them once, with the same WHERE"

    def _items(self) -> list[Node]:
        if any(isinstance(projection, exp.Star) for projection in self.query.expressions):
            raise self._refused("SELECT * over people", self.query)
        return list(self.query.expressions)

    def _in_people(self, node: exp.In, conditions: list[Node]) -> bool:
        """Over the people's table alone IN is the condition itself; NULL keys make NOT IN another question."""
        above: Node | None = node.parent
        while above is not None and not isinstance(above, exp.Select):
            if isinstance(above, exp.Not):
                raise self._refused(
                    "NOT IN is never true if a row has no key", node, hint="ask for the others"
                )
            above = above.parent
        source = above.args.get("from_") if above is not None else None
        over = isinstance(source, exp.From) and isinstance(source.this, exp.Table)
        if not over or source.this.name.lower() != self.people.name.lower() or above.args.get("joins"):  # type: ignore[union-attr]
            return False
        alias = source.this.alias_or_name  # type: ignore[union-attr]
        test = exp.Paren(this=exp.and_(*[_bracketed(condition) for condition in conditions]))
        for column in test.find_all(exp.Column):
            column.set("table", exp.to_identifier(alias, quoted=True))
        node.replace(test)
        return True

    def _beside_people(
        self, items: list[tuple[str, Node]], conditions: list[Node]
    ) -> tuple[list[tuple[str, Node]], list[Node]]:
        """The same rows with all of the person's columns, where the outer query joins them to her row by her key."""
        relation = self._relation()
        above = relation.parent if relation is not None else None
        select = above.parent if above is not None else None
        joins = select.args.get("joins") if isinstance(select, exp.Select) else None
        if relation is None or not isinstance(select, exp.Select) or joins is None or len(joins) != 1:
            return items, conditions
        first, join = select.args["from_"].this, joins[0]
        people = join.this if relation is first else first
        if not isinstance(people, exp.Table) or people.name.lower() != self.people.name.lower():
            return items, conditions
        keys = [
            name for name, value in items if isinstance(value, exp.Column) and value.name == self.people.key
        ]
        if not self._by_key(join, people, relation, keys):
            return items, conditions
        alias, left = (
            relation.alias_or_name,
            str(join.args.get("side") or "").upper() == "LEFT" and relation is not first,
        )
        if left:
            met = exp.and_(*map(_bracketed, conditions))
            items = [
                (name, value if name in keys else exp.Case(ifs=[exp.If(this=met.copy(), true=value)]))
                for name, value in items
            ]
        made = {name.lower() for name, _ in items} - {name.lower() for name in keys}
        select.set("joins", None)
        select.set("from_", exp.From(this=relation))
        for column in select.find_all(exp.Column):
            if column.table.lower() == people.alias_or_name.lower():
                if column.name.lower() in made:
                    raise self._refused(
                        f"{column.sql()} has the name of another column", column, hint="rename one"
                    )
                column.set("table", exp.to_identifier(alias, quoted=True))
            elif left and column.table.lower() == alias.lower() and column.name in keys:
                raise self._refused(
                    f"{column.sql()} is NULL for some", column, hint=f"use {people.alias_or_name}'s"
                )
        shown = {name.lower() for name, _ in items}
        items += [(name, self._own(name)) for low, name in self.people.columns.items() if low not in shown]
        return items, [] if left else conditions

    def _relation(self) -> Node | None:
        """Relation of the query's rows: its own place in FROM, or the only one that names its CTE."""
        above = self.query.parent
        if not isinstance(above, exp.CTE):
            return above
        root = above.root()
        uses = [
            table
            for table in root.find_all(exp.Table)
            if table.name.lower() == above.alias.lower() and not table.db
        ]
        return uses[0] if len(uses) == 1 else None

    def _by_key(self, join: exp.Join, people: Node, relation: Node, keys: list[str]) -> bool:
        """True if a join says that the person is the same."""
        side, using = str(join.args.get("side") or "").upper(), join.args.get("using") or []
        if side not in ("", "LEFT") or join.args.get("method"):
            return False
        if using:
            return [name.name.lower() for name in using] == [str(self.people.key).lower()] and bool(keys)
        tests = conjuncts(join.args.get("on"))
        if len(tests) != 1 or not isinstance(tests[0], exp.EQ):
            return False
        sides = {
            (column.table.lower(), column.name.lower())
            for column in (tests[0].this, tests[0].expression)
            if isinstance(column, exp.Column)
        }
        hers = (people.alias_or_name.lower(), str(self.people.key).lower())
        return any(sides == {hers, (relation.alias_or_name.lower(), name.lower())} for name in keys)

    def _missing(self, call: Aggregate | None, node: Node, beside: str = "") -> NotSupportedError:
        """No column holds an aggregate: the line that would, and what may be asked without it."""
        people, of = self.people.name, self.fact.of
        if call is None:
            return self._refused(
                f"{node.sql()} by person is not one of count, sum, min, max, bool_or and bool_and of rows",
                node,
            )
        text = catalog_text(call, self._written)
        shown = text.replace("count(", "COUNT(") if text == "count(*)" else text
        name = NAMES.get(call.function, "value")
        quoted = f'"{text}"' if any(mark in text for mark in ",:'") else text
        error = refusal(
            MissingSummary,
            f"no column of `{people}` contains {shown} of {of}",
            at=node,
            clause="FROM",
            hint=f"ask the curator for `{name}: {{of: {of}, is: {quoted}, ..}}` under its summaries{beside}",
        )
        error.wanted = (of, text)
        return error

    def _written(self, column: exp.Column) -> str:
        """A column as `is` writes it."""
        meaning = self._meaning(column)
        if meaning is None or not meaning[0]:
            return column.name
        return f"{self._table(meaning[0]).name}.{meaning[1]}"

    def _refused(self, reason: str, at: Node, hint: str = "") -> NotSupportedError:
        default = (
            f"ask over {self.people.name} and its columns, or ask the curator for one under its summaries"
        )
        return refusal(NotSupportedError, reason, at=at, clause="FROM", hint=hint or default)


def _is_not_null(node: Node) -> bool:
    inner = node.this if isinstance(node, exp.Not) else None
    return isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null)


def _at_least_one(column: Node) -> Node:
    return exp.GTE(this=column, expression=exp.Literal.number(1))


def _tells_rows(test: Node) -> bool:
    """True if a condition is true of nobody without rows: it compares a CASE that is NULL for her with a
    constant."""
    sides = [side for side in (test.this, test.args.get("expression")) if isinstance(side, Node)]
    cases = [side for side in sides if isinstance(side.unnest(), exp.Case)]
    return (
        isinstance(test, CONDITIONAL)
        and len(cases) == 1
        and all(c.unnest().args.get("default") is None for c in cases)
    )


def _bracketed(node: Node) -> Node:
    return exp.Paren(this=node) if isinstance(node, exp.Binary | exp.Unary | exp.Case | exp.Between) else node
