"""Made-up tables: columns of arrays, written as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import numpy as np

CENTS = "(cents / 100)::DECIMAL(7, 2) AS amount"


def write_columns(folder: Path, name: str, columns: Mapping[str, np.ndarray], select: str = "*") -> Path:
    """Write columns as a table; returns its file.

    Args:
        folder: made if it is absent.
        name: of the file; with an ending it says the format, which else is Parquet.
        columns: values by name.
        select: what is written of them, in SQL.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / (name if "." in name else f"{name}.parquet")
    with duckdb.connect() as db:
        db.register("made", dict(columns))
        db.execute(f"COPY (SELECT {select} FROM made) TO '{file}'")
    return file
