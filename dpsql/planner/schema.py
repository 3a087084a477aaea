"""The star that a release answers about: tables, keys, columns and axes, read from its public meta.

What a block asks of it are plain values, free of parser types: columns, conditions and noisy terms. Conditions and
group expressions are DuckDB text over placeholder columns `dp_c0, dp_c1, ..`; the planner decides for each view which
axis a placeholder lives on.

`information_schema`, as BI tools read it, is made of the same: the tables, the wide tables, and their columns.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from dpsql.catalog import Catalog
from dpsql.catalog.base import MeasureName
from dpsql.catalog.graph import own_path
from dpsql.catalog.summaries import summaries_of, summary_spelling
from dpsql.catalog.tables import Table
from dpsql.errors import CatalogError
from dpsql.release import AxisMeta, ColumnMeta, Release
from dpsql.row_expressions.expression import RANGES, calendar_field, parse_one


@dataclass(frozen=True)
class ColumnRef:
    """A column of the star: foreign-key path from the block's root table, table, column.

    Args:
        path, table, column: where it is.
        partner: stands for whether a row has a partner at the end of the path, whose key the column is.
    """

    path: tuple[str, ...]
    table: str
    column: str
    partner: bool = False

    def __str__(self) -> str:
        """Path and name, as plans and refusals say it."""
        if self.partner:
            return f"the join along {'.'.join(self.path)}"
        return f"{'.'.join((*self.path, ''))}{self.table}.{self.column}"


Bound: TypeAlias = int | Decimal | date
"""What a column is compared with."""


class Comparison(NamedTuple):
    """A column compared with a constant.

    Args:
        column: number of the column's placeholder.
        operator: `<`, `<=`, `=` and so on, as a function of two values.
        constant: a number without an exponent, or a day.
    """

    column: int
    operator: Callable[[Any, Any], Any]
    constant: Bound


@dataclass(frozen=True)
class Expression:
    """A scalar expression over placeholder columns.

    Args:
        sql: DuckDB text that names columns `dp_c<i>`.
        columns: the i that occur.
        monotone: built of comparisons and monotone functions alone: what an axis without single values takes.
        span: first and last character of it in the statement, or None.
        words: gives the same for people: without guards, with the star's names in place of placeholders.
        comparisons: comparisons that must all be true, if the expression is nothing more.
        starts: first characters in the statement of the constants that it was written with.
        exchanged: other texts by these places -> the expression over them.
        choices: number of constants of which a column is one, as 2 in `column IN (3, 4)` and 1 in `column = 3`; 0 for
            any other expression.
        barred: the same of constants of which it is none, as 1 in `column <> 3`.
        of_null: whether it is `column IS NULL` or `column IS NOT NULL`, or says which leaves are of the domain.
    """

    sql: str
    columns: frozenset[int]
    monotone: bool = field(default=True, compare=False)
    span: tuple[int, int] | None = field(default=None, compare=False)
    words: Callable[[], str] = field(default=str, compare=False, repr=False)
    comparisons: tuple[Comparison, ...] = field(default=(), compare=False, repr=False)
    starts: tuple[int, ...] = field(default=(), compare=False, repr=False)
    exchanged: Callable[[Mapping[int, str]], Expression] | None = field(
        default=None, compare=False, repr=False
    )
    choices: int = field(default=0, compare=False, repr=False)
    barred: int = field(default=0, compare=False, repr=False)
    of_null: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True)
class Predicate:
    """True where the expression is true; with `negated`, true where it is false or unknown."""

    expression: Expression
    negated: bool = False


@dataclass(frozen=True)
class Always:
    """A condition that is the same for every row."""

    value: bool


@dataclass(frozen=True)
class Every:
    """True where all parts are."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Some:
    """True where at least one part is."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = "Predicate | Always | Every | Some"
TRUE, FALSE = Always(True), Always(False)


def every(parts: list[Condition]) -> Condition:
    """The conjunction, flattened and shortened.

    >>> every([TRUE, FALSE])
    Always(value=False)
    """
    flat: dict[Condition, None] = {}
    for operand in parts:
        flat |= dict.fromkeys(conjuncts(operand))
    if FALSE in flat:
        return FALSE
    open_parts = tuple(operand for operand in flat if operand != TRUE)
    return TRUE if not open_parts else open_parts[0] if len(open_parts) == 1 else Every(open_parts)


def some(parts: list[Condition]) -> Condition:
    """The disjunction, flattened and shortened."""
    return complement(every([complement(operand) for operand in parts]))


def complement(condition: Condition) -> Condition:
    """True exactly where the condition is not true (two-valued: unknown counts as not true)."""
    if isinstance(condition, Always):
        return Always(not condition.value)
    if isinstance(condition, Predicate):
        return Predicate(condition.expression, not condition.negated)
    operands = tuple(complement(operand) for operand in condition.parts)
    return Some(operands) if isinstance(condition, Every) else every(list(operands))


def conjuncts(condition: Condition) -> tuple[Condition, ...]:
    """Conditions that must all be true."""
    return condition.parts if isinstance(condition, Every) else (condition,)


def of_leaves(expression: Expression, test: str) -> Predicate:
    """A test of an axis's leaves, with `{}` for an expression of the axis, by whether that has a value there."""
    sql = test.format(f"({expression.sql})")
    return Predicate(replace(expression, sql=sql, comparisons=(), starts=(), exchanged=None, of_null=True))


