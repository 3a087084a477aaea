"""The engine decides where a row of a CSV file ends, and what an error takes along."""

from pathlib import Path

import duckdb

from dpsql import engines
from dpsql.catalog.source import Csv
from dpsql.row_expressions import literal
from tests.privacy.joints import by_name
from tests.privacy.plant import Plant


def forgiving_reader(
    connection: duckdb.DuckDBPyConnection, target: str, file: Path, dialect: Csv, names: object = ()
) -> int:
    header = file.read_bytes().split(b"\n", 1)[0].decode().split(",")
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in header)
    read = (
        f"read_csv({literal(str(file))}, auto_detect = false, header = true, delim = ',', quote = '\"', escape = '\"', "
        f"columns = {{{columns}}}, ignore_errors = true)"
    )
    connection.execute(f"CREATE TABLE {target} AS SELECT * FROM {read}")
    return 0


PLANT = Plant(
    "an open quote in a CSV file takes other lines along",
    (engines, "load_csv"),
    lambda was: forgiving_reader,
    by_name("a CSV line with an open quote"),
)
