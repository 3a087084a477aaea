"""The offline audit passes what publishing writes and finds every kind of tampering planted here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import pytest

from dpsql import api
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.curator.audit import AuditReport, audit_release
from dpsql.errors import ReleaseError
from dpsql.noise import ExactNoise, Noise, ZeroNoise, insecure_test_entropy, os_entropy
from tests.command import dpsql_command
from tests.releases import write_catalog
from tests.thinned import by_default

CATALOG = """
dpsql: 1
name: shop
ledger: LEDGER
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet, product: product.parquet}}
privacy: {lineage: people, cap: 99, unit: row, epsilon: 8.0, DELTA}
tables:
  product: {role: dimension, key: product_id, private: false}
  sales: {role: fact, foreign_keys: {product_id: product}, columns: {
    day: {type: int, lower: 0, upper: 5999}, amount: {type: decimal, scale: 2, lower: 0, upper: 20, measure: true}}}
views:
  days: {of: sales, axes: [{axis: sales.day, cuts: {width: 600}}, {axis: product, by: [kind]}],
    measures: [count, sales.amount], share: 0.5}
  line: {of: sales, axes: [sales.day], measures: [count], mechanism: MECHANISM, share: 0.3}
  bits: {of: sales, axes: [sales.day], measures: [count], mechanism: DATA, share: 0.2}
