"""Erasing people: what dpsql keeps of one person, by place.

| given | of one person | erased by |
|---|---|---|
| a stream's directory | how many batches she was in, in the private state beside the ledger | `streams` |
| a ledger | keyed hashes of up to 64 rows a table, of which some may be hers | `ledger.row_sketches` |
| a collection's state (`collect --state`) | scrambled reports, under a keyed hash of her token | `forget_tokens` |
| stored reports (`collect --for`) | one scrambled item, under her key | `forget_stored` |
| a state's tallies, a release | nothing: sums over people | - |

A deleted row's bytes stay in a DuckDB file, so a file is written anew without them and takes the old one's place.

**Privacy**: docs/privacy.md, "Erasing a person".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb

from dpsql.catalog import load_catalog
from dpsql.errors import DataError, InterfaceError, OperationalError
from dpsql.ledger.files import PRIVATE_FILE, beside, put_in_place, sync
from dpsql.ledger.rules import forget_sketches
from dpsql.local.collector import token_prefix
from dpsql.local.files import KEY_BYTES, SCHEMA, check_private, connect_file, token_key, unwritable
from dpsql.local.survey import read_items, write_items
from dpsql.row_expressions import literal
from dpsql.streams import publish as stream

PARQUET = b"PAR1"
ERASED = "erased on request"
TABLES = ("plan", "file", "size", "rejected", "tally", "people")


def is_stored(path: Path) -> bool:
    """True if a file is Parquet, as stored reports are."""
    try:
        with path.open("rb") as file:
            return file.read(len(PARQUET)) == PARQUET
    except OSError as error:
        raise OperationalError(f"{path} cannot be read ({error.strerror})", hint="check the path") from error


def is_state(path: Path) -> bool:
    """True if a DuckDB file is the state of a collection."""
    try:
        with duckdb.connect(str(path), read_only=True, config={"enable_external_access": "false"}) as state:
            names = {
                str(name) for (name,) in state.execute("SELECT table_name FROM duckdb_tables()").fetchall()
            }
    except duckdb.Error as error:
        raise OperationalError(
            f"{path.name} cannot be opened",
            hint="name a state, a stream or stored reports, which nobody has open",
        ) from error
    return {*TABLES, "held"} == names


def forget_tokens(path: Path, tokens: Collection[str]) -> int:
    """Erase the reports that came with some tokens from a collection's state.

    Files that were counted stay known, so naming them again brings nothing back.

    Args:
        path: the state; its key lies beside it.
        tokens: as they stood beside the reports.

    Returns:
        How many reports were erased.

    Raises:
        OperationalError: it is open elsewhere, its key is gone, or it cannot be written; nothing was erased.

    **Privacy**: reports were private before they left a device. How many were erased shows in the manifest, as how many
    reported does.
    """
    check_private(path)
    prefix, aside = token_prefix(token_key(path, bytes(KEY_BYTES))), path.with_name(path.name + ".new")
    try:
        aside.unlink(missing_ok=True)
        fresh = connect_file(aside)
        try:
            erased = _fill_without(fresh, path, prefix, sorted(set(tokens)))
            if erased:
                put_in_place(aside, path, PRIVATE_FILE)  # while the old file is locked: nobody may add to it
        finally:
            fresh.close()
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error
    except duckdb.Error as error:
        raise OperationalError(
            f"{path.name} could not be written anew, nothing was erased",
            hint="check that nobody has it open, and that disk and memory have room",
        ) from error
    return erased


def _fill_without(fresh: duckdb.DuckDBPyConnection, path: Path, prefix: bytes, tokens: list[str]) -> int:
    """Copy a state without some tokens' reports; how many those are."""
    fresh.execute(f"ATTACH {literal(str(path))} AS before")
    fresh.execute("CHECKPOINT before")  # no log of the old file outlives it
    fresh.execute(SCHEMA)
    fresh.execute(
        "CREATE TEMP TABLE wanted AS SELECT CAST('0x' || left(sha256($prefix || encode(token)), 32) AS UHUGEINT) AS "
        "token FROM (SELECT unnest($tokens::VARCHAR[]) AS token)",
        {"prefix": prefix, "tokens": tokens},
    )
    ((erased,),) = fresh.execute("SELECT count(*) FROM before.held SEMI JOIN wanted USING (token)").fetchall()
    for table in TABLES:
        fresh.execute(f"INSERT INTO {table} FROM before.{table}")
    fresh.execute("INSERT INTO held FROM before.held ANTI JOIN wanted USING (token)")
    fresh.execute("INSERT INTO rejected VALUES ('', ?, ?)", [ERASED, erased])
    fresh.execute("CHECKPOINT")
    return int(erased)


def forget_stored(path: Path, units: Collection[str]) -> int:
    """Erase the reports of some people from a file of stored reports.

    Args:
        path: of `collect --for`.
        units: their keys, as text.

    Returns:
        How many reports were erased.

    Raises:
        OperationalError: it is no such file, or cannot be written; nothing was erased.
        DataError: no report would be left; delete the file instead.

    **Privacy**: what the file told of them, and that they reported, is gone from it.
    """
    answered, rows = read_items(path)
    remaining, aside = [row for row in rows if row[0] not in set(units)], path.with_name(path.name + ".new")
    if not remaining:
        raise DataError(f"no report would be left in {path.name}", hint="delete the file")
    if len(remaining) < len(rows):
        try:
            write_items(aside, answered, remaining)
            sync(aside)
            aside.replace(path)
            sync(path.parent)
        except (OSError, duckdb.Error) as error:
            raise unwritable(path, error) from error
        finally:
            aside.unlink(missing_ok=True)
    return len(rows) - len(remaining)


class Forgotten(NamedTuple):
    """Erased data of some people.

    Args:
        erased: reports, or counts of batches.
        said: in words.
    """

    erased: int
    said: str


def forget_people(held: Path, people: Sequence[str], catalog: Path | None) -> Forgotten:
    """Erase some people from a stream, a collection's state or stored reports.

    Args:
        held: where they are kept.
        people: tokens of reports, or keys of the stream's privacy unit, as text.
        catalog: of a stream, its catalog.

    Raises:
        InterfaceError: a stream without its catalog.
        OperationalError: it cannot be read or written; nothing was erased.
    """
    number = len(set(people))
    if held.is_dir():
        if catalog is None:
            raise InterfaceError("a stream's private state lies beside its ledger", hint="name its --catalog")
        erased = stream.forget_people(load_catalog(catalog), held, people)
        said = f"erased the batch counts of {erased} of {number} people; no later batch admits them"
        return Forgotten(erased, said)
    if beside(held, ".head").exists():
        tables = forget_sketches(held)
        said = f"erased the sketches of {tables} tables' rows, whoever is in them; the next charge makes new ones"
        nothing = "nothing to erase: the ledger contains no sketch of rows, and nothing else about people"
        return Forgotten(tables, said if tables else nothing)
    if is_stored(held):
        erased = forget_stored(held, people)
    elif is_state(held):
        erased = forget_tokens(held, people)
    else:
        said = f"{held} contains sums over people and no row of any person: there is nothing to erase"
        return Forgotten(0, said)
    said = f"erased {erased} reports of {number} people from {held}; spools are yours to erase"
    return Forgotten(erased, said)
