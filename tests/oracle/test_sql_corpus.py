"""The 56 statements of the SQL corpus over their real stars, with zero noise: equal to plain SQL or refused.

The raw answers hold at most 60 rows, so a subset is compared; groups of the domain that no row falls into are
extra rows here. A cut bin is compared within its model bound.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import Error
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ZeroNoise
from dpsql.results.result import Result
from tests.releases import published, write_catalog
from tests.thinned import by_default

CATALOGS = Path(__file__).resolve().parents[2] / "catalog"
NAMES = {"bf": "blackfriday", "taxi": "nyc_taxi"}

REFUSED = {
    "row-level": "contains no rows",
    "mondrian-agg-crossjoin-gender-states": "COUNT(DISTINCT",
    "mondrian-agg-distinct-count-quarters": "COUNT(DISTINCT",
    "mondrian-distinct-count": "COUNT(DISTINCT",
}
"""Statements that are refused, and a part of the reason."""

BOUNDS = {"tableau-minmax-axis", "tableau-domain-list"}
"""Answered from the catalog: its bounds, or the values that some product has, instead of those in the rows."""


@lru_cache(maxsize=8)
def answerer(dataset: str, data: Path, folder: Path) -> ReleaseEngine:
    """The dataset's catalog, published without noise and with a budget so large that AVG is never NULL."""
    name = NAMES.get(dataset, dataset)
    text = (CATALOGS / f"{name}.yaml").read_text(encoding="utf-8")
    text = re.sub(r"epsilon: [\d.]+", "epsilon: 50", text).replace("${DPSQL_DATA}", str(data))
    return published(write_catalog(folder / name, text), ZeroNoise())


def statements(data: Path) -> list[tuple[str, str, str]]:
    """(id, dataset, text) of every statement."""
    found = []
    for path in sorted((data / "sql").glob("*/*.sql")):
        text = path.read_text(encoding="utf-8")
        header = dict(re.findall(r"-- (id|dataset): (.*)", text))
        found.append((header["id"].strip(), header["dataset"].strip(), text))
    return found


def plain(value: Any) -> Any:
    """A value as the JSON of exact answers writes it."""
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()[:10]
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d[T ]00:00:00", value):
        return value[:10]
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def holds(result: Result, want: list[Any]) -> bool:
    """Whether some row of the answer equals the exact one, numbers within the model bound."""
    for row, bounds in zip(result.rows, result.model_bound, strict=True):
        pairs = zip(map(plain, row), map(plain, want), bounds, strict=True)
        if all(a == b or near(a, b, bound) for a, b, bound in pairs):
            return True
    return False


def near(value: Any, exact: Any, bound: float | None) -> bool:
    if not isinstance(value, float) or not isinstance(exact, float):
        return False
    return math.isclose(value, exact, rel_tol=1e-6, abs_tol=1e-6 + (bound or 0.0))


def check(name: str, dataset: str, text: str, exact: dict[str, Any], data: Path, folder: Path) -> None:
    if name in REFUSED:
        with pytest.raises(Error, match=re.escape(REFUSED[name])):
            answerer(dataset, data, folder).query(text)
        return
    result = answerer(dataset, data, folder).query(text)
    assert result.columns == tuple(exact["columns"]), name
    # no error is NULL where a value is linear or a ratio
    assert not result.undefined, (
        name,
        result.undefined,
    )
    if name in BOUNDS:
        assert result.rows, name
        return
    assert len(result.rows) >= min(exact["nrows"], 60), name
    for want in exact["rows"]:
        assert holds(result, want), (name, want, result.rows[:5])


SETS = ("foodmart", "chinook", "adult", "northwind", "bf", "taxi", "online_retail", "ssb")
"""The first has half of the statements, and all kinds of them."""


@pytest.mark.parametrize("dataset", [SETS[0], SETS[1], *by_default(SETS[2:], 0)])
def test_corpus(shared_data: Path, tmp_path: Path, dataset: str) -> None:
    lines = (shared_data / "sql" / "exact_answers.jsonl").read_text(encoding="utf-8").splitlines()
    exact = {entry["id"]: entry for entry in map(json.loads, lines)}
    listed = [each for each in statements(shared_data) if each[1] == dataset]
    assert listed
    for name, _, text in listed:
        check(name, dataset, text, exact[name], shared_data, tmp_path)


def test_every_statement_is_of_a_set(shared_data: Path) -> None:
    assert {dataset for _, dataset, _ in statements(shared_data)} == {*SETS}
