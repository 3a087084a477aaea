"""Where raw rows are: folder, files and SELECT statements, with ${NAME} from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from dpsql.catalog.base import Model
from dpsql.errors import CatalogError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def expand(text: str, environment: Mapping[str, str] | None = None) -> str:
    """Put environment variables in.

    Args:
        text: may hold ``${NAME}``.
        environment: where names are looked up; the process environment unless given.

    Returns:
        The text with every variable replaced.

    Raises:
        CatalogError: a variable is not set.

    >>> expand("${ROOT}/shop", {"ROOT": "/data"})
    '/data/shop'
    """
    values = os.environ if environment is None else environment

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if not values.get(name):
            raise CatalogError(
                f"source: the environment variable {name} is not set", hint=f"export {name}=<folder>"
            )
        return values[name]

    return _VARIABLE.sub(value, text)


class Csv(Model):
    """How the CSV files of a source are written: RFC 4180 unless it says otherwise, one row a line.

    **Privacy**: nothing of it is read from rows. A private row that does not fit is left out, a public one is an error.
    """

    delimiter: str = Field(default=",", min_length=1, max_length=1, description="between two fields")
    quote: str = Field(
        default='"', min_length=1, max_length=1, description="around a field that holds a delimiter"
    )
    escape: str = Field(
        default='"', min_length=1, max_length=1, description="before a quote inside a quoted field"
    )
    encoding: Literal["utf-8", "latin-1", "cp1252"] = Field(default="utf-8", description="of the bytes")
    null: str = Field(default="", description="a field that reads so, quoted or not, is NULL")
    columns: dict[str, tuple[str, ...]] = Field(
        default={}, description="table: its column names, if its file has no header line"
    )

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        marks = (self.delimiter, self.quote, self.escape)
        if any(not mark.isascii() or mark in "\r\n\0" for mark in marks):
            raise ValueError("`delimiter`, `quote` and `escape` are ASCII characters other than line ends")
        if self.delimiter in marks[1:]:
            raise ValueError("`delimiter` is neither `quote` nor `escape`; write another one")
        return self


class Source(Model):
    """The raw side. A table is a file name below `root`, or a SELECT over files below `root`."""

    kind: Literal["parquet", "csv", "duckdb"] = Field("parquet", description="files, or one database")
    csv: Csv = Field(
        default=Csv(), description="how CSV files are written, batch files of a stream among them"
    )
    root: str = Field(".", description="folder of the files, or the DuckDB file; ${NAME} expands")
    tables: dict[str, str] = Field(description="table: file name (duckdb: table name), or a SELECT statement")
    trusted: bool = Field(
        False,
        description="take SELECTs that cannot be checked; the release says that the curator vouches for them",
    )

    def expanded(self) -> dict[str, str]:
        """The tables with environment variables put in, for whoever opens them.

        Raises:
            CatalogError: a variable is not set.
        """
        return {table: expand(place) for table, place in self.tables.items()}

    def folder(self, catalog_file: Path | None) -> Path:
        """The place of the raw files.

        A relative root is looked for in the catalog's own folder first, then in the working directory.

        Args:
            catalog_file: the YAML file, or None.

        Returns:
            An existing path.

        Raises:
            CatalogError: it is in neither place, or a variable is not set.
        """
        root = Path(expand(self.root)).expanduser()
        beside = [] if catalog_file is None else [catalog_file.parent / root]
        for candidate in [*beside, root]:
            if candidate.exists():
                return candidate.resolve()
        raise CatalogError(
            f"source.root: `{self.root}` is neither beside the catalog nor in the working directory",
            hint="write an existing folder, or run the program that makes the data",
        )
