"""The Adult star of seed 003: real attributes, made-up rows.

Every record of Adult is a person, with age and final weight; rows have years of education, capital gain and capital
loss, and hours per week as the measure. A person's first row is their own record's; the 0 to 9 further ones are those
of random other records, as many as in the generated star. All axes have 25 leaves, of which education fills 16 and
capital gain and loss mostly the first.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from benchmarks.local.star import LEAVES, row_counts
from dpsql.local.tallies import RespondentRows

WIDTHS = {"age": (17, 3), "fnlwgt": (0, 60_000), "education_num": (1, 1), "capital_gain": (0, 4_000), "capital_loss":
          (0, 200), "hours_per_week": (1, 4)}  # fmt: skip
"""Column: first value and width of a leaf."""
OWN = 2
"""Columns that belong to the person."""


def present() -> bool:
    """Whether DPSQL_DATA names the table."""
    return _file().is_file()


def _file() -> Path:
    return Path(os.environ.get("DPSQL_DATA", "")) / "adult" / "adult_train.parquet"


def people(rng: np.random.Generator) -> RespondentRows:
    """Everybody's rows."""
    import duckdb

    found = duckdb.execute(f"SELECT {', '.join(WIDTHS)} FROM read_parquet('{_file()}')").fetchnumpy()
    leaves = np.column_stack([
        np.clip((np.asarray(found[column]) - first) // width, 0, LEAVES - 1).astype(np.int64)
        for column, (first, width) in WIDTHS.items()
    ])  # fmt: skip
    rows = row_counts(len(leaves), rng)
    first = np.concatenate([[0], np.cumsum(rows)])
    person = np.repeat(np.arange(len(leaves)), rows)
    source = rng.integers(0, len(leaves), size=person.size)
    source[first[:-1]] = np.arange(len(leaves))
    values = np.column_stack([leaves[person, :OWN], leaves[source, OWN:]])
    return RespondentRows(first, values[:, :-1], values[:, -1:] + 1)
