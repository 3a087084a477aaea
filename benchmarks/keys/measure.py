"""Keys shown on Zipf stars against plain thresholds and other libraries, intervals, refreshes, CPU.

Each star has 100,000 people whose numbers of keys are log-normal, and keys by Zipf's law; the step is the one that
ships, with the whole budget for keys.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt

from benchmarks.baselines import keys as baselines
from benchmarks.figures import Figures
from benchmarks.peers.environments import prepare, python_of
from benchmarks.peers.protocol import rho
from dpsql.budget import gaussian_sigma2, mu2_of
from dpsql.budget.threshold import SQUARED_SENSITIVITY, key_threshold
from dpsql.catalog import Catalog, load_catalog
from dpsql.catalog.private_columns import private_columns
from dpsql.central.central import publish_release
from dpsql.central.key_plans import KeyPlan, KeyRound
from dpsql.central.known_keys import listed_keys
from dpsql.central.placed_rows import prepare_tables
from dpsql.central.selection import Key, KeyScan, ListedKeys, choose_keys, open_selection
from dpsql.engines.engine import Engine
from dpsql.engines.registry import open_engine
from dpsql.noise import ExactNoise, os_entropy

IntArray = npt.NDArray[np.int64]
PEOPLE, CAP, SPREAD = 100_000, 100, 0.75
"""People of a star, keys of one that weigh, and the standard deviation of the logarithm of their numbers."""
CATALOG = """
dpsql: 1
name: pages
source: {kind: parquet, root: ., tables: {visits: visits.parquet, person: person.parquet}}
privacy: {lineage: pages, cap: 100, epsilon: 1, unit: person.id, delta: 1e-6}
tables:
  person: {role: dimension, key: id, private: true}
  visits: {role: fact, max_ids: MOST, foreign_keys: {id: person}, columns: {
    page: {type: int, categories: {private: true, per_unit: PER, most: 60000, share: SHARE}}}}
views:
  pages: {of: visits, axes: [visits.page], measures: [count], mechanism: identity}
"""


def zipf(seed: int, keys: int, mean: int) -> tuple[IntArray, IntArray]:
    """Pairs (person, key), each once."""
    rng = np.random.default_rng(seed)
    chance = np.cumsum(1 / np.arange(1, keys + 1))
    logarithms = rng.normal(math.log(mean) - SPREAD**2 / 2, SPREAD, PEOPLE)
    held = np.maximum(1, np.rint(np.exp(logarithms))).astype(np.int64)
    person = np.repeat(np.arange(PEOPLE), held)
    key = np.searchsorted(chance / chance[-1], rng.random(len(person)))
    pairs = np.unique(person * keys + np.minimum(key, keys - 1))
    return pairs // keys, pairs % keys


def write(folder: Path, person: IntArray, page: IntArray, **words: str) -> Catalog:
    """A star of visits and its catalog."""
    with duckdb.connect() as db:
        db.register("pairs", {"id": person, "page": page})
        db.execute(f"COPY (SELECT id, page FROM pairs) TO '{folder}/visits.parquet' (FORMAT parquet)")
        db.execute(f"COPY (SELECT DISTINCT id FROM pairs) TO '{folder}/person.parquet' (FORMAT parquet)")
    text = CATALOG
    for word, value in ({"MOST": "1", "PER": str(CAP), "SHARE": "1/10"} | words).items():
        text = text.replace(word, value)
    (folder / "pages.yaml").write_text(text)
    return load_catalog(folder / "pages.yaml")


@contextmanager
def opened(catalog: Catalog) -> Iterator[tuple[Engine, KeyScan]]:
    """The raw side, and the scan that finds keys."""
    engine = open_engine(catalog)
    try:
        selection = open_selection(catalog, engine, listed_keys(catalog))
        prepare_tables(catalog, engine, selection.plan)
        yield engine, KeyScan(catalog, engine, selection.plan, ExactNoise(os_entropy()), bytes(range(32)))
    finally:
        engine.close()


def whole_budget(catalog: Catalog, mu2: Fraction, delta: Fraction) -> KeyPlan:
    """A column's step with all of a budget, in two rounds."""
    (column,) = private_columns(catalog)
    rounds = []
    for part in (Fraction(1, 10), Fraction(9, 10)):
        sigma2 = gaussian_sigma2(mu2 * part, SQUARED_SENSITIVITY)
        threshold = key_threshold(sigma2, delta * part, column.per_unit)
        rounds.append(KeyRound(mu2 * part, mu2 * part, delta * part, sigma2, threshold))
    return KeyPlan(column, tuple(rounds))


