"""What a declared query log gains: exact expected errors over the log at epsilon 1, nothing simulated.

Each log is joined with 15% of unforeseen ranges, as publishing does (`publishing.axes`).

| row | what is measured |
|---|---|
| all ranges | the strategy that `auto` chooses without a log |
| rules | the best of tents, half-hats, equal levels and LUE-DPTree's closed form over the log |
| cut | LUE-DPTree on trees whose nodes end where the log's ranges end |
| per node | trees with the budgets of all nodes optimised for the log, cut or not |
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.central.ranges import Row
from dpsql.mechanisms.axis import auto_strategy
from dpsql.mechanisms.axis.strategy import expected_error
from dpsql.publishing.axes import with_unforeseen
from dpsql.tree import Workload

SIZES = (256, 1024, 4096, 65_536)
KINDS = ("all ranges", "rules", "cut", "per node")


def logs(n: int) -> dict[str, Workload]:
    """The logs, drawn with a fixed seed.

    Args:
        n: leaves of the axis.
    """
    rng = np.random.default_rng(3)
    first = rng.integers(0, n - 16, 100)
    short = Workload(first, first + rng.integers(1, 17, 100), np.ones(100))
    ends = np.sort(rng.choice(n, n // 4, replace=False)) + 1
    prefixes = Workload(np.zeros(len(ends), np.int64), ends, np.ones(len(ends)))
    borders = np.sort(rng.choice(n, (8, 2), replace=False), axis=1)
    hot = Workload(borders[:, 0], borders[:, 1], 1 / np.arange(1.0, 9.0))
    weeks = np.arange(0, n - 7, 7)
    late = rng.integers(n - n // 4, n - 30, 60)
    some = np.sort(rng.choice(n, (40, 2), replace=False), axis=1)
    mixed = Workload(
        np.concatenate([first[:50], np.zeros(40, np.int64), some[:, 0]]),
        np.concatenate([first[:50] + 7, rng.integers(1, n, 40), some[:, 1]]), np.ones(130),
    )  # fmt: skip
    return {
        "100 short ranges, up to 16 leaves": short,
        "prefixes, n / 4 of them": prefixes,
        "8 hot ranges": hot,
        "weeks of 7 leaves": Workload(weeks, weeks + 7, np.ones(len(weeks))),
        "60 ranges in the last quarter": Workload(late, late + rng.integers(1, 30, 60), np.ones(60)),
        "mixed, 130 ranges": mixed,
    }


def rows() -> Iterator[Row]:
    """One row a log, size and kind of strategy."""
    for n in SIZES:
        blind = auto_strategy(n).strategy
        for name, log in logs(n).items():
            asked = with_unforeseen(log, n)
            choice = auto_strategy(n, asked)
            best = dict.fromkeys(KINDS, np.inf) | {"all ranges": expected_error(blind, asked)}
            for found, error in ((choice.name, choice.expected_error), *choice.runners_up):
                kind = "per node" if "per node" in found else "cut" if "cut" in found else "rules"
                best[kind] = min(best[kind], error)
            for kind, error in best.items():
                yield Row("logs", name, n, 1.0, kind, 0, 0, float(error), 0.0)
