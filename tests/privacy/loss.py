"""The exact privacy loss of publishing code on a pair of neighbours, measured end to end.

The left side is published with real noise and every meeting of exact integers with noise is noted. The right side is
published with a source that hands out the left side's *noisy* numbers, so that whatever is chosen from noisy numbers
(bounds, partitions, weights) is chosen alike. The two runs then differ in nothing but their exact integers, and the
loss of the pair at that output is a sum over the draws of numbers that are known exactly:

    Laplace     sum_r units_r |d_r| / denominator      the largest log ratio over all outputs
    Gaussian    sum_r d_r^2 / (sigma2 - 4)             mu^2 on the exact Gaussian curve

with d the difference of the exact integers. Noise of a choice that is published without it (DAWA's costs) counts as
its proof counts it: as much as the chosen candidate and its rivals may move. Two runs that ask for different draws, or
that release anything else that differs, are `Distinguished`: there is no epsilon for that. A pair gives the loss on
one path of choices, which bounds from below what the release costs; a claim that a pair exceeds is false.

    measure(catalog, left, right, folder)     a central release
    measure(..., batches=["2025-01-01", ..])  a stream, all its batches together

**Privacy**: for tests and curators who check code; it sees exact integers of both sides.
**Source**: Dwork and Roth (2014), theorem 3.6; docs/privacy/gaussian.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from math import exp
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from dpsql.budget import SLACK
from dpsql.ledger import ledger_entries
from dpsql.noise import ExactNoise, Noise, insecure_test_entropy, noised
from dpsql.publishing.central import publish_release
from dpsql.star import Catalog, load_catalog
from dpsql.streams.publish import Arrival, Chance, append_batch

IntArray = npt.NDArray[np.int64]
KEY = b"k" * 32
LATER = datetime(2100, 1, 1)
CHOICE = "dpsql.mechanisms.family.dawa._noisy"
"""Draws of candidates' costs, of which only the chosen partition is published; one such view in a release."""


class Distinguished(AssertionError):
    """The two sides differ in something that no noise covers."""


class Law(NamedTuple):
    """What a draw was asked for: its shape and scale, equal on both sides or the sides are told apart.

    Args:
        where: module and function that drew.
        units, denominator: of a Laplace draw, one of each row.
        sigma2: of a Gaussian draw, else None.
    """

    where: str
    units: tuple[int, ...]
    denominator: int
    sigma2: Fraction | None


class Meeting(NamedTuple):
    """One place where exact integers met noise."""

    law: Law
    exact: tuple[int, ...]
    noisy: IntArray


@dataclass(frozen=True)
class DrawLoss:
    """What one draw tells of the pair.

    Args:
        where: module and function that drew.
        moved: sum |d|: how far the measured integers lie apart.
        epsilon: the largest log ratio; None for a Gaussian draw.
        mu2: of Gaussian differential privacy; for a Laplace draw what a pure epsilon costs.
    """

    where: str
    moved: int
    epsilon: Fraction | None
    mu2: Fraction


@dataclass(frozen=True)
class Loss:
    """What a release tells of the pair, beside what it claims.

    Args:
        draws: in order.
        claimed: what the ledger was charged, in `currency`.
        currency: `epsilon` or `mu2`.
        lines: purpose and charge of each ledger line.
    """

    draws: tuple[DrawLoss, ...]
    claimed: Fraction
    currency: str
    lines: tuple[tuple[str, Fraction], ...] = ()

    @property
    def epsilon(self) -> Fraction:
        """The pure loss of all draws together; only where none is Gaussian."""
        if any(draw.epsilon is None for draw in self.draws):
            raise ValueError("Gaussian draws have no pure loss; read mu2")
        return sum((draw.epsilon for draw in self.draws if draw.epsilon is not None), Fraction(0))

    @property
    def mu2(self) -> Fraction:
        """The mu^2 of all draws together."""
        return sum((draw.mu2 for draw in self.draws), Fraction(0))

    @property
    def share(self) -> float:
        """Measured over claimed: above 1 the claim is false. For equal budgets this is the change over M."""
        return float((self.mu2 if self.currency == "mu2" else self.epsilon) / self.claimed)


