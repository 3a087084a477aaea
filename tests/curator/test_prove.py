"""`audit --prove` and certificates: made-up neighbours of a release's own catalog, published whole."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import duckdb
import pytest

import dpsql
import dpsql.api
from dpsql.catalog import load_catalog
from dpsql.central.bounding import reach
from dpsql.curator import prove as proving
from dpsql.curator.prove import madeup, prove
from dpsql.curator.prove.madeup import DEAR, made_up
from dpsql.errors import CatalogError, InterfaceError
from dpsql.mechanisms.distribution import Laplace
from dpsql.release.signature import claimed_signer
from tests.command import dpsql_command
from tests.releases import write_catalog

pytestmark = pytest.mark.usefixtures("publishes")

SHOP = """
dpsql: 1
name: shop
description: A shop
population: customers
ledger: ROOT/ledger.duckdb
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet, orders: orders.parquet, customer: customer.parquet,
  product: product.parquet}}
privacy: {lineage: p, cap: 9, unit: customer.id, PROMISE}
tables:
  customer: {role: dimension, key: id, private: true,
    columns: {age: {type: int, lower: 18, upper: 57, cuts: {width: 10}}}}
  orders: {role: dimension, key: order_id, private: true, foreign_keys: {buyer: customer},
    columns: {paid: {type: bool}}}
  product: {role: dimension, key: sku, private: false, columns: {kind: {type: string}}}
  sales: {role: fact, foreign_keys: {order_id: orders, sku: product}, max_ids: 4, columns: {
    day: {type: date, lower: 2025-01-01, upper: 2025-01-08},
    amount: {type: decimal, scale: 2, lower: -5, upper: 10, measure: true}}}
views:
  days: {of: sales, axes: [sales.day, {axis: product, by: [kind]}], measures: [count, sales.amount]}
  paid: {of: sales, axes: [orders.paid, customer.age], measures: [count]}
  people: {of: customer, axes: [customer.age], measures: [count]}
"""
TABLES = {
    "customer": "SELECT i AS id, 18 + i AS age FROM range(30) t(i)",
    "orders": "SELECT i AS order_id, i % 30 AS buyer, i % 2 = 0 AS paid FROM range(60) t(i)",
    "product": "SELECT chr(97 + i::INT) AS sku, ['x', 'y'][1 + i % 2] AS kind FROM range(5) t(i)",
    "sales": "SELECT i % 60 AS order_id, chr(97 + (i % 5)::INT) AS sku, DATE '2025-01-01' + (i % 8)::INT AS day,"
    " (i % 11)::DECIMAL(9, 2) AS amount FROM range(200) t(i)",
}
PROMISES = {
    "pure": "epsilon: 1",
    "delta": "epsilon: 1, delta: 1e-6",
    "replaced": "epsilon: 1, neighbours: replace_one",
}


def shop(folder: Path, promise: str = "epsilon: 1", bound: str = "max_ids: 4") -> Path:
    return write_catalog(folder, SHOP.replace("PROMISE", promise).replace("max_ids: 4", bound), TABLES)


@pytest.fixture
def dear_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pair in the place of four, where the figure is not what is tested."""
    monkeypatch.setattr(madeup, "MANNERS", (DEAR,))


@pytest.mark.parametrize(
    "name", ["delta", *(pytest.param(name, marks=pytest.mark.slow) for name in ("pure", "replaced"))]
)
def test_no_pair_passes_the_claim_and_one_pays_it(tmp_path: Path, name: str) -> None:
    catalog = shop(tmp_path, PROMISES[name])
    for private in ("customer", "orders", "sales"):  # no row of these is opened
        (tmp_path / f"{private}.parquet").unlink()
    proof = prove(load_catalog(catalog))
    shares = {pair.pair: pair.share for pair in proof.pairs}
    assert proof.held and list(shares) == ["dear", "many", "spread", "odd"]
    # who comes may stand where the dear one stood; whose rows lie elsewhere pay nearly all
    if name == "replaced":
        assert max(shares.values()) > 0.9
    else:
        assert shares["dear"] > 0.98


@pytest.mark.usefixtures("dear_alone")
def test_half_the_noise_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bought = Laplace.affordable
    monkeypatch.setattr(Laplace, "affordable", lambda law, amount, of: bought(law, 2 * amount, of))
    proof = prove(load_catalog(shop(tmp_path, bound="max_ids: 4, clipped_share: 0")))
    assert not proof.held and proof.worst.share == pytest.approx(2, rel=0.01)
    assert "2.0" in proof.check.detail and proof.check.held is False


