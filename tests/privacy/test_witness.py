"""The witness of a proof: a program in another language adds up its losses and redoes its estimates, and refuses any
witness in which one integer, law or budget was altered.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from copy import deepcopy
from fractions import Fraction
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dpsql
from dpsql.catalog import load_catalog
from dpsql.curator.prove import madeup, prove
from dpsql.curator.prove.madeup import DEAR, MANY
from dpsql.errors import InterfaceError
from dpsql.examples.retail import make_star, write_star
from dpsql.interfaces.cli import all_commands, cli
from dpsql.mechanisms.distribution import Laplace
from tests.central.test_wide_sums import CATALOG as WIDE_SUMS
from tests.curator.test_prove import shop
from tests.thinned import by_default

VERIFIER = Path(__file__).parents[2] / "clients" / "verify" / "verify.js"
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs node")

Record = dict[str, Any]

CATALOGS = ("adult", "blackfriday", "chinook", "foodmart_customers", "foodmart_user", "northwind", "nyc_taxi",
            "online_retail", "online_retail_user", "retail", "retail_user", "ssb_user")  # fmt: skip
"""Shipped catalogs whose estimates are all redone."""


def verified(witness: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(NODE), str(VERIFIER), str(witness)], capture_output=True, text=True, check=False
    )


def altered(folder: Path, records: list[Record]) -> subprocess.CompletedProcess[str]:
    path = folder / "altered.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return verified(path)


def records_of(witness: Path) -> list[Record]:
    return [json.loads(line) for line in witness.read_text().splitlines()]


PROMISES = {
    "pure": "epsilon: 1",
    "delta": "epsilon: 1, delta: 1e-6",
    "replaced": "epsilon: 1, neighbours: replace_one, delta: 1e-6",
}


def residual(text: str) -> str:
    """Views that share axes, measured set by set."""
    return text.replace("measures: [count]}\n  people", "measures: [count], mechanism: residual}\n  people")


def chosen(text: str) -> str:
    """Bounds, weights and partitions chosen at publish."""
    text = text.replace("max_ids: 4, columns", "max_ids: auto, columns")
    return text.replace(
        "[customer.age], measures: [count]}", "[customer.age], measures: [count], mechanism: diffhr}"
    )


def written(folder: Path, promise: str, change: Callable[[str], str] = str) -> Path:
    file = shop(folder, promise)
    file.write_text(change(file.read_text()))
    prove(load_catalog(file), witness=folder / "out.jsonl")
    return folder / "out.jsonl"


def proved(folder: Path, text: str) -> list[Record]:
    """One pair of a shop, written into a folder of its own: the records of its witness."""
    (folder / "shop.yaml").write_text(text.replace("ROOT", str(folder)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(madeup, "MANNERS", (DEAR,))
        prove(load_catalog(folder / "shop.yaml"), witness=folder / "out.jsonl")
    return records_of(folder / "out.jsonl")


Proofs = Callable[[str], list[Record]]


@pytest.fixture(scope="module")
def proofs(tmp_path_factory: pytest.TempPathFactory) -> Proofs:
    """The records of one pair of a catalog: a small shop under both laws, and the others of `TEXTS`."""

    @cache
    def proof(name: str) -> list[Record]:
        folder = tmp_path_factory.mktemp("proof")
        return proved(folder, TEXTS[name] if name in TEXTS else shop(folder, PROMISES[name]).read_text())

    return proof


@pytest.mark.parametrize(
    ("name", "number"),
    by_default([("pure", 0), ("delta", 0), ("tied, pure", 5), ("tied, delta", 5), ("nulls", 11)], 3),
)
def test_another_program_agrees(proofs: Proofs, tmp_path: Path, name: str, number: int) -> None:
    done = altered(tmp_path, proofs(name))
    assert (done.returncode, done.stderr) == (0, "")
    statistics = [record for record in proofs(name) if "statistic" in record]
    assert f"estimates of {len(statistics)} of {len(statistics)} statistics" in done.stdout
    assert statistics and len(statistics) == (number or len(statistics))
    assert all(record["method"] for record in statistics)


def first(records: list[Record], kind: str) -> Record:
    """The first record of a kind; of draws the first one that the pair moves: zeros times anything are zeros."""
    return next(record for record in records if kind in record and record.get("right", True))


def raise_by(record: Any, field: str | int) -> None:
    """A fraction by a thousandth of itself."""
    record[field] = str(Fraction(record[field]) * Fraction(1001, 1000))


def add(record: Any, field: str | int, by: float = 1) -> None:
    record[field] += by


def bump(record: Record, field: str, place: int, by: int = 1) -> None:
    record[field][place] = int(record[field][place]) + by


def swap_sides(draw: Record) -> None:
    """The right side as far away on the other side of the left one: no loss tells."""
    row, value = draw["right"][0]
    draw["right"][0] = [row, 2 * draw["left"][row] - value]


INTEGERS: dict[str, Callable[[list[Record]], object]] = {
    "an exact integer": lambda r: bump(first(r, "draw"), "left", 0),
    "a noise": lambda r: bump(first(r, "draw"), "noise", 0),
    "a noisy integer": lambda r: bump(first(r, "draw"), "noisy", 0),
    "a noisy integer with its noise": lambda r: [bump(first(r, "draw"), f, 0, 40) for f in ("noise", "noisy")],
    "the other side": lambda r: add(first(r, "draw")["right"][0], 1),
    "the other side, as far away": lambda r: swap_sides(first(r, "draw")),
    "the shift": lambda r: add(first(r, "draw"), "shift"),
    "a released estimate": lambda r: bump(first(r, "statistic"), "leaves", 0, 3),
    "an entry's interval": lambda r: bump(first(r, "axis"), "stop", 1),
    "a sensitivity": lambda r: add(first(r, "statistic"), "sensitivity"),
    "a number of draws": lambda r: add(first(r, "pair"), "draws"),
    "a draw less": lambda r: r.remove(first(r, "draw")),
    "the moves between neighbours": lambda r: first(r, "witness").update(moves=2),
}  # fmt: skip
BUDGETS: dict[str, Callable[[list[Record]], object]] = {
    "a line of the ledger": lambda r: raise_by(first(r, "pair")["lines"][0], 1),
    "the claim": lambda r: raise_by(first(r, "pair"), "claimed"),
    "the loss of a draw": lambda r: raise_by(first(r, "draw"), "loss"),
    "loss over claim": lambda r: add(first(r, "pair"), "loss_over_claim", -1e-6),
    "a charge": lambda r: raise_by(first(r, "statistic"), "charge"),
    "what noise is drawn for": lambda r: raise_by(first(r, "statistic"), "spend"),
    "a row's budget": lambda r: bump(first(r, "axis"), "budget", 0),
    "an axis's budget": lambda r: add(first(r, "axis"), "total"),
}


def of_rows(records: list[Record]) -> Record:
    """The first draw of rows with noise of their own."""
    return next(r for r in records if r.get("units"))


def of_trees(records: list[Record]) -> Record:
    """The first draw of leaves together."""
    return next(r for r in records if "rates" in r)


def levels(records: list[Record]) -> Record:
    """Of the first axis whose leaves are drawn together."""
    return next(r["levels"] for r in records if "levels" in r)


LAWS: dict[str, dict[str, Callable[[list[Record]], object]]] = {
    "pure": {
        "units": lambda r: add(of_rows(r)["units"][0], 0),
        "rows": lambda r: add(of_rows(r)["units"][0], 1),
        "a level's rate": lambda r: add(of_trees(r)["rates"], 0),
        "levels in another order": lambda r: of_trees(r)["rates"].reverse(),
        "leaves of a tree": lambda r: add(of_trees(r), "leaves"),
        "a level's share": lambda r: add(levels(r)["shares"], 0),
        "denominator": lambda r: first(r, "draw").update(denominator=first(r, "draw")["denominator"] * 2),
        "loss of all Laplace draws": lambda r: raise_by(first(r, "pair"), "epsilon"),
        "a pure loss as Gaussian": lambda r: first(r, "pair").update(currency="mu2"),
        "Laplace noise as Gaussian": lambda r: first(r, "draw").update(law="gaussian", sigma2="100"),
    },
    "delta": {
        "sigma2": lambda r: raise_by(first(r, "draw"), "sigma2"),
        "loss of all Gaussian draws": lambda r: raise_by(first(r, "pair"), "mu2"),
        "a loss of mu2 as epsilon": lambda r: first(r, "pair").update(currency="epsilon"),
        "another law": lambda r: first(r, "draw").update(law="cauchy"),
    },
}
TIED = """
dpsql: 1
name: tied
ledger: ROOT/ledger.duckdb
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet, product: sales.parquet, shop: sales.parquet}}
privacy: {lineage: p, cap: 9, unit: row, PROMISE}
tables:
  product: {role: dimension, key: sku, private: true, columns: {kind: {type: string, categories: [a, b, c]},
    price: {type: int, lower: 0, upper: 9, out_of_domain: other}}}
  shop: {role: dimension, key: town, private: true, columns: {large: {type: bool, nullable: true, out_of_domain: drop},
    rent: {type: int, lower: 1, upper: 6, out_of_domain: drop}}}
  sales: {role: fact, foreign_keys: {sku: product, town: shop}, columns: {day: {type: int, lower: 0, upper: 4}}}
