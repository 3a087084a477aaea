"""Admission to a server: places for connections, time-outs, and waits after wrong passwords.

| | bounded by |
|---|---|
| clients that have logged in | `ConnectionLimits.connections`; one more is told `53300 too_many_connections` |
| connections that have not | an eighth of that beside them; for one more another leaves (`ConnectionSlots.arrive`) |
| memory of answers that are worked out, kept or sent | `ConnectionLimits.memory`, shared by roles (`MemoryPool`) |
| seconds until a connection has logged in | `ConnectionLimits.login` |
| seconds that a client says nothing, or does not take what it asked for | `ConnectionLimits.idle` |
| wrong passwords | `LoginBackoff` |

So connections that never log in take no place from clients, and one address takes few from other addresses.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

FEWEST_STRANGERS = 16
FREE = 3
"""Wrong passwords of an address for one role that cost no wait."""
NETWORKS = (30, 60, 120)
"""The same for all roles: of an address, and of the /56 and /48 around it, which one customer may have."""
GUESSES, BURST = 4.0, 10
"""Wrong passwords a second for one role from wherever, and how many of them may come at once."""
FAMILIAR = 86_400.0
"""Seconds after a login that its address is known for its role."""
LONGEST_WAIT = 60.0
MEMORY_A_CORE = 250_000_000
FORGOTTEN = 900.0
"""Seconds after its last wait that a wrong password is forgotten."""
MOST_REMEMBERED = 4096


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits on connections.

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
        """True if a connection had to leave for another one; it has left in any case."""
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


class LoginBackoff:
    """Wrong passwords, and how long their senders wait.

    | who | waits |
    |---|---|
    | an address for a role | 1, 2, 4 .. 60 seconds once `FREE` wrong ones are used up |
    | an address, and the /56 and /48 around an IPv6 one, for all roles | the same, after `NETWORKS` |
    | all addresses together for one role | as `GUESSES` a second allow, after a burst of `BURST` |
    | an address for a role that logged in from there within `FAMILIAR` seconds | as `GUESSES` allow, and nothing else |

    So guesses at one role are slow from however many addresses they come, a stale password in some program does not
    lock out those who share its address, and who tries one name after another is remembered too. The same wrong
    password sent again cannot be told from another one: a SCRAM proof is never twice the same.

    Args:
        now: a clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._wrong: OrderedDict[tuple[str, str | None], _Wrong] = OrderedDict()
        self._guesses: OrderedDict[tuple[str | None, str], float] = OrderedDict()
        self._familiar: OrderedDict[tuple[str, str], float] = OrderedDict()

    def seconds(self, address: str, role: str) -> float:
        """Seconds to wait until a password is looked at; 0 or less for none."""
        if self._is_familiar(address, role):
            return self._until_guess((_networks(address)[0], role))
        until = max(self._seen(key).until for key in _keys(address, role)) - self._now()
        return max(until, self._until_guess((None, role)))

    def wrong(self, address: str, role: str) -> None:
        """A password was wrong."""
        if self._is_familiar(address, role):
            self._count_guess((_networks(address)[0], role))
            return
        self._count_guess((None, role))
        for key, free in _keys(address, role).items():
            times = self._seen(key).times + 1
            over = min(times - free, 10)
            self._wrong[key] = _Wrong(times, self._now() + (min(2.0**over, LONGEST_WAIT) if over >= 0 else 0))
            self._wrong.move_to_end(key)
        while len(self._wrong) > MOST_REMEMBERED:
            self._wrong.popitem(last=False)

    def right(self, address: str, role: str) -> None:
        """A password was right: this address has no wait for this role any more, and is familiar."""
        place = _networks(address)[0]
        self._wrong.pop((place, role), None)
        self._familiar[place, role] = self._now()
        self._familiar.move_to_end((place, role))
        while len(self._familiar) > MOST_REMEMBERED:
            self._familiar.popitem(last=False)

    def _is_familiar(self, address: str, role: str) -> bool:
        return self._now() - self._familiar.get((_networks(address)[0], role), -math.inf) < FAMILIAR

    def _seen(self, key: tuple[str, str | None]) -> _Wrong:
        failures = self._wrong.get(key, _Wrong(0, 0.0))
        return failures if self._now() < failures.until + FORGOTTEN else _Wrong(0, 0.0)

    def _until_guess(self, key: tuple[str | None, str]) -> float:
        """Seconds until one more guess: each takes 1 / `GUESSES` of a second, and `BURST` may come at once."""
        return self._guesses.get(key, 0.0) - self._now() - (BURST - 1) / GUESSES

    def _count_guess(self, key: tuple[str | None, str]) -> None:
        self._guesses[key] = max(self._guesses.get(key, 0.0), self._now()) + 1 / GUESSES
        self._guesses.move_to_end(key)
        while len(self._guesses) > MOST_REMEMBERED:
            self._guesses.popitem(last=False)


def _keys(address: str, role: str) -> dict[tuple[str, str | None], int]:
    """Under which wrong passwords are counted, and how many are free; None stands for all roles."""
    places = _networks(address)
    everywhere: dict[tuple[str, str | None], int] = {
        (place, None): free for place, free in zip(places, NETWORKS, strict=False)
    }
    return everywhere | {(places[0], role): FREE}


@lru_cache(maxsize=256)  # each guess asks four times
def _networks(address: str) -> tuple[str, ...]:
    """Networks that likely are one sender: an IPv4 address; or the /64, /56 and /48 of an IPv6 one.

    >>> _networks("192.0.2.7"), _networks("2001:db8:1:234::7"), _networks("")
    (('192.0.2.7',), ('2001:db8:1:234::/64', '2001:db8:1:200::/56', '2001:db8:1::/48'), ('',))
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return (address,)
    if ip.version == 4:
        return (address,)
    return tuple(str(ipaddress.ip_network((ip, length), strict=False)) for length in (64, 56, 48))