@pytest.mark.usefixtures("dear_alone")
def test_what_no_noise_covers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that also tells how often noise was drawn for a person who comes."""
    drawn: ClassVar[list[int]] = []  # type: ignore[misc]
    measured = proving.madeup.measure_pair

    def told(left, right, seed):  # type: ignore[no-untyped-def]
        publish = type(left).publish
        monkeypatch.setattr(
            type(left),
            "publish",
            lambda side, noise, **how: (publish(side, noise, **how), drawn.append(0), len(drawn)),
        )
        try:
            return measured(left, right, seed)
        finally:
            monkeypatch.setattr(type(left), "publish", publish)

    monkeypatch.setattr(proving.madeup, "measure_pair", told)
    proof = prove(load_catalog(shop(tmp_path)))
    assert not proof.held and "differ beyond" in proof.worst.apart
    assert proof.to_json()["worst_loss_over_claim"] is None


def test_made_up_rows_reach_every_bound(tmp_path: Path) -> None:
    made = made_up(load_catalog(shop(tmp_path)))
    rows = made.rows_of(900, DEAR)
    assert made.owned == ("customer", "orders", "sales")
    assert [len(rows[name]) for name in made.owned] == [1, 2, 4 + reach(4) + 1]
    assert rows["sales"][0][1:] == ("c", "2025-01-05", "10.00")
    buyers = {row[1] for row in rows["orders"]}
    assert buyers == {rows["customer"][0][0]}, "her orders are her own"


def test_a_collection_has_no_loss_of_rows(tmp_path: Path) -> None:
    catalog = load_catalog(Path("catalog/survey.yaml"))
    with pytest.raises(CatalogError, match="report for themselves"):
        prove(catalog)


@pytest.mark.slow
@pytest.mark.usefixtures("dear_alone")
def test_a_bought_release_is_proved_by_the_catalog_that_it_was_bought_from(tmp_path: Path) -> None:
    catalog, bought = shop(tmp_path), tmp_path / "more.dpsql"
    dpsql.api.buy(
        catalog, ["SELECT COUNT(*) FROM sales WHERE day > DATE '2025-01-03'"], bought, epsilon="0.2"
    )
    report = dpsql.api.audit(bought, catalog=catalog, samples=0, prove=True)
    assert report.held and float(report.checks[-1].detail.rsplit(" ", 1)[1]) > 0.98


STREAM = """stream: {column: sales.day, grain: day, horizon: 4, max_batches: 2}
views:
  days: {of: sales, axes: [sales.day, customer.age], measures: [count, sales.amount]}
"""


@pytest.mark.slow
def test_a_stream_is_appended_batch_by_batch(tmp_path: Path) -> None:
    catalog = shop(tmp_path)
    catalog.write_text(catalog.read_text().split("views:")[0] + STREAM)
    made = made_up(load_catalog(catalog))
    assert list(made.batches) == [0, 1, 2, 3]
    assert {row[2] for row in made.rows_of(900, DEAR, range(2))["sales"]} == {
        "2025-01-01 00:00:00", "2025-01-02 00:00:00"
    }  # fmt: skip
    proof = prove(load_catalog(catalog))
    assert proof.held and max(pair.share for pair in proof.pairs) > 0.9


@pytest.mark.slow
def test_reports_are_made_up_too(tmp_path: Path) -> None:
    catalog = shop(tmp_path)
    text = catalog.read_text().replace(
        "product: product.parquet}}", "product: product.parquet},\n  reports: {customer: r}}"
    )
    told = "cuts: {width: 10}, out_of_domain: drop, reported: {epsilon: 2, collection: ages}"
    catalog.write_text(text.replace("cuts: {width: 10}", told))
    assert prove(load_catalog(catalog)).held


@pytest.mark.usefixtures("dear_alone")
def test_a_certificate_says_what_an_officer_asks(tmp_path: Path) -> None:
    catalog, release = shop(tmp_path, PROMISES["delta"]), tmp_path / "shop.dpsql"
    dpsql.publish(catalog, release)
    done = dpsql_command("certificate", release, "-o", tmp_path / "c.html", "--catalog", catalog, "--prove")
    assert done.returncode == 0, done.stderr
    told, page = json.loads((tmp_path / "c.json").read_text()), (tmp_path / "c.html").read_text()
    assert told["protected"]["unit"] == "customer.id" and told["protected"]["rows_per_unit"]["sales"] == 4
    assert Fraction(told["protected"]["mu2"]) == 2 * Fraction(told["protected"]["rho"])
    assert told["ledger"]["lineage"] == "p" and told["ledger"]["charged"] == pytest.approx(1)
    assert told["exact_loss"]["version"] == dpsql.__version__
    assert 0.98 < told["exact_loss"]["worst_loss_over_claim"] <= 1
    assert told["audit"]["failed"] == 0 and len(told["mechanisms"]) >= 4
    assert told["release"]["signer"] == claimed_signer(release).key
    for words in ("adding or removing everything that one customer.id owns", "lineage p", "exact loss over claim",
                  "Groups", told["release"]["sha256"], told["release"]["signer"]):  # fmt: skip
        assert words in page
    assert "<script" not in page and "http" not in page.replace("http-equiv", "")


def test_a_certificate_of_a_changed_release_says_so(tmp_path: Path) -> None:
    catalog, release = shop(tmp_path), tmp_path / "shop.dpsql"
    dpsql.publish(catalog, release)
    release.chmod(0o644)
    with duckdb.connect(str(release)) as opened:
        opened.execute("UPDATE measurement_0 SET value = value + 5000")
    code = dpsql_command("certificate", release, "-o", tmp_path / "c.html").returncode
    told = json.loads((tmp_path / "c.json").read_text())
    assert code == 3 and told["audit"]["failed"] > 0 and told["exact_loss"] is None and told["ledger"] is None
    assert told["release"]["signer"] is None


@pytest.mark.usefixtures("dear_alone")
def test_proving_asks_for_the_catalog_that_a_release_was_made_from(tmp_path: Path) -> None:
    catalog, release = shop(tmp_path), tmp_path / "shop.dpsql"
    dpsql.publish(catalog, release)
    audit = ("audit", release, "--samples", 0, "--prove")
    assert dpsql_command(*audit).returncode == 2
    done = dpsql_command(*audit, "--catalog", catalog)
    assert done.returncode == 0 and "no pair of made-up neighbours exceeds the claimed loss" in done.stdout
    other = tmp_path / "other.yaml"
    other.write_text(catalog.read_text().replace("max_ids: 4", "max_ids: 5"))
    with pytest.raises(InterfaceError, match="a different catalog"):
        dpsql.api.audit(release, catalog=other, samples=0, prove=True)
