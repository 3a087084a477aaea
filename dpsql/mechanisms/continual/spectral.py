"""Rows made for what is asked: spectral factorisation under Gaussian noise, for a known end or none.

Let S(theta) say how much each frequency of the batches counts in the answers asked for, weighted. With A'A = X the
error is tr(V X^-1) max diag X. For very long streams everything is diagonal in frequencies, and the best X is the
square root of V: |c(theta)|^2 = S(theta)^(1/2). The causal c of that modulus follows from the logarithm of S by two
Fourier transforms. Against the dense optimum of the same questions this errs by 1-3% more (N = 60 to 1,023; 8% for
windows of half the horizon), and an FFT takes milliseconds.

For a known end batch t publishes sum over j <= t of c_(t-j) d_j x_j: integer rows c by how long ago a batch was, and
an integer factor d_j for each batch, since late batches are in fewer sums and may count more in each. Rows are square
and lower triangular, so what the first t numbers tell of the first t batches is all they ever tell: no answer changes
later.

Without an end batch t publishes sum over i < p of c_i x_(t-i). The rows are cut after p batches, so every column has
the same finite norm for ever: one sigma, no horizon. Windows of batches err the same at all times; totals grow slowly.
The last p exact sums stay in the private state for as long as the stream lives.

Decoding runs the published numbers through the inverse filter. It is forward substitution, one operation after the
other, so that an audit gets the same floats on any machine; transforms would not.

A cut-off g / N keeps frequencies slower than the horizon from counting without bound. The best of a few is taken, by
the exact error. Everything float ends in integers: rows round(2^b c), and for a known end factors that fill each
column up to one norm. 16 and 12 bits lose .02% (12 and 8 .3%, 8 and 6 1%).

| here | there | unit |
|---|---|---|
| `spectrum` | S | weight a frequency |
| `causal` | c, c_0 = 1 | weight of a batch i ago |
| `cutoff` | g | in horizons |
| `filled` | d | factor of each batch |

**Privacy**: rows follow from the horizon, what is asked, the batches of a unit and declared bounds: public facts. With
a known end every number spends 1 / G of mu^2, G the largest of d_j^2 (c_0^2 + .. + c_(N-1-j)^2). A row of batch j
moves the number of batch t by c_(t-j) d_j, so it pays the sum of their squares over G, at most 1. Without an end G is
c_0^2 + .. + c_(p-1)^2, and a row of any batch moves the p numbers from its own on by c_0, c_1, ..
**Source**: docs/method/views.md, "Spectral rows" and "Rows without an end".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from itertools import accumulate, product
from math import isqrt

import numpy as np
import numpy.typing as npt

from dpsql.errors import InterfaceError
from dpsql.matrices.intervals import FilterVariance
from dpsql.mechanisms.continual import time_tree
from dpsql.mechanisms.distribution import GAUSSIAN, NoiseDistribution
from dpsql.mechanisms.offers import Refusal
from dpsql.tree import FloatArray, IntArray

ENDING = (0.3, 1.0, 2.0, 4.0)
"""Cut-offs tried for a known end: totals take the first, ranges 2, mixes 1."""
LASTING = (0.5, 1.0, 2.0)
"""Cut-offs tried without an end: the smaller, the slower totals grow past the horizon."""
CLOSE = 0.01
"""What a smaller cut-off may err more by at the horizon; it halves how fast totals grow behind it."""
BAND = 4
"""Horizons after which rows without an end are cut."""
FEW, SHARES = 16, (Fraction(4, 7), Fraction(1))
"""Bits below which rows without factors are tried as well, and rounded running sums."""
NARROW = 2
"""Bits of whole numbers below which rows are too coarse: of the variance of 365 batches 5 lose 2 to 5%, 4 10 to 20%, 3
20 to 67% (units in one batch and in ten), where the best tree loses 60%."""

LARGEST = 1 << 31
"""What rows and factors stay below, so that products of two stay exact in 64 bits."""
ROOM = 1 << 62
"""What squared column norms stay below, for the same reason."""


def integers(stored: npt.ArrayLike) -> IntArray:
    """Integers of a filter or of factors, the first above 0, as they were frozen.

    Raises:
        ValueError, TypeError: they are none.
    """
    values = np.asarray(stored, dtype=np.int64)
    if values.ndim != 1 or values.size < 1 or int(values[0]) < 1 or int(np.abs(values).max()) >= LARGEST:
        raise ValueError("rows and factors are integers, the first above 0")
    return values


def energies(rows: IntArray) -> list[int]:
    """c_0^2, c_0^2 + c_1^2, .. as whole numbers of any size."""
    return list(accumulate(int(c) ** 2 for c in rows))


def decoded(rows: IntArray, published: FloatArray) -> FloatArray:
    """The numbers that a filter's outputs came from; forward substitution, O(n p).

    >>> decoded(np.array([2, 1]), np.array([2.0, 1.0, 2.0])).tolist()
    [1.0, 0.0, 1.0]
    """
    value, count = np.array(published, dtype=np.float64), len(published)
    scale = rows.astype(np.float64) / float(rows[0])
    for place in range(count - 1):
        stop = min(count, place + rows.size)
        value[place + 1 : stop] -= np.multiply.outer(scale[1 : stop - place], value[place])
    return np.asarray(value / float(rows[0]))


def shared(rows: IntArray) -> Iterator[IntArray]:
    """Inner products of two columns, exactly, lag by lag: sum over k < m of c_k c_(k + lag), m = 1, 2, .."""
    for lag in range(rows.size):
        yield np.cumsum(rows[: rows.size - lag] * rows[lag:])


def largest_sum(values: IntArray, count: int) -> int:
    """The greatest sum of the `count` largest numbers of a row, exactly.

    Args:
        values: int64[rows, n], none negative.
        count: at least 1.
    """
    count = min(count, values.shape[1])
    top = np.partition(values, values.shape[1] - count, axis=1)[:, -count:]
    high, low = (top >> 31).sum(axis=1), (top & (LARGEST - 1)).sum(axis=1)
    return max((int(h) << 31) + int(small) for h, small in zip(high, low, strict=True))


def met(batches: int, largest: int, norm: int) -> Fraction:
    """The price of several batches: each meets at most what the one that meets most does.

    **Source**: docs/privacy/streams.md, "2. The whole life costs one budget".
    """
    return min(Fraction(batches * largest, norm), Fraction(batches**2))


def spectral_strategy(
    law: NoiseDistribution, rows: npt.ArrayLike, factors: npt.ArrayLike | None = None
) -> time_tree.TimeStrategy:
    """Integer rows that weigh batches by their age, and for a known end a factor for each batch.

    Args:
        law: the noise; Gaussian.
        rows: int64[p], c: of the batch itself, of the one before, and so on; 0 further back.
        factors: int64[p], d: of batch 0, 1, ..; None: without end, each batch counts alike.

    Raises:
        ValueError, TypeError: no integers, rows that factors do not fit, or whose squares could leave 64 bits.

    >>> from dpsql.mechanisms.distribution import GAUSSIAN
    >>> strategy = spectral_strategy(GAUSSIAN, [2, 1], [1, 1])
    >>> str(strategy.price(1)), str(strategy.price(2)), str(strategy.price(30))
    ('1', '14/5', '14/5')
    >>> strategy = spectral_strategy(GAUSSIAN, [2, 1])
    >>> str(strategy.price(1)), str(strategy.price(2)), str(strategy.price(3))
    ('1', '14/5', '27/5')
    """
    c, d = integers(rows), None if factors is None else integers(factors)
    if d is not None and (c.size != d.size or int(d.min()) < 1):
        raise ValueError("rows and factors do not fit each other")
    squares = energies(c)
    # the largest squared norm of a column; without end all columns have the same
    norm = (
        squares[-1] if d is None else max(int(f) ** 2 * s for f, s in zip(d, reversed(squares), strict=True))
    )
    if norm >= ROOM:
        raise ValueError("the rows are too large")
    share = Fraction(1, norm)  # of mu^2, for a row that counts with weight 1

    def first_factors(batches: int) -> IntArray:
        return np.ones(batches, np.int64) if d is None else d[:batches]

    def released(batch: int) -> tuple[time_tree.Emission, ...]:
        length = batch + 1
        newest = c[:length][::-1]
        weights = newest * first_factors(length)[-newest.size :]
        return (time_tree.own_node(batch, 0, length - newest.size, length, share, weights),)

    def needed(batches: int) -> tuple[int, ...]:
        first = 0 if d is not None else max(0, batches + 1 - c.size)
        return tuple(range(first, batches + 1))

    def price(batches: int) -> Fraction:
        # X_ij is what the columns of batches i and j have in common. Batches S pay at most the sum over i, j in S of
        # |X_ij|, so at most |S| times the largest sum of |S| numbers in a column of |X|. Without end, columns of
        # batches that lie l apart have r_l in common, and each batch has at most two others at a distance.
        units = batches if d is None else min(batches, c.size)
        if units == 1:
            return Fraction(1)
        if d is None:
            r = np.abs([int(sums[-1]) for sums in shared(c)])
            together = np.concatenate([r[:1], np.repeat(r[1:], 2)])[None]
        else:
            together = np.zeros((c.size, c.size), dtype=np.int64)
            place = np.arange(c.size)
            for lag, sums in enumerate(shared(c)):
                i, j = place[: sums.size], place[lag:]
                together[i, j] = together[j, i] = np.abs(sums[::-1] * d[i] * d[j])
        return met(units, largest_sum(together, units), norm)

    def estimate(batches: int, published: npt.NDArray[np.generic]) -> FloatArray:
        # O(t p); t is a number of batches, and readers keep the result
        scaled_batches = decoded(c[:batches], time_tree.check_rows(published, batches))
        return scaled_batches / first_factors(batches).reshape(-1, *[1] * (scaled_batches.ndim - 1))

    def variance(batches: int) -> FilterVariance:
        kernel = decoded(c, np.eye(1, batches)[0]) * float(c[0])
        return FilterVariance(
            kernel, float(norm) ** 0.5 / float(c[0]) / first_factors(batches).astype(np.float64)
        )

    kind, stored = ("endless", {"rows": c}) if d is None else ("spectral", {"rows": c, "factors": d})
    return time_tree.TimeStrategy(
        kind, stored, f"spectral over {'the last ' if d is None else ''}{c.size} batches", law, (share, share),
        released, needed, estimate, variance, price, None if d is None else c.size,
    )  # fmt: skip


def spectrum(question: time_tree.StreamProblem, cutoff: float) -> FloatArray:
    """S at 2 pi k / m, k = 0 .. m / 2, for m a power of two of at least 64 points a batch."""
    points = 1 << (64 * question.batches - 1).bit_length()
    theta = 2 * np.pi * np.arange(points // 2 + 1) / points
    low = 1 / (4 * np.sin(theta / 2) ** 2 + (cutoff / question.batches) ** 2)
    density = np.zeros(theta.size)
    for weight, query in zip(question.weights(), question.workload, strict=True):
        if weight:
            query_spectrum = query.spectrum(theta, low, question.batches)
            density += weight * query.design_weight(question.units) * query_spectrum
    return np.asarray(np.maximum(density, 1e-14 * density.max()), np.float64)


def causal(density: FloatArray, length: int) -> FloatArray:
    """The minimum-phase sequence whose squared modulus is the root of a density, the first being 1.

    Args:
        density: S at half the points of the circle, both ends included.
        length: how many to give.

    >>> u = 4 * np.sin(np.pi * np.arange(2049) / 4096) ** 2
    >>> causal(1 / (1 + u), 3).round(3).tolist()  # (1 - .382 z)^(-1/2)
    [1.0, 0.191, 0.055]
    """
    points = 2 * (density.size - 1)
    cepstrum = np.fft.irfft(0.25 * np.log(density), points)
    cepstrum[1 : points // 2] *= 2
    cepstrum[points // 2 + 1 :] = 0
    sequence = np.fft.irfft(np.exp(np.fft.rfft(cepstrum)), points)
    return np.asarray(sequence[:length] / sequence[0])


def filled(rows: IntArray, bits: int) -> IntArray:
    """The factors that fill the column of each batch up to the norm of the first.

    S_k = c_0^2 + .. + c_k^2, d_j = floor(sqrt(4^bits S_(N-1) / S_(N-1-j))).

    >>> filled(np.array([2, 1, 1]), 4).tolist()
    [16, 17, 19]
    """
    squares = energies(rows)
    column_square = squares[-1] << (2 * bits)
    return np.array([isqrt(column_square // square) for square in reversed(squares)], dtype=np.int64)


def ending_rows(
    question: time_tree.StreamProblem, cutoff: float, share: Fraction = Fraction(4, 7), sums: bool = False
) -> time_tree.TimeStrategy:
    """Rows and factors for a stream that ends at its horizon.

    Args:
        question: what is asked.
        cutoff: g, in horizons.
        share: part of the bits that rows have; factors have the rest.
        sums: whether running sums of rows are rounded.
    """
    fine = int(question.bits * share)
    rows = _rounded(causal(spectrum(question, cutoff), question.batches), fine, sums)
    return spectral_strategy(question.law, rows, filled(rows, question.bits - fine))


def lasting_rows(
    question: time_tree.StreamProblem, cutoff: float, sums: bool = False
) -> time_tree.TimeStrategy:
    """Rows for a stream without an end."""
    rows = causal(spectrum(question, cutoff), BAND * question.batches)
    return spectral_strategy(question.law, _rounded(rows, min(question.bits, 20), sums))


def _rounded(rows: FloatArray, bits: int, sums: bool) -> IntArray:
    """Integer rows. Of few bits the rounding of many small weights adds up; where running sums are rounded it does not,
    so slow frequencies keep their weight: rows of 5 bits for units in ten batches lose 3% in place of 16%."""
    fine = np.ldexp(rows, bits)
    return (np.diff(np.rint(np.cumsum(fine)), prepend=0) if sums else np.rint(fine)).astype(np.int64)


def _best(question: time_tree.StreamProblem) -> time_tree.TimeCandidate:
    """The cut-off that errs least; without an end the smallest that errs as little but for `CLOSE`."""
    roundings = (False, True) if question.bits < FEW else (False,)
    if question.outlives:
        lasting = product(LASTING, roundings)
        candidates = [question.candidate(lasting_rows(question, *shape)) for shape in lasting]
        allowed = (1 + CLOSE) * min(candidate.error for candidate in candidates)
        return next(candidate for candidate in candidates if candidate.error <= allowed)
    # Where bits are few, rows need them: of 9, rows of 5 err by 16% more, and rows of 9 without factors by 1%.
    ending = product(ENDING, SHARES if question.bits < FEW else SHARES[:1], roundings)
    strategies = [ending_rows(question, *shape) for shape in ending]
    return min(map(question.candidate, strategies), key=lambda candidate: candidate.error)


def _refused(question: time_tree.StreamProblem) -> Refusal | None:
    if question.law != GAUSSIAN:
        return Refusal("spectral", "needs Gaussian noise: allow a delta")
    if question.batches > time_tree.DENSE:
        return time_tree.too_long("spectral")
    if question.bits < NARROW:
        return Refusal("spectral", "sums of a measure with such bounds leave whole weights no room")
    return None


def _named(question: time_tree.StreamProblem) -> time_tree.TimeChoice:
    """The rows for what is asked.

    Raises:
        InterfaceError: under Laplace noise, or where they cannot be had.
    """
    refusal = _refused(question)
    if refusal:
        raise InterfaceError(f"spectral: {refusal.reason}", hint="write auto")
    strategy, error, name = _best(question)
    return time_tree.TimeChoice(strategy, name, error)


NAMED: Mapping[str, time_tree.Choose] = {"spectral": _named}


def offers(question: time_tree.StreamProblem) -> Iterator[time_tree.TimeOffer | Refusal]:
    """The rows for what is asked, under Gaussian noise."""
    yield _refused(question) or time_tree.TimeOffer("spectral", 0.0, partial(_best, question))
