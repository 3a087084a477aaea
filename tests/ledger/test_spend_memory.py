"""A ledger that begins anew is noticed: catalogs that were moved or cloned, ledgers that were lost."""

from __future__ import annotations

import fcntl
import json
import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.errors import LineageError
from dpsql.ledger import identity as memory_module
from dpsql.ledger.identity import MOST_ROWS, LedgerMemory, memory_of_this_computer
from dpsql.ledger.store import budget_report
from dpsql.noise import ZeroNoise
from tests.command import dpsql_command
from tests.thinned import by_default

CATALOG = """
dpsql: 1
name: shop
source: {kind: KIND, root: ROOT, tables: {visits: WHERE}}
privacy: {lineage: shop, cap: 1, unit: row, epsilon: 1}
tables:
  visits: {role: fact, columns: {age: {type: int, lower: 0, upper: 9}}}
views: {ages: {of: visits, axes: [visits.age]}}
"""
STREAM = """
dpsql: 1
name: shop
source: {root: raw, tables: {visits: visits.parquet}}
privacy: {lineage: shop, cap: 1, unit: row, epsilon: 1}
tables:
  visits:
    role: fact
    columns:
      age: {type: int, lower: 0, upper: 9}
      day: {type: date, lower: 2026-01-01, upper: 2026-01-04}
views: {ages: {of: visits, axes: [visits.day, visits.age]}}
stream: {column: visits.day, grain: day, horizon: 4}
"""
ROWS = "SELECT i % 10 AS age, i AS id, DATE '2026-01-01' AS day FROM range(200) AS t(i)"
REFUSED = r"lineage `shop` has spent before, in another ledger; give --ledger PATH, or --new-ledger if these are other"


@pytest.fixture
def shop(publishes: None, tmp_path: Path, state: Path) -> Path:
    return charged_shop(tmp_path)


def charged_shop(parent: Path) -> Path:
    """A folder with a catalog and its rows, which has published once."""
    folder = parent / "shop"
    (folder / "raw").mkdir(parents=True)
    write(folder, ROWS)
    catalog(folder)
    assert publish(folder, "first").receipt.forgotten == ""
    return folder


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPSQL_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def write(folder: Path, rows: str) -> None:
    duckdb.sql(f"COPY ({rows}) TO '{folder}/raw/visits.parquet' (FORMAT parquet)")


def catalog(
    folder: Path, root: Path | str = "raw", kind: str = "parquet", where: str = "visits.parquet"
) -> Path:
    text = CATALOG.replace("KIND", kind).replace("ROOT", str(root)).replace("WHERE", where)
    (folder / "catalog.yaml").write_text(text, encoding="utf-8")
    return folder


def publish(folder: Path, name: str, **options: object) -> dpsql.central.central.Published:
    """Publish into a folder of its own, where no release of the lineage lies."""
    out = folder.parent / f"out-{name}"
    out.mkdir(exist_ok=True)
    return dpsql.publish(folder / "catalog.yaml", out / f"{name}.dpsql", **options)  # type: ignore[arg-type]


def moved(shop: Path) -> Path:
    (shop / "sub").mkdir()
    (shop / "catalog.yaml").rename(shop / "sub" / "catalog.yaml")
    return catalog(shop / "sub", "../raw")


def cloned(shop: Path) -> Path:
    """With its rows, and without what version control leaves out."""
    return Path(shutil.copytree(shop, shop.parent / "clone", ignore=shutil.ignore_patterns(".dpsql")))


def cloned_with_rows_turned(shop: Path) -> Path:
    write(cloned(shop), f"{ROWS} ORDER BY random()")
    return shop.parent / "clone"


def cloned_catalog_and_rows_of_tonight(shop: Path) -> Path:
    (shop.parent / "clone").mkdir()
    write(shop, f"{ROWS} LIMIT 170")
    return catalog(shop.parent / "clone", shop / "raw")


def another_lineage(shop: Path) -> Path:
    file = cloned(shop) / "catalog.yaml"
    file.write_text(
        file.read_text(encoding="utf-8").replace("lineage: shop", "lineage: fresh"), encoding="utf-8"
    )
    return file.parent


def lost(shop: Path) -> Path:
    shutil.rmtree(shop / ".dpsql")
    return shop


def lost_and_linked(shop: Path) -> Path:
    (shop.parent / "link").symlink_to(shop / "raw")
    write(shop, f"{ROWS} LIMIT 160")
    return catalog(lost(shop), shop.parent / "link")


def lost_and_selected(shop: Path) -> Path:
    write(shop, f"{ROWS} LIMIT 160")
    return catalog(lost(shop), where="SELECT age FROM './visits.parquet' WHERE age < 9")


