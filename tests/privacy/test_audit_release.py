"""The offline audit passes what publishing writes and finds every kind of tampering planted here."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpsql import api
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.curator.audit import AuditReport, audit_release
from dpsql.errors import ReleaseError
from dpsql.ledger.files import file_hash
from dpsql.mechanisms.continual import spectral
from dpsql.noise import ExactNoise, Noise, ZeroNoise, insecure_test_entropy, os_entropy
from dpsql.release import open_release
from tests.central import test_blocks_release as planes
from tests.command import dpsql_command
from tests.releases import write_catalog
from tests.stream_shop import CATALOG as STREAM_CATALOG
from tests.stream_shop import StreamShop, make_stream_shop
from tests.thinned import by_default

CATALOG = """
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
    "delta", by_default(["delta: 1e-6", "delta: 0", "delta: 0, neighbours: replace_one"], 1)
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


@pytest.mark.parametrize("statement", by_default(REFUSED, 3))
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


@pytest.mark.parametrize("statement", by_default(TAMPERING, 5))
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
    report = api.audit(release, catalog=changed, samples=0)
    assert "the catalog is the one it was made from" in failures(report)


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


@pytest.mark.parametrize("noise", [Halved(), ZeroNoise()])
def test_noise_of_the_wrong_size_is_found_in_one_release(tmp_path: Path, noise: Noise):
    """Rows beyond the leaves disagree by as much as the noise is large."""
    report = audited(publish(tmp_path, noise))
    assert any("promised size" in what for what in failures(report)), report.text()


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


# An audit makes a release by blocks again from its noisy integers, and finds what was changed.


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {name: tmp_path_factory.mktemp(name) for name in ("sparse", "full")}
    return {
        name: planes.publish(planes.city(folders[name], planes.SPARSE if name == "sparse" else planes.FULL))
        for name in folders
    }


def blocks_failures(path: Path) -> set[str]:
    """Of all but the entropy, which these tests repeat."""
    report = audit_release(path, ExactNoise(insecure_test_entropy(1)), catalog=None, samples=0)
    return {check.what for check in report.checks if check.held is False and "entropy" not in check.what}


@pytest.mark.parametrize("name", ["sparse", "full"])
def test_a_fresh_release_passes_and_nothing_is_left_out(releases: dict[str, Path], name: str):
    report = audit_release(releases[name], ExactNoise(insecure_test_entropy(1)), catalog=None, samples=0)
    assert blocks_failures(releases[name]) == set()
    assert "what noisy numbers chose follows from them" in {check.what for check in report.checks}
    assert not any(check.what.startswith("numbers of") for check in report.checks)


LAST = "UPDATE measurement_0 SET value = value + 500 WHERE r1 = (SELECT max(r1) FROM measurement_0)"
BUDGETS = "budgets follow from what noisy numbers chose"
CHOSEN = "what noisy numbers chose follows from them"


@pytest.mark.parametrize(
    ("name", "change", "found"),
    [
        ("sparse", "UPDATE measurement_0 SET budget = budget * 2 WHERE r1 = 3", BUDGETS),
        ("sparse", LAST, CHOSEN),
        ("sparse", "UPDATE variance_2 SET within_a = within_a / 2", CHOSEN),
        ("sparse", "UPDATE variance_3 SET noise_b = noise_b / 2", CHOSEN),
        ("sparse", "UPDATE node_combination_1 SET estimate = estimate + 99999999 WHERE n1 = 9 AND n2 = 9", CHOSEN),
        ("full", "UPDATE measurement_1 SET value = value + 90000 WHERE r1 = 7", CHOSEN),
    ],
)  # fmt: skip
def test_what_was_changed_is_found(releases, tmp_path, name, change, found):
    path = changed(releases[name], tmp_path, change)
    assert found in blocks_failures(path)


def test_a_line_of_another_length_is_found(releases: dict[str, Path], tmp_path: Path):
    """One more integer could carry anything."""
    line = "INSERT INTO measurement_0 SELECT max(r1) + 1, 42, max(budget) FROM measurement_0"
    path = changed(releases["sparse"], tmp_path, line)
    assert blocks_failures(path) & {"rebuilt from its catalog", "readable as a release of this version"}


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE variance_2 SET parent = 1000000 WHERE rowid = 5",
        "UPDATE variance_2 SET parent = rowid WHERE rowid = 5",
        "UPDATE variance_2 SET lo1 = -3 WHERE rowid = 5",
        "UPDATE variance_2 SET hi1 = lo1 WHERE rowid = 5",
    ],
)
def test_boxes_that_are_no_forest_are_refused_in_a_line(releases, tmp_path, change):
    path = changed(releases["sparse"], tmp_path, change)
    refused = pytest.raises(ReleaseError, match="variance_2 has no model")
    with closing(open_release(path, insecure=True)) as release, refused:
        release.reading(release.meta.statistics.index(next(s for s in release.statistics if 2 in s.models)))


