"""A column that only devices know: planned, reported, stored, joined, published and asked in plain SQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.catalog import load_catalog, parse_catalog
from dpsql.catalog.private_columns import reported_columns
from dpsql.central.central import publish_release
from dpsql.client.device import decode, respond, to_json, to_rows
from dpsql.client.entropy import system_entropy
from dpsql.client.plan import read_plan
from dpsql.contributions.rehearsal import Guess
from dpsql.curator.audit import audit_release
from dpsql.curator.forecast import plan_catalog
from dpsql.errors import CatalogError, DataError, OperationalError, SourceError
from dpsql.ledger.store import ledger_entries
from dpsql.local.mechanisms.channel import Channel, channel_of
from dpsql.local.survey import ReportProvenance, plan_of, store_reports, write_items, write_reported_plan
from dpsql.noise import ExactNoise, ZeroNoise
from dpsql.tree import FloatArray
from tests.privacy.loss import KEY, RawRows, write_side
from tests.releases import published, seeded
from tests.statements import refusals
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

HEAD = """
dpsql: 1
name: shop
ledger: LEDGER
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet, customer: customer.parquet},
  reports: {customer: reports.parquet}}
privacy: {lineage: p, cap: 9, unit: customer.id, epsilon: 1}
tables:"""
CATALOG = (
    HEAD
    + """
  customer: {role: dimension, key: id, private: true, columns: {
    age: {type: int, lower: 18, upper: 57, out_of_domain: drop, cuts: [28, 38, 48], reported: REPORTED}}}
  sales: {role: fact, foreign_keys: {id: {references: customer, on_missing: drop}}, max_ids: 4, columns: {
    day: {type: int, lower: 0, upper: 3, out_of_domain: drop},
    amount: {type: int, lower: 0, upper: 10, measure: true}}}
views:
  days: {of: sales, axes: [customer.age, sales.day], measures: [count, sales.amount]}
"""
)
REPORTED = "{epsilon: 2, collection: ages}"
SALES, CUSTOMER = "id INT, day INT, amount INT", "id INT"
PEOPLE = 60
WHOLE = "SELECT COUNT(*) FROM sales"


def text(reported: str = REPORTED) -> str:
    return CATALOG.replace("REPORTED", reported)


def store(place: Path, rows: Sequence[tuple[str, int, int]]) -> None:
    """Store reports of a catalog's own plan."""
    known = load_catalog(place / "catalog.yaml")
    (column,) = reported_columns(known)
    plan = read_plan(plan_of(known, column)).hash.hex()
    write_items(
        place / "reports.parquet",
        ReportProvenance(str(column), plan, channel_of(*column.asked).fingerprint),
        rows,
    )


def side(folder: Path, items: dict[int, int], sales: Sequence[tuple[int, int, int]], catalog: str) -> Path:
    """Raw tables, reports and the catalog; items by person."""
    customers = sorted({row[0] for row in sales} | set(items))
    tables = {"sales": RawRows(SALES, list(sales)), "customer": RawRows(CUSTOMER, [(i,) for i in customers])}
    place = write_side(folder, catalog, tables)
    store(place, [(str(i), 0, y) for i, y in items.items()])
    return place


def rows(people: int = PEOPLE) -> list[tuple[int, int, int]]:
    return [(i, (i + j) % 4, (i * 3 + j) % 11) for i in range(people) for j in range(3)]