def in_domain(factor: Expression) -> Predicate:
    """Leaves at which an expression of an axis has a value that the catalog knows."""
    return of_leaves(factor, "{} IS NOT NULL AND dp_kind <> 3")


def predicates(condition: Condition) -> Iterator[Predicate]:
    """All predicates in a condition, from left to right."""
    if isinstance(condition, Predicate):
        yield condition
    elif not isinstance(condition, Always):
        for operand in condition.parts:
            yield from predicates(operand)


@dataclass(frozen=True)
class Term:
    """COUNT or SUM of one measure over the rows of a group that meet a condition.

    Args:
        measure: as its view has it.
        condition: which rows, besides the block's WHERE.
        factor: an expression over one axis that each row's 1, or value, is multiplied by; NULL counts as 0.
    """

    measure: MeasureName
    condition: Condition = TRUE
    factor: Expression | None = None

    def __str__(self) -> str:
        """As notes and refusals call it."""
        return self.measure if self.factor is None else f"{self.measure} times {self.factor.words()}"


@dataclass(frozen=True)
class SchemaTable:
    """One table of the star.

    Args:
        name: as the catalog writes it.
        key: primary key column, or None.
        columns: lower-case name -> name, keys and foreign keys included, in catalog order.
        foreign_keys: column -> table it refers to.
        measures: declared measure name -> SQL expression over the table's columns.
        derived: derived column name -> SQL expression.
        nullable: columns that may be NULL.
        types: column -> catalog type.
        quantiles: measures whose quantiles are published.
        fact: whether the catalog calls it a fact.
        public: whether its rows are.
    """

    name: str
    key: str | None
    columns: Mapping[str, str]
    foreign_keys: Mapping[str, str]
    measures: Mapping[str, str]
    derived: Mapping[str, str]
    nullable: frozenset[str]
    types: Mapping[str, str]
    quantiles: frozenset[str]
    fact: bool
    public: bool = False

    def column(self, name: str) -> str | None:
        """The catalog's spelling of a column, or None."""
        return self.columns.get(name.lower())


class PrivacyUnit(NamedTuple):
    """Privacy unit of the catalog, where it is the rows of a table.

    Args:
        table, key: the people's table and its key.
        columns: counted table, in lower case -> columns that hold the key, as seen from it.
    """

    table: str
    key: str
    columns: Mapping[str, tuple[ColumnRef, ...]]


class PersonFact(NamedTuple):
    """A fact whose rows name people.

    Args:
        of: the fact.
        path: foreign keys from it to the people's table.
        summaries: spelling of an aggregate of a person's rows -> the column of the people's table that holds it.
    """

    of: str
    path: tuple[str, ...]
    summaries: Mapping[str, str]


