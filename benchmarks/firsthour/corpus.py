"""The statements of the SQL corpus in $DPSQL_DATA, by star, and the shipped catalogs made for them by hand."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

CATALOGS = Path(__file__).parents[2] / "catalog"
NAMED = {"bf": "blackfriday", "taxi": "nyc_taxi"}


class Statement(NamedTuple):
    """A statement of the corpus, its short name, and the star that it is about."""

    name: str
    star: str
    sql: str


def data() -> Path:
    """The folder of real stars.

    Raises:
        SystemExit: $DPSQL_DATA names none.
    """
    root = Path(os.environ.get("DPSQL_DATA", ""))
    if not os.environ.get("DPSQL_DATA") or not root.is_dir():
        raise SystemExit("set DPSQL_DATA to the folder of real stars")
    return root


def statements() -> list[Statement]:
    """Every statement, in the order of its file."""
    found = []
    for path in sorted((data() / "sql").glob("*/*.sql")):
        text = path.read_text(encoding="utf-8")
        header = dict(re.findall(r"-- (id|dataset): (.*)", text))
        found.append(Statement(header["id"].strip(), header["dataset"].strip(), text))
    return found


def by_hand(star: str) -> Path:
    """The shipped catalog of a star whose unit is a row."""
    return CATALOGS / f"{NAMED.get(star, star)}.yaml"
