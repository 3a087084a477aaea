"""What the user-level recipe asks of the engine that holds the rows, in exact integers.

Per-person numbers never leave the engine: what comes out is a histogram of people, a clipped total, or
weighted cells. Sums are HUGEINT, so no order of addition and no number of threads changes them, and every
value is cut before it is squared, so no row whatever can make a statement fail.

    people     one line per unit: n, s<i>
    norms      one line per unit: norm (2^p nu^2)
    weights    one line per unit: w in units of 2^-20
    differences  one line per unit: e, what a factor times w leaves out of 1, clipped, in units of 2^-20

**Privacy**: raw; what is fetched is noised by the caller before it is stored or shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.mechanisms.axis.strategy import AxisStrategy, gathers
from dpsql.mechanisms.family.whitened import LARGEST_DIFFERENCE, LARGEST_NORM, UNIT, Whitening
from dpsql.publishing.cells import PlacedCells, huge
from dpsql.publishing.planned import ReleasePlan
from dpsql.release.write import registered
from dpsql.star.sql import identifier

WEIGHT = "CAST(w AS HUGEINT)"
"""SQL of what a row counts."""

IntArray = npt.NDArray[np.int64]


class View(NamedTuple):
    """One view as the norm sees it.

    Args:
        axes: axis id -> strategy.
        values: index of a statistic in the whitening -> SQL of what it sums per row.
    """

    axes: Mapping[int, AxisStrategy]
    values: Mapping[int, str]


def make_people(connection: duckdb.DuckDBPyConnection, rows: str, of: str, values: Sequence[str]) -> str:
    """One line per unit with its number of rows and the sum of each measure; returns the table's name."""
    name = identifier(f"people {of}")
    sums = "".join(f", coalesce(sum(CAST({value} AS HUGEINT)), 0) AS s{i}" for i, value in enumerate(values))
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT unit, count(*) AS n{sums} FROM {rows} GROUP BY unit"
    )
    return name


def people_per_bin(
    connection: duckdb.DuckDBPyConnection, people: str, amount: str, edges: Sequence[int]
) -> IntArray:
    """How many people have which amount.

    Args:
        connection: where `people` is.
        people: a table with one line per unit.
        amount: SQL of a non-negative integer.
        edges: upper ends of the bins; an overflow bin follows.

    Returns:
        int64, shape (len(edges) + 1,).
    """
    ladder = " ".join(f"WHEN {amount} <= {huge(edge)} THEN {i}" for i, edge in enumerate(edges))
    found = connection.execute(
        f"SELECT CASE {ladder} ELSE {len(edges)} END AS bin, count(*) AS people FROM {people} GROUP BY bin"
    ).fetchall()
    counts = np.zeros(len(edges) + 1, dtype=np.int64)
    for place, number in found:
        counts[place] = number
    return counts


def clipped_total(connection: duckdb.DuckDBPyConnection, people: str, amount: str, bound: int) -> int:
    """The sum over people of an amount clipped to [-bound, bound]."""
    clipped = f"greatest(least({amount}, {huge(bound)}), {huge(-bound)})"
    found = connection.execute(f"SELECT coalesce(sum({clipped}), 0) FROM {people}").fetchall()
    return int(found[0][0])


def make_norms(
    connection: duckdb.DuckDBPyConnection, rows: str, of: str, views: Sequence[View], whitening: Whitening
) -> str:
    """The joint whitened norm of each unit; returns the table's name.

    **Privacy**: a unit's norm is a function of its own rows and of released values; sums are exact.
    """
    name = identifier(f"norms {of}")
    parts = " UNION ALL ".join(_norm_sql(connection, rows, view, whitening) for view in views)
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT unit, sum(part) AS norm FROM ({parts}) GROUP BY unit"
    )
    return name


def make_weights(connection: duckdb.DuckDBPyConnection, norms: str, of: str, clip: int) -> str:
    """The weight of each unit under zCDP: the largest W <= 2^20 with W^2 norm <= 2^40 clip.

    W^2 norm <= 2^40 clip is W <= sqrt(2^40 clip // norm); cut at 2^40, the square root of the integer is
    exact to the floor in double precision.
    """
    name = identifier(f"weights {of}")
    ratio = f"least({huge(UNIT**2 * clip)} // greatest(norm, {huge(1)}), {huge(UNIT**2)})"
    root = f"CAST(floor(sqrt(CAST({ratio} AS DOUBLE))) AS BIGINT)"
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {name} AS "
        f"SELECT unit, CASE WHEN norm = 0 OR norm >= {huge(LARGEST_NORM)} THEN 0 ELSE {root} END AS w FROM {norms}"
    )
    return name


