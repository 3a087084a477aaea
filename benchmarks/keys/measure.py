"""Keys shown on Zipf stars against a Gaussian threshold and other libraries, intervals, refreshes, CPU.

Each star has 100,000 people whose numbers of keys are log-normal, and keys by Zipf's law; the step is the one that
ships, planned by a catalog. Everybody has the same share of a release's budget, by default 1/20.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.baselines import keys as baselines
from benchmarks.columns import write_columns
from benchmarks.figures import Figures, main
from benchmarks.peers.environments import prepare, python_of
from benchmarks.peers.protocol import rho
from benchmarks.processes import cpu_of
from dpsql.budget.curve import epsilon_of, mu2_of
from dpsql.catalog import Catalog, load_catalog
from dpsql.central.central import publish_release
from dpsql.central.placed_rows import prepare_tables
from dpsql.central.plan import KeyPlan, key_plans
from dpsql.central.selection import Key, KeyScan, ListedKeys, choose_keys, listed_keys, open_selection
from dpsql.engines.registry import Engine, open_engine
from dpsql.noise import ExactNoise, os_entropy
from tests.releases import headed

IntArray = npt.NDArray[np.int64]
PEOPLE, SPREAD = 100_000, 0.75
"""People of a star, and the standard deviation of the logarithm of their numbers of keys."""
CATALOG = """
privacy: {lineage: pages, BUDGET, unit: person.id, delta: 1e-6}
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
    held = (
        np.maximum(1, np.rint(np.exp(logarithms))).astype(np.int64) if mean > 1 else np.ones(PEOPLE, np.int64)
    )
    person = np.repeat(np.arange(PEOPLE), held)
    key = np.searchsorted(chance / chance[-1], rng.random(len(person)))
    pairs = np.unique(person * keys + np.minimum(key, keys - 1))
    return pairs // keys, pairs % keys


ONE, TWELVE = "cap: 1, epsilon: 1", "cap: 4, releases: 12"


def write(folder: Path, person: IntArray, page: IntArray, **words: str) -> Catalog:
    """A star of visits and its catalog."""
    write_columns(folder, "visits", {"id": person, "page": page})
    write_columns(folder, "person", {"id": person}, "DISTINCT id")
    text = headed(CATALOG, {"visits": "visits.parquet", "person": "person.parquet"})
    places = {"ROOT": ".", "LEDGER": "ledger"}
    given = {"MOST": "1", "PER": "16", "SHARE": "1/20", "BUDGET": ONE} | places | words
    for word, value in given.items():
        text = text.replace(word, value)
    (folder / "pages.yaml").write_text(text)
    return load_catalog(folder / "pages.yaml")


@contextmanager
def scanned(
    person: IntArray, page: IntArray, **words: str
) -> Iterator[tuple[Catalog, KeyPlan, Engine, KeyScan]]:
    """A star, the plan of its keys, its raw side, and the scan that finds keys."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = write(Path(folder), person, page, **words)
        (plan,) = key_plans(catalog)
        with closing(open_engine(catalog)) as engine:
            selection = open_selection(catalog, engine, listed_keys(catalog))
            prepare_tables(catalog, engine, selection.plan)
            scan = KeyScan(catalog, engine, selection.plan, ExactNoise(os_entropy()), bytes(range(32)))
            yield catalog, plan, engine, scan


def found(scan: KeyScan, plan: KeyPlan, listed: Sequence[Key] = ()) -> tuple[Key, ...]:
    """The list after one step."""
    name = plan.column.name
    return choose_keys(scan, [plan], {name: ListedKeys(tuple(listed))}, {name: 60_000})[name].keys


SETTINGS = {
    "a twentieth": (625, 10, {}),
    "a tenth": (774, 10, {"PER": "20", "SHARE": "1/10"}),
    "one key a person": (199, 1, {"PER": "1", "SHARE": "1/10"}),
    "one of twelve": (735, 10, {"PER": "20", "SHARE": "1/10", "BUDGET": TWELVE}),
}
"""Keys expected by the method, keys of a person on the average, and what the catalog says."""


def shown(figures: Figures) -> None:
    """Keys shown in the mean of three stars, against the method's numbers and a Gaussian threshold."""
    for name, (expected, mean, words) in SETTINGS.items():
        ours, plain = [], []
        for seed in (1, 2, 3):
            person, page = zipf(seed, 10**5, mean)
            with scanned(person, page, **words) as (_, plan, _, scan):
                ours.append(len(found(scan, plan)))
            charge, delta = (
                sum((getattr(step, what) for step in plan.rounds), Fraction(0))
                for what in ("charge", "delta")
            )
            plain.append(
                max(baselines.plain(person, page, (charge, delta), cap, seed) for cap in (1, 16, 50))
            )
        print(f"{name}: {ours} keys shown, {plain} by a Gaussian threshold, {expected} expected")
        figures.within("keys-shown-over-expected", sum(ours) / 3 / expected, 0.97, 1.03, name)
        figures.at_least("keys-shown-over-others", sum(ours) / sum(plain), 1, f"{name}, Gaussian threshold")
        if not words:
            peers(figures, ours[-1], person, page, plan)