BEGUN_ANEW: dict[str, Callable[[Path], Path]] = {
    "moved": moved,
    "cloned": cloned,
    "cloned, rows turned": cloned_with_rows_turned,
    "catalog cloned, other rows at the place": cloned_catalog_and_rows_of_tonight,
    "another lineage": another_lineage,
    "ledger lost": lost,
    "ledger lost, place spelt otherwise": lost_and_linked,
    "ledger lost, a part of the table": lost_and_selected,
}


@pytest.mark.parametrize("change", by_default(BEGUN_ANEW.values(), 4), ids=BEGUN_ANEW)
def test_a_ledger_that_begins_anew_is_refused(shop: Path, change: Callable[[Path], Path]) -> None:
    folder = change(shop)
    pattern = (
        REFUSED if change is not another_lineage else "another lineage has spent on table `visits` before"
    )
    with pytest.raises(LineageError, match=pattern):
        publish(folder, "second")
    assert not list(folder.parent.glob("out-second/*"))


@pytest.mark.usefixtures("publishes")
def test_other_people_are_taken_at_a_word_and_remembered(shop: Path) -> None:
    clone = cloned(shop)
    assert publish(clone, "second", new_ledger=True).receipt.drawn
    (clone / ".dpsql").rename(clone / "ledger of the other people")
    with pytest.raises(LineageError, match=REFUSED):
        publish(clone, "third")
    shutil.rmtree(clone / ".dpsql")
    (clone / "ledger of the other people").rename(clone / ".dpsql")
    # this ledger is the one that was charged: its cap decides
    with pytest.raises(dpsql.errors.BudgetExceeded):
        publish(clone, "third")


def test_the_ledger_that_was_charged_may_be_named(shop: Path) -> None:
    with pytest.raises(dpsql.errors.BudgetExceeded):
        publish(moved(shop), "second", ledger=shop / ".dpsql" / "ledger.duckdb")


@pytest.mark.usefixtures("publishes")
def test_the_command_has_these_options(shop: Path) -> None:
    clone, target = cloned(shop), shop.parent / "again.dpsql"
    command = ["publish", str(clone / "catalog.yaml"), "-o", str(target)]
    refused = dpsql_command(*command)
    assert refused.returncode == 3 and "--new-ledger if these are other people" in refused.stderr
    made = dpsql_command(*command, "--new-ledger", "--ledger", str(clone / "other.duckdb"))
    assert made.returncode == 0
    assert len(budget_report(clone / "other.duckdb").lineages) == 1
    assert not budget_report(clone / ".dpsql" / "ledger.duckdb").lineages


@pytest.mark.usefixtures("publishes")
def test_a_stream_is_noticed_too(tmp_path: Path, state: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "raw").mkdir(parents=True)
        write(tmp_path / name, ROWS)
        (tmp_path / name / "catalog.yaml").write_text(STREAM, encoding="utf-8")
    first, second = (tmp_path / name / "catalog.yaml" for name in ("one", "two"))
    assert dpsql.append(tmp_path / "one" / "s.dpsql", None, "2026-01-01", catalog=first).forgotten == ""
    assert dpsql.append(tmp_path / "one" / "s.dpsql", None, "2026-01-02", catalog=first).added
    with pytest.raises(LineageError, match=REFUSED):
        dpsql.append(tmp_path / "two" / "s.dpsql", None, "2026-01-01", catalog=second)
    assert dpsql.append(
        tmp_path / "two" / "s.dpsql", None, "2026-01-01", catalog=second, new_ledger=True
    ).created


@pytest.mark.usefixtures("publishes")
def test_other_tables_and_the_same_ledger_are_free(shop: Path) -> None:
    (shop.parent / "other" / "raw").mkdir(parents=True)
    other = catalog(shop.parent / "other")
    write(other, f"{ROWS} LIMIT 100")
    assert publish(other, "other").receipt.drawn
    with pytest.raises(dpsql.errors.BudgetExceeded):
        publish(shop, "again")


DAMAGED = {"damaged": b"{", "another format": b'{"format": "x", "key": "00", "rows": []}'}


@pytest.mark.usefixtures("publishes")
@pytest.mark.parametrize("fault", ["no folder", "a folder", *DAMAGED])
def test_without_a_memory_publishing_goes_on(tmp_path: Path, state: Path, fault: str) -> None:
    if fault == "no folder":
        state.write_text("a file where the folder would be")
    else:
        state.mkdir()
    if fault == "a folder":
        (state / "spends.json").mkdir()
    if fault in DAMAGED:
        (state / "spends.json").write_bytes(DAMAGED[fault])
    folder = tmp_path / "shop"
    (folder / "raw").mkdir(parents=True)
    write(folder, ROWS)
    published = publish(catalog(folder), "first")
    assert published.receipt.drawn and published.receipt.forgotten
    assert "no memory on this computer: " in published.summary()
    assert published.to_json()["forgotten"] == published.receipt.forgotten
    if fault in DAMAGED:
        assert (state / "spends.json").read_bytes() == DAMAGED[fault], (
            "what may be mended is not written over"
        )


