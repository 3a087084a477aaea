"""A request ends at its seconds, at its bytes and when nobody waits: in DuckDB, in errors and in texts."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.errors import InterfaceError, NotSupportedError, QueryTimeout
from dpsql.executor import run as running
from dpsql.executor.engine import ReleaseEngine
from dpsql.executor.run import MOST_OF_A_ROLE, run_apart
from dpsql.federation.session import OpenReleases, ReleaseCache, open_session
from dpsql.interfaces.python import describe
from dpsql.intervals.reads import PlanVariances
from dpsql.release import open_release
from dpsql.release.request import NUMBER, Request, blocks, current, paced, requested, size_of
from dpsql.results.render import FORMATS, render, shown
from tests.interfaces.test_shell import ENDLESS
from tests.interfaces_release import build
from tests.release_fixture import make_rows, write_fixture
from tests.releases import published, seeded
from tests.thinned import by_default
from tests.userlevel_star import uneven_rows, write_star

BY_AGE = "(SELECT age, COUNT(*) AS n FROM sales JOIN customer USING (customer_id) GROUP BY age)"
CROSSED = f"SELECT a.n - b.n + c.n AS d FROM {BY_AGE} AS a, {BY_AGE} AS b, {BY_AGE} AS c"
"""64,000 rows, each of three cells: seconds of errors."""


def test_time_passes_while_somebody_works() -> None:
    request = Request(0.2)
    with request.working():
        assert current() is request
        time.sleep(0.1)
    time.sleep(0.3)  # a portal is kept meanwhile
    with request.working():
        request.check()
        time.sleep(0.15)
        with pytest.raises(QueryTimeout, match=r"after 0\.2 s"):
            request.check()
    with pytest.raises(QueryTimeout), request.working():
        pass
    assert current() is None


def test_bytes_are_counted_and_given_back() -> None:
    request = Request(most_bytes=1000)
    request.take(600)
    with pytest.raises(NotSupportedError, match="memory"), request.giving_back():
        request.take(300)
        request.take(101)
    assert request.bytes == 600
    rows = [(1.5, "text", None, [1, 2, 3], [{"c": 1}])] * 10
    assert size_of(rows) > 10 * (4 * NUMBER + 5 * 8)


def test_loops_ask_between_blocks() -> None:
    with Request().working() as request:
        rows, arrays = paced(range(10_000)), blocks(10_000_000, 1000)
        assert next(rows) == 0 and next(arrays).start == 0
        request.stop()
        with pytest.raises(QueryTimeout):
            list(rows)
        with pytest.raises(QueryTimeout):
            list(arrays)


def test_errors_end_at_the_limit(opened: OpenReleases) -> None:
    result = opened.query(CROSSED)
    start = time.monotonic()
    with pytest.raises(QueryTimeout), Request(0.5).working():
        render(result, "csv", 0.95)
    assert time.monotonic() - start < 2.0
    with Request().working() as request:
        threading.Timer(0.5, request.stop).start()
        start = time.monotonic()
        with pytest.raises(QueryTimeout):
            result.interval_rows()
        assert time.monotonic() - start < 1.5


def test_errors_end_at_the_bytes_and_say_so(opened: OpenReleases) -> None:
    with Request(most_bytes=20_000_000).working():
        result = opened.query(CROSSED.replace("a.n", "2 * a.n"))
        assert set(result.head(10).stderr_rows) == {(None,)}
        assert "memory" in result.undefined["d"]
    with pytest.raises(NotSupportedError, match="memory"), Request(most_bytes=1_000_000).working():
        opened.query(CROSSED.replace("a.n", "3 * a.n"))


def test_errors_are_those_of_the_rows_that_are_shown(
    opened: OpenReleases, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    plain = PlanVariances._product

    def counted(self: PlanVariances, *key: object) -> object:
        asked.append(len(self.index[0]))
        return plain(self, *key)  # type: ignore[arg-type]

    monkeypatch.setattr(PlanVariances, "_product", counted)
    text = (
        "SELECT age, COUNT(*) AS n, AVG(amount) AS m FROM sales JOIN customer USING (customer_id) GROUP BY 1"
    )
    result = opened.query(f"{text} ORDER BY 1 DESC")
    asked.clear()  # whether an average is NULL hangs on its count's error
    cells, _ = shown(result, most=5)
    assert len(cells) == 5 and max(asked) == 5
    whole = result.stderr_rows
    assert max(asked) == len(result.rows) == 41  # with customers of unknown age
    assert result.head(5).stderr_rows == whole[:5]
    crossed = opened.query(CROSSED)
    start = time.process_time()
    shown(crossed)
    assert time.process_time() - start < 6
    few = opened.query(f"{CROSSED} LIMIT 3000")  # three blocks
    assert few.head(1100).interval_rows()[0] == few.interval_rows()[0][:1100]


def test_one_role_leaves_databases_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    databases = running.Databases()
    monkeypatch.setattr(running, "_databases", databases)
    requests = [Request(role="ana") for _ in range(MOST_OF_A_ROLE + 2)]
    endless = "SELECT COUNT(*) FROM range(100000000) a, range(1000000) b"

    def ask(request: Request) -> None:
        with pytest.raises(QueryTimeout):
            request.run(lambda: run_apart(endless, ()))

    threads = [threading.Thread(target=ask, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    assert len(databases._free) == running.MOST_APART - MOST_OF_A_ROLE
    assert Request(5, role="eva").run(lambda: run_apart("SELECT 1", ())).rows == [(1,)]
    start = time.monotonic()
    for request in requests:
        request.stop()
    for thread in threads:
        thread.join()
    assert time.monotonic() - start < 2 and len(databases._free) == running.MOST_APART


def test_a_request_of_a_library_is_one_call(opened: OpenReleases) -> None:
    with requested() as outer, requested() as inner:
        assert outer is inner is current()
    answerer = ReleaseEngine(opened.releases[0], timeout=0.3)
    with pytest.raises(QueryTimeout, match=r"0\.3 s"):
        answerer.query(ENDLESS.rstrip(";"))


TOTAL = "(SELECT COUNT(*) FROM sales)"


@pytest.mark.parametrize("terms", by_default([20, 40], 1))
def test_a_sum_of_many_scalars_has_its_error(opened: OpenReleases, terms: int) -> None:
    one = opened.query("SELECT COUNT(*) FROM sales")
    result = opened.query("SELECT " + " + ".join([TOTAL] * terms))
    assert result.components["noise"][0][0] == pytest.approx(terms * one.components["noise"][0][0])
    assert result.stderr_rows[0][0] is not None and not result.undefined


def test_what_nests_too_deep_says_that_it_has_no_error(opened: OpenReleases) -> None:
    deep = TOTAL
    for _ in range(14):
        deep = f"ABS(1 + {deep} / 2)"
    result = opened.query(f"SELECT {deep} AS n")
    assert result.stderr_rows == ((None,),)
    assert result.undefined == {"n": "the statement is nested too deeply to compute its errors"}
    for style in FORMATS:
        assert render(result, style, 0.95)


@pytest.fixture(scope="module")
def nullable(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenReleases]:
    folder = tmp_path_factory.mktemp("nullable")
    rows, customers = uneven_rows(800, 1)
    rows = [(person, None if i % 5 == 0 else amount, day) for i, (person, amount, day) in enumerate(rows)]
    release = published(write_star(folder, rows, customers, nullable=True), seeded(1)).release
    session = open_session([release.path], insecure=True)
    yield session
    session.close()


@pytest.mark.parametrize(
    "value", by_default(["SUM(amount)", "AVG(amount)", "COUNT(amount)", "SUM(amount) / COUNT(*)"], 2)
)
@pytest.mark.parametrize("rest", [
    "", " JOIN customer USING (id) WHERE region IN ('n', 's', 'w') GROUP BY region",
    " JOIN customer USING (id) WHERE day <= 4",
])  # fmt: skip
def test_sums_of_a_nullable_measure_under_auto(nullable: OpenReleases, value: str, rest: str) -> None:
    result = nullable.query(f"SELECT {value} AS v FROM sales{rest}")
    low, high = result.interval_rows()
    for row, error, a, b in zip(result.rows, result.stderr_rows, low, high, strict=True):
        assert error[0] > 0 and a[0] < row[0] < b[0]


def test_a_bad_example_is_skipped_and_logged(
    nullable: OpenReleases, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain = OpenReleases.query

    def broken(self: OpenReleases, sql: str, **more: str) -> object:
        if "SUM" in sql:
            raise KeyError(0)
        return plain(self, sql, **more)

    monkeypatch.setattr(OpenReleases, "query", broken)
    with caplog.at_level(logging.WARNING):
        rated = describe.totals(nullable)
    assert {question.words for question, _, _ in rated} == {"count of sales", "average amount"}
    assert "an example was left out (KeyError)" in caplog.text


def test_a_page_that_is_left_keeps_no_empty_examples(nullable: OpenReleases) -> None:
    with Request().working() as request:
        request.stop()
        with pytest.raises(QueryTimeout):
            describe.well_answered(nullable, 3)


@pytest.mark.usefixtures("publishes")
def test_a_release_opened_elsewhere_is_read_for_the_request(tmp_path: Path) -> None:
    release = open_release(build(tmp_path / "shop"))
    with Request().working() as request:
        request.stop()
        with pytest.raises(QueryTimeout):
            release.whole("node_combination_0")
    assert release.whole("node_combination_0")


COUNTED = "SELECT COUNT(*) FROM sales"


def files(folder: Path, count: int) -> list[Path]:
    rows = make_rows(sales=30)
    return [write_fixture(folder / f"r{i}.dpsql", rows) for i in range(count)]


def test_the_least_asked_is_forgotten(tmp_path: Path) -> None:
    opened = ReleaseCache(2)
    first, second, third = files(tmp_path, 3)
    kept = weakref.ref(opened.answerer(first).release)
    assert opened.answerer(first).release is kept()
    forgotten = weakref.ref(opened.answerer(second).release)
    result = opened.answerer(second).query(COUNTED)
    opened.answerer(first)
    opened.answerer(third)
    gc.collect()
    assert kept() is not None
    assert forgotten() is not None, "an answer of it is left"
    assert result.stderr_rows[0][0] > 0
    del result
    gc.collect()
    assert forgotten() is None


def test_closing_forgets_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPSQL_RELEASE", raising=False)
    opened = ReleaseCache(2)
    (file,) = files(tmp_path, 1)
    release = opened.answerer(file).release
    opened.default = file
    assert opened.answerer(None).release is release
    opened.close()
    with pytest.raises(duckdb.ConnectionException):
        release.connection.execute("SELECT 1")
    with pytest.raises(InterfaceError, match="no release is named"):
        opened.answerer(None)


def test_a_file_that_changed_is_opened_anew(tmp_path: Path) -> None:
    (file,) = files(tmp_path, 1)
    before = dpsql.query(COUNTED, release=file).scalar()
    write_fixture(tmp_path / "new.dpsql", make_rows(sales=60)).replace(file)
    assert dpsql.query(COUNTED, release=file).scalar() != before
