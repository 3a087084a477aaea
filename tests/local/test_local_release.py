"""From the survey catalog to SQL: plan, reports, release, answers; the survey page's collector; a simulated star."""

from __future__ import annotations

import importlib.util
import json
import socket
import struct
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import dpsql
from benchmarks.local.simulated import one_row_each
from dpsql.catalog import Catalog, load_catalog
from dpsql.client import Memory, decode, read_plan, to_json
from dpsql.client.device import to_rows
from dpsql.client.entropy import system_entropy
from dpsql.engines import open_sources
from dpsql.errors import CatalogError, DataError, OperationalError
from dpsql.examples.retail import make_star, write_star
from dpsql.local.files import open_state, token_key
from dpsql.local.run import Reports, collect, write_plan
from dpsql.local.simulate import people_of, simulate_reports, simulated_collection
from dpsql.local.survey import public_axis_maker, survey_of
from dpsql.release.read import open_release
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

ROOT = Path(__file__).parents[2]
CATALOG = ROOT / "catalog" / "survey.yaml"
PEOPLE = 40_000


def answers(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(45, 15, PEOPLE), 18, 81).astype(int)
    minutes = np.clip(rng.gamma(3, 10, PEOPLE) + age * 0.2, 0, 120).astype(int)
    return {"age": age, "minutes": minutes, "district": rng.choice(4, PEOPLE, p=[0.4, 0.3, 0.2, 0.1])}


def write_reports(plan_file: Path, spool: Path, said: dict[str, np.ndarray]) -> None:
    plan = read_plan(plan_file.read_bytes())
    leaves = []
    for axis in plan.axes:
        values = said[axis.name.split(".")[1]]
        leaves.append(
            np.searchsorted(axis.lookup["starts"], values, side="right") - 1
            if "starts" in axis.lookup
            else values
        )
    people = one_row_each(np.stack(leaves, axis=1), said["minutes"][:, None])
    reports = simulate_reports(plan, people, np.random.default_rng(5))
    spool.write_text("\n".join(to_json(decode(report)) for report in reports))


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    folder = tmp_path_factory.mktemp("survey")
    said = answers(1)
    write_plan(CATALOG, folder / "plan.json", PEOPLE)
    write_reports(folder / "plan.json", folder / "reports.jsonl", said)
    release = folder / "survey.dpsql"
    done = collect(Reports(folder / "plan.json", [folder / "reports.jsonl"], b"k" * 32), release, "test")
    assert done.manifest.accepted == PEOPLE
    return release, said


@pytest.mark.parametrize(
    ("where", "low", "high"), by_default([("age BETWEEN 30 AND 49", 30, 49), ("age < 30", 0, 29)], 1)
)
def test_counts_and_averages_lie_within_their_error_bars(
    survey: tuple[Path, dict[str, np.ndarray]], where: str, low: int, high: int
) -> None:
    release, said = survey
    kept = (said["age"] >= low) & (said["age"] <= high)
    for sql, exact in (
        (f"SELECT COUNT(*) FROM answer WHERE {where}", kept.sum()),
        (f"SELECT AVG(minutes) FROM answer WHERE {where}", said["minutes"][kept].mean()),
    ):
        found = dpsql.query(sql, release=release)
        error = float(np.asarray(found.stderr, dtype=float).reshape(-1)[0])
        assert error > 0
        assert abs(float(found.scalar()) - exact) < 4.5 * error


def test_the_total_is_the_number_of_people_and_parts_add_up(
    survey: tuple[Path, dict[str, np.ndarray]],
) -> None:
    release, _ = survey
    assert float(dpsql.query("SELECT COUNT(*) FROM answer", release=release).scalar()) == pytest.approx(
        PEOPLE
    )
    parts = dpsql.query("SELECT district, COUNT(*) FROM answer GROUP BY district", release=release).df()
    assert parts.iloc[:, 1].sum() == pytest.approx(PEOPLE)


