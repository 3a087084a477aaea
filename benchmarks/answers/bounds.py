"""Declared bounds that cut: do intervals hold the exact answers over all rows, and does a note say where they may not?

Four stars whose `max_ids` is a number that many units pass are published once each at epsilon 1 and asked 50 answers:
totals, groups and ranges of counts, sums and averages. Exact answers are those of the same catalog without noise and
with a bound that nobody passes, which `tests/oracle` compares with DuckDB on the raw rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from benchmarks.figures import Figures, main
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ExactNoise, Noise, ZeroNoise, os_entropy
from dpsql.release import open_release
from dpsql.tree import FloatArray

ROOT = Path(__file__).resolve().parents[2]
ANSWERS = 50


class Star(NamedTuple):
    """A star and what is asked of it.

    Args:
        catalog: its name in `catalog/`.
        table: the counted table.
        max_ids: the bound.
        most: a bound that nobody passes.
        changes: of the catalog's privacy section.
        value: the summed column.
        groups, conditions: by what follows the table in FROM, expressions to group by, and what WHERE says.
    """

    catalog: str
    table: str
    max_ids: int
    most: int
    changes: dict[str, object]
    value: str
    groups: Mapping[str, Sequence[str]]
    conditions: Mapping[str, Sequence[str]]


STARS = tuple(
    Star(**star)
    for star in yaml.safe_load(Path(__file__).with_name("bounds.yaml").read_text(encoding="utf-8"))
)
"""`max_ids` cuts 25% to 59% of the rows."""


class Compared(NamedTuple):
    """Answers of one release beside the exact ones.

    Args:
        answers: how many.
        inside: within their 95% interval.
        noted: outside, but with a note about rows beyond the bound.
        silent: outside without one.
        bare: outside of the interval of the noise alone.
    """

    answers: int
    inside: int
    noted: int
    silent: int
    bare: int


def catalog_of(star: Star, folder: Path, max_ids: int, share: str | None) -> Path:
    """The star's catalog with another bound."""
    written = yaml.load((ROOT / "catalog" / f"{star.catalog}.yaml").read_text(), yaml.BaseLoader)
    written["privacy"] = {**written["privacy"], **star.changes, "cap": "1000"}
    written["source"]["root"] = os.path.expandvars(written["source"]["root"])
    written["tables"][star.table] |= {"max_ids": str(max_ids)} | (
        {} if share is None else {"clipped_share": share}
    )
    written["ledger"] = str(folder / "ledger.duckdb")
    if star.changes.get("delta") == 0:
        for view in written["views"].values():
            view["measures"] = list(view["measures"])  # one draw of all numbers has no shares
    file = folder / f"{star.catalog}_{max_ids}.yaml"
    file.write_text(
        yaml.safe_dump({**written, "privacy": {k: str(v) for k, v in written["privacy"].items()}})
    )
    return file


def statements(star: Star) -> Iterator[str]:
    """Totals, groups and ranges."""
    asked = f"COUNT(*) AS n, SUM({star.value}) AS s, AVG({star.value}) AS a"
    yield f"SELECT {asked} FROM {star.table}"
    for joins, conditions in star.conditions.items():
        for condition in conditions:
            yield f"SELECT {asked} FROM {star.table} {joins} WHERE {condition}"
    for joins, groups in star.groups.items():
        for group in groups:
            yield f"SELECT {group} AS k, {asked} FROM {star.table} {joins} GROUP BY 1 ORDER BY 1"


def publish(
    star: Star, folder: Path, name: str, max_ids: int, share: str | None, noise: Noise
) -> ReleaseEngine:
    """A release of the star, open."""
    folder.mkdir(exist_ok=True)
    if noise.insecure:
        star = star._replace(changes={**star.changes, "epsilon": 900, "delta": 0})  # sums must fit 64 bits
    catalog = load_catalog(catalog_of(star, folder, max_ids, share))
    made = publish_release(catalog, folder / name, noise=noise, key=os.urandom(32))
    return ReleaseEngine(open_release(made.path, insecure=noise.insecure))


def numbers(rows: Sequence[Sequence[Any]]) -> FloatArray:
    """The last three columns."""
    return np.array([[np.nan if value is None else float(value) for value in row[-3:]] for row in rows])


def compared(star: Star, folder: Path, exact: ReleaseEngine, number: int) -> Compared:
    """Ask one release."""
    released = publish(star, folder, f"r{number}.dpsql", star.max_ids, None, ExactNoise(os_entropy()))
    columns: list[FloatArray] = []
    for statement in statements(star):
        truth, answer = exact.query(statement), released.query(statement)
        assert [row[:-3] for row in truth.rows] == [row[:-3] for row in answer.rows], statement
        low, high = map(numbers, answer.interval_rows(0.95))
        noise = numbers(answer.stderr_rows)
        noted = np.full(low.shape, any("max_ids" in flag for flag in answer.flags), float)
        parts = (numbers(truth.rows), numbers(answer.rows), low, high, noise, noted)
        columns.append(np.stack([part.ravel() for part in parts]))
    table = np.concatenate(columns, axis=1)
    table = table[:, np.all(np.isfinite(table), axis=0)]
    taken = np.unique(np.linspace(0, table.shape[1] - 1, ANSWERS).round().astype(int))
    truth, answer, low, high, noise, noted = table[:, taken]
    inside = (low <= truth) & (truth <= high)
    for i in np.flatnonzero(~inside):
        print(f"  outside: {truth[i]:.6g} for {answer[i]:.6g} [{low[i]:.6g}, {high[i]:.6g}]")
    return Compared(
        len(taken), int(inside.sum()), int((~inside & (noted > 0)).sum()), int((~inside & (noted == 0)).sum()),
        int((np.abs(truth - answer) > 1.96 * noise).sum()),
    )  # fmt: skip


def measure(figures: Figures, folder: Path, releases: int = 1) -> None:
    """Ask some releases of each star."""
    found = list[Compared]()
    for star in STARS:
        own = folder / star.catalog
        own.mkdir()
        exact = publish(star, own / "exact", "exact.dpsql", star.most, "0", ZeroNoise())
        for number in range(releases):
            found.append(one := compared(star, own, exact, number))
            print(
                f"{star.catalog}, max_ids {star.max_ids}: {one.inside} of {one.answers} inside, {one.noted} "
                f"outside with a note, {one.bare} outside of the interval of noise alone",
                flush=True,
            )
    answers, inside = sum(one.answers for one in found), sum(one.inside for one in found)
    figures.at_most(f"exact answers outside of their interval without a note, of {answers}",
                    sum(one.silent for one in found), 0)  # fmt: skip
    figures.table(f"exact answers inside of their interval, part of {answers}", inside / answers)


if __name__ == "__main__":
    main(measure)
