"""Passwords: SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side, without channel binding.

The password file holds one line `user:password`; the password itself never leaves the process. The exchange is that of
the library scramp, an extra. PostgreSQL takes the user's name from the start-up message, so its clients leave the name
in the exchange empty, which scramp refuses: it reads a stand-in, and the proof is checked over what was sent.
"""

from __future__ import annotations

import hmac
import re
import secrets
from pathlib import Path
from typing import Any, NamedTuple

from dpsql.catalog.load import file_bytes
from dpsql.errors import InterfaceError, OperationalError
from dpsql.extras import extra

MECHANISM = "SCRAM-SHA-256"
ROUNDS, SALT_BYTES = 4096, 32
"""Of every password: a stand-in must look like one."""
LONGEST = 4096
"""Bytes of a password file."""
SHORTEST = 12
"""Characters of a password: at four guesses a second, a random one of letters lasts longer than anybody waits."""
_SECRET = secrets.token_bytes(32)
FIRST = re.compile(r"([ny]),,(n=[^,]*,(.*))", re.DOTALL)


class LoginRefused(Exception):
    """A client may not come in: wrong password, a broken message, no place.

    Args:
        reason: one line.
        state: its SQLSTATE.
    """

    def __init__(self, reason: str, state: str = "28P01") -> None:
        super().__init__(reason)
        self.state = state


class Verifier(NamedTuple):
    """Stored verifier of a password.

    Args:
        user: who may log in.
        keys: salt, the two keys of RFC 5802 and the number of iterations, as scramp has them.
    """

    user: str
    keys: Any


def make_verifier(user: str, password: str, salt: bytes | None = None) -> Verifier:
    """Keys of a password.

    Args:
        user: who may log in.
        password: in clear.
        salt: random bytes; fresh ones if None.

    Raises:
        InterfaceError: scramp is not installed, or the password has a character that SCRAM forbids.
    """
    scramp = extra("password")
    try:
        salt = salt or secrets.token_bytes(SALT_BYTES)
        return Verifier(user, scramp.ScramMechanism(MECHANISM).make_auth_info(password, ROUNDS, salt))
    except scramp.ScramException as error:
        raise InterfaceError(
            "the password has a character that SCRAM forbids", hint="choose another"
        ) from error


def stand_in(user: str) -> Verifier:
    """Stand-in verifier for an unknown name: the same salt each time, and keys of no password.

    So a name that there is not looks and takes as long as a wrong password of one that there is.

    >>> stand_in("eve") == stand_in("eve"), stand_in("eve").keys[0] == stand_in("eva").keys[0]
    (True, False)
    """
    salt, stored, server = (
        hmac.digest(_SECRET, label + user.encode("utf-8", "replace"), "sha256")
        for label in (b"s", b"c", b"k")
    )
    return Verifier(user, (salt, stored, server, ROUNDS))


def read_password_file(path: Path) -> Verifier:
    """The user and password in a file that others cannot read.

    Raises:
        OperationalError: unreadable.
        InterfaceError: readable by others, or not `user:password`; or scramp is not installed.
    """
    try:
        line = file_bytes(path, LONGEST).decode("utf-8").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise OperationalError(f"cannot read the password file {path}") from error
    if mode & 0o077:
        raise InterfaceError(f"others can read {path}", hint=f"chmod 600 {path}")
    user, colon, password = line.partition(":")
    if not (user and colon and password):
        raise InterfaceError(f"{path} does not contain user:password", hint="write one such line")
    if len(password) < SHORTEST:
        raise InterfaceError(
            f"the password in {path} has fewer than {SHORTEST} characters", hint="choose a longer one"
        )
    return make_verifier(user, password)


class Exchange:
    """One login. Call `first`, send what it gives, call `final`, send what it gives."""

    def __init__(self, verifier: Verifier, nonce: str | None = None) -> None:
        self.scramp = extra("password")
        mechanism = self.scramp.ScramMechanism(MECHANISM)
        self.server = mechanism.make_server(lambda name: verifier.keys, s_nonce=nonce)

    def first(self, message: bytes) -> bytes:
        """The client's first message -> the server's.

        Raises:
            Refused: not a SCRAM message, or one that asks for channel binding.
        """
        match = FIRST.fullmatch(message.decode("utf-8", "replace"))
        if match is None:
            raise LoginRefused("not a SCRAM message, or one with channel binding")
        try:
            self.server.set_client_first(f"{match[1]},,n=*,{match[3]}")
            self.server.client_first_bare = match[2]
            return str(self.server.get_server_first()).encode()
        except self.scramp.ScramException as error:
            raise LoginRefused("not a SCRAM message") from error

    def final(self, message: bytes) -> bytes:
        """The client's proof -> the server's signature.

        Raises:
            Refused: the proof is wrong.
        """
        try:
            self.server.set_client_final(message.decode("utf-8", "replace"))
            return str(self.server.get_server_final()).encode()
        except self.scramp.ScramException as error:
            raise LoginRefused("wrong user or password") from error
