"""Superset in an environment of its own: database by URI, SQL Lab, a dataset, charts over REST, one drawn in Chromium.

`python -m tests.superset`; Superset's own packages take some minutes to install.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.interfaces_release import build

ROOT = Path(__file__).resolve().parents[2]
WANTED = ("apache-superset==6.1.*", "rich", "cachetools", "flask-caching<2.4", "-e", str(ROOT))


def main() -> int:
    """Install, publish a shop and drive Superset over it; the drive's exit code."""
    environment, results = ROOT / ".venv-superset", ROOT / "build" / "superset"
    if not environment.exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *WANTED], check=True)
    shutil.rmtree(results, ignore_errors=True)
    build(results)
    drive = Path(__file__).with_name("drive.py")
    shop = results / "shop.dpsql"
    return subprocess.run([sys.executable, drive, python, shop, results / "results"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
