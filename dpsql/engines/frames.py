"""Data frames as a source: each one becomes a private Parquet file, and from there on it is a file like any other.

    pandas     what its columns are declared to be decides; the values of an object column are looked at one by one
    polars     as polars writes Parquet
    Arrow      as pyarrow writes Parquet
    DuckDB     a relation, as DuckDB writes Parquet; whole numbers wider than 64 bits as text

The files lie in a folder that nobody else may read, in `DPSQL_TMPDIR`, as long as the rows are needed. A library is
only touched if a frame of its own was given, so it is there. NaN of pandas is no value: pandas has no other for a
column of numbers that lacks some.

**Privacy**: sees raw rows. Errors name tables, columns and types, never values.
**Source**: docs/curator.md, "Data frames".
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import duckdb
import numpy as np

from dpsql.catalog import Catalog
from dpsql.catalog.base import nearest
from dpsql.catalog.source import FRAMES, PARQUET, Source
from dpsql.engines.duck import private_connection, private_folder
from dpsql.engines.values import widest
from dpsql.errors import InterfaceError
from dpsql.row_expressions import identifier, literal

Frames = Mapping[str, object]
"""Table -> its rows."""

WIDE = widest("BIGINT")
"""Whole numbers that DuckDB writes to Parquet as floats."""


class UnreadableFrame(Exception):
    """Reason why a frame is no table, and what to write instead."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint


@contextmanager
def written_frames(frames: Frames) -> Iterator[Source]:
    """Data frames as a source, while the block runs.

    Args:
        frames: table -> a data frame of pandas or polars, a table of pyarrow, or a relation of DuckDB.

    Raises:
        InterfaceError: one of them is no such thing, or a column of it has no one type.
        OperationalError: no private folder can be made.
    """
    folder = private_folder()
    try:
        tables = write_frames(frames, Path(folder.name))
        source = Source.model_validate({"kind": PARQUET.name, "root": folder.name, "tables": tables})
        yield source.model_copy(update={"kind": FRAMES})
    finally:
        folder.cleanup()


def write_frames(frames: Frames, folder: Path) -> dict[str, str]:
    """Write data frames as Parquet.

    Args:
        frames: as for `written_frames`.
        folder: where to.

    Returns:
        Table -> its file's name.

    Raises:
        InterfaceError: one of them is no table, or a column of it has no one type.
    """
    tables = {name: f"{quote(name, safe='')}.parquet" for name in frames}
    for name, frame in frames.items():
        try:
            _writer(frame)(frame, folder / tables[name])
        except UnreadableFrame as error:
            raise InterfaceError(f"tables[{name!r}]: {error.reason}", hint=error.hint) from None
    return tables


@contextmanager
def framed(catalog: Catalog, frames: Frames | None) -> Iterator[Catalog]:
    """A catalog whose rows are data frames, while the block runs.

    Args:
        catalog: any catalog; its own source is not read.
        frames: every one of its tables; None leaves the catalog as it is.

    Raises:
        InterfaceError: a table is missing or unknown, or as for `written_frames`.
    """
    if frames is None:
        yield catalog
        return
    for name in frames:
        if name not in catalog.tables:
            raise InterfaceError(
                f"tables: the catalog has no table {name}", hint=nearest(name, tuple(catalog.tables))
            )
    for name in catalog.tables:
        if name not in frames:
            raise InterfaceError(
                f"tables: `{name}` is missing", hint=f"give its rows: tables={{.., {name!r}: frame}}"
            )
    with written_frames(frames) as source:
        yield catalog.model_copy(update={"source": source})


def _writer(frame: object) -> Callable[[Any, Path], None]:
    """Writer of a frame, by the library that made it.

    Raises:
        UnreadableFrame: none of them did.
    """
    if isinstance(frame, duckdb.DuckDBPyRelation):
        return _write_relation
    for base in type(frame).__mro__:
        writer = WRITERS.get((base.__module__.partition(".")[0], base.__name__))
        if writer is not None:
            return writer
    raise UnreadableFrame(
        f"{type(frame).__module__}.{type(frame).__name__} is not a table",
        "give a DataFrame of pandas or polars, a pyarrow.Table, or a relation of DuckDB",
    )


