"""What tests of interfaces share: the shop's release, opened and served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dpsql.federation.session import OpenReleases, open_session
from tests.interfaces.wire_client import Server, running
from tests.interfaces_release import build


@pytest.fixture(scope="module")
def shop(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def opened(shop: Path) -> Iterator[OpenReleases]:
    session = open_session([shop])
    yield session
    session.close()


@pytest.fixture(scope="module")
def server(shop: Path) -> Iterator[Server]:
    with running(shop) as started:
        yield started


@pytest.fixture(scope="module")
def port(server: Server) -> int:
    return server.port
