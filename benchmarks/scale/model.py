"""The cost model: seconds and bytes a row, an axis and a cell, fitted to measurements by least squares.

    python -m benchmarks.scale.model

    counting    fixed + rows (a row + axes an axis)        for each bound
    release     fixed + cells a cell                       processor seconds, bytes of the file

Rows are those of `benchmarks.scale.star`, counted with one, two or three of its views. Cells are those of a plane with
hardly a row in it. Medians of three runs; every measurement is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.scale.measure import count
from benchmarks.scale.star import BOUNDS, make_star, write_catalog
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.noise import ExactNoise, insecure_test_entropy

FACTS = (500_000, 2_000_000)
VIEWS = ("demand", "trend", "mix")
AXES_A_VIEW = 2
SIDES = (64, 256, 1024)
"""Leaves of each axis of the plane."""

RUNS = 3

PLANE = """
dpsql: 1
name: plane
source: {{kind: parquet, root: ., tables: {{sales: sales.parquet}}}}
privacy: {{lineage: plane, cap: 1, unit: row, epsilon: 1}}
tables:
  sales: {{role: fact, columns: {{
    customer_id: {{type: int, lower: 0, upper: {last}, out_of_domain: drop}},
    product_id: {{type: int, lower: 0, upper: {last}, out_of_domain: drop}}}}}}
views:
  plane: {{of: sales, axes: [sales.customer_id, sales.product_id], measures: [count], mechanism: identity}}
"""


def counting(folder: Path, bounding: str, views: int) -> list[float]:
    """Processor seconds of counting the first views of the star."""
    file = write_catalog(folder, bounding)
    left = tuple(f"  {name}:" for name in VIEWS[views:])
    kept = [line for line in file.read_text().splitlines() if not line.startswith(left)] if left else None
    if kept:
        file = folder / f"{bounding} {views}.yaml"
        file.write_text("\n".join(kept))
    return [count(file)]


def writing(folder: Path, side: int) -> list[float]:
    """Processor seconds of a plane's release from its plan on, and the bytes of its file."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "sales.parquet").symlink_to(folder / "sales.parquet")
        catalog, planned = Path(name) / "plane.yaml", []
        catalog.write_text(PLANE.format(last=side - 1))
        noise = ExactNoise(insecure_test_entropy(1))
        release = Path(name) / "plane.dpsql"
        publish_release(
            load_catalog(catalog), release, noise=noise, key=bytes(32),
            progress=lambda stage: planned.append(time.process_time()),
        )  # fmt: skip
        return [time.process_time() - planned[0], float(release.stat().st_size)]


def measured(folder: Path, runs: int, *what: object) -> npt.NDArray[np.float64]:
    """Medians of a step, each run a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale.model", str(folder), *map(str, what)]
    found = [
        json.loads(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        )
        for _ in range(runs)
    ]
    return np.median(np.array(found), axis=0)


def fitted(columns: list[list[float]], values: list[float]) -> tuple[npt.NDArray[np.float64], float]:
    """Least squares of relative errors, and the largest of them."""
    design, y = np.array(columns), np.array(values)
    found = np.linalg.lstsq(design / y[:, None], np.ones(len(y)), rcond=None)[0]
    return found, float(np.abs(design @ found / y - 1).max())


def main() -> int:
    """Print the table, or measure one step in this process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    if given.step:
        folder, one, *rest = given.step
        found = counting(Path(folder), one, int(rest[0])) if rest else writing(Path(folder), int(one))
        print(json.dumps(found))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folders = {facts: Path(name) / str(facts) for facts in FACTS}
        for facts, folder in folders.items():
            folder.mkdir()
            make_star(folder, facts, products=1000)
        steps = list(product(FACTS, range(1, len(VIEWS) + 1)))
        for bounding in BOUNDS:
            seconds = [
                float(measured(folders[facts], given.runs, bounding, views)[0]) for facts, views in steps
            ]
            axes = [[1.0, facts, facts * views * AXES_A_VIEW] for facts, views in steps]
            (fixed, row, axis), error = fitted(axes, seconds)
            print(
                f"told   counting by {bounding}: {fixed:.2f} s, {1e9 * row:.0f} ns a row and {1e9 * axis:.0f} ns more "
                f"an axis; off by {100 * error:.0f}% at most",
                flush=True,
            )
        releases = [measured(folders[FACTS[0]], given.runs, side) for side in SIDES]
        for i, unit, scale in ((0, "us", 1e6), (1, "bytes", 1.0)):
            (fixed, cell), error = fitted(
                [[1.0, side * side] for side in SIDES], [float(r[i]) for r in releases]
            )
            print(
                f"told   a release: {fixed:.3g} {'s' if unit == 'us' else unit}, {scale * cell:.3g} {unit} a cell; "
                f"off by {100 * error:.0f}% at most",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