@dataclass(frozen=True)
class Schema:
    """All tables of one release, what its views publish about them, and whose they are.

    Args:
        name: of the release's catalog.
        tables: by name in lower case.
        axes, measures: what its views publish.
        unit: whose the rows are.
        counted: tables whose rows some view counts, in the catalog's order.
        person_facts: facts whose rows name people, by name in lower case.
        fields: (table, column of times, field), in lower case -> the derived column of an axis that holds it.
        beside: those of them whose column has an axis beside one of the times themselves in some view.
        found: (counted table in lower case, path) where every row that counts finds a row at the end of the path.
        named: the stars of releases that are open beside it, and its own, by what they are called in lower case.
    """

    name: str
    tables: Mapping[str, SchemaTable]
    axes: tuple[AxisMeta, ...]
    measures: frozenset[MeasureName]
    unit: PrivacyUnit | None = None
    counted: tuple[str, ...] = ()
    person_facts: Mapping[str, PersonFact] = field(default_factory=dict)
    fields: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    beside: frozenset[tuple[str, str, str]] = frozenset()
    found: frozenset[tuple[str, tuple[str, ...]]] = frozenset()
    named: Mapping[str, Schema] = field(default_factory=dict, compare=False, repr=False)

    def table(self, name: str) -> SchemaTable | None:
        """The table of that name, in any case."""
        return self.tables.get(name.lower())

    def wide(self) -> dict[str, str]:
        """Names of the wide virtual tables -> their fact table."""
        facts = [table.name for table in self.tables.values() if table.fact]
        if not facts:
            return {}
        named = {self.name.lower(): facts[0]}
        if len(facts) > 1:
            named |= {f"{self.name}_{fact}".lower(): fact for fact in facts}
        return {name: fact for name, fact in named.items() if name not in self.tables}

    def axis_columns(self, ref: ColumnRef) -> list[tuple[int, ColumnMeta]]:
        """Every (axis, column of its table) that holds the referenced column, whatever its view's table."""
        return [
            (i, column)
            for i, axis in enumerate(self.axes)
            for column in axis.columns
            if _same(column, ref) or _same(column, self.twin(ref))
        ]

    def complete(self, root: str, path: tuple[str, ...]) -> bool:
        """True if the release keeps no row of a table without a partner at the end of a path."""
        along = (a for a in self.axes if a.of.lower() == root.lower() and a.path[: len(path)] == path)
        return (root.lower(), path) in self.found or any(axis.missing_leaf is None for axis in along)

    def dangles(self, root: str, ref: ColumnRef) -> bool:
        """True if a column is a foreign key that may be NULL, or name no row, in rows that the release keeps."""
        return self.twin(ref) != ref and not self.complete(root, (*ref.path, ref.column))

    def anywhere(self, ref: ColumnRef, root: str) -> list[tuple[int, ColumnMeta]]:
        """Axes that list a table's rows, or those of one that it refers to, and hold the column.

        That is enough for what the catalog alone tells, whatever path leads to the table. An axis of a table before it
        lists only what that table's rows reach: the countries of two stores are not those of `FROM country`.
        """
        return [
            (number, column) for number, column in self.reached(ref, root)
            if len(column.path) - len(ref.path) <= len(self.axes[number].path)
        ]  # fmt: skip

    def reached(self, ref: ColumnRef, root: str) -> list[tuple[int, ColumnMeta]]:
        """Axes that hold the column at the end of any path through a table, also for some of its rows alone."""
        return [
            (number, column)
            for number, axis in enumerate(self.axes)
            for column in axis.columns
            if _same(ColumnMeta(ref.path, column.table, column.column, column.name, column.type), ref)
            and column.path[len(column.path) - len(ref.path) :] == ref.path
            and self.end_of(axis.of, column.path[: len(column.path) - len(ref.path)]).lower() == root.lower()
        ]

    def end_of(self, start: str, path: tuple[str, ...]) -> str:
        """The table at the end of a path of foreign keys; empty where there is none."""
        table = self.table(start)
        for key in path:
            table = None if table is None else self.table(table.foreign_keys.get(key, ""))
        return "" if table is None else table.name

    def public_rows(self, name: str) -> tuple[int, tuple[ColumnMeta, ...]] | None:
        """The axis that has every row of a public table, and the table's columns there; None where no axis has."""
        table = self.table(name)
        for number, axis in enumerate(self.axes if table is not None and table.public else ()):
            columns = tuple(c for c in axis.columns if c.path == axis.path and c.table == axis.table)
            if axis.table == table.name and any(column.column == table.key for column in columns):  # type: ignore[union-attr]
                return number, columns
        return None

    def example(self, name: str) -> str:
        """A statement about a table, or else about another one, that is answered; what a refusal shows."""
        counted = {table.lower(): table for table in self.counted}
        if name.lower() in counted:
            return f"SELECT COUNT(*) FROM {name}"
        if self.public_rows(name) is not None:
            return f"SELECT * FROM {name}"
        columns = (c.column for axis in self.axes for c in axis.columns if c.table.lower() == name.lower())
        if column := next(columns, None):
            return f"SELECT DISTINCT {column} FROM {name}"
        return f"SELECT COUNT(*) FROM {self.counted[0]}" if self.counted else ""

    def people_hint(self, name: str) -> str:
        """Another way to count people, where no view counts rows of their own table; empty of any other table."""
        if self.unit is None or name.lower() != self.unit.table.lower():
            return ""
        return f"COUNT(DISTINCT {self.unit.key}) of a fact counts the people who have rows there"

    def twin(self, ref: ColumnRef) -> ColumnRef:
        """A foreign key's value is the key it points at: the column one hop further on, else itself."""
        table = self.table(ref.table)
        target = self.table(table.foreign_keys.get(ref.column, "")) if table else None
        if target is None or target.key is None:
            return ref
        return ColumnRef((*ref.path, ref.column), target.name, target.key)


