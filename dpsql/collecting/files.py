"""Files of a collection: read or refused in one line, written whole or not at all.

**Privacy**: plans are public, reports and releases private already; nothing here looks inside them.
"""

from __future__ import annotations

import os
from pathlib import Path

import duckdb

from dpsql.client.plan import Plan, read_plan
from dpsql.errors import DataError, OperationalError
from dpsql.release.write import ReleaseContent, write_release


def plan_file(path: Path) -> Plan:
    """Read a plan file.

    Args:
        path: the file.

    Returns:
        The checked plan.

    Raises:
        OperationalError: it cannot be read, or is no plan.
        PrivacyError: its weights cost more than its epsilon.
    """
    try:
        return read_plan(path.read_bytes())
    except OSError as error:
        raise OperationalError(f"cannot read the plan {path.name}", hint="check the path") from error
    except DataError as error:
        raise OperationalError(
            f"{path.name}: {error.reason}", hint="make one with `dpsql collection-plan CATALOG -o PLAN`"
        ) from error


def check_folder(path: Path) -> None:
    """Refuse a file to be made in a folder that is not there, before any work is done for it.

    Raises:
        OperationalError: with the folder's name.
    """
    if path.is_dir():
        raise OperationalError(f"{path} is a folder", hint="name a file in it")
    if not path.parent.is_dir():
        raise OperationalError(f"there is no folder {path.parent}", hint="make it, or name another file")


def write_plan_file(path: Path, raw: bytes) -> None:
    """Write a plan, unless another one is there: people may have answered it, and their reports name its bytes.

    Raises:
        OperationalError: another plan is there, or the file cannot be written.
    """
    check_folder(path)
    fresh = path.with_name(path.name + ".new")
    try:
        if path.exists():
            if path.read_bytes() == raw:
                return
            raise OperationalError(
                f"{path.name} holds something else, perhaps a plan that people have answered",
                hint="name another file, or remove it if nobody has it",
            )
        fresh.write_bytes(raw)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise unwritable(path) from error


def write_release_file(path: Path, content: ReleaseContent) -> None:
    """Write a release beside its name, make it durable and read-only, and rename it into place.

    Raises:
        OperationalError: the file cannot be written; nothing stays behind.
    """
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.unlink(missing_ok=True)  # what a killed run left
        write_release(fresh, content)
        fresh.chmod(0o444)
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        fresh.replace(path)
    except (OSError, duckdb.IOException) as error:
        fresh.unlink(missing_ok=True)
        raise unwritable(path) from error


def unwritable(path: Path) -> OperationalError:
    """The error of a file that the system refuses to write."""
    return OperationalError(f"cannot write {path}", hint="check the folder, its rights and the disk")
