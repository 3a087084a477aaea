"""A made-up clinic: three facts over snowflakes of three hops, with keys that are NULL or name no row at every hop.

    visit, bill -> doctor -> ward -> hospital          public
    visit, bill, stay -> patient -> home               private
    stay -> ward -> hospital

`visit.reason` has texts that the catalog does not know, `patient.age` ages.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from dpsql.curator.prove.layouts import RawRows, load_tables
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ZeroNoise
from tests.releases import published, write_tables

FIRST_DAY = datetime.date(2024, 1, 1)
DAYS = 180
REGIONS = ("north", "south", "east", "west")
REASONS = ("cold", "injury", "check", "other care")
SPECIALTIES = ("eye", "heart", "skin", "bone")
AGES = range(20, 60)
ROOMS = range(1, 7)

CATALOG = """
dpsql: 1
name: clinic
source:
  kind: parquet
  root: data
  tables: {visit: visit.parquet, bill: bill.parquet, stay: stay.parquet, patient: patient.parquet, home: home.parquet,
    doctor: doctor.parquet, ward: ward.parquet, hospital: hospital.parquet}
privacy: {lineage: clinic, cap: 10000, unit: row, epsilon: 10000}
tables:
  visit:
    role: fact
    foreign_keys: {patient_id: patient, doctor_id: doctor}
    columns:
      seen_on: {type: date, lower: 2024-01-01, upper: 2024-06-28}
      reason: {type: string, categories: [cold, injury, check, other care], nullable: true}
      cost: {type: decimal, scale: 2, lower: 0, upper: 200, measure: true, nullable: true}
      minutes: {type: int, lower: 0, upper: 90, measure: true}
  bill:
    role: fact
    foreign_keys: {patient_id: patient, doctor_id: {references: doctor, on_missing: drop}}
    columns:
      sent_on: {type: date, lower: 2024-01-01, upper: 2024-06-28}
      paid: {type: bool, nullable: true}
      amount: {type: decimal, scale: 2, lower: -50, upper: 300, measure: true}
  stay:
    role: fact
    foreign_keys: {patient_id: patient, ward_id: ward}
    columns:
      nights: {type: int, lower: 0, upper: 30, measure: true}
      began: {type: timestamp, grain: hour, lower: 2024-01-01 00:00:00, upper: 2024-01-14 23:00:00}
  patient:
    role: dimension
    key: patient_id
    private: true
    foreign_keys: {home_id: home}
    columns:
      age: {type: int, lower: 20, upper: 59}
      region: {type: string, categories: [north, south, east, west], nullable: true}
  home:
    role: dimension
    key: home_id
    private: true
    columns:
      rooms: {type: int, lower: 1, upper: 6, nullable: true, out_of_domain: drop}
  doctor:
    role: dimension
    key: doctor_id
    private: false
    foreign_keys: {ward_id: ward}
    columns: {specialty: {type: string}, grade: {type: int}}
  ward:
    role: dimension
    key: ward_id
    private: false
    foreign_keys: {hospital_id: hospital}
    columns: {ward: {type: string}, floor: {type: int}}
  hospital:
    role: dimension
    key: hospital_id
    private: false
    columns: {city: {type: string}, beds: {type: int}}
views:
  visit_people: {of: visit, axes: [patient.age, patient.region], measures: [count, visit.cost, visit.minutes]}
  visit_doctors: {of: visit, axes: [patient.region, {axis: doctor, by: [doctor_id]}, visit.reason],
    measures: [count, visit.cost, visit.minutes]}
  visit_days: {of: visit, axes: [visit.seen_on, {axis: doctor, by: [specialty]}], measures: [count, visit.minutes]}
  visit_wards: {of: visit, axes: [{axis: doctor_id.ward_id, by: [ward_id]}, visit.reason],
    measures: [count, visit.minutes]}
  visit_homes: {of: visit, axes: [home.rooms, patient.age], measures: [count]}
  bill_doctors: {of: bill, axes: [{axis: doctor, by: [doctor_id]}, bill.paid, patient.region],
    measures: [count, bill.amount]}
  bill_days: {of: bill, axes: [bill.sent_on, patient.region], measures: [count, bill.amount]}
  stay_wards: {of: stay, axes: [{axis: ward, by: [ward_id]}, patient.region], measures: [count, stay.nights]}
  stay_hours: {of: stay, axes: [stay.began], measures: [count, stay.nights]}
