"""From what a device stores to rows of leaves: join public tables, then look values up.

A plan's axis says how a value becomes a leaf: by `values` (an ordered list), by `starts` (the first unit of each
bin), by `keys` (public rows), or by `lower` and `width` (integer bins). `null_leaf`, `missing_leaf` and `other_leaf`
take what is absent, without a public row, or outside. Integer bins clamp without them; elsewhere such a row is left
out, as a catalog without these leaves says of raw rows too.

**Privacy**: every value, NaN, infinities, NULL and text in the place of numbers included, has a leaf or is left out;
none makes a device fail, which would tell it.
"""

from __future__ import annotations

import datetime
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from numbers import Rational
from typing import Any

from dpsql.client.kinds import Row
from dpsql.client.plan import Axis, Measure, Plan
from dpsql.errors import DataError

Record = Mapping[str, Any]
LONGEST = 10**1000
GRAINS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
"""Seconds of a grain."""


def join(facts: Sequence[Record], public: Mapping[Any, Record], key: str) -> list[dict[str, Any]]:
    """Join own records with a public dimension on the device; an unknown key adds nothing.

    Example:
        >>> join([{"product": 7, "amount": 3}], {7: {"price": 20}}, "product")
        [{'product': 7, 'amount': 3, 'price': 20}]
    """
    return [{**fact, **public.get(fact.get(key), {})} for fact in facts]


def leaf_of(axis: Axis, value: object) -> int | None:
    """Look up the leaf of a value.

    Args:
        axis: one axis of a checked plan.
        value: what the device holds, None for absent.

    Returns:
        The leaf, or None where the axis has none for such a value and the row is left out.
    """
    outside: int | None = axis.lookup.get("missing_leaf" if "keys" in axis.lookup else "other_leaf")
    if value is None:
        absent: int | None = axis.lookup.get("null_leaf")
        return absent if absent is not None else outside
    if "values" in axis.lookup:
        text, values = _text(value), axis.lookup["values"]
        return int(values.index(text)) if text in values else outside
    if "keys" in axis.lookup:
        found = axis.lookup["keys"].get(_text(value))
        return outside if found is None else int(found)
    return _binned(axis, value) if "starts" in axis.lookup else _even_bin(axis, value)


def units(value: object, scale: int, lower: int, upper: int) -> int | None:
    """A number in steps of 10^-scale, rounded half away from zero and cut to lower .. upper; None if it is no number.

    Example:
        >>> units(2.5, 0, 0, 9), units("-0.25", 1, -9, 9), units(float("inf"), 0, 0, 9), units("x", 0, 0, 9)
        (3, -3, 9, None)
    """
    if isinstance(value, Rational):
        top, bottom = int(value.numerator) * 10**scale, int(value.denominator)
        near: int = (2 * abs(top) + bottom) // (2 * bottom)
        return min(max(near if top >= 0 else -near, lower), upper)
    with localcontext() as context:
        context.prec = 60
        try:
            number = Decimal(str(value))
        except InvalidOperation:
            return None
        step = Decimal(1).scaleb(-scale)
        if number.is_nan():
            return None
        if number <= lower * step or number >= upper * step:
            return lower if number <= lower * step else upper
        return int((number / step).to_integral_value(ROUND_HALF_UP))


def check_fields(plan: Plan, fields: Iterable[str]) -> None:
    """Refuse a plan that asks for nothing this program holds.

    Args:
        plan: a checked plan.
        fields: every name that the program's records can have, whoever uses it.

    Raises:
        DataError: no axis or measure of the plan has one of these names.

    **Privacy**: a function of plan and program; call it before any record is read, and never with a record's names.
    """
    asked = {axis.name for axis in plan.axes} | {measure.name for measure in plan.measures}
    asked |= {str(axis.lookup["key"]) for axis in plan.axes if "key" in axis.lookup}
    if asked.isdisjoint(fields):
        raise DataError(
            "none of the plan's fields is known here", hint=f"name them {', '.join(sorted(asked))}"
        )