views:
  kinds: {of: sales, axes: [product.kind, sales.day], measures: [count], MECHANISM}
  prices: {of: sales, axes: [product.price, shop.rent], measures: [count], MECHANISM}
  products: {of: sales, axes: [product.kind, product.price], measures: [count], MECHANISM}
  shops: {of: sales, axes: [shop.large, shop.rent, product.kind], measures: [count], MECHANISM}
  large: {of: sales, axes: [shop.large], measures: [count], MECHANISM}
"""
"""Axes of two dimensions that rows may lack, MISSING last on the shop's; views of one, two and three axes."""


def cell(records: list[Record], view: str, place: dict[int, int]) -> tuple[Record, int]:
    """A statistic, and where one of its leaves stands; axes of the shop are known by their numbers of leaves."""
    statistic = next(record for record in records if record.get("view") == view)
    leaves = {record["axis"]: record["leaves"] for record in records if "axis" in record}
    shape = tuple(leaves[axis] for axis in statistic["axes"])
    return statistic, int(np.ravel_multi_index(tuple(place[n] for n in shape), shape))


def moved(view: str, units: int, *places: dict[int, int]) -> Callable[[list[Record]], None]:
    """So many units of 2^-20 given to one leaf and taken from another, so that some margins stay."""

    def change(records: list[Record]) -> None:
        for place, by in zip(places, (units, -units), strict=False):
            statistic, at = cell(records, view, place)
            bump(statistic, "leaves", at, by)

    return change


