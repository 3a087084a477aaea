"""SCRAM-SHA-256, the server's side (RFC 5802, RFC 7677), without channel binding.

The password file holds one line `user:password`; the password itself never leaves the process.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from pathlib import Path

from dpsql.errors import InterfaceError, OperationalError

MECHANISM = "SCRAM-SHA-256"
ITERATIONS = 4096


class Refused(Exception):
    """The exchange failed: wrong password, or a broken message."""


@dataclass(frozen=True)
class Verifier:
    """What the server keeps of a password.

    Args:
        user: who may log in.
        salt, iterations: of the key derivation.
        stored, server: the two keys of RFC 5802.
    """

    user: str
    salt: bytes
    iterations: int
    stored: bytes
    server: bytes


def make_verifier(user: str, password: str, salt: bytes, iterations: int = ITERATIONS) -> Verifier:
    """Keys of a password.

    Args:
        user: who may log in.
        password: in clear.
        salt: fresh random bytes.
        iterations: of PBKDF2.
    """
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("utf-8"), salt, iterations)
    client = _mac(salted, b"Client Key")
    return Verifier(user, salt, iterations, hashlib.sha256(client).digest(), _mac(salted, b"Server Key"))


def read_password_file(path: Path) -> Verifier:
    """The user and password in a file that others cannot read.

    Raises:
        OperationalError: unreadable.
        InterfaceError: readable by others, or not `user:password`.
    """
    try:
        line = path.read_text(encoding="utf-8").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise OperationalError(f"cannot read the password file {path}") from error
    if mode & 0o077:
        raise InterfaceError(f"others can read {path}", hint=f"chmod 600 {path}")
    user, colon, password = line.partition(":")
    if not (user and colon and password):
        raise InterfaceError(f"{path} does not hold user:password", hint="write one such line")
    return make_verifier(user, password, secrets.token_bytes(16))


class Exchange:
    """One login. Call `first`, send what it gives, call `final`, send what it gives."""

    def __init__(self, verifier: Verifier, nonce: str | None = None) -> None:
        self.verifier = verifier
        self.nonce = nonce or base64.b64encode(secrets.token_bytes(18)).decode()
        self.bare = ""
        self.challenge = ""

    def first(self, message: bytes) -> bytes:
        """The client's first message -> the server's.

        Raises:
            Refused: not a SCRAM message, or one that asks for channel binding.
        """
        text = _text(message)
        if not text.startswith(("n,,", "y,,")):
            raise Refused("channel binding is not supported")
        self.bare = text[3:]
        fields = _fields(self.bare)
        if "r" not in fields:
            raise Refused("the client sent no nonce")
        self.nonce = fields["r"] + self.nonce
        salt = base64.b64encode(self.verifier.salt).decode()
        self.challenge = f"r={self.nonce},s={salt},i={self.verifier.iterations}"
        return self.challenge.encode()

    def final(self, message: bytes) -> bytes:
        """The client's proof -> the server's signature.

        Raises:
            Refused: the proof is wrong.
        """
        text = _text(message)
        fields = _fields(text)
        without, _, _ = text.rpartition(",p=")
        signed = f"{self.bare},{self.challenge},{without}".encode()
        try:
            proof = base64.b64decode(fields.get("p", ""), validate=True)
        except binascii.Error as error:
            raise Refused("the proof is not base64") from error
        key = bytes(a ^ b for a, b in zip(proof, _mac(self.verifier.stored, signed), strict=False))
        right = hmac.compare_digest(hashlib.sha256(key).digest(), self.verifier.stored)
        if not right or not hmac.compare_digest(fields.get("r", ""), self.nonce):
            raise Refused("wrong user or password")
        return b"v=" + base64.b64encode(_mac(self.verifier.server, signed))


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


def _text(message: bytes) -> str:
    try:
        return message.decode("ascii")
    except UnicodeDecodeError as error:
        raise Refused("not a SCRAM message") from error


def _fields(text: str) -> dict[str, str]:
    """`a=1,b=2` as a mapping."""
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}
