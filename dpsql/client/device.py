"""From a person's own rows to report bytes, once a collection: rows to leaves, draw view, slot, row and bit, perturb.

A plan's axis says how a value becomes a leaf: by `values` (an ordered list), by `starts` (the first unit of each
bin), by `keys` (public rows), or by `lower` and `width` (integer bins). `null_leaf`, `missing_leaf` and `other_leaf`
take what is absent, without a public row, or outside. Integer bins clamp without them; elsewhere such a row is left
out, as a catalog without these leaves says of raw rows too. What texts say is written in docs/in-your-app.md, and
`clients/js` reads them alike.

Every device that is asked reports, whatever its rows are; silence would tell. A row that the plan has no place for
counts as no row, and where "no row" is no item an item is drawn evenly. Draws are made in this order: view, slot, row,
measure bit (or the even item), randomizer.

The device remembers what it has drawn, sent and spent in one JSON file, keyed by collection id and not by plan, so that
a second plan of one collection cannot ask again. Round and report are fixed before anything is sent; a retry sends the
stored bytes. Only its owner can read the file.

Report version 1: a few bytes that name the plan, the view and the oracle, then the perturbed answer.

    magic 2 ("L1") | plan hash 8 | view u16 | oracle u8 | payload          big-endian

Payloads: GRR and Square Wave an unsigned LEB128 integer, OUE ceil(D/8) bytes, OLH a seed u16 and a LEB128
bucket. A report holds no user id. The JSON twin carries the same fields under names.

**Privacy**: every value, NaN, infinities, NULL and text in the place of numbers included, has a leaf or is left out;
none makes a device fail, which would tell it.
"""

from __future__ import annotations

import datetime
import errno
import json
import math
import os
import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from pathlib import Path
from typing import Any, NamedTuple

from dpsql.client import oracles
from dpsql.client.entropy import Entropy, below
from dpsql.client.plan import Plan, PlanAxis, PlanMeasure, Row
from dpsql.errors import DataError, PrivacyError

Record = Mapping[str, Any]
LONGEST = 10**1000
SPACE = "[ \\t\\n\\v\\f\\r]*"
NUMBER = re.compile(
    rf"{SPACE}([+-]?)(?:(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?|(?i:inf|infinity)){SPACE}",
    re.ASCII,
)
MOMENT = re.compile(
    rf"{SPACE}([0-9]{{4}})-([0-9]{{2}})-([0-9]{{2}})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]{1,9})?)?(?:Z|([+-])([0-9]{2}):([0-9]{2}))?)?"
    rf"{SPACE}"
)
"""What texts say: docs/in-your-app.md. `clients/js` has the same."""
FAR = 10**9
MOST_DIGITS = 25
"""Digits of a number of steps that is beyond every bound: a plan's have 16 at most."""
EPOCH = datetime.date(1970, 1, 1).toordinal()
GRAINS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
"""Seconds of a grain."""


def join(facts: Sequence[Record], public: Mapping[Any, Record], key: str) -> list[dict[str, Any]]:
    """Join own records with a public dimension on the device; an unknown key adds nothing.

    Example:
        >>> join([{"product": 7, "amount": 3}], {7: {"price": 20}}, "product")
        [{'product': 7, 'amount': 3, 'price': 20}]
    """
    return [{**fact, **public.get(fact.get(key), {})} for fact in facts]


def leaf_of(axis: PlanAxis, value: object) -> int | None:
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
        leaf = axis.lookup["keys"].get(_text(value))
        return outside if leaf is None else int(leaf)
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
    if not isinstance(value, str | float | Decimal):
        return None
    match = NUMBER.fullmatch(str(value))
    if match is None:
        return None
    sign, integer, fraction, bare, power = match.groups()
    size = (
        _steps(integer or "", (fraction or "") + (bare or ""), power or "0", scale)
        if integer or bare
        else None
    )
    if size is None:
        return lower if sign == "-" else upper
    return min(max(-size if sign == "-" else size, lower), upper)


def _steps(whole: str, fraction: str, power: str, scale: int) -> int | None:
    """Whole steps of 10^-scale nearest to whole.fraction x 10^power, halves up; None beyond all bounds."""
    digits = (whole + fraction).lstrip("0")
    sign, size = power.startswith("-"), power.lstrip("+-").lstrip("0")
    shift = min(int(size[:10] or "0"), FAR)
    moved = (-shift if sign else shift) + scale - len(fraction)
    if not digits or len(digits) + moved < 0:
        return 0
    if len(digits) + moved > MOST_DIGITS:
        return None
    if moved >= 0:
        return int(digits + "0" * moved)
    cut = len(digits) + moved
    return int(digits[:cut] or "0") + int(digits[cut] >= "5")


