"""Release files: the publisher's signature, the file that is checked and read, and the states of a stream.

The signature is Ed25519 over every byte of the file, at its end.

    DuckDB's database | magic, 24 bytes | public key, 32 bytes | signature, 64 bytes

DuckDB reads the blocks that its headers name, and no byte after them. What is signed is the SHA-256 of all bytes before
the magic. Bytes are signed and not what tables hold, for two reasons. They are checked **before** DuckDB reads the
file, so nobody who is not trusted gets to speak to its parser. And a file has parts that no listing of tables shows,
such as the least and greatest value of each block, by which DuckDB skips blocks: with these changed a full read gives
the same tables and a question another answer. A release is never rewritten, so its bytes stay as they are; one that was
exported and imported is another file and is not signed.

A signature says who wrote a file, and that nobody changed it. It does not say that the file is the newest, nor that
what it holds is private: that is for `dpsql audit`. Whoever checks a file must keep others from writing it afterwards.

The file whose bytes were checked is the one that DuckDB reads. DuckDB opens a file by its name, after its signature was
checked. Meanwhile another file may come under that name. And a process that has a database open under a name is given
that one again, whatever lies there now. So the file is held open while it is checked and opened, and at the end DuckDB
must have the same one open:

| | Linux | macOS | elsewhere |
|---|---|---|---|
| the name leads to the held file, unchanged in size, times and number | yes | yes | yes |
| DuckDB has this file open (device and number of its own descriptor) | yes | yes | no |
| under this name | yes | no | no |

Who may write the file itself can still change it later, in place: DuckDB reads its blocks when they are asked for.

A stream's directory has a manifest that names its states. After every batch the stream's present state is one ordinary
release file, `states/<batch>.duckdb`. The manifest is replaced atomically and names the newest states with their
hashes; the files never change. So a reader that opened one keeps its snapshot while batches are appended, and `as_of`
opens an earlier one while it is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from dpsql.errors import InterfaceError, ReleaseError
from dpsql.scratch import shown_bytes

DESCRIPTORS = Path("/dev/fd")
"""Where systems list what a process has open."""
# A pipe would keep its reader waiting.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class OpenFile(NamedTuple):
    """A file that is open.

    Args:
        path: its name.
        file: open for reading.
        before: what changes with its bytes, as it was.
    """

    path: Path
    file: BinaryIO
    before: tuple[int, ...]

    def check_opened(self) -> None:
        """DuckDB, which has just been told the name, has this very file open, and nobody has changed it since.

        Raises:
            ReleaseError: it has another one, or the file was changed.
        """
        try:
            named, current = _state(self.path.stat()), _state(os.fstat(self.file.fileno()))
        except OSError as error:
            raise unreadable(self.path, error) from error
        if not named == current == self.before:
            raise ReleaseError(f"{self.path} was changed while it was opened", hint="open it again")
        if not self._open_again():
            raise ReleaseError(
                f"another file lay at {self.path} while it was opened",
                hint="close what this process has open from there, and open it again",
            )

    def _open_again(self) -> bool:
        """True if a second descriptor of this process leads to this file, by the same name; True if nobody
        tells."""
        descriptor = self.file.fileno()
        try:
            numbers = [int(link.name) for link in DESCRIPTORS.iterdir()]
        except OSError:
            return True
        return any(
            _number(number) == self.before[:2] and _name(number) == _name(descriptor)
            for number in numbers
            if number != descriptor
        )


@contextmanager
def held(path: Path) -> Iterator[OpenFile]:
    """Keep a file open while a block runs.

    Args:
        path: a regular file.

    Raises:
        ReleaseError: it cannot be read.
    """
    try:
        file = os.fdopen(os.open(path, _FLAGS), "rb")
    except OSError as error:
        raise unreadable(path, error) from error
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ReleaseError(f"there is no release at {path}", hint="it is not a file")
        yield OpenFile(path, file, _state(status))


def unreadable(path: Path, error: OSError) -> ReleaseError:
    """The error of a file that the system does not let read."""
    return ReleaseError(f"{path} cannot be read ({error.strerror})", hint="check its rights")


def _state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _number(descriptor: int) -> tuple[int, ...]:
    """Device and number of what a descriptor leads to; nothing for one that another thread has closed."""
    try:
        return _state(os.fstat(descriptor))[:2]
    except OSError:
        return ()


def _name(descriptor: int) -> str:
    """The name that a descriptor was opened by; nothing where the system does not tell."""
    try:
        return str((DESCRIPTORS / str(descriptor)).readlink())
    except OSError:
        return ""


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


MANIFEST = "manifest.json"
STREAM_FORMAT = 3

AsOf = int | str
"""A batch: its number (0-based) or its label, the date that it begins with."""


@dataclass(frozen=True)
class StreamSnapshot:
    """One state of the stream as a release file.

    Args:
        file: name in the stream directory.
        sha256: of the file.
        batch: the newest batch in it, 0-based.
        label: how that batch is called, the date or time that it begins with.
    """

    file: str
    sha256: str
    batch: int
    label: str


def listed_states(entries: Any) -> tuple[StreamSnapshot, ...]:
    """The states that a manifest's JSON names, oldest first.

    Raises:
        ValueError: a file outside of the stream directory.
        KeyError, TypeError: not a list of states.
    """
    states = tuple(
        StreamSnapshot(str(e["file"]), str(e["sha256"]), int(e["batch"]), str(e["label"])) for e in entries
    )
    if any(Path(state.file).is_absolute() or ".." in Path(state.file).parts for state in states):
        raise ValueError("a file outside the release")
    return states


def state_file(directory: Path, as_of: AsOf | None = None) -> Path:
    """The release file of a stream's newest state, or of the state as of a batch.

    Args:
        directory: the stream directory.
        as_of: the newest batch that is wanted, by number or label; None takes the newest there is.

    Returns:
        The file; its hash has been checked.

    Raises:
        ReleaseError: no stream, nothing published yet, a state that is no longer kept, or a damaged file.
    """
    state = _chosen(directory, _states(directory), as_of)
    path = directory / state.file
    try:
        with path.open("rb") as source:
            digest = hashlib.file_digest(source, "sha256").hexdigest()
    except OSError as error:
        raise ReleaseError(
            f"{path} cannot be read ({error.strerror})", hint="open the stream again: it may have moved on"
        ) from error
    if digest != state.sha256:
        raise ReleaseError(
            f"{path} is not the state that was published", hint="ask its curator for a fresh copy"
        )
    return path


def named_batch(file: Path) -> int | None:
    """The batch that a stream's manifest gives a file for; None for a file that no manifest names.

    The manifest is not signed: without this, an old state could be shown as a newer one, under its good signature.

    Raises:
        ReleaseError: the manifest cannot be read.
    """
    directory = file.absolute().parent.parent
    if not (directory / MANIFEST).is_file():
        return None
    named = {state.file: state.batch for state in _states(directory)}
    return named.get(f"{file.parent.name}/{file.name}")


def _states(directory: Path) -> tuple[StreamSnapshot, ...]:
    path = directory / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version, states = manifest["format"], listed_states(manifest.get("states", []))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReleaseError(
            f"{directory} contains no readable stream release",
            hint="run `dpsql append` or check the path",
        ) from error
    if version != STREAM_FORMAT:
        raise ReleaseError(
            f"{directory} has stream format {version}", hint=f"this version reads format {STREAM_FORMAT}"
        )
    if not states:
        raise ReleaseError(f"{directory} has no batch yet", hint="append the first one with `dpsql append`")
    return states


def _chosen(directory: Path, states: tuple[StreamSnapshot, ...], as_of: AsOf | None) -> StreamSnapshot:
    if as_of is None:
        return states[-1]
    wanted = str(as_of).strip()
    for state in states:
        if wanted in (str(state.batch), state.label):
            return state
    raise ReleaseError(
        f"{directory} keeps the states as of batch {states[0].batch} ({states[0].label}) to "
        f"{states[-1].batch} ({states[-1].label}), not {wanted}",
        hint="older states are not kept as files; copy one while it is there to keep it",
    )
