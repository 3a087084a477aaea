"""One PostgreSQL and one Spark for all tests of a run; skipped only where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from tests.engines.servers import Server, clickhouse_or_skip, postgres_or_skip, running_spark
from tests.engines.star import PEOPLE, build, load_postgres


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark takes half a minute to start: all of its tests are for `python -m tests.engines`."""
    for item in items:
        if item.path.parent != Path(__file__).parent or "spark" not in item.name:
            continue
        item.add_marker(pytest.mark.timeout(900))
        item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop's files, with as many facts (and people) as the module says."""
    people = getattr(request.module, "PEOPLE_OF_SHOP", PEOPLE)
    return build(tmp_path_factory.mktemp("shop"), request.module.FACTS, people)


@pytest.fixture(scope="module")
def loaded(request: pytest.FixtureRequest, shop: Path, postgres: Server) -> Server:
    """PostgreSQL with the shop in the module's schema."""
    load_postgres(postgres.dsn, shop, request.module.SCHEMA)
    return postgres


@pytest.fixture
def address(loaded: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's address, where catalogs look for it."""
    monkeypatch.setenv("DPSQL_TEST_DSN", loaded.dsn)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server of this run."""
    with postgres_or_skip() as server:
        yield server


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a chdb database of this run; one process may open it once at a time."""
    return clickhouse_or_skip(tmp_path_factory.mktemp("chdb"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A Spark session of this run."""
    if find_spec("pyspark") is None or which("java") is None:
        pytest.skip("there is no pyspark or no Java here")
    with running_spark() as session:
        yield session