@dataclass
class Witness:
    """The left side's noise: real draws, each meeting noted."""

    noise: Noise
    meetings: list[Meeting] = field(default_factory=list)
    insecure = True

    def laplace(self, units: IntArray, denominator: int, exact: IntArray | None = None) -> IntArray:
        """See `Noise`."""
        drawn = self.noise.laplace(units, denominator)
        return self._note(_law(units, denominator, None, exact), exact, drawn)

    def gaussian(self, sigma2: Fraction, size: int, exact: IntArray | None = None) -> IntArray:
        """See `Noise`."""
        return self._note(_law((), 0, sigma2, exact), exact, self.noise.gaussian(sigma2, size))

    def _note(self, law: Law, exact: IntArray | None, drawn: IntArray) -> IntArray:
        assert exact is not None
        noisy = noised(exact, drawn)
        self.meetings.append(Meeting(law, _integers(exact), noisy))
        return noisy.copy()


@dataclass
class Replay:
    """The right side's noise: the noisy numbers of the left side, whatever the exact ones are."""

    meetings: Sequence[Meeting]
    exact: list[tuple[int, ...]] = field(default_factory=list)
    insecure = True

    def laplace(self, units: IntArray, denominator: int, exact: IntArray | None = None) -> IntArray:
        """See `Noise`."""
        return self._give(_law(units, denominator, None, exact), exact)

    def gaussian(self, sigma2: Fraction, size: int, exact: IntArray | None = None) -> IntArray:
        """See `Noise`."""
        return self._give(_law((), 0, sigma2, exact), exact)

    def _give(self, law: Law, exact: IntArray | None) -> IntArray:
        assert exact is not None
        if len(self.exact) == len(self.meetings):
            raise Distinguished(f"only the right side draws in {law.where}")
        left = self.meetings[len(self.exact)]
        if left.law != law or len(left.exact) != np.size(exact):
            raise Distinguished(f"{left.law.where} and {law.where} ask for different draws")
        self.exact.append(_integers(exact))
        return left.noisy.copy()

    def losses(self) -> tuple[DrawLoss, ...]:
        """The loss of each draw, once the right side is published."""
        if len(self.exact) < len(self.meetings):
            raise Distinguished(f"only the left side draws in {self.meetings[len(self.exact)].law.where}")
        pairs = zip(self.meetings, self.exact, strict=True)
        apart = [(left.law, _apart(left.exact, right)) for left, right in pairs]
        shown = [_draw_loss(law, moved) for law, moved in apart if law.where != CHOICE]
        hidden = [(law, moved) for law, moved in apart if law.where == CHOICE]
        return (*([_choice_loss(hidden)] if hidden else []), *shown)


class Rows(NamedTuple):
    """The rows of one raw table.

    Args:
        columns: names and DuckDB types, as in CREATE TABLE.
        rows: one tuple each.
    """

    columns: str
    rows: Sequence[tuple[object, ...]]

    def plus(self, *rows: tuple[object, ...]) -> Rows:
        """The same table with more rows."""
        return Rows(self.columns, (*self.rows, *rows))


Tables = Mapping[str, Rows]
Publish = Callable[[Noise], object]


def loss_of(left: Publish, right: Publish, seed: int = 0) -> tuple[DrawLoss, ...]:
    """Run any publishing code on both sides.

    Args:
        left, right: publish one side with the noise they are given; what they return must be equal.
        seed: of the left side's noise.

    Raises:
        Distinguished: the sides draw differently, or return different things.
    """
    witness = Witness(ExactNoise(insecure_test_entropy(seed)))
    first = left(witness)
    replay = Replay(witness.meetings)
    second = right(replay)
    losses = replay.losses()
    if first != second:
        raise Distinguished("the released files differ beyond the noisy numbers")
    return losses


def measure(
    catalog: str, left: Tables, right: Tables, folder: Path, *, batches: Sequence[str] = (), seed: int = 0
) -> Loss:
    """Publish two data sets end to end and measure what tells them apart.

    Args:
        catalog: its text; its source is `{kind: parquet, root: ROOT, tables: {t: t.parquet, ..}}` and its ledger
            LEDGER, which are filled in.
        left, right: the raw tables of the two neighbours.
        folder: an empty folder.
        batches: labels of the batches of a stream, in order.
        seed: of the noise.

    Returns:
        Exact losses by draw, and what the ledger was charged.

    Raises:
        Distinguished: something but noisy numbers differs.
    """
    sides = [
        _write_side(folder / name, catalog, tables) for name, tables in (("left", left), ("right", right))
    ]

    def publisher(place: Path) -> Publish:
        return lambda noise: _publish(load_catalog(place / "catalog.yaml"), place, batches, noise)

    draws = loss_of(publisher(sides[0]), publisher(sides[1]), seed)
    (entry,) = ledger_entries(sides[0] / "ledger.duckdb")
    lines = entry.spend_lines()
    charged = sum((line.amount for line in lines), Fraction(0))
    return Loss(draws, charged, lines[0].currency, tuple((line.purpose, line.amount) for line in lines))


