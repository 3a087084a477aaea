"""Statements over all rows of a person: facts about her, and the keys that she has.

**Facts**: one line a person, made of all rows of her facts and joined to the people's table.

    rows0     the joined rows of a fact up to the column that names the person: her key k and what her summaries read
    person0   one line a key of everything that one GROUP BY gives; nth, mode and arg_min have a line of their own
    rows1     the same rows beside the lines that the next stage reads

Rows are grouped by the unit's key and by nothing else. What is ordered, summed or compared are integers of the digit
rule (`exact_units`) and texts by bytes, so neither storage, threads nor ties show in a value. A person without rows has
no line: her counts and sums are 0, all else is NULL.

`nth` numbers values; `mode` takes the most frequent value, among equals the least by bytes; `arg_min(y, x)` the least
x, among equals the least y, NULL last.

| here | there | unit |
|---|---|---|
| `people_rows` | rows of the people's table with her summaries within bounds | units of the declared type |
| `exact` | the same before bounds, as `derive` and later stages see them | the declared type |

**Privacy**: a line is a function of the rows that lead to its key, of public tables and of lines of the same key; all
such rows are read, whatever `max_ids` says. What comes out is raw.

**Keys that nobody listed**: their units; at most k keys of a unit count.

    pairs   unit, k: each once, over all counted rows that reach the column; read by every round
    p       those whose key is not listed, where some are
    c       unit, n: how many keys it has
    o       the keys of units with more than k, numbered i by value, with the unit's offset r
    w       the keys that count: all of units with at most k, k of others
    ->      key, n: how many units

Every engine runs the same text but for the words of its `Dialect`: windows and integers, no float. Where a common table
may be computed again, n comes from the scan that numbers.

| here | there | unit |
|---|---|---|
| `key_sql` | what a key is: NULL where a value is none | - |
| `pairs_statement` | who has which key | - |
| `counts_statement` | n of every key with rows | a unit |

Which of more than k keys count is a choice of the unit's own, by systematic sampling (`dpsql.engines.counting`): key i
of n counts if (i k + r) mod n < k, which exactly k of them do, each with the same chance; no key is hashed.

**Privacy**: which keys of a unit count follows from her own rows, the listed keys and the secret, so one unit moves at
most k counts, each by one. What comes back is raw and goes to `central.selection` alone.
**Source**: docs/method/rows.md, "The step", "At most tau rows of a unit".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dpsql.catalog import Catalog
from dpsql.catalog.base import GRAIN_MICROSECONDS
from dpsql.catalog.columns import CONTROL, Column
from dpsql.catalog.derived import sql_type
from dpsql.catalog.graph import KeyPath, reachable, unit_path
from dpsql.catalog.private_columns import PrivateColumn
from dpsql.catalog.summaries import SummaryInput, is_never_null, stages, summaries_of, summary_input
from dpsql.catalog.tables import Summary
from dpsql.engines.counting import is_kept
from dpsql.engines.dialect import Dialect
from dpsql.engines.expressions import exact_units
from dpsql.engines.joined_rows import ROW, PlacedRows, common_table, placed_rows, side_tables, with_tables
from dpsql.engines.values import BITS, type_word
from dpsql.errors import SourceError
from dpsql.row_expressions import aggregate
from dpsql.row_expressions.expression import ColumnName, Node, column_name, over_columns


class RowSource(Protocol):
    """Rows of an engine (`dpsql.engines.duck`)."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def columns(self) -> Mapping[str, Mapping[str, str]]: ...

    def rows(self, catalog: Catalog, table: str) -> str: ...


@dataclass(frozen=True)
class PersonLines:
    """One line a person.

    Args:
        tables: common tables, each over those before it.
        joined: their names; each has a column k.
        units: summary in lower case -> SQL of its exact value, in units of its type.
    """

    tables: tuple[str, ...]
    joined: tuple[str, ...]
    units: Mapping[str, str]


def people_rows(
    engine: RowSource, catalog: Catalog, rows: str, derived: Mapping[str, str], lines: PersonLines
) -> str:
    """FROM item for the rows of the people's table.

    Args:
        engine: where they are.
        catalog: the catalog.
        rows: the rows as the source has them.
        derived: further columns, over `ROW` and the lines.
        lines: of `person_lines`.
    """
    quoted = engine.dialect.identifier
    row, key = quoted(ROW), quoted(catalog.privacy.unit.key)
    columns = [f"{row}.*"]
    for name, summary in summaries_of(catalog).items():
        if summary.has_domain:
            columns.append(f"{within_bounds(summary, lines.units[name.lower()])} AS {quoted(name)}")
    columns += [f"{sql} AS {quoted(name)}" for name, sql in derived.items()]
    joins = " ".join(f"LEFT JOIN {name} ON {name}.k = {row}.{key}" for name in lines.joined)
    common = f"WITH {', '.join(lines.tables)} " if lines.tables else ""
    return f"({common}SELECT {', '.join(columns)} FROM {rows} AS {row} {joins})"


