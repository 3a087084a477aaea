"""Services of people with several rows, and of measures: seed 003's setting, from the catalog to SQL."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

import dpsql
from dpsql.catalog import load_catalog
from dpsql.errors import CatalogError
from dpsql.local.joined import PARTS, joined_people, spooled_reports
from dpsql.local.run import Collected, Reports, collect, write_plan
from dpsql.local.services import predict_services, read_sheet
from dpsql.local.simulate import known_to, simulate_reports, simulate_to_files, write_spool
from dpsql.local.survey import public_axis_maker, survey_of
from dpsql.local.tallies import RespondentRows
from dpsql.progress import silent
from dpsql.release.read import open_release

CATALOG = """
dpsql: 1
name: mall
population: town
source: {kind: parquet, root: ., tables: {customer: customer.parquet, sale: sale.parquet}}
privacy: {lineage: mall, cap: 40, unit: customer.id, epsilon: 12}
collection:
  row_bit_cap: 3
  services: {registry: {axes: [customer.age]}, shop: {axes: [sale.kind], measures: [sale.paid]}}
tables:
  customer:
    role: dimension
    key: id
    private: true
    columns: {age: {type: int, lower: 0, upper: 3, cuts: {width: 1}, out_of_domain: drop}}
  sale:
    role: fact
    foreign_keys: {customer: customer}
    max_ids: 6
    columns:
      kind: {type: string, categories: [bread, milk, tea], out_of_domain: drop}
      paid: {type: int, lower: 10, upper: 50, measure: true}
views:
  both: {of: sale, axes: [customer.age, sale.kind], measures: [count, sale.paid]}
  ages: {of: sale, axes: [customer.age], measures: [count]}
"""
PEOPLE = 6_000


def buyers(seed: int, most: int = 3) -> RespondentRows:
    """Old people buy often, often tea, and cheaply; columns age and kind."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 4, PEOPLE)
    rows = np.clip(rng.integers(0, 3, PEOPLE) + (age > 1), 0, most)
    first = np.concatenate([[0], np.cumsum(rows)])
    owner = np.repeat(np.arange(PEOPLE), rows)
    kind = np.where(rng.random(owner.size) < 0.2 * age[owner], 2, rng.integers(0, 3, owner.size))
    paid = np.clip(40 - 8 * age[owner] + rng.integers(-6, 7, owner.size), 10, 50)
    return RespondentRows(first, np.stack([age[owner], kind], axis=1), paid[:, None])


def planned(folder: Path, text: str = CATALOG) -> Path:
    (folder / "c.yaml").write_text(text)
    write_plan(folder / "c.yaml", folder / "plan.json", PEOPLE)
    return folder / "plan.json"


def collected(sheet_file: Path, people: RespondentRows, seed: int, name: str = "r.dpsql") -> Collected:
    """The registry knows everybody with a row; the shop too."""
    rng, files = np.random.default_rng(seed), []
    sheet = read_sheet(sheet_file)
    assert sheet is not None
    some = np.nonzero(np.diff(people.first))[0]
    bounds = people.first[np.append(some, PEOPLE)]
    people = RespondentRows(bounds, people.leaves, people.measures)
    for service, plan in sheet.plans.items():
        reports = simulate_reports(plan, known_to(sheet, service, people), rng)
        files.append(sheet_file.with_name(f"{service}.{seed}.parquet"))
        write_spool(files[-1], reports, [f"person {i}" for i in some.tolist()])
    return collect(Reports(sheet_file, files, b"k" * 32), sheet_file.with_name(name), "x")


QUESTIONS = {
    "SELECT COUNT(*) FROM sale": lambda a, k, p: float(a.size),
    "SELECT COUNT(*) FROM sale JOIN customer ON customer = id WHERE age >= 2": lambda a, k, p: float(
        (a > 1).sum()
    ),
    "SELECT COUNT(*) FROM sale JOIN customer ON customer = id WHERE age >= 2 AND kind = 'tea'": lambda a, k, p: (
        float(((a > 1) & (k == 2)).sum())
    ),
    "SELECT SUM(paid) FROM sale": lambda a, k, p: float(p.sum()),
    "SELECT SUM(paid) FROM sale JOIN customer ON customer = id WHERE age < 2": lambda a, k, p: float(
        p[a < 2].sum()
    ),
    "SELECT AVG(paid) FROM sale JOIN customer ON customer = id WHERE kind = 'tea'": lambda a, k, p: float(
        p[k == 2].mean()
    ),
}


