"""Columns and measures made of others: `derive` and `expr`, and what moments and quantiles of a measure are made of.

An expression sees columns that its table declares and those derived before it; text is read as the declared type, so
that a CSV file and a Parquet file mean the same. `check_binding` has the engine bind each to an empty table of the
declared types before any row is opened: what does not bind there could not be published, such as text plus a number.

`squares(sales.amount)` among a view's measures is the declared measure that variances of the column are made of:

    measures: [count, sales.amount, squares(sales.amount)]          # amount from 0 to 500, two digits

becomes the measure `squares_of_amount` of the table, with the expression `(amount - 250.00) * (amount - 250.00)`, four
digits, from 0 to M^2. M is how far a value may lie from the public middle of the declared bounds. From here on it is a
measure like any other: centred, bounded and drawn with the count and the sum.

`quantiles: true` on the column gives every view that sums it an axis of it. Its leaves are the column's `cuts`, or are
made of the declared bounds: from 0 on they narrow by a fifth each, down to 1/256 of the upper bound, so that a quantile
is as sharp for small values as for large ones; other bounds have 32 of one width.

**Privacy**: each expression is a function of one row that is NULL where it fails (`dpsql.row_expressions.expression`).
Checking them reads the catalog alone; the tables are empty. Squares and axes are functions of the catalog alone;
docs/privacy.md, "Squares and quantiles of a measure".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from decimal import Decimal

import duckdb

from dpsql.catalog.base import LARGEST_UNITS, SQUARES_OF, MeasureName, Problem, at_path, nearest
from dpsql.catalog.columns import LARGEST_SCALE, Column, Cuts
from dpsql.catalog.model import MOST_AXES, AxisSpec, CatalogFields
from dpsql.catalog.tables import Measure, Table
from dpsql.errors import CatalogError
from dpsql.row_expressions import identifier
from dpsql.row_expressions.expression import instant, row_expression
from dpsql.row_expressions.total import total_expression
from dpsql.row_expressions.typed import TotalExpression
from dpsql.scratch import scratch

MOST_CHARACTERS = 64 * 1024
"""What an expression may become with those it is derived from put in."""


def sql_type(column: Column) -> str:
    """The engine's type of a declared column."""
    kinds = {
        "int": "BIGINT",
        "string": "VARCHAR",
        "bool": "BOOLEAN",
        "decimal": f"DECIMAL(18,{column.digits})",
    }
    return kinds.get(column.type) or column.type.upper()


def expressions(table: Table) -> dict[str, str]:
    """Expressions of the catalog: derived columns, then measures, by name."""
    return dict(table.derive) | {name: measure.expr for name, measure in table.measures.items()}


def _key(table: Table, column: str) -> tuple[str, ...]:
    """Where an expression stands in its table."""
    return ("derive", column) if column in table.derive else ("measures", column, "expr")


def made_columns(table: Table) -> tuple[str, ...]:
    """Columns that publishing makes: derived ones, measures and summaries; the source has none of them."""
    return (*expressions(table), *table.summaries)


def derived_sql(
    table: Table, types: Mapping[str, str], row: str, summaries: Mapping[str, str] | None = None
) -> dict[str, str]:
    """SQL of derived columns and measures over raw rows.

    Args:
        table: a table of a checked catalog.
        types: raw column -> DuckDB type.
        row: alias of the raw row, quoted.
        summaries: summary -> SQL of its exact value.

    Returns:
        Name -> expression that is NULL where it fails.
    """
    declared = {name.lower(): spec for name, spec in table.columns.items()}
    columns = {name.lower(): sql for name, sql in (summaries or {}).items()}
    for name, kind in types.items():
        spec, value = declared.get(name.lower()), f"{row}.{identifier(name)}"
        if kind == "VARCHAR" and spec is not None and spec.type != "string":
            timed = spec.type == "timestamp"
            value = instant(value) if timed else f"TRY_CAST({value} AS {sql_type(spec)})"
        columns[name.lower()] = value
    derived: dict[str, str] = {}
    for name, text_ in expressions(table).items():
        derived[name] = f"TRY({row_expression(text_).over(columns)})"
        columns[name.lower()] = derived[name]
    return derived


