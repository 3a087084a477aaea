"""The figures of answers are 0, and tell when what they promise is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.promises.answers import mostly_interpolated

pytestmark = pytest.mark.usefixtures("publishes")


def test_nothing_is_mostly_interpolated(tmp_path: Path) -> None:
    assert mostly_interpolated(tmp_path, 60) == 0


def test_refusals_that_are_off_are_found(tmp_path: Path) -> None:
    assert mostly_interpolated(tmp_path, 60, "interpolate") > 10
