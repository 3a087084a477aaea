"""Every page is typed: commands and options exist, catalogs parse, programs compile; tutorials and guides run.

python -m benchmarks.firsthour.pages
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.figures import Figures

TESTS = (
    "tests/structure/test_pages_read.py",
    "tests/structure/test_pages_run.py",
    "tests/structure/test_guides_run.py",
)
LEAST = 60


def main() -> int:
    """Run them and count."""
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="dpsql-pages-") as name:
        told = Path(name) / "pages.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={told}", *TESTS]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        (suite,) = ElementTree.parse(told).getroot().iter("testsuite")
    counts = {word: int(suite.attrib[word]) for word in ("tests", "failures", "errors", "skipped")}
    if done.returncode:
        print(done.stdout[-2000:])
    figures.at_most(
        "pages: blocks that cannot be typed, or print something else",
        counts["failures"] + counts["errors"],
        0,
    )
    figures.table("pages: pages and blocks that were typed", counts["tests"] - counts["skipped"])
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
