"""The figures of answers are 0, and tell when what they promise is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.promises.answers import mostly_interpolated, no_numbers

pytestmark = pytest.mark.usefixtures("publishes")


def test_nothing_is_mostly_interpolated(tmp_path: Path) -> None:
    assert mostly_interpolated(tmp_path, 60) == 0


def test_refusals_that_are_off_are_found(tmp_path: Path) -> None:
    assert mostly_interpolated(tmp_path, 60, "interpolate") > 10


def test_every_number_is_one(tmp_path: Path) -> None:
    assert no_numbers(tmp_path, 15) == 0


def test_a_missing_guard_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.sql.rewrite.finite", lambda tree: tree)
    assert no_numbers(tmp_path, 15) > 0
