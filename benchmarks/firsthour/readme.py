"""The README's lines for own data, typed as they stand in a bare environment.

The source distribution is built from this checkout, the wheel from that, and pip is told that `dpsql` is this wheel;
its dependencies come from where pip takes them. The own data are the bundled shop's files, the editor takes off the
marks as somebody does who agrees with the draft. Times are of the clock and hold for this machine and its line; the
bound is what the README's heading says.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.figures import Figures, main
from dpsql.examples.retail import CUSTOMERS, PRODUCTS, make_star, write_star

ROOT = Path(__file__).resolve().parents[2]
HEADING = "## Your own data in five minutes"
MINUTES, MEGABYTES = 5, 170
EDITOR = "#!/bin/sh\nsed -i '/^ *confirm: true$/d; s/, confirm: true//' \"$1\"\n"
SHARED = re.compile(r"^(pip|setuptools|wheel|_distutils_hack|distutils-precedence)\b")
"""What a bare environment holds before anything is installed."""


def lines() -> list[str]:
    """The commands under the README's heading."""
    section = (ROOT / "README.md").read_text("utf-8").split(HEADING)[1]
    (block,) = re.findall(r"```console\n(.*?)```", section.split("\n## ")[0], flags=re.DOTALL)
    return [line.removeprefix("$ ") for line in block.splitlines()]


def megabytes(environment: Path) -> float:
    """Size of what was installed, without bytecode and without pip itself."""
    (packages,) = (environment / "lib").glob("python*/site-packages")
    files = [file for file in packages.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    held = [file for file in files if not SHARED.match(file.relative_to(packages).parts[0])]
    return sum(file.stat().st_size for file in held) / 1e6


def type_lines(folder: Path, wheel: Path) -> tuple[float, str]:
    """Type the README's lines into one shell.

    Args:
        folder: holds `data`, the files of the person who types.
        wheel: what pip takes for `dpsql`.

    Returns:
        Seconds by the clock, and what was printed.

    Raises:
        RuntimeError: a line failed.
    """
    editor = folder / "editor"
    editor.write_text(EDITOR)
    editor.chmod(0o755)
    (folder / "constraint.txt").write_text(f"dpsql @ {wheel.as_uri()}\n")
    world = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    world |= {"EDITOR": str(editor), "PIP_CONSTRAINT": str(folder / "constraint.txt"), "COLUMNS": "120"}
    world["DPSQL_STATE"] = str(folder / "state")
    began = time.monotonic()
    done = subprocess.run(
        ["bash", "-e"],
        input="\n".join(lines()),
        cwd=folder,
        env=world,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    if done.returncode:
        raise RuntimeError(f"a line of the README failed\n{done.stdout}\n{done.stderr}")
    return seconds, done.stdout


def measure(figures: Figures, folder: Path) -> None:
    """Build, type, measure."""
    build = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("dpsql-*.whl")
    write_star(folder / "data", make_star(20250101, CUSTOMERS, PRODUCTS))
    seconds, printed = type_lines(folder, wheel)
    print(printed[printed.index("category") :])
    figures.table("readme, groups of the first answer that have a margin", printed.count(" ± "))
    figures.at_most("readme, minutes from a bare environment to the first answer", seconds / 60, MINUTES)
    size = megabytes(folder / ".venv")
    figures.at_most("readme, MB of a bare install without bytecode", size, MEGABYTES)


if __name__ == "__main__":
    main(measure)
