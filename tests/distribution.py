"""Does the source distribution hold what a stranger needs: every file of the package, its tests, docs and examples?

python -m tests.distribution dist        after `python -m build --outdir dist`; `make dist` does both
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import dpsql

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = (".gitignore", ".git-blame-ignore-revs")
"""Files of the repository that mean nothing without it."""


def missing(folder: Path) -> list[str]:
    """What the two archives in a folder lack, or the wheel has too much."""
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    stem = f"dpsql-{dpsql.__version__}"
    tracked = subprocess.run(["git", "-C", str(ROOT), "ls-files"], check=True, capture_output=True, text=True)
    wanted = {name for name in tracked.stdout.splitlines() if name not in LEFT_OUT}
    with tarfile.open(source) as archive:
        held = {name.removeprefix(f"{stem}/") for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as zipped:
        installed = {name for name in zipped.namelist() if ".dist-info/" not in name}
    package = {name for name in wanted if name.startswith("dpsql/")}
    return (
        [f"{source.name} lacks {name}" for name in sorted(wanted - held)]
        + [f"{wheel.name} lacks {name}" for name in sorted(package - installed)]
        + [f"{wheel.name} should not hold {name}" for name in sorted(installed - package)]
    )


if __name__ == "__main__":
    complaints = missing(Path(sys.argv[1]))
    print("\n".join(complaints))
    print(f"figure distribution: {len(complaints)} (<= 0) {'short' if complaints else 'ok'}")
    sys.exit(1 if complaints else 0)
