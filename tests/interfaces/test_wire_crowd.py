"""A crowd at the server: whoever has logged in is served, whatever others do. `make withstand` has a large one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interfaces.crowd import crowd
from tests.interfaces.wire_client import password_file, running
from tests.interfaces_release import build

pytestmark = pytest.mark.usefixtures("publishes")


@pytest.mark.slow
def test_clients_are_served_while_strangers_flood_and_others_leave(tmp_path: Path) -> None:
    secret = password_file(tmp_path, "ana")
    limits = ("--connections", "40", "--log", tmp_path / "log")
    with running(build(tmp_path), "--password-file", secret, *map(str, limits)) as server:
        seen = crowd(server, "correct horse", idle=16, clients=8, statements=130, every=0.5)
    assert len(seen.seconds) >= 130 and seen.unserved == 0
    assert seen.idle == 16
    assert seen.strangers > 20 and seen.left > 0  # more than there is room for
    assert (tmp_path / "log").read_text().count('"accepted"') >= 24 + seen.left
