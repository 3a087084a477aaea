"""Payloads that are one number in LEB128, and cells of which a report names exactly one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsql.client.varint import read_varint
from dpsql.mechanisms.oracles.oracle import Bytes, Checked, FloatArray, IntArray

LONGEST = 4
"""Bytes of the longest number."""


def check_numbers(payloads: Bytes, limit: int, start: int = 0) -> Checked:
    """Which payloads hold, after `start` bytes, a number below `limit` in its shortest form."""
    if not start < payloads.shape[1] <= start + LONGEST:
        return Checked(np.zeros(len(payloads), dtype=bool), "payload length")
    number = payloads[:, start:]
    shaped = (number[:, -1] < 128) & (number[:, :-1] >= 128).all(axis=1)
    shortest = (number[:, -1] > 0) | (number.shape[1] == 1)
    return Checked(shaped & shortest & (varints(number) < limit), "value out of range")


def varints(number: Bytes) -> IntArray:
    """The integers that equally long, checked LEB128 numbers stand for."""
    value = np.zeros(len(number), dtype=np.int64)
    for position in range(number.shape[1]):
        value |= (number[:, position].astype(np.int64) & 0x7F) << (7 * position)
    return value


def numbers_of(payloads: Sequence[bytes], start: int = 0) -> IntArray:
    """The number after `start` bytes of each checked payload, shape (payloads,)."""
    return np.array([read_varint(payload[start:]).value for payload in payloads], dtype=np.int64)


def farthest(moves: FloatArray) -> float:
    """Largest sum of moves of one sign within a column: the set of leaves that one named cell moves most."""
    return float(max(np.maximum(moves, 0).sum(axis=0).max(), np.maximum(-moves, 0).sum(axis=0).max()))
