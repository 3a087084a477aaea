"""All files of a table are read by the schema of the first, which casts the others."""

from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb

from dpsql import engines
from dpsql.engines.schema_union import SchemaGroup
from tests.privacy.plant import Plant
from tests.privacy.source_cases import fractions_after_whole_amounts


def by_the_first(read: Callable[..., list[SchemaGroup]]) -> Callable[..., list[SchemaGroup]]:
    def members(
        connection: duckdb.DuckDBPyConnection, files: Sequence[Path], root: Path, folders: Sequence[str]
    ) -> list[SchemaGroup]:
        first = read(connection, files[:1], root, folders)[0]
        listed = ", ".join(f"'{file}'" for file in files)
        return [first._replace(relation=f"read_parquet([{listed}])", files=len(files))]

    return members


PLANT = Plant(
    "the first file's schema is everybody's",
    (engines, "parquet_members"),
    by_the_first,
    fractions_after_whole_amounts,
)
