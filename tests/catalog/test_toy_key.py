"""A new catalog key is a field, its rule, and an example with a mistake: no other file is touched.

The toy is `longest` of a view, the most axes that it may have. It is read, refused, stored in the release, read back by
an audit, and described in the reference and the schema.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import duckdb
import pytest
from pydantic import Field, model_validator

from docs import catalog_keys, make_reference
from dpsql import api
from dpsql.catalog import catalog, load_catalog, model
from dpsql.central.central import publish_release
from dpsql.errors import CatalogError
from dpsql.noise import ExactNoise, os_entropy
from dpsql.release import open_release

TEXT = """
dpsql: 1
name: toys
source: {kind: parquet, root: ROOT, tables: {sale: sale.parquet}}
ledger: ROOT/ledger
privacy: {lineage: toys, cap: 9, unit: row, epsilon: 1}
tables:
  sale: {role: fact, columns: {day: {type: int, lower: 0, upper: 6}, town: {type: string, categories: [a, b]}}}
views:
  days: {of: sale, axes: [sale.day, sale.town], longest: 2}
"""


class View(model.View):
    """What is measured together."""

    longest: int | None = Field(None, ge=1, le=8, description="most axes that the view may have")

    @model_validator(mode="after")
    def _short_enough(self) -> Self:
        if self.longest is not None and len(self.axes) > self.longest:
            raise ValueError(f"the view has {len(self.axes)} axes; raise `longest`, or remove an axis")
        return self


class Catalog(catalog.Catalog):
    """The catalog with the toy's views."""

    views: dict[str, View] = Field(default_factory=dict, description="what is measured")  # type: ignore[assignment]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The catalog's file, where the model has the key."""
    monkeypatch.setattr(catalog, "Catalog", Catalog)
    file = tmp_path / "toys.yaml"
    file.write_text(TEXT.replace("ROOT", str(tmp_path)))
    return file


@pytest.mark.parametrize(
    ("longest", "refusal"),
    [
        ("1", "10: views.days: the view has 2 axes; raise `longest`, or remove an axis"),
        ("[2]", "10: views.days.longest: "),
        ("0", "10: views.days.longest: `0`: "),
    ],
)
def test_a_mistake_is_refused_with_its_line_and_key(toy: Path, longest: str, refusal: str) -> None:
    toy.write_text(toy.read_text().replace("longest: 2", f"longest: {longest}"))
    with pytest.raises(CatalogError) as caught:
        load_catalog(toy)
    assert str(caught.value).startswith(f"{toy}:{refusal}")


def test_without_the_field_the_key_is_unknown(tmp_path: Path) -> None:
    file = tmp_path / "toys.yaml"
    file.write_text(TEXT.replace("ROOT", str(tmp_path)))
    with pytest.raises(CatalogError, match="longest"):
        load_catalog(file)


@pytest.mark.usefixtures("publishes")
def test_a_release_stores_the_key_and_an_audit_reads_it_back(toy: Path) -> None:
    rows = "SELECT i % 7 AS day, ['a', 'b'][1 + i % 2] AS town FROM range(90) t(i)"
    duckdb.connect().execute(f"COPY ({rows}) TO '{toy.parent}/sale.parquet'")
    target = toy.with_suffix(".dpsql")
    publish_release(load_catalog(toy), target, noise=ExactNoise(os_entropy()), key=bytes(32))
    release = open_release(target)
    assert release.meta.catalog["views"]["days"]["longest"] == 2
    release.close()
    audit = api.audit(target, catalog=toy, samples=0)
    assert audit.held, audit.text()


def test_reference_and_schema_describe_the_key(monkeypatch: pytest.MonkeyPatch, toy: Path) -> None:
    keys = catalog_keys.KEYS
    place = keys["View"]._replace(keys={**keys["View"].keys, "longest": ("2", "1")})
    monkeypatch.setitem(keys, "View", place)  # type: ignore[arg-type]
    monkeypatch.setattr(make_reference, "Catalog", Catalog)
    page = make_reference.catalog_page()
    (row,) = [line for line in page.splitlines() if line.startswith("| `longest` |")]
    assert row.endswith("| most axes that the view may have | `2` |")
    assert (
        catalog_keys.refusal(place, "longest", "1")
        == "views.demand: the view has 2 axes; raise `longest`, or remove an axis"
    )
    view = make_reference.catalog_schema()["$defs"]["View"]["properties"]["longest"]
    assert view["description"] == "most axes that the view may have"
