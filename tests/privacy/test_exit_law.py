"""The exit law: how a publish ends tells of one person no more than what it would have shown.

*Exactly*: noisy integers are put in from outside, the same for both neighbours, whatever the exact ones are. Then exit,
words, files and ledger must be the same, so the outcome is a function of the noisy integers alone. Integers that no
draw would give (none, huge, all below 0) are put in too: that a step ends well whatever it is given is why it need not
begin in the ledger. *By draws*: an outcome fails if its chance on one side is surely above e^epsilon times that on the
other + delta, by bounds of Clopper and Pearson that are all wrong with chance 1e-4 at most; `make slow` draws.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from dpsql.catalog import load_catalog
from dpsql.central import selection
from dpsql.central.central import publish_release
from dpsql.curator.audit.blackbox import exact_bounds
from dpsql.errors import Error, MachineFault
from dpsql.ledger.store import budget_report
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.progress import Stage
from dpsql.release import open_release
from tests.releases import write_catalog
from tests.thinned import by_default

EPSILON = Fraction(1, 4)
CATALOG = """
privacy: {lineage: shop, cap: 8, epsilon: 1/4, unit: person.id, delta: 1e-6, key_delta: 5e-7}
tables:
  person: {role: dimension, key: id, private: true, columns: {
    city: {type: string, categories: {private: true, most: 8}}}}
  sales: {role: fact, max_ids: 3, foreign_keys: {id: person}, columns: {
    kind: {type: string, categories: [a, b, c]}, day: {type: int, lower: 0, upper: 31},
    amount: {type: int, lower: 0, upper: 100, measure: true}}}
views:
  v: {of: sales, axes: [person.city, sales.kind], measures: [count, sales.amount]}
