"""Blocks spend what their lines say and no more: every stage in integers, releases on aimed neighbours, plants."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dpsql.errors import PrivacyError
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.designs import blocks
from dpsql.mechanisms.designs.blocks import Blocks, SelectionStatistic, bar_of, block_grids, forecast, stages
from dpsql.mechanisms.designs.measurement import DrawParameters
from dpsql.mechanisms.designs.partition import BlockGrid, Partition, block_grid, partition
from dpsql.mechanisms.designs.question import FamilyAxis, Grains
from dpsql.mechanisms.distribution import LAPLACE
from dpsql.noise import Noise
from tests.privacy.loss import Distinguished, DrawLoss, Loss, RawRows, loss_of, measure
from tests.thinned import by_default

AXES = [FamilyAxis("x", 70, None, Grains(1, 1), 2), FamilyAxis("y", 35, None, Grains(1, 1))]
SHAPE = (70, 35)
LAST = (1 << 62) - 1


def moved(left: np.ndarray, right: np.ndarray) -> int:
    return sum(abs(int(a) - int(b)) for a, b in zip(left.ravel(), right.ravel(), strict=True))


def some(seed: int, bar: int) -> Callable[[int, np.ndarray], np.ndarray]:
    """Looks that split half of the blocks."""
    rng = np.random.default_rng(seed)
    return lambda level, nodes: rng.integers(-bar, 3 * bar, np.count_nonzero(nodes))


@pytest.mark.parametrize(
    ("sensitivity", "spend"),
    by_default(product([1, 5, 3 << 20], [Fraction(1, 7), Fraction(1), Fraction(4)]), 3),
)
def test_no_cell_moves_its_numbers_by_more_than_their_noise_is_for(spend: Fraction, sensitivity: int):
    """Rows in every cell, at and around the bar too; the partition is whatever noisy numbers say."""
    own = stages(spend * (1 - blocks.CHOICE), sensitivity)
    chosen = forecast(AXES, spend, sensitivity)
    rng, bar = np.random.default_rng(7), bar_of(spend, sensitivity)
    x = (rng.random(SHAPE) < 0.02) * sensitivity
    x[4, 4] = bar - 1
    x[9, 9] = bar
    found, _ = partition(block_grids(AXES), bar, some(8, bar))
    assert len(set(found.level[~found.is_split])) == 3
    assert np.any(found.loud)
    units = found.row_budgets(own.leaf, own.cell)
    most = Fraction(0)
    for cell in np.ndindex(SHAPE):
        y = x.copy()
        y[cell] += sensitivity
        number = abs(chosen.number(y) - chosen.number(x))
        choice = Fraction(chosen.units * number, chosen.denominator)
        looks = sum(own.look[level] * moved(grid.sums(y)[found.is_node(level)], grid.sums(x)[found.is_node(level)])
                    for level, grid in enumerate(found.grids))  # fmt: skip
        rows = int((units * np.abs(found.measure(y) - found.measure(x))).sum())
        loss = choice + Fraction(looks + rows, own.denominator)
        assert choice <= spend * blocks.CHOICE
        assert loss <= spend
        most = max(most, loss)
    assert most > spend * Fraction(999, 1000)  # nothing is wasted on the worst cell


def test_every_partition_measures_every_cell_once():
    grids = tuple(block_grid((9, 9), (0, 0), side) for side in (6, 3, 2))
    grids = (grids[0], grids[1]), (grids[2],)
    for seed in range(200):
        for nested in grids:
            found, _ = partition(nested, 20, some(seed, 20))
            for cell in np.ndindex(9, 9):
                one = np.zeros((9, 9), np.int64)
                one[cell] = 1
                assert int(np.abs(found.measure(one)).sum()) == 1


def test_huge_cells_do_not_carry_the_forecast_over_the_end_of_64_bits():
    chosen = forecast(AXES, Fraction(1, 100), 9 << 20)
    x = np.full(SHAPE, LAST)
    y = x.copy()
    y[3, 3] -= 9 << 20
    assert 0 <= chosen.number(x) - chosen.number(y) <= int(chosen.weights.max()) * (9 << 20)
    assert chosen.number(x) == int(chosen.weights.sum()) * chosen.bar
    with pytest.raises(PrivacyError, match="too small for blocks"):
        forecast(AXES, Fraction(1, 1000), 1 << 40)


HEAD = """
privacy: {lineage: p, cap: 9, unit: UNIT, epsilon: 1, NEIGHBOURS}
tables:
  owner: {role: dimension, key: id, private: true, columns: {age: {type: int, lower: 0, upper: 3}}}
  hits: {role: fact, foreign_keys: {id: owner}, BOUNDS columns: {
    x: {type: int, lower: 0, upper: 31, out_of_domain: drop}, y: {type: int, lower: 0, upper: 31, out_of_domain: drop},
    v: {type: int, lower: 0, upper: 10, measure: true}}}
