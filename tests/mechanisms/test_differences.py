"""What one factor leaves out of groups: shrunk, fitted into cells, and what intervals make of the rest."""

from __future__ import annotations

import numpy as np
import pytest
from dpsql.mechanisms.family.differences import (
    DifferenceNoise,
    carried,
    corrected,
    fitted,
    groups_of,
    interaction,
    line_of,
)

from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.tree import FloatArray, IntArray
from dpsql.variance.kronecker import AxisSplit, ProductReading
from dpsql.variance.reading import piece, reading
from dpsql.variance.scaled import GroupsOff, ScaledReading, Spread

ROWS = np.array([400.0, 300.0, 200.0, 80.0, 20.0])


def even(variance: float, largest: float = 600.0) -> DifferenceNoise:
    """Noise of single groups that do not err together."""
    return DifferenceNoise(lambda lo, hi: variance * (hi - lo), largest)


def test_groups_are_moved_as_far_as_they_vary_beyond_noise():
    groups, off = groups_of(ROWS, 1.0, ordered=False), np.array([60.0, -40.0, -30.0, 15.0, -5.0])
    clear = corrected(groups, off, even(1.0))
    assert clear.value == pytest.approx(off, abs=1.5)
    assert np.all(clear.variance < 2.0)
    noise = corrected(groups, off / 100, even(1e6))
    assert np.abs(noise.value).max() < 0.1
    assert noise.variance[0] > noise.variance[-1] > 0
    assert abs(clear.value.sum()) < 1e-9 and abs(noise.value.sum()) < 1e-9


@pytest.mark.parametrize("ordered", [True, False])
def test_without_noise_groups_are_where_they_were_drawn(ordered):
    off = np.array([60.0, -40.0, -30.0, 15.0, -5.0])
    found = corrected(groups_of(ROWS, 1.0, ordered=ordered), off, even(1e-9))
    assert found.value == pytest.approx(off, abs=1e-4)
    assert np.abs(np.append(found.variance, found.halved)).max() < 1e-6
    none = corrected(groups_of(ROWS, 1.0, ordered=ordered), np.zeros(5), even(4.0))
    assert none.value.tolist() == [0.0] * 5


@pytest.mark.parametrize("n", [1, 2, 3, 12, 101])
def test_halvings_hold_all_that_groups_are_off_by(n):
    """They lose nothing, and their noise is that of what they are made of."""
    rng = np.random.default_rng(n)
    part = rng.gamma(1.0, 1.0, n)
    line = line_of(part / part.sum())
    off = rng.normal(size=n)
    off -= line.part * off.sum()
    assert line.give(line.take(off)) == pytest.approx(off)
    factor = rng.normal(size=(n, n))
    covariance = factor @ factor.T

    def variance(lo: IntArray, hi: IntArray) -> FloatArray:
        return np.array([covariance[a:b, a:b].sum() for a, b in zip(lo, hi, strict=True)])

    take = np.array([line.take(unit) for unit in np.eye(n)]).T
    assert line.noise(variance) == pytest.approx(np.diag(take @ covariance @ take.T))


@pytest.mark.parametrize("coherent", [0.0, 12.0, 25.0, 80.0])
def test_neighbours_that_are_off_together_are_counted(coherent):
    """A wave along an axis, lost in the noise of each of 72 groups: ranges hold what corrections leave of it."""
    rng, n, sd = np.random.default_rng(9), 72, 100.0
    groups = groups_of(np.full(n, 1000.0), 1.0, ordered=True)
    wave = coherent * np.cos(np.linspace(0, np.pi, n))
    wave -= wave.mean()
    cuts = np.sort(rng.integers(0, n + 1, (40, 2)), axis=1)
    asked = np.array([(np.arange(n) >= a) & (np.arange(n) < b) for a, b in cuts if b - a >= 6], np.float64)
    base = ProductReading((AxisSplit(LeafStrategy(n).variance()),), {(): 0.0, (0,): 0.0})
    held, errors, raw = [], [], []
    for _ in range(60):
        found = corrected(groups, wave + rng.normal(0, sd, n), even(sd**2, 20_000.0))
        spread = Spread(groups.part, (GroupsOff(found.variance, np.zeros(n), found.halved),))
        off = asked @ (found.value - wave)
        held.append(np.abs(off) <= 1.96 * np.sqrt(ScaledReading(base, spread).covariance([asked]).spread))
        errors.append(off**2)
        raw.append((asked @ wave) ** 2)
    assert np.mean(held) > 0.9
    length = asked.sum(axis=1)
    drawn = sd**2 * float(
        (length * (1 - length / n)).mean()
    )  # what differences err by where nothing is shrunk
    assert np.mean(errors) < (0.3 * np.mean(raw) if coherent > 50 else np.mean(raw) + 0.4 * drawn)


def test_sums_follow_their_counts():
    groups = groups_of(ROWS, 1.0, ordered=False)
    counts = corrected(groups, np.array([60.0, -40.0, -30.0, 15.0, -5.0]), even(1.0))
    towards = carried(groups, counts, 3.0 * ROWS, (2.0, 2.0), 10.0)
    assert towards == pytest.approx(3.0 * counts.value)  # y doubles where rows do
    found = corrected(groups, np.zeros(5), even(1e12), towards)
    assert found.value == pytest.approx(towards - groups.part * towards.sum(), abs=1e-3)
    unseen = carried(groups_of(ROWS, 1000.0, ordered=False), counts, 3.0 * ROWS, (2.0, 2.2), 10.0)
    assert unseen == pytest.approx(0.1 * 10.0 * counts.value)