def total_columns(
    table: Table, types: Mapping[str, str]
) -> tuple[dict[str, TotalExpression], dict[tuple[str, ...], str]]:
    """Derived columns and measures whose expressions are total: all of them on a server, which has no TRY.

    Args:
        table: a table of a checked catalog.
        types: raw column -> type in DuckDB's words.

    Returns:
        Name -> expression over columns by their names in lower case, derived ones before it included; and key path
        within the table -> why it is not total (`dpsql.row_expressions.total`).
    """
    declared = {name.lower(): spec for name, spec in table.columns.items()}
    kinds = {
        name.lower(): kind
        for name, kind in types.items()
        if kind != "VARCHAR" or name.lower() not in declared or declared[name.lower()].type == "string"
    }
    columns, refusals = {}, {}
    for name, text in expressions(table).items():
        try:
            columns[name] = total_expression(text, kinds)
            kinds[name.lower()] = columns[name].sql_type
        except CatalogError as error:
            refusals[_key(table, name)] = str(error)
    return columns, refusals


def check_derived(tables: Mapping[str, Table]) -> None:
    """Check every `derive` and `expr`.

    Raises:
        Problem: at its key: more than a pure expression of one row, or a column that the table does not declare.
    """
    for name, table in tables.items():
        made = expressions(table)
        available = {column.lower() for column in table.columns} - {column.lower() for column in made}
        sizes: dict[str, int] = {}
        for column, text in made.items():
            path = ("tables", name, *_key(table, column))
            with at_path(*path):
                expression = row_expression(text)
            for used in expression.columns:
                if used.lower() not in available and not table.is_public:
                    hint = f"declare it under `columns`, {nearest(used, tuple(table.columns))}"
                    raise Problem(path, f"`{used}` is not a declared column of `{name}`; {hint}")
            put_in = sum(sizes.get(c.lower(), 0) for c in expression.columns)
            sizes[column.lower()] = len(expression.sql) + put_in
            if sizes[column.lower()] > MOST_CHARACTERS:
                raise Problem(
                    path, "is too long with the columns that it is derived from; write it from raw columns"
                )
            available.add(column.lower())


def check_binding(tables: Mapping[str, Table], *, on_server: bool = False) -> None:
    """Bind every `derive` and `expr` of private tables.

    Args:
        tables: those of a checked catalog.
        on_server: whether rows are on a server, where expressions must be total.

    Raises:
        Problem: at the key of one that does not bind.
    """
    private = {name: t for name, t in tables.items() if not t.is_public and (t.derive or t.measures)}
    if not private:
        return
    with scratch() as connection:
        for name, table in private.items():
            _bind(connection, name, table)
    for name, table in private.items() if on_server else ():
        for path, reason in total_columns(table, _types_but(table, made_columns(table)))[1].items():
            raise Problem(("tables", name, *path), reason)


def _types_but(table: Table, made: Iterable[str]) -> dict[str, str]:
    """Types of a table's other columns, as the catalog declares them."""
    left_out = {column.lower() for column in made}
    return {name: sql_type(spec) for name, spec in table.columns.items() if name.lower() not in left_out}


def _bind(connection: duckdb.DuckDBPyConnection, name: str, table: Table) -> None:
    types = _types_but(table, table.derive)
    columns = [f'CAST(NULL AS {kind}) AS "{column}"' for column, kind in types.items()]
    row = f"(SELECT {', '.join(columns) or '1'} WHERE false) AS row"
    for column, sql in derived_sql(table, types, "row").items():
        try:
            connection.execute(f"DESCRIBE SELECT {sql} AS made FROM {row}")
            if column in table.measures:
                connection.execute(f"DESCRIBE SELECT CAST({sql} AS DECIMAL(38, 9)) AS made FROM {row}")
        except duckdb.Error as error:
            reason = str(error).splitlines()[0].partition(": ")[2]  # without "Binder Error"
            raise Problem(
                ("tables", name, *_key(table, column)),
                f"does not fit the declared types ({reason}); correct it, or declare another type",
            ) from None


LEAVES, OCTAVES = 32, 8
STEPS = (84, 71, 60, 50)
"""Percent of an octave's end at which its leaves begin: a quarter of an octave each, in whole numbers."""


def spread_squares(catalog: CatalogFields) -> None:
    """Write the measures that views ask by `squares(..)` into their tables.

    Args:
        catalog: changed in place, while it is being made.

    Raises:
        Problem: what is squared is no measure that the view has, or has no room.
    """
    tables, views = dict(catalog.tables), dict(catalog.views)
    for name, view in catalog.views.items():
        squares = [m for m in view.measures if m.startswith("squares(") and m.endswith(")")]
        wanted = {m: m[len("squares(") : -1].removeprefix(f"{view.of}.") for m in squares}
        if not wanted or view.of not in tables:
            continue
        path, measures = ("views", name, "measures"), dict(view.measures)
        for written, column in wanted.items():
            if column not in measures and f"{view.of}.{column}" not in measures:
                raise Problem(path, f"a variance needs sums as well as `{written}`; add `{view.of}.{column}`")
            tables[view.of] = with_square(tables[view.of], column, path)
        for written, column in wanted.items():
            measures[MeasureName(f"{view.of}.{SQUARES_OF}{column}")] = measures.pop(written)
        views[name] = view.model_copy(update={"measures": measures})
    if views != catalog.views:
        object.__setattr__(catalog, "tables", tables)
        object.__setattr__(catalog, "views", views)


