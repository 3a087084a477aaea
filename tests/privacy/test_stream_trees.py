"""Streams by one draw: exact loss of whole streams, the file's bytes, what a kill leaves, and defects put back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from dpsql.errors import IntegrityError, InternalError
from dpsql.matrices.strategy import AxisBudget
from dpsql.mechanisms.axis.joint_tree import TOTAL
from dpsql.mechanisms.continual import time_tree
from dpsql.mechanisms.continual.time_tree import joint_time_strategy
from dpsql.mechanisms.distribution import Laplace
from dpsql.noise import ExactNoise, Noise, insecure_test_entropy
from dpsql.streams import state as state_module
from dpsql.streams.append import Batch, StreamNoise, StreamSpec, StreamStatistic, opened_stream
from dpsql.streams.public import read_manifest, read_segments
from dpsql.tree import IntArray
from tests.privacy.joints import BATCHES, VICTIM, catalog, person
from tests.privacy.loss import Loss
from tests.thinned import by_default
from tests.time_forms import create_stream

LAW = Laplace(2, 90)
CELLS, HORIZON = 40, 6
STRATEGY = joint_time_strategy(Laplace(), HORIZON, (2, 4), (300, 900, TOTAL - 1200))
STATISTICS = tuple(
    StreamStatistic(LAW, (AxisBudget(np.ones(CELLS, np.int64), 1),), Fraction(1, 2), bound)
    for bound in (3, 90)
)
SPEC = StreamSpec(STRATEGY, (CELLS, CELLS), 2, together=((0, 1),))


def rows(batch: int) -> tuple[IntArray, IntArray]:
    rng = np.random.default_rng(batch)
    return rng.integers(0, 9, CELLS), rng.integers(-900, 900, CELLS)


class Shop:
    """A stream of two numbers a cell, drawn ahead."""

    def __init__(self, folder: Path) -> None:
        self.directory, self.private = folder / "shop.dpsql", folder / "private" / "state"
        create_stream(self.directory, self.private, SPEC, release_id="shop", secret=bytes(range(32)))
        self.noise: Noise = ExactNoise(insecure_test_entropy(4))

    def append(self, batch: int, added: int = 0, kill: str = "") -> None:
        def kill_point(step: str) -> None:
            if step == kill:
                raise KeyboardInterrupt

        cells = tuple(cells + added for cells in rows(batch))
        with opened_stream(self.directory, self.private, SPEC, kill_point=kill_point) as stream:
            stream.append(Batch(batch, b"", cells), StreamNoise(STATISTICS, self.noise))

    def published(self) -> IntArray:
        """int64[batches, 2, cells]."""
        columns = read_segments(self.directory, read_manifest(self.directory))
        return columns["value"].reshape(-1, 2, CELLS)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_noise_of_a_public_batch_is_nowhere_in_the_file(shop: Shop) -> None:
    assert left_behind(shop) == []


def test_noise_that_only_leaves_its_row_is_found_in_the_file(shop: Shop) -> None:
    """Planted: deleted rows are not overwritten."""

    class Loose(sqlite3.Connection):
        def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
            return super().execute(sql.replace("secure_delete = ON", "secure_delete = OFF"), *arguments)

    connect = sqlite3.connect
    with mock.patch.object(
        state_module.sqlite3, "connect", lambda *a, **named: connect(*a, **named, factory=Loose)
    ):
        assert left_behind(shop) != []


def left_behind(shop: Shop) -> list[int]:
    """Batches whose noise the folder of the private state still holds once they are public."""
    found = []
    for batch in range(HORIZON):
        shop.append(batch)
        noise = shop.published()[batch] - np.stack(rows(batch))
        files = [file.read_bytes() for file in shop.private.parent.iterdir()]
        assert not list(shop.private.parent.glob("*-journal")) + list(shop.private.parent.glob("*-wal"))
        pieces = [number.astype("<i8").tobytes()[:160] for number in noise]
        found += [batch for content in files if any(piece in content for piece in pieces)]
    return found


def test_a_batch_is_its_rows_and_the_noise_that_was_kept(shop: Shop) -> None:
    shop.append(0)
    database = sqlite3.connect(shop.private)
    kept = dict(database.execute("SELECT node * 2 + statistic, draw FROM noise").fetchall())
    database.close()
    assert sorted(kept) == list(range(2, 2 * HORIZON))
    for batch in range(1, HORIZON):
        shop.append(batch)
    expected = [
        [np.frombuffer(kept[2 * batch + s], np.int64) + rows(batch)[s] for s in range(2)]
        for batch in range(1, HORIZON)
    ]
    assert np.array_equal(shop.published()[1:], expected)


@pytest.mark.parametrize("step", ["committed", "segment", "manifest"])
def test_after_a_kill_other_rows_change_nothing(shop: Shop, step: str) -> None:
    """Two sums from one draw would show their exact difference: what was decided is sent again."""
    for batch in range(3):
        shop.append(batch)
    with pytest.raises(KeyboardInterrupt):
        shop.append(3, kill=step)
    decided = sqlite3.connect(shop.private)
    outbox = [bytes(row[0]) for row in decided.execute("SELECT noised FROM outbox ORDER BY id")]
    decided.close()
    shop.append(3, added=1)
    assert [cells.tobytes() for cells in shop.published()[3]] == outbox


def test_a_kill_before_the_decision_tells_nothing_and_draws_nothing_anew(shop: Shop) -> None:
    shop.append(0)
    with pytest.raises(KeyboardInterrupt):
        shop.append(1, kill="drawn")
    assert len(shop.published()) == 1
    shop.append(1, added=5)
    noise = shop.published()[1] - np.stack(rows(1)) - 5
    assert np.abs(noise).max() < 10_000  # the batch's one draw, which nothing else shows


def test_noise_that_is_gone_ends_the_stream(shop: Shop) -> None:
    shop.append(0)
    database = sqlite3.connect(shop.private)
    with database:
        database.execute("DELETE FROM noise WHERE node = 1")
    database.close()
    (shop.private.parent / f"{shop.private.name}.sum").unlink(missing_ok=True)
    with pytest.raises(IntegrityError, match="lacks the noise of batch 1"):
        shop.append(1)


def test_errors_of_the_stream_are_those_stated(tmp_path: Path) -> None:
    """Observed over stated variance of days, ranges and totals, of both numbers, over the cells of six streams."""
    drawn = []
    for seed in range(6):
        noise = StreamNoise(STATISTICS, ExactNoise(insecure_test_entropy(seed)))
        drawn.append(noise.ahead((0, 1), STRATEGY.ahead))
    trees = np.concatenate(np.array(drawn), axis=2)  # (2, batches, cells)
    masks = np.array([[1, 0, 0, 0, 0, 0], [0, 1, 1, 1, 0, 0], [1] * 6])
    for number, statistic in zip(trees, STATISTICS, strict=True):
        unit = LAW.variance_at_unit_budget(
            (STRATEGY.ahead, *statistic.axes), statistic.spend, statistic.sensitivity
        )
        stated = unit * STRATEGY.variance(HORIZON).ranges([0, 1, 0], [1, 4, 6])
        squares = (masks @ number) ** 2 / stated[:, None]
        error = squares.std(axis=1) / np.sqrt(squares.shape[1])
        assert np.all(np.abs(squares.mean(axis=1) - 1) < 4 * error)


AHEAD = "stream: {column: sales.day, grain: day, horizon: 4, max_batches: LIFE, ends: true, workload: {running: 1}}"
HIGH, LOW = (7, 9), (7, -3)


def stream(life: int, measures: str = "[count, sales.amount]", text: str = AHEAD) -> str:
    return catalog(
        axes="sales.day", stream=text.replace("LIFE", str(life)), mechanism="", bounds="max_ids: 2,",
        measures=measures,
    )  # fmt: skip


def appended(text: str, *sales: tuple[str, int, int]) -> Callable[[Path], Loss]:
    return person(text, *((VICTIM, 1, *sale) for sale in sales), batches=BATCHES)


EVERY_DAY = [(day, *HIGH) for day in BATCHES for _ in range(5)]
CASES = {
    "count, every day": appended(stream(4, "[count]"), *EVERY_DAY),
    "count and sum, one day": appended(stream(1), *[(BATCHES[2], *LOW)] * 5),
    "count and sum, both signs": appended(stream(1), *[(BATCHES[0], *HIGH), (BATCHES[0], *LOW)] * 5),
    "more days than she may": appended(stream(2), *EVERY_DAY),
}


@pytest.mark.parametrize("name", by_default(CASES, 2))
def test_a_stream_drawn_ahead_loses_what_it_claims(name: str, tmp_path: Path) -> None:
    loss = CASES[name](tmp_path)
    assert 0.98 <= loss.share <= 1
    assert (
        sum(draw.where.endswith("with_stored") or draw.where.endswith("stored") for draw in loss.draws) == 4
    )


TODAY = AHEAD.replace(", ends: true", "")


def test_nodes_of_a_stream_without_an_end_are_joint_rows(tmp_path: Path) -> None:
    loss = appended(stream(2, text=TODAY), *EVERY_DAY)(tmp_path)
    assert 0.98 <= loss.share <= 1
    assert any("count and sales.amount together" in purpose for purpose, _ in loss.lines)


def no_price(was: Callable[..., object]) -> Callable[..., object]:
    return lambda law: lambda batches: Fraction(1)


def no_tau(was: Callable[..., object]) -> Callable[..., object]:
    return lambda self, group: [1, *was(self, group)[1:]]


@pytest.mark.parametrize(
    ("owner", "attribute", "broken"),
    [(time_tree, "in_one_node", no_price), (StreamNoise, "_sensitivities", no_tau)],
    ids=["batches of a person priced as one", "tau divided out of the count alone"],
)
def test_a_defect_put_back_is_found(
    owner: object, attribute: str, broken: Callable[..., object], tmp_path: Path
) -> None:
    with mock.patch.object(owner, attribute, broken(getattr(owner, attribute))):
        assert CASES["more days than she may"](tmp_path).share > 1.5


def test_shares_of_a_path_never_pass_the_whole() -> None:
    with pytest.raises(InternalError, match="more sensitive"):
        joint_time_strategy(Laplace(), 6, (2, 4), (300, 900, TOTAL - 1199))
