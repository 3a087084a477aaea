"""`estimate: lle` through its own interface, against a plain script of seed 001's LLE.

Five axes of 32 leaves, boxes of half of every axis.

Seed 001 as we have it names no settings. Of the paper's, the synthetic two can be made here, bells and Laplace
columns, which go together as in the tables of five axes (correlation .8): a million people, epsilon 1, boxes of half
of every axis. Its real data are not public here. The plain script is AHEAD's: a tree for every pair of axes, an equal
part of the people each, maximum entropy over the 2^5 parts of a box (`local_boxes.by_pairs`).

What a catalog without the key can ask of such columns is five axes of 8 bins, four leaves each: one table of 32,768
cells, whose boxes are interpolated inside of bins.

Coverage is measured on settings that nothing was chosen on: each with three shapes of boxes, by collections in law.
Clusters are the columns whose axes go together in ways that no pair shows; their line is printed and promises nothing.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

import dpsql
from benchmarks.baselines.local_boxes import by_pairs
from benchmarks.figures import Figures
from benchmarks.local.planes import Case, box_table, boxes_of, collect, people_of, ranges_of, truth
from benchmarks.local.simulated import one_row_each, simulate_tallies
from dpsql.catalog import load_catalog
from dpsql.client import read_plan
from dpsql.local.collector import CollectionManifest
from dpsql.local.content import release_content
from dpsql.local.plan import build_plan
from dpsql.local.run import one_blas_thread
from dpsql.local.survey import design_of, public_axis_maker, survey_of

AXES, LEAVES, BIN = 5, 32, 4
SEEDS = (Case("normal", 0.8, "1"), Case("laplace", 0.8, "1"))


class CoverageSetting(NamedTuple):
    """Whose boxes are asked: columns, people, axes and leaves."""

    case: Case
    people: int
    axes: int
    leaves: int

    @property
    def title(self) -> str:
        return f"{self.case.title}, {self.people:,} people, {self.axes} x {self.leaves}"


UNSEEN = (
    CoverageSetting(Case("power", 0.0, "1"), 80_000, 3, 16),
    CoverageSetting(Case("laplace", 0.5, "2"), 150_000, 3, 32),
    CoverageSetting(Case("normal", 0.3, "4"), 20_000, 3, 32),
    CoverageSetting(Case("power", 0.3, "0.5"), 100_000, 4, 16),
    CoverageSetting(Case("normal", 0.5, "2"), 100_000, 6, 8),
)
THREE_WAYS = CoverageSetting(Case("clusters", 0.0, "2"), 100_000, 3, 16)
"""Twenty narrow clusters: where axes 1 and 2 are settles axis 3, pair by pair they do not."""

CATALOG = """dpsql: 1
name: boxes
population: town
privacy: {{lineage: town, cap: 20, unit: row, epsilon: {epsilon}}}
collection: {{epsilon: {epsilon}, estimate: lle, branching: 4}}
tables:
  answer: {{role: fact, columns: {{{columns}}}}}
views:
  boxes: {{of: answer, axes: [{axes}], measures: [count]}}
