"""Streams by one draw: exact loss of whole streams, the file's bytes, what a kill leaves, and defects put back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest

from dpsql.errors import IntegrityError, InternalError
from dpsql.matrices.strategy import AxisBudget
from dpsql.mechanisms.axis.joint_tree import TOTAL
from dpsql.mechanisms.continual import time_tree
from dpsql.mechanisms.continual.time_tree import (
    Emission,
    TimeStrategy,
    joint_time_strategy,
    own_node,
    tree_strategy,
)
from dpsql.mechanisms.distribution import GAUSSIAN, Laplace, refined
from dpsql.noise import ExactNoise, Noise, insecure_test_entropy
from dpsql.streams import state as state_module
from dpsql.streams.append import Batch, OpenStream, StreamNoise, StreamSpec, StreamStatistic, opened_stream
from dpsql.streams.public import read_manifest, read_segments
from dpsql.tree import IntArray
from tests.privacy.joints import BATCHES, VICTIM, catalog, person
from tests.privacy.loss import Loss, loss_of
from tests.thinned import by_default
from tests.time_forms import create_stream, ending, lasting

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
def test_a_defect_put_back_is_found(owner, attribute, broken, tmp_path):
    with mock.patch.object(owner, attribute, broken(getattr(owner, attribute))):
        assert CASES["more days than she may"](tmp_path).share > 1.5


def test_shares_of_a_path_never_pass_the_whole() -> None:
    with pytest.raises(InternalError, match="more sensitive"):
        joint_time_strategy(Laplace(), 6, (2, 4), (300, 900, TOTAL - 1199))


# The exact loss of whole streams whose batches are chosen after what was published before, decision by decision.


ADAPTIVE_BATCHES, BOUND, MU2 = 10, 7, Fraction(1, 20)


class Rows(NamedTuple):
    """What the adversary puts into a batch: how much into which of two cells."""

    cell: int
    amount: int


Adversary = Callable[[int, np.ndarray, int], Rows | None]
"""(batch, what is public, batches left) -> her rows, or None for none."""


def at_once(batch: int, public: np.ndarray, left: int) -> Rows:
    """From the first batch on."""
    return Rows(0, BOUND)


def by_parity(batch: int, public: np.ndarray, left: int) -> Rows | None:
    """In when the newest number is odd, on the side that it lies."""
    if not public.size or public[-1] % 2 == 0:
        return None
    return Rows(int(public[-2]) % 2, BOUND if public[-1] > 0 else -BOUND)


def against(batch: int, public: np.ndarray, left: int) -> Rows | None:
    """Every second batch, with turning signs."""
    return Rows(1, BOUND if batch % 4 == 0 else -BOUND) if batch % 2 == 0 else None


class Stream(NamedTuple):
    """What is appended to and who attacks it."""

    strategy: TimeStrategy
    lifetime: int
    adversary: Adversary
    price: Fraction

    def share(self, folder: Path, seed: int) -> float:
        """The exact loss over the claim."""
        budget = AxisBudget(np.ones(2, np.int64), 1)
        statistic = StreamStatistic(GAUSSIAN, (budget,), MU2 / self.price, BOUND)

        def append(stream: OpenStream, noise: Noise, *, with_her: bool) -> object:
            public, left = np.zeros(0, np.int64), self.lifetime
            for number in range(ADAPTIVE_BATCHES):
                rows = self.adversary(number, public, left) if left else None
                exact = np.array([10, number])
                if rows:
                    left -= 1
                    exact[rows.cell] += rows.amount if with_her else 0
                stream.decide(Batch(number, b"", (exact,)), StreamNoise([statistic], noise))
                public = np.concatenate([public, *(node.values for node in stream.state.outbox(number))])
            return public.tolist()

        return share_of(folder, StreamSpec(self.strategy, (2,)), append, seed)


def share_of(folder: Path, spec: StreamSpec, append: Callable[..., object], seed: int = 0) -> float:
    """The exact loss over the claim of two streams, with her rows and without; `append` returns all that is public."""

    def side(name: str) -> Callable[[Noise], object]:
        def run(noise: Noise) -> object:
            directory, private = folder / name / "release", folder / name / "private" / "state"
            create_stream(directory, private, spec, release_id="r", secret=bytes(32))
            with opened_stream(directory, private, spec) as stream, stream.state.transaction():
                return append(stream, noise, with_her=name == "left")

        return run

    return float(sum(draw.mu2 for draw in loss_of(side("left"), side("right"), seed=seed)) / MU2)


STRATEGIES: dict[str, TimeStrategy] = {
    "known end": ending(ADAPTIVE_BATCHES, "running", "range", "1"),
    "single batches": ending(ADAPTIVE_BATCHES, "1", "running", units=4, cutoff=0.3),
    "no end": lasting(2, "running", "1"),
    "blocks": tree_strategy(GAUSSIAN, (1, 3, 6), (5, 3, 2)),
}


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("lifetime", [1, 4])
def test_an_adversary_who_sees_every_number_gains_nothing(tmp_path: Path, name: str, lifetime: int) -> None:
    strategy = STRATEGIES[name]
    shares = [
        Stream(strategy, lifetime, adversary, strategy.price(lifetime)).share(
            tmp_path / f"{place}", seed=place
        )
        for place, adversary in enumerate((at_once, by_parity, against))
    ]
    assert max(shares) <= 1 and shares[0] > 0.85 and shares[1] > 0


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_price_of_separate_batches_is_found(tmp_path: Path, name: str) -> None:
    """As if losses of batches added up: rows of several batches meet in the same numbers, and pay more."""
    share = Stream(STRATEGIES[name], 4, at_once, Fraction(4)).share(tmp_path, seed=1)
    assert share > 1


@pytest.mark.parametrize("name", ["known end", "no end"])
def test_noise_for_the_first_weight_alone_is_found(tmp_path: Path, name: str) -> None:
    strategy = STRATEGIES[name]
    first = int(strategy.emissions(0)[0].weights[0]) ** 2  # type: ignore[index]

    def dearer(batch: int) -> tuple[Emission, ...]:
        (right,) = strategy.emissions(batch)
        return (own_node(batch, 0, right.lo, right.hi, Fraction(1, first), right.weights),)

    planted = replace(strategy, released=dearer)
    assert Stream(planted, 1, at_once, Fraction(1)).share(tmp_path, seed=2) > 1.01


def crowded(folder: Path, strategy: TimeStrategy, others: int) -> float:
    """A stream whose other rows add up to some number in every batch; she is in the first of four."""
    statistic = StreamStatistic(GAUSSIAN, (AxisBudget(np.ones(1, np.int64), 1),), MU2, 64 * BOUND)

    def append(stream: OpenStream, noise: Noise, *, with_her: bool) -> object:
        for number in range(4):
            rows = others + BOUND * (with_her and number == 0)
            exact = np.array([rows % (1 << 64)], np.uint64).view(np.int64)
            stream.decide(Batch(number, b"", (exact,)), StreamNoise([statistic], noise))
        return [node.values.tolist() for number in range(4) for node in stream.state.outbox(number)]

    return share_of(folder, StreamSpec(strategy, (1,), None, (64,)), append)


EDGES = sorted({(1 << bits) // parts - BOUND // 2 for bits in (56, 57, 62, 63) for parts in (1, 2, 3)})


def worst_at_edges(folder: Path, strategy: TimeStrategy) -> float:
    return max(crowded(folder / f"{others}", strategy, others) for others in EDGES)


@pytest.mark.parametrize("name", ["no end", "known end", "blocks"])
def test_sums_beyond_64_bits_cost_no_more(tmp_path: Path, name: str) -> None:
    """Wherever sums, or sums times weights and grain, leave 64 bits."""
    assert worst_at_edges(tmp_path, STRATEGIES[name]) <= 1


def test_a_cut_of_what_has_wrapped_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamSpec, "refined", lambda self, exact, statistic: refined(exact, 64))
    assert worst_at_edges(tmp_path, STRATEGIES["blocks"]) > 1
