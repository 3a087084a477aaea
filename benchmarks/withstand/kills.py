"""Kills at chosen system calls of the real commands: is anything partial, lost, charged twice or left behind?

Each kill takes the command at one system call on its files, three in four while it has something to lose; then the same
command is run again. `strace` finds the calls and sends the signal.
"""

from __future__ import annotations

import signal
from pathlib import Path

from benchmarks.figures import Figures, main
from tests.kill.commands import STRACE, killed_at
from tests.kill.scenes import SCENES, Stage


def measure(figures: Figures, folder: Path, kills: int = 300) -> None:
    """Kill so often."""
    if STRACE is None:
        print("not measured: strace is not installed, so no kill can be aimed at a system call")
        return
    wrong = 0
    for scene in SCENES:
        stage = Stage(scene, folder / scene.name.replace(" ", "-"))
        own, hit = kills // len(SCENES), 0
        for turn in range(own):
            first, last = (0, len(stage.calls)) if turn % 4 == 0 else (stage.first, stage.last + 1)
            number = first + turn * (last - first) // own
            stage.reset()
            outcome = killed_at(stage.words, stage.call(number))
            hit += outcome.code == -signal.SIGKILL and stage.inside(number, outcome)
            found = stage.finish()
            if "wrong" in found:
                wrong += 1
                print(f"{scene.name} killed at {stage.call(number)}: {found['wrong']}")
        print(f"{scene.name}: {own} kills among {len(stage.calls)} system calls, {hit} inside", flush=True)
    figures.at_most("kills after which something was partial, lost, double or left behind", wrong, 0)


if __name__ == "__main__":
    main(measure)
