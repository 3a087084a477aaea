"""Frequency oracles: what a report says of its owner's item, and what a tally of reports says of everybody's.

| class in `aggregators`        | there | a report says |
|-------------------------------|-------|---------------|
| `UnaryEncodingAggregator`     | OUE   | one bit per item |
| `LocalHashingAggregator`      | OLH   | a seed and a bucket of items |
| `RandomisedResponseAggregator`| GRR   | one item |
| `SquareWaveAggregator`        | WAVE  | one bin near the own leaf |

An oracle has two halves: the device's in `dpsql.client.oracles`, the collector's here. Nobody asks which one it is.
The list is closed: an oracle without its proof in this project has no place in it.
"""

from __future__ import annotations

from dpsql.errors import InternalError
from dpsql.local.oracles.aggregators import (
    LocalHashingAggregator,
    RandomisedResponseAggregator,
    SquareWaveAggregator,
    UnaryEncodingAggregator,
)
from dpsql.local.oracles.oracle import Oracle

ORACLES: tuple[type[Oracle], ...] = (
    UnaryEncodingAggregator,
    LocalHashingAggregator,
    RandomisedResponseAggregator,
    SquareWaveAggregator,
)
"""Of two that cost the same, the first is chosen."""


def choose_oracle(domain: int, own: int) -> Oracle:
    """Choose the oracle of least variance: GRR below 3 e^eps + 2 items, else OUE, past 2048 items OLH.

    Args:
        domain: number of items.
        own: integer weight of the truth.

    Returns:
        The oracle.

    Example:
        >>> [choose_oracle(d, 3 << 20).name for d in (10, 11, 3000)]
        ['GRR', 'OUE', 'OLH']
    """
    offers = [oracle for kind in ORACLES if (oracle := kind.offered(domain, own)) is not None]
    return min(offers, key=lambda oracle: oracle.cost)


def oracle_named(name: str, domain: int, own: int, extra: int = 0) -> Oracle:
    """The oracle that a plan names.

    Args:
        name: as in plans and reports.
        domain: number of items (Square Wave: leaves).
        own: integer weight of the truth.
        extra: OLH's buckets, Square Wave's reach, else 0.

    Raises:
        InternalError: no oracle is called that.
    """
    kinds = {kind.name: kind for kind in ORACLES}
    if name not in kinds:
        raise InternalError(f"no oracle is called {name!r}", hint="use the version that wrote the plan")
    return kinds[name](domain, own, extra)
