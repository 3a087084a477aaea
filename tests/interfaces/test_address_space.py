"""Publish, append and query under a shrinking `ulimit -v`: one line, the right code, nothing half written or charged.

Fresh processes, since the limit is of a process and of what it has reserved.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from dpsql.interfaces.cli import SPACE, SPACE_OF_A_CORE
from tests.stream_shop import CATALOG, make_stream_shop

pytestmark = pytest.mark.usefixtures("publishes")

NEEDED = SPACE + SPACE_OF_A_CORE * (os.cpu_count() or 1)
VIEWS = "views:\n  days: {of: sales, axes: [sales.sold_on, customer.sex], measures: [count]}\n"


def limited(folder: Path, megabytes: int | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, with so many megabytes of addresses."""

    def limit() -> None:
        if megabytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (megabytes * 1_000_000,) * 2)

    command = [sys.executable, "-m", "dpsql", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, preexec_fn=limit, check=False
    )


def files(folder: Path) -> dict[str, str]:
    """Every file below a folder by its bytes."""
    return {
        str(file.relative_to(folder)): sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*")) if file.is_file()
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("steps", [2, 10])
def test_steps_down(steps: int, tmp_path: Path) -> None:
    text = CATALOG[: CATALOG.index("views:")] + VIEWS
    shop = make_stream_shop(tmp_path, customers=50, text=text)
    (tmp_path / "once").mkdir()  # a folder of its own: a ledger knows the releases beside its catalog
    lines = [line for line in text.splitlines() if not line.startswith("stream:")]
    once = (
        "\n".join(lines).replace("root: data", "root: ../data").replace("EPSILON", "1").replace("DELTA", "0")
    )
    (tmp_path / "once" / "once.yaml").write_text(once)
    append = ("append", shop.directory.name, "--catalog", "retail.yaml", "--batch")
    publish = ("publish", "once/once.yaml", "--new-ledger", "-o")
    roomy = NEEDED + 100
    for command in ((*append, "2025-01-01"), (*publish, "once/first.dpsql")):
        done = limited(tmp_path, roomy, *command)
        assert done.returncode == 0, done.stderr
    query = ("query", "once/first.dpsql", "SELECT COUNT(*) FROM sales")
    answer = limited(tmp_path, roomy, *query)
    assert answer.returncode == 0
    before = files(tmp_path)
    for step in range(steps):
        megabytes = NEEDED * (steps - 1 - step) // steps + 80  # Python itself takes 40
        for command in (query, (*append, "2025-01-02"), (*publish, "once/second.dpsql")):
            refused = limited(tmp_path, megabytes, *command)
            assert (refused.returncode, refused.stdout) == (4, ""), refused.stderr
            assert len(refused.stderr.splitlines()) == 1 and "nothing was started" in refused.stderr
    assert files(tmp_path) == before
    assert limited(tmp_path, None, *query).stdout == answer.stdout
    assert limited(tmp_path, roomy, *append, "2025-01-02").returncode == 0
