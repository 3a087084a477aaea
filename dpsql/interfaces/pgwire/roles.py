"""Roles: who may come in, and which releases she may ask. A role is what PostgreSQL's clients call a user.

    ana:   {password_file: ana.pw, releases: [retail.dpsql, survey.dpsql]}
    board: {password_file: board.pw, releases: [retail.dpsql]}

Paths start at the file. Each set of releases is opened by itself, as a server of its own would open it: a role's
statements, catalogs, completion and hints know of no other release, and share no cache with them.

Passwords: SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side, without channel binding.

The password file holds one line `user:password`; the password itself never leaves the process. The exchange is that of
the library scramp, an extra. PostgreSQL takes the user's name from the start-up message, so its clients leave the name
in the exchange empty, which scramp refuses: it reads a stand-in, and the proof is checked over what was sent.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, RootModel

import dpsql
from dpsql.catalog.base import Model, Problem, Text
from dpsql.catalog.catalog import LARGEST_FILE, file_bytes, read_model
from dpsql.errors import InterfaceError, OperationalError
from dpsql.extras import extra
from dpsql.federation.session import OpenReleases
from dpsql.interfaces.pgwire.catalogue import make_catalogue
from dpsql.interfaces.pgwire.protocol import OIDS_BY_NAME, TEXT, oid_of
from dpsql.interfaces.pgwire.relations import column_types
from dpsql.interfaces.pgwire.statements import DEFAULTS, Backend
from dpsql.interfaces.python.describe import describe

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


BEGIN = "write `ana: {password_file: ana.pw, releases: [retail.dpsql]}`"


class ServerRole(NamedTuple):
    """Somebody who may come in.

    Args:
        verifier: of her password, which names her; None is everybody, under any name and without a password.
        releases: what she may ask.
        password_file: where her password comes from, if she has one.
    """

    verifier: Verifier | None
    releases: tuple[Path, ...]
    password_file: Path | None = None


class RoleEntry(Model):
    """A role as the file says it."""

    password_file: Text
    releases: Annotated[list[Text], Field(min_length=1)]


class RolesFile(RootModel[dict[str, RoleEntry]]):
    """The file."""


def settings_text(file: Path, contents: str, hint: str) -> str:
    """The text of a YAML file of a server.

    Args:
        file: the file.
        contents: what it holds.
        hint: how one begins.

    Raises:
        OperationalError: it cannot be read.
    """
    try:
        return file_bytes(file, LARGEST_FILE).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OperationalError(f"cannot read the {contents} of {file}", hint=hint) from error


def read_roles(file: Path) -> tuple[ServerRole, ...]:
    """The roles of a file.

    Raises:
        OperationalError: it, or a password file, cannot be read.
        CatalogError: it is not of that form; names the line.
        InterfaceError: a password file is readable by others, or is another role's.
    """

    def names_one(read: RolesFile) -> None:
        if not read.root:
            raise Problem((), f"names no role; {BEGIN}")

    roles, text = [], settings_text(file, "roles", BEGIN)
    for name, role in read_model(text, str(file), RolesFile, BEGIN, names_one).root.items():
        password = file.parent / role.password_file
        verifier = read_password_file(password)
        if verifier.user != name:
            raise InterfaceError(
                f"{password} does not contain the password of role {name}",
                hint=f"write one line {name}:PASSWORD",
            )
        roles.append(
            ServerRole(verifier, tuple(file.parent / release for release in role.releases), password)
        )
    return tuple(roles)


ServerRoles = tuple[Backend | None, Mapping[str, tuple[Verifier, Backend]]]
"""The roles of a server that is open: what anybody's statements run on, None where a password is wanted; and of the
others their verifiers, and what their statements run on."""


@contextmanager
def open_roles(
    roles: Sequence[ServerRole], open_session: Callable[[Sequence[Path]], OpenReleases]
) -> Iterator[ServerRoles]:
    """Open what roles may ask, each set of releases once.

    Args:
        roles: who may come in.
        open_session: opens a set of releases.

    Raises:
        ReleaseError: one cannot be opened.
    """
    opened: dict[tuple[Path, ...], Backend] = {}
    try:
        for role in roles:
            if role.releases not in opened:
                releases = open_session(role.releases)
                tables = [
                    (release.name, table) for release in releases.releases for table in describe(release)
                ]
                catalogue = make_catalogue(tables, releases.releases[0].name, dpsql.__version__, DEFAULTS)
                oids = {name: OIDS_BY_NAME.get(kind, TEXT) for name, kind in column_types().items()}
                oids |= {
                    column.name.lower(): oid_of(column.type)
                    for _, table in tables
                    for column in table.columns
                }
                opened[role.releases] = Backend(
                    releases, catalogue, oids, [path.name for path in role.releases]
                )
        everybody = next((opened[role.releases] for role in roles if role.verifier is None), None)
        named = {
            role.verifier.user: (role.verifier, opened[role.releases]) for role in roles if role.verifier
        }
        yield everybody, named
    finally:
        for backend in opened.values():
            backend.releases.close()