# The offline audit of a stream holds on an honest one and finds files, numbers and charges that were tampered with.


VIEWS = "views:\n" + "".join(
    f"  {name}: {{of: sales, axes: [sales.sold_on{axis}], measures: [count]}}\n"
    for name, axis in (
        ("days", ""),
        ("by_sex", ", customer.sex"),
        ("assortment", ", {axis: product, by: [category]}"),
    )
)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> StreamShop:
    noise, text = (
        ExactNoise(insecure_test_entropy(4)),
        STREAM_CATALOG[: STREAM_CATALOG.index("views:")] + VIEWS,
    )
    shop = make_stream_shop(tmp_path_factory.mktemp("stream"), customers=100, noise=noise, text=text)
    for day in range(3):
        shop.append(day)
    return shop


def stream_audited(shop: StreamShop, directory: Path) -> AuditReport:
    noise = ExactNoise(insecure_test_entropy(1))
    return audit_release(directory, noise, catalog=load_catalog(shop.catalog), samples=0)


def test_an_honest_stream_fails_for_its_test_entropy_alone(honest: StreamShop) -> None:
    report = stream_audited(honest, honest.directory)
    assert failures(report) == {"noise from the system's entropy"}, report.text()
    assert len(report.checks) >= 11


def renamed(directory: Path, name: str) -> None:
    """Make the manifest agree with a file that was changed."""
    manifest = directory / "manifest.json"
    entry = json.loads(manifest.read_text())
    for listed in (*entry["segments"], *entry["states"], entry["base"]):
        if listed["file"] == name:
            listed["sha256"] = file_hash(directory / name)
    rewrite(manifest, json.dumps(entry))


def rewrite(path: Path, text: str) -> None:
    path.chmod(0o644)
    path.write_text(text)


def replace_segment(directory: Path, name: str, query: str) -> None:
    path = directory / "segments" / name
    rows = duckdb.sql(query.format(f"'{path}'")).df()
    path.chmod(0o644)
    duckdb.from_df(rows).write_parquet(str(path))
    renamed(directory, f"segments/{name}")


def change_segment(directory: Path) -> None:
    replace_segment(directory, "000000001.parquet", "SELECT * REPLACE (value + 1 AS value) FROM {}")


def drop_numbers(directory: Path) -> None:
    replace_segment(directory, "000000002.parquet", "SELECT * FROM {} LIMIT 1")


def change_estimates(directory: Path) -> None:
    path = directory / "states" / "000000002.duckdb"
    path.chmod(0o644)
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE node_combination_1 SET estimate = estimate + 1 WHERE n1 = 0 AND n2 = 0")
    renamed(directory, "states/000000002.duckdb")


def change_promise(directory: Path) -> None:
    path = directory / "promise.json"
    entry = json.loads(path.read_text())
    entry["spends"][0][1] = "1/100"
    rewrite(path, json.dumps(entry))
    renamed(directory, "promise.json")


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        (lambda d: (d / "notes.txt").write_text("raw"), "no file but those"),
        (lambda d: rewrite(d / "segments" / "000000000.parquet", "x"), "files as they were published"),
        (change_segment, "measurement follows"),
        (drop_numbers, "numbers only where"),
        (change_estimates, "node combination follows"),
        (change_promise, "promise is the one that was charged"),
    ],
)
def test_stream_tampering_is_found(honest, tmp_path, tamper, words):
    directory = tmp_path / honest.directory.name
    shutil.copytree(honest.directory, directory)
    tamper(directory)
    assert any(words in what for what in failures(stream_audited(honest, directory)))


@pytest.mark.parametrize("ends", ["ends: true, ", ""])
def test_rows_are_taken_from_their_integers(tmp_path, ends, monkeypatch):
    """Appends and audits replay the frozen whole numbers, however another machine would transform and round."""
    noise, text = (
        ExactNoise(insecure_test_entropy(6)),
        STREAM_CATALOG[: STREAM_CATALOG.index("views:")] + VIEWS,
    )
    text = text.replace("horizon: 365, ", f"horizon: 20, {ends}").replace("max_batches: 10", "max_batches: 2")
    shop = make_stream_shop(tmp_path, customers=60, noise=noise, text=text, delta="1e-6")
    shop.append(0)
    kept = json.loads((shop.directory / "promise.json").read_text())["strategies"]["time"]
    assert kept["kind"] == ("spectral" if ends else "endless")
    assert all(isinstance(c, int) for c in kept["strategy"]["rows"])
    monkeypatch.setattr(spectral, "causal", lambda density, length: np.ones(length))
    shop.append(1)
    assert json.loads((shop.directory / "promise.json").read_text())["strategies"]["time"] == kept
    report = stream_audited(shop, shop.directory)
    assert failures(report) == {"noise from the system's entropy"}, report.text()
