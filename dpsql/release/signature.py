"""Publisher's signature: Ed25519 over every byte of the file, at its end.

    DuckDB's database | magic, 24 bytes | public key, 32 bytes | signature, 64 bytes

DuckDB reads the blocks that its headers name, and no byte after them. What is signed is the SHA-256 of all bytes before
the magic. Bytes are signed and not what tables hold, for two reasons. They are checked **before** DuckDB reads the
file, so nobody who is not trusted gets to speak to its parser. And a file has parts that no listing of tables shows,
such as the least and greatest value of each block, by which DuckDB skips blocks: with these changed a full read gives
the same tables and a question another answer. A release is never rewritten, so its bytes stay as they are; one that was
exported and imported is another file and is not signed.

A signature says who wrote a file, and that nobody changed it. It does not say that the file is the newest, nor that
what it holds is private: that is for `dpsql audit`. Whoever checks a file must keep others from writing it afterwards.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO, NamedTuple

from dpsql.errors import InterfaceError, ReleaseError
from dpsql.release.verified_file import OpenFile, held, unreadable
from dpsql.scratch import shown_bytes

MAGIC = b"dpsql release, signed 1\n"
KEY, SIGNATURE = 32, 64
TRAILER = len(MAGIC) + KEY + SIGNATURE
REQUIRED = "DPSQL_REQUIRE_SIGNATURE"
"""The environment variable that names signers where a call does not."""

_HEX = re.compile("[0-9a-f]{64}")


class Signer(NamedTuple):
    """Signer of a release.

    Args:
        key: the public key, 64 hexadecimal digits.
        checked: whether the signature was verified, and the key is one of those required.
    """

    key: str
    checked: bool

    def __str__(self) -> str:
        return f"{self.key} ({'checked' if self.checked else 'not checked'})"


def sign(path: Path, seed: bytes) -> str:
    """Sign a closed release file, once.

    Args:
        path: the file, which nobody has open; of a draft that is signed which will be shown.
        seed: 32 secret bytes.

    Returns:
        The public key.

    Raises:
        OSError: the file cannot be written.
    """
    from nacl.signing import SigningKey  # takes longer to load than a query

    key, digest = SigningKey(seed), hashlib.sha256()
    with path.open("rb") as file:
        for block in shown_bytes(file):
            digest.update(block)
    signature = key.sign(MAGIC + digest.digest()).signature
    with path.open("ab") as file:
        file.write(MAGIC + bytes(key.verify_key) + signature)
    return bytes(key.verify_key).hex()


def claimed_signer(path: Path) -> Signer | None:
    """Claimed signer of a release; nothing is verified. None where it carries none.

    Raises:
        ReleaseError: the file cannot be read.
    """
    with held(path) as opened:
        return signer_of(opened)


def signer_of(opened: OpenFile) -> Signer | None:
    """Claimed signer of a file that is held open; nothing is verified. None where it carries none.

    Raises:
        ReleaseError: the file cannot be read.
    """
    trailer = _trailer(opened)
    return None if trailer is None else Signer(trailer[1].hex(), False)


def check_signature(opened: OpenFile, signers: Collection[str] | None) -> Signer:
    """Verify a release's signature over all of its bytes.

    Args:
        opened: the file; DuckDB has not read it yet.
        signers: public keys of which one must have signed it; None takes anybody's.

    Raises:
        ReleaseError: it is not signed, was changed after it was signed, or was signed by somebody else.
    """
    from nacl.exceptions import BadSignatureError
    from nacl.signing import VerifyKey

    path, trailer = opened.path, _trailer(opened)
    if trailer is None:
        raise ReleaseError(f"{path} is not signed", hint="ask its curator for a signed copy")
    start, key, signature = trailer
    if signers is not None and key.hex() not in signers:
        raise ReleaseError(
            f"{path} was signed by {key.hex()}, who is not among the required signers",
            hint="ask its curator for the public key, or for a fresh copy",
        )
    try:
        opened.file.seek(0)
        digest = _digest(opened.file, start)
        VerifyKey(key).verify(MAGIC + digest, signature)
    except OSError as error:
        raise unreadable(path, error) from error
    except (BadSignatureError, ValueError):
        raise ReleaseError(
            f"{path} was changed after it was signed", hint="ask its curator for a fresh copy"
        ) from None
    return Signer(key.hex(), True)


def _trailer(opened: OpenFile) -> tuple[int, bytes, bytes] | None:
    """Start of the trailer of a signed file, its public key and its signature."""
    file = opened.file
    try:
        start = max(0, file.seek(0, os.SEEK_END) - TRAILER)
        file.seek(start)
        trailer = file.read(TRAILER)
    except OSError as error:
        raise unreadable(opened.path, error) from error
    if len(trailer) < TRAILER or not trailer.startswith(MAGIC):
        return None
    return start, trailer[len(MAGIC) : -SIGNATURE], trailer[-SIGNATURE:]


def required_signers(named: str | None = None) -> frozenset[str] | None:
    """The public keys of which one must have signed a release.

    Args:
        named: a public key, or a file with one a line (text after it is a comment); None takes the environment
            variable DPSQL_REQUIRE_SIGNATURE.

    Returns:
        The keys; None where nobody requires a signature.

    Raises:
        InterfaceError: it is neither a key nor a file of keys.
    """
    named = os.environ.get(REQUIRED) if named is None else named
    if not named:
        return None
    if _HEX.fullmatch(named.lower()):
        return frozenset([named.lower()])
    try:
        lines = Path(named).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InterfaceError(
            f"{named} is neither a public key nor a file of public keys",
            hint="`dpsql verify` says who signed a release",
        ) from error
    keys = [line.split()[0].lower() for line in lines if line.split() and not line.startswith("#")]
    if not keys or not all(map(_HEX.fullmatch, keys)):
        raise InterfaceError(
            f"{named} contains no public keys",
            hint="write 64 hexadecimal digits a line, and a name after them",
        )
    return frozenset(keys)


def _digest(file: BinaryIO, size: int) -> bytes:
    """SHA-256 of the next bytes of a file."""
    digest = hashlib.sha256()
    while size > 0 and (block := file.read(min(size, 1 << 20))):
        digest.update(block)
        size -= len(block)
    return digest.digest()
