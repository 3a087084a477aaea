"""`quantiles: true` on a measure: an axis whose leaves follow from the catalog, and quantiles equal to plain SQL."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise

import pytest

from dpsql.catalog.catalog import catalog_from_json, parse_catalog
from dpsql.curator.prove.layouts import RawRows
from dpsql.errors import CatalogError, PartialBinError
from dpsql.noise import ZeroNoise
from tests.releases import Twins, plain_tables, published, write_catalog

CATALOG = """
dpsql: 1
name: bakery
source: {kind: parquet, root: ., tables: {sale: sale.parquet}}
privacy: {lineage: bakery, cap: 9000, unit: row, epsilon: 9000}
tables:
  sale:
    role: fact
    columns:
      shop: {type: string, categories: [a, b, c], out_of_domain: drop}
      price: {type: decimal, scale: 2, lower: 0, upper: 500, measure: true, quantiles: true}
      pieces: {type: int, lower: 0, upper: 20, measure: true, nullable: true, quantiles: true}
      delay: {type: int, lower: -300, upper: 500, measure: true, quantiles: true, cuts: [-100, 0, 10, 100]}
views:
  prices: {of: sale, axes: [sale.shop], measures: [count, sale.price, squares(price)]}
  pieces: {of: sale, axes: [sale.shop], measures: [count, pieces]}
  delays: {of: sale, axes: [sale.shop], measures: [count, sale.delay]}
  shops: {of: sale, axes: [sale.shop], measures: [count]}