def test_smooth_counts_answer_on_request(survey: tuple[Path, dict[str, np.ndarray]]) -> None:
    release, said = survey
    sql = "SELECT age, COUNT(*) AS n FROM answer GROUP BY age HAVING age IS NOT NULL"
    with pytest.raises(dpsql.PartialBinError, match=r"100% of the group \(18\)"):
        dpsql.query(sql, release=release)
    single = "interpolate"  # bins hold two years of age each
    with (
        dpsql.connect(release, on_partial_bin=single) as plain,
        dpsql.connect(release, on_partial_bin=single, nonnegative=True) as smooth,
    ):
        unbiased, positive = plain.session.query(sql).df().n, smooth.session.query(sql).df().n
    exact = np.bincount(said["age"], minlength=82)[18:]
    assert (positive >= 0).all()
    assert ((positive - exact) ** 2).sum() < ((unbiased - exact) ** 2).sum()


def test_the_release_says_what_was_promised(survey: tuple[Path, dict[str, np.ndarray]]) -> None:
    release = open_release(survey[0])
    assert release.meta.privacy.trust == "local"
    assert release.meta.privacy.epsilon == "1"
    assert release.meta.local.manifest.rejected == {}
    assert release.meta.local.influence.rows_at_most > 1
    release.close()


def test_a_release_is_not_overwritten_and_needs_reports(tmp_path: Path) -> None:
    write_plan(CATALOG, tmp_path / "plan.json", PEOPLE)
    (tmp_path / "none.jsonl").write_text("")
    with pytest.raises(DataError, match="no report"):
        collect(Reports(tmp_path / "plan.json", [tmp_path / "none.jsonl"], b"k"), tmp_path / "a", "x")
    (tmp_path / "there").touch()
    with pytest.raises(OperationalError, match="exists"):
        collect(Reports(tmp_path / "plan.json", [], b"k"), tmp_path / "there", "x")
    with pytest.raises(OperationalError, match="plan"):
        collect(Reports(tmp_path / "absent", [], b"k"), tmp_path / "a", "x")


def test_a_catalog_without_a_collection_is_refused(tmp_path: Path) -> None:
    text = CATALOG.read_text().replace("collection: {epsilon: 1}\n", "")
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(CatalogError, match="collection"):
        write_plan(tmp_path / "c.yaml", tmp_path / "plan.json", 10)


def test_shuffling_is_stated_with_its_conditions(tmp_path: Path) -> None:
    text = CATALOG.read_text().replace("collection: {epsilon: 1}", "collection: {epsilon: 1, shuffled: true}")
    (tmp_path / "c.yaml").write_text(text)
    write_plan(tmp_path / "c.yaml", tmp_path / "plan.json", PEOPLE)
    write_reports(tmp_path / "plan.json", tmp_path / "r.jsonl", answers(2))
    collect(Reports(tmp_path / "plan.json", [tmp_path / "r.jsonl"], b"k"), tmp_path / "s", "x")
    release = open_release(tmp_path / "s")
    stated = release.meta.local.shuffled
    release.close()
    assert stated.people == PEOPLE
    assert 0 < stated.epsilon < 0.1
    assert all(
        word in stated.holds_if for word in ("shuffler", "the same plan", "each report once", "one round")
    )


