"""One report a collection, whatever breaks while it is drawn and however many processes ask at once."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpsql.client import Memory, Row
from dpsql.client import device as module
from dpsql.client.entropy import system_entropy
from tests.local_plans import plan_of, plan_text, view

pytestmark = pytest.mark.long

WIDE = view(axes=[0, 1], edges=[[0, 1, 2, 3, 4], [0, 1, 2, 3]], oracle="OLH", domain=13, extra=4)
CHILD = """
import sys
from fractions import Fraction
from pathlib import Path
from dpsql.client import Memory, Row, read_plan
from dpsql.client.entropy import system_entropy
plan = read_plan(Path(sys.argv[1]).read_bytes())
memory = Memory(Path(sys.argv[2]), Fraction(1), Fraction(1))
print("ready", flush=True)
sys.stdin.readline()
print(memory.answer(plan, [Row((1, 1), (0,))], system_entropy).hex())
"""


def test_processes_that_ask_at_once_get_one_report(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan_text(WIDE))
    command = [sys.executable, "-c", CHILD, str(tmp_path / "plan.json"), str(tmp_path / "memory.json")]
    asked = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)
    ]
    try:
        for child in asked:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        said = [child.communicate("now\n", timeout=60)[0] for child in asked]
    finally:
        for child in asked:
            child.kill()
    assert len(set(said)) == 1
    assert list(json.loads((tmp_path / "memory.json").read_text())) == ["test"]


@pytest.mark.parametrize("name", ["fsync", "replace"])
@pytest.mark.parametrize("broken", range(5))
def test_a_disk_that_fails_anywhere_never_lets_two_reports_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, broken: int
) -> None:
    plan, calls, out = plan_of(WIDE), [0], []
    owner = os if name == "fsync" else module.Path
    whole = getattr(owner, name)

    def failing(*arguments: object) -> object:
        calls[0] += 1
        if calls[0] - 1 == broken:
            raise OSError("no space left")
        return whole(*arguments)

    device = Memory(tmp_path / "memory.json", Fraction(1), Fraction(1))
    monkeypatch.setattr(owner, name, failing)
    for _ in range(6):
        try:
            out.append(device.answer(plan, [Row((1, 1), (0,))], system_entropy))
        except OSError:
            continue
        kept = json.loads(device.path.read_text())["test"]["report"]
        assert out[-1] is not None
        assert kept == out[-1].hex(), "on the disk before it is handed out"
    assert len(set(out)) == 1


def test_the_memory_works_where_there_is_no_fcntl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, opened, given_back = [OSError(errno.EDEADLK, "busy"), None], os.open, list[int]()

    def locking(lock: int, mode: int, size: int) -> None:
        assert os.fstat(lock).st_size == 0, "the lock's own file"
        if mode == 0:
            given_back.append(lock)
            return
        if (wait := waits.pop(0)) is not None:
            raise wait

    def no_folders(path: object, *given: object) -> int:
        assert not Path(str(path)).is_dir(), "there are no handles of folders"
        return opened(path, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(module.sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_LOCK=1, LK_UNLCK=0))
    monkeypatch.setattr(os, "open", no_folders)
    device, plan = Memory(tmp_path / "memory.json", Fraction(1), Fraction(1)), plan_of(WIDE)
    report = device.answer(plan, [Row((1, 1), (0,))], system_entropy)
    assert report is not None
    assert waits == []
    waits.append(None)
    assert device.answer(plan, [], system_entropy) == report
    assert len(given_back) == 2
