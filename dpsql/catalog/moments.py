"""Statistics for moments and quantiles of a measure: its squares as a measure, its values as an axis.

`squares(sales.amount)` among a view's measures is the declared measure that variances of the column are made of:

    measures: [count, sales.amount, squares(sales.amount)]          # amount from 0 to 500, two digits

becomes the measure `squares_of_amount` of the table, with the expression `(amount - 250.00) * (amount - 250.00)`, four
digits, from 0 to M^2. M is how far a value may lie from the public middle of the declared bounds. From here on it is a
measure like any other: centred, bounded and drawn with the count and the sum.

`quantiles: true` on the column gives every view that sums it an axis of it. Its leaves are the column's `cuts`, or are
made of the declared bounds: from 0 on they narrow by a fifth each, down to 1/256 of the upper bound, so that a quantile
is as sharp for small values as for large ones; other bounds have 32 of one width.

**Privacy**: functions of the catalog alone; docs/privacy.md, "Squares and quantiles of a measure".
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal

from dpsql.catalog.base import LARGEST_UNITS, Problem
from dpsql.catalog.columns import LARGEST_SCALE, Column, Cuts
from dpsql.catalog.model import MOST_AXES, AxisSpec, CatalogFields
from dpsql.catalog.tables import Measure, Table

PREFIX = "squares_of_"
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
            measures[f"{view.of}.{PREFIX}{column}"] = measures.pop(written)
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
    name, _, square = measure.partition(".")
    column = square.removeprefix(PREFIX)
    with suppress(Problem):
        if name in tables and column != square and with_square(tables[name], column, ()) == tables[name]:
            return f"squares({name}.{column})"
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
    declared = table.measures.get(f"{PREFIX}{column}")
    if declared is not None and declared != square:
        raise Problem(path, f"tables declare another `{PREFIX}{column}`; rename that measure")
    return table.model_copy(update={"measures": {**table.measures, f"{PREFIX}{column}": square}})


def _written(units: int, digits: int) -> str:
    """A number as SQL writes it.

    >>> _written(-25000, 2)
    '-250.00'
    """
    return str(Decimal(units).scaleb(-digits))
