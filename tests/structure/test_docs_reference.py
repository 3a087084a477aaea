"""docs/catalog.md, docs/api.md and the lists of docs/sql.md say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.catalog_keys import KEYS, Place, refusal, whole
from docs.make_reference import (
    DOCS,
    EXAMPLE,
    api_page,
    audit_page,
    catalog_page,
    engines_page,
    fields_of,
    sql_page,
    with_paths,
)
from dpsql.catalog import load_catalog
from dpsql.catalog.base import Model
from dpsql.catalog.catalog import Catalog, parse_catalog
from dpsql.errors import CatalogError

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("catalog.md", catalog_page),
        ("api.md", api_page),
        ("sql.md", sql_page),
        ("engines.md", engines_page),
        ("audit.md", audit_page),
    ],
)  # fmt: skip
def test_the_page_is_in_step(name: str, page: object) -> None:
    assert callable(page)
    shipped = (DOCS / name).read_text(encoding="utf-8")
    assert shipped == page(), f"run make docs: docs/{name} is behind the code"


def test_every_key_of_a_catalog_has_a_description() -> None:
    silent = [f"{m.__name__}.{key}" for m in with_paths(Catalog, "", {}) for key, field in m.model_fields.items()
              if not field.description]  # fmt: skip
    assert silent == []


@pytest.mark.parametrize("model", with_paths(Catalog, "", {}), ids=lambda model: model.__name__)
def test_every_key_has_an_example_that_is_taken_and_a_mistake_that_is_not(model: type[Model]) -> None:
    place = KEYS[model.__name__]
    assert set(place.keys) == {field.alias or name for name, field in fields_of(model).items()}
    for key, (example, mistake, *_) in place.keys.items():
        parse_catalog(whole(place, key, example))
        assert refusal(place, key, mistake)


def test_an_example_that_is_wrong_is_found() -> None:
    place = Place("central", "privacy", {"cap": ("-1", "4")})
    with pytest.raises(CatalogError, match="`cap` must be above 0"):
        parse_catalog(whole(place, "cap", "-1"))
    with pytest.raises(AssertionError, match="is taken"):
        refusal(place, "cap", "4")


def test_the_example_is_a_catalog(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(EXAMPLE, encoding="utf-8")
    assert load_catalog(file).shares == {"demand": 1}
