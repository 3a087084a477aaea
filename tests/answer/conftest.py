"""What tests of answers share: the fixture's star as a release and as plain tables, and the shop of the interfaces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from dpsql.executor.engine import ReleaseEngine
from dpsql.release import open_release
from tests.interfaces.conftest import opened as opened
from tests.interfaces.conftest import shop as shop
from tests.release_fixture import make_rows, raw_star, write_fixture


@pytest.fixture(scope="module")
def fixture_file(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The fixture's star; the module's VARIANCE is what every leaf combination claims, the values have no noise."""
    variance = getattr(request.module, "VARIANCE", 1.0)
    return write_fixture(tmp_path_factory.mktemp("star") / "f.dpsql", make_rows(), variance)


@pytest.fixture(scope="module")
def answerer(fixture_file: Path) -> Iterator[ReleaseEngine]:
    engine = ReleaseEngine(open_release(fixture_file))
    yield engine
    engine.release.close()


@pytest.fixture(scope="module")
def raw() -> duckdb.DuckDBPyConnection:
    """The rows of the fixture's star."""
    return raw_star(make_rows(), known_only=True)
