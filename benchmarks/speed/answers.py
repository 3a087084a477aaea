"""How much CPU an answer costs, beside the least that its kind can cost on the same file: the floor.

| floor | |
|---|---|
| parse | sqlglot reads the statement, nothing more |
| add | one statement of DuckDB's, prepared once, sums the same node combinations of the same table |

Both are measured in turns with the answers, statement by statement, so that load on the machine meets all alike. Every
statement has constants of its own: no answer is one that was kept. Medians of CPU, not of time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import sqlglot

from benchmarks.figures import Figures
from dpsql.answer.answerer import Answerer
from dpsql.release import Release
from dpsql.release.format import UNIT
from dpsql.tree import cover

LEAVES, WARM, RUNS = 748, 10, 200


def cpu(action: Callable[[], object]) -> float:
    """Milliseconds of CPU, all threads of the process together."""
    start = time.process_time_ns()
    action()
    return (time.process_time_ns() - start) / 1e6


class Asked(NamedTuple):
    """A statement, and the ranges of leaves that it adds up.

    Args:
        text: SQL.
        first: half-open ranges of the first axis, one for each group.
        second: of the second axis; None for all of it.
    """

    text: str
    first: Sequence[tuple[int, int]]
    second: tuple[int, int] | None


def two_bounds(rng: np.random.Generator) -> tuple[int, int]:
    """Bounds of a range that is not empty."""
    low, high = np.sort(rng.choice(LEAVES + 1, size=2, replace=False)).tolist()
    return low, high


def one_range(rng: np.random.Generator) -> Asked:
    """A range of one axis."""
    a, b = two_bounds(rng)
    return Asked(f"SELECT COUNT(*) FROM facts WHERE x >= {a} AND x < {b}", [(a, b)], None)


def two_ranges(rng: np.random.Generator) -> Asked:
    """A range of the fact and one of a joined dimension."""
    (a, b), (c, d) = two_bounds(rng), two_bounds(rng)
    text = f"SELECT COUNT(*) FROM facts JOIN person USING (id) WHERE x >= {a} AND x < {b} AND y BETWEEN {c} AND {d - 1}"
    return Asked(text, [(a, b)], (c, d))


def hundred_groups(rng: np.random.Generator) -> Asked:
    """A range of the dimension for each of a hundred values."""
    c, d = two_bounds(rng)
    text = "SELECT x, COUNT(*) FROM facts JOIN person USING (id) "
    text += f"WHERE x < 100 AND y BETWEEN {c} AND {d - 1} GROUP BY x"
    return Asked(text, [(x, x + 1) for x in range(100)], (c, d))


def median(rng: np.random.Generator) -> Asked:
    """The middle of a range; its values are counted one by one."""
    a, b = two_bounds(rng)
    return Asked(
        f"SELECT MEDIAN(x) FROM facts WHERE x >= {a} AND x < {b}", [(x, x + 1) for x in range(a, b)], None
    )


class Floor:
    """Parses, and adds up node combinations by one prepared statement.

    Args:
        release: of one view over two axes.
        sql: the statement: one of those below.
    """

    def __init__(self, release: Release, sql: str) -> None:
        self.trees = [release.tree(axis) for axis in (0, 1)]
        self.cursor = release.connection.cursor()
        (self.prepared,) = self.cursor.extract_statements(sql)
        self.grouped = "GROUP BY" in sql

    def parse(self, asked: Asked) -> None:
        """Read the text."""
        sqlglot.parse_one(asked.text, read="duckdb")

    def values(self, asked: Asked) -> list[list[int]]:
        """Groups where there are some, then nodes of each axis that is not taken whole."""
        group, first = cover(self.trees[0], *zip(*asked.first, strict=True))
        found = [group.tolist(), first.tolist()] if self.grouped else [first.tolist()]
        if asked.second is not None:
            low, high = asked.second
            found.append(cover(self.trees[1], [low], [high])[1].tolist())
        return found

    def add(self, values: list[list[int]]) -> list[int]:
        """Run the prepared statement: the sums, in stored units."""
        return [row[0] for row in self.cursor.execute(self.prepared, values).fetchall()]


CELLS, NODES = "node_combination_0 AS c", "SELECT unnest($%d::INTEGER[]) AS n"
RANGE = f"SELECT SUM(c.estimate) FROM {CELLS}, ({NODES % 1}) AS a WHERE c.n1 = a.n AND c.n2 = 0"
RANGES = f"""SELECT SUM(c.estimate) FROM {CELLS}, ({NODES % 1}) AS a, ({NODES % 2}) AS b
    WHERE c.n1 = a.n AND c.n2 = b.n"""
GROUPS = f"""SELECT SUM(c.estimate) FROM {CELLS}, (SELECT unnest($1::INTEGER[]) AS g, unnest($2::INTEGER[]) AS n) AS a,
    ({NODES % 3}) AS b WHERE c.n1 = a.n AND c.n2 = b.n GROUP BY a.g ORDER BY a.g"""
COUNTS = f"""SELECT SUM(c.estimate) FROM {CELLS}, (SELECT unnest($1::INTEGER[]) AS g, unnest($2::INTEGER[]) AS n) AS a
    WHERE c.n1 = a.n AND c.n2 = 0 GROUP BY a.g ORDER BY a.g"""
"""What adds up nodes; the root of the second axis is node 0."""


def _sums(asked: Asked, sums: list[int]) -> list[float | int | None]:
    """One number for each group."""
    return [total / UNIT for total in sums]


def _middle(asked: Asked, sums: list[int]) -> list[float | int | None]:
    """The first value up to which half of all are counted."""
    running = np.maximum.accumulate(np.cumsum(sums))
    reached = int(np.searchsorted(running, running[-1] / 2 * (1 - 1e-12)))
    return [asked.first[0][0] + reached if running[-1] > 0 else None]


class Kind(NamedTuple):
    """A kind of statement.

    Args:
        name: of its figure.
        draw: draws one.
        sql: adds up its nodes.
        bound: how many floors it may cost.
        told: what it answers, by the sums.
    """

    name: str
    draw: Callable[[np.random.Generator], Asked]
    sql: str
    bound: float
    told: Callable[[Asked, list[int]], list[float | int | None]] = _sums


KINDS = (
    Kind("one range", one_range, RANGE, 2.0),
    Kind("two ranges joined", two_ranges, RANGES, 3.0),
    Kind("100 groups", hundred_groups, GROUPS, 5.0),
    Kind("MEDIAN along an axis", median, COUNTS, 5.0, _middle),
)


class Cost(NamedTuple):
    """Median CPU of a kind of statement, in milliseconds."""

    answer: float
    parse: float
    add: float

    @property
    def times(self) -> float:
        """The answer's cost in floors."""
        return self.answer / (self.parse + self.add)

    def words(self) -> str:
        """All of it."""
        floor = f"floor {self.parse + self.add:.2f} = parse {self.parse:.2f} + add {self.add:.2f}"
        return f"{self.answer:.2f} ms CPU; {floor}"


