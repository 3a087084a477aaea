"""The fixture's star as a release and beside its raw rows; a module's VARIANCE is what its answers claim."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from dpsql.executor.engine import ReleaseEngine
from dpsql.release import Release, open_release
from tests.answer.conftest import answerer as answerer
from tests.answer.conftest import fixture_file as fixture_file
from tests.answer.conftest import raw as raw
from tests.releases import Twins


@pytest.fixture(scope="module")
def release(fixture_file: Path) -> Iterator[Release]:
    found = open_release(fixture_file)
    yield found
    found.close()


@pytest.fixture(scope="module")
def star(answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection) -> Twins:
    return answerer, raw
