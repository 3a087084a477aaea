"""What docs/sql.md promises of answers: nothing mostly interpolated unless asked for.

Interpolation is counted again here atom by atom, from the statement's own bounds, so that the engine's arithmetic does
not judge itself.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from dpsql.errors import PartialBinError
from dpsql.executor.engine import ReleaseEngine
from dpsql.intervals.partial_bins import PartialBin
from tests.answer.test_statements import star

DAYS, SHOPS = (100, 10), (10, 5)
"""Values of an axis, and how many lie in a bin."""


class Asked(NamedTuple):
    """A statement over two binned axes, and the largest part of a group that lies in cut bins."""

    sql: str
    share: float


def cut_share(atoms: set[int], width: int) -> float:
    """Part of what is taken that lies in bins of which only a part is taken."""
    taken: dict[int, int] = {}
    for atom in atoms:
        taken[atom // width] = taken.get(atom // width, 0) + 1
    return sum(n for n in taken.values() if n < width) / len(atoms)


def asked(draw: random.Random) -> Asked:
    """A random range of days and of shops, some grouped by spans of days."""
    (a, b), (c, d) = sorted(draw.choices(range(DAYS[0]), k=2)), sorted(draw.choices(range(SHOPS[0]), k=2))
    if draw.random() < 0.5:
        a, b, c, d = a // 10 * 10, b // 10 * 10 + draw.choice([4, 9]), 0, draw.choice([4, 7, 9])
    span = draw.choice([0, 0, 0, 20, 25, 30])
    where = f"WHERE day BETWEEN {a} AND {b} AND shop BETWEEN {c} AND {d}"
    groups: dict[int, set[int]] = {}
    for day in range(a, b + 1):
        groups.setdefault(day // span if span else 0, set()).add(day)
    whole = 1 - cut_share(set(range(c, d + 1)), SHOPS[1])
    share = max(1 - whole * (1 - cut_share(group, DAYS[1])) for group in groups.values())
    keys = f"day // {span} AS g, " if span else ""
    return Asked(f"SELECT {keys}COUNT(*), AVG(paid) FROM sales {where}{' GROUP BY g' if span else ''}", share)


def mostly_interpolated(folder: Path, statements: int = 1000, session: PartialBin | None = None) -> int:
    """Statements wrongly answered or refused: those more than half interpolated are refused, and no others.

    An answer that shows a coarser bin whole interpolates nothing, and its flag says so.

    Args:
        folder: an empty one.
        statements: how many are drawn.
        session: what the session does with cut bins; None is the default, which the promise is about.
    """
    draw = random.Random(1)
    exact, _ = star("even", folder)
    answerer, wrong = ReleaseEngine(exact.release, on_partial_bin=session), 0
    for statement in (asked(draw) for _ in range(statements)):
        try:
            answer = answerer.query(statement.sql)
            refused = any("finer than bins" in flag for flag in answer.flags)
        except PartialBinError:
            refused = True
        wrong += refused != (statement.share > 0.5 + 1e-9)
    answerer.release.close()
    return wrong