"""


@pytest.fixture(scope="module")
def bakery(tmp_path_factory: pytest.TempPathFactory, publishes: None) -> Iterator[Twins]:
    folder, draw = tmp_path_factory.mktemp("bakery"), random.Random(8)
    rows = [
        (draw.choice("abc"), round(min(draw.expovariate(0.03), 499), 2), draw.choice([None, *range(21)]),
         draw.randrange(-300, 501))
        for _ in range(400)
    ]  # fmt: skip
    sale = RawRows("shop VARCHAR, price DECIMAL(9, 2), pieces INT, delay INT", rows)
    answerer = published(write_catalog(folder, CATALOG, {"sale": sale}), ZeroNoise())
    yield answerer, plain_tables(folder)
    answerer.release.close()


@pytest.mark.parametrize(("item", "exact"), [
    ("MEDIAN(pieces)", "QUANTILE_DISC(pieces, 0.5)"), ("QUANTILE_DISC(pieces, 0.9)", "QUANTILE_DISC(pieces, 0.9)"),
    ("PERCENTILE_DISC(0.2) WITHIN GROUP (ORDER BY pieces)", "QUANTILE_DISC(pieces, 0.2)"),
    ("MIN(pieces)", "QUANTILE_DISC(pieces, 0.01)"), ("MAX(pieces)", "QUANTILE_DISC(pieces, 0.99)"),
])  # fmt: skip
@pytest.mark.parametrize("rest", [" GROUP BY shop ORDER BY shop", " WHERE shop <> 'b'"])
def test_leaves_of_one_value_give_the_exact_quantile(bakery: Twins, item: str, exact: str, rest: str) -> None:
    got = bakery[0].query(f"SELECT {item} FROM sale{rest}").rows
    assert list(got) == bakery[1].execute(f"SELECT {exact} FROM sale{rest}").fetchall()


@pytest.mark.parametrize(("column", "share", "call"), [
    ("price", 0.5, "MEDIAN(price)"), ("price", 0.05, "QUANTILE_CONT(price, 0.05)"), ("price", 0.99, "MAX(price)"),
    ("price", 0.25, "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY price)"), ("price", 0.01, "MIN(price)"),
    ("delay", 0.5, "MEDIAN(delay)"), ("delay", 0.99, "MAX(delay)"),
])  # fmt: skip
def test_wide_leaves_give_an_interval_that_covers(
    bakery: Twins, column: str, share: float, call: str
) -> None:
    result = bakery[0].query(f"SELECT shop, {call} AS q FROM sale GROUP BY shop ORDER BY shop")
    exact = (
        bakery[1]
        .execute(f"SELECT QUANTILE_DISC({column}, {share}) FROM sale GROUP BY shop ORDER BY shop")
        .fetchall()
    )
    lows, highs = result.interval_rows()
    for low, (_, value), high, (truth,) in zip(lows, result.rows, highs, exact, strict=True):
        assert low[1] <= truth <= high[1] and low[1] <= value <= high[1]
    assert all(error is not None and error > 0 for _, error in result.stderr_rows)


def test_extremes_say_which_quantile_they_are(bakery: Twins) -> None:
    notes = " ".join(map(str, bakery[0].query("SELECT MIN(price), MAX(delay) FROM sale").notes))
    assert (
        "MIN of sale.price is its 1% quantile" in notes and "MAX of sale.delay is its 99% quantile" in notes
    )


@pytest.mark.parametrize("text", [
    "SELECT COUNT(*), SUM(price), COUNT(pieces), SUM(delay) FROM sale", "SELECT AVG(pieces) FROM sale WHERE shop = 'a'",
    "SELECT STDDEV_POP(price) FROM sale", "SELECT COUNT(*) FROM sale WHERE pieces > 7",
    "SELECT SUM(delay) FROM sale WHERE delay >= 10",
])  # fmt: skip
def test_sums_and_counts_stay_exact(bakery: Twins, text: str) -> None:
    (got,), (exact,) = bakery[0].query(text).rows, bakery[1].execute(text).fetchall()
    assert [float(value) for value in got] == pytest.approx([float(value) for value in exact], rel=1e-6)


def test_leaves_follow_from_the_catalog_alone() -> None:
    catalog = parse_catalog(CATALOG, "bakery.yaml")
    axes = {name: view.axes[1:] for name, view in catalog.views.items()}
    assert [spec.axis for specs in axes.values() for spec in specs] == [
        "sale.price",
        "sale.pieces",
        "sale.delay",
    ]
    assert axes["pieces"][0].cuts is None is axes["delays"][0].cuts and not axes["shops"]
    starts = [Decimal(start) for start in axes["prices"][0].cuts.at]  # type: ignore[union-attr]
    assert len(starts) == 33 and starts[0] == 0 and starts[-1] == 420
    assert all(Decimal("1.15") < b / a < Decimal("1.21") for a, b in pairwise(starts[1:]))
    assert catalog_from_json(catalog.to_json()).views == catalog.views


def test_bounds_that_do_not_begin_at_0_have_even_leaves() -> None:
    catalog = parse_catalog(CATALOG.replace("lower: 0, upper: 500", "lower: 100, upper: 500"), "bakery.yaml")
    cuts = catalog.views["prices"].axes[1].cuts
    assert cuts is not None and [Decimal(start) for start in cuts.at][:3] == [100, Decimal("112.5"), 125]


@pytest.mark.parametrize(("old", "new", "reason"), [
    ("upper: 500, measure: true, quantiles", "upper: 500, quantiles", "`quantiles` are of a measure"),
    ("sale.shop], measures: [count, sale.delay]", "sale.shop" + ", sale.shop" * 7 + "], measures: [count, sale.delay]",
     "one axis more than 8"),
])  # fmt: skip
def test_catalogs_that_ask_for_the_impossible(old: str, new: str, reason: str) -> None:
    with pytest.raises(CatalogError, match=reason):
        parse_catalog(CATALOG.replace(old, new), "bakery.yaml")


LATE = (
    "CASE WHEN delay < -100 THEN 0 WHEN delay < 0 THEN 1 WHEN delay < 10 THEN 2 WHEN delay < {} THEN 3"
    " WHEN delay < {} THEN 4 ELSE 5 END"
)


@pytest.mark.parametrize("rest", ["", " WHERE shop <> 'b'", " WHERE delay >= 0"])
def test_groups_that_share_a_bin_are_shown_as_that_bin(bakery: Twins, rest: str) -> None:
    """Bins begin at -300, -100, 0, 10 and 100."""
    text = (
        f"SELECT {LATE.format(30, 100)} AS late, COUNT(*), SUM(delay) FROM sale{rest} GROUP BY 1 ORDER BY 1"
    )
    result, exact = bakery[0].query(text), bakery[1].execute(text).fetchall()
    merged = {late: (n, total) for late, n, total in exact if late != 4}
    (four,) = [row for row in exact if row[0] == 4]
    merged[3] = merged[3][0] + four[1], merged[3][1] + four[2]
    got = {late: (float(n), float(total)) for late, n, total in result.rows}
    assert got == {late: pytest.approx([float(v) for v in pair]) for late, pair in merged.items()}
    assert [flag for flag in result.flags if "3 also counts 4" in flag]


@pytest.mark.parametrize("text", [
    f"SELECT {LATE.format(30, 200)}, COUNT(*) FROM sale GROUP BY 1",  # 4 goes on in the next bin
    f"SELECT {LATE.format(30, 100)}, COUNT(*) FROM sale WHERE delay < 90 GROUP BY 1",
    "SELECT delay, COUNT(*) FROM sale GROUP BY 1",  # no bin is asked whole
    "SELECT delay % 7, COUNT(*) FROM sale GROUP BY 1",
])  # fmt: skip
def test_groups_that_bins_do_not_hold_are_refused(bakery: Twins, text: str) -> None:
    with pytest.raises(PartialBinError):
        bakery[0].query(text)


@pytest.mark.parametrize("outer", [
    "SELECT SUM(CASE WHEN late = 4 THEN n ELSE 0 END) FROM ({}) t", "SELECT COUNT(*) FROM ({}) t",
    "SELECT a.n - b.n FROM ({}) a JOIN ({}) b ON a.late = b.late + 1",
])  # fmt: skip
def test_nothing_is_worked_out_from_groups_that_count_others(bakery: Twins, outer: str) -> None:
    """The first would be 0 +- 0, where 4 was counted under 3."""
    groups = f"SELECT {LATE.format(30, 100)} AS late, COUNT(*) AS n FROM sale GROUP BY 1"
    assert bakery[0].query(f"SELECT * FROM ({groups}) t WHERE late < 3 ORDER BY late").rows
    with pytest.raises(PartialBinError, match="builds on these groups"):
        bakery[0].query(outer.format(groups, groups))
