"""Every page is typed: commands and options exist, catalogs parse, programs compile; tutorials and guides run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.figures import Figures, main

TESTS = (
    "tests/structure/test_pages_read.py",
    "tests/structure/test_pages_run.py",
    "tests/structure/test_guides_run.py",
)


def measure(figures: Figures, folder: Path) -> None:
    """Run the tests and count."""
    told = folder / "pages.xml"
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={told}", *TESTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (suite,) = ElementTree.parse(told).getroot().iter("testsuite")
    counts = {word: int(suite.attrib[word]) for word in ("tests", "failures", "errors", "skipped")}
    if done.returncode:
        print(done.stdout[-2000:])
    wrong = counts["failures"] + counts["errors"]
    figures.at_most("pages: blocks that cannot be typed, or print something else", wrong, 0)
    figures.table("pages: pages and blocks that were typed", counts["tests"] - counts["skipped"])


if __name__ == "__main__":
    main(measure)
