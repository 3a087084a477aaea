"""Tests of this folder look at whole releases."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _whole_releases(publishes: None) -> None:
    """See `publishes`: `make quick` leaves the folder out."""