def cost(answerer: Answerer, kind: Kind, runs: int = RUNS) -> Cost:
    """Medians over ever new statements, the floor and the answer in turns.

    Args:
        answerer: who answers.
        kind: of the statements.
        runs: so many are counted, after some that are not.
    """
    asking, floor = statements(kind.draw), Floor(answerer.release, kind.sql)
    found = []
    for _ in range(WARM + runs):
        asked = next(asking)
        values = floor.values(asked)
        answer = partial(answerer.query, asked.text)
        found.append((cpu(answer), cpu(partial(floor.parse, asked)), cpu(partial(floor.add, values))))
        assert [row[-1] for row in answer().rows] == kind.told(asked, floor.add(values)), asked.text
    return Cost(*np.median(np.array(found[WARM:]), axis=0).tolist())


def statements(kind: Callable[[np.random.Generator], Asked], seed: int = 7) -> Iterator[Asked]:
    """Ever new statements of a kind."""
    rng = np.random.default_rng(seed)
    while True:
        yield kind(rng)


def measure(answerer: Answerer, figures: Figures) -> Mapping[str, Cost]:
    """The figures of a release of a million node combinations, and the cost of each kind."""
    found = {}
    for kind in KINDS:
        found[kind.name] = each = cost(answerer, kind)
        print(f"{kind.name}: {each.words()}")
        figures.at_most(
            "1e6 node combinations, CPU over the floor by its bound", each.times / kind.bound, 1, kind.name
        )
    return found
