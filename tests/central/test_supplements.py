"""What a catalog does not ask for takes no part in its publish."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpsql.catalog import Catalog, load_catalog
from dpsql.central import bounding, central, hybrid
from dpsql.central.central import publish_release
from dpsql.noise import ZeroNoise
from tests.releases import write_catalog

CATALOG = """
privacy: {lineage: plain, cap: 9, unit: row, epsilon: 1.0}
tables: {sale: {role: fact, columns: {day: {type: int, lower: 0, upper: 30}}}}
views: {days: {of: sale, axes: [sale.day], measures: [count]}}
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return load_catalog(
        write_catalog(tmp_path, CATALOG, {"sale": "SELECT i % 31 AS day FROM range(200) t(i)"})
    )


def publish(catalog: Catalog, folder: Path) -> None:
    publish_release(catalog, folder / "r.dpsql", noise=ZeroNoise(), key=b"k" * 32)


def never(*_: Any, **__: Any) -> Any:
    pytest.fail("nobody asked for this")


@pytest.mark.usefixtures("publishes")
def test_a_plain_publish_calls_no_supplement(catalog, tmp_path, monkeypatch):
    for name in ("attach_reports", "with_squares", "draw_squares", "invert_channel", "inner_catalog"):
        for module in (central, hybrid):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, never)
    for name in ("draw_people", "settle_table", "placed_table"):
        monkeypatch.setattr(bounding, name, never)
    publish(catalog, tmp_path)
    assert (tmp_path / "r.dpsql").exists()
