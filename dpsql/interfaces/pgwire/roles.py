"""Roles: who may come in, and which releases she may ask. A role is what PostgreSQL's clients call a user.

    ana:   {password_file: ana.pw, releases: [retail.dpsql, survey.dpsql]}
    board: {password_file: board.pw, releases: [retail.dpsql]}

Paths start at the file. Each set of releases is opened by itself, as a server of its own would open it: a role's
statements, catalogs, completion and hints know of no other release, and share no cache with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field, RootModel

import dpsql
from dpsql.catalog.base import Model, Problem, Text
from dpsql.catalog.load import LARGEST_FILE, file_bytes, read_model
from dpsql.errors import InterfaceError, OperationalError
from dpsql.federation.session import OpenReleases
from dpsql.interfaces.pgwire.catalogue import make_catalogue
from dpsql.interfaces.pgwire.parameters import column_oids
from dpsql.interfaces.pgwire.password import Verifier, read_password_file, stand_in
from dpsql.interfaces.pgwire.relations import relation_oids
from dpsql.interfaces.pgwire.statements import Backend
from dpsql.interfaces.pgwire.variables import DEFAULTS
from dpsql.interfaces.python.describe import describe

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


def read_roles(file: Path) -> tuple[ServerRole, ...]:
    """The roles of a file.

    Raises:
        OperationalError: it, or a password file, cannot be read.
        CatalogError: it is not of that form; names the line.
        InterfaceError: a password file is readable by others, or is another role's.
    """
    try:
        text = file_bytes(file, LARGEST_FILE).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OperationalError(f"cannot read the roles of {file}", hint=BEGIN) from error
    roles = read_model(text, str(file), RolesFile, BEGIN, _no_empty_name).root
    return tuple(_role(name, role, file.parent) for name, role in roles.items())


def _no_empty_name(read: RolesFile) -> None:
    if not read.root:
        raise Problem((), f"names no role; {BEGIN}")


def _role(name: str, role: RoleEntry, folder: Path) -> ServerRole:
    password = folder / role.password_file
    verifier = read_password_file(password)
    if verifier.user != name:
        raise InterfaceError(
            f"{password} does not contain the password of role {name}", hint=f"write one line {name}:PASSWORD"
        )
    return ServerRole(verifier, tuple(folder / release for release in role.releases), password)


class Admission(NamedTuple):
    """Rights of a client after login.

    Args:
        backend: what her statements run on.
        releases: their names, for the log.
    """

    backend: Backend
    releases: list[str]


@dataclass(frozen=True)
class ServerRoles:
    """The roles of a server that is open.

    Args:
        everybody: what anybody may ask; None where a password is wanted.
        named: the others: their verifiers, and what they may ask.
    """

    everybody: Admission | None
    named: Mapping[str, tuple[Verifier, Admission]]

    def verifier(self, name: str) -> Verifier:
        """Of a role's password; of a role that there is not, one that looks the same and takes no password."""
        return self.named[name][0] if name in self.named else stand_in(name)


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
    opened: dict[tuple[Path, ...], Admission] = {}
    try:
        for role in roles:
            if role.releases not in opened:
                opened[role.releases] = _admission(open_session(role.releases), role.releases)
        everybody = next((opened[role.releases] for role in roles if role.verifier is None), None)
        named = {
            role.verifier.user: (role.verifier, opened[role.releases]) for role in roles if role.verifier
        }
        yield ServerRoles(everybody, named)
    finally:
        for admission in opened.values():
            admission.backend.releases.close()


def _admission(releases: OpenReleases, paths: Sequence[Path]) -> Admission:
    tables = [(release.name, table) for release in releases.releases for table in describe(release)]
    catalogue = make_catalogue(tables, releases.releases[0].name, dpsql.__version__, DEFAULTS)
    columns = {column.name: column.type for _, table in tables for column in table.columns}
    return Admission(
        Backend(releases, catalogue, {**relation_oids(), **column_oids(columns)}),
        [path.name for path in paths],
    )