KIND, DAY, PRICE, RENT, LARGE = 5, 6, 12, 7, 4
PARTNERS: dict[str, Callable[[list[Record]], object]] = {
    "one leaf": moved("kinds", 3, {KIND: 1, DAY: 1}),
    "rows without a product, from the leaf that gives way": moved(
        "kinds", 3, {KIND: 3, DAY: 2}, {KIND: 0, DAY: 2}
    ),
    "the same on two axes": moved("products", 3, {KIND: 3, PRICE: 10}, {KIND: 0, PRICE: 0}),
    "rows without a shop, last on two axes": moved(
        "shops", 60, {LARGE: 3, RENT: 6, KIND: 1}, {LARGE: 0, RENT: 0, KIND: 1}
    ),
    "rows that lack the product on one axis alone": moved("products", 1, {KIND: 3, PRICE: 4}),
    "rows that lack the shop on one axis alone": moved("shops", 1, {LARGE: 3, RENT: 2, KIND: 1}),
    "the leaf beyond MISSING": moved("prices", 5, {PRICE: 11, RENT: 1}, {PRICE: 4, RENT: 1}),
    "no dimension": lambda r: [record.pop("dimension", None) for record in r if "axis" in record],
    "another MISSING": lambda r: add(first(r, "dimension"), "missing", -1),
}
"""Changes of one margin each; MISSING gives way to leaf 0."""


