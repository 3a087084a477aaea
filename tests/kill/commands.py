"""The `dpsql` command in processes of its own, which can be killed, or refused something, at a chosen system call.

Each command is the console script's entry point in a fork of a process that has imported dpsql and done nothing else,
so a run costs its work and no start. `strace` is attached before it begins. A run that is only watched tells its system
calls on files of a folder; another run can then be killed, or refused, at each of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy.random  # noqa: F401  (loaded late otherwise: a refused call could hit the library)

import dpsql.central.central
import dpsql.curator.audit
import dpsql.engines.registry
import dpsql.examples.retail
import dpsql.local.run
import dpsql.release.verify
import dpsql.streams.publish  # noqa: F401
from dpsql.interfaces.cli import all_commands, main

STRACE = shutil.which("strace")
CHANGES = (
    *("openat", "mkdir", "rename", "unlink", "unlinkat", "rmdir", "chmod", "fchmodat", "fsync", "fdatasync"),
    *("write", "pwrite64", "ftruncate", "link", "linkat", "flock"),
)
"""System calls by which a command changes what lies on a disk, or says that it must lie there."""

_CALL = re.compile(r"(?P<process>\d+) +(?P<name>\w+)\((?P<rest>.*)")


class Call(NamedTuple):
    """A system call of a watched run.

    Args:
        name: of the call.
        number: which one of that name it is in its process, from 1.
        line: as `strace` tells it.
    """

    name: str
    number: int
    line: str


class Outcome(NamedTuple):
    """How a command ended.

    Args:
        code: its exit code, or minus the signal that ended it.
        said: what it wrote to standard error.
        traced: the lines of `strace`.
    """

    code: int
    said: str
    traced: tuple[str, ...]

    @property
    def raw(self) -> bool:
        """Whether a traceback was shown."""
        return "Traceback" in self.said or "Exception ignored" in self.said


def forked(work: Callable[[], object], tracer: Sequence[str] = ()) -> Outcome:
    """Run something in a fork of this process, which must not have a thread of its own.

    Args:
        work: what to do; what it returns is lost.
        tracer: options of `strace`; it is attached before the work begins.
    """
    with tempfile.TemporaryDirectory(prefix="dpsql-forked-") as where:
        said, traced = Path(where, "said"), Path(where, "traced")
        wait, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(go)
            _run(work, said, wait)
        os.close(wait)
        watching = _attach(child, traced, tracer) if tracer else None
        os.close(go)
        _, status = os.waitpid(child, 0)
        if watching is not None:
            watching.wait(60)
        lines = tuple(traced.read_text(errors="replace").splitlines()) if tracer else ()
        return Outcome(os.waitstatus_to_exitcode(status), said.read_text(errors="replace"), lines)


def _run(work: Callable[[], object], said: Path, wait: int) -> None:
    """The child's part: its outputs to a file, a wait for the go, and no way back."""
    code = 1
    try:
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.read(wait, 1)
        work()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except Exception:  # noqa: BLE001  (whatever a command lets through is what is looked for)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _attach(child: int, traced: Path, tracer: Sequence[str]) -> subprocess.Popen[str]:
    """`strace` on a child, once it says so.

    Raises:
        RuntimeError: it may not.
    """
    command = ["strace", "-f", "-y", "-s", "40", "-o", str(traced), "-p", str(child), *tracer]
    watching = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert watching.stderr is not None
    told = watching.stderr.readline()
    if "attached" not in told:
        raise RuntimeError(f"strace cannot attach: {told.strip()}")
    return watching


def dpsql_run(words: Sequence[object], tracer: Sequence[str] = ()) -> Outcome:
    """Run one command."""
    return forked(lambda: main([str(word) for word in words]), tracer)


def calls(words: Sequence[object], folder: Path) -> list[Call]:
    """What a command does to files of a folder, in order; for its first thread, which does what lasts.

    Args:
        words: the command.
        folder: whose files are meant.

    Raises:
        RuntimeError: the command failed.
    """
    done = dpsql_run(words, ["-e", f"trace={','.join(CHANGES)}"])
    if done.code:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.said}")
    found, numbers, first = [], Counter[str](), ""
    for line in done.traced:
        told = _CALL.match(line)
        if told is None:
            continue
        first = first or told["process"]
        if told["process"] != first:
            continue
        numbers[told["name"]] += 1
        if str(folder) in told["rest"] and not ("openat" in told["name"] and "O_CREAT" not in told["rest"]):
            found.append(Call(told["name"], numbers[told["name"]], told["rest"]))
    return found


def killed_at(words: Sequence[object], call: Call) -> Outcome:
    """Run a command that dies at a system call, or at its end, should it make fewer of them this time."""
    here, end = f"inject={call.name}:signal=KILL:when={call.number}", "inject=exit_group:signal=KILL"
    return dpsql_run(words, ["-e", f"trace={call.name},exit_group", "-e", here, "-e", end])


all_commands()