@pytest.mark.slow
@pytest.mark.usefixtures("no_unasked_rows")
def test_rows_sums_and_means_hold(tmp_path: Path) -> None:
    """Nothing is assumed of how rows and their number go together; 95% intervals hold about that."""
    sheet, inside, total = planned(tmp_path), 0, 0
    off: dict[str, list[float]] = {sql: [] for sql in QUESTIONS}
    for run in range(16):
        people = buyers(run)
        done = collected(sheet, people, 100 + run, f"{run}.dpsql")
        assert done.manifest.accepted == 2 * np.count_nonzero(np.diff(people.first))
        for sql, exact in QUESTIONS.items():
            found = dpsql.query(sql, release=done.path)
            error = float(np.asarray(found.stderr, dtype=float).reshape(-1)[0])
            distance = float(found.scalar()) - exact(
                people.leaves[:, 0], people.leaves[:, 1], people.measures[:, 0]
            )
            off[sql].append(distance / error)
            inside, total = inside + (abs(distance) < 1.96 * error), total + 1
    assert inside / total >= 0.9  # 96 answers; 0.95 less two errors of that
    for sql, each in off.items():
        assert abs(np.mean(each)) < 4 / np.sqrt(len(each)), sql  # no bias
        assert np.std(each) > 0.4, sql  # the bars are no wider than twice what they need be


@pytest.mark.usefixtures("publishes")
def test_parts_add_up_and_the_release_says_what_is_cut(tmp_path: Path) -> None:
    done = collected(planned(tmp_path), buyers(1, most=6), 2)
    by_age = dpsql.query(
        "SELECT age, COUNT(*) AS n FROM sale JOIN customer ON customer = id GROUP BY age ORDER BY age",
        release=done.path,
    ).df()
    both = dpsql.query(
        "SELECT age, SUM(n) AS n FROM (SELECT age, kind, COUNT(*) AS n FROM sale JOIN customer ON customer = id "
        "GROUP BY age, kind) GROUP BY age ORDER BY age",
        release=done.path,
    ).df()
    assert both.n.to_numpy() == pytest.approx(by_age.n.to_numpy(), abs=1e-3)
    whole = dpsql.query("SELECT COUNT(*) FROM sale", release=done.path)
    assert any(
        "more than 3 rows of sale counts as one with 3; the number of rows left out was not asked" in note
        for note in whole.notes
    )
    release = open_release(done.path)
    assert release.meta.privacy.rows_per_unit == {"sale": 3}
    assert release.meta.local is not None
    assert release.meta.local.tau == 3
    release.close()


def test_more_rows_and_services_are_told_to_cost_more(tmp_path: Path) -> None:
    found = []
    for cap in (1, 3):
        folder = tmp_path / str(cap)
        folder.mkdir()
        sheet_file = planned(folder, CATALOG.replace("row_bit_cap: 3", f"row_bit_cap: {cap}"))
        catalog, sheet = load_catalog(folder / "c.yaml"), read_sheet(sheet_file)
        assert sheet is not None
        survey = survey_of(catalog, public_axis_maker(catalog))
        found.append([told.error for told in predict_services(survey, sheet, PEOPLE)])
    assert found[1] == pytest.approx([3 * error for error in found[0]])


@pytest.mark.slow
def test_predictions_are_what_collections_err_by(tmp_path: Path) -> None:
    """Half of an axis of the rows, for people who all have R evenly spread rows."""
    sheet_file = planned(tmp_path)
    catalog, sheet = load_catalog(tmp_path / "c.yaml"), read_sheet(sheet_file)
    assert sheet is not None
    survey = survey_of(catalog, public_axis_maker(catalog))
    told = next(p for p in predict_services(survey, sheet, PEOPLE) if p.question == "half of customer.age")
    sql = "SELECT COUNT(*) FROM sale JOIN customer ON customer = id WHERE age < 2"
    errors = []
    for run in range(12):
        rng = np.random.default_rng(run)
        age = rng.integers(0, 4, PEOPLE)
        leaves = np.stack([np.repeat(age, 3), rng.integers(0, 3, 3 * PEOPLE)], axis=1)
        people = RespondentRows(np.arange(PEOPLE + 1) * 3, leaves, rng.integers(10, 51, (3 * PEOPLE, 1)))
        done = collected(sheet_file, people, 50 + run, f"{run}.dpsql")
        errors.append(float(dpsql.query(sql, release=done.path).scalar()) - float((leaves[:, 0] < 2).sum()))
    assert 0.5 < np.sqrt(np.mean(np.square(errors))) / (told.error * PEOPLE) < 1.6  # 12 squares: 1 +- .2