def _check_names(names: list[Any]) -> None:
    """Every column has a name of its own, whatever the case of its letters.

    Raises:
        UnreadableFrame: one does not.
    """
    for name in names:
        if not isinstance(name, str) or not name:
            raise UnreadableFrame("the name of a column is not text", "rename the columns")
    lowered = [name.lower() for name in names]
    twice = next((name for name in names if lowered.count(name.lower()) > 1), None)
    if twice is not None:
        raise UnreadableFrame(f"two columns are called `{twice}`, except for case", "rename one of them")
    if not names:
        raise UnreadableFrame("it has no column", "give a frame with columns")


def _write_relation(relation: duckdb.DuckDBPyRelation, file: Path) -> None:
    _check_names(relation.columns)
    selected = [identifier(name) for name in relation.columns]
    for i, kind in enumerate(relation.types):
        if str(kind) in (WIDE, f"U{WIDE}"):
            selected[i] = f"CAST({selected[i]} AS VARCHAR) AS {selected[i]}"
    try:
        relation.project(", ".join(selected)).write_parquet(str(file))
    except duckdb.Error as error:
        raise _not_written(error) from None


def _not_written(error: Exception) -> UnreadableFrame:
    """A library's own words may quote a value."""
    return UnreadableFrame(
        f"it cannot be read ({type(error).__name__})",
        "select the columns that the catalog names, and cast the others",
    )


def _write_polars(frame: Any, file: Path) -> None:
    _check_names(frame.columns)
    objects = [name for name, kind in frame.schema.items() if str(kind) == "Object"]
    if objects:
        raise UnreadableFrame(f"`{objects[0]}` contains Python objects", "cast the column to one type")
    from polars.exceptions import PolarsError

    try:
        frame.write_parquet(file)
    except (PolarsError, NotImplementedError) as error:
        raise _not_written(error) from None


def _write_arrow(table: Any, file: Path) -> None:
    from pyarrow import ArrowException
    from pyarrow.parquet import write_table

    _check_names(table.column_names)
    try:
        write_table(table, file)
    except (ArrowException, NotImplementedError) as error:
        raise _not_written(error) from None


def _write_pandas(frame: Any, file: Path) -> None:
    """Columns go to DuckDB as arrays of numpy, whose types no row decides but those of object columns."""
    from pandas.api.types import is_integer_dtype

    _check_names(list(frame.columns))
    names = [name for name in frame.index.names if name is not None]
    if names or not is_integer_dtype(frame.index.dtype):
        label = f"index `{', '.join(map(str, names))}`" if names else "index"
        raise UnreadableFrame(
            f"its {label} is not a column", "write frame.reset_index(), or reset_index(drop=True)"
        )
    arrays = {name: _pandas_column(name, frame[name]) for name in frame.columns}
    connection, folder = private_connection()
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET pandas_analyze_sample = 0")  # object arrays are text, whatever stands in them
        connection.register("frame", {name: values for name, (values, _) in arrays.items()})
        columns = (
            f"{sql.replace('{x}', identifier(n))} AS {identifier(n)}" for n, (_, sql) in arrays.items()
        )
        connection.execute(
            f"COPY (SELECT {', '.join(columns)} FROM frame) TO {literal(str(file))} (FORMAT parquet)"
        )
    except (duckdb.Error, UnicodeEncodeError) as error:
        raise _not_written(error) from None
    finally:
        connection.close()
        folder.cleanup()


NUMBERS = "?bhilqBHILQfd"
"""Characters of numpy's truths, integers of up to 64 bits, and floats of 32 and 64."""

Values = tuple[np.ndarray[Any, Any], str]
"""A column's values, and SQL of `{x}` for what they are."""

AS_IS, INSTANT = "{x}", "CAST({x} AS TIMESTAMP WITH TIME ZONE)"