def to_rows(plan: Plan, records: Sequence[Record]) -> list[Row]:
    """Turn joined records into rows.

    Args:
        plan: a checked plan.
        records: by the names of the plan's axes and measures. What is absent has no row in its public table where the
            plan has a leaf for that, else it is NULL. An axis over a public table's rows may go by their key's name.

    Returns:
        One row a record that has a leaf on every axis. Measures are integers at their declared scale, within their
        bounds; one that is absent or no number counts as 0, or as the bound nearest to it.

    Never fails, also where no name fits: who has no record would answer such a plan, and the others' silence would tell
    that they have. `check_fields` finds misnamed fields without looking at anybody's records.
    """
    rows = []
    for record in records:
        leaves = [_leaf(axis, record) for axis in plan.axes]
        placed = tuple(leaf for leaf in leaves if leaf is not None)
        if len(placed) == len(leaves):
            rows.append(Row(placed, tuple(_amount(m, record.get(m.name)) for m in plan.measures)))
    return rows


def _leaf(axis: Axis, record: Record) -> int | None:
    """The leaf of a record: by the axis's name, else by its public table's key, else as without a row there."""
    for name in (axis.name, str(axis.lookup.get("key"))):
        if name in record:
            return leaf_of(axis, record[name])
    missing: int | None = axis.lookup.get("missing_leaf")
    return leaf_of(axis, None) if missing is None else missing


def _text(value: object) -> str | None:
    """A value as catalogs write it; None for integers longer than any of them, which Python does not write out."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Rational) and max(abs(int(value.numerator)), int(value.denominator)) > LONGEST:
        return None
    return str(value)


def _amount(measure: Measure, value: object) -> int:
    lower, upper = measure.lower, measure.upper
    found = units(value, measure.scale, lower, upper)
    return min(max(0, lower), upper) if found is None else found


def _binned(axis: Axis, value: object) -> int | None:
    """Bins by their first unit: numbers count steps of the declared scale, dates days, times their grain, from 1970."""
    starts, upper, kind = axis.lookup["starts"], axis.lookup["upper"], axis.lookup.get("type")
    if kind in ("date", "timestamp") or isinstance(value, datetime.date):
        grain = axis.lookup.get("grain", "second") if kind == "timestamp" else "day"
        unit = _since_1970(value, GRAINS[grain])
    else:
        unit = units(value, axis.lookup.get("scale", 0), starts[0] - 1, upper + 1)
    if unit is None or not starts[0] <= unit <= upper:
        other: int | None = axis.lookup.get("other_leaf")
        return other
    return bisect_right(starts, unit) - 1


def _since_1970(value: object, seconds: int) -> int | None:
    """Whole grains of a date, a time (by UTC if it has a zone) or its ISO text; None for anything else."""
    try:
        moment = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(moment, datetime.datetime) and moment.tzinfo is not None:
            moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    if not isinstance(moment, datetime.date):
        return None
    if not isinstance(moment, datetime.datetime):
        moment = datetime.datetime.combine(moment, datetime.time())
    return (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(seconds=seconds)


def _even_bin(axis: Axis, value: object) -> int | None:
    """Bins of one width; what is outside goes to its own leaf, or to the nearest bin."""
    outside: int | None = axis.lookup.get("other_leaf")
    if not isinstance(value, int | float) or value != value:
        return outside
    bins: int = axis.leaves - sum(
        axis.lookup.get(k) is not None for k in ("null_leaf", "missing_leaf", "other_leaf")
    )
    lower, width = axis.lookup.get("lower", 0), axis.lookup.get("width", 1)
    leaf = int((min(max(value, lower - 1), lower + bins * width) - lower) // width)
    if outside is not None and not 0 <= leaf < bins:
        return int(outside)
    return min(max(leaf, 0), bins - 1)
