"""System calls that fail under the real commands: one line each, true about the charge, and a second run ends it.

`strace` lets one call of a command fail as a full or a failing disk, missing rights or a read-only one would. A small
file system that is really full is the last scene, where this machine lets one be mounted.
"""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figures, main
from dpsql.faults import UNSURE
from tests.kill.commands import STRACE, Call, Outcome, dpsql_run
from tests.kill.scenes import SCENES, Scene, Stage
from tests.ledger.test_faults import WORDS

ERRORS = {
    "write": (errno.ENOSPC, errno.EIO),
    "pwrite64": (errno.ENOSPC, errno.EIO),
    "ftruncate": (errno.EIO,),
    "fsync": (errno.EIO, errno.ENOSPC),
    "fdatasync": (errno.EIO, errno.ENOSPC),
    "flock": (errno.ENOLCK, errno.EIO),
}
OTHERS = (errno.EACCES, errno.ENOSPC, errno.EROFS, errno.EIO, errno.EPERM, errno.ENAMETOOLONG)


class Found(NamedTuple):
    """What became of a fault: whether it was shown raw, told untruly, or ended in a wrong count."""

    raw: bool
    untrue: bool
    wrong: bool


def _one_line(lines: Sequence[str]) -> bool:
    """Whether a failure is the one object that `--json` promises, and its one line."""
    try:
        told = json.loads("\n".join(lines[:-1]))
    except ValueError:
        return False
    return set(told) == {"command", "code", "error"} and lines[-1] == f"dpsql: {told['error']['message']}"


def judge(what: str, outcome: Outcome, stage: Stage) -> Found:
    """Run the command again, and say what is wrong with a fault, if anything is."""
    charged = stage.charged()
    found = stage.finish()
    lines = outcome.said.strip().splitlines()
    raw = outcome.raw or outcome.code not in (0, 3, 4) or (outcome.code != 0 and not _one_line(lines))
    line = lines[-1] if lines else ""
    publishes = stage.scene.name.endswith("publish")
    told = line.endswith((WORDS.get(charged, ""), UNSURE)) if publishes else "again" in line
    untrue = "wrong" not in found and outcome.code != 0 and not told
    for bad, words in ((raw, f"left with {outcome.code}"), (untrue, f"untrue, the ledger says `{charged}`")):
        if bad:
            print(f"{what}: {words}: {outcome.said.strip()[-1500:]}", flush=True)
    if "wrong" in found:
        print(f"{what}: {outcome.said.strip()}\n  then {found['wrong'][-1500:]}", flush=True)
    return Found(raw, untrue, "wrong" in found)


def refused_at(words: Sequence[object], call: Call, fault: int) -> Outcome:
    """Run a command to which a system call fails once."""
    how = f"inject={call.name}:error={errno.errorcode[fault]}:when={call.number}"
    return dpsql_run(words, ["-e", f"trace={call.name}", "-e", how])


def refuse_calls(scene: Scene, folder: Path, faults: int) -> list[Found]:
    """One command with a fault at many calls in turn."""
    stage, found = Stage(scene, folder), []
    for turn in range(faults):
        number = turn * len(stage.calls) // faults
        call = stage.call(number)
        kinds = ERRORS.get(call.name, OTHERS)
        stage.reset()
        outcome = refused_at(stage.words, call, kinds[turn % len(kinds)])
        if any("INJECTED" in line for line in outcome.traced):
            what = f"{scene.name}, {errno.errorcode[kinds[turn % len(kinds)]]} at {call}"
            found.append(judge(what, outcome, stage))
    print(f"{scene.name}: {len(found)} faults among {len(stage.calls)} system calls", flush=True)
    return found


def fill_disk(scene: Scene, folder: Path, sizes: range) -> list[Found]:
    """One command on a disk that fills up; then there is room, and it is run again."""
    found: list[Found] = []
    with small_disk(folder) as disk:
        if disk is None:
            return found
        stage, filler = Stage(scene, disk), disk / "filler"
        for free in sizes:
            stage.reset()
            filler.write_bytes(bytes(max(shutil.disk_usage(disk).free - free, 0)))
            outcome = dpsql_run(stage.words)
            filler.unlink()
            if outcome.code:
                found.append(judge(f"{scene.name}, {free} bytes free", outcome, stage))
    print(f"{scene.name}: {len(found)} full disks", flush=True)
    return found


@contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """A file system of 24 MB in memory; None where none may be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def measure(figures: Figures, folder: Path, faults: int = 100) -> None:
    """Let so many calls fail."""
    if STRACE is None:
        print("not measured: strace is not installed, so no system call can be made to fail")
        return
    found, disks = list[Found](), list[Found]()
    for scene in SCENES:
        found += refuse_calls(scene, folder / scene.name.replace(" ", "-"), faults // len(SCENES))
    for scene in SCENES:
        disks += fill_disk(scene, folder / "disk", range(0, 900_000, 150_000))
    every = [*found, *disks]
    figures.table("faults of system calls", len(found))
    print(f"full disks: {len(disks)}")
    figures.table(
        "faults shown as a traceback or by another exit code than 3 and 4", sum(f.raw for f in every)
    )
    figures.at_most("faults whose line is untrue about the charge", sum(f.untrue for f in every), 0)
    figures.at_most("faults after which the second run miscounts", sum(f.wrong for f in every), 0)


if __name__ == "__main__":
    main(measure)
