"""Services that cannot join on a device: from the catalog to SQL, with two and with three of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

import dpsql
from benchmarks.local.simulated import one_row_each
from dpsql.catalog import parse_catalog
from dpsql.client import Memory, decode, read_plan, to_json
from dpsql.client.device import to_rows
from dpsql.client.entropy import system_entropy
from dpsql.errors import CatalogError, DataError, InterfaceError, OperationalError, PrivacyError
from dpsql.interfaces.cli import main
from dpsql.local.oracles import oracle_named
from dpsql.local.oracles.oracle import item_scores
from dpsql.local.run import Collected, Reports, collect, write_plan
from dpsql.local.services import penalty, read_sheet
from dpsql.local.simulate import simulate_reports, write_spool
from dpsql.release.read import open_release
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

AXES = {"bank": "income", "clinic": "age", "shop": "district"}
PEOPLE = 12_000
SQL = "SELECT COUNT(*) FROM person WHERE income >= 3 AND age < 4 AND district IN ('a', 'b')"


def catalog_text(services: int, epsilon: str = "6", more: str = "") -> str:
    names = list(AXES)[:services]
    told = ", ".join(f"{name}: {{axes: [person.{AXES[name]}]}}" for name in names)
    axes = ", ".join(f"person.{AXES[name]}" for name in names)
    return f"""
dpsql: 1
name: trio
population: town
source: {{kind: parquet, root: ., tables: {{person: person.parquet}}}}
privacy: {{lineage: trio, cap: 20, unit: person.id, epsilon: {epsilon}}}
collection: {{services: {{{told}}}{more}}}
tables:
  person:
    role: dimension
    key: id
    private: true
    columns:
      income: {{type: int, lower: 0, upper: 5, cuts: {{width: 1}}, out_of_domain: drop}}
      age: {{type: int, lower: 0, upper: 7, cuts: {{width: 1}}, out_of_domain: drop}}
      district: {{type: string, categories: [a, b, c], out_of_domain: drop}}
views:
  every: {{of: person, axes: [{axes}], measures: [count]}}
  one: {{of: person, axes: [person.income], measures: [count]}}
