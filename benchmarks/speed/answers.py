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


class Floor:
    """Parses, and adds up node combinations by one prepared statement.

    Args:
        release: of one view over two axes.
        sql: the statement: one of `RANGE`, `RANGES`, `GROUPS`.
    """

    def __init__(self, release: Release, sql: str) -> None:
        self.trees = [release.tree(axis) for axis in (0, 1)]
        self.cursor = release.connection.cursor()
        (self.prepared,) = self.cursor.extract_statements(sql)
        self.grouped, self.joined = sql is GROUPS, sql is not RANGE

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
"""What adds up nodes; the root of the second axis is node 0."""


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


def cost(answerer: Answerer, statements: Iterator[Asked], floor: Floor, runs: int = RUNS) -> Cost:
    """Medians over statements, the floor and the answer in turns.

    Args:
        answerer: who answers.
        statements: ever new ones of a kind.
        floor: of the kind.
        runs: so many are counted, after some that are not.
    """
    found = []
    for _ in range(WARM + runs):
        asked = next(statements)
        values = floor.values(asked)
        answer = partial(answerer.query, asked.text)
        found.append((cpu(answer), cpu(partial(floor.parse, asked)), cpu(partial(floor.add, values))))
        assert [row[-1] for row in answer().rows] == [total / UNIT for total in floor.add(values)]
    return Cost(*np.median(np.array(found[WARM:]), axis=0).tolist())


def statements(kind: Callable[[np.random.Generator], Asked], seed: int = 7) -> Iterator[Asked]:
    """Ever new statements of a kind."""
    rng = np.random.default_rng(seed)
    while True:
        yield kind(rng)


MEDIAN, MEDIANS = "SELECT MEDIAN(x) FROM facts WHERE x < {}", 40


class Kind(NamedTuple):
    """A kind of statement, what adds up its nodes, and how many floors it may cost."""

    name: str
    draw: Callable[[np.random.Generator], Asked]
    sql: str
    bound: float


KINDS = (
    Kind("one range", one_range, RANGE, 2.0),
    Kind("two ranges joined", two_ranges, RANGES, 3.0),
    Kind("100 groups", hundred_groups, GROUPS, 5.0),
)


def measure(answerer: Answerer, figures: Figures) -> Mapping[str, Cost]:
    """The figures of a release of a million node combinations, and the cost of each kind."""
    found = {}
    for kind in KINDS:
        found[kind.name] = each = cost(answerer, statements(kind.draw), Floor(answerer.release, kind.sql))
        print(f"{kind.name}: {each.words()}")
        figures.at_most(f"1e6 node combinations, {kind.name}, times the floor", each.times, kind.bound)
    median = [cpu(partial(answerer.query, MEDIAN.format(LEAVES - i))) for i in range(MEDIANS)]
    figures.at_most("MEDIAN along an axis of 748 values, ms of CPU", float(np.median(median)), 10.0)
    return found