def _write_side(place: Path, catalog: str, tables: Tables) -> Path:
    """Write the raw tables and the catalog of one side."""
    place.mkdir(parents=True)
    with duckdb.connect() as raw:
        for name, table in tables.items():
            raw.execute(f'CREATE TABLE "{name}" ({table.columns})')
            types = [str(row[1]) for row in raw.execute(f'DESCRIBE "{name}"').fetchall()]
            lists = ", ".join(f"unnest(?::{kind}[])" for kind in types)
            values = [[row[i] for row in table.rows] for i in range(len(types))]
            raw.execute(f'INSERT INTO "{name}" SELECT {lists}', values)
            raw.execute(f"COPY \"{name}\" TO '{place / name}.parquet'")
    text = catalog.replace("ROOT", str(place)).replace("LEDGER", str(place / "ledger.duckdb"))
    (place / "catalog.yaml").write_text(text)
    return place


def _publish(catalog: Catalog, place: Path, batches: Sequence[str], noise: Noise) -> object:
    """Publish one side; what is public of it."""
    target = place / "release.dpsql"
    if not batches:
        return _contents(publish_release(catalog, target, noise=noise, key=KEY).path)
    for label in batches:
        append_batch(catalog, target, Arrival(label, now=LATER), Chance(noise, insecure_test_entropy(7)))
    return [_contents(path) for path in sorted(target.glob("states/*"))]


def _contents(path: Path) -> object:
    """All rows of a release file but the identity that each publish draws for itself."""
    with duckdb.connect(str(path), read_only=True) as release:
        names = [
            str(row[0])
            for row in release.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
        ]
        return {name: _table(release, name) for name in names}


def _table(release: duckdb.DuckDBPyConnection, name: str) -> list[str]:
    rows = release.execute(f'SELECT * FROM "{name}"').fetchall()
    return [str(row) for row in rows if "release_id" not in str(row[0])]


LAWS = "dpsql.mechanisms.law"


def _law(units: npt.ArrayLike, denominator: int, sigma2: Fraction | None, exact: IntArray | None) -> Law:
    """The law of a draw, refused where noise does not meet exact integers and so cannot be followed."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals["__name__"] == LAWS:
        frame = frame.f_back  # who asked the law of noise
    where = f"{frame.f_globals['__name__']}.{frame.f_code.co_name}"
    if exact is None:
        raise Distinguished(f"{where} draws noise without the exact integers that it covers")
    return Law(where, _integers(units), denominator, sigma2)


def _integers(values: npt.ArrayLike) -> tuple[int, ...]:
    """Python integers, which no difference overflows."""
    return tuple(int(value) for value in np.asarray(values).ravel().tolist())


def _apart(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return [abs(a - b) for a, b in zip(left, right, strict=True)]


def _choice_loss(levels: Sequence[tuple[Law, Sequence[int]]]) -> DrawLoss:
    """The loss of a choice between candidates, for neighbours that differ in one cell.

    The chosen candidate that holds the cell makes up for its own change and for its worst rival's.
    """
    rival = max(max(moved) for _, moved in levels)
    losses = [Fraction(law.units[0] * (max(moved) + rival), law.denominator) for law, moved in levels]
    return DrawLoss(CHOICE, rival, max(losses), _pure(max(losses)))


def _pure(epsilon: Fraction) -> Fraction:
    """What a pure draw costs on the Gaussian curve: (2 Q^-1(1 / (1 + e^epsilon)))^2."""
    return Fraction(float((2 * norm.isf(1 / (1 + exp(epsilon)))) ** 2))


def _draw_loss(law: Law, difference: Sequence[int]) -> DrawLoss:
    """The loss of one draw: exact, and the largest over its outputs."""
    if law.sigma2 is not None:
        mu2 = sum(d * d for d in difference) / (law.sigma2 - SLACK)
        return DrawLoss(law.where, sum(difference), None, mu2)
    epsilon = Fraction(sum(u * d for u, d in zip(law.units, difference, strict=True)), law.denominator)
    return DrawLoss(law.where, sum(difference), epsilon, _pure(epsilon))