PEERS = {"opendp": "with_opendp.py", "pipelinedp": "with_pipelinedp.py", "tumult": "with_tumult.py"}
"""Libraries that find keys nobody listed, and the script that their interpreter runs."""


def peers(figures: Figures, ours: int, person: IntArray, page: IntArray, plan: KeyPlan) -> None:
    """Keys that other libraries show of the same star at the same share, each at the cap of keys that shows most.

    OpenDP has that share of the rho of the whole budget; the others, which count in epsilon, what the share of mu^2
    implies alone, which is four times what they would have by adding epsilons up.
    """
    delta = Fraction(1, 10**6)
    key_delta, share = delta / 10, plan.column.share
    epsilon = epsilon_of(share * mu2_of(Fraction(1), delta - key_delta), delta - key_delta)
    spends = {"opendp": (float(share) * rho(1.0, float(delta - key_delta)), float(key_delta))}
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
                spend = spends.get(name, (float(epsilon), float(delta)))
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
    """Coverage of shown keys' intervals, of all and of those that are shown half of the time."""
    import dpsql

    sizes = np.tile(np.arange(35, 135), 60)  # 6,000 keys of 35 to 134 people, one key each
    page = np.repeat(np.arange(len(sizes)), sizes)
    with tempfile.TemporaryDirectory() as folder:
        catalog = write(Path(folder), np.arange(len(page)), page, PER="1", SHARE="1/10")
        target = Path(folder) / "pages.dpsql"
        publish_release(catalog, target, noise=ExactNoise(os_entropy()), key=bytes(range(32)))
        sql = "SELECT page, COUNT(*), DP_INTERVAL_LOW(COUNT(*)), DP_INTERVAL_HIGH(COUNT(*)) FROM visits GROUP BY page"
        rows = dpsql.query(sql, release=target).rows
    keyed = [row for row in rows if row[0] is not None]
    covered = np.array([row[2] <= sizes[int(row[0])] <= row[3] for row in keyed])
    near = np.array([sizes[int(row[0])] < 60 for row in keyed])
    for name, some in (("", np.ones(len(covered), bool)), ("-of-rare-keys", near)):
        print(f"intervals{name}: {covered[some].sum()} of {some.sum()} hold")
        share = float(covered[some].mean())
        figures.within("keys-intervals-cover", share, 0.93, 0.97, name.strip("-") or "all")


def refreshes(figures: Figures) -> None:
    """Twelve months of one cap of 4, 6 keys a person: the list grows and loses none."""
    listed: tuple[Key, ...] = ()
    lost, sizes = 0, []
    for month in range(12):
        person, page = zipf(100 + month, 10**5, 6)
        with scanned(person, page, BUDGET=TWELVE) as (_, plan, _, scan):
            keys = found(scan, plan, listed)
        lost += len({*listed} - {*keys})
        listed = keys
        sizes.append(len(keys))
    print(f"refreshes: {sizes}")
    figures.at_most("keys-lost-by-refreshes", lost, 0)


def cpu(figures: Figures) -> None:
    """CPU of a round over 2e6 rows over that of the plain GROUP BY in the same run."""
    rng = np.random.default_rng(2)
    person = rng.integers(0, PEOPLE, 2_000_000)
    page = np.minimum(rng.zipf(1.2, 2_000_000), 100_000)
    with scanned(person, page) as (catalog, plan, engine, scan):
        plain = f"SELECT page AS k, count(*) AS h FROM {engine.rows(catalog, 'visits')} AS v GROUP BY page"
        ratios = []
        for _ in range(3):
            floor = cpu_of(lambda: sum(len(batch) for batch in engine.relations("plain").batches(plain)))
            step = cpu_of(lambda: found(scan, plan._replace(rounds=plan.rounds[1:])))
            ratios.append(step / floor)
    figures.at_most("keys-step-cpu-over-plain-group-by", min(ratios), 12.2)  # of weights and their noise


def measure(figures: Figures) -> None:
    shown(figures)
    intervals(figures)
    cpu(figures)
    refreshes(figures)


if __name__ == "__main__":
    main(measure)
