"""Two sides that differ in one unit, each published whole by the code that publishes: rows in, exact loss out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import duckdb

from dpsql.curate.prove.loss import Loss, loss_of
from dpsql.ledger import ledger_entries
from dpsql.noise import Noise, insecure_test_entropy
from dpsql.publishing.central import publish_release
from dpsql.star import Catalog
from dpsql.star.graph import ledger_path
from dpsql.star.sql import identifier, literal
from dpsql.streams.publish import Arrival, Chance, append_batch

KEY = b"k" * 32
"""Which of a unit's rows are sampled follows from it; the claim holds for every key, so both sides share one."""
STREAM_SECRET = 7
LATER = datetime(2100, 1, 1)


class Rows(NamedTuple):
    """The rows of one raw table.

    Args:
        columns: names and DuckDB types, as in CREATE TABLE.
        rows: one tuple each; text is read as the column's type.
    """

    columns: str
    rows: Sequence[tuple[object, ...]]

    def plus(self, *rows: tuple[object, ...]) -> Rows:
        """The same table with more rows."""
        return Rows(self.columns, (*self.rows, *rows))


Tables = Mapping[str, Rows]


class Side(NamedTuple):
    """One of two neighbours.

    Args:
        catalog: reads its rows and keeps its ledger in a folder of its own.
        target: the release to make.
        arrivals: the batches of a stream, in order; none for a release at once.
    """

    catalog: Catalog
    target: Path
    arrivals: tuple[Arrival, ...] = ()

    def publish(self, noise: Noise) -> object:
        """Make the release; what is public of it."""
        if not self.arrivals:
            return _contents(publish_release(self.catalog, self.target, noise=noise, key=KEY).path)
        for arrival in self.arrivals:
            chance = Chance(noise, insecure_test_entropy(STREAM_SECRET))
            append_batch(self.catalog, self.target, arrival, chance)
        return [_contents(path) for path in sorted(self.target.glob("states/*"))]


def measure_sides(left: Side, right: Side, seed: int) -> Loss:
    """Publish two neighbours end to end and measure what tells them apart.

    Args:
        left, right: alike but for one unit's rows.
        seed: of the noise.

    Returns:
        Exact losses by draw, and what the left side's ledger was charged.

    Raises:
        Distinguished: something but noisy numbers differs.
    """
    draws = loss_of(left.publish, right.publish, seed)
    (entry,) = ledger_entries(ledger_path(left.catalog))
    lines = entry.spend_lines()
    charged = sum((line.amount for line in lines), Fraction(0))
    return Loss(draws, charged, lines[0].currency, tuple((line.purpose, line.amount) for line in lines))


def write_tables(place: Path, tables: Tables) -> None:
    """Write each table into `<place>/<table>.parquet`.

    Args:
        place: a folder; made if it is not there.
        tables: by name.
    """
    place.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as raw:
        for name, table in tables.items():
            own = identifier(name)
            raw.execute(f"CREATE TABLE {own} ({table.columns})")
            types = [str(row[1]) for row in raw.execute(f"DESCRIBE {own}").fetchall()]
            lists = ", ".join(f"unnest(?::{kind}[])" for kind in types)
            values = [[row[i] for row in table.rows] for i in range(len(types))]
            raw.execute(f"INSERT INTO {own} SELECT {lists}", values)
            raw.execute(f"COPY {own} TO {literal(str(place / name) + '.parquet')}")


def _contents(path: Path) -> object:
    """All rows of a release file but the identity that each publish draws for itself."""
    with duckdb.connect(str(path), read_only=True) as release:
        names = release.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
        return {str(name): _table(release, str(name)) for (name,) in names}


def _table(release: duckdb.DuckDBPyConnection, name: str) -> list[str]:
    rows = release.execute(f"SELECT * FROM {identifier(name)}").fetchall()
    return [str(row) for row in rows if "release_id" not in str(row[0])]
