"""Bytes to exact uniform integers. The only module of the client that touches the system's entropy."""

from __future__ import annotations

import os
from collections.abc import Callable

Entropy = Callable[[int], bytes]
"""Takes a number of bytes, returns that many fresh ones."""

LARGEST_BOUND = 1 << 48
"""`below` refuses larger bounds: 256^6 fits a JavaScript double with room to spare."""


def system_entropy(size: int) -> bytes:
    """Return `size` bytes from the operating system."""
    return os.urandom(size)


def below(bound: int, entropy: Entropy) -> int:
    """Draw an integer uniformly from 0 .. bound - 1, exactly.

    Takes the fewest bytes k with 256^k >= bound, big-endian, and draws again when the number lies in the
    incomplete last stretch, so no value is favoured. A bound of 1 takes no bytes.

    Args:
        bound: 1 .. 2^48.
        entropy: where bytes come from.

    Returns:
        The draw.

    Raises:
        ValueError: if the bound is outside 1 .. 2^48.
        OSError: if the source gave fewer bytes than asked; zeros in their place would tell the truth.
    """
    if not 1 <= bound <= LARGEST_BOUND:
        raise ValueError(f"a draw needs a bound in 1 .. 2^48, not {bound}")
    size = ((bound - 1).bit_length() + 7) // 8
    span = 256**size
    accepted = span - span % bound
    while True:
        drawn = entropy(size)
        if len(drawn) != size:
            raise OSError(f"the source of entropy gave {len(drawn)} bytes for {size}")
        value = int.from_bytes(drawn, "big")
        if value < accepted:
            return value % bound