def test_undoing_keeps_totals_and_is_unbiased_without_noise(tmp_path: Path) -> None:
    """Without noise a box of the release is exactly the scores of the items that were reported."""
    rng = np.random.default_rng(2)
    items = {i: int(rng.integers(0, 4)) for i in range(PEOPLE) if i % 5}
    place = side(tmp_path / "one", items, rows(), text())
    known = load_catalog(place / "catalog.yaml")
    asking = published(place / "catalog.yaml", ZeroNoise(), key=KEY)
    (entry,) = ledger_entries(place / "ledger.duckdb")
    line = entry.spend_lines()[-1]
    assert line.purpose.startswith("reported: customer.age, epsilon_local 2, collection ages, plan ")
    assert line.amount == 0
    channel = channel_of(*reported_columns(known)[0].asked)
    ages = [(18, 27), (28, 37), (38, 47), (48, 57)]
    for leaf, (low, high) in enumerate(ages):
        sql = f"SELECT COUNT(*), SUM(amount) FROM sales JOIN customer USING (id) WHERE age BETWEEN {low} AND {high}"
        ((count, total),) = asking.query(f"{sql} AND day = 1").rows
        scores = [
            (channel.scores[leaf, items[i]], amount) for i, day, amount in rows() if day == 1 and i in items
        ]
        assert count == pytest.approx(sum(s for s, _ in scores), abs=1e-4)
        assert total == pytest.approx(sum(s * amount for s, amount in scores), abs=1e-3)
    by_age = asking.query(
        "SELECT age IS NULL AS silent, COUNT(*) FROM sales JOIN customer USING (id) GROUP BY 1"
    )
    silent = 3 * sum(i not in items for i in range(PEOPLE))
    assert {row[0]: row[1] for row in by_age.rows} == {True: silent, False: 3 * PEOPLE - silent}
    whole = asking.query(WHOLE).scalar()
    assert whole == sum(row[1] for row in by_age.rows) == 3 * PEOPLE
    old, most = "COUNT(*) FILTER (WHERE age >= 38)", "COUNT(*) FILTER (WHERE age >= 38 OR age IS NULL)"
    ((low, high),) = asking.query(f"SELECT {old}, {most} FROM sales JOIN customer USING (id)").rows
    assert high - low == silent, "whatever the others would have said"
    result = asking.query(f"{WHOLE} JOIN customer USING (id) WHERE age < 28")
    assert result.provenance["reported"][0]["column"] == "customer.age"
    assert any("reported" in note for note in result.notes)


class Exact(NamedTuple):
    """What the channel adds to the standard errors of COUNT, SUM and AVG of a box, by the raw rows."""

    count: float
    total: float
    average: float