"""


def people(seed: int) -> np.ndarray:
    """Columns income, age and district, which go together."""
    rng = np.random.default_rng(seed)
    income = rng.integers(0, 6, PEOPLE)
    age = np.clip(7 - income + rng.integers(-1, 3, PEOPLE), 0, 7)
    return np.stack([income, age, np.minimum(rng.integers(0, 4, PEOPLE) * (income > 1), 2)], axis=1)


def planned(folder: Path, services: int, epsilon: str = "6") -> Path:
    (folder / "c.yaml").write_text(catalog_text(services, epsilon))
    write_plan(folder / "c.yaml", folder / "plan.json", PEOPLE)
    return folder / "plan.json"


def reported(sheet: Path, said: np.ndarray, seed: int) -> list[Path]:
    """Each service's spool, in an order of its own, under the people's pseudonyms."""
    rng, files = np.random.default_rng(seed), []
    held = read_sheet(sheet)
    assert held is not None
    for column, (name, plan) in enumerate(held.plans.items()):
        reports = simulate_reports(plan, one_row_each(said[:, [column]]), rng)
        order = rng.permutation(len(reports)).tolist()
        files.append(sheet.with_name(f"{name}.{seed}.parquet"))
        write_spool(files[-1], [reports[i] for i in order], [f"person {i}" for i in order])
    return files


def collected(sheet: Path, files: list[Path], name: str = "r.dpsql") -> Collected:
    return collect(Reports(sheet, files, b"k" * 32), sheet.with_name(name), "x")


@pytest.mark.parametrize("services", by_default([2, 3], 1))
def test_reports_joined_by_pseudonym_answer_sql(tmp_path: Path, services: int) -> None:
    sheet, said = planned(tmp_path, services), people(1)
    done = collected(sheet, reported(sheet, said, 2))
    assert done.manifest.accepted == services * PEOPLE
    exact = {
        SQL if services == 3 else SQL.split(" AND dis")[0]: (said[:, 0] >= 3) & (said[:, 1] < 4) & (
            (said[:, 2] < 2) | (services == 2)
        ),
        "SELECT COUNT(*) FROM person WHERE income = 2": said[:, 0] == 2,
    }  # fmt: skip
    for sql, held in exact.items():
        found = dpsql.query(sql, release=done.path)
        error = float(np.asarray(found.stderr, dtype=float).reshape(-1)[0])
        assert 0 < error < 0.1 * PEOPLE
        assert abs(float(found.scalar()) - held.sum()) < 4.5 * error
    whole = dpsql.query("SELECT COUNT(*) FROM person", release=done.path)
    assert float(whole.scalar()) == pytest.approx(PEOPLE)
    parts = dpsql.query("SELECT income, SUM(n) FROM (SELECT income, age, COUNT(*) AS n FROM person "
                        "GROUP BY income, age) GROUP BY income ORDER BY income", release=done.path).df()  # fmt: skip
    alone = dpsql.query("SELECT income, COUNT(*) FROM person GROUP BY income", release=done.path).df()
    assert parts.iloc[:, 1].to_numpy() == pytest.approx(alone.iloc[:, 1].to_numpy(), abs=1e-3)


@pytest.mark.slow
def test_intervals_of_three_services_hold(tmp_path: Path) -> None:
    """Conjunctions over all three services, one collection after the other: 95% intervals hold 93 to 97%."""
    sheet, held, total = planned(tmp_path, 3, "9"), 0, 0
    for run in range(12):
        said = people(100 + run)
        done = collected(sheet, reported(sheet, said, 200 + run), f"{run}.dpsql")
        exact = np.zeros([6, 8, 3])
        np.add.at(exact, tuple(said.T), 1)
        release = open_release(done.path)
        values = release.connection.execute(
            "SELECT n1, n2, n3, estimate FROM node_combination_0"
        ).fetchnumpy()
        trees, model = [release.tree(a) for a in range(3)], release.reading(0)
        at = [values[f"n{i + 1}"] for i in range(3)]
        masks = [(t.lo[:, None] <= np.arange(t.hi[0])) & (np.arange(t.hi[0]) < t.hi[:, None]) for t in trees]
        true = np.einsum("abc,ia,jb,kc->ijk", exact, *[m.astype(float) for m in masks])[tuple(at)]
        error = np.sqrt(model.covariance([m[n].astype(float) for m, n in zip(masks, at, strict=True)]).noise)
        some = error > 1
        held += int((np.abs(values["estimate"] / 2**20 - true) < 1.96 * error)[some].sum())
        total += int(some.sum())
        release.close()
    assert total > 1000
    assert 0.93 <= held / total <= 0.97


def test_three_services_own_devices_write_json_lines(tmp_path: Path) -> None:
    sheet_file = planned(tmp_path, 3)
    sheet = read_sheet(sheet_file)
    assert sheet is not None
    spent = Fraction(0)
    for name, axis in AXES.items():
        plan = read_plan((tmp_path / f"plan.{name}.json").read_bytes())
        assert plan.raw == sheet.plans[name].raw
        spent += plan.epsilon
        lines = []
        for person in range(3):
            memory = Memory(tmp_path / f"{name}{person}.memory", Fraction(6), Fraction(6))
            row = {f"person.{axis}": "b" if axis == "district" else 2}
            report = memory.answer(plan, to_rows(plan, [row]), system_entropy)
            assert report is not None
            assert memory.answer(plan, to_rows(plan, [row]), system_entropy) == report  # once only
            lines.append(json.dumps({**json.loads(to_json(decode(report))), "token": f"p{person}"}))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    assert spent == sheet.epsilon == 6
    done = collected(sheet_file, [tmp_path / f"{name}.jsonl" for name in AXES])
    assert float(dpsql.query("SELECT COUNT(*) FROM person", release=done.path).scalar()) == pytest.approx(3)


def test_what_is_left_out_is_counted_and_order_does_not_matter(tmp_path: Path) -> None:
    sheet = planned(tmp_path, 3)
    said = people(3)[:50]
    files = reported(sheet, said, 4)
    report = duckdb.sql(f"SELECT report FROM '{files[0]}' LIMIT 1").fetchall()[0][0]
    odd = {
        "stranger.parquet": ([report], ["nobody else knows me"]),
        "again.parquet": ([report], ["person 7"]),
        "short.parquet": ([report[:13]], ["person 1"]),
        "far.parquet": ([report[:13] + b"\x7f"], ["person 1"]),
        "view.parquet": ([report[:11] + b"\x01" + report[12:]], ["person 1"]),
        "other.parquet": ([b"L1" + bytes(12)], ["person 1"]),
    }
    for name, (reports, tokens) in odd.items():
        write_spool(tmp_path / name, reports, tokens)
    write_spool(tmp_path / "bare.parquet", [report])
    every = [*files, *(tmp_path / name for name in [*odd, "bare.parquet"]), files[0]]
    first, second = collected(sheet, every, "a"), collected(sheet, every[::-1], "b")
    assert first.manifest == second.manifest
    assert first.manifest.accepted == 150
    assert first.manifest.files == len(every) - 1
    assert first.manifest.rejected == {
        "another plan": 1,
        "no pseudonym": 1,
        "no such view": 1,
        "pseudonym not at every service": 1,
        "repeated pseudonym": 1,
        "too short": 1,
        "value out of range": 1,
    }
    a, b = (
        dpsql.query("SELECT age, COUNT(*) FROM person GROUP BY age", release=d.path).df()
        for d in (first, second)
    )
    pd.testing.assert_frame_equal(a, b)


def test_two_services_alone_of_three_are_not_enough(tmp_path: Path) -> None:
    sheet = planned(tmp_path, 3)
    files = reported(sheet, people(3)[:50], 4)
    with pytest.raises(DataError, match="every service"):
        collected(sheet, files[:2])
    with pytest.raises(InterfaceError, match="one run"):
        collect(Reports(sheet, files, b"k", state=tmp_path / "state"), tmp_path / "r", "x")
    with pytest.raises(InterfaceError, match="one round"):
        write_plan(tmp_path / "c.yaml", tmp_path / "p.json", 10, after=Reports(sheet, files, b"k"))


def test_a_sheet_that_spends_more_or_is_damaged_is_refused(tmp_path: Path) -> None:
    sheet = planned(tmp_path, 3)
    body = json.loads(sheet.read_bytes())
    (tmp_path / "more.json").write_text(json.dumps({**body, "epsilon": "5"}))
    with pytest.raises(PrivacyError, match="more than"):
        read_sheet(tmp_path / "more.json")
    (tmp_path / "less.json").write_text(json.dumps({**body, "plans": {"bank": "{}"}}))
    with pytest.raises(OperationalError, match="damaged"):
        read_sheet(tmp_path / "less.json")
    assert read_sheet(tmp_path / "plan.bank.json") is None


def test_the_command_line_warns_and_the_release_says_what_it_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = people(5)
    frame = pd.DataFrame({"id": np.arange(PEOPLE), "income": said[:, 0], "age": said[:, 1]})
    frame["district"] = np.array(["a", "b", "c"])[said[:, 2]]
    duckdb.sql(f"COPY frame TO '{tmp_path / 'person.parquet'}'")
    catalog = tmp_path / "c.yaml"
    catalog.write_text(catalog_text(3))

    def run(*words: object) -> str:
        with pytest.raises(SystemExit) as done:
            main([str(word) for word in words])
        assert done.value.code == 0
        return capsys.readouterr().out

    told = run("collection-plan", catalog, "-o", tmp_path / "p.json")
    assert "p.shop.json for shop" in told
    assert "WARNING: joined over 3 services" in told
    run("simulate", catalog, "-o", tmp_path / "r.parquet", "--plan", tmp_path / "s.json", "--seed", 1)
    run("collect", tmp_path / "s.json", tmp_path / "r.parquet", "-o", tmp_path / "r.dpsql")
    assert "simulated" in run("query", tmp_path / "r.dpsql", SQL)
    release = open_release(tmp_path / "r.dpsql")
    local, privacy = release.meta.local, release.meta.privacy
    release.close()
    assert local.services == {"bank": "2", "clinic": "2", "shop": "2"}
    assert (privacy.epsilon, privacy.trust) == ("6", "local")
    assert min(local.times_the_variance_of_a_device_join.values()) > 10


def test_more_services_cost_more(tmp_path: Path) -> None:
    factors = []
    for services in (2, 3):
        folder = tmp_path / str(services)
        folder.mkdir()
        sheet = read_sheet(planned(folder, services, "1"))
        assert sheet is not None
        factors.append(penalty(sheet, tuple(range(services))))
    assert factors[0] > 10
    assert factors[1] > 10 * factors[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.replace("shop: {axes: [person.district]}", "shop: {axes: [person.age]}"), "exactly one"),
        (lambda t: t.replace(", shop: {axes: [person.district]}", ""), "exactly one"),
        (lambda t: t.replace("[person.district]}", "[person.district, person.sex]}"), "no view has"),
        (lambda t: t.replace("[person.district]}", "[]}"), "asks nothing"),
        (lambda t: t.replace("[person.district]}", "[person.district], share: 1/2}"), "adding up to 1"),
        (lambda t: t.replace("shop:", "../shop:"), "names a plan file"),
        (lambda t: t.replace("{services: {", "{tau: 2, services: {"), "alone"),
        (lambda t: t.replace("{services: {", "{shuffled: true, services: {"), "alone"),
        (
            lambda t: t.replace("cuts:", "measure: true, cuts:").replace("[count]", "[count, person.age]"),
            "in 0 services",
        ),
        (
            lambda t: t.replace("[person.district]}", "[person.district], measures: [person.age]}"),
            "no view has the measure",
        ),
        (
            lambda t: t.replace("{services: {", "{row_bit_cap: estimate, services: {"),
            "write a number of rows",
        ),
    ],
)
def test_services_that_do_not_fit_are_refused(change: Callable[[str], str], says: str) -> None:
    text = change(catalog_text(3))
    assert text != catalog_text(3)
    with pytest.raises(CatalogError, match=says):
        parse_catalog(text)


def test_people_with_several_rows_are_refused(tmp_path: Path) -> None:
    text = catalog_text(3).replace("unit: person.id", "unit: person.income")
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(CatalogError):
        write_plan(tmp_path / "c.yaml", tmp_path / "p.json", 10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["GRR", *(pytest.param(name, marks=pytest.mark.slow) for name in ("OUE", "OLH"))]
)
def test_scores_are_unbiased_and_as_noisy_as_said(name: str) -> None:
    """Over all items, evenly: mean 1 at the own item and 0 elsewhere, covariance v (I - J/D) given the item."""
    rng, own = np.random.default_rng(7), 3 << 20
    tool = oracle_named(name, 6, own, 4 if name == "OLH" else 0)
    items = np.repeat(np.arange(6), 20_000)
    support = tool.supports(tool.packed(tool.payloads(items, rng)))
    scores = item_scores(tool, support)
    assert scores.sum(axis=1) == pytest.approx(1)
    truth = items[:, None] == np.arange(6)
    off = scores - truth
    means = np.array([off[items == i].mean(axis=0) for i in range(6)])
    assert np.abs(means).max() < 5 * np.sqrt(tool.item_noise / 20_000)
    spread = sum(off[items == i].T @ off[items == i] for i in range(6)) / len(items)
    wanted = tool.item_noise * (np.eye(6) - 1 / 6)
    assert np.abs(spread - wanted).max() < 0.04 * tool.item_noise
    for size in range(1, 6):  # a set and its complement are equally noisy
        chosen = np.isin(np.arange(6), list(itertools.islice(range(6), size)))
        assert scores[:, chosen].sum(axis=1) == pytest.approx(1 - scores[:, ~chosen].sum(axis=1))
