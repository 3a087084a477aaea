"""What a statement costs whose shape was asked before, beside DuckDB's own sum of the same numbers: the floor.

The floor is one kept statement of DuckDB's, parsed once, with the ends of ranges bound, over a copy in memory of the
numbers of the axes asked and nothing else: no plan, no error, no note. It is the cheapest we know for each kind:

| release | the copy |
|---|---|
| board: 200 days x 60 ages | leaves, `BETWEEN ? AND ?` on each axis |
| million: 1,090 x 1,090 nodes | one range by leaves of its axis, two axes by joined lists of nodes |

Each answer has constants of its own. Floors and answers are measured in turns, statement by statement. Medians of CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import duckdb
import numpy as np

from benchmarks.figures import Figures
from benchmarks.processes import cpu_of
from dpsql.executor.engine import ReleaseEngine
from dpsql.release import Release
from dpsql.release.format import UNIT
from dpsql.results.result import Result
from dpsql.tree import cover

WARM = 10
CELLS, NODES = "nodes AS c", "SELECT unnest($%d::INTEGER[]) AS n"
RANGES = f"""SELECT SUM(c.estimate) FROM {CELLS}, ({NODES % 1}) AS a, ({NODES % 2}) AS b
    WHERE c.n1 = a.n AND c.n2 = b.n"""
GROUPS = f"""SELECT SUM(c.estimate) FROM {CELLS}, (SELECT unnest($1::INTEGER[]) AS g, unnest($2::INTEGER[]) AS n) AS a,
    ({NODES % 3}) AS b WHERE c.n1 = a.n AND c.n2 = b.n GROUP BY a.g ORDER BY a.g"""
"""What adds up nodes; the root of the second axis is node 0."""


def cpu(action: Callable[[], object]) -> float:
    """Milliseconds of CPU."""
    return 1e3 * cpu_of(action)


RUNS = 150
NEW = 40

BOARD = """
dpsql: 1
name: board
source: {kind: parquet, root: "ROOT", tables: {visits: visits.parquet, person: person.parquet}}
privacy: {lineage: board, cap: 10, unit: row, epsilon: 1.0}
tables:
  person: {role: dimension, key: id, private: true, columns: {age: {type: int, lower: 20, upper: 79}}}
  visits: {role: fact, foreign_keys: {id: {references: person, on_missing: drop}}, columns: {
    day: {type: int, lower: 0, upper: 199}}}
views:
  by_day: {of: visits, axes: [visits.day, person.age], measures: [count]}
