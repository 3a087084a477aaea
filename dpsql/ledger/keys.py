"""The curator's signing key: 32 secret bytes beside the ledger, for its owner's eyes alone.

It is made when the first release is published. Whoever reads it can sign as this curator; whoever loses it publishes
under a new name. It signs nothing but releases, and no budget depends on it.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from dpsql.errors import IntegrityError, MachineFault
from dpsql.faults import UNCHARGED
from dpsql.ledger.files import PRIVATE_DIRECTORY, PRIVATE_FILE, beside, sync
from dpsql.noise import os_entropy

_SEED = re.compile(rb"[0-9a-f]{64}\n")
_MOVE = "restore it from a backup; or move it away, and the next publish makes a new one, which readers must be told"


def signing_seed(ledger: Path) -> bytes:
    """The secret key of whoever keeps a ledger; made if there has never been one.

    Args:
        ledger: the ledger file, which need not exist.

    Returns:
        32 bytes.

    Raises:
        IntegrityError: the key file is damaged, or others can read it.
        MachineFault: it can be neither read nor made.
    """
    path = beside(ledger, ".key")
    try:
        ledger.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        if not path.exists():
            _make(path)
        content, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        raise MachineFault(
            f"the signing key {path} cannot be read or made ({error.strerror})",
            hint=f"check the folder's rights; {UNCHARGED}",
        ) from error
    if not _SEED.fullmatch(content):
        raise IntegrityError(f"the signing key {path} is damaged", hint=_MOVE)
    if mode & 0o077:
        raise IntegrityError(f"others can read the signing key {path}", hint=f"chmod 600 {path}")
    return bytes.fromhex(content.decode())


def _make(path: Path) -> None:
    """Make the file whole under a name of its own, then link it: of two that make it at once, one wins for both."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(os_entropy()(32).hex().encode() + b"\n")
            out.flush()
            os.fsync(out.fileno())
        try:
            path.hardlink_to(fresh)
        except FileExistsError:
            return
        sync(path.parent)
    finally:
        fresh.unlink(missing_ok=True)
