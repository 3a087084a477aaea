"""Numbers in notes compared with the rows: one pattern and one SELECT for each sentence that states a number.

| sentence | holds where |
|---|---|
| about X +- Y rows of up to M rows a unit lie beyond max_ids (N) | the rows beyond are within two times Y, or 1, of X |
| about X +- Y units own more than N rows | the units are within two times Y, or 1, of X |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import duckdb

OWNERS = {
    "visit": "SELECT person_id, COUNT(*) AS n FROM visit GROUP BY 1",
    "loan": "SELECT person_id, COUNT(*) AS n FROM loan GROUP BY 1",
    "item": "SELECT visit.person_id, COUNT(*) AS n FROM item JOIN visit USING (visit_id) GROUP BY 1",
}
NUMBER = r"([\d,]+)"


class Claim(NamedTuple):
    """A sentence that states a number.

    Args:
        pattern: of the note; its first group is a table.
        truth: SQL over `owners`, with the numbers that the pattern finds in braces.
        holds: (truth, further groups) -> whether the sentence is true.
    """

    pattern: str
    truth: str
    holds: Callable[[float, list[float]], bool]


CLAIMS = (
    Claim(
        rf"(\w+): about {NUMBER} \+- {NUMBER} rows \(\d+% of all\) of up to {NUMBER} rows a unit lie beyond max_ids "
        rf"\({NUMBER}\)",
        "SELECT sum(greatest(least(n, {2}) - {3}, 0)) FROM owners",
        lambda truth, numbers: abs(truth - numbers[0]) <= max(1.0, 2 * numbers[1]),
    ),
    Claim(
        rf"(\w+): about {NUMBER} \+- {NUMBER} units own more than {NUMBER} rows",
        "SELECT count(*) FILTER (n > {2}) FROM owners",
        lambda truth, numbers: abs(truth - numbers[0]) <= max(1.0, 2 * numbers[1]),
    ),
)


def false_claims(notes: tuple[str, ...], database: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, float]]:
    """Notes that the rows contradict, each with the truth.

    Args:
        notes: under an answer.
        database: the rows.
    """
    for note in notes:
        for claim in CLAIMS:
            found = re.search(claim.pattern, note)
            if found is None:
                continue
            of, *numbers = (group.replace(",", "") for group in found.groups())
            sql = f"WITH owners AS ({OWNERS[of]}) {claim.truth.format(*numbers)}"
            ((truth,),) = database.execute(sql).fetchall()
            if not claim.holds(float(truth), [float(number) for number in numbers]):
                yield note, float(truth)