def _pandas_column(name: str, column: Any) -> Values:
    """A column's values as an array that has one type.

    Raises:
        UnreadableFrame: it has none that a source may have.
    """
    import pandas

    dtype = column.dtype
    if isinstance(dtype, pandas.CategoricalDtype):
        return _pandas_column(name, column.astype(dtype.categories.dtype))
    if isinstance(dtype, pandas.StringDtype):
        return column.to_numpy(dtype=object, na_value=None), AS_IS
    if isinstance(dtype, pandas.DatetimeTZDtype):
        # the microsecond before, as the engine reads nanoseconds, and the zone away: instants in UTC
        instants = column.dt.tz_convert("UTC").dt.tz_localize(None)
        return instants.to_numpy().astype("datetime64[us]"), INSTANT
    if isinstance(dtype, pandas.api.extensions.ExtensionDtype):
        plain = getattr(dtype, "numpy_dtype", None)
        if plain is None or plain.char not in NUMBERS:
            raise UnreadableFrame(
                f"`{name}` has the type {dtype}", f"cast it, for instance `frame[{name!r}].astype(str)`"
            )
        missing = column.isna().to_numpy()
        return np.ma.masked_array(column.to_numpy(dtype=plain, na_value=0), missing), AS_IS
    if isinstance(dtype, np.dtypes.ObjectDType):
        return _object_column(name, column)
    if dtype.char not in f"{NUMBERS}M":
        raise UnreadableFrame(
            f"`{name}` has the type {dtype}", f"cast it, for instance `frame[{name!r}].astype(float)`"
        )
    return column.to_numpy(), AS_IS  # NaN and NaT of pandas are NULL to DuckDB


def _object_column(name: str, column: Any) -> Values:
    """An object column whose values are all of one kind: texts, truths, whole numbers, days, decimals or UUIDs.

    Raises:
        UnreadableFrame: they are of several kinds, or of another one.
    """
    missing = column.isna().to_numpy()
    present = [value for value, absent in zip(column.to_numpy(), missing, strict=True) if not absent]
    kinds = {
        next((python_type for python_type in OBJECTS if isinstance(value, python_type)), object)
        for value in present
    }
    if kinds == {datetime.datetime}:
        zones = {value.tzinfo for value in present}
        what = "times of several zones" if len(zones) > 1 else "times as Python objects"
        raise UnreadableFrame(
            f"`{name}` contains {what}", f"write pandas.to_datetime(frame[{name!r}], utc=True)"
        )
    if len(kinds) > 1 or kinds & {object, datetime.datetime}:
        classes = {type(value) for value in present}
        kind = (
            "values of several types"
            if len(classes) > 1
            else f"objects of the class {classes.pop().__name__}"
        )
        raise UnreadableFrame(
            f"`{name}` contains {kind}", f"cast it, for instance frame[{name!r}].astype(str)"
        )
    python_type = kinds.pop() if kinds else str
    if python_type is int and all(-(1 << 63) <= value < 1 << 63 for value in present):
        numbers = np.zeros(len(missing), dtype=np.int64)
        numbers[~missing] = present
        return np.ma.masked_array(numbers, missing), AS_IS
    values = np.array([None] * len(missing), dtype=object)
    values[~missing] = [format(value, "f") if python_type is Decimal else str(value) for value in present]
    return values, OBJECTS[python_type]


OBJECTS: Mapping[type, str] = {
    str: AS_IS, bool: "CAST({x} AS BOOLEAN)", int: AS_IS, datetime.datetime: AS_IS,
    datetime.date: "CAST({x} AS DATE)", Decimal: AS_IS, UUID: "CAST({x} AS UUID)",
}  # fmt: skip
"""What the values of an object column may be, and SQL of what their texts stand for; a subclass before its base."""

WRITERS: Mapping[tuple[str, str], Callable[[Any, Path], None]] = {
    ("pandas", "DataFrame"): _write_pandas, ("polars", "DataFrame"): _write_polars, ("pyarrow", "Table"): _write_arrow,
}  # fmt: skip
"""Library and class of a frame -> what writes it."""