def within_bounds(summary: Summary, units: str) -> str:
    """SQL of a summary as an axis or a measure reads it: whole units, the nearest bound where they lie beyond it.

    Where the catalog says `other` or `drop`, what lies beyond is one unit beyond.
    """
    if not summary.ordered:
        return f"({units} = 1)" if summary.type == "bool" else units
    margin = 0 if summary.out_of_domain.nearest else 1
    low, high = summary.bounds
    clamped = f"least(greatest({units}, {low - margin}), {high + margin})"
    return f"CAST(CASE WHEN {units} IS NOT NULL THEN {clamped} END AS BIGINT)"


def typed(units: str, spec: Column) -> str:
    """SQL of DuckDB for an exact value in its own type, as row expressions see it."""
    if spec.type == "decimal" and spec.digits:
        step = f"CAST('0.{'1'.zfill(spec.digits)}' AS DECIMAL({spec.digits}, {spec.digits}))"
        return f"(CAST({units} AS DECIMAL({38 - spec.digits}, 0)) * {step})"
    if spec.type == "date":
        return f"(DATE '1970-01-01' + CAST({units} AS INTEGER))"
    if spec.type == "timestamp":
        return f"make_timestamp(CAST({units} * {GRAIN_MICROSECONDS[spec.grain]} AS BIGINT))"
    return f"({units} = 1)" if spec.type == "bool" else f"({units})"


def exact_values(catalog: Catalog, lines: PersonLines) -> dict[str, str]:
    """Summary -> SQL of DuckDB for its exact value, for `derive`."""
    return {name: typed(lines.units[name.lower()], spec) for name, spec in summaries_of(catalog).items()}


def person_lines(engine: RowSource, catalog: Catalog) -> PersonLines:
    """The common tables of all summaries, stage by stage.

    Raises:
        SourceError: the engine cannot read what one of them reads.
    """
    depths, lines = stages(catalog), PersonLines((), (), {})
    summaries = summaries_of(catalog)
    for depth in sorted(set(depths.values())):
        for of in dict.fromkeys(s.of for name, s in summaries.items() if depths[name] == depth):
            members = {n: s for n, s in summaries.items() if depths[n] == depth and s.of == of}
            lines = _FactStage(engine, catalog, of, lines).added(members)
    return lines