"""

Rows = Sequence[tuple[Any, ...]]
TABLES = {
    "hospital": "hospital_id INT, city VARCHAR, beds INT",
    "ward": "ward_id INT, ward VARCHAR, floor INT, hospital_id INT",
    "doctor": "doctor_id INT, specialty VARCHAR, grade INT, ward_id INT",
    "home": "home_id INT, rooms INT",
    "patient": "patient_id INT, age INT, region VARCHAR, home_id INT",
    "visit": "patient_id INT, doctor_id INT, seen_on DATE, reason VARCHAR, cost DECIMAL(9, 2), minutes INT",
    "bill": "patient_id INT, doctor_id INT, sent_on DATE, paid BOOLEAN, amount DECIMAL(9, 2)",
    "stay": "patient_id INT, ward_id INT, nights INT, began TIMESTAMP",
}


def made(seed: int) -> dict[str, Rows]:
    """Rows of all tables."""
    draw = random.Random(seed)

    def key(count: int) -> int | None:
        """A key that mostly names a row, and sometimes is NULL or names none."""
        return draw.choice([*range(count), *range(count), *range(count), None, 900])

    def day() -> datetime.date:
        return FIRST_DAY + datetime.timedelta(days=draw.randrange(DAYS))

    def money(low: int, high: int) -> float:
        return draw.randrange(low * 100, high * 100) / 100

    def age(number: int) -> int:
        """An age; each occurs."""
        return AGES[number] if number < len(AGES) else draw.choice([*AGES, 11, 77])

    def times(count: int, row: Callable[[int], tuple[Any, ...]]) -> Rows:
        return [row(number) for number in range(count)]

    return {
        "hospital": times(3, lambda i: (i, ("Ulm", "Bonn", "Kiel")[i], 100 * (i + 1))),
        "ward": times(6, lambda i: (i, f"ward {'ABCDEF'[i]}", i % 4, (0, 1, 2, 1, None, 900)[i])),
        "doctor": times(14, lambda i: (i, SPECIALTIES[i % 4], i % 5, i if i < 6 else key(6))),
        "home": times(30, lambda i: (i, [*ROOMS, None][i % 7])),
        "patient": times(150, lambda i: (i, age(i), draw.choice([*REGIONS, None, "abroad"]), key(30))),
        "visit": times(1500, lambda i: (
            key(150), key(14), day(), draw.choice([*REASONS, *REASONS, None, "unheard of"]),
            draw.choice([None, money(0, 200), money(0, 200)]), draw.randrange(91),
        )),
        "bill": times(900, lambda i: (key(150), draw.choice([*range(14), None, 900]), day(),
                                      draw.choice([True, False, None]), money(-50, 300))),
        "stay": times(600, lambda i: (key(150), key(6), draw.randrange(31),
                                      datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=draw.randrange(336)))),
    }  # fmt: skip


def filled(tables: Mapping[str, str], rows: Mapping[str, Rows]) -> duckdb.DuckDBPyConnection:
    """Tables of these columns and rows in DuckDB."""
    raw = duckdb.connect()
    load_tables(raw, {table: RawRows(columns, rows[table]) for table, columns in tables.items()})
    return raw


def exact_release(
    catalog: Path, text: str, tables: Mapping[str, str], rows: Mapping[str, Rows]
) -> ReleaseEngine:
    """The release without noise of a catalog whose tables lie in `data`, opened."""
    write_tables(
        catalog.parent / "data", {name: RawRows(kinds, rows[name]) for name, kinds in tables.items()}
    )
    catalog.write_text(text)
    return published(catalog, ZeroNoise(), catalog.stem, key=b"k" * 32)


def publish(folder: Path, rows: dict[str, Rows]) -> ReleaseEngine:
    """The clinic's release without noise, opened."""
    return exact_release(folder / "clinic.yaml", CATALOG, TABLES, rows)


def plain(rows: dict[str, Rows]) -> duckdb.DuckDBPyConnection:
    """The same tables in DuckDB, as the catalog declares their values: an age that it does not know is NULL, a text
    that it does not know is `(other)`, and rows that it leaves out are not there."""
    raw = filled(TABLES, rows)
    raw.execute(f"UPDATE patient SET age = NULL WHERE age NOT BETWEEN {AGES.start} AND {AGES.stop - 1}")
    for table, column, known in (("patient", "region", REGIONS), ("visit", "reason", REASONS)):
        raw.execute(f"UPDATE {table} SET {column} = '(other)' WHERE {column} NOT IN {known}")
    raw.execute("DELETE FROM bill WHERE doctor_id IS NULL OR doctor_id = 900")
    return raw
