"""Random stars cost their claim from every kind of source, and defects of sources are found once they are put back.

Every fifth star is measured through all kinds of sources, every other one through one of them.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from unittest import mock

import psycopg

from benchmarks.figures import Figures, main
from dpsql.catalog import load_catalog
from dpsql.engines import values
from dpsql.errors import Error
from tests.engines.servers import Server, postgres_programs, running_postgres
from tests.privacy.loss import Distinguished, Loss
from tests.privacy.plant import is_found, planted
from tests.privacy.source_cases import measured, row_of_a_person_without_sales, rules_with
from tests.privacy.stored import DSN, SOURCES, StarPair, measure_stored, random_stored

EVERY = 5


def kinds_of(star: StarPair, seed: int, folder: Path) -> list[str]:
    """Kinds of sources that a star is measured through."""
    place = folder / "catalog.yaml"
    text = star.pair.catalog.replace("ROOT", str(folder)).replace("LEDGER", str(folder / "ledger.duckdb"))
    place.write_text(text)
    catalog = load_catalog(place)
    fit = [
        name for name, layout in SOURCES.items() if name in ("CSV", "folders") or layout(seed).fits(catalog)
    ]
    return fit if seed % EVERY == 0 else [fit[seed % len(fit)]]


def measured_share(star: StarPair, name: str, seed: int, folder: Path) -> float:
    """Loss over claim; infinite where the released files differ in something that no noise covers."""
    try:
        return measure_stored(star.pair, SOURCES[name](seed), folder, seed).share
    except Distinguished as error:
        print(f"star {seed} from {name}: {error.reason}")
        return inf


def measure_stars(seeds: Sequence[int], folder: Path) -> dict[str, list[tuple[float, bool]]]:
    """Loss over claim of each star and whether its claim is tight, by kind of source."""
    shares: dict[str, list[tuple[float, bool]]] = {name: [] for name in SOURCES}
    for seed in seeds:
        star = random_stored(seed)
        for name in kinds_of(star, seed, folder):
            with tempfile.TemporaryDirectory(dir=folder) as place:
                share = measured_share(star, name, seed, Path(place) / "star")
            if share > 1 or (star.tight and share < 0.98):
                print(f"star {seed} ({star.pair.kind}) from {name}: {share:.6g} of the claim", flush=True)
            shares[name].append((share, star.tight))
    return shares


SCHEMA = "spelt"


def on_a_server(*statements: str) -> dict[str, object]:
    """Tables of a schema made anew."""
    with psycopg.connect(os.environ[DSN], autocommit=True) as server:
        server.execute("CREATE EXTENSION IF NOT EXISTS citext SCHEMA public")
        number = server.execute("SELECT count(*) FROM pg_namespace").fetchall()[0][0]
        schema = f"{SCHEMA}{number}"
        for statement in (f"CREATE SCHEMA {schema}", f"SET search_path = {schema}, public", *statements):
            server.execute(statement.encode())
    root = f"${{{DSN}}} options='-c search_path={schema},public'"
    return {"kind": "postgresql", "root": root, "tables": {"sales": "sales", "person": "person"}}


def citext_folds(folder: Path) -> Loss:
    """A person's row meets sales that differ from her key by case alone."""
    tables, person = row_of_a_person_without_sales("citext")
    return measured(folder, lambda place: on_a_server(*tables, person), lambda place: on_a_server(*tables))


LONG = 10**29


def long_keys(folder: Path) -> Loss:
    """A person of four hundred sales, among thirty whose keys are beyond 10^28 as hers is."""
    tables = (
        "CREATE TABLE person (id numeric(39,0), age integer)",
        "CREATE TABLE sales (buyer numeric(39,0), region text, amount numeric(4,1))",
        f"INSERT INTO person SELECT {LONG} + i, 3 FROM generate_series(1, 30) AS t(i)",
        f"INSERT INTO sales SELECT {LONG} + i, 'north', 0 FROM generate_series(1, 30) AS t(i)",
    )
    more = (
        f"INSERT INTO person VALUES ({LONG}, 3)",
        f"INSERT INTO sales SELECT {LONG}, 'south', 9 FROM generate_series(1, 400)",
    )
    return measured(folder, lambda place: on_a_server(*tables, *more), lambda place: on_a_server(*tables))


CLAMPED = "CAST(least(greatest({x}, -1e28), 1e28) AS numeric(38,9))"
SERVER_DEFECTS: dict[str, tuple[Callable[[Path], Loss], tuple[str, str, str]]] = {
    "citext is a key": (citext_folds, ("citext", "VARCHAR", "CAST({x} AS public.citext)")),
    "keys are clamped": (long_keys, ("numeric(?:", "DECIMAL(38,9)", CLAMPED)),
}


def found_on_a_server(name: str, folder: Path) -> bool:
    """Whether a rule of PostgreSQL that is taken back shows as a loss above the claim, and not while it stands."""
    case, (stored, kind, key) = SERVER_DEFECTS[name]
    try:
        sound = case(folder / "as it is").share <= 1
    except Error:
        sound = True  # refused: the type is no key
    with mock.patch.object(values, "TYPES", rules_with(values.POSTGRESQL, stored, kind, key)):
        try:
            return sound and case(folder / "broken").share > 1
        except Error as error:
            print(f"{name}: {error}")
            return False


@contextmanager
def server_of_stars() -> Iterator[Server]:
    """A PostgreSQL whose address the sources find in the environment."""
    programs = postgres_programs()
    if programs is None:
        sys.exit("this needs a PostgreSQL server")
    with running_postgres(programs) as server, mock.patch.dict(os.environ, {DSN: server.dsn}):
        yield server


def measure(figures: Figures, folder: Path, *, stars: int = 300, first: int = 0) -> None:
    """Measure so many stars from one on, and put the defects back."""
    with server_of_stars():
        shares = measure_stars(range(first, first + stars), folder)
        print({kind: len(listed) for kind, listed in shares.items()})
        pairs = [pair for listed in shares.values() for pair in listed]
        words_of = f"{len(pairs)} pairs of {stars} random stars x {len(shares)} kinds of sources"
        figures.at_most(f"sources: worst loss over claim, {words_of}", max(share for share, _ in pairs), 1.0)
        tight = [share for share, is_tight in pairs if is_tight]
        figures.at_least(f"sources: least loss over claim, {len(tight)} tight pairs", min(tight), 0.98)
        plants = [plant for plant in planted() if plant.measured.__module__ == "tests.privacy.source_cases"]
        missed = [plant.name for i, plant in enumerate(plants) if not is_found(plant, folder / f"p{i}")]
        missed += [
            each for i, each in enumerate(SERVER_DEFECTS) if not found_on_a_server(each, folder / f"s{i}")
        ]
        print("".join(f"not found: {each}\n" for each in missed), end="")
        listed = len(plants) + len(SERVER_DEFECTS)
        figures.table(f"sources: planted defects not found, of {listed}", len(missed))


if __name__ == "__main__":
    main(measure)
