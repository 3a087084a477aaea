"""The raw rows that both revisions publish: the bundled shop made small, real stars with few rows, a made-up survey."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import numpy as np

KEPT = {"lineorder": 10, "invoice_line": 8, "green_trips_2020q4": 5}
"""Large tables, of which every n-th row is enough: what takes time otherwise is their rows, not their cells."""


def make_stars(folder: Path) -> None:
    """Write everything below `folder`; real stars only where DPSQL_DATA names them."""
    (folder / "shop").mkdir(parents=True)
    _shop(folder / "shop")
    _survey(folder / "shop" / "answer.parquet")
    _gaps(folder / "shop")
    _late(folder / "shop")
    given = os.environ.get("DPSQL_DATA")
    for source in sorted(Path(given).glob("*/*.parquet")) if given else ():
        target = folder / "real" / source.parent.name / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(source, KEPT.get(source.stem, 1), target)


def _shop(folder: Path) -> None:
    from dpsql.examples.retail import make_star, write_star

    write_star(folder, make_star(20250101, 6000, 200))


def _gaps(folder: Path) -> None:
    """The sales with NULL in every seventh amount and every fifth quantity."""
    gaps = (
        "* REPLACE (CASE WHEN sale_id % 7 > 0 THEN amount END AS amount, "
        "CASE WHEN sale_id % 5 > 0 THEN quantity END AS quantity)"
    )
    _write(f"SELECT {gaps} FROM read_parquet('{folder / 'sales.parquet'}')", folder / "gaps.parquet")


def _late(folder: Path) -> None:
    """Files of two batches of a stream: sales of the day, late ones of an earlier day, one in nine without a day."""
    (folder / "late").mkdir()
    for day, before in (("2025-01-03", "2025-01-02"), ("2025-01-05", "2025-01-01")):
        rows = (
            "SELECT * REPLACE (CASE WHEN sale_id % 9 > 0 THEN sold_on END AS sold_on) "
            f"FROM read_parquet('{folder / 'sales.parquet'}') WHERE sold_on IN (DATE '{day}', DATE '{before}')"
        )
        _write(rows, folder / "late" / f"{day}.parquet")


def _survey(target: Path) -> None:
    """People's answers: older ones travel less, and nobody stands behind them."""
    rng = np.random.default_rng(5)
    age = rng.integers(18, 82, size=20_000)
    minutes = np.clip(np.round(rng.gamma(3.0, 12.0, size=age.size) * (110 - age) / 80), 0, 120).astype(
        np.int64
    )
    district = np.array(["north", "south", "east", "west"])[rng.integers(0, 4, size=age.size)]
    connection = duckdb.connect()
    connection.execute("CREATE TABLE answer (age BIGINT, district VARCHAR, minutes BIGINT)")
    rows = [age.tolist(), district.tolist(), minutes.tolist()]
    connection.execute("INSERT INTO answer SELECT unnest(?), unnest(?), unnest(?)", rows)
    connection.execute(f"COPY answer TO '{target}' (FORMAT parquet)")


def _copy(source: Path, step: int, target: Path) -> None:
    kept = f"SELECT * EXCLUDE (file_row_number) FROM read_parquet('{source}', file_row_number = true)"
    _write(f"{kept} WHERE file_row_number % {step} = 0", target)


def _write(rows: str, target: Path) -> None:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"COPY ({rows}) TO '{target}' (FORMAT parquet)")
