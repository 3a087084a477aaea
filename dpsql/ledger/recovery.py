"""What a crash leaves behind, and how it is finished or undone.

`<ledger>.intent` names the one draw that may be under way. If the ledger holds its entry, the
rename is finished; if not, the draw is destroyed. Nothing is ever drawn again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

from dpsql.errors import IntegrityError
from dpsql.ledger.files import RELEASE_MODE, beside, holds, locked, sync, write_json
from dpsql.ledger.identity import Recovery
from dpsql.ledger.store import Store

KillPoint: TypeAlias = Callable[[str], None]


class Draft(NamedTuple):
    """A draw on its way: its private directory, the file in it, and where it is to be shown."""

    release_id: str
    target: Path

    @property
    def directory(self) -> Path:
        """The private directory next to the target: the rename stays within one file system."""
        return self.target.with_name(f".{self.target.name}.{self.release_id}.staging")

    @property
    def file(self) -> Path:
        """The draw."""
        return self.directory / self.target.name


def no_kill(step: str) -> None:
    """Go on."""


def recover(ledger: Path) -> Recovery:
    """Finish or undo what a crash left behind; `publish_file` does the same before it spends.

    Args:
        ledger: the ledger file.

    Returns:
        What was found, all None if nothing.

    Raises:
        IntegrityError: the chain is broken, or a foreign file stands where a charged release belongs.
    """
    if not ledger.exists():
        return Recovery()
    with opened(ledger) as store:
        return settle(store)


@contextmanager
def opened(ledger: Path) -> Iterator[Store]:
    """The ledger, locked and checked, and closed whatever happens."""
    with locked(ledger):
        store = Store(ledger)
        try:
            yield store
        finally:
            store.close()


def settle(store: Store) -> Recovery:
    """Recover with the ledger open: the head catches up, then the intent is finished or undone."""
    store.move_head()
    intent = beside(store.path, ".intent")
    # A note that a kill cut short: the one before it still stands, or there was none and nothing was drawn.
    beside(store.path, ".intent.new").unlink(missing_ok=True)
    if not intent.exists():
        return Recovery()
    draft = _read_intent(intent)
    entry = next((entry for entry in store.entries if entry.release_id == draft.release_id), None)
    if entry is None:
        clean(store, draft)
        return Recovery(removed=draft.directory)
    if draft.target.exists():
        if not holds(draft.target, entry.sha256):
            raise IntegrityError(
                f"{draft.target} stands where release {entry.label!r} belongs", hint="move that file away"
            )
        sync(draft.target.parent)
        clean(store, draft)
        return Recovery(finished=draft.target)
    if holds(draft.file, entry.sha256):
        show(draft, no_kill)
        clean(store, draft)
        return Recovery(finished=draft.target)
    clean(store, draft)
    return Recovery(lost=draft.target)


def _read_intent(intent: Path) -> Draft:
    try:
        value = json.loads(intent.read_text(encoding="utf-8"))
        return Draft(str(value["release_id"]), Path(value["target"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError(
            f"the note {intent} of an unfinished publish is damaged",
            hint="restore it, or remove it after the unfinished draw",
        ) from error


def write_intent(store: Store, draft: Draft) -> None:
    """Note, durably, which draw is about to be made."""
    intent = {"release_id": draft.release_id, "target": str(draft.target)}
    write_json(beside(store.path, ".intent"), intent)


def show(draft: Draft, kill_point: KillPoint) -> None:
    """Put the charged release in place."""
    draft.file.chmod(RELEASE_MODE)
    kill_point("readable")
    draft.file.rename(draft.target)
    kill_point("renamed")
    sync(draft.target.parent)


def clean(store: Store, draft: Draft) -> None:
    """Remove the private directory, with the draw if it is still in there, and then the intent."""
    if draft.directory.exists():
        shutil.rmtree(draft.directory)
    beside(store.path, ".intent").unlink(missing_ok=True)
