"""Variances of statistics that were scaled to a total: the whole has none; groups may be off by rows beyond bounds."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.matrices.kronecker import AxisSplit, ProductReading, ScaledReading, Spread
from dpsql.matrices.reading import piece, reading
from dpsql.mechanisms.axis.leaves import leaf_strategy


def readings() -> list[ScaledReading]:
    """One axis, and two of uneven cells."""
    rng = np.random.default_rng(7)
    found = []
    for shape in ((5,), (4, 3)):
        cells = rng.gamma(1.0, 1.0, shape)
        components = {(): 4.0} | {(i,): 5.0 for i in range(len(shape))}
        components |= {(0, 1): 6.0} if len(shape) > 1 else {}
        base = ProductReading(tuple(AxisSplit(leaf_strategy(n).solver) for n in shape), components)
        found.append(ScaledReading(base, Spread(cells / cells.sum(), 2.0, 0.5)))
    return found


@pytest.mark.parametrize("own", readings(), ids=["one axis", "two axes"])
def test_the_whole_has_no_part_and_covariances_are_a_form(own):
    shape = own.spread.shares.shape
    whole = own.covariance([np.ones((1, n)) for n in shape])
    assert (float(whole.noise[0]), float(whole.spread[0])) == pytest.approx((0, 0), abs=1e-9)
    rng = np.random.default_rng(8)
    masks = [(rng.random((40, n)) < 0.5).astype(float) for n in shape]
    single = own.covariance(masks)
    again = own.covariance(masks, [mask.copy() for mask in masks])
    for a, b in ((single.noise, again.noise), (single.spread, again.spread)):
        assert np.all(a >= -1e-12) and a == pytest.approx(b)
    other = [np.roll(mask, 1, axis=0) for mask in masks]
    mixed, back = own.covariance(masks, other), own.covariance(other, masks)
    assert mixed.spread == pytest.approx(back.spread) and mixed.noise == pytest.approx(back.noise)
    right = own.covariance(other)
    for name in ("noise", "spread"):
        one, two, both = (getattr(each, name) for each in (single, right, mixed))
        assert np.all(both**2 <= one * two * (1 + 1e-9) + 1e-12), name


def test_one_axis_is_as_written():
    """P = U^2 F (1 - F) / H + (1.2 U F (1 - F))^2, and of two questions the covariances of both terms."""
    own = readings()[0]
    mask, other = np.array([[1.0, 0.0, 1.0, 0.0, 0.0]]), np.array([[1.0, 1.0, 0.0, 0.0, 0.0]])
    share, second = float((mask @ own.spread.shares)[0]), float((other @ own.spread.shares)[0])
    both = share * (1 - share)
    assert own.covariance([mask]).spread[0] == pytest.approx(2.0 * both + 0.5 * both**2)
    apart = float(own.spread.shares[0]) - share * second
    alike = apart / np.sqrt(both * second * (1 - second))
    mixed = own.covariance([mask], [other])
    assert mixed.spread[0] == pytest.approx(2.0 * apart + 0.5 * alike * both * second * (1 - second))
    assert mixed.tail == 0.0


def test_nothing_beyond_the_low_bound_is_no_deviation():
    own = readings()[1]
    exact = ScaledReading(own.shape, Spread(own.spread.shares))
    masks = [np.eye(n)[:2] for n in own.spread.shares.shape]
    assert not exact.covariance(masks).spread.any()


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


def test_who_owns_many_rows_may_be_older_throughout():
    """An average over an axis strays as far as thresholds on it do together, not as leaves that differ at random."""
    ages = np.arange(20, 80, dtype=float)
    shares, people = np.full(60, 1 / 60), 0.06
    base = ProductReading((AxisSplit(leaf_strategy(60).solver),), {(): 0.0, (0,): 0.0})
    own = ScaledReading(base, Spread(shares, 0.0, (1.2 * people) ** 2))
    mean = own.covariance([ages[None]]).spread[0] ** 0.5
    # the 6% of rows that are left out are all of the older half: their mean is 64.5 for 49.5
    assert 1.96 * mean > people * (64.5 - 49.5)
    assert mean == pytest.approx(1.2 * people * np.abs(ages[:, None] - ages).mean() / 2)
    old = (ages >= 50).astype(float)[None]
    assert own.covariance([old * 1.0]).spread == pytest.approx(
        own.spread.threshold_integrals([old]) ** 2 * (1.2 * people) ** 2
    )
    # of an average within a group: what the sum and the count have in common leaves
    total, count = [ages[None] * old], [old]
    both = own.covariance(total, count).spread[0]
    ratio = 64.5
    left = own.covariance(total).spread[0] - 2 * ratio * both + ratio**2 * own.covariance(count).spread[0]
    assert 0 < left**0.5 / 0.5 < 1.2 * people * 10