views:
  plane: {of: hits, axes: [hits.x, hits.y], measures: {count: 0.6, hits.v: 0.4}, mechanism: blocks}
"""
HITS, OWNER = "id INT, x INT, y INT, v INT", "id INT, age INT"


def star(rows: int, *, full: bool, victim: bool) -> dict[str, RawRows]:
    """A cluster in an empty plane, or a full plane; the victim owns dear rows in the middle, in a block of few rows."""
    crowd = range(32) if full else range(0, 32, 11)
    own = [
        (i % 40, x, y, 5) for i, x in enumerate(crowd) for y in range(32) for _ in range(40 if full else 1)
    ]
    own = [row for row in own if not (full and 14 <= row[1] < 18 and 14 <= row[2] < 18)]
    own += [(99, 16, 16, 10)] * (rows if victim else 0)
    return {"hits": RawRows(HITS, own), "owner": RawRows(OWNER, [(i, i % 4) for i in [*range(40), 99]])}


def pair(folder: Path, *, full: bool = False, rows: int = 1, neighbours: str = "", bounds: str = "") -> Loss:
    unit = "owner.id" if bounds else "row"
    catalog = HEAD.replace("UNIT", unit).replace("BOUNDS", bounds).replace("NEIGHBOURS", neighbours)
    left, right = (star(rows, full=full, victim=victim) for victim in (True, False))
    return measure(catalog, left, right, folder)


def test_a_row_costs_what_is_claimed(tmp_path: Path):
    loss = pair(tmp_path)
    assert 0.98 <= loss.share <= 1
    assert len(loss.draws) == 9  # choice, three looks and rows of the count; three looks and rows of the sum
    charged = [float(amount) for _, amount in loss.lines]
    assert charged == pytest.approx([0.006, 0.594, 0.4])
    losses = [draw.epsilon for draw in loss.draws]
    for spent, amount in zip((losses[:1], losses[1:5], losses[5:]), charged, strict=True):
        assert sum(spent) <= amount


def test_a_row_costs_what_is_claimed_where_the_product_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MOST_LOUD", 0.2)
    loss = pair(tmp_path, full=True)
    assert 0.97 <= loss.share <= 1
    assert len(loss.draws) == 3


@pytest.mark.parametrize(
    ("how", "most"),
    [
        ({"rows": 300, "bounds": "max_ids: 4, bounding: truncate,"}, 1),
        ({"rows": 300, "bounds": "max_ids: 4, bounding: weight,"}, 1),
        ({"neighbours": "neighbours: replace_one"}, 0.5),  # noise for twice as much
    ],
)
def test_an_owner_of_many_rows_and_another_row_cost_what_is_claimed(tmp_path, how, most):
    assert 0.98 * most - 0.01 * (most < 1) <= pair(tmp_path, **how).share <= most


EPSILON = Fraction(1)
LINES = [part.share for part in Blocks(tuple(AXES), 1e9).facts.parts]


def heaviest() -> tuple[int, ...]:
    """A cell in the block of the largest weight."""
    chosen = forecast(AXES, EPSILON, 1)
    weights = chosen.grid.spread(chosen.weights)
    return tuple(np.argwhere(weights == weights.max())[0].tolist())


def direct(x: np.ndarray) -> tuple[DrawLoss, ...]:
    """A count with a row more in the block of the largest weight."""
    own = DrawParameters([leaf_strategy(n) for n in SHAPE], LAPLACE, EPSILON, 1)
    y = x.copy()
    y[heaviest()] += 1

    def publish(data: np.ndarray) -> Callable[[Noise], object]:
        return lambda noise: Blocks(tuple(AXES), 1e9).draw(data, own, noise).value.tolist()

    return loss_of(publish(x), publish(y))


def empty() -> np.ndarray:
    return np.zeros(SHAPE, np.int64)


def crowded() -> np.ndarray:
    """A plane with a block of each grid that is split, around the heaviest cell."""
    x = empty()
    x[heaviest()] = 10 * bar_of(EPSILON, 1)
    return x


@pytest.mark.parametrize("make", [empty, crowded])
def test_every_draw_of_a_count_costs_its_line(make: Callable[[], np.ndarray]):
    """Blocks that stop at the coarsest grid, and a cell below three looks, whose block the choice has cut."""
    choice, *others = (draw.epsilon for draw in direct(make()))
    assert len(others) == 4
    assert choice == 0 if make is crowded else LINES[0] * Fraction(999, 1000) < choice <= LINES[0]
    assert LINES[1] * Fraction(999, 1000) < sum(others) <= LINES[1]
    assert (others[1] > 0) == (make is crowded)


def _loud_blocks(chosen: SelectionStatistic, x: np.ndarray) -> int:
    return int((chosen.weights * np.where(chosen.grid.sums(x) > 0, chosen.bar, 0)).sum())


def _twice(found: Partition, x: np.ndarray) -> np.ndarray:
    rows = np.zeros(found.row_count, np.int64)
    for row in (found.rows, found.rows[::-1]):
        np.add.at(rows, row.ravel(), x.ravel())
    return rows


def _overlapping(grid: BlockGrid, x: np.ndarray) -> np.ndarray:
    return sum(np.add.reduceat(np.add.reduceat(x, e[:-1], axis=0), f[:-1], axis=1)
               for e, f in (grid.edges, grid.edges))  # fmt: skip


def _leaves_spend_all(partition: Partition, rest: tuple[int, ...], cell: int) -> np.ndarray:
    """Leaves spend what they would have if they had not been looked at."""
    whole = rest[0] + stages(EPSILON * (1 - blocks.CHOICE), 1).look[0]
    return ROW_BUDGETS(partition, (whole, whole, whole), cell)


def _cells_spend_all(partition: Partition, rest: tuple[int, ...], cell: int) -> np.ndarray:
    """Cells spend what leaves of the coarsest grid do."""
    return ROW_BUDGETS(partition, rest, rest[0])


ROW_BUDGETS = Partition.row_budgets


@pytest.mark.parametrize(
    ("where", "name", "planted", "make", "line"),
    [
        (SelectionStatistic, "number", _loud_blocks, empty, 0),
        (BlockGrid, "sums", _overlapping, empty, 1),
        (Partition, "measure", _twice, empty, 1),
        (Partition, "row_budgets", _leaves_spend_all, empty, 1),
        (Partition, "row_budgets", _cells_spend_all, crowded, 1),
    ],
)
def test_planted_rows_cost_more_than_their_line(monkeypatch, where, name, planted, make, line):
    """A count of loud blocks where a cut sum was proved, a cell in two blocks, a cell in two rows, a look that is not
    paid for by leaves or by cells."""
    x = make()
    monkeypatch.setattr(where, name, planted)
    choice, *others = (draw.epsilon for draw in direct(x))
    assert (choice, sum(others))[line] > LINES[line]


def test_noise_for_the_mean_weight_costs_more(monkeypatch: pytest.MonkeyPatch):
    def cheap(*asked: object) -> SelectionStatistic:
        found = forecast(*asked)  # type: ignore[arg-type]
        ratio = int(found.weights.max()) / float(found.weights.mean())
        return SelectionStatistic(
            found.grid, found.weights, found.bar, int(found.units * ratio), found.denominator
        )

    monkeypatch.setattr(blocks, "forecast", cheap)
    assert direct(empty())[0].epsilon > LINES[0] * Fraction(11, 10)


def test_a_partition_of_true_numbers_is_told_apart(monkeypatch: pytest.MonkeyPatch):
    """A row more takes the block over the bar, and another number of rows is drawn."""
    seen: dict[int, np.ndarray] = {}
    sums = BlockGrid.sums

    def remember(grid: BlockGrid, x: np.ndarray) -> np.ndarray:
        seen[grid.cells.size] = sums(grid, x)
        return seen[grid.cells.size]

    def peek(grids: tuple[BlockGrid, ...], bar: int, look: Callable[..., np.ndarray]) -> object:
        def exact(level: int, nodes: np.ndarray) -> np.ndarray:
            look(level, nodes)
            return seen[nodes.size][nodes]

        return partition(grids, bar, exact)

    x = empty()
    x[heaviest()] = bar_of(EPSILON, 1)
    assert sum(draw.epsilon for draw in direct(x)) <= EPSILON
    monkeypatch.setattr(BlockGrid, "sums", remember)
    monkeypatch.setattr(blocks, "partition", peek)
    with pytest.raises(Distinguished):
        direct(x)