@pytest.mark.parametrize("size, damaged", [(1 << 22, False), ((1 << 22) + 1, True)])
def test_a_memory_has_at_most_four_mebibytes(tmp_path: Path, size: int, damaged: bool) -> None:
    memory, file = LedgerMemory(tmp_path), tmp_path / "spends.json"
    assert memory.remember("shop", ["a place"]) == ""
    text = file.read_text()
    file.write_text(" " * (size - len(text)) + text)
    assert ("is damaged" in memory.remember("shop", ["another place"])) == damaged


def test_who_holds_its_lock_delays_a_publish_and_stops_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_module, "_PATIENCE", 0.05)
    memory = LedgerMemory(tmp_path)
    assert memory.remember("shop", ["place x"]) == ""
    with (tmp_path / "spends.json.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "is locked by another program" in memory.remember("shop", ["place y"])
        with pytest.raises(LineageError, match=REFUSED):
            memory.check("shop", (), {"visits": ["place x"]})


def test_it_holds_no_name_no_path_and_no_row(shop: Path, state: Path) -> None:
    content = (state / "spends.json").read_bytes()
    written = json.loads(content)
    assert set(written) == {"format", "key", "rows"} and len(written["rows"]) >= 2
    assert all(len(digest) == 32 for row in written["rows"] for digest in row)
    words = ["visits", "parquet", str(shop), shop.name, "age", shop.parent.name]
    assert not any(word.encode() in content for word in words)
    assert (state / "spends.json.lock").read_bytes() == b""
    modes = {stat.S_IMODE((state / name).stat().st_mode) for name in ("spends.json", "spends.json.lock")}
    assert modes == {0o600} and stat.S_IMODE(state.stat().st_mode) == 0o700


def test_keys_of_two_computers_differ(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        assert LedgerMemory(tmp_path / name).remember("shop", ["place x"]) == ""
        contents.append(json.loads((tmp_path / name / "spends.json").read_bytes())["rows"])
    assert contents[0] != contents[1]


def test_it_never_grows_beyond_its_bound_and_the_oldest_go_first(tmp_path: Path) -> None:
    memory = LedgerMemory(tmp_path)
    memory.remember("shop", ["place of old"])
    memory.remember("shop", (f"place {number}" for number in range(MOST_ROWS - 1)))
    memory.remember("shop", ["place of old"])  # it was written again, so it is new
    memory.remember("shop", ["place of today"])
    assert len(json.loads(memory.file.read_bytes())["rows"]) == MOST_ROWS
    assert memory.file.stat().st_size < 1 << 20
    for place in ("of old", "of today", "5"):
        with pytest.raises(LineageError, match=REFUSED):
            memory.check("shop", (), {"visits": [f"place {place}"]})
    memory.check("shop", (), {"visits": ["place 0"]})


def test_many_programs_write_at_once(tmp_path: Path) -> None:
    memory = LedgerMemory(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        faults = list(pool.map(lambda n: memory.remember(f"lineage {n % 3}", [f"place {n}"]), range(60)))
    assert faults == [""] * 60
    assert len(json.loads(memory.file.read_bytes())["rows"]) == 60


def test_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DPSQL_STATE")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert memory_of_this_computer(new_ledger=False).folder == tmp_path / ".local" / "state" / "dpsql"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert memory_of_this_computer(new_ledger=False).folder == tmp_path / ".local" / "state" / "dpsql"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert memory_of_this_computer(new_ledger=False).folder == tmp_path / "xdg" / "dpsql"
    monkeypatch.setenv("DPSQL_STATE", str(tmp_path / "own"))
    assert memory_of_this_computer(new_ledger=False).folder == tmp_path / "own"


def test_without_a_home_folder_nothing_is_remembered_and_it_is_said() -> None:
    memory = LedgerMemory(None)
    assert memory.remember("shop", ["place x"]) == "there is no home folder; set DPSQL_STATE"
    memory.check("shop", (), {"visits": ["place x"]})


@pytest.mark.usefixtures("publishes")
def test_made_up_rows_are_not_remembered(shop: Path, state: Path) -> None:
    """`audit --prove` publishes made-up neighbours in ledgers that are thrown away."""
    before = (state / "spends.json").read_bytes()
    for name in ("x", "y"):
        made = load_catalog(cloned(shop) / "catalog.yaml", shop.parent / f"{name}.duckdb")
        publish_release(made, shop.parent / f"{name}.dpsql", noise=ZeroNoise(), key=bytes(32), label=name)
        shutil.rmtree(shop.parent / "clone")
        (shop.parent / f"{name}.dpsql").unlink()
    assert (state / "spends.json").read_bytes() == before
