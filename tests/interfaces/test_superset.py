"""What Superset sends is answered; the whole of Superset is driven by tests/superset/drive.py."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import dpsql
from dpsql.interfaces.python.dbapi import split

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
SENT = split((ROOT / "tests/golden/superset/sent.sql").read_text(encoding="utf-8"))[0]
SHAPES = [
    (3, ["region", "n", "e"]),  # a limited statement leaves out what the catalog adds: (other)
    (3, ["category", "n", "low", "high"]),
    (6, ["sold_on", "n", "low", "high"]),
]


@pytest.mark.parametrize(("statement", "shape"), list(zip(SENT, [*SHAPES, SHAPES[1]], strict=True)))
def test_sent_statements_are_answered(
    shop: Path, statement: tuple[str, bool], shape: tuple[int, list[str]]
) -> None:
    with dpsql.connect(shop) as connection:
        result = connection.execute(statement[0]).result
    assert (len(result.rows), list(result.columns)) == shape
    if "low" in result.columns:
        for _, n, low, high in result.rows:
            assert low < n < high


def test_the_page_and_the_drive_do_the_same() -> None:
    """docs/interfaces.md tells people to install and type what `python -m tests.superset` does."""
    page, drive, install = (
        (ROOT / name).read_text("utf-8")
        for name in ("docs/interfaces.md", "tests/superset/drive.py", "tests/superset/__main__.py")
    )
    told = dict(re.findall(r"^ +- `(\w+)`: `(.+)`$", page, re.M))
    typed = dict(re.findall(r'^        \("(\w+)", "(.+)"\),$', drive, re.M))
    assert told == typed and len(told) == 3
    for wanted in ("'apache-superset==6.1.*'", "rich", "cachetools", "'flask-caching<2.4'"):
        assert wanted in next(line for line in page.splitlines() if "pip install '" in line)
        assert '"' + wanted.strip("'") + '"' in install
    asked = [statement.text for statement in SENT]
    assert all(any(sql.partition("(")[0] in text for text in asked) for sql in told.values())
    assert "\ninterfaces\n" in (ROOT / "docs/index.md").read_text("utf-8"), "the page is reached"


def test_the_entry_points_name_what_there_is() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points["superset.db_engine_specs"] == {"dpsql": "dpsql.interfaces.python.superset:DpsqlEngineSpec"}
    assert "class DpsqlEngineSpec(" in (ROOT / "dpsql/interfaces/python/superset.py").read_text()
    assert points["sqlalchemy.dialects"]["dpsql"] == "dpsql.interfaces.python.sqlalchemy:DpsqlDialect"
