"""What does not fit into memory goes to a private folder, never to the working directory, and does not stay."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dpsql.catalog.source import CSV
from dpsql.engines import open_sources
from dpsql.engines.duck import RawSide
from dpsql.errors import OperationalError, SourceError

SPILLING = "CREATE TEMP TABLE wide AS SELECT i, repeat(md5(i::VARCHAR), 8) AS text FROM range(200000) AS t(i)"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("spill", "work", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "t.csv").write_text("a\n1\n")
    monkeypatch.setenv("DPSQL_TMPDIR", str(tmp_path / "spill"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def spilling(folder: Path) -> RawSide:
    raw = open_sources(CSV, folder, {"t": "t.csv"})
    raw.connection.execute("SET threads = 1")
    raw.connection.execute("SET memory_limit = '20MB'")
    raw.connection.execute(SPILLING)
    return raw


def test_rows_spill_into_a_private_folder_that_goes(place: Path) -> None:
    raw = spilling(place / "data")
    (folder,) = (place / "spill").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sum(file.stat().st_size for file in folder.iterdir()) > 1 << 20
    raw.close()
    assert not [*(place / "spill").iterdir(), *(place / "work").iterdir()]


def test_an_error_leaves_nothing(place: Path) -> None:
    with pytest.raises(SourceError):
        open_sources(CSV, place / "data", {"t": "t.csv", "u": "missing.csv"})
    assert not list((place / "spill").iterdir())


def test_a_folder_that_cannot_be_made_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPSQL_TMPDIR", str(place / "nowhere"))
    with pytest.raises(OperationalError, match="DPSQL_TMPDIR"):
        open_sources(CSV, place / "data", {"t": "t.csv"})


SPILLS = """
import os, sys
from pathlib import Path
from tests.privacy.test_spill import spilling
raw = spilling(Path(sys.argv[1]))
(folder,) = Path(os.environ["DPSQL_TMPDIR"]).iterdir()
print(sum(file.stat().st_size for file in folder.iterdir()), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("planted", [False, True], ids=["swept", "planted: no sweeper"])
def test_a_killed_process_leaves_no_row(place: Path, planted: bool) -> None:
    """It is killed with megabytes of rows on disk; without the shell that waits for its end they stay."""
    code = "import dpsql.engines.duck as duck; duck.SHELL = ''\n" * planted + SPILLS
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(place / "data")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)}, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        assert int(process.stdout.readline()) > 1 << 20
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    until = time.monotonic() + (1 if planted else 20)
    while list((place / "spill").iterdir()) and time.monotonic() < until:
        time.sleep(0.02)
    assert bool(list((place / "spill").iterdir())) is planted
