"""An engine that goes away in the middle: one line, nothing charged, nothing left behind, no value and no password."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from dpsql.catalog import Catalog, load_catalog
from dpsql.catalog.graph import ledger_path
from dpsql.central.central import publish_release
from dpsql.errors import EngineLost
from dpsql.faults import RESERVED
from dpsql.ledger.store import budget_report, ledger_entries
from dpsql.noise import ZeroNoise, insecure_test_entropy
from dpsql.progress import Progress, Stage, silent
from dpsql.streams.publish import Arrival, Chance, append_batch
from tests.central.test_hybrid import rows as hybrid_rows
from tests.central.test_hybrid import side, text
from tests.command import dpsql_command
from tests.engines.catalogs import KEY, catalog, files, server
from tests.engines.servers import Server
from tests.engines.star import TABLES
from tests.stream_shop import FIRST, NOW, make_stream_shop
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

SCHEMA, FACTS = "lost", 2_000
COUNTING = "bounding, counting and drawing"


@contextmanager
def locked(loaded: Server) -> Iterator[None]:
    """Sales are locked by somebody else, so that whatever reads them waits."""
    import psycopg

    with psycopg.connect(loaded.dsn) as lock:
        lock.execute(f"LOCK TABLE {SCHEMA}.sales IN ACCESS EXCLUSIVE MODE")
        yield
        lock.rollback()


def ended(loaded: Server) -> Progress:
    """Ends dpsql's connection when it is about to count."""
    import psycopg

    mine = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'dpsql'"

    def progress(stage: Stage) -> None:
        if stage.doing == COUNTING:
            with psycopg.connect(loaded.dsn, autocommit=True) as other:
                assert other.execute(mine).fetchall() == [(1,)]

    return progress


def taken(file: Path, doing: str) -> Progress:
    """Takes a file away at a stage."""

    def progress(stage: Stage) -> None:
        if stage.doing == doing and file.exists():
            file.rename(file.with_name("aside"))

    return progress


