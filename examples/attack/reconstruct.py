"""Rebuild people from exact counts of a small star, and fail on its release: python examples/attack/reconstruct.py

The attacker knows where each patient lives and how old she is, as neighbours do, and wants her diagnosis. She asks for
counts of flu in random boxes of age and district; counts below ten are hidden from her, as offices do. Least squares
over what is shown finds nearly everybody (Dinur and Nissim, 2003). From a release it does no better than a coin.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

import dpsql

PEOPLE, QUESTIONS, HIDDEN_BELOW = 120, 700, 10
DISTRICTS = ["north", "south", "east", "west"]
CATALOG = """
dpsql: 1
name: clinic
privacy: {lineage: clinic, cap: 1, unit: patient.patient_id, epsilon: 1}
tables:
  patient: {role: dimension, key: patient_id, private: true, columns: {
      age: {type: int, lower: 18, upper: 89}, district: {type: string, categories: [north, south, east, west]}}}
  visit: {role: fact, foreign_keys: {patient_id: patient}, max_ids: 1, columns: {
      diagnosis: {type: string, categories: [flu, other]}}}
views: {all: {of: visit, axes: [patient.age, patient.district, visit.diagnosis], measures: [count]}}
"""
COUNT = """SELECT COUNT(*) FROM visit JOIN patient USING (patient_id)
    WHERE diagnosis = 'flu' AND age BETWEEN {low} AND {high} AND district IN ('{one}', '{two}')"""


def rebuild(patient: pd.DataFrame, count: Callable[[str], float], rng: np.random.Generator) -> np.ndarray:
    """True where the attacker says flu, from counts of boxes in which she knows who lives."""
    boxes, counts = [], []
    for _ in range(QUESTIONS):
        low, high = sorted(rng.integers(18, 90, 2).tolist())
        one, two = rng.choice(DISTRICTS, 2, replace=False)
        shown = count(COUNT.format(low=low, high=high, one=one, two=two))
        if shown >= HIDDEN_BELOW:
            boxes.append(patient.age.between(low, high) & patient.district.isin([one, two]))
            counts.append(shown)
    return np.linalg.lstsq(np.array(boxes, float), np.array(counts), rcond=None)[0] > 0.5


def main() -> None:
    """Make people up, attack the exact counts, publish, attack the release."""
    rng = np.random.default_rng(1)
    homes = rng.choice(72 * len(DISTRICTS), PEOPLE, replace=False)
    age, district = 18 + homes // len(DISTRICTS), np.array(DISTRICTS)[homes % len(DISTRICTS)]
    patient = pd.DataFrame({"patient_id": np.arange(PEOPLE), "age": age, "district": district})
    flu = rng.random(PEOPLE) < 0.5
    visit = pd.DataFrame({"patient_id": np.arange(PEOPLE), "diagnosis": np.where(flu, "flu", "other")})
    with tempfile.TemporaryDirectory() as name, duckdb.connect() as rows:
        catalog, release = Path(name) / "clinic.yaml", Path(name) / "clinic.dpsql"
        catalog.write_text(CATALOG)
        # A fresh ledger each time is right for people who are made up, and for nobody else.
        dpsql.publish(catalog, release, tables={"patient": patient, "visit": visit}, new_ledger=True)
        rows.register("patient", patient)
        rows.register("visit", visit)
        with dpsql.connect(release) as published:
            for title, source in (("exact counts", rows), ("its release", published)):
                guess = rebuild(patient, lambda sql, source=source: source.execute(sql).fetchall()[0][0], rng)
                print(f"{title}: {np.mean(guess == flu):.0%} of {PEOPLE} diagnoses are right; guessing finds half")


if __name__ == "__main__":
    main()
