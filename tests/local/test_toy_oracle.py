"""A new oracle is one class with two halves and a place in the registries: no other file is touched.

The toy is randomised response whose reports are one byte. It claims to cost nothing, so every view that it can hold is
planned with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pytest

import dpsql
from benchmarks.local.simulated import one_row_each, simulate_tallies
from dpsql import api
from dpsql.client import Row, decode, oracles, read_plan, respond
from dpsql.client.entropy import Entropy, system_entropy
from dpsql.client.oracles import grr
from dpsql.local import oracles as collector
from dpsql.local.oracles import responses
from dpsql.local.oracles.oracle import (
    OTHER,
    Bytes,
    Checked,
    FloatArray,
    IntArray,
    Oracle,
    Packed,
    Structure,
    farthest,
)
from dpsql.local.run import Reports, collect, write_plan
from dpsql.local.simulate import simulate_reports, write_spool
from dpsql.local.totals import rows_moved

CATALOG = """
dpsql: 1
name: toys
privacy: {lineage: toys, cap: 3, unit: row, epsilon: 3}
collection: {epsilon: 3, participation: all}
tables:
  answer: {role: fact, columns: {age: {type: int, lower: 0, upper: 7}, town: {type: string, categories: [a, b, c]}}}
views: {both: {of: answer, axes: [answer.age, answer.town], measures: [count]}}
"""
PEOPLE = 20_000


@dataclass(frozen=True)
class OneByte(Oracle):
    """Randomised response in one byte a report, both halves."""

    name: ClassVar[str] = "BYTE"
    code: ClassVar[int] = 99
    silent: ClassVar[bool] = False
    tilted: ClassVar[bool] = False
    own: int = 0

    # the device's half

    def sound(self, own: int) -> bool:
        return self.domain <= 256

    def payload(self, item: int | None, own: int, entropy: Entropy) -> bytes:
        assert item is not None
        return bytes([grr(item, self.domain, own, entropy)])

    # the collector's half

    @classmethod
    def offered(cls, domain: int, own: int) -> Self | None:
        return cls(domain, own) if domain <= 256 else None

    @property
    def cost(self) -> Fraction:
        return Fraction(0)

    @property
    def exact(self) -> tuple[Fraction, Fraction]:
        total = self.own + (self.domain - 1) * OTHER
        return Fraction(self.own, total), Fraction(OTHER, total)

    @property
    def slope(self) -> float:
        return 1 / self.gap

    @property
    def item_noise(self) -> float:
        return (self.gap**-2 - 1) / self.domain

    def structure(self, shares: FloatArray, fan: float | FloatArray = 1.0) -> Structure:
        gap = self.gap
        support = fan * self.q + shares * gap
        return Structure(np.asarray(support / gap**2), np.asarray(support / gap))

    def moved(self, gain: FloatArray, shares: FloatArray, fan: float | FloatArray) -> float:
        gap = self.gap
        silent = np.full(shares.shape, -self.q / gap) * fan
        return farthest(gain / gap + (gain @ (silent - shares))[:, None])

    def check(self, payloads: Bytes) -> Checked:
        return ((payloads < self.domain).all(axis=1) & (payloads.shape[1] == 1), "no byte of an item")

    def count(self, payloads: Bytes) -> IntArray:
        return np.bincount(payloads[:, 0], minlength=self.domain)

    def packed(self, payloads: Sequence[bytes]) -> Packed:
        return np.frombuffer(b"".join(payloads), np.uint8)[:, None]

    def supports(self, packed: Packed) -> np.ndarray:
        return np.asarray(packed == np.arange(self.domain))

    def payloads(self, items: IntArray, rng: np.random.Generator) -> list[bytes]:
        return [bytes([item]) for item in responses(self.domain, self.own, items, rng).tolist()]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy's two halves, in both registries."""
    monkeypatch.setattr(oracles, "ORACLES", (*oracles.ORACLES, OneByte))
    monkeypatch.setattr(collector, "ORACLES", (*collector.ORACLES, OneByte))


def test_no_output_of_the_toy_tells_two_items_apart_by_more_than_the_weights() -> None:
    """As tests/privacy/test_local_exact.py has it for the shipped ones: all draws, in fractions."""
    domain, own = 5, 3 * OTHER
    total = own + (domain - 1) * OTHER
    chances = []
    for item in range(domain):
        held = [Fraction(0)] * domain
        held[item] += Fraction(own, total)
        for other in range(domain - 1):
            script = iter([own + other * OTHER])
            held[grr_of(item, domain, own, script)] += Fraction(OTHER, total)
        chances.append(held)
    worst = max(one[y] / two[y] for one in chances for two in chances for y in range(domain))
    assert worst == 3
    assert [sum(held) for held in chances] == [1] * domain


def grr_of(item: int, domain: int, own: int, script: Iterator[int]) -> int:
    """The toy's report for one scripted draw."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(oracles, "below", lambda bound, entropy: next(script))
        return OneByte(domain).payload(item, own, bytes)[0]


def people() -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.stack([rng.binomial(7, 0.4, PEOPLE), rng.choice(3, PEOPLE, p=[0.6, 0.3, 0.1])], axis=1)


@pytest.mark.usefixtures("publishes")
@pytest.mark.usefixtures("toy")
def test_a_toy_oracle_is_planned_collected_answered_and_audited(tmp_path: Path) -> None:
    catalog, plan_path, spool, release = (
        tmp_path / name for name in ("c.yaml", "p.json", "s.parquet", "r.dpsql")
    )
    catalog.write_text(CATALOG)
    predictions = write_plan(catalog, plan_path, PEOPLE).predictions
    plan = read_plan(plan_path.read_bytes())
    assert {view.oracle for view in plan.views} == {"BYTE"}
    assert all(0 < told.error < 0.1 for told in predictions)
    assert decode(respond(plan, [Row((3, 1))], system_entropy)).oracle == "BYTE"
    leaves = people()
    write_spool(spool, simulate_reports(plan, one_row_each(leaves), np.random.default_rng(2)))
    collected = collect(Reports(plan_path, [spool], bytes(32)), release, "0" * 32)
    assert (collected.manifest.accepted, collected.manifest.rejected) == (PEOPLE, {})
    answer = dpsql.query("SELECT COUNT(*) FROM answer WHERE age < 3 AND town = 'a'", release=release)
    true = int(((leaves[:, 0] < 3) & (leaves[:, 1] == 0)).sum())
    assert abs(answer.scalar() - true) < 4.5 * answer.stderr.iloc[0, 0]
    told = api.audit(release, samples=0)
    assert told.held, [check for check in told.checks if check.held is False]
    collection = simulate_tallies(plan, one_row_each(leaves), np.random.default_rng(3))
    assert rows_moved(collection, float(PEOPLE)) > 1


def test_a_plan_with_a_toy_is_refused_where_no_registry_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, plan = tmp_path / "c.yaml", tmp_path / "p.json"
    catalog.write_text(CATALOG)
    with monkeypatch.context() as patched:
        patched.setattr(oracles, "ORACLES", (*oracles.ORACLES, OneByte))
        patched.setattr(collector, "ORACLES", (*collector.ORACLES, OneByte))
        write_plan(catalog, plan, PEOPLE)
    with pytest.raises(dpsql.DataError, match="unknown oracle"):
        read_plan(plan.read_bytes())
