"""Roles: who may come in, which releases she may ask, and when it is her turn. PostgreSQL's clients say user.

    ana:   {password_file: ana.pw, releases: [retail.dpsql, survey.dpsql]}
    board: {password_file: board.pw, releases: [retail.dpsql]}

Paths start at the file. Each set of releases is opened by itself, as a server of its own would open it: a role's
statements, catalogs, completion and hints know of no other release, and share no cache with them.

Passwords: SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side, without channel binding.

The password file holds one line `user:password`; the password itself never leaves the process. The exchange is that of
the library scramp, an extra. PostgreSQL takes the user's name from the start-up message, so its clients leave the name
in the exchange empty, which scramp refuses: it reads a stand-in, and the proof is checked over what was sent.

Statements of many clients take turns, fairly between roles. An answer is half Python, which one thread runs at a time,
and half DuckDB. More threads than two only wait for each other, and by chance some wait much longer than others. So
statements start two at a time, in the order in which they came within a role, and roles alternate.

| a statement | |
|---|---|
| runs up to `patience` | holds one of the `at_once` turns |
| runs longer | gives its turn away and goes on alongside the others |
| comes while `of_role` statements of its role run | waits until one of them ends; other roles pass it |

So a role that asks long statements from many connections keeps its own statements waiting, and takes `of_role` threads
from the others. What counts is when a thread has ended, not when its client has left: a statement that is stopped keeps
its place until it has stopped.
"""

from __future__ import annotations

import asyncio
import contextvars
import hmac
import re
import secrets
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

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


T = TypeVar("T")

AT_ONCE = 2
PATIENCE = 0.1
"""Seconds of a turn; most statements take some milliseconds."""
OF_ROLE = 2
"""Statements of one role that run at a time, however long."""


class FairQueue:
    """The event loop's own time, fairly between roles: in each of its laps one message of a role begins.

    What is refused never leaves the loop, and its client may ask again at once. Sixty-four of them once made every lap
    last 17 ms, and a statement takes about eight laps; now their messages wait in a line of their role.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def begin(self, role: str) -> None:
        """Wait until a message of a role may be handled; at once where its last one began in another lap."""
        loop = asyncio.get_running_loop()
        if role not in self._waiting:
            self._waiting[role] = deque()
            loop.call_soon(self._next, role)
            return
        turn = loop.create_future()
        self._waiting[role].append(turn)
        await turn

    def _next(self, role: str) -> None:
        turns = self._waiting[role]
        while turns and turns[0].cancelled():  # its client has left
            turns.popleft()
        if not turns:
            del self._waiting[role]
            return
        turns.popleft().set_result(None)
        asyncio.get_running_loop().call_soon(self._next, role)


class Turns:
    """Runs work in threads, in turns.

    Args:
        threads: the most that run at a time; no work waits for a thread if there is one for each connection.
        at_once: how many turns there are at a time.
        patience: seconds after which work loses its turn, but is not stopped.
        of_role: how much work of one role runs at a time.
    """

    def __init__(
        self, threads: int, at_once: int = AT_ONCE, patience: float = PATIENCE, of_role: int = OF_ROLE
    ) -> None:
        self.patience, self.of_role = patience, of_role
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="dpsql-statement")
        self._free = at_once
        # set when they may start
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._overdue: set[asyncio.Future[None]] = set()  # they have run for longer than their turn
        self._running: Counter[str] = Counter()

    async def take(self, work: Callable[[], T], role: str) -> T:
        """Result of some work; it runs in a copy of the caller's context.

        Args:
            work: a statement; it must end soon after its request was stopped.
            role: who asks; statements of one role wait for each other.

        Raises:
            What the work raises.
        """
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(role, deque()).append(turn)
        self._start()
        try:
            await asyncio.shield(turn)  # a cancelled future could not be told that its turn has come
        except asyncio.CancelledError:
            if turn.done():  # its turn came at the same moment
                self._end(role, turn)
            else:  # its client does not want it any more, before it has run
                turns = self._waiting[role]
                turns.remove(turn)
                if not turns:
                    del self._waiting[role]
            raise
        context = contextvars.copy_context()
        running: Future[T] = self._executor.submit(lambda: context.run(work))
        late = loop.call_later(self.patience, self._give_away, turn)

        def ended(_: Future[T]) -> None:
            if not loop.is_closed():  # the server has ended; nobody waits
                loop.call_soon_threadsafe(self._end, role, turn, late)

        running.add_done_callback(ended)
        return await asyncio.wrap_future(running)

    def close(self) -> None:
        """Start nothing more; what runs ends by its request."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        """Let statements begin while there are turns, one role after another."""
        roles = deque(self._waiting)
        while self._free and roles:
            role = roles.popleft()
            if self._running[role] >= self.of_role:
                continue
            turns = self._waiting[role]
            turns.popleft().set_result(None)
            self._running[role] += 1
            self._free -= 1
            if turns:
                self._waiting.move_to_end(role)
                roles.append(role)
            else:
                del self._waiting[role]

    def _give_away(self, turn: asyncio.Future[None]) -> None:
        self._overdue.add(turn)
        self._free += 1
        self._start()

    def _end(self, role: str, turn: asyncio.Future[None], late: asyncio.TimerHandle | None = None) -> None:
        if late is not None:
            late.cancel()
        self._free += turn not in self._overdue
        self._overdue.discard(turn)
        self._running[role] -= 1
        if not self._running[role]:
            del self._running[role]  # names are of clients, and endless
        self._start()