def test_rows_at_two_services_or_at_none_are_refused(tmp_path: Path) -> None:
    two = CATALOG.replace("axes: [customer.age]}, shop", "axes: [sale.kind]}, shop").replace(
        "shop: {axes: [sale.kind]", "shop: {axes: [sale.paid]"
    )
    two = two.replace("axes: [customer.age, sale.kind], measures: [count, sale.paid]",
                      "axes: [sale.kind, sale.paid], measures: [count, sale.paid]")  # fmt: skip
    two = two.replace("  ages: {of: sale, axes: [customer.age], measures: [count]}\n", "")
    two = two.replace("upper: 50, measure: true", "upper: 50, measure: true, cuts: {width: 10}")
    with pytest.raises(CatalogError, match="2 services have axes of the rows"):
        planned(tmp_path, two)
    measure = CATALOG.replace("[customer.age]}", "[customer.age], measures: [sale.paid]}").replace(
        "[sale.kind], measures: [sale.paid]", "[sale.kind]"
    )
    with pytest.raises(CatalogError, match="value of a row"):
        planned(tmp_path, measure)


@pytest.mark.usefixtures("publishes")
def test_a_simulated_collection_answers(tmp_path: Path) -> None:
    people = buyers(3)
    owner = np.repeat(np.arange(PEOPLE), np.diff(people.first))
    customers = pd.DataFrame({"id": np.arange(PEOPLE), "age": 0})
    customers.loc[owner, "age"] = people.leaves[:, 0]
    kinds = np.array(["bread", "milk", "tea"])[people.leaves[:, 1]]
    sales = pd.DataFrame({"customer": owner, "kind": kinds, "paid": people.measures[:, 0]})
    for name, frame in (("customer", customers), ("sale", sales)):
        duckdb.from_df(frame).write_parquet(str(tmp_path / f"{name}.parquet"))
    (tmp_path / "c.yaml").write_text(CATALOG)
    simulate_to_files(tmp_path / "c.yaml", tmp_path / "r.parquet", tmp_path / "p.json", 7, "", silent)
    collect(Reports(tmp_path / "p.json", [tmp_path / "r.parquet"], b"k" * 32), tmp_path / "r.dpsql", "x")
    found = dpsql.query("SELECT COUNT(*) FROM sale", release=tmp_path / "r.dpsql")
    error = float(found.components["noise"][0][0])
    assert abs(float(found.scalar()) - len(sales)) < 4.5 * error


def test_people_are_joined_part_by_part(tmp_path: Path) -> None:
    """Memory holds one part of the people; all parts together are everybody, each once."""
    sheet_file = planned(tmp_path)
    sheet = read_sheet(sheet_file)
    assert sheet is not None
    people, rng, files = buyers(4), np.random.default_rng(5), []
    for service, plan in sheet.plans.items():
        rows = RespondentRows(np.arange(PEOPLE + 1), people.leaves[:PEOPLE], people.measures[:PEOPLE])
        files.append(tmp_path / f"{service}.parquet")
        write_spool(
            files[-1],
            simulate_reports(plan, known_to(sheet, service, rows), rng),
            [str(i) for i in range(PEOPLE)],
        )
    with spooled_reports(sheet, files, b"k" * 32, silent) as spooled:
        assert not any(b"person" in file.read_bytes() for file in spooled.folder.iterdir())
        sizes = [people for people, _ in joined_people(sheet, spooled)]
        assert spooled.manifest(sheet, sum(sizes)).accepted == 2 * PEOPLE
        folder = spooled.folder
    assert sum(sizes) == PEOPLE
    assert len(sizes) == PARTS
    assert max(sizes) < 2 * PEOPLE / PARTS
    assert not folder.exists()