def found(scan: KeyScan, plan: KeyPlan, listed: Sequence[Key] = ()) -> tuple[Key, ...]:
    """The list after one step."""
    name = plan.column.name
    return choose_keys(scan, [plan], {name: ListedKeys(tuple(listed))}, {name: 60_000})[name].keys


def shown(figures: Figures, name: str, keys: int, delta: Fraction, expected: int) -> None:
    """Keys shown with the whole of (1, delta), against the method's table and plain thresholds."""
    person, page = zipf(1, keys, 10)
    key_delta = delta / 10
    mu2 = mu2_of(Fraction(1), delta - key_delta)
    with tempfile.TemporaryDirectory() as folder:
        catalog = write(Path(folder), person, page)
        with opened(catalog) as (_, scan):
            ours = len(found(scan, whole_budget(catalog, mu2, key_delta)))
    plain = baselines.plain(person, page, (mu2, key_delta), CAP, 3)
    print(f"{name}: {ours} keys shown, plain {plain}, the method's table {expected}")
    figures.within("keys-shown-over-table", ours / expected, 0.95, 1.05, name)
    figures.at_least("keys-shown-over-others", ours / plain, 1, f"{name}, plain threshold")
    if keys == PEOPLE:
        peers(figures, ours, person, page, (delta, key_delta))


PEERS = {"opendp": "with_opendp.py", "pipelinedp": "with_pipelinedp.py", "tumult": "with_tumult.py"}
"""Libraries that find keys nobody listed, and the script that their interpreter runs."""


def peers(
    figures: Figures, ours: int, person: IntArray, page: IntArray, budget: tuple[Fraction, Fraction]
) -> None:
    """Keys that other libraries show of the same star at (1, delta), each at the cap of keys that shows most.

    OpenDP counts in zCDP at the part of delta that dpsql leaves to it; the others have the whole of both.
    """
    delta, key_delta = budget
    spends = {"opendp": (rho(1.0, float(delta - key_delta)), float(key_delta))}
    most = dict.fromkeys(PEERS, 0)
    with tempfile.TemporaryDirectory() as folder:
        for cap in (1, 4, 9, 16, 25, 49):  # OpenDP's distance in L2 is a whole number
            shuffled = np.lexsort((np.random.default_rng(cap).random(len(person)), person))
            place = np.arange(len(person)) - np.searchsorted(person[shuffled], person[shuffled])
            key, count = np.unique(page[shuffled][place < cap], return_counts=True)
            file = f"{folder}/{cap}.npz"
            np.savez(file, key=key, count=count, person=person, page=page)
            for name, script in PEERS.items():
                if name == "tumult" and cap not in (4, 9, 16):  # a Spark session each
                    continue
                refused = prepare(name)
                if refused:
                    print(f"{name} could not be installed: {refused}")
                    continue
                spend = spends.get(name, (1.0, float(delta)))
                command = [python_of(name), Path(__file__).with_name(script), file, *spend, cap]
                run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
                if run.returncode:
                    print(f"{name} failed at a cap of {cap}: {run.stderr.strip().splitlines()[-1:]}")
                    continue
                most[name] = max(most[name], int(run.stdout.split()[-1]))
    for name, shown in most.items():
        print(f"{name} shows at most {shown}")
        if shown:
            figures.at_least("keys-shown-over-others", ours / shown, 1, name)