def page_collector() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "survey_collector", ROOT / "examples" / "survey" / "collector.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_s_collector_serves_the_plan_and_spools_reports(tmp_path: Path) -> None:
    write_plan(CATALOG, tmp_path / "plan.json", PEOPLE)
    server = page_collector().make_server(tmp_path / "plan.json", tmp_path / "spool.jsonl", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        with urllib.request.urlopen(f"{home}/plan.json") as reply:
            plan = read_plan(reply.read())
        for page in ("/", "/page.js", "/dpsql-client.js"):
            with urllib.request.urlopen(home + page) as reply:
                assert reply.status == 200
        record = {"answer.age": 33, "answer.district": "east", "answer.minutes": 12}
        device = Memory(tmp_path / "memory.json", plan.epsilon, 2 * plan.epsilon)
        report = device.answer(plan, to_rows(plan, [record]), system_entropy)
        assert report is not None
        with urllib.request.urlopen(f"{home}/report", data=report) as reply:
            assert reply.status == 204
        for bad in (b"x", report[:2] + bytes(8) + report[10:]):
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(f"{home}/report", data=bad)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{home}/absent")
    finally:
        server.shutdown()
        server.server_close()
    lines = (tmp_path / "spool.jsonl").read_text().splitlines()
    assert [json.loads(line)["plan"] for line in lines] == [plan.hash.hex()]


def test_the_page_s_collector_prints_no_address_when_a_request_breaks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_plan(CATALOG, tmp_path / "plan.json", PEOPLE)
    server = page_collector().make_server(tmp_path / "plan.json", tmp_path / "spool.jsonl", 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        for length in ("x", "-1", "\u0663", "9" * 30, "", "40"):
            with socket.create_connection(("127.0.0.1", server.server_address[1])) as broken:
                head = f"POST /report HTTP/1.0\r\nContent-Length: {length}\r\n\r\nL1"
                broken.sendall(head.encode())
                broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with socket.create_connection(("127.0.0.1", server.server_address[1])) as sound:
            sound.sendall(b"POST /report HTTP/1.0\r\nContent-Length: many\r\n\r\n")
            assert b"400" in sound.recv(100)
    finally:
        server.shutdown()
        server.server_close()
    thread.join(10)
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "spool.jsonl").exists()


RETAIL = Path(__file__).parents[2] / "catalog" / "retail.yaml"


VIEWS = """collection: {epsilon: 3, tau: 2, row_share: 1/10}
views:
  price: {of: sales, axes: [customer.sex, product.price], measures: [count, sales.amount]}
  brand: {of: sales, axes: [{axis: product, by: [category, brand]}, customer.region]}
"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("star")
    write_star(folder / "data", make_star(1, 3000, 50))
    text = RETAIL.read_text()
    (folder / "local.yaml").write_text(text[: text.index("views:")] + VIEWS)
    return load_catalog(folder / "local.yaml")


def test_people_keep_all_their_rows(catalog: Catalog) -> None:
    survey = survey_of(catalog, public_axis_maker(catalog))
    source = catalog.raw_source()
    raw = open_sources(source.kind, source.folder(catalog.file), source.tables)
    people = people_of(survey, raw)
    sales, buyers = raw.connection.execute(
        "SELECT count(*), count(DISTINCT customer_id) FROM raw.sales JOIN raw.customer USING (customer_id)"
    ).fetchall()[0]
    raw.close()
    assert (int(people.first[-1]), people.count) == (sales, buyers)
    sizes = np.array([axis.leaves for axis in survey.axes])
    assert np.all((people.leaves >= 0) & (people.leaves < sizes))
    assert people.measures.min() >= 0


def test_a_simulated_collection_answers_sql(catalog: Catalog, tmp_path: Path) -> None:
    import duckdb

    ((plan, reports),) = simulated_collection(catalog, np.random.default_rng(1))
    (tmp_path / "plan.json").write_bytes(plan)
    duckdb.execute("CREATE OR REPLACE TEMP TABLE spool (report VARCHAR)")
    duckdb.executemany("INSERT INTO spool VALUES (?)", [[r.hex()] for r in reports])
    duckdb.execute(
        f"COPY (SELECT from_hex(report) AS report FROM spool) TO '{tmp_path}/r.parquet' (FORMAT parquet)"
    )
    back = Reports(
        tmp_path / "plan.json", [tmp_path / "r.parquet"], b"k" * 32, catalog.file, tmp_path / "state"
    )
    done = collect(back, tmp_path / "x", "x")
    assert done.manifest.accepted == len(reports)
    found = dpsql.query(
        "SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE sex = 'F'", tmp_path / "x"
    )
    assert float(found.components["noise"][0][0]) > 0
    from dpsql.client import read_plan

    state = tmp_path / "state"
    open_state(read_plan(plan), state, token_key(state, b"f" * 32)).close()