@dataclass
class _FactStage:
    """The summaries of one fact that one stage makes.

    Args:
        engine, catalog: where rows are.
        of: the fact.
        lines: all that is made so far.
        raw: columns of the joined rows: SQL -> name.
        read: columns of units over them: SQL -> name.
        tests: conditions over those: SQL -> name.
        paths: foreign keys to public tables that are looked up.
    """

    engine: RowSource
    catalog: Catalog
    of: str
    lines: PersonLines
    raw: dict[str, str] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    tests: dict[str, str] = field(default_factory=dict)
    paths: dict[KeyPath, None] = field(default_factory=dict)

    def added(self, members: Mapping[str, Summary]) -> PersonLines:
        """The lines with those of the members."""
        number = len(self.lines.tables)
        rows, tables, names = f"rows{number}", list[str](), list[str]()
        units = dict(self.lines.units)
        grouped: dict[str, str] = {}
        for place, (name, summary) in enumerate(members.items()):
            call = aggregate.parse_aggregate(summary.is_)
            person = f"person{number}_{place}"
            steps = self._ordered(call, summary, rows, person)
            if steps:
                names.append(person)
                tables += steps
                value = f"{person}.v"
            else:
                total = grouped.setdefault(self._total(call, summary), f"v{place}")
                value = f"person{number}.{total}"
            units[name.lower()] = f"coalesce({value}, 0)" if is_never_null(summary) else value
        if grouped:
            sums = ", ".join(f"{sql} AS {name}" for sql, name in grouped.items())
            tables.insert(0, f"person{number} AS (SELECT k, {sums} FROM {rows} GROUP BY k)")
            names.insert(0, f"person{number}")
        once = (self.engine.dialect.materialised or "") if len(tables) > 1 else ""
        tables.insert(0, f"{rows} AS {once} ({self._rows()})")
        return PersonLines((*self.lines.tables, *tables), (*self.lines.joined, *names), units)

    def _total(self, call: aggregate.Aggregate, summary: Summary) -> str:
        """SQL of an aggregate that one GROUP BY gives."""
        test = self._test(call.condition)
        if call.function in aggregate.CONDITIONS:
            value = self._over(self._test(call.arguments[0]), test)
            return f"{'max' if call.function == 'bool_or' else 'min'}({value})"
        if not call.arguments:
            return f"count({self._over('1', test)})" if test else "count(*)"
        value = self._over(self._value(call.arguments[0], summary, counted=call.function == "count"), test)
        if call.function == "sum":
            return self.engine.dialect.total(value, True)
        return f"{call.function}({'DISTINCT ' if call.distinct else ''}{value})"

    def _ordered(self, call: aggregate.Aggregate, summary: Summary, rows: str, person: str) -> list[str]:
        """The common tables of an aggregate that needs an order of values, the last with its lines (k, v).

        Orders are total over values: rows that tie are equal in all that is read of them.
        """
        if call.function not in (aggregate.NTH, "mode", "arg_min", "arg_max"):
            return []
        test = self._test(call.condition)
        value = self._value(call.arguments[0], summary)
        where = f" AND {test} = 1" if test else ""
        if call.function == aggregate.NTH:
            values = f"SELECT {'DISTINCT ' if call.distinct else ''}k, {value} AS v FROM {rows}"
            values = f"({values} WHERE {value} IS NOT NULL{where}) AS p"
            if self.engine.dialect.smallest is not None:
                smallest = self.engine.dialect.smallest("v", call.number)
                return [f"{person} AS (SELECT k, {smallest} AS v FROM {values} GROUP BY k)"]
            ranked = f"SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS i FROM {values}"
            return [f"{person} AS (SELECT k, v FROM ({ranked}) AS o WHERE i = {call.number})"]
        # two GROUP BYs and a join cost half of a window
        values, extreme = f"{person}_values", "min" if call.function == "arg_min" else "max"
        if call.function == "mode":
            weighed = f"SELECT k, {value} AS v, count(*) AS m FROM {rows} WHERE {value} IS NOT NULL{where}"
            weighed += f" GROUP BY k, {value}"
        else:
            by = self._value(call.arguments[1], summary)
            weighed = f"SELECT k, {value} AS v, {by} AS m FROM {rows} WHERE {by} IS NOT NULL{where}"
        once = self.engine.dialect.materialised or ""
        chosen = f"SELECT k, {extreme}(m) AS m FROM {values} GROUP BY k"
        lines = f"SELECT k, min(v) AS v FROM {values} JOIN ({chosen}) AS o USING (k, m) GROUP BY k"
        return [f"{values} AS {once} ({weighed})", f"{person} AS ({lines})"]

    @staticmethod
    def _over(value: str, test: str) -> str:
        return f"CASE WHEN {test} = 1 THEN {value} END" if test else value

    def _value(self, node: Node, summary: Summary, *, counted: bool = False) -> str:
        """The column of a value of each row, in units; of a declared column by its own type."""
        column = column_name(node)
        meant = None if column is None else summary_input(self.catalog, self.of, column)
        if meant is not None and meant.spec is not None:
            return self._units(meant)
        raw = self._expression(node)
        if counted:
            return self._name(self.read, raw, "x")
        return self._name(self.read, exact_units(raw, summary, None, self.engine.dialect), "x")

    def _units(self, meant: SummaryInput) -> str:
        """The column of a declared column's units."""
        if meant.person:
            return self._name(
                self.read, self._name(self.raw, self.lines.units[meant.column.lower()], "c"), "x"
            )
        sql, kind = self._source(meant)
        raw = self._name(self.raw, sql, "c")
        assert meant.spec is not None
        return self._name(self.read, exact_units(raw, meant.spec, kind, self.engine.dialect), "x")

    def _test(self, node: Node | None) -> str:
        """The column of a condition: 1, 0 or NULL; empty where there is none."""
        if node is None:
            return ""
        try:
            test = aggregate.comparison(node, self._column, self._text)
            return self._name(self.tests, f"CASE WHEN {test} THEN 1 WHEN NOT ({test}) THEN 0 END", "b")
        except aggregate.NotPlain:
            raw = self._expression(node)
        return self._name(self.read, f"CASE WHEN {raw} THEN 1 WHEN NOT {raw} THEN 0 END", "x")

    def _column(self, column: ColumnName) -> tuple[str, Column]:
        """The column of units that a condition compares, and what its constants are written as.

        Raises:
            NotPlain: the catalog does not declare it.
        """
        meant = summary_input(self.catalog, self.of, column)
        if meant.spec is None:
            raise aggregate.NotPlain
        return self._units(meant), meant.spec

    def _text(self, text: str) -> str:
        return self.engine.dialect.text(self.engine.dialect.literal(text))

    def _expression(self, node: Node) -> str:
        """The column of a row expression, NULL where it fails: DuckDB alone has such casts.

        Raises:
            SourceError: the rows are on a server.
        """
        if not self.engine.dialect.reads_any:
            raise SourceError(
                f"summaries of `{self.of}`: `{aggregate.expression_spelling(node, lambda column: column.name)}` is "
                "more than columns and comparisons with constants",
                hint="make the column in a view, name the view, and vouch for it by `trusted: true` in `source`",
            )

        def sql(column: ColumnName) -> str:
            meant = summary_input(self.catalog, self.of, column)
            if meant.person:
                assert meant.spec is not None
                return typed(self.lines.units[meant.column.lower()], meant.spec)
            text, kind = self._source(meant)
            is_text = kind == "VARCHAR" and meant.spec is not None and meant.spec.type != "string"
            return f"TRY_CAST({text} AS {sql_type(meant.spec)})" if is_text and meant.spec else text

        return self._name(self.raw, over_columns(node, sql), "c")

    def _source(self, meant: SummaryInput) -> tuple[str, str | None]:
        """SQL of a column over the joined rows, and its type."""
        self.paths |= {meant.path[:hop]: None for hop in range(1, len(meant.path) + 1)}
        table = reachable(self.catalog, self.of)[meant.path]
        columns = self.engine.columns[table].items()
        kind = next((kind for name, kind in columns if name.lower() == meant.column.lower()), None)
        return f"{_alias(meant.path)}.{self.engine.dialect.identifier(meant.column)}", kind

    @staticmethod
    def _name(names: dict[str, str], sql: str, letter: str) -> str:
        return names.setdefault(sql, f"{letter}{len(names)}")

    def _rows(self) -> str:
        """The joined rows: k, and every column that an aggregate names."""
        raw = ", ".join(["k", *(f"{sql} AS {name}" for sql, name in self.read.items())])
        tests = ", ".join(
            ["k", *self.read.values(), *(f"{sql} AS {name}" for sql, name in self.tests.items())]
        )
        read = f"SELECT {raw} FROM ({self._joined()}) AS j"
        return f"SELECT {tests} FROM ({read}) AS l" if self.tests else read

    def _joined(self) -> str:
        owner = unit_path(self.catalog, self.of)
        assert owner is not None  # `check_summaries` found it
        key = f"{_alias(owner.path)}.{self.engine.dialect.identifier(owner.column)}"
        ways = [(owner.path[: hop + 1], "JOIN") for hop in range(len(owner.path))]
        ways += [(path, "LEFT JOIN") for path in self.paths]
        joins = " ".join(self._join(path, word) for path, word in ways)
        read = [name for name in self.lines.joined if any(f"{name}." in sql for sql in self.raw)]
        joins += "".join(f" LEFT JOIN {name} ON {name}.k = {key}" for name in read)
        columns = ", ".join([f"{key} AS k", *(f"{sql} AS {name}" for sql, name in self.raw.items())])
        facts = self.engine.rows(self.catalog, self.of)
        return f"SELECT {columns} FROM {facts} AS {_alias(())} {joins} WHERE {key} IS NOT NULL"

    def _join(self, path: KeyPath, word: str) -> str:
        table = reachable(self.catalog, self.of)[path]
        quoted, rows = self.engine.dialect.identifier, self.engine.rows(self.catalog, table)
        key = quoted(str(self.catalog.tables[table].key))
        return f"{word} {rows} AS {_alias(path)} ON {_alias(path[:-1])}.{quoted(path[-1])} = {_alias(path)}.{key}"


