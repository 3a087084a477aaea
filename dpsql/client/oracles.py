"""Oracles, the device's halves: from an item to a report's payload.

| plan | class | a report says |
|------|-------|---------------|
| GRR  | `RandomisedResponse` | one item |
| OUE  | `UnaryEncoding` | one bit per item |
| OLH  | `LocalHashing` | a seed and a bucket of items |
| WAVE | `SquareWave` | one bin near the own leaf |

What a collector makes of reports is in `dpsql.mechanisms.oracles`. Nobody asks which oracle it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from dpsql.client import perturb
from dpsql.client.entropy import LARGEST_BOUND, Entropy
from dpsql.client.perturb import OTHER
from dpsql.client.varint import varint
from dpsql.errors import DataError

LARGEST_DOMAIN = 1 << 24


class DeviceOracle(Protocol):
    """A randomizer with the numbers that a plan gives it.

    **Privacy**: an output's probabilities under any two items, and under none where `silent`, differ by at most
    own / 2^20, which `tests/privacy/test_local_exact.py` enumerates.
    """

    name: ClassVar[str]
    """What plans call it."""
    code: ClassVar[int]
    """What reports call it."""
    silent: ClassVar[bool]
    """Whether it perturbs "no row" as such; for the others that is an item, or any item alike."""

    def __init__(self, domain: int, extra: int) -> None:
        """Take what a plan says."""

    def sound(self, own: int) -> bool:
        """Whether every draw can be made; `domain` and `extra` are integers and the domain is in bounds."""

    def payload(self, item: int | None, own: int, entropy: Entropy) -> bytes:
        """Perturb an item; None, "no row", only where `silent`."""


@dataclass(frozen=True)
class RandomisedResponse:
    """One item: the own one with weight `own`, any other with weight 2^20."""

    name: ClassVar[str] = "GRR"
    code: ClassVar[int] = 1
    silent: ClassVar[bool] = False
    domain: int
    extra: int = 0

    def sound(self, own: int) -> bool:
        """Always."""
        return True

    def payload(self, item: int | None, own: int, entropy: Entropy) -> bytes:
        """The item's number."""
        return varint(perturb.grr(_item(item), self.domain, own, entropy))


@dataclass(frozen=True)
class UnaryEncoding:
    """One bit per item."""

    name: ClassVar[str] = "OUE"
    code: ClassVar[int] = 2
    silent: ClassVar[bool] = False
    domain: int
    extra: int = 0

    def sound(self, own: int) -> bool:
        """Always."""
        return True

    def payload(self, item: int | None, own: int, entropy: Entropy) -> bytes:
        """The bits."""
        return perturb.oue(_item(item), self.domain, own, entropy)


@dataclass(frozen=True)
class LocalHashing:
    """A seed and one of `extra` buckets."""

    name: ClassVar[str] = "OLH"
    code: ClassVar[int] = 3
    silent: ClassVar[bool] = False
    domain: int
    extra: int

    def sound(self, own: int) -> bool:
        """Two buckets at least."""
        return 2 <= self.extra <= LARGEST_DOMAIN

    def payload(self, item: int | None, own: int, entropy: Entropy) -> bytes:
        """The seed in two bytes, then the bucket's number."""
        seed, held = perturb.olh(_item(item), self.extra, own, entropy)
        return seed.to_bytes(2, "big") + varint(held)


@dataclass(frozen=True)
class SquareWave:
    """One bin; near ones, up to `extra` from the own leaf, with weight `own`."""

    name: ClassVar[str] = "WAVE"
    code: ClassVar[int] = 4
    silent: ClassVar[bool] = True
    domain: int
    extra: int

    def sound(self, own: int) -> bool:
        """Weights that add up to no more than can be drawn from."""
        return self.extra >= 0 and (2 * self.extra + 1) * own + (self.domain - 1) * OTHER <= LARGEST_BOUND

    def payload(self, item: int | None, own: int, entropy: Entropy) -> bytes:
        """The bin's number."""
        return varint(perturb.wave(item, self.domain, self.extra, own, entropy))


ORACLES: tuple[type[DeviceOracle], ...] = (RandomisedResponse, UnaryEncoding, LocalHashing, SquareWave)
"""The list is closed: an oracle without its proof has no place in it."""


def device_oracle(name: str) -> type[DeviceOracle] | None:
    """The oracle that a plan names; None if there is none of that name."""
    return next((oracle for oracle in ORACLES if oracle.name == name), None)


def coded_oracle(code: int) -> type[DeviceOracle] | None:
    """The oracle that a report names; None if there is none of that number."""
    return next((oracle for oracle in ORACLES if oracle.code == code), None)


def oracle_code(name: str) -> int:
    """What reports call an oracle that a checked plan or report names.

    Raises:
        DataError: there is none of that name.
    """
    oracle = device_oracle(name)
    if oracle is None:
        raise DataError("an unknown oracle")
    return oracle.code


def _item(item: int | None) -> int:
    if item is None:
        raise DataError("only Square Wave has no item for a missing row")
    return item
