"""Streams from the command line and from Python, as users type them."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import duckdb
import pytest

import dpsql
from tests.command import dpsql_command as run
from tests.interfaces.wire_client import Wire, kinds, serving
from tests.stream_shop import CATALOG, make_stream_shop

pytestmark = pytest.mark.usefixtures("publishes")

VIEWS = "views:\n  days: {of: sales, axes: [sales.sold_on, customer.sex], measures: [count]}\n"


def test_append_query_as_of_and_exit_codes(tmp_path: Path) -> None:
    shop = make_stream_shop(tmp_path, customers=200, text=CATALOG[: CATALOG.index("views:")] + VIEWS)
    append = ("append", shop.directory, "--catalog", shop.catalog)
    first = run(*append, "--batch", "2025-01-01", "--json")
    assert first.returncode == 0, first.stderr
    report = json.loads(first.stdout)
    assert (report["batch"], report["created"], report["charged"], report["left"]) == (0, True, "1", "3")
    day = tmp_path / "day.parquet"
    duckdb.sql(
        f"SELECT * FROM '{tmp_path / 'data' / 'sales.parquet'}' WHERE sold_on = DATE '2025-01-02'"
    ).write_parquet(str(day))
    second = run(*append, "--batch", "2025-01-02", "--source", day)
    assert second.returncode == 0 and "appended batch 1" in second.stderr and second.stdout == ""
    assert run(*append, "--batch", "2025-01-09").returncode == 2
    customers, other = tmp_path / "data" / "customer.parquet", tmp_path / "other.parquet"
    wrong = run(*append, "--batch", "2025-01-03", "--source", customers)
    assert wrong.returncode == 2 and len(wrong.stderr.strip().splitlines()) == 1 and "sale" in wrong.stderr
    duckdb.sql(f"SELECT * FROM '{day}' LIMIT 0").write_parquet(str(other))
    again = [
        run(*append, "--batch", "2025-01-02", "--source", rows, "--json") for rows in (day, other, customers)
    ]
    assert {(done.returncode, done.stdout, done.stderr) for done in again} == {
        (0, again[0].stdout, again[0].stderr)
    }
    assert json.loads(again[0].stdout)["added"] is False
    checks = [
        run(*append, "--batch", "2025-01-02", "--source", rows, "--check", "--json") for rows in (day, other)
    ]
    assert [done.returncode for done in checks] == [0, 3]
    assert json.loads(checks[0].stdout)["same"] is True
    assert json.loads(checks[1].stdout)["error"]["type"] == "BatchConflict"

    elsewhere = tmp_path / "elsewhere" / shop.directory.name
    lost = run("append", elsewhere, *append[2:], "--batch", "2025-01-03")
    assert lost.returncode == 3 and f"was made in {shop.directory}" in lost.stderr and not elsewhere.exists()

    question = "SELECT sold_on, COUNT(*) AS n FROM sales GROUP BY sold_on ORDER BY sold_on"
    shown = run("query", shop.directory, question, "--format", "csv")
    assert shown.returncode == 0 and len(shown.stdout.strip().splitlines()) == 3
    earlier = run("query", shop.directory, question, "--format", "csv", "--as-of", "2025-01-01")
    assert len(earlier.stdout.strip().splitlines()) == 2
    assert run("query", shop.directory, question, "--as-of", "7").returncode == 2

    with dpsql.connect(shop.directory, as_of=0) as before:
        added = dpsql.append(shop.directory, None, date(2025, 1, 3), catalog=shop.catalog)
        assert added.added and added.batch == 2 and added.charged == 0
        assert len(before.execute(question).fetchall()) == 1
    result = dpsql.query(question, release=shop.directory)
    assert result.provenance["as_of_batch"] == 2 and len(result.rows) == 3
    assert run("export", shop.directory, "-o", tmp_path / "out", "--as-of", "1").returncode == 0
    exported = duckdb.sql(
        f"SELECT sold_on_low, sum(count) FROM '{tmp_path}/out/days.parquet' GROUP BY 1 ORDER BY 1"
    )
    first_days = dpsql.query(question, release=shop.directory, as_of=1).rows
    assert [day for day, _ in exported.fetchall()] == [day for day, _ in first_days] and len(first_days) == 2
    for report_on in (("explain", shop.directory, question), ("budget", shop.catalog)):
        told = run(*report_on)
        assert told.returncode == 0, told.stderr


@pytest.mark.slow
def test_every_interface_takes_as_of(tmp_path: Path) -> None:
    """Shell, explain and the PostgreSQL server open the same earlier state that `query --as-of` does."""
    shop = make_stream_shop(tmp_path, customers=200, text=CATALOG[: CATALOG.index("views:")] + VIEWS)
    for batch in ("2025-01-01", "2025-01-02"):
        dpsql.append(shop.directory, None, batch, catalog=shop.catalog)
    question = "SELECT sold_on, COUNT(*) AS n FROM sales GROUP BY sold_on ORDER BY sold_on"
    for words, rows in (((), 2), (("--as-of", "2025-01-01"), 1)):
        shown = run("query", shop.directory, question, "--format", "csv", *words).stdout
        assert len(shown.splitlines()) == rows + 1
        assert run("shell", shop.directory, "-c", question, "--format", "csv", *words).stdout == shown
        explained = json.loads(run("explain", shop.directory, question, "--json", *words).stdout)
        assert explained["provenance"]["as_of_batch"] == rows - 1
        assert len(explained["stderr"]) == rows
        assert run("explain", shop.directory, question, *words).stdout.splitlines() == explained["plan"]
    for processes in ("1", "2"):
        with serving(shop.directory, "--as-of", "0", "--processes", processes) as port:
            client = Wire(port)
            client.until_ready()
            assert kinds(client.ask(question)).lstrip("N") == "TDCZ"  # notes may stand before the rows
            client.socket.close()
    for command in (("shell", shop.directory, "-c", question), ("explain", shop.directory, question),
                    ("serve", shop.directory)):  # fmt: skip
        refused = run(*command, "--as-of", "7")
        assert refused.returncode == 2 and len(refused.stderr.strip().splitlines()) == 1
