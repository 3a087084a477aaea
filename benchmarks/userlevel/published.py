"""Whole publishes of a star beside its simulated releases.

A publish goes through the ledger, the engine's SQL and the file; its answers are read back from the file's tables.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from benchmarks.userlevel.questions import Questions, answers
from benchmarks.userlevel.releases import Release, Star
from benchmarks.userlevel.simulator import People, releases, simulated
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.release import open_release
from dpsql.release.format import UNIT
from dpsql.tree import FloatArray

LOW, HIGH = 1.0, 99.0


def published(catalog: Path, number: int) -> Iterator[Release]:
    """So many whole publishes, with the leaf estimates of each statistic as the file holds them."""
    text = catalog.read_text(encoding="utf-8").replace("cap: 4", f"cap: {4 * number}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / catalog.name
        file.write_text(text, encoding="utf-8")
        for seed in range(number):
            out = publish_release(
                load_catalog(file), Path(folder) / f"{seed}.dpsql", noise=publish_noise(seed), key=bytes(32)
            )
            opened = open_release(out.path, insecure=True)
            readings = tuple(opened.reading(s.id) for s in opened.statistics)
            trees = tuple(opened.tree(axis) for axis in range(len(opened.axes)))
            yield Release(
                opened.meta, opened.catalog, readings, tuple(_leaves(opened, s.id) for s in opened.statistics),
                trees, cast("object", None),
            )  # fmt: skip


def _leaves(opened: object, statistic: int) -> FloatArray:
    """The leaf estimates of one statistic."""
    axes = opened.statistics[statistic].axes
    keys = [f"n{i + 1}" for i in range(len(axes))]
    table = opened.connection.cursor().execute(f"SELECT * FROM node_combination_{statistic}").fetchnumpy()
    shape = [len(opened.tree(axis).lo) for axis in axes]
    nodes = np.zeros(shape)
    nodes[tuple(np.asarray(table[key], np.int64) for key in keys)] = np.asarray(table["estimate"]) / UNIT
    return nodes[np.ix_(*(opened.tree(axis).leaves for axis in axes))]


def matched(
    star: Star, asked: Sequence[Questions], catalog: Path, number: int, draws: int
) -> tuple[float, float]:
    """Publish a star so many times, and simulate it.

    Returns:
        Percent of published answers within the simulator's 1 to 99%, where answers of one release go together, and the
        largest relative difference of answers of a simulated release with the very noise of a publish.
    """
    simulated_values: dict[tuple[int, str], list[FloatArray]] = defaultdict(list)
    for release in releases(star, draws):
        for key, values in _values(release, asked, star.measure):
            simulated_values[key].append(values)
    whole = list(published(catalog, number))  # before the engine is put aside
    inside, apart = list[bool](), 0.0
    with simulated(People(star)) as people:
        for seed, release in enumerate(whole):
            again = dict(_values(people.drawn(publish_noise(seed)), asked, star.measure))
            for key, values in _values(release, asked, star.measure):
                low, high = np.nanpercentile(np.array(simulated_values[key]), [LOW, HIGH], axis=0)
                known = np.isfinite(values) & np.isfinite(low)
                inside += ((low <= values) & (values <= high))[known].tolist()
                gap = np.abs(values - again[key])[known] / np.maximum(np.abs(values[known]), 1.0)
                apart = max(apart, float(gap.max(initial=0.0)))
    return 100 * float(np.mean(inside)), apart


def _values(
    release: Release, asked: Sequence[Questions], measure: str
) -> Iterator[tuple[tuple[int, str], FloatArray]]:
    """Answers by question set and aggregate."""
    for place, each in enumerate(asked):
        for name, answer in answers(release, each, measure).items():
            yield (place, name), answer.value


def publish_noise(seed: int) -> ExactNoise:
    """The noise of a publish."""
    return ExactNoise(insecure_test_entropy(seed + 1))
