"""Fixtures that several test folders share, and the hypothesis profiles (no deadline: machines are shared)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("quick", deadline=None, max_examples=50)
settings.register_profile("slow", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real stars, named by DPSQL_DATA; tests over it skip where it is absent."""
    root = Path(os.environ.get("DPSQL_DATA", ""))
    if not os.environ.get("DPSQL_DATA") or not root.is_dir():
        pytest.skip("DPSQL_DATA names no folder of real stars")
    return root