def _alias(path: Sequence[str]) -> str:
    """The alias of a table by the foreign keys that lead to it."""
    return "r" + "".join(f"_{part.encode().hex()}" for part in path)


LARGEST_KEY = 10**18
"""Whole numbers below it are keys, as they are values of an `int` column."""


def key_sql(column: PrivateColumn, value: str, kind: str | None, dialect: Dialect) -> str:
    """SQL of the key of a raw value: NULL where it is NULL or no key.

    Args:
        column: with private keys.
        value: SQL of the raw value.
        kind: its type in DuckDB's words; None where nobody knows it.
        dialect: of the engine.

    Raises:
        SourceError: the engine cannot read a column of that type as the catalog declares it.

    **Privacy**: a total function of one value.
    """
    if column.spec.type == "int":
        return _number(column, value, kind, dialect)
    if kind != "VARCHAR" and not dialect.reads_any:
        raise _unread(column, kind, "text")
    text = dialect.text(value)
    return (
        f"CASE WHEN {dialect.octets(text)} <= {column.keys.length} AND {text} <> {dialect.literal(column.spec.other)} "
        f"AND {dialect.without(text, CONTROL)} = {text} THEN {text} END"
    )


def _number(column: PrivateColumn, value: str, kind: str | None, dialect: Dialect) -> str:
    bounds = f"> -{LARGEST_KEY} AND {{}} < {LARGEST_KEY}"
    if BITS.get(kind or ""):
        return f"CASE WHEN {value} {bounds.format(value)} THEN CAST({value} AS BIGINT) END"
    if not dialect.reads_any:
        raise _unread(column, kind, "int")
    number = f"TRY_CAST({value} AS HUGEINT)"
    exact = f"{number} = TRY_CAST({value} AS DECIMAL(38,9))"
    return f"CASE WHEN {exact} AND {number} {bounds.format(number)} THEN CAST({number} AS BIGINT) END"