def intervals(figures: Figures) -> None:
    """Coverage of shown keys' intervals, of all and of those near the threshold; parts add up."""
    import dpsql

    sizes = np.tile(np.arange(60, 160), 60)  # 6,000 keys of 60 to 159 people, one key each
    page = np.repeat(np.arange(len(sizes)), sizes)
    with tempfile.TemporaryDirectory() as folder:
        catalog = write(Path(folder), np.arange(len(page)), page, PER="1")
        target = Path(folder) / "pages.dpsql"
        publish_release(catalog, target, noise=ExactNoise(os_entropy()), key=bytes(range(32)))
        sql = "SELECT page, COUNT(*), DP_INTERVAL_LOW(COUNT(*)), DP_INTERVAL_HIGH(COUNT(*)) FROM visits GROUP BY page"
        rows = dpsql.query(sql, release=target).rows
        total = dpsql.query("SELECT COUNT(*) FROM visits", release=target).scalar()
    keyed = [row for row in rows if row[0] is not None]
    covered = np.array([row[2] <= sizes[int(row[0])] <= row[3] for row in keyed])
    near = np.array([sizes[int(row[0])] < 90 for row in keyed])
    for name, some in (("", np.ones(len(covered), bool)), ("-near-the-threshold", near)):
        print(f"intervals{name}: {covered[some].sum()} of {some.sum()} hold")
        share = float(covered[some].mean())
        figures.within("keys-intervals-cover", share, 0.93, 0.97, name.strip("-") or "all")
    figures.table("keys-parts-off-the-whole", abs(sum(row[1] for row in rows) - total))


def refreshes(figures: Figures) -> None:
    """Twelve months of one cap of 4, 6 keys a person: the list grows and loses none."""
    mu2 = mu2_of(Fraction(4), Fraction(9, 10**7)) / 12 / 10
    listed: tuple[Key, ...] = ()
    lost, sizes = 0, []
    for month in range(12):
        person, page = zipf(100 + month, 10**5, 6)
        with tempfile.TemporaryDirectory() as folder:
            catalog = write(Path(folder), person, page, PER="50")
            with opened(catalog) as (_, scan):
                keys = found(scan, whole_budget(catalog, mu2, Fraction(1, 10**7) / 12), listed)
        lost += len({*listed} - {*keys})
        listed = keys
        sizes.append(len(keys))
    print(f"refreshes: {sizes}")
    figures.at_most("keys-lost-by-refreshes", lost, 0)
    figures.table("keys-after-twelve-refreshes-over-the-first", sizes[-1] / sizes[0])


def cpu(figures: Figures) -> None:
    """CPU of weighing 2e6 rows over that of the plain GROUP BY in the same run."""
    rng = np.random.default_rng(2)
    person = rng.integers(0, PEOPLE, 2_000_000)
    page = np.minimum(rng.zipf(1.2, 2_000_000), 100_000)
    with tempfile.TemporaryDirectory() as folder:
        catalog = write(Path(folder), person, page, PER="50")
        plan = whole_budget(catalog, Fraction(1, 200), Fraction(1, 10**7))
        with opened(catalog) as (engine, scan):
            plain = (
                f"SELECT page AS k, count(*) AS h FROM {engine.rows(catalog, 'visits')} AS v GROUP BY page"
            )
            ratios = []
            for _ in range(3):
                started = time.process_time()
                sum(len(batch) for batch in engine.relations("plain").batches(plain))
                middle = time.process_time()
                found(scan, plan._replace(rounds=plan.rounds[1:]))
                ratios.append((time.process_time() - middle) / (middle - started))
    figures.at_most("keys-step-cpu-over-plain-group-by", min(ratios), 16)


def main() -> int:
    """Print every figure."""
    figures = Figures()
    shown(figures, "1e5", 10**5, Fraction(1, 10**6), 1325)
    shown(figures, "1e6", 10**6, Fraction(1, 10**8), 741)
    intervals(figures)
    cpu(figures)
    refreshes(figures)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
