"""What `python -m tests.same_release` compares, on tables of a few rows: each kind of difference is found and named."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from dpsql.matrices.model import IdentityVariance
from dpsql.noise import ZeroNoise
from dpsql.noise.knorm import TreeNoise
from tests.release_fixture import make_rows, write_fixture
from tests.same_release import __main__ as tool
from tests.same_release.driver import RELEASE, CountedZeroNoise, covariances, questions_of

META = {"release_id": "id", "spends": [["demand.count", "1/2", "epsilon"]], "catalog": {"views": {"a.b": 1}}}


def made(
    out: Path, name: str, meta: dict[str, Any] | None = None, rows: str = "(0, 5, 1.0), (1, 7, 2.0)"
) -> Path:
    """A folder as a driver leaves it."""
    out.mkdir(parents=True)
    with duckdb.connect(str(out / "release.dpsql")) as connection:
        connection.execute("CREATE TABLE meta (key VARCHAR, value VARCHAR)")
        for key, value in {**META, "release_id": name, "note": f"made as {name}", **(meta or {})}.items():
            connection.execute("INSERT INTO meta VALUES (?, ?)", [key, json.dumps(value)])
        connection.execute("CREATE TABLE measurement_0 (r1 INTEGER, value BIGINT, variance DOUBLE)")
        connection.execute(f"INSERT INTO measurement_0 VALUES {rows}")
    (out / "scales.json").write_text(json.dumps({"laplace 1/2": 4}))
    return out


def difference(folder: Path, tolerance: float = 0.0, **changes: Any) -> str:
    with pytest.raises(tool.Difference) as found:
        tool.compare(made(folder / "before", "one"), made(folder / "now", "two", **changes), tolerance)
    return str(found.value)


def test_the_same_release_under_another_id_and_in_another_order_is_the_same(tmp_path: Path) -> None:
    now = made(tmp_path / "now", "two", rows="(1, 7, 2.0), (0, 5, 1.0)")
    tool.compare(made(tmp_path / "before", "one"), now, 0.0)


def test_another_number_is_named_with_its_row(tmp_path: Path) -> None:
    told = difference(tmp_path, rows="(0, 5, 1.0), (1, 8, 2.0)")
    assert "measurement_0: 1 of 2 rows differ, first value 7 before, 8 now" in told and "r1 1" in told


def test_a_row_that_stands_twice_differs_from_one_that_stands_once(tmp_path: Path) -> None:
    assert "rows differ" in difference(tmp_path, rows="(0, 5, 1.0), (0, 5, 1.0)")
    assert "2 rows before, 3 now" in difference(
        tmp_path / "more", rows="(0, 5, 1.0), (1, 7, 2.0), (1, 7, 2.0)"
    )


def test_floats_may_differ_by_the_tolerance_and_integers_may_not(tmp_path: Path) -> None:
    close = "(0, 5, 1.000000001), (1, 7, 2.0)"
    assert "1e-09 apart" in difference(tmp_path, rows=close)
    tool.compare(tmp_path / "before", tmp_path / "now", 1e-8)
    assert "value 5 before, 6 now" in difference(
        tmp_path / "i", tolerance=0.5, rows="(0, 6, 1.0), (1, 7, 2.0)"
    )


def test_meta_and_noise_scales_are_compared_value_by_value(tmp_path: Path) -> None:
    changed = [["demand.count", "1/3", "epsilon"]]
    assert 'spends[0][1]: "1/2" before, "1/3" now' in difference(tmp_path, meta={"spends": changed})
    again = made(tmp_path / "scales", "three")
    (again / "scales.json").write_text(json.dumps({"laplace 1/4": 4}))
    with pytest.raises(tool.Difference, match=r"scales\.json: laplace 1/2 only before"):
        tool.compare(tmp_path / "before", again, 0.0)


def test_a_key_renamed_on_purpose_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"catalog": {"measures": {"a.b": 1}}}
    assert "catalog: views only before" in difference(tmp_path, meta=now)
    monkeypatch.setitem(tool.RENAMED_META, "catalog.views", "catalog.measures")
    tool.compare(tmp_path / "before", tmp_path / "now", 0.0)


def test_scales_are_counted_as_laws(tmp_path: Path) -> None:
    first, second = CountedZeroNoise(), CountedZeroNoise()
    first.laplace(np.array([[1, 2], [2, 4]]), 8)
    second.laplace(np.array([2, 4]), 16)
    second.laplace(np.array([4, 8]), 16)
    assert first.draws == second.draws == {"laplace 1/8": 1, "laplace 1/4": 2, "laplace 1/2": 1}
    first.gaussian(Fraction(9, 2), 3)
    assert first.draws != second.draws and first.draws["gaussian 9/2"] == 3


def test_every_catalog_is_asked_something() -> None:
    today = tool.Tree(tool.ROOT, Path())
    asked = {name: questions_of(tool.HERE / "questions.sql", name) for name in tool.catalogs(today)}
    assert [name for name, questions in asked.items() if not questions] == []


def test_every_draw_of_a_source_is_counted() -> None:
    """A kind of draw that the driver does not know would leave its catalogs out of the comparison."""
    draws = {name for name in dir(ZeroNoise) if not name.startswith("_")}
    assert draws <= {*dir(CountedZeroNoise), "insecure"}
    counted = CountedZeroNoise()
    tree = TreeNoise((2,), (1, 2), 2, (3,))
    assert counted.trees(tree, np.ones((1, 5, 2), np.int64)).sum() == 10
    assert counted.draws == {"trees [2] ['1/2', '1'] over [3]": 5}


def test_a_planted_difference_of_one_variance_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_fixture(tmp_path / RELEASE, make_rows())
    before = covariances(tmp_path)
    assert before == covariances(tmp_path) and len(before) > 4
    sound = IdentityVariance.quadratic

    def planted(model: IdentityVariance, masks: Any) -> Any:
        return sound(model, masks) * np.where(np.sum(masks, axis=-1) > 60, 1 + 1e-12, 1.0)

    monkeypatch.setattr(IdentityVariance, "quadratic", planted)
    now = covariances(tmp_path)
    for folder, found in (("before", before), ("now", now)):
        (made(tmp_path / folder, folder) / "covariances.json").write_text(json.dumps(found))
    with pytest.raises(tool.Difference, match="covariances"):
        tool.compare(tmp_path / "before", tmp_path / "now", 0.0)