def exact_channel(channel: Channel, leaves: FloatArray, rows_of: FloatArray, sums_of: FloatArray) -> Exact:
    """Sums over people of h times the square of what she adds; the box takes the first half of the leaves."""
    g = (np.arange(channel.leaves) < channel.leaves // 2) @ channel.scores
    h = (g**2 @ channel.law - (g @ channel.law) ** 2)[leaves]
    inside = leaves < channel.leaves // 2
    mean = sums_of[inside].sum() / rows_of[inside].sum()
    apart = np.sqrt((h * (sums_of - mean * rows_of) ** 2).sum())
    return Exact(
        float(np.sqrt((h * rows_of**2).sum())),
        float(np.sqrt((h * sums_of**2).sum())),
        float(apart / rows_of[inside].sum()),
    )


@pytest.mark.parametrize("bars", ["squares", "bound"])
def test_error_bars_are_what_the_channel_adds(tmp_path: Path, bars: str) -> None:
    """People own 1 to 4 rows whose amounts are alike; without noise bars are exact but for what a model leaves out."""
    rng, people = np.random.default_rng(5), 3000
    text_ = text(f"{{epsilon: 2, collection: ages, error_bar: {bars}}}")
    channel = channel_of(*reported_columns(parse_catalog(text_, "shop.yaml"))[0].asked)
    leaves = rng.integers(0, 4, people)
    chances = np.cumsum(channel.law, axis=0)[:, leaves]
    items = {i: int((rng.random() > chances[:, i]).sum()) for i in range(people)}
    rich = rng.integers(1, 7, people)
    owned = rng.integers(1, 5, people)
    sales = [
        (i, int(rng.integers(0, 4)), int(rich[i] + rng.integers(0, 5)))
        for i in range(people)
        for _ in range(owned[i])
    ]
    place = side(tmp_path / "one", items, sales, text_)
    who, day, amount = (np.array(column) for column in zip(*sales, strict=True))
    box = "FILTER (WHERE age < 38 AND day <= 1)"
    values = [f"{value} {box}" for value in ("COUNT(*)", "SUM(amount)", "AVG(amount)")]
    picked = ", ".join(f"DP_STDERR({value}, 'channel')" for value in values)
    asking = published(place / "catalog.yaml", ZeroNoise(), key=KEY)
    (found,) = asking.query(f"SELECT {picked} FROM sales JOIN customer USING (id)").rows
    inside = day <= 1
    rows_of = np.bincount(who[inside], minlength=people).astype(float)
    sums_of = np.bincount(who[inside], weights=amount[inside], minlength=people)
    exact = exact_channel(channel, leaves, rows_of, sums_of)
    for value, wanted in zip(found, exact, strict=True):
        if bars == "bound":
            assert wanted <= value <= 4 * wanted
        else:
            assert value == pytest.approx(wanted, rel=0.07)


AT_RANDOM = "{epsilon: EPSILON, collection: ages, nonresponse: at_random}"
SCALED = (
    "COUNT(*) FILTER (WHERE BOX AND age < 38) * COUNT(*) FILTER (WHERE BOX) / COUNT(age) FILTER (WHERE BOX)",
    "SUM(amount) FILTER (WHERE BOX AND age < 38) * COUNT(*) FILTER (WHERE BOX) / COUNT(age) FILTER (WHERE BOX)",
    "COUNT(*) FILTER (WHERE BOX AND age < 38) / COUNT(age) FILTER (WHERE BOX)",
    "AVG(amount) FILTER (WHERE BOX AND age < 38)",
)


class Silence(NamedTuple):
    """A shop where people are silent at random: the release's folder, leaves of people, and their rows."""

    place: Path
    leaves: FloatArray
    who: FloatArray
    day: FloatArray
    amount: FloatArray

    def truth(self) -> list[float]:
        """Of everybody: what `SCALED` asks about days 0 and 1."""
        box = self.day <= 1
        young = box & (self.leaves[self.who] < 2)
        total = float(self.amount[young].sum())
        return [float(young.sum()), total, float(young.sum() / box.sum()), total / float(young.sum())]


def silent_shop(
    folder: Path, epsilon: int, people: int, seed: int, spent: int = 4, heavy: int | None = None
) -> Silence:
    """The same people and rows each time; who reports, by 40% chance, and what the channel says is new.

    Args:
        folder, epsilon, people, seed, spent: of the shop.
        heavy: people with eight rows beyond `max_ids`; None where the catalog does not measure such rows and nobody
            owns one.
    """
    fixed, rng = np.random.default_rng(7), np.random.default_rng(seed)
    catalog = text(AT_RANDOM.replace("EPSILON", str(epsilon)))
    if heavy is None:
        catalog = catalog.replace("max_ids: 4", "max_ids: 4, clipped_share: 0")
    catalog = catalog.replace("cap: 9", "cap: 99").replace("epsilon: 1}", f"epsilon: {spent}}}")
    channel = channel_of(*reported_columns(parse_catalog(catalog, "shop.yaml"))[0].asked)
    leaves, owned = fixed.integers(0, 4, people), fixed.integers(1, 5, people)
    owned[: heavy or 0] = 12
    who = np.repeat(np.arange(people), owned)
    day = fixed.integers(0, 4, who.size)
    amount = fixed.integers(1, 7, people)[who] + fixed.integers(0, 5, who.size)
    chances = np.cumsum(channel.law, axis=0)[:, leaves]
    items = (rng.random(people)[None, :] > chances).sum(axis=0)
    kept = {i: int(items[i]) for i in np.flatnonzero(rng.random(people) < 0.4).tolist()}
    sales = list(zip(who.tolist(), day.tolist(), amount.tolist(), strict=True))
    return Silence(side(folder, kept, sales, catalog), leaves, who, day, amount)


def scaled_answers(place: Path, noise: ExactNoise | ZeroNoise, name: str = "r") -> dpsql.Result:
    """What everybody would have said, if who reported is a random sample."""
    picked = ", ".join(f"{value} AS v{i}" for i, value in enumerate(SCALED)).replace("BOX", "day <= 1")
    asking = published(place / "catalog.yaml", noise, name, key=KEY)
    result = asking.query(f"SELECT {picked} FROM sales JOIN customer USING (id)")
    asking.release.close()
    return result


def test_rows_beyond_the_bound_are_measured_better_where_devices_noise_is_in_all_views() -> None:
    """A twentieth of the budget leaves twice the noise of a total that the channel has blurred anyway."""
    catalog = parse_catalog(text(), "shop.yaml")
    assert catalog.star.tables["sales"].bounding.clipped_share == Fraction(1, 10)
    exact = text() + "  exact: {of: sales, axes: [sales.day], measures: [count]}\n"
    assert parse_catalog(exact, "shop.yaml").star.tables["sales"].bounding.clipped_share == Fraction(1, 20)


def test_bars_know_that_others_might_have_reported(tmp_path: Path) -> None:
    """Beside the bars of those who reported is the draw of who reports, as the raw rows have it."""
    people = 1200
    shop = silent_shop(tmp_path / "random", 16, people, 1, spent=40)
    result = scaled_answers(shop.place, ZeroNoise())
    catalog = shop.place / "catalog.yaml"
    catalog.write_text(catalog.read_text().replace("at_random", "respondents"))
    given = scaled_answers(shop.place, ZeroNoise(), "given")
    assert given.rows == result.rows
    box = shop.day <= 1
    rows_of = np.bincount(shop.who[box], minlength=people).astype(float)
    sums_of = np.bincount(shop.who[box], weights=shop.amount[box], minlength=people)
    young, odds = shop.leaves < 2, 0.6 / 0.4
    count, total, share, mean = shop.truth()
    off = rows_of * (young - share)
    wanted = [
        np.sqrt(odds * (off**2).sum()),
        np.sqrt(odds * ((sums_of * young - rows_of * total / rows_of.sum()) ** 2).sum()),
        np.sqrt(odds * (off**2).sum()) / rows_of.sum(),
        np.sqrt(odds * ((young * (sums_of - mean * rows_of)) ** 2).sum()) / count,
    ]
    both = [np.array(each.stderr_rows[0]) for each in (result, given)]
    np.testing.assert_allclose(np.sqrt(both[0] ** 2 - both[1] ** 2), wanted, rtol=0.1)
    assert any("random sample" in note for note in result.notes)
    assert result.provenance["reported"][0]["nonresponse"] == "at_random"


def covered(folder: Path, epsilon: int, draws: int, heavy: int | None) -> FloatArray:
    """How many of the 95% intervals cover what everybody would have said, answer by answer; 40% report by chance."""
    inside = []
    for draw in range(draws):
        shop = silent_shop(folder / str(draw), epsilon, 2000, draw, heavy=heavy)
        result = scaled_answers(shop.place, seeded(draw))
        low, high = (ends[0] for ends in result.interval_rows(0.95))
        inside.append([a <= true <= b for a, true, b in zip(low, shop.truth(), high, strict=True)])
    shares = np.mean(inside, axis=0)
    print(f"epsilon {epsilon}, heavy {heavy}: COUNT, SUM, share, AVG cover {shares}")
    return np.asarray(shares, np.float64)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # hundreds of releases
@pytest.mark.parametrize(
    ("epsilon", "draws", "heavy"), [(2, 200, None), (8, 200, None), (2, 100, 0), (2, 100, 60)]
)
def test_intervals_hold_what_everybody_would_have_said(tmp_path, epsilon, draws, heavy):
    """Of people who own no rows beyond `max_ids`, which nothing measures: noise, channel and who reported are all that
    intervals allow for. And with no row, or a twelfth of all rows, beyond it: both are below two standard errors of
    their measurement, so intervals have to reach for the second where the first is true."""
    shares = covered(tmp_path, epsilon, draws, heavy)
    assert (shares >= 0.92).all(), shares
    assert heavy is not None or shares.mean() <= 0.98, shares


def test_a_plan_counts_what_the_channel_adds(tmp_path: Path) -> None:
    """People spread evenly, three rows each: what is foreseen by their number is what a release then says."""
    people = 2000
    catalog = (
        text().replace("epsilon: 1}", "epsilon: 4}").replace("max_ids: 4", "max_ids: 4, clipped_share: 0")
    )
    place = side(tmp_path / "one", {i: i % 4 for i in range(people)}, rows(people), catalog)
    known = load_catalog(place / "catalog.yaml")
    asked = [
        f"SELECT {v} FROM sales JOIN customer USING (id) WHERE age < 38" for v in ("COUNT(*)", "SUM(amount)")
    ]
    blind = plan_catalog(known, asked)
    seen = plan_catalog(known, asked, guess=Guess(people, 3 * people, alike=0.0))
    assert (blind.unforeseen, seen.unforeseen) == (("customer.age",), ())
    answerer = published(place / "catalog.yaml", seeded(2), key=KEY)
    for i, sql in enumerate(asked):
        said = answerer.query(sql).noise_rows[0][0]
        foreseen, alone = (found.queries[i].columns[0].median for found in (seen, blind))
        assert foreseen == pytest.approx(said, rel=0.25)
        assert alone is not None and alone < 0.9 * said
    assert seen.statistics[0].typical > 1.05 * blind.statistics[0].typical


@pytest.mark.parametrize("mechanism", by_default(["tree", "grr", "design"], 1))
def test_devices_report_and_the_curator_joins(tmp_path: Path, mechanism: str) -> None:
    people = 400
    place = tmp_path / "shop"
    catalog = text(f"{{epsilon: 8, collection: ages, mechanism: {mechanism}}}").replace(
        "cuts: [28, 38, 48]", "cuts: {width: 5}"
    )
    catalog = catalog.replace("max_ids: 4", "max_ids: 4, clipped_share: 0")  # nobody owns more than two rows
    sales = [(i, i % 4, i % 11) for i in range(people) for _ in range(2)]
    tables = {"sales": RawRows(SALES, sales), "customer": RawRows(CUSTOMER, [(i,) for i in range(people)])}
    write_side(place, catalog.replace("epsilon: 1}", "epsilon: 8}"), tables)
    write_reported_plan(place / "catalog.yaml", "customer.age", place / "plan.json")
    plan = read_plan((place / "plan.json").read_bytes())
    lines = []
    for i in range(people):
        own = to_rows(plan, [{"customer.age": 18 + i % 40}])
        report = json.loads(to_json(decode(respond(plan, own, system_entropy))))
        lines.append(json.dumps({**report, "token": str(i)}))
    odd = ({**json.loads(lines[1]), "token": ""}, {**json.loads(lines[2]), "plan": "00" * 8, "token": "new"})
    lines += [lines[0], "no report", *map(json.dumps, odd)]
    (place / "spool.jsonl").write_text("\n".join(lines))
    counted, rejected = store_reports(
        place / "plan.json", "customer.age", [place / "spool.jsonl"], place / "reports.parquet"
    )
    assert counted == people
    assert rejected == {"repeated": 1, "no pseudonym": 2, "not a report of this plan": 1}
    assert (place / "reports.parquet").stat().st_mode & 0o777 == 0o600
    with pytest.raises(OperationalError, match="exists"):
        store_reports(place / "plan.json", "customer.age", [place / "spool.jsonl"], place / "reports.parquet")
    with pytest.raises(DataError, match="not about"):
        store_reports(place / "plan.json", "customer.sex", [place / "spool.jsonl"], place / "more.parquet")
    dpsql.publish(place / "catalog.yaml", place / "r.dpsql")
    young = f"{WHOLE} JOIN customer USING (id) WHERE age < 38"
    result = dpsql.query(young, place / "r.dpsql")
    low, high = result.interval_rows(0.999999)
    assert low[0][0] < people < high[0][0], "half of them, two rows each"
    assert 0.5 < result.stderr_rows[0][0] < people / 20
    report = dpsql.api.audit(place / "r.dpsql", samples=0)
    assert [check.what for check in report.checks if check.held is False] == []
    devices = (place / "catalog.yaml").read_text()
    for old, new in (("epsilon: 8,", "epsilon: 7,"), ("width: 5", "width: 10")):
        (place / "catalog.yaml").write_text(devices.replace(old, new, 1))
        with pytest.raises(SourceError, match="another plan"):
            dpsql.publish(place / "catalog.yaml", place / "other.dpsql")


WRONG = {
    "a noisy square": """UPDATE meta SET value = regexp_replace(value, '"pairs", -?[0-9]', '"pairs", 7777')
        WHERE key = 'reported'""",
    "an estimate": "UPDATE node_combination_0 SET estimate = estimate + (1 << 24) WHERE n1 = 0 AND n2 = 0",
    "the channel's variance": "UPDATE variance_2 SET value = value * 1.5 WHERE part = 4 AND place IN (1, 2)",
    "what devices spent": "UPDATE meta SET value = replace(value, '\"2\"', '\"1\"') WHERE key = 'reported'",
    "a noisy item": "UPDATE measurement_0 SET value = value + 500 WHERE r1 = 1 AND r2 = 1",
}


@pytest.mark.parametrize("wrong", by_default([None, *WRONG], 3))
def test_an_audit_makes_a_hybrid_release_again(tmp_path: Path, wrong: str | None) -> None:
    place = side(tmp_path / "one", {i: i % 4 for i in range(PEOPLE) if i % 5}, rows(), text())
    path = place / "r.dpsql"
    publish_release(load_catalog(place / "catalog.yaml"), path, noise=seeded(3), key=KEY)
    if wrong is not None:
        path.chmod(0o600)
        with duckdb.connect(str(path)) as release:
            before = release.execute("SELECT * FROM meta").fetchall()
            release.execute(WRONG[wrong])
            assert (
                wrong not in ("a noisy square", "what devices spent")
                or before != release.execute("SELECT * FROM meta").fetchall()
            ), "the statement changes something"
    report = audit_release(path, seeded(4), catalog=None, samples=0)
    failed = [check.what for check in report.checks if check.held is False]
    if wrong is None:
        assert failed == ["noise from the system's entropy"]
        held = {check.what for check in report.checks if check.held}
        assert held >= {"estimates follow from the noisy integers", "variance models follow from the catalog"}
    else:
        assert len(failed) > 1, wrong


def test_hostile_and_missing_reports_count_as_none(tmp_path: Path) -> None:
    place = side(tmp_path / "one", {0: 1, 1: 99, 2: -1, 777: 2}, rows(4), text())
    publish_release(load_catalog(place / "catalog.yaml"), place / "r.dpsql", noise=ZeroNoise(), key=KEY)
    with duckdb.connect(str(place / "r.dpsql"), read_only=True) as release:
        ((total,),) = release.execute(
            "SELECT max(estimate) FROM node_combination_0 WHERE n1 = 0 AND n2 = 0"
        ).fetchall()
    assert total == 12 << 20
    (place / "reports.parquet").unlink()
    known = load_catalog(place / "catalog.yaml")
    with pytest.raises(SourceError, match="no file"):
        publish_release(known, place / "again.dpsql", noise=seeded(1), key=KEY)
    with duckdb.connect() as other:
        other.execute(f"COPY (SELECT '1' AS unit, 0 AS item) TO '{place / 'reports.parquet'}'")
    with pytest.raises(SourceError, match="contains no reports"):
        publish_release(known, place / "again.dpsql", noise=seeded(1), key=KEY)


@pytest.mark.parametrize(("old", "new", "message"), refusals("reported column"))
def test_catalogs_that_cannot_be_undone_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        parse_catalog(CATALOG.replace(old, new).replace("REPORTED", REPORTED), "shop.yaml")


def test_rows_beyond_max_ids_are_measured_as_in_any_central_release(tmp_path: Path) -> None:
    """Everybody owns eight rows and four count: half of the rows lie beyond, and intervals reach them."""
    people, dear = 300, text().replace("cap: 9,", "cap: 9000,").replace("epsilon: 1}", "epsilon: 900}")
    sales = [(i, k % 4, 5) for i in range(people) for k in range(8)]
    place = side(tmp_path / "one", {i: i % 4 for i in range(people)}, sales, dear)
    asking = published(place / "catalog.yaml", ZeroNoise(), key=KEY)
    result = asking.query("SELECT COUNT(*), DP_BIAS_HINT(COUNT(*)), SUM(amount) FROM sales")
    assert result.rows[0][:2] == (4 * people, pytest.approx(0.5, abs=1e-6))
    assert any("lie beyond max_ids (4)" in flag for flag in result.flags)
    low, high = (ends[0] for ends in result.interval_rows(0.95))
    assert low[0] <= 8 * people <= high[0]
    assert low[2] <= 5 * 8 * people <= high[2]