"""


def publish(
    folder: Path, noise: Noise, delta: str = "delta: 0", mechanism: str = "tents", data: str = "identity"
) -> Path:
    rows = "SELECT i % 200 AS day, i % 3 AS product_id, (i % 2000) / 100.0 AS amount FROM range(4000) t(i)"
    kinds = "SELECT i AS product_id, 'k' || i AS kind FROM range(3) t(i)"
    words = {"DELTA": delta, "MECHANISM": mechanism, "DATA": data}
    catalog = load_catalog(write_catalog(folder, CATALOG, {"sales": rows, "product": kinds}, **words))
    return publish_release(catalog, folder / "r.dpsql", noise=noise, key=b"k" * 32).path


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("audit"), ExactNoise(os_entropy()))


def failures(report: AuditReport) -> set[str]:
    return {check.what for check in report.checks if check.held is False}


def changed(release: Path, folder: Path, statement: str) -> Path:
    """A copy of a release in which a statement was run."""
    copy = folder / "copy.dpsql"
    shutil.copyfile(release, copy)
    with duckdb.connect(str(copy)) as connection:
        connection.execute(statement)
    return copy


def audited(path: Path, samples: int = 0) -> AuditReport:
    return audit_release(path, ExactNoise(os_entropy()), catalog=None, samples=samples)


@pytest.mark.parametrize(
    "delta",
    [
        "delta: 1e-6",
        *(pytest.param(d, marks=pytest.mark.slow) for d in ("delta: 0", "delta: 0, neighbours: replace_one")),
    ],
)
def test_a_fresh_release_passes(tmp_path: Path, delta: str):
    words = ("auto", "auto") if "1e-6" in delta else ("tents", "diffhr")
    path = publish(tmp_path, ExactNoise(os_entropy()), delta, *words)
    report = api.audit(path, catalog=tmp_path / "catalog.yaml", samples=2000)
    assert report.held, failures(report)
    assert {c.held for c in report.checks if "follow" in c.what} == {True}
    assert any("ledger" in c.what and c.held for c in report.checks)


REFUSED = {
    "CREATE TABLE extra AS SELECT 1 AS x": "an unexpected table",
    "CREATE SCHEMA s; CREATE TABLE s.extra AS SELECT 1 AS x": "a schema",
    "ALTER TABLE node ADD COLUMN x INTEGER": "node has other columns",
    "ALTER TABLE axis_0 ALTER COLUMN leaf TYPE BIGINT": "axis_0 has other columns",
    "CREATE VIEW v AS SELECT 41 AS x": "a view",
    "CREATE MACRO m() AS 41": "a macro",
    "COMMENT ON TABLE node IS 'alice was here'": "a comment",
    "INSERT INTO meta VALUES ('note', '\"alice\"')": "more than this format",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_what_is_no_release_is_not_audited(release: Path, tmp_path: Path, statement: str):
    copy = changed(release, tmp_path, statement)
    with pytest.raises(ReleaseError, match=REFUSED[statement]):
        audited(copy)


TAMPERING = {
    "UPDATE meta SET value = '\"alice\"' WHERE key = 'release_id'": "release id",
    "UPDATE meta SET value = replace(value, '\"epsilon\": \"8\"', '\"epsilon\": \"4\"') WHERE key = 'privacy'":
        "within the promise",
    "UPDATE meta SET value = replace(value, '\"mid\": 1000', '\"mid\": 1001') WHERE key = 'statistics'":
        "meta follows",
    "UPDATE meta SET value = replace(value, '\"decimal\"', '\"int\"') WHERE key = 'statistics'": "meta follows",
    "UPDATE axis_0 SET weight = weight / 2 WHERE atom = 1": "axis tables",
    "UPDATE axis_0 SET leaf = 1 WHERE atom = 0": "axis tables",
    "UPDATE node SET hi = hi + 1 WHERE id = 2 AND axis = 0": "rebuilt",
    "DELETE FROM measurement_0 WHERE r1 = 1": "as many noisy integers",
    "INSERT INTO measurement_0 VALUES (99, 99, 41, 41)": "as many noisy integers",
    "UPDATE measurement_2 SET budget = budget + 1": "row budgets",
    "UPDATE measurement_0 SET value = value + 50000 WHERE r1 = 1": "estimates follow",
    "UPDATE node_combination_2 SET estimate = estimate + 2097152 WHERE n1 = 9": "estimates follow",
    "UPDATE node_combination_2 SET nonnegative = nonnegative + 2097152 WHERE n1 = 9": "estimates follow",
    "UPDATE variance_0 SET weight = weight * 1.01": "variance models",
}  # fmt: skip


@pytest.mark.parametrize("statement", by_default(TAMPERING, 8))
def test_tampering_is_found(release: Path, tmp_path: Path, statement: str):
    report = audited(changed(release, tmp_path, statement))
    assert any(TAMPERING[statement] in what for what in failures(report)), report.text()


def test_any_change_is_found_by_the_ledger(release: Path, tmp_path: Path):
    copy = tmp_path / "copy.dpsql"
    copy.write_bytes(release.read_bytes() + b"\0")
    report = api.audit(copy, catalog=release.with_name("catalog.yaml"), samples=0)
    assert "the file is the one that was charged" in failures(report)
    changed = tmp_path / "other.yaml"
    changed.write_text(release.with_name("catalog.yaml").read_text().replace("share: 0.2", "share: 0.1"))
    assert "the catalog is the one it was made from" in failures(
        api.audit(release, catalog=changed, samples=0)
    )


class Halved:
    """A planted bug: noise of half the scale."""

    insecure = False

    def __init__(self) -> None:
        self.right = ExactNoise(insecure_test_entropy(7))

    def laplace(self, units, denominator, exact=None):
        return self.right.laplace(units * 2, denominator, exact)

    def joint(self, units, denominator, bounds, exact=None):
        return self.right.joint(units * 2, denominator, bounds, exact)

    def trees(self, tree, exact):
        return self.right.trees(tree._replace(rates=tuple(2 * rate for rate in tree.rates)), exact)

    def gaussian(self, sigma2, size, exact=None):
        return self.right.gaussian(sigma2 / 4, size, exact)


@pytest.mark.parametrize(("noise", "word"), [(Halved(), "promised size"), (ZeroNoise(), "promised size")])
def test_noise_of_the_wrong_size_is_found_in_one_release(tmp_path: Path, noise: Noise, word: str):
    """Rows beyond the leaves disagree by as much as the noise is large."""
    report = audited(publish(tmp_path, noise))
    assert any(word in what for what in failures(report)), report.text()


@pytest.mark.slow
def test_the_auditor_finds_nothing_in_noise_of_the_right_scale(release: Path):
    good = [c for c in audited(release, samples=8000).checks if c.what.startswith("auditor")]
    assert [c.held for c in good] == [True] * 3  # the two numbers of a view are one draw


def test_the_auditor_finds_a_halved_scale_in_every_view(release: Path):
    """The sampler that makes releases is run again; here it is the planted bug."""
    report = audit_release(release, Halved(), catalog=None, samples=8000)
    assert sum("auditor" in what for what in failures(report)) == 3, report.text()


@pytest.mark.slow
def test_the_auditor_finds_a_halved_sigma_in_every_view(tmp_path: Path):
    """The same under a delta, by the epsilon of each statistic's mu^2 at delta 0.1."""
    path = publish(tmp_path, ExactNoise(os_entropy()), "delta: 1e-6", "auto")
    good = [c for c in audited(path, samples=20_000).checks if c.what.startswith("auditor")]
    assert [c.held for c in good] == [True] * 4
    assert all("at delta 0.1" in c.detail for c in good)
    report = audit_release(path, Halved(), catalog=None, samples=20_000)
    assert sum("auditor" in what for what in failures(report)) == 4, report.text()


def test_test_entropy_is_found(tmp_path: Path):
    report = audited(publish(tmp_path, ExactNoise(insecure_test_entropy(1))))
    assert failures(report) == {"noise from the system's entropy"}


def test_command_line(release: Path, tmp_path: Path):
    command = ("audit", "--samples", "0", "--json")
    done = dpsql_command(*command, release)
    assert json.loads(done.stdout)["held"]
    copy = changed(release, tmp_path, "UPDATE measurement_2 SET budget = budget + 1")
    assert dpsql_command(*command, copy).returncode == 3
