"""The rule of small numbers: no statement at any interface shows a number, or an end, of fewer people than its k."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.executor.engine import ReleaseEngine
from dpsql.federation.session import OpenReleases, open_session
from dpsql.release import open_release
from tests.interfaces.wire_client import Wire, running
from tests.interfaces_release import CATALOG, build
from tests.local.test_local_joint import JOINT, released
from tests.property.small_numbers import SALES, Asked, K, RuledStatement, ruled_shop, statements
from tests.statements import sections
from tests.stream_shop import CATALOG as STREAM
from tests.stream_shop import make_stream_shop
from tests.thinned import by_default

BATCH = 25


@pytest.fixture(scope="module")
def release(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ruled_shop(tmp_path_factory.mktemp("ruled"))


@pytest.fixture(scope="module")
def opened(release: Path) -> Iterator[OpenReleases]:
    session = open_session([release])
    yield session
    session.close()


@pytest.fixture(scope="module")
def asked(release: Path, opened: OpenReleases) -> Iterator[Asked]:
    with running(release) as server:
        wire = Wire(server.port)
        wire.until_ready()
        yield Asked(opened, wire)


@pytest.mark.parametrize("seed", by_default(range(40), 1))
def test_random_statements_show_nothing_of_fewer_people(asked: Asked, seed: int) -> None:
    answers = [asked.faults(statement) for statement in islice(statements(seed), BATCH)]
    assert sum(map(bool, answers)) > BATCH / 2
    assert not [fault for answer in answers for of_interface in answer.values() for fault in of_interface]


def pooled(folder: Path) -> Asked:
    """Two releases of one shop, whose counts are averaged."""
    text = CATALOG.replace("delta: 0}", f"delta: 0, min_people: {K}}}")
    files = [build(folder / name, name=name, text=text) for name in ("once", "again")]
    return Asked(open_session(files), None)


def of_a_stream(folder: Path) -> Asked:
    """Three days of a stream in which a person may be in ten; the rule's number is 2, and lies between its regions."""
    text = STREAM.replace("delta: DELTA", "delta: DELTA, min_people: 2").replace("max_ids: 10", "max_ids: 1")
    shop = make_stream_shop(folder, text=text)
    for day in range(3):
        shop.append(day)
    engine = shop.opened()
    return Asked(OpenReleases((engine.release,), (engine,)), None, rows=20 / K)


def of_reports(folder: Path) -> Asked:
    """People's own reports; the rule's number lies between the two sizes of the eight groups, 6,000 and 1,500."""
    release = open_release(released(folder, JOINT))
    ruled = replace(release, min_people=300 * K)
    return Asked(OpenReleases((ruled,), (ReleaseEngine(ruled),)), None, rows=300)


OF_KINDS = {
    pooled: (SALES, ("region",)),
    of_a_stream: (SALES, ("region",)),
    of_reports: ("answer", ("tea", "late", "quiet")),
}


@pytest.mark.parametrize("kind", by_default(OF_KINDS, 1), ids=lambda kind: kind.__name__)
def test_other_kinds_of_releases_show_nothing_of_fewer_people(
    kind: Callable[[Path], Asked], tmp_path: Path, publishes: None
) -> None:
    asked, (table, keys) = kind(tmp_path), OF_KINDS[kind]
    listed = ", ".join(f"{key} AS k{i}" for i, key in enumerate(keys))
    groups = f"SELECT {listed}, COUNT(*) AS x FROM {table} GROUP BY ALL"
    outer = ", ".join(f"k{i}" for i in range(len(keys)))
    roots = f"SELECT {outer}, SQRT(x * x) AS x FROM ({groups}) AS q"
    answers = [asked.faults(RuledStatement(sql, groups, False)) for sql in (groups, roots)]
    assert all(answers) and not [line for answer in answers for lines in answer.values() for line in lines]
    hidden = [not numbers for _, numbers in asked.python(groups)]
    assert any(hidden) and not all(hidden)