def make_differences(
    connection: duckdb.DuckDBPyConnection, norms: str, weights: str, of: str, factor: int, clip: int
) -> str:
    """What the weight of each unit, times a factor, leaves out of her, clipped; returns the table's name.

    E = 2^20 - (factor W >> 20), then |E| <= sqrt(2^40 clip // norm), at most 2^23: below 2^46 the square root of an
    integer is exact to the floor in double precision.

    Args:
        connection: where the tables are.
        norms, weights: of the units.
        of: the counted table.
        factor: R0 in units of 2^-20, released.
        clip: 2^p K_D^2, released.
    """
    name = identifier(f"differences {of}")
    ratio = f"least({huge(UNIT**2 * clip)} // greatest(norm, {huge(1)}), {huge(LARGEST_DIFFERENCE**2)})"
    root = f"CAST(floor(sqrt(CAST({ratio} AS DOUBLE))) AS BIGINT)"
    left = f"{UNIT} - ({factor}::BIGINT * w) // {UNIT}"
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT unit, CASE WHEN norm = 0 OR norm >= {huge(LARGEST_NORM)} "
        f"THEN 0 ELSE greatest(least({left}, {root}), -{root}) END AS w FROM {norms} JOIN {weights} USING (unit)"
    )
    return name


def make_pure_weights(
    connection: duckdb.DuckDBPyConnection,
    rows: str,
    of: str,
    tau: int,
    bounds: Sequence[tuple[str, int]],
) -> str:
    """The weight of each unit under pure epsilon: W n <= 2^20 tau and W sum |y| <= 2^20 T for each measure."""
    name = identifier(f"weights {of}")
    sums = "".join(
        f", coalesce(sum(abs(CAST({value} AS HUGEINT))), 0) AS y{i}" for i, (value, _) in enumerate(bounds)
    )
    limits = "".join(
        f", {huge(UNIT * bound)} // greatest(y{i}, {huge(1)})" for i, (_, bound) in enumerate(bounds)
    )
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT unit, CAST(least({huge(UNIT)}, "
        f"{huge(UNIT * tau)} // n{limits}) AS BIGINT) AS w "
        f"FROM (SELECT unit, CAST(count(*) AS HUGEINT) AS n{sums} FROM {rows} GROUP BY unit)"
    )
    return name


def weighted(rows: str, weights: str) -> str:
    """Rows with the weight of their unit, as they stand after FROM."""
    return f"{rows} JOIN {weights} USING (unit)"


def weighted_cells(
    connection: duckdb.DuckDBPyConnection,
    plan: ReleasePlan,
    rows: str,
    weights: str,
    columns: Mapping[str, str],
) -> PlacedCells:
    """Cells of rows that count with their unit's weight, in units of 2^-20."""
    return PlacedCells(connection, plan, weighted(rows, weights), columns, f"{WEIGHT} * ")


def _norm_sql(connection: duckdb.DuckDBPyConnection, rows: str, view: View, whitening: Whitening) -> str:
    """SELECT unit, part: the squared rows of one view's statistics times their coefficients."""
    keys = ["unit", *(f"a{axis}" for axis in view.axes)]
    sums = [f"coalesce(sum(CAST({value} AS HUGEINT)), 0) AS v{index}" for index, value in view.values.items()]
    inner = f"SELECT {', '.join([*keys, *sums])} FROM {rows} GROUP BY {', '.join(keys)}"
    gathered = {axis: s for axis, s in view.axes.items() if gathers(s)}
    if gathered:
        inner = _gathered(connection, inner, view, gathered)
    squares = []
    for index in view.values:
        shift = whitening.parts[index].shift
        cut = f"least(abs(v{index}), {huge(whitening.largest_row(index))})"
        square = (
            f"({cut} * {cut} + {huge((1 << shift) - 1)}) // {huge(1 << shift)}" if shift else f"{cut} * {cut}"
        )
        squares.append(f"{huge(whitening.coefficient[index])} * sum({square})")
    return f"SELECT unit, {' + '.join(squares)} AS part FROM ({inner}) GROUP BY unit"


def _gathered(
    connection: duckdb.DuckDBPyConnection, cells: str, view: View, gathered: Mapping[int, AxisStrategy]
) -> str:
    """Cells summed into the rows of the strategies: each leaf joins the rows that hold it."""
    entries = " * ".join(f"r{axis}.entry" for axis in gathered)
    sums = [f"sum(c.v{index} * {entries}) AS v{index}" for index in view.values]
    keys = ["c.unit", *(f"r{axis}.number" if axis in gathered else f"c.a{axis}" for axis in view.axes)]
    joins = " ".join(
        f"JOIN {_store_rows(connection, axis, strategy)} AS r{axis} ON c.a{axis} = r{axis}.leaf"
        for axis, strategy in gathered.items()
    )
    return f"SELECT {', '.join([*keys, *sums])} FROM ({cells}) AS c {joins} GROUP BY {', '.join(keys)}"


def _store_rows(connection: duckdb.DuckDBPyConnection, axis: int, strategy: AxisStrategy) -> str:
    """A table (leaf, number, entry) of a strategy's rows, budgets multiplied in."""
    rows = strategy.entries()
    if rows is None:
        raise InternalError("the rows of a user-level view are written down")
    matrix = np.rint(rows.dense()).astype(np.int64) * strategy.budget[:, None]
    number, leaf = np.nonzero(matrix)
    name = identifier(f"rows of {axis}")
    entries = {"leaf": leaf, "number": number, "entry": matrix[number, leaf]}
    with registered(connection, "incoming_rows", entries):
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM incoming_rows")
    return name
