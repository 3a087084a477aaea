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


POSIX_MODULES = [
    "fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty", "pty", "readline", "crypt", "nis"
]  # fmt: skip
POSIX_NAMES = [
    "fork", "forkpty", "getuid", "geteuid", "getgid", "getegid", "getgroups", "setuid", "setsid", "getpgid", "chown",
    "fchown", "fchmod", "fchdir", "lchown", "mkfifo", "mknod", "nice", "openpty", "pread", "pwrite",
    "sched_getaffinity",
    "sendfile", "statvfs", "fstatvfs", "uname", "wait", "getloadavg", "sysconf", "lockf", "posix_fallocate", "sync",
    "fdatasync", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "O_SYNC", "O_DSYNC", "O_NOCTTY",
]  # fmt: skip
ON_WINDOWS = """
import sys, types
modules, names, plan_path, memory_path = eval(sys.argv[1])
import os, json, pathlib, decimal, hashlib, fractions, datetime, re, contextlib, dataclasses
loaded = set(sys.modules)
for name in modules:
    sys.modules[name] = None  # an import of it fails
for name in names:
    if hasattr(os, name):
        delattr(os, name)
locks = []
sys.modules["msvcrt"] = types.SimpleNamespace(
    LK_LOCK=1, LK_UNLCK=0, locking=lambda handle, mode, size: locks.append((mode, size)))
sys.platform = "win32"
opened = os.open
def open_no_folder(path, flags, mode=0o777):
    if os.path.isdir(path):
        raise PermissionError(13, "a folder")
    return opened(path, flags, mode)
os.open = open_no_folder

from fractions import Fraction
from dpsql.client import Memory, decode, read_plan, to_json
from dpsql.client.entropy import system_entropy
from dpsql.client.device import check_fields, join, to_rows

plan = read_plan(pathlib.Path(plan_path).read_bytes())
names_of = [axis.name for axis in plan.axes]
check_fields(plan, names_of)
rows = to_rows(plan, join([{name: "1" for name in names_of}], {}, "k"))
reports = []
for _ in range(3):
    memory = Memory(pathlib.Path(memory_path), Fraction(1), Fraction(1))
    reports.append(to_json(decode(memory.answer(plan, rows, system_entropy))))
print(json.dumps([reports, locks, sorted(k for k in set(sys.modules) - loaded if sys.modules[k])]))
"""


def test_a_device_on_windows_reports_once(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan_text(view()))
    given = repr(
        (POSIX_MODULES, POSIX_NAMES, str(tmp_path / "plan.json"), str(tmp_path / "new" / "memory.json"))
    )
    done = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS, given],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reports, locks, loaded = json.loads(done.stdout)
    assert len(set(reports)) == 1
    assert locks == [[1, 1], [0, 1]] * 3, "each lock is taken and given back"
    assert not {"numpy", "duckdb", "pandas", "pydantic", "fcntl"} & set(loaded)