NULLS = """
dpsql: 1
name: nulls
ledger: ROOT/ledger.duckdb
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet, customer: customer.parquet}}
privacy: {lineage: p, cap: 9, unit: customer.id, epsilon: 1}
tables:
  customer: {role: dimension, key: id, private: true}
  sales: {role: fact, max_ids: 3, foreign_keys: {buyer: customer}, columns: {
    day: {type: int, lower: 0, upper: 4}, hour: {type: int, lower: 0, upper: 63, out_of_domain: drop},
    amount: {type: int, lower: 0, upper: 9, measure: true, nullable: true},
    weight: {type: int, lower: -5, upper: 90, measure: true, nullable: true}}}
views:
  apart: {of: sales, axes: [sales.day], measures: [count, sales.amount]}
  halves: {of: sales, axes: [sales.day], measures: [count, sales.amount, sales.weight]}
  hour: {of: sales, axes: [sales.hour], measures: [count, count(sales.amount)]}
  days: {of: sales, axes: [sales.day], measures: [count]}
"""
"""Rows with NULL by a draw of their own, by indicators, with leaves drawn together, and a view that counts all rows."""


TEXTS = {
    "tied, pure": TIED.replace("PROMISE", PROMISES["pure"]).replace("MECHANISM", "mechanism: auto"),
    "tied, delta": TIED.replace("PROMISE", PROMISES["delta"]).replace("MECHANISM", "mechanism: tree"),
    "nulls": NULLS,
    "wide": WIDE_SUMS.format(
        unit="row", delta="1e-6", bound="", most=200_000
    ),  # sums that need a step above 1
}


def test_rows_with_null_are_drawn_in_each_of_three_ways(proofs: Proofs) -> None:
    draws = [record["draws"] for record in proofs("nulls") if "statistic" in record]
    assert {len(set(pair)) for pair in draws if len(pair) == 2} == {1, 2}, "halves of one draw, sums of two"
    assert any("rates" in record for record in proofs("nulls"))
    assert any("units" in record for record in proofs("nulls"))


def statistic(records: list[Record], view: str, measure: str) -> Record:
    return next(r for r in records if r.get("view") == view and r["measure"] == measure)


NULL_CHANGES: dict[str, Callable[[list[Record]], object]] = {
    "rows": lambda r: bump(statistic(r, "apart", "count"), "leaves", 2, 3),
    "values by a draw": lambda r: bump(statistic(r, "apart", "count(sales.amount)"), "leaves", 2, -3),
    "values by an indicator": lambda r: bump(statistic(r, "halves", "count(sales.weight)"), "leaves", 0, 3),
    "rows of leaves drawn together": lambda r: bump(statistic(r, "hour", "count"), "leaves", 60, 3),
    "a sum": lambda r: bump(statistic(r, "halves", "sales.amount"), "leaves", 1, 3),
    "rows without those with NULL": lambda r: statistic(r, "apart", "count").update(
        draws=statistic(r, "apart", "count")["draws"][1:], numbers=[1]
    ),
    "another indicator": lambda r: statistic(r, "halves", "count(sales.amount)").update(numbers=[4, 0]),
    "an indicator alone": lambda r: statistic(r, "halves", "count(sales.amount)").update(
        draws=statistic(r, "halves", "count(sales.amount)")["draws"][:1], numbers=[3]
    ),
    "a whole in the place of halves": lambda r: statistic(r, "halves", "count(sales.amount)").update(
        factor=1.0
    ),
    "the widest number": lambda r: statistic(r, "apart", "count").update(widest=1 << 40),
}


ALTERATIONS = {
    **{law: INTEGERS | BUDGETS | LAWS[law] for law in LAWS},
    "tied, pure": PARTNERS, "tied, delta": PARTNERS, "nulls": NULL_CHANGES,
}  # fmt: skip
ALTERED = [(proof, name) for proof, changes in ALTERATIONS.items() for name in changes]


