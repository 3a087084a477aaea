"""A device that runs Windows: none of what POSIX alone has is imported or called, and it reports once.

The child blocks POSIX's modules, takes POSIX's names out of `os`, refuses to open folders, and has a `msvcrt` that
keeps book of its locks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.local_plans import plan_text, view

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
CHILD = """
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
        [sys.executable, "-c", CHILD, given],
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
