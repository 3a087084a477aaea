"""The exact loss of whole streams whose batches are chosen after what was published before, decision by decision.

A person's rows may be in D batches. In which, in which cell and with which sign an adversary decides, batch by batch,
from the noisy numbers that are public. Both sides see the same numbers, so they choose alike, and differ in her rows
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from dpsql.matrices.strategy import AxisBudget
from dpsql.mechanisms.continual.time_tree import Emission, TimeStrategy, own_node, tree_strategy
from dpsql.mechanisms.distribution import GAUSSIAN, refined
from dpsql.noise import Noise
from dpsql.streams.append import Batch, StreamNoise, StreamSpec, StreamStatistic, opened_stream
from tests.privacy.loss import loss_of
from tests.time_forms import create_stream, ending, lasting

BATCHES, BOUND, MU2 = 10, 7, Fraction(1, 20)


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

    def publish(self, folder: Path, *, with_her: bool) -> Callable[[Noise], object]:
        """A side: appends all batches, and returns all that is public."""
        budget = AxisBudget(np.ones(2, np.int64), 1)
        statistic = StreamStatistic(GAUSSIAN, (budget,), MU2 / self.price, BOUND)

        def run(noise: Noise) -> object:
            spec = StreamSpec(self.strategy, (2,))
            directory, private = folder / "release", folder / "private" / "state"
            create_stream(directory, private, spec, release_id="r", secret=bytes(32))
            public, left = np.zeros(0, np.int64), self.lifetime
            with opened_stream(directory, private, spec) as stream, stream.state.transaction():
                for number in range(BATCHES):
                    rows = self.adversary(number, public, left) if left else None
                    exact = np.array([10, number])
                    if rows:
                        left -= 1
                        exact[rows.cell] += rows.amount if with_her else 0
                    stream.decide(Batch(number, b"", (exact,)), StreamNoise([statistic], noise))
                    sent = [node.values for node in stream.state.outbox(number)]
                    public = np.concatenate([public, *sent])
            return public.tolist()

        return run

    def share(self, folder: Path, seed: int) -> float:
        """The exact loss over the claim."""
        sides = [self.publish(folder / name, with_her=name == "left") for name in ("left", "right")]
        return float(sum(draw.mu2 for draw in loss_of(*sides, seed=seed)) / MU2)


STRATEGIES: dict[str, TimeStrategy] = {
    "known end": ending(BATCHES, "running", "range", "1"),
    "single batches": ending(BATCHES, "1", "running", units=4, cutoff=0.3),
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


class Crowded(NamedTuple):
    """A stream whose other rows add up to some number in every batch; she is in the first one."""

    strategy: TimeStrategy
    others: int

    def publish(self, folder: Path, *, with_her: bool) -> Callable[[Noise], object]:
        """A side: four batches."""
        statistic = StreamStatistic(GAUSSIAN, (AxisBudget(np.ones(1, np.int64), 1),), MU2, 64 * BOUND)

        def run(noise: Noise) -> object:
            spec = StreamSpec(self.strategy, (1,), None, (64,))
            directory, private = folder / "release", folder / "private" / "state"
            create_stream(directory, private, spec, release_id="r", secret=bytes(32))
            with opened_stream(directory, private, spec) as stream, stream.state.transaction():
                for number in range(4):
                    rows = self.others + BOUND * (with_her and number == 0)
                    exact = np.array([rows % (1 << 64)], np.uint64).view(np.int64)
                    stream.decide(Batch(number, b"", (exact,)), StreamNoise([statistic], noise))
                return [node.values.tolist() for number in range(4) for node in stream.state.outbox(number)]

        return run

    def share(self, folder: Path) -> float:
        """The exact loss over the claim."""
        sides = [self.publish(folder / name, with_her=name == "left") for name in ("left", "right")]
        return float(sum(draw.mu2 for draw in loss_of(*sides)) / MU2)


EDGES = sorted({(1 << bits) // parts - BOUND // 2 for bits in (56, 57, 62, 63) for parts in (1, 2, 3)})


def worst_at_edges(folder: Path, strategy: TimeStrategy) -> float:
    return max(Crowded(strategy, others).share(folder / f"{others}") for others in EDGES)


@pytest.mark.parametrize("name", ["no end", "known end", "blocks"])
def test_sums_beyond_64_bits_cost_no_more(tmp_path: Path, name: str) -> None:
    """Wherever sums, or sums times weights and grain, leave 64 bits."""
    assert worst_at_edges(tmp_path, STRATEGIES[name]) <= 1


def test_a_cut_of_what_has_wrapped_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamSpec, "refined", lambda self, exact, statistic: refined(exact, 64))
    assert worst_at_edges(tmp_path, STRATEGIES["blocks"]) > 1