"""
PURE, LISTED = CATALOG.replace(", delta: 1e-6, key_delta: 5e-7", ""), "{type: string, categories: [c0, c1]}"
WITHOUT = CATALOG.replace(", key_delta: 5e-7", "").replace(
    "{type: string, categories: {private: true, most: 8}}", LISTED
)
PLAIN = PURE.replace("{type: string, categories: {private: true, most: 8}}", LISTED)
CASES = {
    "a private key": CATALOG,
    "two rounds of keys": CATALOG.replace("categories: [a, b, c]", "categories: {private: true, per_unit: 3, most: 8}"),
    "keys under auto": CATALOG.replace("max_ids: 3", "max_ids: auto"),
    "keys and people": CATALOG.replace("[count, sales.amount]", "[count, people]"),
    "auto": WITHOUT.replace("max_ids: 3", "max_ids: auto"),
    "auto, pure": PLAIN.replace("max_ids: 3", "max_ids: auto"),
    "blocks": PLAIN.replace("[person.city, sales.kind], measures: [count, sales.amount]",
                            "[sales.day, sales.amount], measures: [count], mechanism: blocks"),
    "signal": PLAIN.replace("[person.city, sales.kind], measures: [count, sales.amount]",
                            "[sales.day], measures: [count], mechanism: signal"),
}  # fmt: skip
"""Every feature that chooses by data."""
HERS = "only hers"


def write(folder: Path, catalog: str, people: int, hers: bool) -> Path:
    """People of two cities and, on one side, one person of her own city who bought a lot."""
    person = f"SELECT i AS id, 'c' || (i % 2) AS city FROM range({people}) t(i)"
    sales = (
        f"SELECT i AS id, ['a', 'b', 'c'][1 + (i + j) % 3] AS kind, (i + 9 * j) % 32 AS day, "
        f"(i * 7 + j) % 101 AS amount FROM range({people}) t(i), range(2) s(j)"
    )
    if hers:
        person += f" UNION ALL SELECT {people}, '{HERS}'"
        sales += (
            f" UNION ALL SELECT {people}, 'only ' || (i % 9), i % 2, 100 FROM range(60) t(i) "
            f"UNION ALL SELECT {people}, 'a', 31, 100 FROM range(60) t(i)"
        )
    write_catalog(folder, catalog, {"person": person, "sales": sales})
    return folder


class Given:
    """Noisy integers from outside: a function of a seed, of where they are drawn and of keys by their names.

    Keys of one side alone are never shown, as in the proof of private keys.
    """

    insecure = True

    def __init__(self, seed: int, low: int, high: int) -> None:
        """Integers from `low` to `high`."""
        self.seed, self.low, self.high = seed, low, high
        self.rng = np.random.default_rng(seed)

    def give(self, shape: Any) -> Any:
        return self.rng.integers(self.low, self.high, shape, np.int64, endpoint=True)

    def laplace(self, units: Any, denominator: int, exact: Any = None) -> Any:
        return self.give(np.shape(units))

    def joint(self, units: Any, denominator: int, bounds: Sequence[int], exact: Any = None) -> Any:
        return self.give((len(bounds), *np.shape(units)))

    def trees(self, tree: Any, exact: Any) -> Any:
        return self.give(exact.shape)

    def stored(self, leaf: Any, exact: Any, drawn: Any) -> Any:
        return self.give(exact.shape)

    def gaussian(self, sigma2: Fraction, size: int, exact: Any = None) -> Any:
        return self.give(size)

    def shown(self, table: Any, people: Any, names: Any) -> Any:
        return np.array([self.shows(key) for key in names[1]], np.bool_)

    def shows(self, key: Any) -> bool:
        odd = hashlib.sha256(f"{self.seed} {key}".encode()).digest()[0] % 2
        return bool(odd) and not str(key).startswith("only")


INTEGERS = {
    "drawn": (-(1 << 12), 1 << 12), "none": (0, 0), "small": (-3, 3), "huge": (-(1 << 40), 1 << 40),
    "below 0": (-(1 << 40), -1), "above 0": (1, 1 << 40),
}  # fmt: skip


class Ended(NamedTuple):
    """How a publish ended: exit code, words, files left, what the ledger holds of it."""

    code: int
    words: str
    files: tuple[str, ...]
    ledger: tuple[Any, ...]


def ended(folder: Path, label: str, noise: Any) -> Ended:
    """Publish and look at all that somebody beside the curator may see."""
    said: list[str] = []

    def told(stage: Stage) -> None:
        said.append(re.sub(r"[^;]*for the curator[^;]*", "", str(stage)))

    catalog = load_catalog(folder / "catalog.yaml")
    try:
        target = folder / f"{label}.dpsql"
        published = publish_release(catalog, target, noise=noise, key=b"k" * 32, label=label, progress=told)
        code, words = 0, published.summary()
        with closing(open_release(target, insecure=True)) as release:
            said += [str(keys.keys) for keys in release.meta.keys]
    except (Error, ValueError) as error:
        code, words = getattr(error, "exit_code", 1), f"{type(error).__name__} {error}"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix != ".key")
    (lineage,) = budget_report(folder / "ledger").lineages
    entries = [(e.label, e.state, e.cost, e.lines) for e in lineage.entries]
    return Ended(
        code,
        _without_ids(f"{said} {words}", folder),
        tuple(_without_ids(file, folder) for file in files),
        (lineage.spent, lineage.key_spent, *entries),
    )


def _without_ids(text: str, folder: Path) -> str:
    """Without what each publish draws for itself, and without where it lies."""
    return re.sub(r"[0-9a-f]{16,}", "*", text.replace(str(folder), ""))


def pairs(folder: Path, catalog: str, people: int = 60) -> tuple[Path, Path]:
    return write(folder / "left", catalog, people, True), write(folder / "right", catalog, people, False)


def both(left: Path, right: Path, label: str, seed: int, integers: tuple[int, int]) -> tuple[Ended, Ended]:
    """How both sides end on the same noisy integers."""
    first, second = (ended(side, label, Given(seed, *integers)) for side in (left, right))
    return first, second


PEOPLE = (11, 43, 60, 400, 999)  # with each of the cases they make forty catalogs
FORTY = [pytest.param(name, people, 100, marks=pytest.mark.slow) for name in CASES for people in PEOPLE]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "people", "seeds"), [*by_default(((name, 60, 1) for name in CASES), 2), *FORTY]
)
def test_the_same_integers_end_alike_and_well(tmp_path: Path, name: str, people: int, seeds: int) -> None:
    left, right = pairs(tmp_path, CASES[name], people)
    # a publish takes most of a second; every kind, and each of four times, in `make slow`
    kinds = ("drawn", "below 0") if seeds == 1 else tuple(INTEGERS)
    for seed in range(min(seeds, 4)):
        for place, kind in enumerate(kinds):
            first, second = both(left, right, f"{kind} {seed}", seed + place, INTEGERS[kind])
            assert first == second and first.code == 0, (kind, first.words)


def test_an_exit_that_asks_exact_numbers_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a plan that is compared with its charge after the draw, and a draw that fails for one person."""
    left, right = pairs(tmp_path, CASES["a private key"])
    shipped = selection._shown

    def failing(scan: Any, relations: Any, plan: Any, step: Any, listed: Any) -> Iterator[Any]:
        rows = relations.batches(selection.key_statement(scan, plan.column, step.keys, listed))
        if any(HERS in str(key) for batch in rows for key, _ in batch):
            raise ValueError
        return shipped(scan, relations, plan, step, listed)

    monkeypatch.setattr(selection, "_shown", failing)
    first, second = both(left, right, "a", 1, (0, 9))
    assert (first.code, second.code) == (MachineFault("").exit_code, 0)


