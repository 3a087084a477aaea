"""How long does a person take from an unseen folder of tables to a release, by `dpsql start`?

A scripted person types one key a second and reads one printed line in two seconds; the machine's time is added. She
knows whose rows these are, which tables are public, and what she may spend; she takes every rounder bound.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from pathlib import Path

import pexpect

from benchmarks.figures import Figures, main
from benchmarks.firsthour.unseen import QUESTIONS, STARS, UnseenStar

A_KEY, A_LINE, MINUTES = 1.0, 2.0, 10
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PROMPTS = [
    r"Where the catalog goes \[.*?\]: ", r"Whose privacy \(.*?\) \[.*?\]: ",
    r"lists of things, not of people.*?\? .*?: ", r"ever lose, in epsilon.*?: ", r"spends of it.*?: ",
    r"with a note \[Y/n\]: ", r"empty: no forecast\): ",
    r"\[r\]ead, r\[o\]under, \[l\]ater \[o\]: ", r"\[r\]ead, \[l\]ater \[r\]: ",
    r"cannot be undone \[y/N\]: ", pexpect.EOF,
]  # fmt: skip


def measure(figures: Figures, folder: Path) -> None:
    """Time her with every star."""
    for star in STARS:
        minutes = person(star, folder / star.name)
        figures.at_most("person: minutes from a folder to a release", minutes, MINUTES, star.name)


def person(star: UnseenStar, folder: Path) -> float:
    """Minutes of one person with one star."""
    (folder / "data").mkdir(parents=True)
    star.write(folder / "data")
    shutil.copy(QUESTIONS / f"{star.name}.sql", folder / "questions.sql")
    answers = ["", star.unit, star.public, "4", "1", "", "", "", "", "y"]
    world = {**os.environ, "DPSQL_STATE": "/dev/null", "TERM": "dumb", "COLUMNS": "120"}
    line = "dpsql start data questions.sql --no-page"
    keys, begun = len(line) + 1, time.monotonic()
    child = pexpect.spawn(
        sys.executable, ["-m", "dpsql", *line.split()[1:]], cwd=folder, env=world, timeout=600,
        encoding="utf-8", dimensions=(50, 120),
    )  # fmt: skip
    lines = 0
    while True:
        prompt = child.expect(PROMPTS)
        lines += COLOURS.sub("", str(child.before)).count("\n") + 1
        if prompt == len(PROMPTS) - 1:
            break
        child.sendline(answers[prompt])
        keys += len(answers[prompt]) + 1
    child.close()
    machine = time.monotonic() - begun
    assert child.exitstatus == 0 and (folder / "data.dpsql").exists(), str(child.before)[-600:]
    print(f"{star.name}: {keys} keys, {lines} lines, {machine:.0f} s of the machine", flush=True)
    return (keys * A_KEY + lines * A_LINE + machine) / 60


if __name__ == "__main__":
    main(measure)
