"""The statements of the SQL corpus in $DPSQL_DATA, by star, and the shipped catalogs made for them by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from benchmarks.central.datasets import data_root

CATALOGS = Path(__file__).parents[2] / "catalog"
NAMED = {"bf": "blackfriday", "taxi": "nyc_taxi"}


class Statement(NamedTuple):
    """A statement of the corpus, its short name, and the star that it is about."""

    name: str
    star: str
    sql: str


def statements() -> list[Statement]:
    """Every statement, in the order of its file."""
    found = []
    for path in sorted((data_root() / "sql").glob("*/*.sql")):
        text = path.read_text(encoding="utf-8")
        header = dict(re.findall(r"-- (id|dataset): (.*)", text))
        found.append(Statement(header["id"].strip(), header["dataset"].strip(), text))
    return found


def by_hand(star: str) -> Path:
    """The shipped catalog of a star whose unit is a row."""
    return CATALOGS / f"{NAMED.get(star, star)}.yaml"
