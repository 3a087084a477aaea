"""What a catalog does not ask for takes no part in its publish; what it asks for takes part in every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpsql.catalog import Catalog, load_catalog
from dpsql.central import bounding, hybrid
from dpsql.central.bounding import OpenSource
from dpsql.central.central import publish_release
from dpsql.central.planned import ReleasePlan
from dpsql.engines.engine import Engine
from dpsql.noise import ZeroNoise
from dpsql.release.reports import ReportedMeta
from dpsql.release.write import ReleaseBuilder
from tests.releases import write_catalog

CATALOG = """
dpsql: 1
name: plain
source: {kind: parquet, root: ROOT, tables: {sale: sale.parquet}}
ledger: ROOT/ledger
privacy: {lineage: plain, cap: 9, unit: row, epsilon: 1.0}
tables: {sale: {role: fact, columns: {day: {type: int, lower: 0, upper: 30}}}}
views: {days: {of: sale, axes: [sale.day], measures: [count]}}
"""

STEPS = ["counted", "attach", "planned", "released"]


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
def test_a_plain_publish_calls_no_supplement(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("attach_reports", "with_squares", "draw_squares", "invert_channel", "inner_catalog"):
        monkeypatch.setattr(hybrid, name, never)
    for name in ("draw_people", "settle_table", "placed_table"):
        monkeypatch.setattr(bounding, name, never)
    publish(catalog, tmp_path)
    assert (tmp_path / "r.dpsql").exists()


class Noted:
    """A supplement that changes nothing and notes its steps."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def asked(self, catalog: Catalog) -> bool:
        return catalog.name == "plain"

    def counted(self, catalog: Catalog) -> Catalog:
        self.steps.append("counted")
        return catalog

    def attach(self, catalog: Catalog, engine: Engine) -> list[ReportedMeta]:
        self.steps.append("attach")
        return []

    def planned(self, plan: ReleasePlan, counted: Catalog) -> ReleasePlan:
        self.steps.append("planned")
        return plan

    def released(
        self, content: ReleaseBuilder, scan: OpenSource, catalog: Catalog, attached: list[ReportedMeta]
    ) -> ReleaseBuilder:
        self.steps.append("released")
        return content


@pytest.mark.usefixtures("publishes")
def test_a_supplement_that_is_asked_for_takes_part_in_every_step(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Noted()
    monkeypatch.setattr(hybrid, "SUPPLEMENTS", (*hybrid.SUPPLEMENTS, noted))
    publish(catalog, tmp_path)
    assert noted.steps == STEPS