@pytest.mark.parametrize(("proof", "name"), by_default(ALTERED, 30), ids=str)
def test_one_alteration_is_refused(proofs: Proofs, tmp_path: Path, proof: str, name: str) -> None:
    records = deepcopy(proofs(proof))
    ALTERATIONS[proof][name](records)
    done = altered(tmp_path, records)
    assert done.returncode == 1 and done.stderr.startswith("refused: "), done.stdout


@pytest.mark.parametrize("change", [None, "step", "leaf"])
def test_estimates_in_a_coarser_step_are_redone(proofs: Proofs, tmp_path: Path, change: str | None) -> None:
    """A leaf altered by 2^-47 of the sums is found, and so is another step."""
    records = deepcopy(proofs("wide"))
    sums = [record for record in records if record.get("measure") == "pay.amount"]
    assert all(record["method"] and record["step"] > 1 for record in sums)
    for record in sums if change == "step" else ():
        record["step"] *= 2
    if change == "leaf":
        bump(sums[0], "leaves", 0, 1 << 15)
    done = altered(tmp_path, records)
    assert done.returncode == (change is not None)
    assert done.stderr.startswith("refused: " if change else "") and (change is not None or not done.stderr)


def test_a_claim_that_a_pair_passes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise for twice the charge: the program that publishes and the one that verifies do not share the mistake."""
    bought = Laplace.affordable
    monkeypatch.setattr(Laplace, "affordable", lambda law, amount, of: bought(law, 2 * amount, of))
    proved(tmp_path, shop(tmp_path, PROMISES["pure"]).read_text())
    done = verified(tmp_path / "out.jsonl")
    assert done.returncode == 1 and "of its claim" in done.stderr


def test_sides_that_no_noise_covers_are_refused(tmp_path: Path, proofs: Proofs) -> None:
    pair = {"pair": "dear", "apart": "the released files differ"}
    done = altered(tmp_path, [proofs("pure")[0], pair])
    assert done.returncode == 1 and "which no noise covers" in done.stderr


def test_a_large_integer_is_a_decimal_string(proofs: Proofs, tmp_path: Path) -> None:
    """Beyond 2^53 a reader of doubles would lose digits."""
    records = deepcopy(proofs("pure"))
    draw, row = first(records, "draw"), 0
    draw["left"][row] = str(int(draw["left"][row]) + 2**64)  # the same place on the circle
    assert altered(tmp_path, records).returncode == 0
    draw["left"][row] = int(draw["left"][row])
    assert altered(tmp_path, records).returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("change", [residual, chosen], ids=lambda change: change.__name__)
@pytest.mark.parametrize("promise", PROMISES)
def test_every_pair_of_other_designs_agrees(tmp_path, promise, change):
    text = PROMISES[promise]
    if change is residual and "delta" not in text:
        text += ", delta: 1e-6"
    done = verified(written(tmp_path, text, change))
    assert (done.returncode, done.stdout.count("\n")) == (0, 4), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("law", ["pure", "delta"])
def test_any_integer_of_a_draw_that_is_altered_is_refused(proofs: Proofs, tmp_path: Path, law: str) -> None:
    rng = Random(30)
    for _ in range(60):
        records = deepcopy(proofs(law))
        draw = rng.choice([record for record in records if "draw" in record])
        field, place = rng.choice(["left", "noise", "noisy"]), rng.randrange(len(draw["left"]))
        bump(draw, field, place, rng.choice([-7, -1, 1, 9]))
        assert altered(tmp_path, records).returncode == 1


def test_the_command_writes_it_with_a_proof_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(madeup, "MANNERS", (MANY,))
    catalog, witness = shop(tmp_path), tmp_path / "out.jsonl"
    published = dpsql.publish(catalog, tmp_path / "r.dpsql").path
    all_commands()
    command = ["audit", *map(str, (published, "--catalog", catalog, "--samples", 0, "--witness", witness))]
    with pytest.raises(InterfaceError, match="--prove"):
        dpsql.api.audit(published, catalog=catalog, samples=0, witness=witness)
    assert CliRunner().invoke(cli, command).exit_code != 0 and not witness.exists()
    done = CliRunner().invoke(cli, [*command, "--prove"])
    assert done.exit_code == 0, done.output
    assert verified(witness).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGS)
def test_another_program_agrees_on_shipped_catalogs(tmp_path: Path, name: str) -> None:
    """Losses as fractions, estimates within one unit of 2^-20; those of every statistic are redone."""
    from benchmarks.withstand.prove import PEOPLE, PRODUCTS, shipped

    write_star(tmp_path / "data", make_star(1, PEOPLE, PRODUCTS))
    for catalog in shipped([name], tmp_path / "data"):
        prove(catalog, witness=tmp_path / "out.jsonl")
        done = verified(tmp_path / "out.jsonl")
        assert (done.returncode, done.stdout.count("\n")) == (0, 4), done.stderr
        records = [record for record in records_of(tmp_path / "out.jsonl") if "statistic" in record]
        assert all(record["method"] for record in records), name


DIMENSIONS = {"a": ("ka", "xyz"), "b": ("kb", "uv"), "c": ("kc", "pq")}


def random_star(folder: Path, rng: Random) -> str:
    """Three dimensions, perhaps one behind another, and views of some axes with sums that may be NULL."""

    def columns(names: str) -> str:
        lost = ("drop", "other")
        return ", ".join(
            f"{name}: {{type: int, lower: 0, upper: {rng.randint(2, 40)}, out_of_domain: {rng.choice(lost)}"
            f"{rng.choice(['', ', nullable: true'])}}}"
            for name in names
        )

    chained, bound = rng.random() < 0.5, rng.choice(["", "max_ids: 3, "])
    behind, keys = ("{kc: c}", "ka: a, kb: b") if chained else ("{}", "ka: a, kb: b, kc: c")
    axes = [f"{table}.{name}" for table, (_, names) in DIMENSIONS.items() for name in names] + ["f.d", "f.e"]
    measures = ("count", "count, f.m", "count, f.m, f.w")
    views = [
        f"  v{i}: {{of: f, axes: [{', '.join(rng.sample(axes, rng.choice([1, 2, 2, 3])))}], "
        f"measures: [{rng.choice(measures)}]}}"
        for i in range(rng.randint(2, 5))
    ]
    tables = [
        f"  {table}: {{role: dimension, key: {key}, private: true, columns: {{{columns(names)}}}, "
        f"foreign_keys: {behind if table == 'a' else '{}'}}}"
        for table, (key, names) in DIMENSIONS.items()
    ]
    sources = ", ".join(f"{table}: t.parquet" for table in ("f", "g", *DIMENSIONS))
    privacy = (
        f"lineage: p, cap: 99, unit: {'g.id' if bound else 'row'}, {rng.choice(list(PROMISES.values()))}"
    )
    nullable = rng.choice(["", ", nullable: true"])
    return "\n".join([
        f"dpsql: 1\nname: r\nledger: {folder}/ledger.duckdb\nprivacy: {{{privacy}}}",
        f"source: {{kind: parquet, root: {folder}, tables: {{{sources}}}}}\ntables:",
        "  g: {role: dimension, key: id, private: true}", *tables,
        f"  f: {{role: fact, {bound}foreign_keys: {{{keys}, owner: g}}, columns: {{{columns('de')},",
        f"    m: {{type: int, lower: -3, upper: 9, measure: true{nullable}}},",
        "    w: {type: int, lower: 0, upper: 50, measure: true, nullable: true}}}\nviews:", *views, "",
    ])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 112))
def test_another_program_agrees_on_random_stars(tmp_path: Path, seed: int) -> None:
    records = proved(tmp_path, random_star(tmp_path, Random(seed)))
    done = verified(tmp_path / "out.jsonl")
    assert done.returncode == 0, done.stderr
    assert all(record["method"] for record in records if "statistic" in record)
