"""From a person's own rows to report bytes, once a collection: draw a view, slot, row and measure bit, then perturb.

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
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from dpsql.client import oracles
from dpsql.client.entropy import Entropy, below
from dpsql.client.plan import Plan, Row
from dpsql.errors import DataError, PrivacyError

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
                self._check_cap(answers, plan)
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

    def _check_cap(self, answers: dict[str, Any], plan: Plan) -> None:
        spent = sum((Fraction(answer["epsilon"]) for answer in answers.values()), Fraction(0))
        if spent + plan.epsilon > self.lifetime_cap:
            raise PrivacyError("this device has spent all of its epsilon for collections")

    def _load(self) -> dict[str, Any]:
        if not self.path.exists():
            return {}
        try:
            answers = json.loads(self.path.read_text())
            for (
                answer
            ) in answers.values():  # what `answer` wrote: an epsilon above 0, a round, a report or none
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
                if (
                    sys.platform == "win32"
                ):  # closing lets others take it at once, but there only some time later
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