def check_fields(plan: Plan, fields: Iterable[str]) -> None:
    """Refuse a plan that asks for nothing this program holds.

    Args:
        plan: a checked plan.
        fields: every name that the program's records can have, whoever uses it.

    Raises:
        DataError: no axis or measure of the plan has one of these names.

    **Privacy**: a function of plan and program; call it before any record is read, and never with a record's names.
    """
    plan_fields = {axis.name for axis in plan.axes} | {measure.name for measure in plan.measures}
    plan_fields |= {str(axis.lookup["key"]) for axis in plan.axes if "key" in axis.lookup}
    if plan_fields.isdisjoint(fields):
        raise DataError(
            "none of the fields is one of the plan's", hint=f"name them {', '.join(sorted(plan_fields))}"
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


def _leaf(axis: PlanAxis, record: Record) -> int | None:
    """The leaf of a record: by the axis's name, else by its public table's key, else as without a row there."""
    for name in (axis.name, str(axis.lookup.get("key"))):
        if name in record:
            return leaf_of(axis, record[name])
    missing: int | None = axis.lookup.get("missing_leaf")
    return leaf_of(axis, None) if missing is None else missing


def _text(value: object) -> str | None:
    """A value as catalogs write it; None for what has no such text, and for numbers longer than any of them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Rational) and max(abs(int(value.numerator)), int(value.denominator)) > LONGEST:
        return None
    if isinstance(value, float):
        return _short(value)
    return str(value) if isinstance(value, str | Rational | Decimal | datetime.date) else None


def _short(value: float) -> str:
    """The fewest digits that stand for a number, as JavaScript writes it: no point if it is whole.

    Example:
        >>> _short(7.0), _short(2.5), _short(1e-7), _short(1e21), _short(-1.5e300), _short(float("inf"))
        ('7', '2.5', '1e-7', '1e+21', '-1.5e+300', 'Infinity')
    """
    if not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    minus, figures, exponent = Decimal(repr(value)).as_tuple()
    digits = "".join(map(str, figures)).rstrip("0")
    point, sign = len(figures) + int(exponent), "-" if minus and digits else ""
    if not digits:
        return "0"
    if not -6 < point <= 21:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{point - 1:+d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    integer, fraction = digits[:point].ljust(point, "0"), digits[point:]
    return f"{sign}{integer}.{fraction}" if fraction else f"{sign}{integer}"


def _amount(measure: PlanMeasure, value: object) -> int:
    lower, upper = measure.lower, measure.upper
    steps = units(value, measure.scale, lower, upper)
    return min(max(0, lower), upper) if steps is None else steps


def _binned(axis: PlanAxis, value: object) -> int | None:
    """Bins by their first unit: numbers count steps of the declared scale, dates days, times their grain, from 1970."""
    starts, upper, kind = axis.lookup["starts"], axis.lookup["upper"], axis.lookup.get("type")
    if kind in ("date", "timestamp") or isinstance(value, datetime.date):
        grain = axis.lookup.get("grain", "second") if kind == "timestamp" else "day"
        unit = _since_1970(value, GRAINS[grain])
    else:
        unit = units(value, axis.lookup.get("scale", 0), starts[0] - 1, upper + 1)
    if unit is None or not starts[0] <= unit <= upper:
        other_leaf: int | None = axis.lookup.get("other_leaf")
        return other_leaf
    return bisect_right(starts, unit) - 1


def _since_1970(value: object, seconds: int) -> int | None:
    """Whole grains of a date, a time (by UTC if it has a zone) or a text of one; None for anything else."""
    if isinstance(value, str):
        moment = _moment(value)
        return None if moment is None else moment // seconds
    if not isinstance(value, datetime.date):
        return None
    zone = None
    if isinstance(value, datetime.datetime):
        zone, value = value.utcoffset(), value.replace(tzinfo=None)
    else:
        value = datetime.datetime.combine(value, datetime.time())
    since = value - datetime.datetime(1970, 1, 1) - (zone or datetime.timedelta())
    return since // datetime.timedelta(seconds=seconds)


def _moment(text: str) -> int | None:
    """Seconds since 1970 of a text; None if it is no date and no time."""
    match = MOMENT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(field or "0") for field in match.groups()[:6])
    sign, hours, minutes = match[7], int(match[8] or "0"), int(match[9] or "0")
    try:
        days = datetime.date(year, month, day).toordinal() - EPOCH
    except ValueError:
        return None
    if hour > 23 or minute > 59 or second > 59 or hours > 23 or minutes > 59:
        return None
    zone = (hours * 60 + minutes) * (-60 if sign == "-" else 60)
    return days * 86400 + hour * 3600 + minute * 60 + second - zone


def _even_bin(axis: PlanAxis, value: object) -> int | None:
    """Bins of one width; what is outside goes to its own leaf, or to the nearest bin."""
    outside: int | None = axis.lookup.get("other_leaf")
    if not isinstance(value, int | float) or value != value:
        return outside
    bins: int = axis.leaves - sum(
        axis.lookup.get(k) is not None for k in ("null_leaf", "missing_leaf", "other_leaf")
    )
    lower, width = axis.lookup.get("lower", 0), axis.lookup.get("width", 1)
    leaf: int = (math.floor(min(max(value, lower - 1), lower + bins * width)) - lower) // width
    if outside is not None and not 0 <= leaf < bins:
        return int(outside)
    return min(max(leaf, 0), bins - 1)


MAGIC = b"L1"
HEADER = 13
_JSON_KEYS = {"report", "plan", "view", "oracle", "payload"}


class Report(NamedTuple):
    """One report: the plan's hash, a view's number, an oracle's name, and payload bytes."""

    plan: bytes
    view: int
    oracle: str
    payload: bytes


def encode(report: Report) -> bytes:
    """Write a report as bytes.

    Raises:
        DataError: there is no oracle of its name.
    """
    oracle = oracles.device_oracle(report.oracle)
    if oracle is None:
        raise DataError("an unknown oracle")
    return MAGIC + report.plan + report.view.to_bytes(2, "big") + bytes([oracle.code]) + report.payload


def decode(raw: bytes) -> Report:
    """Read report bytes; the payload is checked against a plan by the collector, not here.

    Raises:
        DataError: if the bytes are not a report of version 1.
    """
    if len(raw) <= HEADER or raw[:2] != MAGIC:
        raise DataError("not a report of version 1")
    for oracle in oracles.ORACLES:
        if oracle.code == raw[12]:
            return Report(raw[2:10], int.from_bytes(raw[10:12], "big"), oracle.name, raw[HEADER:])
    raise DataError("a report names an unknown oracle")


def to_json(report: Report) -> str:
    r"""Write a report as one JSON line.

    Example:
        >>> to_json(Report(bytes(8), 3, "GRR", b"\x02"))
        '{"report":1,"plan":"0000000000000000","view":3,"oracle":"GRR","payload":"02"}'
    """
    fields = {**report._asdict(), "plan": report.plan.hex(), "payload": report.payload.hex()}
    return json.dumps({"report": 1, **fields}, separators=(",", ":"))


def from_json(line: str) -> Report:
    """Read the JSON twin.

    Raises:
        DataError: if a field is missing, unknown or of the wrong type.
    """
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict) or set(fields) != _JSON_KEYS or fields["report"] != 1:
            raise DataError("not a JSON report of version 1")
        view, oracle = fields["view"], fields["oracle"]
        if type(view) is not int or not 0 <= view < 1 << 16 or oracles.device_oracle(oracle) is None:
            raise DataError("a JSON report's view or oracle is not valid")
        plan, payload = bytes.fromhex(fields["plan"]), bytes.fromhex(fields["payload"])
        return decode(encode(Report(plan, view, oracle, payload)))
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError("not a JSON report of version 1") from error


