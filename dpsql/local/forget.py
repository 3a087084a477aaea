"""Erasing what a collector holds of one person: her reports by token, before or after a release was made of them.

| held in | of one person | erased by |
|---|---|---|
| a collection's state (`collect --state`) | scrambled reports, under a keyed hash of her token | `forget_tokens` |
| stored reports (`collect --for`) | one scrambled item, under her key | `forget_stored` |
| a state's tallies, a release | nothing: sums over people | - |

A deleted row's bytes stay in a DuckDB file, so a file is written anew without them and takes the old one's place.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import duckdb

from dpsql.errors import DataError, OperationalError
from dpsql.ledger.files import PRIVATE_FILE, sync
from dpsql.local.collector import token_prefix
from dpsql.local.files import KEY_BYTES, SCHEMA, check_private, connect_file, token_key, unwritable
from dpsql.local.reported import read_items, write_items
from dpsql.row_expressions import literal

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
                aside.chmod(PRIVATE_FILE)
                sync(aside)
                aside.replace(path)  # while the old file is locked: nobody may add to it any more
                sync(path.parent)
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
