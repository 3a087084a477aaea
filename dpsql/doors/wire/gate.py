"""Who may take up a server's room: places for connections, time-outs, and waits after wrong passwords.

| | bounded by |
|---|---|
| clients that have logged in | `ConnectionLimits.connections`; one more is told `53300 too_many_connections` |
| connections that have not | an eighth of that beside them; for one more another leaves (`ConnectionSlots.arrive`) |
| memory of answers that are worked out, kept or sent | `ConnectionLimits.memory`, shared by roles (`MemoryPool`) |
| seconds until a connection has logged in | `ConnectionLimits.login` |
| seconds that a client says nothing, or does not take what it asked for | `ConnectionLimits.idle` |
| wrong passwords | `Waits` |

So connections that never log in take no place from clients, and one address takes few from other addresses.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

FEWEST_STRANGERS = 16
FREE, FREE_ADDRESS = 3, 30
"""Wrong passwords that cost no wait: of an address for one role, and of an address for all of them."""
LONGEST_WAIT = 60.0
MEMORY_A_CORE = 250_000_000
FORGOTTEN = 900.0
"""Seconds after its last wait that a wrong password is forgotten."""
MOST_REMEMBERED = 4096


@dataclass(frozen=True)
class ConnectionLimits:
    """What connections may take.

    Args:
        connections: clients that have logged in, at a time.
        login: seconds until a connection has logged in.
        idle: seconds that a client may be silent; 0 for as long as it likes.
        memory: bytes of all answers, as `size_of` counts them; in truth they take a sixth more.
    """

    connections: int = 800
    login: float = 10.0
    idle: float = 3600.0
    memory: int = MEMORY_A_CORE

    @property
    def strangers(self) -> int:
        """Connections that have not logged in, at a time."""
        return max(FEWEST_STRANGERS, self.connections // 8)

    @property
    def patience(self) -> float | None:
        return self.idle or None


class ConnectionSlots:
    """The connections of a server.

    Args:
        limits: how many there may be.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits, self.inside = limits, 0
        self._strangers: dict[asyncio.Timeout, str] = {}

    def arrive(self, login: asyncio.Timeout, address: str) -> None:
        """A new connection; where there are too many that have not logged in, another one's time is over.

        That is the longest waiting one of the address that has most of them: a login takes milliseconds.

        Args:
            login: the time that it has to log in.
            address: where it comes from.
        """
        if len(self._strangers) >= self.limits.strangers:
            (crowd, _) = Counter(self._strangers.values()).most_common(1)[0]
            longest = next(stranger for stranger, place in self._strangers.items() if place == crowd)
            del self._strangers[longest]
            longest.reschedule(asyncio.get_running_loop().time())
        self._strangers[login] = address

    def pushed_out(self, login: asyncio.Timeout) -> bool:
        """Whether a connection had to leave for another one; it has left in any case."""
        return self._strangers.pop(login, None) is None

    @contextmanager
    def client(self) -> Iterator[bool]:
        """A place of a client that has logged in, while the block runs; False where there is none."""
        free = self.inside < self.limits.connections
        self.inside += free
        try:
            yield free
        finally:
            self.inside -= free


class _Wrong(NamedTuple):
    times: int
    until: float


class Waits:
    """Wrong passwords, and how long their senders wait: 1, 2, 4 .. 60 seconds once the free ones are used up.

    An address waits for a role, and for all roles after many wrong passwords: who tries one name after another is
    remembered too. No address makes another one wait.

    Args:
        now: a clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._wrong: OrderedDict[tuple[str, str], _Wrong] = OrderedDict()

    def seconds(self, address: str, role: str) -> float:
        """Seconds to wait until a password is looked at; 0 or less for none."""
        return max(self._seen(key).until for key in _keys(address, role)) - self._now()

    def wrong(self, address: str, role: str) -> None:
        """A password was wrong."""
        for key, free in _keys(address, role).items():
            times = self._seen(key).times + 1
            over = min(times - free, 10)
            self._wrong[key] = _Wrong(times, self._now() + (min(2.0**over, LONGEST_WAIT) if over >= 0 else 0))
            self._wrong.move_to_end(key)
        while len(self._wrong) > MOST_REMEMBERED:
            self._wrong.popitem(last=False)

    def right(self, address: str, role: str) -> None:
        """A password was right: this address has no wait for this role any more."""
        self._wrong.pop((_network(address), role), None)

    def _seen(self, key: tuple[str, str]) -> _Wrong:
        failures = self._wrong.get(key, _Wrong(0, 0.0))
        return failures if self._now() < failures.until + FORGOTTEN else _Wrong(0, 0.0)


def _keys(address: str, role: str) -> dict[tuple[str, str], int]:
    """Under which wrong passwords are counted, and how many are free."""
    place = _network(address)
    return {(place, ""): FREE_ADDRESS, (place, role): FREE}


def _network(address: str) -> str:
    """Who is likely one sender: an IPv4 address, or the /64 of an IPv6 one.

    >>> _network("192.0.2.7"), _network("2001:db8::1:2"), _network("")
    ('192.0.2.7', '2001:db8::/64', '')
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ipaddress.ip_network((ip, 64), strict=False)) if ip.version == 6 else address
