"""What an append accepts, refuses and leaves out: late rows, caps, missing sides, catalogs that cannot be streamed."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.catalog import Catalog, catalog_from_json, load_catalog
from dpsql.errors import (
    BatchConflict,
    BatchOrderError,
    CatalogError,
    Error,
    IntegrityError,
    OperationalError,
    ReleaseError,
    ReleaseExists,
    SourceError,
)
from dpsql.ledger.store import budget_report
from dpsql.release import open_release
from dpsql.streams.plan import Grain, batch_bounds, batch_number, stream_column
from dpsql.streams.public import read_manifest
from dpsql.streams.publish import Arrival, Chance, append_batch
from tests.statements import refusals
from tests.stream_shop import CATALOG, StreamShop, make_stream_shop
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

SMALL = (
    CATALOG[: CATALOG.index("views:")]
    + "views:\n  days: {of: sales, axes: [sales.sold_on], measures: [count]}\n"
)


@pytest.fixture
def shop(tmp_path: Path) -> StreamShop:
    return make_stream_shop(tmp_path, customers=60, text=SMALL)


def edited(shop: StreamShop, old: str, new: str) -> StreamShop:
    text = shop.catalog.read_text()
    assert old in text
    shop.catalog.write_text(text.replace(old, new))
    return shop


def file_of(folder: Path, rows: list[tuple[object, object]], name: str = "day.csv") -> Path:
    """A CSV of (customer, date) pairs."""
    lines = [f"{i},{who},1,9.5,{'' if when is None else when}" for i, (who, when) in enumerate(rows)]
    path = folder / name
    path.write_text("\n".join(["sale_id,customer_id,product_id,amount,sold_on", *lines]) + "\n")
    return path


def total(shop: StreamShop) -> int:
    return round(float(shop.opened().query("SELECT COUNT(*) FROM sales").scalar()))


ROWS = [(1, "2025-01-02"), (2, "2025-01-02"), (3, "2025-01-01"), (4, None), (5, "2024-12-31"), (6, "2025-01-03"),
        (7, "not a date"), (99999, "2025-01-02"), ("", "2025-01-02")]  # fmt: skip


def test_late_rows_arrive_or_are_refused_and_the_public_side_looks_the_same(shop, tmp_path):
    other = make_stream_shop(
        tmp_path / "other", customers=60, text=SMALL.replace("late: batch", "late: drop")
    )
    shapes = []
    for each, counted, left_out in (
        (shop, 2 + 4, {"early": 1, "bounded": 2}),
        (other, 2, {"early": 1, "late": 4, "bounded": 2}),
    ):
        each.append(0, file_of(tmp_path, []))
        report = each.append(1, file_of(tmp_path, ROWS))
        assert report.left_out == left_out
        assert total(each) == counted
        manifest = read_manifest(each.directory)
        shapes.append([(s.file, s.batch) for s in (*manifest.segments, *manifest.states)])
    assert shapes[0] == shapes[1]


def test_lines_of_a_batch_that_are_no_rows_are_left_out_and_counted(shop: StreamShop, tmp_path: Path) -> None:
    file = file_of(tmp_path, [(1, "2025-01-01"), (2, "2025-01-01")])
    file.write_bytes(file.read_bytes() + b'9,9,1,"open,2025-01-01\n\xff\n9,9\n9,3,1,9.5,2025-01-01\n')
    batch = shop.append(0, file)
    assert batch.added
    assert batch.left_out == {"no row": 3}


def test_empty_batches_count_and_a_public_batch_again_is_a_no_op(shop: StreamShop, tmp_path: Path) -> None:
    empty, full = file_of(tmp_path, [], "empty.csv"), file_of(tmp_path, [(1, "2025-01-02")])
    assert shop.append(0, empty).added
    assert shop.append(1, full).added
    before = (shop.directory / "manifest.json").read_bytes()
    again = shop.append(1, full)
    assert (again.added, again.charged, again.left_out) == (False, 0, {})
    assert "nothing was drawn" in again.summary()
    other = shop.append(1, empty)
    assert other == again
    assert "data are not compared" in other.summary() and "later batch" in other.summary()
    shop.append(1, tmp_path / "no such file.csv")  # not looked at
    assert (shop.directory / "manifest.json").read_bytes() == before


def test_the_curator_compares_rows_with_those_of_a_public_batch(shop: StreamShop, tmp_path: Path) -> None:
    empty, full = file_of(tmp_path, [], "empty.csv"), file_of(tmp_path, [(1, "2025-01-02"), (2, None)])
    with pytest.raises(BatchOrderError, match="has not been appended"):
        shop.check(1, full)
    shop.append(0, empty)
    shop.append(1, full)
    before = sorted((p.name, p.stat().st_mtime_ns) for p in shop.folder.rglob("*") if p.suffix != ".lock")
    turned = file_of(tmp_path, [(2, None), (1, "2025-01-02")], "turned.csv")
    turned.write_text(
        turned.read_text().replace("0,2,", "9,2,").replace("1,1,", "0,1,").replace("9,2,", "1,2,")
    )
    for same in (full, turned):
        assert shop.check(1, same).to_json()["same"] is True
    for other in (empty, file_of(tmp_path, [(1, "2025-01-02")], "other.csv"), None):
        with pytest.raises(BatchConflict, match="other rows"):
            shop.check(1, other)
    after = sorted((p.name, p.stat().st_mtime_ns) for p in shop.folder.rglob("*") if p.suffix != ".lock")
    assert [entry for entry in after if entry[0].endswith((".json", ".duckdb", ".parquet", ".stream"))
            and "data" not in entry[0] and entry not in before] == []  # fmt: skip


def test_gaps_future_batches_and_batches_outside_the_domain(shop: StreamShop) -> None:
    shop.append(0)
    for label, words in (("2025-01-03", "is next"), ("2026-07-01", "not begun"), ("2026-01-02", "upper bound"),
                         ("2024-12-30", "before the first"), ("Tuesday", "not a date")):  # fmt: skip
        with pytest.raises(BatchOrderError, match=words):
            shop.append(label)
    assert read_manifest(shop.directory).batches == 1


def test_rows_per_batch_and_batches_per_life_are_capped(shop: StreamShop, tmp_path: Path) -> None:
    edited(shop, "max_batches: 10", "max_batches: 2")
    edited(shop, "max_ids: 10", "max_ids: 3")
    found = []
    for day in range(4):
        rows = [(1, f"2025-01-0{day + 1}")] * 5 + [(2, f"2025-01-0{day + 1}")] * (day == 3)
        found.append(shop.append(day, file_of(tmp_path, list(rows))).left_out)
    assert found == [{"bounded": 2}] * 2 + [{"bounded": 2, "lifetime": 3}] * 2
    assert total(shop) == 2 * 3 + 1
    statistic = shop.opened().release.statistics[0]
    assert statistic.sensitivity == 3 * 2
    error = shop.opened().query("SELECT COUNT(*) FROM sales").noise_rows[0][0]
    # four days at 6/10 of epsilon, c D = 6
    assert error == pytest.approx((2 * 4 * (6 / 0.6) ** 2) ** 0.5, rel=1e-3)


def test_without_a_lifetime_the_promise_is_for_a_day_and_its_lineage_stands_apart(shop: StreamShop) -> None:
    edited(shop, ", max_batches: 10", "")
    shop.append(0)
    assert shop.opened().release.meta.privacy.unit == "customer.customer_id per day"
    entry = budget_report(shop.folder / ".dpsql" / "ledger.duckdb")
    assert "customer.customer_id per day" in str(entry)


def test_the_budget_is_charged_once_and_other_specifications_are_refused(shop: StreamShop) -> None:
    reports = [shop.append(day) for day in range(3)]
    assert [(r.created, r.charged, r.left) for r in reports] == [(True, 1, 3), (False, 0, 3), (False, 0, 3)]
    edited(shop, "epsilon: 1.0", "epsilon: 2.0")
    with pytest.raises(ReleaseExists):
        shop.append(3)


def test_a_lost_private_state_is_never_replaced(shop: StreamShop) -> None:
    shop.append(0)
    shop.append(1)
    (private,) = (shop.folder / ".dpsql").glob("*.stream")
    kept = private.read_bytes()
    private.unlink()
    with pytest.raises(IntegrityError, match="is gone"):
        shop.append(2)
    (shop.directory / "manifest.json").unlink()
    with pytest.raises(IntegrityError, match="is damaged or an old copy"):
        shop.append(0)
    private.unlink()
    private.write_bytes(kept)
    private.chmod(0o600)
    with pytest.raises(IntegrityError, match="manifest"):
        shop.append(2)


def test_private_files_are_private_and_public_ones_read_only(shop: StreamShop) -> None:
    shop.append(0)
    for path in (shop.folder / ".dpsql").iterdir():
        assert path.stat().st_mode & 0o077 == 0
    for path in shop.directory.rglob("*"):
        assert path.is_dir() or path.stat().st_mode & 0o222 == 0


def test_creation_may_be_interrupted_before_and_after_the_charge(shop: StreamShop) -> None:
    shop.append(0)
    state, manifest = next((shop.folder / ".dpsql").glob("*.stream")), shop.directory / "manifest.json"
    fresh = make_stream_shop(shop.folder / "again", customers=60, text=SMALL)
    with pytest.raises(BatchOrderError):
        fresh.append(1)  # made and charged, but the batch is refused
    (fresh.directory / "manifest.json").unlink()  # as if killed before the directory was made
    report = fresh.append(0)
    assert (report.added, report.created, report.charged) == (True, False, 0)
    assert state.exists() and manifest.exists()


def test_states_are_pruned_and_missing_ones_are_named(shop, monkeypatch):
    monkeypatch.setattr("dpsql.streams.publish.KEPT", 2)
    early = [shop.append(day) and shop.opened() for day in range(4)]
    kept = sorted(path.name for path in (shop.directory / "states").iterdir())
    assert kept == ["000000002.duckdb", "000000003.duckdb"]
    assert early[0].query("SELECT COUNT(*) FROM sales").provenance["as_of_batch"] == 0
    with pytest.raises(ReleaseError, match=r"keeps the states as of batch 2 \(2025-01-03\) to 3"):
        shop.opened(as_of=0)


def test_readers_refuse_what_is_not_there_or_damaged(shop: StreamShop, tmp_path: Path) -> None:
    with pytest.raises(BatchOrderError):
        shop.append(1)
    with pytest.raises(ReleaseError, match="no batch yet"):
        shop.opened()
    with pytest.raises(ReleaseError, match="no readable stream release"):
        open_release(tmp_path / "data")
    shop.append(0)
    with pytest.raises(ReleaseError, match="test entropy"):
        open_release(shop.directory)
    state = shop.directory / "states" / "000000000.duckdb"
    plain = tmp_path / "plain.dpsql"
    shutil.copy(state, plain)
    with pytest.raises(ReleaseError, match="is not a stream"):
        open_release(plain, as_of=0, insecure=True)
    state.chmod(0o644)
    state.write_bytes(state.read_bytes() + b"x")
    with pytest.raises(ReleaseError, match="not the state that was published"):
        shop.opened()
    manifest = shop.directory / "manifest.json"
    entry = json.loads(manifest.read_text())
    entry["states"][0]["file"] = "../outside.duckdb"
    manifest.chmod(0o644)
    manifest.write_text(json.dumps(entry))
    with pytest.raises(ReleaseError, match="readable stream release"):
        shop.opened()


@pytest.mark.parametrize(("old", "new", "words"), refusals("stream"))
def test_catalogs_that_cannot_be_streamed(shop: StreamShop, old: str, new: str, words: str) -> None:
    edited(shop, old, new)
    with pytest.raises(CatalogError, match=words):
        shop.append(0)
    assert not (shop.folder / ".dpsql" / "ledger.duckdb").exists()


def test_sources_that_do_not_fit(shop: StreamShop, tmp_path: Path) -> None:
    shop.directory.write_text("")
    with pytest.raises(OperationalError, match="is a file"):
        shop.append(0)
    shop.directory.unlink()
    with pytest.raises(SourceError, match="no file"):
        shop.append(0, tmp_path / "nowhere.parquet")
    wrong = tmp_path / "wrong.parquet"
    duckdb.sql("SELECT 1 AS customer_id, 2 AS product_id").write_parquet(str(wrong))
    with pytest.raises(SourceError, match="sold_on"):
        shop.append(0, wrong)
    with pytest.raises(CatalogError, match="stream: missing"):
        stream_column(load_catalog(shop.catalog).model_copy(update={"stream": None}))


@pytest.mark.parametrize(
    ("grain", "labels"),
    by_default([("week", ["2025-01-01", "2025-01-06"]), ("month", ["2025-01", "2025-02"])], 1),
)
def test_weeks_and_months_as_batches(tmp_path: Path, grain: str, labels: list[str]) -> None:
    text = SMALL.replace("grain: day, horizon: 365", f"grain: {grain}, horizon: 12")
    shop = make_stream_shop(tmp_path, customers=300, text=text)
    for label in labels:
        shop.append(label)
    question = f"SELECT DATE_TRUNC('{grain}', sold_on) AS t, COUNT(*) FROM sales GROUP BY 1 ORDER BY 1"
    wanted = shop.raw().execute(question).fetchall()[:2]
    assert [(str(t)[:10], round(float(n))) for t, n in shop.opened().query(question).rows] == [
        (str(t)[:10], n) for t, n in wanted
    ]


def test_each_rule_for_late_rows_has_one_word() -> None:
    def read(word: str) -> Catalog:
        text = {"dpsql": 1, "name": "x", "tables": {"t": {"role": "fact", "columns": {
            "d": {"type": "date", "lower": "2025-01-01", "upper": "2025-02-01"}}}},
            "privacy": {"lineage": "l", "cap": 1, "unit": "row", "epsilon": 1},
            "stream": {"column": "t.d", "horizon": 5, "late": word}}  # fmt: skip
        return catalog_from_json(json.dumps(text))

    for word in ("batch", "drop"):
        stream = read(word).stream
        assert stream is not None and stream.late.name == word
    with pytest.raises(CatalogError, match="did you mean `batch`"):
        read("bath")


def test_a_stream_goes_by_a_column_of_its_files() -> None:
    """A derived one was looked for in the files when the first batch was appended."""
    text = {"dpsql": 1, "name": "x", "tables": {"t": {
        "role": "fact", "derive": {"d": "strptime(bought, '%d.%m.%Y')"}, "columns": {
            "bought": {"type": "string"}, "d": {"type": "date", "lower": "2025-01-01", "upper": "2025-02-01"}}}},
        "privacy": {"lineage": "l", "cap": 1, "unit": "row", "epsilon": 1}, "stream": {"column": "t.d", "horizon": 5},
        "views": {"v": {"of": "t", "axes": ["t.d"], "measures": ["count"]}}}  # fmt: skip
    with pytest.raises(CatalogError, match=r"stream\.column: `d` is derived"):
        catalog_from_json(json.dumps(text))


def test_append_needs_no_clock_argument(shop: StreamShop) -> None:
    arrival = Arrival("2025-06-01", now=datetime(2025, 5, 31))
    with pytest.raises(Error, match="not begun"):
        append_batch(load_catalog(shop.catalog), shop.directory, arrival, Chance(shop.noise, bytes))


def test_a_stream_says_that_rows_beyond_max_ids_are_not_measured(shop: StreamShop) -> None:
    shop.append(0)
    result = shop.opened().query("SELECT COUNT(*), DP_BIAS_HINT(COUNT(*)) FROM sales")
    assert result.rows[0][1] is None
    assert any("of the bounded rows; rows beyond max_ids were not measured" in flag for flag in result.flags)


@pytest.mark.parametrize("share", ["0", "0.01"])
def test_a_stream_measures_no_rows_beyond_max_ids(shop, share):
    edited(shop, "max_ids: 10", f"max_ids: 10, clipped_share: {share}")
    if share == "0":
        assert load_catalog(shop.catalog).star.tables["sales"].bounding.clipped_share == 0
    else:
        with pytest.raises(CatalogError, match="clipped_share"):
            load_catalog(shop.catalog)


# Labels of batches and their numbers.


GRAINS: tuple[Grain, ...] = ("hour", "day", "week", "month")
MOMENTS = st.datetimes(datetime(1999, 1, 1), datetime(2040, 1, 1))


@given(MOMENTS, st.timedeltas(timedelta(0), timedelta(days=4000)), st.sampled_from(GRAINS))
def test_a_label_lies_in_its_batch(origin: datetime, after: timedelta, grain: Grain) -> None:
    moment = origin + after
    number = batch_number(moment.isoformat(), origin.isoformat(), grain)
    start, end = batch_bounds(number, origin.isoformat(), grain)
    assert start <= moment < end
    assert batch_bounds(number + 1, origin.isoformat(), grain)[0] == end
    assert batch_bounds(0, origin.isoformat(), grain)[0] <= origin


def test_weeks_begin_on_monday() -> None:
    assert batch_bounds(0, "2026-11-21", "week")[0] == datetime(2026, 11, 16)
    assert batch_number("2026-11-23", "2026-11-21", "week") == 1


@pytest.mark.parametrize(
    ("label", "words"),
    [
        *((label, "not a date") for label in ("tomorrow", "2026-13-01", "", "2026-02-30")),
        ("2025-12-31", "before the first"),
    ],
)
def test_labels_that_name_no_batch(label: str, words: str) -> None:
    with pytest.raises(BatchOrderError, match=words):
        batch_number(label, "2026-01-01", "day")