@pytest.mark.parametrize(
    ("step", "doing", "max_ids"),
    by_default(
        [
            ("counting", COUNTING, 4),
            ("choosing bounds for sales", COUNTING, "auto"),
            ("taking the fingerprint of sales", "planned", 4),
        ],
        1,
    ),
)
def test_files_that_go_away(
    step: str,
    doing: str,
    max_ids: object,
    shop: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """DuckDB's: the sales are removed when they are about to be read; put back, they are published and charged once."""
    folder = tmp_path_factory.mktemp("files")
    for table in TABLES:
        (folder / f"{table}.parquet").write_bytes((shop / f"{table}.parquet").read_bytes())
    sales = folder / "sales.parquet"
    here = catalog(tmp_path, files(folder), "truncate", max_ids=max_ids)
    message = lost(here, tmp_path, "nobody's password", taken(sales, doing))
    assert message.startswith(f"DuckDB: {step} failed (IOException)")
    reserved = doing == COUNTING
    assert message.endswith(RESERVED if reserved else "nothing was charged and nothing was left behind")
    (folder / "aside").rename(sales)
    published = publish_release(here, tmp_path / "r.dpsql", noise=ZeroNoise(), key=KEY)
    assert published.receipt.taken_up is reserved
    assert charged(here) == len(ledger_entries(ledger_path(here))) == 1


def test_files_that_go_away_from_reported_columns(tmp_path: Path) -> None:
    """The squares come last: the sales are gone when they are stored for them."""
    place = side(tmp_path / "shop", {i: i % 4 for i in range(60)}, hybrid_rows(), text())
    here, (sales,) = load_catalog(place / "catalog.yaml"), place.glob("sales.*")
    before = sorted(path.name for path in place.rglob("*") if "ledger" not in path.name)
    with pytest.raises(
        EngineLost, match=r"^DuckDB: counting squares of sales failed \(IOException\); the charge is reserved"
    ):
        publish_release(
            here,
            place / "r.dpsql",
            noise=ZeroNoise(),
            key=KEY,
            progress=taken(sales, "estimating and writing"),
        )
    (place / "aside").rename(sales)
    assert sorted(path.name for path in place.rglob("*") if "ledger" not in path.name) == before
    assert [entry.state for entry in ledger_entries(place / "ledger.duckdb")] == ["reserved"]


def test_files_that_go_away_from_a_stream(tmp_path: Path) -> None:
    """The batch is not appended, whether it is the first one or not; appended again, it is there once."""
    shop = make_stream_shop(tmp_path, customers=200)
    here, sales = load_catalog(shop.catalog), tmp_path / "data" / "sales.parquet"
    for day in range(2):
        arrival = Arrival((FIRST + timedelta(days=day)).isoformat(), None, NOW)
        chance = Chance(shop.noise, insecure_test_entropy(7))
        with pytest.raises(EngineLost) as raised:
            append_batch(
                here,
                shop.directory,
                arrival,
                chance,
                progress=taken(sales, "bounding and counting the batch"),
            )
        assert str(raised.value) == (
            "DuckDB: counting the batch failed (IOException); the batch was not appended; append it again"
        )
        (tmp_path / "data" / "aside").rename(sales)
        appended = shop.append(day)
        assert appended.added
        assert len(ledger_entries(ledger_path(here))) == 1
    shop.check(1)


def charged(shop: Catalog) -> int:
    """Releases that the catalog's ledger has sealed."""
    entries = [entry for lineage in budget_report(ledger_path(shop)).lineages for entry in lineage.entries]
    return sum(entry.state == "sealed" for entry in entries)


def lost(shop: Catalog, folder: Path, password: str, progress: Progress = silent) -> str:
    """Publish, expect the engine lost, and check that nothing happened; the message."""
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(EngineLost) as raised:
        publish_release(shop, folder / "r.dpsql", noise=ZeroNoise(), key=KEY, progress=progress)
    told = "".join(traceback.format_exception(raised.value))
    assert password not in told
    left = [path.name for path in folder.iterdir() if path.name not in before]
    assert left in ([], [".dpsql"])
    assert not [
        path
        for path in folder.rglob("*")
        if path.is_file() and "ledger" not in path.name and path.parent != folder
    ]
    assert all(password.encode() not in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert charged(shop) == 0
    message = str(raised.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("bound", "step"), [("truncate", "counting"), ("auto", "choosing bounds for sales")])
def test_a_connection_that_is_ended(
    bound: str, step: str, loaded: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pg_terminate_backend` before the count; the next publish works and is charged once."""
    monkeypatch.setenv("DPSQL_TEST_DSN", loaded.dsn)
    shop = catalog(tmp_path, server(SCHEMA), bound)
    message = lost(shop, tmp_path, loaded.password, ended(loaded))
    assert message.startswith(f"PostgreSQL: {step} failed (the connection was ended)")
    published = publish_release(shop, tmp_path / "r.dpsql", noise=ZeroNoise(), key=KEY)
    assert published.receipt.drawn
    assert charged(shop) == 1


def test_a_statement_that_takes_too_long(
    loaded: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own time limit ends it."""
    monkeypatch.setenv("DPSQL_TEST_DSN", loaded.dsn)
    shop = catalog(tmp_path, server(SCHEMA) | {"timeout": 1}, "weight")
    with locked(loaded):
        message = lost(shop, tmp_path, loaded.password)
    assert message.startswith(
        "PostgreSQL: taking the fingerprint of sales failed (it ran longer than allowed)"
    )


def test_the_command_says_it_in_one_line(
    loaded: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 4, one line on standard error, without the password."""
    monkeypatch.setenv("DPSQL_TEST_DSN", loaded.dsn)
    catalog(tmp_path, server(SCHEMA) | {"timeout": 1}, "row")
    with locked(loaded):
        done = dpsql_command("publish", tmp_path / "shop.yaml", "-o", tmp_path / "r.dpsql")
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 4
    assert "PostgreSQL: taking the fingerprint of sales failed (it ran longer than allowed)" in last
    assert loaded.password not in done.stdout + done.stderr
    assert not (tmp_path / "r.dpsql").exists()


def test_a_server_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Server
) -> None:
    """A wrong password, a wrong host and nonsense are told without what was written."""
    wrong = [
        postgres.dsn.replace(postgres.password, "hunter-2"),
        "host=/nowhere password=hunter-2",
        "hunter-2 and nonsense",
    ]
    for dsn in wrong:
        monkeypatch.setenv("DPSQL_TEST_DSN", dsn)
        shop = catalog(tmp_path, server(SCHEMA), "row")
        with pytest.raises(EngineLost, match="PostgreSQL: connecting failed") as raised:
            publish_release(shop, tmp_path / "r.dpsql", noise=ZeroNoise(), key=KEY)
        assert "hunter" not in "".join(traceback.format_exception(raised.value))


SPARK_CHILD = """
import sys, threading, time, warnings
from pathlib import Path
from tests.engines.catalogs import KEY, catalog, spark_files
from tests.engines.servers import running_spark
from tests.engines.star import build
from dpsql.errors import EngineLost
from dpsql.noise import ZeroNoise
from dpsql.central.central import publish_release
from tests.engines.test_lost import COUNTING, charged

folder, way = Path(sys.argv[1]), sys.argv[2]
build(folder, 3_000_000 if way == "slow" else 400_000, 5_000)
with running_spark() as spark:
    source = spark_files(folder)
    if way == "slow":
        source["timeout"] = 2
        for place in source["tables"].values():  # a session's first reads take seconds
            spark.read.parquet(place).limit(1).toArrow()
    shop = catalog(folder, source, "truncate")

    def stop():
        jvm = spark.sparkContext._gateway
        tracker = spark.sparkContext.statusTracker()
        while not tracker.getActiveJobsIds():
            time.sleep(0.01)
        jvm.proc.kill() if way == "killed" else spark.sparkContext.stop()

    def progress(stage):
        if way != "slow" and stage.doing == COUNTING:  # the charge is reserved
            threading.Thread(target=stop, daemon=True).start()

    try:
        publish_release(shop, folder / "r.dpsql", noise=ZeroNoise(), key=KEY, progress=progress)
        print("published")
    except EngineLost as error:
        print("LOST", error)
    print("RELEASES", charged(shop), (folder / "r.dpsql").exists())
    sys.stdout.flush()
    import os
    os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["stopped", "killed", "slow"])
def test_spark_that_goes_away(way: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Its context is stopped, its process is killed, or a statement takes longer than allowed."""
    from importlib.util import find_spec
    from shutil import which

    if find_spec("pyspark") is None or which("java") is None:
        pytest.skip("there is no pyspark or no Java here")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", SPARK_CHILD, str(tmp_path), way],
        cwd=root, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith(("LOST", "RELEASES", "published"))]
    why = "it ran longer than allowed" if way == "slow" else ""
    assert len(lines) == 2, done.stdout[-2000:] + done.stderr[-2000:]
    assert lines[0].startswith("LOST Spark: ")
    assert why in lines[0]
    assert lines[0].endswith(RESERVED)
    assert lines[1] == "RELEASES 0 False"
