"""Golden plans: each file holds a statement and, as comments, its stages. Run with DPSQL_GOLDEN=write to renew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dpsql.errors import Error
from dpsql.executor.engine import ReleaseEngine

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def described(answerer: ReleaseEngine, text: str) -> str:
    """The statement with its plan, or with its refusal, below it."""
    try:
        lines = answerer.explain(text).splitlines()
    except Error as error:
        lines = [f"{type(error).__name__}: {error}", *error.caret.splitlines()]
    return text.strip() + "\n" + "".join(f"-- {line}\n" for line in lines)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.sql")), ids=lambda path: path.stem)
def test_golden(path: Path, answerer: ReleaseEngine) -> None:
    written = path.read_text(encoding="utf-8")
    text = "\n".join(line for line in written.splitlines() if not line.startswith("-- "))
    found = described(answerer, text)
    if os.environ.get("DPSQL_GOLDEN") == "write":
        path.write_text(found, encoding="utf-8")
    assert found == written


def test_there_are_golden_files() -> None:
    assert len(list(GOLDEN.glob("*.sql"))) >= 10
