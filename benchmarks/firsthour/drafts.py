"""Drafts of every star in $DPSQL_DATA, as files and one as a DuckDB copy: what they find, and what a person must edit.

A draft is taken as it is written, with no table public. Every mark is taken away, as somebody does who has read the
lines, and the catalog is published.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import duckdb
import yaml

from benchmarks.central.datasets import data_root
from benchmarks.figures import Figures, main
from dpsql.api import publish
from dpsql.catalog import Catalog, load_catalog
from dpsql.curator.draft import CatalogDraft, draft_from_source, leave_open

STARS = yaml.safe_load(Path(__file__).with_name("stars.yaml").read_text(encoding="utf-8"))
FOREIGN_KEYS = {star: {tuple(key.split()) for key in known["foreign_keys"]} for star, known in STARS.items()}
"""Star -> the foreign keys that people know it to have: (table, column, referenced table)."""

UNITS = {star: known["unit"] for star, known in STARS.items()}
"""Star -> its people; empty where nobody could know, and the draft must ask."""


class Drafted(NamedTuple):
    """A draft, read back."""

    draft: CatalogDraft
    catalog: Catalog
    foreign_keys: frozenset[tuple[str, str, str]]


def measure(figures: Figures, folder: Path) -> None:
    """Draft every star."""
    stars = {star: drafted(data_root() / star, folder / f"{star}.yaml") for star in FOREIGN_KEYS}
    found = sum(len(stars[star].foreign_keys & known) for star, known in FOREIGN_KEYS.items())
    wrong = sum(len(stars[star].foreign_keys - known) for star, known in FOREIGN_KEYS.items())
    figures.table(f"draft-stars-valid, of {len(FOREIGN_KEYS)}", len(stars))
    figures.at_least("draft-foreign-keys-found", found / sum(map(len, FOREIGN_KEYS.values())), 0.95)
    figures.at_most("draft-foreign-keys-wrong", wrong, 0)
    # asked in vain is no fault
    units = sum(
        not s.draft.question and s.catalog.privacy.unit.name != UNITS[name] for name, s in stars.items()
    )
    figures.table("draft-units-wrong-and-not-asked", units)
    unasked = sum(len(star.catalog.public_tables) for star in stars.values())
    figures.at_most("draft-tables-public-that-nobody-named", unasked, 0)
    for star, made in stars.items():
        _publish(star, made, folder)
    _copy(folder)
    copied = drafted(folder / "northwind.duckdb", folder / "copied.yaml")
    same = copied.catalog.tables == stars["northwind"].catalog.tables
    figures.table("draft-of-a-duckdb-copy-alike", float(same))


def drafted(source: Path, output: Path) -> Drafted:
    """A draft with nothing said by the curator."""
    made = draft_from_source(source, output, None, leave_open)
    catalog = load_catalog(output)
    keys = frozenset(
        (name, column, key.references)
        for name, table in catalog.tables.items() for column, key in table.foreign_keys.items()
    )  # fmt: skip
    return Drafted(made, catalog, keys)


def _publish(star: str, made: Drafted, folder: Path) -> None:
    """Take the marks of a draft away and publish it."""
    text = re.sub(r", confirm: true|^ *confirm: true\n", "", made.draft.text, flags=re.MULTILINE)
    own = folder / star
    own.mkdir()
    (own / "catalog.yaml").write_text(text, encoding="utf-8")
    report = publish(own / "catalog.yaml", own / "release.dpsql")
    marks, named = made.draft.open, ", ".join(made.draft.candidates) or "none"
    print(f"  {star}: {marks} marks; candidates {named}; {report.statistics} statistics", flush=True)


def _copy(folder: Path) -> None:
    """Northwind as a DuckDB file."""
    with duckdb.connect(str(folder / "northwind.duckdb")) as connection:
        for file in sorted((data_root() / "northwind").glob("*.parquet")):
            connection.execute(f"CREATE TABLE \"{file.stem}\" AS SELECT * FROM '{file}'")


if __name__ == "__main__":
    main(measure)