def respond(plan: Plan, rows: Sequence[Row], entropy: Entropy) -> bytes:
    """Make one report about one person.

    Args:
        plan: a checked plan.
        rows: all rows of the person, already joined; may be empty.
        entropy: where bytes come from.

    Returns:
        Report bytes, version 1.

    **Privacy**: the view does not depend on the rows, and inside a view the output is one randomizer's, so
    the report is epsilon-LDP for everything the person owns. Call it once a collection (see `memory`).
    """
    number = _drawn([v.share for v in plan.views], entropy)
    view = plan.views[number]
    true_item = view.asks.draw(plan, view, rows, entropy)
    return encode(Report(plan.hash, number, view.oracle, view.perturbs.payload(true_item, plan.own, entropy)))


def draw_round(plan: Plan, entropy: Entropy) -> int:
    """Draw the one round of a collection in which a device answers, by the plan's weights.

    **Privacy**: it does not depend on the person's rows, so silence in the other rounds tells nothing.
    """
    return _drawn(plan.round_shares, entropy) if plan.round_shares else below(plan.rounds, entropy)


def _drawn(shares: Sequence[int], entropy: Entropy) -> int:
    """Draw a position by integer weights."""
    draw = below(sum(shares), entropy)
    for number, share in enumerate(shares):
        if draw < share:
            return number
        draw -= share
    raise DataError("the plan's shares are not positive")


