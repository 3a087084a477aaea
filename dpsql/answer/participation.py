"""Whom an answer is about: everybody, or those who reported.

A central release counts the rows that its curator holds. A local one counts the people who reported, exactly and
without a word about the others: with 10,000 reports of 50,000 people COUNT(*) is 10,000 with an error of 0. Its catalog
says whom they stand for (`participation:` under `collection:`):

| word | who reported | stands for everybody in |
|---|---|---|
| `all` | everybody of the population | every answer |
| `random` | a random sample | averages, shares and quantiles |
| `unknown` | nobody says | nothing |

The share of people who took part is not estimated here, so counts and sums of a sample are not scaled up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from dpsql.answer.answered import terms_of
from dpsql.answer.block import Block, ErrorOf, Known, Ratio, Value

QUANTILES = ("median", "quantile")
WHOM = {
    "all": "of those who reported: everybody, says the catalog",
    "random": "of those who reported, not of everybody: a random sample, says the catalog",
    "unknown": "of those who reported, not of everybody",
}
"""The note under every answer of a local release, by its catalog's `participation`."""


class Reads(Enum):
    """What a statement takes from a release."""

    CATALOG = "public facts alone"
    AVERAGES = "averages, shares and quantiles alone"
    TOTALS = "counts or sums"


def reads_of(blocks: Iterable[Block]) -> Reads:
    """What the aggregate blocks of a statement take from a release.

    Arithmetic outside of a block is not looked at: a share that the outer statement works out reads counts.
    """
    values = [
        value.form if isinstance(value, ErrorOf) else value for block in blocks for value in block.values
    ]
    noisy = [value for value in values if value is not None and is_noisy(value)]
    if not noisy:
        return Reads.CATALOG
    return Reads.AVERAGES if all(_has_no_size(value) for value in noisy) else Reads.TOTALS


def is_noisy(value: Value) -> bool:
    """Whether a value is made of people's rows, not of the catalog alone."""
    return bool(terms_of(value)) or (isinstance(value, Known) and value.function in QUANTILES)


def _has_no_size(value: Value) -> bool:
    """Whether a value stays as it is when everybody counts twice."""
    if isinstance(value, Ratio):
        return value.above.constant == 0 == value.below.constant
    return isinstance(value, Known)


def participation(meta: Mapping[str, Any]) -> str | None:
    """Whom a local release's reports stand for, as its catalog declared; None for a central release.

    Args:
        meta: the release's `meta` table.
    """
    local = meta.get("local")
    return None if not local else str(local.get("participation", "unknown"))


def stands_for_everybody(meta: Mapping[str, Any], reads: Reads) -> bool:
    """Whether a release's answer is about everybody of its population, so that it may stand in for another's.

    Args:
        meta: the release's `meta` table.
        reads: what the statement takes from it.
    """
    declared = participation(meta)
    return (
        declared in (None, "all")
        or reads is Reads.CATALOG
        or (declared == "random" and reads is Reads.AVERAGES)
    )


def reported_notes(meta: Mapping[str, Any], block: Block) -> list[str]:
    """What a reader of a block's numbers should know about whom they are about; nothing for a central release."""
    declared = participation(meta)
    return [] if declared is None or reads_of([block]) is Reads.CATALOG else [WHOM[declared]]