def written_measure(tables: Mapping[str, Table], measure: str) -> str:
    """A measure as a view asks it: `squares(sales.amount)` where `sales.squares_of_amount` is what that makes.

    Args:
        tables: declare the measures.
        measure: its name, `table.measure` for instance.
    """
    name = MeasureName(measure)
    table, column = tables.get(name.table), name.column.removeprefix(SQUARES_OF)
    with suppress(Problem):
        if name.squared and table is not None and with_square(table, column, ()) == table:
            return f"squares({name.squared})"
    return measure


def spread_quantiles(catalog: CatalogFields) -> None:
    """Give views the axes of the measures whose quantiles are wanted.

    Args:
        catalog: changed in place, while it is being made.

    Raises:
        Problem: a view has no room for one more axis.
    """
    views = dict(catalog.views)
    for name, view in catalog.views.items():
        columns = catalog.tables[view.of].columns if view.of in catalog.tables else {}
        for written in view.measures:
            column = written.removeprefix(f"{view.of}.")
            axis = f"{view.of}.{column}"
            wanted = column in columns and columns[column].quantiles
            if not wanted or axis in [spec.axis for spec in view.axes]:
                continue
            if len(views[name].axes) == MOST_AXES:
                reason = f"one axis more than {MOST_AXES}; remove one or `quantiles`"
                raise Problem(("views", name, "axes"), f"quantiles of `{axis}` are {reason}")
            axes = (*views[name].axes, AxisSpec(axis=axis, by=(), cuts=_leaves(columns[column]), workload=()))
            views[name] = views[name].model_copy(update={"axes": axes})
    if views != catalog.views:
        object.__setattr__(catalog, "views", views)


def _leaves(column: Column) -> Cuts | None:
    """The first values of the leaves of a measure's axis; None where its own cuts or its values are few enough."""
    lower, upper = column.bounds
    if column.cuts is not None or upper - lower < LEAVES:
        return None
    if lower == 0:
        starts = {upper * percent // (100 << octave) for octave in range(OCTAVES) for percent in STEPS}
    else:
        starts = {lower + (upper - lower) * leaf // LEAVES for leaf in range(LEAVES)}
    return Cuts(width=None, at=tuple(column.text(start) for start in sorted({lower, *starts})))


def with_square(table: Table, column: str, path: tuple[str, ...]) -> Table:
    """The table with the declared measure of one column's squares.

    Args:
        table: declares the column.
        column: its name.
        path: where squares are asked, for the error.

    Raises:
        Problem: it is no measure, or its squares have too many digits or are too large.
    """
    spec = table.columns.get(column)
    if spec is None or not spec.measure:
        raise Problem(
            path, f"squares of `{column}`, which is not a column with `measure: true`; write the name of one"
        )
    low, high = spec.bounds
    middle, digits = (low + high) // 2, spec.digits
    reach = max(high - middle, middle - low, 1)
    if 2 * digits > LARGEST_SCALE:
        raise Problem(path, f"squares of `{column}` would have {2 * digits} digits; lower its `scale`")
    if reach * reach >= LARGEST_UNITS:
        raise Problem(
            path, f"squares of `{column}` would be too large; narrow its bounds, or lower its `scale`"
        )
    centred = f"({column} - {_written(middle, digits)})"
    square = Measure(
        expr=f"{centred} * {centred}", lower="0", upper=_written(reach * reach, 2 * digits), scale=2 * digits,
        nullable=spec.nullable, confirm=False,
        description=f"squared distance of {column} from the middle of its bounds",
    )  # fmt: skip
    declared = table.measures.get(f"{SQUARES_OF}{column}")
    if declared is not None and declared != square:
        raise Problem(path, f"tables declare another `{SQUARES_OF}{column}`; rename that measure")
    return table.model_copy(update={"measures": {**table.measures, f"{SQUARES_OF}{column}": square}})


def _written(units: int, digits: int) -> str:
    """A number as SQL writes it.

    >>> _written(-25000, 2)
    '-250.00'
    """
    return str(Decimal(units).scaleb(-digits))