class Memory:
    """State that a device keeps.

    Args:
        path: the file, made when first used.
        largest_epsilon: the most the person gives to one collection.
        lifetime_cap: the most the person gives to all collections together.

    **Privacy**: the sum of epsilons over collections is at most `lifetime_cap`, by sequential composition.
    """

    def __init__(self, path: Path, largest_epsilon: Fraction, lifetime_cap: Fraction) -> None:
        self.path = Path(path)  # text is taken too
        self.largest_epsilon, self.lifetime_cap = largest_epsilon, lifetime_cap

    def answer(self, plan: Plan, rows: Sequence[Row], entropy: Entropy) -> bytes | None:
        """Return this person's report for a plan, drawing it at most once a collection.

        Args:
            plan: a checked plan.
            rows: all rows of the person.
            entropy: where bytes come from; test entropy is refused.

        Returns:
            Report bytes, durable before they are returned; None if the person belongs to another round.

        Raises:
            PrivacyError: if epsilon is too large, the lifetime cap is reached, or entropy is marked insecure.
            DataError: if the memory file is damaged.
        """
        if getattr(entropy, "insecure", False):  # the mark of test entropy
            raise PrivacyError("test entropy must not be stored or sent", hint="use system_entropy")
        if plan.epsilon > self.largest_epsilon:
            raise PrivacyError("the plan costs more epsilon than this device spends on one collection")
        with self._locked():
            answers = self._load()
            answer = answers.get(plan.collection)
            if answer is None:
                spent = sum((Fraction(answer["epsilon"]) for answer in answers.values()), Fraction(0))
                if spent + plan.epsilon > self.lifetime_cap:
                    raise PrivacyError("this device has spent all of its epsilon for collections")
                answer = {"epsilon": str(plan.epsilon), "round": draw_round(plan, entropy), "report": None}
                answers[plan.collection] = answer
                self._store(answers)
            if answer["report"] is not None:
                return bytes.fromhex(answer["report"])
            if answer["round"] != plan.round:
                return None
            if Fraction(answer["epsilon"]) < plan.epsilon:
                raise PrivacyError("the collection raised its epsilon after this device joined it")
            report = respond(plan, rows, entropy)
            answer["report"] = report.hex()
            self._store(answers)
            return report

    def _load(self) -> dict[str, Any]:
        if not self.path.exists():
            return {}
        try:
            answers = json.loads(self.path.read_text())
            # what `answer` wrote: an epsilon above 0, a round, a report or none
            for answer in answers.values():
                if Fraction(answer["epsilon"]) <= 0 or type(answer["round"]) is not int:
                    raise ValueError("not an entry")
                if answer["report"] is not None:
                    bytes.fromhex(answer["report"])
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise DataError("the memory of past reports is damaged", hint="do not take part") from error
        return dict(answers)

    def _store(self, answers: dict[str, Any]) -> None:
        fresh = self.path.with_name(self.path.name + ".new")
        fresh.unlink(missing_ok=True)  # what a crash left, perhaps open to others
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(answers, file, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        if sys.platform != "win32":  # which has no handles of folders; a rename is in its journal
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _wait_for(lock)
            try:
                yield
            finally:
                # closing lets others take it at once, but there only some time later
                if sys.platform == "win32":
                    import msvcrt

                    msvcrt.locking(lock, msvcrt.LK_UNLCK, 1)
        finally:
            os.close(lock)


def _wait_for(lock: int) -> None:
    """Take an open file for this process alone."""
    if sys.platform != "win32":
        import fcntl

        return fcntl.flock(lock, fcntl.LOCK_EX)
    import msvcrt

    while True:
        try:
            return msvcrt.locking(lock, msvcrt.LK_LOCK, 1)
        except OSError as error:  # it gives up after ten seconds
            if error.errno != errno.EDEADLK:
                raise