def _unread(column: PrivateColumn, kind: str | None, declared: str) -> SourceError:
    what = "a derived column" if kind is None else f"a column of type {type_word(kind)}"
    return SourceError(
        f"tables.{column.table}.columns.{column.column}: {what} cannot be read there as {declared}",
        hint="give the column its type in a view of the database, and name the view",
    )


def pairs_statement(sources: Sequence[PlacedRows], clean: str, dialect: Dialect) -> str:
    """The statement of who has which key: a SELECT of `unit` and `k`; of `k` and `n` where each row is a unit.

    Args:
        sources: the counted rows that reach the column, which is `value0` of each.
        clean: SQL of a key from `value0`; NULL where it is none.
        dialect: of the engine.
    """
    tables = [table for rows in sources for table in side_tables(rows, (), dialect, ())]
    union = " UNION ALL ".join(_keys(rows, clean) for rows in sources)
    present = f"FROM ({union}) AS j WHERE k IS NOT NULL"
    if sources[0].unit is None:
        return with_tables(tables, f"SELECT k, count(*) AS n {present} GROUP BY k")
    return with_tables(tables, f"SELECT DISTINCT unit, k {present} AND unit IS NOT NULL")


def counts_statement(
    pairs: str, listed: str, most: int, offsets: Callable[[str], str] | None, dialect: Dialect
) -> str:
    """The statement that counts the units of keys.

    Args:
        pairs: what stands after FROM for the rows of `pairs_statement`.
        listed: what stands after FROM for the keys that do not count, a column `key`; empty where there are none.
        most: keys of one unit that count.
        offsets: units -> the statement of their offsets, as of `with_offsets`; None where each row is a unit.
        dialect: of the engine.

    Returns:
        A SELECT of `key` and `n`, a BIGINT above 0.
    """
    unlisted = f"{pairs} AS r WHERE NOT EXISTS (SELECT 1 FROM {listed} AS a WHERE a.key = r.k)"
    if offsets is None:
        return f"SELECT k AS key, n FROM {unlisted if listed else pairs}"
    p, kept = "p" if listed else pairs, is_kept(most, "r", dialect)
    window = "OVER (PARTITION BY unit"
    place = f"row_number() {window} ORDER BY k) AS i"
    tables = [common_table("p", f"SELECT unit, k FROM {unlisted}", dialect)] if listed else []
    if dialect.materialised is None:
        tables += [
            f"c AS (SELECT unit AS owner, k, {place}, count(*) {window}) AS n FROM {p})",
            f"w AS (SELECT k FROM ({offsets('c')}) AS o WHERE {kept})",
        ]
    else:
        joined = f"FROM {p} AS p JOIN {{}} AS u ON p.unit = u.owner"
        tables += [
            common_table("c", f"SELECT unit AS owner, count(*) AS n FROM {p} GROUP BY unit", dialect),
            f"u AS ({offsets(f'c WHERE n > {most}')})",
            f"o AS (SELECT k, {place}, n, r {joined.format('u')})",
            # whoever has no more keys than count makes no choice: a join costs a third of windows
            f"w AS (SELECT k {joined.format('c')} WHERE n <= {most} UNION ALL SELECT k FROM o WHERE {kept})",
        ]
    return with_tables(tables, "SELECT k AS key, count(*) AS n FROM w GROUP BY k")


def _keys(rows: PlacedRows, clean: str) -> str:
    """SELECT of the keys of one table's rows, with their units."""
    unit = "unit, " if rows.unit is not None else ""
    return f"SELECT {unit}{clean} AS k FROM ({placed_rows(rows, (), ())}) AS j"
