"""Two sides that differ in one unit, each published whole by the code that publishes: rows in, exact loss out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import NamedTuple

import duckdb

from dpsql.catalog import Catalog
from dpsql.catalog.graph import ledger_path
from dpsql.central.bounding import DrawnRelease
from dpsql.central.central import Watch, publish_release, undrawn
from dpsql.curator.prove.loss import Loss, LossNoise, RecordedPair, record_pair
from dpsql.ledger import ledger_entries
from dpsql.noise import insecure_test_entropy
from dpsql.row_expressions import identifier
from dpsql.scratch import scratch
from dpsql.streams.publish import Arrival, Chance, append_batch

KEY = b"k" * 32
"""Which of a unit's rows are sampled follows from it; the claim holds for every key, so both sides share one."""
STREAM_SECRET = 7
LATER = datetime(2100, 1, 1)


class NeighbourSide(NamedTuple):
    """One of two neighbours.

    Args:
        catalog: reads its rows and keeps its ledger in a folder of its own.
        target: the release to make.
        arrivals: the batches of a stream, in order; none for a release at once.
    """

    catalog: Catalog
    target: Path
    arrivals: tuple[Arrival, ...] = ()

    def publish(self, noise: LossNoise, drawn: Callable[[DrawnRelease], None] = undrawn) -> object:
        """Make the release; what is public of it. `drawn` sees its noisy integers, but those of a stream."""
        if not self.arrivals:
            watch = Watch(drawn, noise.label)
            published = publish_release(self.catalog, self.target, noise=noise, key=KEY, watch=watch)
            return _contents(published.path)
        for arrival in self.arrivals:
            chance = Chance(noise, insecure_test_entropy(STREAM_SECRET))
            append_batch(self.catalog, self.target, arrival, chance)
        return [_contents(path) for path in sorted(self.target.glob("states/*"))]


class MeasuredPair(NamedTuple):
    """A published pair.

    Args:
        loss: by draw, and what the left side's ledger was charged.
        draws: exact and noisy integers of both sides.
        drawn: the noisy integers of the left side's release by statistic; None of a stream.
    """

    loss: Loss
    draws: RecordedPair
    drawn: DrawnRelease | None


def measure_pair(left: NeighbourSide, right: NeighbourSide, seed: int) -> MeasuredPair:
    """Publish two neighbours end to end and measure what tells them apart.

    Args:
        left, right: alike but for one unit's rows.
        seed: of the noise.

    Raises:
        Distinguished: something but noisy numbers differs.
    """
    releases: list[DrawnRelease] = []
    draws = record_pair(partial(left.publish, drawn=releases.append), right.publish, seed)
    (ledger_entry,) = ledger_entries(ledger_path(left.catalog))
    spent = tuple((line.purpose, line.amount) for line in ledger_entry.spend_lines())
    if releases:  # what was drawn may have other parts than what was planned before keys were found
        spent = tuple((line.purpose, line.charge) for line in releases[0].plan.lines)
    charged, delta = Fraction(ledger_entry.cost), Fraction(ledger_entry.key_cost)
    loss = Loss(draws.losses, charged, ledger_entry.currency.name, spent, delta, draws.chance)
    return MeasuredPair(loss, draws, releases[0] if releases else None)


def _contents(path: Path) -> object:
    """All rows of a release file but the identity that each publish draws for itself."""
    with scratch(path, read_only=True) as release:
        names = release.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() ORDER BY 1"
        ).fetchall()
        return {str(name): _table(release, str(name)) for (name,) in names}


def _table(release: duckdb.DuckDBPyConnection, name: str) -> list[str]:
    rows = release.execute(f"SELECT * FROM {identifier(name)}").fetchall()
    return [str(row) for row in rows if "release_id" not in str(row[0])]