def test_corrections_of_cells_add_up_along_every_axis():
    rng = np.random.default_rng(5)
    for shape in ((4, 6), (3, 4, 5)):
        rows = rng.gamma(1.0, 100.0, shape)
        margins = [rng.normal(0, 10, n) for n in shape]
        margins = [m - m.mean() for m in margins]
        cells = fitted(rows, margins)
        for axis, wanted in enumerate(margins):
            others = tuple(i for i in range(len(shape)) if i != axis)
            assert cells.sum(axis=others) == pytest.approx(wanted, abs=0.05)
    assert fitted(ROWS, [ROWS - 200.0]).tolist() == (ROWS - 200.0).tolist()


def test_interaction_is_what_margins_do_not_explain():
    rng = np.random.default_rng(6)
    additive = rng.normal(0, 50, (30, 1)) + rng.normal(0, 50, (1, 20))
    noise = rng.normal(0, 3, (30, 20))
    assert interaction(additive + noise, 9.0) < 2.0
    assert interaction(additive + noise + rng.normal(0, 10, (30, 20)), 9.0) == pytest.approx(100, rel=0.3)
    assert interaction(ROWS, 1.0) == 0.0


def readings() -> list[ScaledReading]:
    """One axis, and two of uneven cells."""
    rng = np.random.default_rng(7)
    found = []
    for shape in ((5,), (4, 3)):
        cells = rng.gamma(1.0, 1.0, shape)
        components = {(): 4.0} | {(i,): 5.0 for i in range(len(shape))}
        components |= {(0, 1): 6.0} if len(shape) > 1 else {}
        base = ProductReading(tuple(AxisSplit(LeafStrategy(n).variance()) for n in shape), components)
        groups = tuple(GroupsOff(rng.random(n), rng.random(n) - 0.5, rng.random(n - 1)) for n in shape)
        found.append(ScaledReading(base, Spread(cells / cells.sum(), groups, 3.0, 4.0, 2.0, 0.5)))
    return found


@pytest.mark.parametrize("own", readings(), ids=["one axis", "two axes"])
def test_the_whole_has_no_part_and_covariances_are_a_form(own):
    shape = own.spread.shares.shape
    whole = own.covariance([np.ones((1, n)) for n in shape])
    assert (float(whole.noise[0]), float(whole.spread[0]), float(whole.tail[0])) == pytest.approx(
        (0, 0, 0), abs=1e-9
    )
    rng = np.random.default_rng(8)
    masks = [(rng.random((40, n)) < 0.5).astype(float) for n in shape]
    single = own.covariance(masks)
    again = own.covariance(masks, [mask.copy() for mask in masks])
    for a, b in zip(single, again, strict=True):
        assert np.all(a >= -1e-12) and a == pytest.approx(b)
    other = [np.roll(mask, 1, axis=0) for mask in masks]
    mixed, back = own.covariance(masks, other), own.covariance(other, masks)
    assert mixed.spread == pytest.approx(back.spread) and mixed.noise == pytest.approx(back.noise)
    right = own.covariance(other)
    for name in ("noise", "spread", "tail"):
        one, two, both = (getattr(each, name) for each in (single, right, mixed))
        assert np.all(both**2 <= one * two * (1 + 1e-9) + 1e-12), name


def test_one_axis_is_as_written():
    (own, _), f = readings(), None
    f, (v, u, k) = own.spread.shares, own.spread.groups[0]
    mask = np.array([[1.0, 0.0, 1.0, 0.0, 0.0]])
    share = float((mask @ f)[0])
    found = own.covariance([mask])
    off = mask[0] - share
    halves = [((0, 3), (3, 5)), ((0, 2), (2, 3)), ((3, 4), (4, 5)), ((0, 1), (1, 2))]
    left, right = (
        np.array([np.average(mask[0][a:b], weights=f[a:b]) for a, b in side])
        for side in zip(*halves, strict=True)
    )
    spread = float((v * off**2).sum()) + float(u @ off) ** 2 + min(3.0 * share * (1 - share), 4.0 * share**2)
    spread += float((k * (left - right) ** 2).sum())
    assert found.spread[0] == pytest.approx(spread)
    both = share * (1 - share)
    assert found.tail[0] == pytest.approx(2.0 * both + 0.5 * both**2)
    assert float(own.spread.cells(np.array([1e-3]))[0]) == pytest.approx(
        4e-6
    )  # never more than half of what is left out


def test_a_stored_spread_reads_back():
    for own in readings():
        stored = own.spread.columns()
        back = piece(Spread.kind, 0, stored)
        assert isinstance(back, Spread)
        assert back.shares == pytest.approx(own.spread.shares)
        restored = reading("scaled", [*own.shape.axes, back], own.shape.components)
        masks = [np.eye(n)[:2] for n in own.spread.shares.shape]
        assert restored.covariance(masks).spread == pytest.approx(own.covariance(masks).spread)
        assert len(restored.columns()) == len(masks) + 1
