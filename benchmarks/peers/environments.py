"""An environment of its own for each library: made once in build/peers, or the line that says why it could not be."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

BUILD = Path(__file__).resolve().parents[2] / "build" / "peers"
JOBS = BUILD / "jobs"
"""What each job came to."""
NEEDS = {
    "smartnoise": ["smartnoise-sql", "duckdb"],
    "opendp": ["opendp[polars]"],
    "pyqrlew": ["pyqrlew", "duckdb", "pandas"],
    "tumult": ["tmlt.analytics"],
    "diffprivlib": ["diffprivlib", "scikit-learn<1.7", "duckdb"],  # 0.6.6 does not import beside newer ones
    "dpmm": ["dpmm"],
    "pipelinedp": ["pipeline-dp"],
}
"""What is installed for each; the newest versions that fit are taken and shown."""


def python_of(name: str) -> Path:
    """The interpreter of an environment; dpsql's is the one that runs this."""
    return Path(sys.executable) if name == "dpsql" else BUILD / name / "bin" / "python"


def prepare(name: str) -> str:
    """Make an environment unless it is there.

    Args:
        name: of the library.

    Returns:
        Nothing if it stands, else the reason in one line.
    """
    done = BUILD / name / ".installed"
    if name == "dpsql" or done.exists():
        return ""
    venv.create(BUILD / name, with_pip=True, clear=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    result = subprocess.run([python_of(name), *install, *NEEDS[name]], capture_output=True, text=True)
    if result.returncode:
        told = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
        return (told or ["pip failed"])[-1]
    done.touch()
    return ""


def commit() -> str:
    """Which dpsql this is."""
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return told.stdout.strip() or "unknown"


def once(name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a job came to, from its file where it has one."""
    file = JOBS / f"{name}.json"
    if not file.exists():
        JOBS.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(make()))
    return dict(json.loads(file.read_text()))