"""


class Range(NamedTuple):
    """A half-open range of leaves."""

    low: int
    high: int


class RangeStatement(NamedTuple):
    """A statement, with the ranges of leaves of both axes that it adds up.

    Args:
        text: SQL with a place for what makes its shape new.
        first, second: the ranges.
    """

    text: str
    first: Range
    second: Range


class RepeatedKind(NamedTuple):
    """A kind of statement.

    Args:
        name: of its figure.
        draw: draws one.
        floor: DuckDB text over the copy.
        bound: values for its placeholders, by the trees.
        most: floors that a repeated one may cost.
    """

    name: str
    draw: Callable[[np.random.Generator], RangeStatement]
    floor: str
    bound: Callable[[RangeStatement, Release], list[object]]
    most: float


def drawn(rng: np.random.Generator, leaves: int) -> Range:
    """A range that is not empty."""
    low, high = np.sort(rng.choice(leaves + 1, size=2, replace=False)).tolist()
    return Range(low, high)


def nodes(release: Release, axis: int, leaves: Range) -> list[int]:
    """The nodes of a range."""
    return [int(node) for node in cover(release.tree(axis), [leaves.low], [leaves.high])[1]]


def _ends(statement: RangeStatement, release: Release) -> list[object]:
    return [statement.first.low, statement.first.high - 1]


def _both_ends(statement: RangeStatement, release: Release) -> list[object]:
    return [*_ends(statement, release), statement.second.low, statement.second.high - 1]


def _both_nodes(statement: RangeStatement, release: Release) -> list[object]:
    return [nodes(release, 0, statement.first), nodes(release, 1, statement.second)]


def _grouped_nodes(statement: RangeStatement, release: Release) -> list[object]:
    groups = range(100)
    return [
        list(groups),
        [nodes(release, 0, Range(g, g + 1))[0] for g in groups],
        nodes(release, 1, statement.second),
    ]


def kinds(
    table: str, first: tuple[str, int], second: tuple[str, int, int], small: bool
) -> Sequence[RepeatedKind]:
    """One range, two ranges joined, and a hundred groups of a release.

    Args:
        table: what is counted.
        first: a column of it and its leaves.
        second: a column of the joined dimension, its leaves and its least value.
        small: whether the floor adds up leaves of both axes.
    """
    (x, leaves), (y, others, least) = first, second
    joined = f"FROM {table} JOIN person USING (id)"

    def one(rng: np.random.Generator) -> RangeStatement:
        a, b = drawn(rng, leaves)
        text = f"SELECT COUNT(*) AS n{{}} FROM {table} WHERE {x} >= {a} AND {x} < {b}"
        return RangeStatement(text, Range(a, b), Range(0, others))

    def two(rng: np.random.Generator) -> RangeStatement:
        (a, b), (c, d) = drawn(rng, leaves), drawn(rng, others)
        within = f"{x} >= {a} AND {x} < {b} AND {y} BETWEEN {least + c} AND {least + d - 1}"
        return RangeStatement(f"SELECT COUNT(*) AS n{{}} {joined} WHERE {within}", Range(a, b), Range(c, d))

    def groups(rng: np.random.Generator) -> RangeStatement:
        c, d = drawn(rng, others)
        within = f"{x} < 100 AND {y} BETWEEN {least + c} AND {least + d - 1}"
        text = f"SELECT {x}, COUNT(*) AS n{{}} {joined} WHERE {within} GROUP BY {x}"
        return RangeStatement(text, Range(0, 100), Range(c, d))

    within = "WHERE l0 BETWEEN ? AND ?"
    return (
        RepeatedKind("one range", one, f"SELECT SUM(estimate) FROM margin {within}", _ends, 2.5),
        RepeatedKind(
            "two ranges joined", two,
            f"SELECT SUM(estimate) FROM leaves {within} AND l1 BETWEEN ? AND ?" if small else RANGES,
            _both_ends if small else _both_nodes, 3.0,
        ),
        RepeatedKind(
            "100 groups", groups,
            f"SELECT SUM(estimate) FROM leaves {within} AND l1 BETWEEN ? AND ? GROUP BY l0"
            if small else GROUPS,
            _both_ends if small else _grouped_nodes, 3.0,
        ),
    )  # fmt: skip


class KeptSums:
    """The floor's copy in memory: `nodes` of both axes, `leaves` of both, and the `margin` of the first."""

    def __init__(self, release: Release) -> None:
        columns = release.whole("node_combination_0")
        self.connection = duckdb.connect(config={"threads": "1"})
        self.connection.execute(
            "CREATE TABLE nodes AS SELECT unnest(?) AS n1, unnest(?) AS n2, unnest(?) AS estimate",
            [columns["n1"], columns["n2"], columns["estimate"]],
        )
        for axis in (0, 1):
            numbers = release.tree(axis).leaves
            self.connection.execute(
                f"CREATE TABLE axis_{axis} AS SELECT unnest(?) AS n, unnest(?) AS l",
                [numbers, np.arange(len(numbers))],
            )
        self.connection.execute(
            "CREATE TABLE leaves AS SELECT a.l::INTEGER AS l0, b.l::INTEGER AS l1, estimate "
            "FROM nodes JOIN axis_0 AS a ON n1 = a.n JOIN axis_1 AS b ON n2 = b.n ORDER BY l0, l1"
        )
        self.connection.execute(
            "CREATE TABLE margin AS SELECT a.l::INTEGER AS l0, estimate FROM nodes JOIN axis_0 AS a ON n1 = a.n "
            "WHERE n2 = 0 ORDER BY l0"
        )

    def prepared(self, sql: str) -> Callable[[list[object]], list[float]]:
        """A kept statement: values -> its sums."""
        cursor = self.connection.cursor()
        (statement,) = cursor.extract_statements(sql)
        return lambda values: [row[0] for row in cursor.execute(statement, values).fetchall()]


def with_errors(result: Result) -> None:
    """What `r.stderr` and `r.interval()` take."""
    _ = result.stderr_rows, result.interval_rows()


def repeated_cost(answerer: ReleaseEngine, kind: RepeatedKind, kept: KeptSums, seed: int = 11) -> list[float]:
    """Median CPU in milliseconds over ever new constants: of the floor, and of an answer with its notes, with its
    errors, and of a new shape; the floor and the answer in turns. New shapes have a name of their own."""
    rng, floor = np.random.default_rng(seed), kept.prepared(kind.floor)
    measured: list[tuple[float, float, float]] = []
    for _ in range(WARM + RUNS):
        statement = kind.draw(rng)
        text, values = statement.text.format(""), kind.bound(statement, answerer.release)
        answers: list[Result] = []

        def ask(text: str = text, answers: list[Result] = answers) -> None:
            answers.append(answerer.query(text))
            _ = answers[0].notes

        answer = cpu(ask)
        errors = cpu(partial(with_errors, answers[0]))
        measured.append((cpu(partial(floor, values)), answer, answer + errors))
        assert [row[-1] for row in answers[0].rows] == [total / UNIT for total in floor(values)], text
    fresh = [cpu(partial(answerer.query, kind.draw(rng).text.format(number))) for number in range(NEW)]
    return [*np.median(np.array(measured[WARM:]), axis=0).tolist(), float(np.median(fresh))]


def measure(name: str, answerer: ReleaseEngine, figures: Figures, small: bool) -> None:
    """The figures of one release."""
    first, second = (("day", 200), ("age", 60, 20)) if small else (("x", 748), ("y", 748, 0))
    kept = KeptSums(answerer.release)
    for kind in kinds("visits" if small else "facts", first, second, small):
        floor, *costs = repeated_cost(answerer, kind, kept)
        answer, errors, new = costs
        print(
            f"{name}, {kind.name}: floor {floor:.2f} ms CPU, answer {answer:.2f}, with errors {errors:.2f}, "
            f"a new shape {new:.2f}"
        )
        where, floors = f"{name}, {kind.name}", [cost / floor for cost in costs]
        figures.at_most(
            "repeated shape, over DuckDB's kept sum by its bound", floors[0] / kind.most, 1, where
        )
        figures.at_most("repeated shape with errors, over DuckDB's kept sum", floors[1], 4, where)
        figures.at_most("new shape, over DuckDB's kept sum", floors[2], 26, where)
