"""The `meta` table of a file that may come from anybody: read within bounds, and believed as far as it fits together.

Its JSON is bounded before it is parsed, since a few bytes can stand for a number or a nesting that takes for ever;
what the types of `Meta` cannot tell, numbers that point at each other, is checked here. `dpsql.release.structure` has
made sure that `meta` is a table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import isfinite, prod
from pathlib import Path
from typing import Any

import duckdb
from pydantic import ValidationError

from dpsql.errors import ReleaseError
from dpsql.release.format import (
    FORMAT,
    AxisMeta,
    FamilyCovariance,
    Meta,
    StatisticMeta,
    meta_from_json,
    to_json,
)
from dpsql.release.structure import AXIS, refused, rows_of

MOST_ENTRIES, MOST_BYTES, DEEPEST, LONGEST = 64, 1 << 26, 40, 400
"""Entries of `meta`, bytes of all, nesting of its JSON, and digits of a number in it."""
MOST_LEAVES, MOST_AXES, MOST = 1 << 21, 26, 1 << 63
MOST_KEYS = 1 << 16
STEPS = frozenset(1 << k for k in range(63))
MOST_COVARIANCES = 1 << 12
AMOUNT = re.compile(rf"[0-9]{{1,{LONGEST}}}(/[1-9][0-9]{{0,{LONGEST - 1}}})?")
"""A fraction as releases write it; `1e999999999` is one too, which takes for ever to read."""

_SIZE = "SELECT count(*), sum(strlen(key) + strlen(value)) FROM (FROM meta LIMIT {})"


def read_meta(connection: duckdb.DuckDBPyConnection, path: Path) -> Meta:
    """The `meta` of a release of this format.

    Args:
        connection: `check_objects` has seen it, and it has a table `meta`.
        path: for messages.

    Raises:
        ReleaseError: of another format, or not as this format is.
    """
    ((number, size),) = rows_of(connection, _SIZE.format(MOST_ENTRIES + 1))
    if not number or number > MOST_ENTRIES or size is None or size > MOST_BYTES:
        raise refused(path, "its meta table is empty or too large")
    entries: dict[str, Any] = {}
    for key, value in rows_of(connection, "SELECT key, value FROM meta"):
        if key is None or value is None or key in entries:
            raise refused(path, "its meta table has a key twice, or none")
        entries[key] = _json(value, path)
    version = entries.get("format")
    if version != FORMAT:
        shown = version if isinstance(version, int) and abs(version) < 1000 else "unknown"
        raise ReleaseError(
            f"{path} has format {shown} and this dpsql reads {FORMAT}", hint="publish with this version"
        )
    try:
        meta = meta_from_json(entries)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])[:80]
        lacks = "lacks" if first["type"] == "missing" else "cannot be read at"
        raise ReleaseError(
            f"{path} {lacks} {place} in its meta table", hint="it is not a dpsql release"
        ) from None
    if to_json(meta) != entries:
        raise refused(path, "its meta table has more than this format has")
    for fault in _faults(meta):
        raise refused(path, f"in its meta table {fault}")
    return meta


def _json(text: str, path: Path) -> Any:
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_real, parse_int=_whole)
    except (ValueError, RecursionError):
        raise refused(path, "its meta table is not JSON, or has a number that no release has") from None
    if _deeper(value, DEEPEST):
        raise refused(path, f"its meta table is nested more than {DEEPEST} levels deep")
    return value


def _no_number(text: str) -> Any:
    raise ValueError(text)


def _real(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError("not finite")
    return value


def _whole(text: str) -> int:
    if len(text) > LONGEST:
        raise ValueError("too long")
    return int(text)


def _deeper(value: Any, levels: int) -> bool:
    """True if a JSON value is nested more than so many levels."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(
        _deeper(element, levels - 1) for element in inner if isinstance(element, dict | list)
    )


def _faults(meta: Meta) -> Iterator[str]:
    """Faults in numbers and names that the types of `Meta` cannot express."""
    promise = meta.privacy
    amounts = [promise.epsilon, promise.delta, promise.mu2 or "0", *(spend.amount for spend in meta.spends)]
    amounts += [statistic.budget for statistic in meta.statistics]
    amounts += [promise.key_delta or "0", *(spend.delta for spend in meta.spends)]
    amounts += [
        text for keys in meta.keys for step in keys.rounds for text in (step.mu2, step.delta, step.sigma2)
    ]
    for keys in meta.keys:
        if not (0 <= keys.keys <= keys.most <= MOST_KEYS and 1 <= keys.per_unit <= MOST_KEYS):
            yield "a list of keys is too long"
        if any(abs(step.threshold) >= MOST for step in keys.rounds):
            yield "a list of keys has an impossible threshold"
    if not all(map(AMOUNT.fullmatch, amounts)):
        yield "an amount of the budget is not a fraction"
    if any(not 0 <= axis.model < len(meta.models) for axis in meta.axes):
        yield "an axis names a variance model that is not there"
    for axis in meta.axes:
        yield from _axis_faults(axis)
    for place, statistic in enumerate(meta.statistics):
        yield from _statistic_faults(meta, place, statistic)
    if len(meta.covariances) > MOST_COVARIANCES:
        yield "too many families err together"
    for covariance in meta.covariances:
        yield from _covariance_faults(meta, covariance)


def _covariance_faults(meta: Meta, covariance: FamilyCovariance) -> Iterator[str]:
    members = [*covariance.left, *covariance.right]
    if len(set(members)) < len(members) or any(not 0 <= i < len(meta.statistics) for i in members):
        yield "families that err together have a statistic twice, or one that is not there"
    if any(not 0 <= axis < len(meta.axes) for axes, _ in covariance.components for axis in axes):
        yield "families that err together have a part of no axis"


def _axis_faults(axis: AxisMeta) -> Iterator[str]:
    special = [leaf for leaf in (axis.null_leaf, axis.missing_leaf, axis.other_leaf) if leaf is not None]
    names = [*AXIS, *(column.name.lower() for column in axis.columns)]
    if not 1 <= axis.leaves <= MOST_LEAVES or any(not 0 <= leaf < axis.leaves for leaf in special):
        yield "an axis has no leaves, too many, or a special one that is not among them"
    if len(set(special)) < len(special) or len(set(names)) < len(names):
        yield "an axis has one leaf or column twice"


def _statistic_faults(meta: Meta, place: int, statistic: StatisticMeta) -> Iterator[str]:
    axes, models = statistic.axes, [*statistic.models, statistic.nonnegative_model or 0]
    if statistic.id != place or len(axes) > MOST_AXES or len(set(axes)) < len(axes):
        yield "a statistic has another number than its place, or an axis twice"
    if any(not 0 <= axis < len(meta.axes) for axis in axes):
        yield "a statistic names an axis that is not there"
    elif any(meta.axes[axis].of != statistic.of for axis in axes):
        yield "a statistic has an axis of another table"
    elif statistic.cells != prod(meta.axes[axis].leaves for axis in axes):
        yield "a statistic has another number of cells than its axes"
    if any(not 0 <= model < len(meta.models) for model in models):
        yield "a statistic names a variance model that is not there"
    components = [(positions, factor) for positions, factor in statistic.components]
    if any(not 0 <= i < len(axes) for positions, _ in components for i in positions) or any(
        factor < 0 for _, factor in components
    ):
        yield "a statistic has a part of no axis, or of a variance below 0"
    if statistic.step not in STEPS:
        yield "a statistic's step is not a power of two"
    if not 0 <= statistic.scale <= 18 or statistic.sensitivity < 0 or abs(statistic.mid) >= MOST:
        yield "a statistic has an impossible scale"
