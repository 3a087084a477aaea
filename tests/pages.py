"""Pages whose commands and programs are run from the top, and whose printed outputs are compared.

A page is Markdown. In ``console`` blocks a line `$ ..` is a command, and what stands below it, up to the next one, is
its output. A ``python`` block is a program; a ``text`` block right below it is what it prints. All programs of a page
share their names. A comment `<!-- file NAME -->` before a block says that the block is that file, and
`<!-- end of NAME from LINE -->` that it takes the place of everything from that line on.

`...` stands for any text. Outputs of commands that draw no noise are compared to the letter, the others by their shape:
every number alike, however wide its column.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from dpsql.examples import retail
from tests.command import dpsql_command

BLOCK = re.compile(r"(?:^<!-- (?P<note>.*?) -->\n+)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
NUMBER = re.compile(r"[-~]?\d+(?:[ \u00a0\u202f.,:-]?\d+)*(?:e[+-]\d+)?%?")
NOT_HERE = ("pip ", "python -m venv", "python3 -m venv", "make ", "git ")
"""Commands that change an environment: what types them is benchmarks/firsthour/readme.py."""
EXACT = ("init", "design", "plan", "collection-plan")


class Block(NamedTuple):
    """A fenced block of a page, with the comment above it."""

    note: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The blocks of a page from the top."""
    found = BLOCK.finditer(page.read_text("utf-8"))
    return [Block(match["note"] or "", match["language"], match["text"]) for match in found]


class Typed(NamedTuple):
    """A command, and what the page says that it prints."""

    command: str
    printed: str


def typed(text: str) -> list[Typed]:
    """The commands of a console block; one may go on over lines inside quotes or after a backslash."""
    commands: list[Typed] = []
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        lines = part.splitlines()
        for taken in range(1, len(lines) + 1):
            command = "\n".join(lines[:taken])
            if not command.endswith("\\") and command.count('"') % 2 == 0:
                break
        commands.append(Typed(command, "\n".join(lines[taken:])))
    return commands


def shape(text: str) -> str:
    """A text whose numbers and column widths are all alike, lopsided intervals like others; without marks by chance."""
    lines = [line for line in text.splitlines() if not line.startswith("? = too noisy")]
    plain = re.sub(r" \?(?= |$)", "", NUMBER.sub("#", "\n".join(lines).replace("∞", "0")), flags=re.M)
    plain = re.sub(r" #/\+#", " ± #", plain)
    return re.sub(r" *\n", "\n", re.sub(r" {2,}", " ", re.sub(r"-{2,}", "--", plain))).strip()


def agrees(expected: str, printed: str) -> bool:
    """Whether a page shows what was printed; `...` stands for any text."""
    parts = [re.escape(part) for part in expected.strip().split("...")]
    return re.fullmatch(".*".join(parts), printed.strip(), flags=re.S) is not None


def compare(place: str, expected: str, printed: str, exact: bool) -> None:
    """Raise if a page shows something else than what was printed."""
    if not exact:
        expected, printed_as = shape(expected), shape(printed)
    else:
        printed_as = "\n".join(line.rstrip() for line in printed.splitlines())
    assert agrees(expected, printed_as), f"{place} prints\n{printed}\nand the page shows\n{expected}"


def run_command(command: str, folder: Path) -> str:
    """What a command prints; commands of dpsql and the bundled shop are run in this process.

    Raises:
        AssertionError: it failed, and the page does not say so by `|| true`.
    """
    words = shlex.split(command, comments=True)
    may_fail = words[-2:] == ["||", "true"]
    if words[0] == "dpsql" and "|" not in words:
        done = dpsql_command(*(words[1:-2] if may_fail else words[1:]), cwd=folder)
        assert may_fail or done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr
    if words[:3] == ["python", "-m", "dpsql.examples.retail"]:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.chdir(folder):
            retail.main(words[3:])
        return out.getvalue()
    shell = subprocess.run(
        command, shell=True, cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert shell.returncode == 0, f"{command}\n{shell.stderr}"
    return shell.stdout + shell.stderr


def run_program(text: str, names: dict[str, Any], folder: Path) -> str:
    """What a program prints, in a folder and with the names of the programs before it."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.chdir(folder):
        exec(compile(text, "page", "exec"), names)
    return out.getvalue()


def write_file(block: Block, folder: Path) -> None:
    """Make the file, or the end of it, that a block is."""
    words = block.note.split(maxsplit=4)
    name = words[1] if words[0] == "file" else words[2]
    before = ""
    if words[0] == "end":
        text = (folder / name).read_text("utf-8")
        before = text[: text.index(f"\n{words[4]}") + 1]
    (folder / name).write_text(before + block.text, encoding="utf-8")


def run_page(page: Path, folder: Path) -> int:
    """Run a page from the top.

    Args:
        page: Markdown.
        folder: where its commands are typed.

    Returns:
        How many commands and programs were run.

    Raises:
        AssertionError: something failed, or printed something else than the page shows.
    """
    found, names, ran = blocks(page), dict[str, Any](), 0
    for number, block in enumerate(found):
        below = found[number + 1] if number + 1 < len(found) else Block("", "", "")
        if block.note.startswith(("file ", "end of ")):
            write_file(block, folder)
        elif block.language == "console":
            for command, expected in typed(block.text):
                if not command.startswith(NOT_HERE):
                    printed = run_command(command, folder)
                    exact = command.startswith(tuple(f"dpsql {name} " for name in EXACT))
                    compare(command, expected, printed, exact)
                    ran += 1
        elif block.language == "python":
            printed = run_program(block.text, names, folder)
            ran += 1
            if below.language == "text":
                compare(f"the program {block.text}", below.text, printed, "exact" in below.note)
    return ran
