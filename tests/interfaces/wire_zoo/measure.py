"""How many recorded statements a server of dpsql answers.

    PYTHONPATH=. python -m tests.interfaces.wire_zoo.measure [--list]

A statement is answered if it gives no error, the columns that PostgreSQL names, rows where PostgreSQL has rows, and
says the same of the star: whatever names of its tables, columns, keys and types stand in PostgreSQL's rows stand in
the server's, row by row.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.interfaces.wire_zoo.wire import Asker, Given

STATEMENTS = Path(__file__).with_name("statements.json")
STAR = frozenset({
    "customer", "product", "sales", "shop", "customer_id", "product_id", "amount", "sold_on", "age", "region",
    "category", "customer_pkey", "product_pkey", "sales_customer_id_fkey", "sales_product_id_fkey", "bigint", "int8",
    "integer", "int4", "text", "date", "float8", "double precision", "PRIMARY KEY (product_id)",
    "FOREIGN KEY (product_id) REFERENCES product(product_id)",
    "FOREIGN KEY (customer_id) REFERENCES customer(customer_id)",
})  # fmt: skip
ABSENT = ("pg_extension",)
"""Relations that have rows in every PostgreSQL and none here."""
OIDS_OF_STAR = (
    "SELECT relname, c.oid FROM pg_class c, pg_namespace n WHERE n.oid = relnamespace AND nspname = 'public'"
)
MOST_COMPARED = 40
"""Rows of an answer that the fixture keeps whole."""


class Verdict(NamedTuple):
    """A statement of the zoo, and why it counts as unanswered; empty if it is answered."""

    client: str
    text: str
    reason: str


def statements() -> list[dict[str, Any]]:
    """The fixture's entries."""
    return list(json.loads(STATEMENTS.read_text())["statements"])


def judge(entry: dict[str, Any], given: Given) -> str:
    """Why an answer is none; empty if it is one."""
    if given.error:
        return given.error
    wanted, names = [name for name, _ in entry["columns"]], [name for name, _ in given.columns]
    if wanted != names:
        return f"columns {names} instead of {wanted}"
    if bool(entry["count"]) and not given.rows and not any(name in entry["text"] for name in ABSENT):
        return f"no row instead of {entry['count']}"
    if entry["count"] <= MOST_COMPARED and (missing := _of_star(entry["rows"]) - _of_star(given.rows)):
        return f"rows without {sorted(missing)[:3]}"
    return ""


def _of_star(rows: Iterable[Sequence[str | None]]) -> set[tuple[str, ...]]:
    """The names of the star in each row."""
    return {names for row in rows if (names := tuple(cell for cell in row if cell in STAR))}


def _translator(asker: Asker) -> Callable[[str], str]:
    """Turns OIDs of the star's tables in PostgreSQL into the server's."""
    recorded = json.loads(STATEMENTS.read_text())["oids"]
    served = dict(asker.ask(OIDS_OF_STAR).rows)
    pairs = {oid: str(served.get(name, oid)) for name, oid in recorded.items()}
    return lambda text: re.sub(r"\b\d{5}\b", lambda match: pairs.get(match[0], match[0]), text)


def verdicts(port: int) -> list[Verdict]:
    """Ask a server every statement, each in a connection of its client's."""
    askers: dict[str, Asker] = {}
    translate = _translator(Asker(port, "oids"))
    answers = []
    for entry in statements():
        client = entry["client"]
        if client not in askers:
            askers[client] = Asker(port, client)
        askers[client].ask("ROLLBACK")
        values = [None if value is None else translate(value) for value in entry["values"]]
        given = askers[client].ask(translate(entry["text"]), values)
        answers.append(Verdict(client, entry["text"], judge(entry, given)))
        if "the connection ended" in given.error:
            del askers[client]
    return answers


def main() -> None:
    """Print the figure, and with --list what is not answered."""
    from tests.interfaces.wire_client import serving
    from tests.interfaces_release import build

    with tempfile.TemporaryDirectory(prefix="dpsql-zoo-") as folder, serving(build(Path(folder))) as port:
        judged = verdicts(port)
    if "--list" in sys.argv:
        for verdict in judged:
            if verdict.reason:
                print(f"{verdict.client}: {' '.join(verdict.text.split())[:160]}\n    {verdict.reason[:400]}")
    answered = sum(not verdict.reason for verdict in judged)
    word = "ok" if answered == len(judged) >= 130 else "short"
    print(f"figure wire-statements-answered: {answered} of {len(judged)} (all of at least 130) {word}")


if __name__ == "__main__":
    main()