def _same(column: ColumnMeta, ref: ColumnRef) -> bool:
    return (
        column.column.lower() == ref.column.lower()
        and column.table.lower() == ref.table.lower()
        and tuple(p.lower() for p in column.path) == tuple(p.lower() for p in ref.path)
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean ...`, or an empty string: another name that ends alike is no misspelling.

    >>> nearest("custmer", ["customer", "sales"]), nearest("yearID", ["playerID"])
    ('did you mean customer?', '')
    """
    names = {k.lower(): k for k in known}
    matches = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    alike = bool(matches) and _edits(word.lower(), matches[0]) <= max(1, (len(word) + 1) // 3)
    return f"did you mean {names[matches[0]]}?" if alike else ""


def _edits(word: str, target: str) -> int:
    """Letters to insert, remove or change."""
    previous = list(range(len(target) + 1))
    for place, letter in enumerate(word, 1):
        row = [place]
        for at, wanted in enumerate(target, 1):
            row.append(min(previous[at] + 1, row[-1] + 1, previous[at - 1] + (letter != wanted)))
        previous = row
    return previous[-1]


def read_schema(release: Release) -> Schema:
    """The schema in a release's meta table.

    Args:
        release: an open release.

    Returns:
        Its tables, axes and measures.
    """
    schema = catalog_schema(release.catalog)
    tables = dict(schema.tables)
    for axis in release.axes:
        for column in axis.columns:
            table = tables.get(column.table.lower())
            if table is not None and column.column.lower() not in table.columns:
                dict_columns = {**table.columns, column.column.lower(): column.column}
                tables[column.table.lower()] = SchemaTable(**{**vars(table), "columns": dict_columns})
    measures = frozenset(statistic.measure for statistic in release.statistics)
    counts = {statistic.of for statistic in release.statistics if statistic.measure.counts_rows}
    counted = tuple(name for name in release.catalog.tables if name in counts)
    fields = dict(_fields(tables, release))
    return replace(
        schema, name=release.name, tables=tables, axes=release.axes, measures=measures, counted=counted,
        fields=fields, beside=frozenset(_beside(fields, release)),
    )  # fmt: skip


def _beside(fields: Mapping[tuple[str, str, str], str], release: Release) -> Iterator[tuple[str, str, str]]:
    """Fields that some view has beside the times that they are derived from, each with an axis of its own."""
    for statistic in release.statistics:
        first = [release.axes[axis].columns[0] for axis in statistic.axes]
        own = {(column.table.lower(), column.column.lower()) for column in first}
        for (table, times, name), column in fields.items():
            if {(table, times), (table, column.lower())} <= own:
                yield table, times, name


def _fields(
    tables: Mapping[str, SchemaTable], release: Release
) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Fields of times that axes hold with every value that they may have: hours 8 to 18 say nothing of the others."""
    columns = {(column.table, column.column) for axis in release.axes for column in axis.columns}
    for table, column in columns:
        derived = tables[table.lower()].derived.get(column) if table.lower() in tables else None
        held = None if derived is None else calendar_field(parse_one(derived))
        spec = release.catalog.tables[table].columns.get(column) if held is not None else None
        if held is None or spec is None or spec.type != "int" or spec.lower is None or spec.upper is None:
            continue
        (low, high), (lowest, highest) = spec.bounds, RANGES[held.name]
        if low <= lowest and highest <= high:
            yield (table.lower(), held.column.lower(), held.name), column


def catalog_schema(catalog: Catalog) -> Schema:
    """The tables of a catalog and whose they are, without anything that a view publishes."""
    tables = {name.lower(): _table(name, star_table) for name, star_table in catalog.tables.items()}
    # facts from which one way leads to the people
    facts: dict[str, PersonFact] = {}
    for name, table in catalog.tables.items():
        if catalog.privacy.unit.table is None or not table.role.counted:
            continue
        summaries = {n: s for n, s in summaries_of(catalog).items() if s.of == name}
        try:
            path = own_path(catalog, name)
        except CatalogError:  # several ways, and none is chosen
            continue
        held = {summary_spelling(catalog, summary): column for column, summary in summaries.items()}
        facts[name.lower()] = PersonFact(name, path, held)
    found = frozenset((of.lower(), path) for of, table in catalog.star.tables.items() for path in table.found)
    return Schema(catalog.name, tables, (), frozenset(), _people(catalog), person_facts=facts, found=found)


def _people(catalog: Catalog) -> PrivacyUnit | None:
    """The people's table, and where rows of each counted table name them."""
    table, key = catalog.privacy.unit
    if table is None:
        return None
    columns: dict[str, tuple[ColumnRef, ...]] = {table.lower(): (ColumnRef((), table, key),)}
    for of, counted in catalog.star.tables.items():
        if counted.unit is not None:
            path, holder, column = counted.unit.path, counted.unit.table, counted.unit.column
            ends = [] if of == table else [ColumnRef((*path, column), table, key)]
            columns[of.lower()] = (ColumnRef(path, holder, column), *ends)
    return PrivacyUnit(table, key, columns)


def _table(name: str, star_table: Table) -> SchemaTable:
    foreign = {column: key.references for column, key in star_table.foreign_keys.items()}
    measures = {column: measure.expr for column, measure in star_table.measures.items()}
    names = [
        *([star_table.key] if star_table.key else []),
        *foreign,
        *star_table.columns,
        *star_table.derive,
        *measures,
    ]
    return SchemaTable(
        name=name,
        key=star_table.key,
        columns={column.lower(): column for column in names},
        foreign_keys=foreign,
        measures=measures,
        derived=dict(star_table.derive),
        nullable=frozenset(column for column, spec in star_table.columns.items() if spec.nullable),
        types={column: spec.type for column, spec in star_table.columns.items()},
        quantiles=frozenset(column for column, spec in star_table.columns.items() if spec.quantiles),
        fact=star_table.role.counted,
        public=star_table.is_public,
    )


class Listing(NamedTuple):
    """A relation made of values: its name, columns, their DuckDB types and their values."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    values: tuple[list[Any], ...]


INFORMATION = {
    "tables": ("table_catalog", "table_schema", "table_name", "table_type"),
    "columns": ("table_catalog", "table_schema", "table_name", "column_name", "ordinal_position", "column_default",
                "is_nullable", "data_type", "dp_precision"),
    "schemata": ("catalog_name", "schema_name"),
}  # fmt: skip
"""Columns of the tables of information_schema that other engines have too, and `dp_precision`: the unit in which a
release knows a column. All are text but the position."""
TYPES = {"int": "BIGINT", "decimal": "DOUBLE", "date": "DATE", "timestamp": "TIMESTAMP", "bool": "BOOLEAN"}


def data_type(kind: str) -> str:
    """The SQL type of a catalog type."""
    return TYPES.get(kind, "VARCHAR")