def test_the_judge_sees_a_release_without_the_rule(asked: Asked, opened: OpenReleases) -> None:
    free = Asked(opened, None)
    free.releases = OpenReleases((free.free.release,), (free.free,))
    free.connection.session = free.releases
    faults = [free.faults(statement) for statement in islice(statements(0), BATCH)]
    assert {name for answer in faults for name, lines in answer.items() if lines} == set(free.interfaces)


def test_an_interface_raises_the_rule_and_never_lowers_it(
    release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = f"SELECT region, COUNT(*) AS n FROM {SALES} GROUP BY region"
    shown = []
    for least in ("1", "60"):
        monkeypatch.setenv("DPSQL_MIN_PEOPLE", least)
        answer = dpsql.query(sql, release)
        shown.append([row[1] is not None for row in answer.rows])
        assert (f"<{max(K, int(least))}" in str(answer)) == (False in shown[-1])
    assert shown == [[True, True, True, False], [False, True, False, False]]
    monkeypatch.setenv("DPSQL_MIN_PEOPLE", "few")
    with pytest.raises(dpsql.Error, match="whole number"):
        dpsql.query(sql, release)


TYPED = sections(Path(__file__).with_name("small_numbers.sql"))
CASES = [(sql, kind) for kind in ("hidden", "shown") for sql, _ in TYPED[kind]]


@pytest.mark.parametrize(("sql", "kind"), CASES)
def test_what_an_attacker_types(opened: OpenReleases, sql: str, kind: str) -> None:
    answer = opened.query(sql)
    low, high = answer.interval_rows()
    ends = [row[-1] for grid in (answer.rows, low, high, answer.stderr_rows) for row in grid]
    assert all(end is None for end in ends) == (kind == "hidden")
    assert kind == "shown" or any("fewer than 11 people" in flag for flag in answer.flags)


def test_a_sum_of_groups_has_its_own_number_and_ends(opened: OpenReleases) -> None:
    groups = f"(SELECT age, COUNT(*) AS n FROM {SALES} GROUP BY age)"
    by_groups, whole = (
        opened.query(f"SELECT SUM(n) FROM {groups}"),
        opened.query(f"SELECT COUNT(*) FROM {SALES}"),
    )
    assert by_groups.scalar() == pytest.approx(whole.scalar())
    for low, high in zip(by_groups.interval_rows(), whole.interval_rows(), strict=True):
        assert low[0][0] == pytest.approx(high[0][0])


def test_numbers_near_the_rule_are_marked(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = f"SELECT age // 4 AS band, COUNT(*) AS n FROM {SALES} GROUP BY 1"
    shown = [row[1] for row in dpsql.query(sql, release).rows if row[1] is not None]
    least = next(int(number / 20) for number in shown if number % 20 < 10)  # its interval reaches below
    monkeypatch.setenv("DPSQL_MIN_PEOPLE", str(least))
    text = str(dpsql.query(sql, release))
    assert "* = perhaps of fewer people" in text


def test_plans_and_notes_hold_no_hidden_number(opened: OpenReleases, asked: Asked) -> None:
    sql = f"SELECT region, age, SUM(amount) AS s, COUNT(*) AS n FROM {SALES} GROUP BY region, age"
    answer, free = opened.query(sql), asked.free.query(sql)
    printed = " ".join([*answer.plan, *answer.notes, repr(answer.decomposition)])
    for row in free.rows:
        assert not any(f"{value:.6g}" in printed for value in row[2:] if abs(value) > 100)
    assert "'estimate'" not in printed


def test_files_and_pages_hide_them_too(opened: OpenReleases, tmp_path: Path) -> None:
    from dpsql.interfaces.web.report import report_page
    from dpsql.results.export import export

    export(opened, tmp_path / "tables", (), 0.95, lambda step: None)
    sql = f"SELECT count, count_low FROM '{tmp_path}/tables/demand.parquet'"
    rows = duckdb.sql(sql).fetchall()
    assert all(count is None or count / 20 >= K for count, _ in rows)
    assert any(low is None for _, low in rows)
    assert "no privacy claim rests on this rule" in report_page(opened.releases[0])
