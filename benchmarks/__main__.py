"""Run the benchmarks of one topic: `python -m benchmarks userlevel`, or `make bench TOPIC=userlevel`.

Without a topic, list the topics. Nothing is kept; `make figures` keeps.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from benchmarks.runs import RUNS


def topics() -> dict[str, list[str]]:
    """Commands of each topic, a topic being the first part of a run's name."""
    commands: dict[str, list[str]] = {}
    for run in RUNS:
        commands.setdefault(run.name.partition("-")[0], []).append(run.command)
    return commands


def main(words: Sequence[str]) -> int:
    """Run every command of the topics named; 1 if a figure is short or a command fails."""
    unknown = sorted({*words} - {*topics()})
    if unknown or not words:
        print("topics: " + ", ".join(sorted(topics())))
        return 2
    commands = [command for word in words for command in topics()[word]]
    ended = [
        subprocess.run([sys.executable, *command.split()[1:]], check=False).returncode
        if command.startswith("python ")
        else subprocess.run(command.split(), check=False).returncode
        for command in commands
    ]
    return 1 if any(ended) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
