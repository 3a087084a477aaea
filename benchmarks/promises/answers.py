"""What docs/sql.md promises of answers: nothing mostly interpolated unless asked for, nothing that is no number.

Interpolation is counted again here atom by atom, from the statement's own bounds, so that the engine's arithmetic does
not judge itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dpsql.errors import Error, PartialBinError
from dpsql.executor.engine import ReleaseEngine
from dpsql.intervals.partial_bins import PartialBin
from dpsql.noise import ZeroNoise
from dpsql.release import open_release
from tests.answer.test_cuts import EVEN, write
from tests.property.test_no_nan import BASES, CALLS, OUTER, PAIRS, unbounded
from tests.release_fixture import make_rows, write_fixture
from tests.releases import published

DAYS, SHOPS = (100, 10), (10, 5)
"""Values of an axis, and how many lie in a bin."""
ODD = "SELECT SUM(CASE WHEN ISNAN(x) OR ISINF(x) THEN 1 ELSE 0 END) FROM ({inner}) t"


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
    answerer, wrong = published(write(folder, EVEN), ZeroNoise(), on_partial_bin=session), 0
    for statement in (asked(draw) for _ in range(statements)):
        try:
            answer = answerer.query(statement.sql)
            refused = any("finer than bins" in flag for flag in answer.flags)
        except PartialBinError:
            refused = True
        wrong += refused != (statement.share > 0.5 + 1e-9)
    answerer.release.close()
    return wrong


def arithmetic(draw: random.Random, depth: int = 3) -> str:
    """A random expression over noisy values."""
    kind = draw.randrange(3) if depth else 0
    if kind == 0:
        return draw.choice(BASES)
    if kind == 1:
        return draw.choice(CALLS).format(arithmetic(draw, depth - 1))
    return f"({arithmetic(draw, depth - 1)} {draw.choice(PAIRS)} {arithmetic(draw, depth - 1)})"


def _statements(draw: random.Random, count: int) -> Iterator[tuple[str, bool]]:
    """Statements, and whether each one counts what is no number itself."""
    for _ in range(count):
        item, other = arithmetic(draw), arithmetic(draw)
        yield draw.choice(OUTER).format(item=item, other=other), False
        yield ODD.format(inner=f"SELECT {item} AS x FROM shop GROUP BY region"), True


def no_numbers(folder: Path, statements: int = 150) -> int:
    """NaN and infinity in answers, error bars and what statements see on their way, over random arithmetic."""
    seen, draw = 0, random.Random(2)
    for error in (1e-18, 1.0, 1e6):
        answerer = ReleaseEngine(open_release(write_fixture(folder / f"{error}.dpsql", make_rows(), error)))
        for sql, counts in _statements(draw, statements):
            try:
                result = answerer.query(sql)
            except Error:
                continue
            seen += len(unbounded(result)) + (int(result.rows[0][0] or 0) if counts else 0)
        answerer.release.close()
    return seen
