"""Does the source distribution hold what a stranger needs: every file of the package, its tests, docs and examples?

python -m tests.distribution dist build/again        after two builds into these folders; `make dist` does all three

The wheel names what it needs (PEP 770: `sboms/` of its metadata) and holds its licence; both builds are equal.
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
SAID = ("sboms/dpsql.cdx.json", "licenses/LICENSE")
"""What a wheel says of itself, beside its package."""


def differing(folder: Path, again: Path) -> list[str]:
    """Archives that a second build did not make again."""
    return [
        f"{path.name} differs when it is built again"
        for path in sorted([*folder.glob("*.tar.gz"), *folder.glob("*.whl")])
        if path.read_bytes() != (again / path.name).read_bytes()
    ]


def missing(folder: Path) -> list[str]:
    """What the two archives in a folder lack, or the wheel has too much."""
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    stem = f"dpsql-{dpsql.__version__}"
    tracked = subprocess.run(["git", "-C", str(ROOT), "ls-files"], check=True, capture_output=True, text=True)
    wanted = {name for name in tracked.stdout.splitlines() if name not in LEFT_OUT}
    with tarfile.open(source) as archive:
        held = {name.removeprefix(f"{stem}/") for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as zipped:
        wheel_names = zipped.namelist()
    installed = {name for name in wheel_names if ".dist-info/" not in name}
    metadata = [name.split(".dist-info/")[1] for name in wheel_names if ".dist-info/" in name]
    package = {name for name in wanted if name.startswith("dpsql/")}
    return (
        [f"{source.name} lacks {name}" for name in sorted(wanted - held)]
        + [f"{wheel.name} lacks {name}" for name in sorted(package - installed)]
        + [f"{wheel.name} lacks {name}" for name in SAID if name not in metadata]
        + [f"{wheel.name} should not hold {name}" for name in sorted(installed - package)]
    )


if __name__ == "__main__":
    folders = [Path(name) for name in sys.argv[1:]]
    complaints = [*missing(folders[0]), *differing(*folders)]
    print("\n".join(complaints))
    print(f"figure distribution: {len(complaints)} (<= 0) {'short' if complaints else 'ok'}")
    sys.exit(1 if complaints else 0)
