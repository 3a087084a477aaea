"""From a person's own rows to report bytes, once a collection: draw a view, slot, row and measure bit, then perturb.

Every device that is asked reports, whatever its rows are; silence would tell. A row that the plan has no place for
counts as no row, and where "no row" is no item an item is drawn evenly. Draws are made in this order: view, slot, row,
measure bit (or the even item), randomizer.

The device remembers what it has drawn, sent and spent in one JSON file, keyed by collection id and not by plan, so that
a second plan of one collection cannot ask again. Round and report are fixed before anything is sent; a retry sends the
stored bytes. Only its owner can read the file.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpsql.client.entropy import Entropy, below, is_insecure
from dpsql.client.plan import Plan, Row
from dpsql.client.report import Report, encode
from dpsql.errors import DataError, PrivacyError


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


@dataclass(frozen=True)
class Memory:
    """State that a device keeps.

    Args:
        path: the file, made when first used.
        largest_epsilon: the most the person gives to one collection.
        lifetime_cap: the most the person gives to all collections together.

    **Privacy**: the sum of epsilons over collections is at most `lifetime_cap`, by sequential composition.
    """

    path: Path
    largest_epsilon: Fraction
    lifetime_cap: Fraction

    def __post_init__(self) -> None:
        """Take a path as text too."""
        object.__setattr__(self, "path", Path(self.path))

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
        if is_insecure(entropy):
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
            for answer in answers.values():
                _read_entry(answer)
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
                _give_back(lock)
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


def _give_back(lock: int) -> None:
    """Let others take it. Closing does so at once, but on Windows only some time later."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(lock, msvcrt.LK_UNLCK, 1)


def _read_entry(entry: Any) -> None:
    """Fail unless an entry holds what `answer` wrote: an epsilon above 0, a round, a report or none."""
    if Fraction(entry["epsilon"]) <= 0 or type(entry["round"]) is not int:
        raise ValueError("not an entry")
    if entry["report"] is not None:
        bytes.fromhex(entry["report"])