"""


def catalog_text(axes: int, leaves: int, epsilon: str) -> str:
    """A catalog of axes a0, a1, .. whose values are their leaves."""
    column = f"{{type: int, lower: 0, upper: {leaves - 1}, cuts: {{width: 1}}, nullable: false}}"
    return CATALOG.format(
        epsilon=epsilon,
        columns=", ".join(f"a{i}: {column}" for i in range(axes)),
        axes=", ".join(f"answer.a{i}" for i in range(axes)),
    )


def write_release(
    folder: Path, leaves: np.ndarray, size: int, epsilon: str, rng: np.random.Generator
) -> Path:
    """The release of one collection, whose reports are drawn in law."""
    return collected_release(folder, catalog_text(leaves.shape[1], size, epsilon), leaves, rng)


def collected_release(folder: Path, text: str, leaves: np.ndarray, rng: np.random.Generator) -> Path:
    """The same of any catalog of these axes."""
    path, file = folder / "catalog.yaml", folder / "boxes.dpsql"
    file.unlink(missing_ok=True)
    path.write_text(text, encoding="utf-8")
    catalog = load_catalog(path)
    survey = survey_of(catalog, public_axis_maker(catalog))
    plan = read_plan(build_plan(design_of(survey, len(leaves))))
    collection = simulate_tallies(plan, one_row_each(leaves), rng)
    manifest = CollectionManifest(1, len(leaves), len(leaves), {}, 0)
    release_id = bytes(rng.integers(0, 256, 16, dtype=np.uint8)).hex()
    with one_blas_thread():
        release_content(survey, collection, manifest, release_id).write(file)
    return file


def sql_answers(file: Path, boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """COUNT(*) and its standard error of every box, as SQL returns them."""
    connection, rows = dpsql.connect(str(file)), []
    for box in boxes.tolist():
        where = " AND ".join(f"a{i} BETWEEN {low} AND {high - 1}" for i, (low, high) in enumerate(box))
        cursor = connection.cursor()
        cursor.execute(f"SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM answer WHERE {where}")
        rows.append(cursor.fetchone())
    connection.close()
    counts, errors = np.array(rows, dtype=float).T
    return counts, errors


def binned(leaves: np.ndarray, epsilon: str, boxes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Shares of boxes from a table of five axes of 8 bins, evenly spread inside of them."""
    size, every = LEAVES // BIN, tuple(range(leaves.shape[1]))
    _, collection, known = collect(leaves // BIN, size, epsilon, rng)
    with one_blas_thread():
        cells, _ = box_table(collection, known, every)
    shares = []
    for box in boxes:
        part = cells
        for low, high in box:
            starts = BIN * np.arange(size)
            covered = np.clip(np.minimum(high, starts + BIN) - np.maximum(low, starts), 0, BIN) / BIN
            part = np.tensordot(covered, part, axes=(0, 0))
        shares.append(float(part))
    return np.array(shares)


def shaped_boxes(axes: int, size: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Half of every axis, any ranges, a quarter of every axis and three of them, `count` each."""
    shapes = [boxes_of(axes, size, count, rng), ranges_of(axes, size, count, rng)]
    for length in (size // 4, 3 * size // 4):
        low = rng.integers(0, size - length + 1, (count, axes))
        shapes.append(np.stack([low, low + length], axis=2))
    return np.concatenate(shapes)


def coverage(figures: Figures, runs: int, count: int = 8) -> None:
    """95% intervals of boxes over all axes, and their width by the error that is made."""
    for setting in (*UNSEEN, THREE_WAYS):
        hits, errors, bars = list[float](), list[float](), list[float]()
        for run in range(runs):
            rng = np.random.default_rng([360, run])
            leaves = people_of(setting.case, setting.people, setting.axes, setting.leaves, rng)
            boxes = shaped_boxes(setting.axes, setting.leaves, count, rng)
            with tempfile.TemporaryDirectory() as folder:
                file = write_release(Path(folder), leaves, setting.leaves, setting.case.epsilon, rng)
                counts, stderrs = sql_answers(file, boxes)
            off = counts - truth(leaves, boxes) * setting.people
            hits.append(float(np.mean(np.abs(off) <= 1.96 * stderrs)))
            errors.append(float(np.mean(off**2)))
            bars.append(float(np.mean(stderrs**2)))
        ratio = float(np.sqrt(np.mean(bars) / np.mean(errors)))
        print(
            f"  LLE, {setting.title}: 95% intervals hold {np.mean(hits):.3f} of {runs * 4 * count} boxes, "
            f"worst collection {min(hits):.2f}, standard error by rms error {ratio:.2f}",
            flush=True,
        )
        if setting is not THREE_WAYS:
            figures.within("LLE, coverage at 95%", float(np.mean(hits)), 0.93, 0.99, setting.title)
            figures.table(f"LLE, standard error by rms error, {setting.title}", ratio)


class Collected(NamedTuple):
    """Errors of one collection's boxes, as shares of the people, and which intervals hold the exact share."""

    lle: np.ndarray
    bins: np.ndarray
    hits: np.ndarray


def one_collection(case: Case, people: int, count: int, run: int) -> tuple[Collected, np.ndarray]:
    """A collection's errors, and the plain script's on the same people."""
    rng = np.random.default_rng([36, run])
    leaves = people_of(case, people, AXES, LEAVES, rng)
    boxes = boxes_of(AXES, LEAVES, count, rng)
    true = truth(leaves, boxes)
    with tempfile.TemporaryDirectory() as folder:
        counts, errors = sql_answers(write_release(Path(folder), leaves, LEAVES, case.epsilon, rng), boxes)
    off = counts / people - true
    bins = binned(leaves, case.epsilon, boxes, rng) - true
    script = by_pairs(leaves, [LEAVES] * AXES, case.epsilon, boxes, rng) - true
    return Collected(off, bins, np.abs(off) <= 1.96 * errors / people), script


def against_script(figures: Figures, runs: int, people: int = 1_000_000, count: int = 50) -> None:
    """Mean squared error by that of the plain script; mean absolute errors and coverage as they are."""
    for case in SEEDS:
        results = [one_collection(case, people, count, run) for run in range(runs)]
        lle, bins, hits = (
            np.concatenate(arrays) for arrays in zip(*(ours for ours, _ in results), strict=True)
        )
        print(
            f"  LLE, {case.title}: mean absolute error {np.abs(lle).mean():.3g}, of a table of 8 bins an axis "
            f"{np.abs(bins).mean():.3g}; 95% intervals hold {hits.mean():.2f} of {len(hits)} boxes",
            flush=True,
        )
        script = np.concatenate([errors for _, errors in results])
        ratio = float(np.mean(lle**2) / np.mean(script**2))
        figures.at_most("LLE by name, MSE by a plain script's", ratio, 1.1, case.title)