def test_how_keys_fell_may_show_in_the_exit_only_once_it_is_charged(tmp_path, monkeypatch):
    """A failure that hangs on a list ends the release, with its key rounds charged and nothing drawn again for it."""
    folder = write(tmp_path / "shop", CASES["a private key"], 60, True)

    def failing(*given: Any) -> Any:
        raise ValueError("c1 was shown")

    monkeypatch.setattr(selection, "choose_keys", failing)
    noise = Given(1, 0, 9)
    first = ended(folder, "a", noise)
    assert first.code == MachineFault("").exit_code and "c1" not in first.words
    spent, key_spent, (_, state, _, _) = first.ledger
    assert state == "ended" and spent > 0 and key_spent > 0


RISK = 1e-4
"""That all bounds of a test hold is at least this sure."""


def far_apart(left: Sequence[Ended], right: Sequence[Ended], delta: float, tests: int) -> list[Ended]:
    """Outcomes whose chance on one side is surely above e^epsilon times that on the other + delta."""
    counts, found = (Counter(left), Counter(right)), []
    risk = RISK / (4 * tests * len({*left, *right}))
    for outcome in {*left, *right}:
        ends = [exact_bounds(count[outcome], len(left), risk) for count in counts]
        for (lower, _), (_, upper) in (ends, ends[::-1]):
            if lower > math.exp(EPSILON) * upper + delta:
                found.append(outcome)
    return found


def drawn(folder: Path, name: str, seeds: int, people: int = 60) -> tuple[list[Ended], list[Ended]]:
    """How both sides end on noise of their own; what is shown of lists is in the words."""
    sides: list[list[Ended]] = [[], []]
    for number, side in enumerate(pairs(folder, CASES[name], people)):
        for seed in range(seeds):
            end = ended(side, f"r{seed % 25}", ExactNoise(insecure_test_entropy(1000 * number + seed)))
            words = re.sub(r"r\d+|\d\.\d+", "", end.words)
            sides[number].append(end._replace(words=words, files=(), ledger=end.ledger[-1][1:3]))
            for path in (*side.glob("r*.dpsql"), *(side.glob(".dpsql/*") if seed % 25 == 24 else ())):
                path.unlink()
    return sides[0], sides[1]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("name", "people", "seeds"), [*by_default(((name, 60, 25) for name in CASES), 0), *FORTY]
)
def test_drawn_exits_are_within_epsilon(tmp_path: Path, name: str, people: int, seeds: int) -> None:
    left, right = drawn(tmp_path, name, seeds, people)
    assert not far_apart(left, right, 1e-6, len(CASES) * (len(PEOPLE) if seeds > 25 else 1))
    assert all(end.code == 0 for end in (*left, *right))


def test_25_seeds_find_an_exit_that_tells() -> None:
    fine, wrong = Ended(0, "", (), ()), Ended(2, "", (), ())
    assert far_apart([wrong] * 25, [fine] * 25, 1e-6, len(CASES))
    assert not far_apart([wrong] * 13 + [fine] * 12, [fine] * 25, 1e-6, len(CASES))
