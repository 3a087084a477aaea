"""Erasing people: what dpsql keeps of one person, in whichever place she is kept.

| given | of one person | erased by |
|---|---|---|
| a stream's directory | how many batches she was in, in the private state beside the ledger | `streams` |
| a collection's state, stored reports | her scrambled reports | `collecting` |
| a ledger | keyed hashes of up to 64 rows a table, of which some may be hers | `ledger.row_sketches` |
| a release | nothing: sums over people | - |

**Privacy**: docs/privacy.md, "Erasing a person".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dpsql.catalog import load_catalog
from dpsql.errors import InterfaceError
from dpsql.ledger.files import beside
from dpsql.ledger.rules import forget_sketches
from dpsql.local.forget import forget_stored, forget_tokens, is_state, is_stored
from dpsql.streams import publish as stream


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
        people_erased = stream.forget_people(load_catalog(catalog), held, people)
        return Forgotten(
            people_erased,
            f"erased the batch counts of {people_erased} of {number} people; no later batch admits them",
        )
    if beside(held, ".head").exists():
        tables = forget_sketches(held)
        if not tables:
            return Forgotten(
                0, "nothing to erase: the ledger contains no sketch of rows, and nothing else about people"
            )
        return Forgotten(
            tables,
            f"erased the sketches of {tables} tables' rows, whoever is in them; the next charge makes new ones",
        )
    if is_stored(held):
        erased = forget_stored(held, people)
    elif is_state(held):
        erased = forget_tokens(held, people)
    else:
        return Forgotten(
            0, f"{held} contains sums over people and no row of any person: there is nothing to erase"
        )
    return Forgotten(
        erased, f"erased {erased} reports of {number} people from {held}; spools are yours to erase"
    )
