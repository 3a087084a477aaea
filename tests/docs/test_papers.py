"""Each row of docs/papers.md names a catalog word, a definition and a test that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text("utf-8")
KEYS = (ROOT / "docs" / "catalog.md").read_text("utf-8")
ROW = re.compile(r"^\| (.+?) \| (.+?) \| `(\S+?)::(\w+)` \| `(\S+?)::(\w+)` \| (.+) \|$", re.MULTILINE)
SEEDS = {"000": 6, "001": 8, "002": 1, "003": 7, "004": 3}
"""Algorithms by their system."""


def binds(file: Path, name: str) -> bool:
    """True if a module defines or assigns a name at its top."""
    return any(
        name in {getattr(node, "name", ""), *(getattr(t, "id", "") for t in getattr(node, "targets", ()))}
        for node in ast.parse(file.read_text("utf-8")).body
    )


def is_written(word: str) -> bool:
    """True if the catalog's reference has a key, and one of its rows the value after it."""
    key, _, value = word.strip("`").partition(": ")
    rows = re.findall(rf"^\| `{key}` \|.*$", KEYS, re.MULTILINE)
    return any(value in re.split(r"\W+", row) for row in rows) if value else bool(rows)


def test_every_row_can_be_followed() -> None:
    rows = ROW.findall(PAGE)
    assert len(rows) == len(re.findall(r"^\| .*::.*\|$", PAGE, re.MULTILINE)) >= 45
    assert [row[0] for row in rows if not binds(ROOT / "dpsql" / row[2], row[3])] == []
    assert [row[0] for row in rows if not binds(ROOT / "tests" / row[4], row[5])] == []
    assert [row[1] for row in rows if row[1] not in ("*auto*", "-") and not is_written(row[1])] == []


def test_every_system_has_its_algorithms() -> None:
    numbers = [row[0].split()[0] for row in ROW.findall(PAGE)]
    assert {seed: numbers.count(seed) for seed in SEEDS} == SEEDS
    assert not is_written("`mechanism: lue_tree`") and not is_written("`taus`")
