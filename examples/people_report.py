"""People report for themselves, from plan to SQL, in one file. Run it in a checkout: python examples/people_report.py

Each made-up person's own rows stay in `answer`; what leaves it is one scrambled report. `dpsql.client` is all that a
device needs, and it is the standard library alone. Here everybody is on one machine, so this protects nobody.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import dpsql
from dpsql.client import Plan, decode, read_plan, respond, to_json
from dpsql.client.entropy import system_entropy
from dpsql.client.device import to_rows

CATALOG = Path(__file__).resolve().parents[1] / "catalog" / "survey.yaml"
PEOPLE = 4000
QUESTION = "SELECT district, COUNT(*) AS people, AVG(minutes) AS minutes FROM answer GROUP BY district"


def answer(plan: Plan, person: random.Random) -> str:
    """One device: look the person's row up, scramble, report. Draws its noise from the system."""
    age = min(81, max(18, round(person.gauss(45, 15))))
    row = {
        "answer.age": age,
        "answer.district": person.choices(["north", "south", "east", "west"], [4, 3, 2, 1])[0],
        "answer.minutes": min(120, round(person.gammavariate(3, 10) + age / 5)),
    }
    return to_json(decode(respond(plan, to_rows(plan, [row]), system_entropy)))


def main() -> None:
    """Plan, report, collect, ask."""
    person = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for told in dpsql.collection_plan(CATALOG, folder / "plan.json", people=PEOPLE).predictions:
            print(f"predicted: {told.error:.1%} of all rows for {told.question}")
        plan = read_plan((folder / "plan.json").read_bytes())  # refuses one that costs more than it says
        (folder / "reports.jsonl").write_text("\n".join(answer(plan, person) for _ in range(PEOPLE)))
        done = dpsql.collect(folder / "plan.json", [folder / "reports.jsonl"], folder / "survey.dpsql")
        print(f"{done.manifest.accepted} reports accepted, {sum(done.manifest.rejected.values())} rejected")
        result = dpsql.query(QUESTION, release=folder / "survey.dpsql")
        print(result.df().round(1).to_string(index=False))
        print(result.stderr.round(1).to_string(index=False))


if __name__ == "__main__":
    main()
