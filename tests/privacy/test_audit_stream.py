"""The offline audit of a stream holds on an honest one and finds files, numbers and charges that were tampered with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpsql.catalog import load_catalog
from dpsql.curator.audit import AuditReport, audit_release
from dpsql.ledger.files import file_hash
from dpsql.mechanisms.continual import spectral
from dpsql.noise import ExactNoise, insecure_test_entropy
from tests.stream_shop import CATALOG, StreamShop, make_stream_shop

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
    noise, text = ExactNoise(insecure_test_entropy(4)), CATALOG[: CATALOG.index("views:")] + VIEWS
    shop = make_stream_shop(tmp_path_factory.mktemp("stream"), customers=100, noise=noise, text=text)
    for day in range(3):
        shop.append(day)
    return shop


def audited(shop: StreamShop, directory: Path) -> AuditReport:
    noise = ExactNoise(insecure_test_entropy(1))
    return audit_release(directory, noise, catalog=load_catalog(shop.catalog), samples=0)


def failed(report: AuditReport) -> list[str]:
    return [check.what for check in report.checks if check.held is False]


def test_an_honest_stream_fails_for_its_test_entropy_alone(honest: StreamShop) -> None:
    report = audited(honest, honest.directory)
    assert failed(report) == ["noise from the system's entropy"], report.text()
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
def test_tampering_is_found(
    honest: StreamShop, tmp_path: Path, tamper: Callable[[Path], None], words: str
) -> None:
    directory = tmp_path / honest.directory.name
    shutil.copytree(honest.directory, directory)
    tamper(directory)
    assert any(words in what for what in failed(audited(honest, directory)))


@pytest.mark.parametrize("ends", ["ends: true, ", ""])
def test_rows_are_taken_from_their_integers(
    tmp_path: Path, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends and audits replay the frozen whole numbers, however another machine would transform and round."""
    noise, text = ExactNoise(insecure_test_entropy(6)), CATALOG[: CATALOG.index("views:")] + VIEWS
    text = text.replace("horizon: 365, ", f"horizon: 20, {ends}").replace("max_batches: 10", "max_batches: 2")
    shop = make_stream_shop(tmp_path, customers=60, noise=noise, text=text, delta="1e-6")
    shop.append(0)
    kept = json.loads((shop.directory / "promise.json").read_text())["strategies"]["time"]
    assert kept["kind"] == ("spectral" if ends else "endless")
    assert all(isinstance(c, int) for c in kept["strategy"]["rows"])
    monkeypatch.setattr(spectral, "causal", lambda density, length: np.ones(length))
    shop.append(1)
    assert json.loads((shop.directory / "promise.json").read_text())["strategies"]["time"] == kept
    report = audited(shop, shop.directory)
    assert failed(report) == ["noise from the system's entropy"], report.text()
