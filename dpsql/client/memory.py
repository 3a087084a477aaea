"""A person answers a collection once: the device's memory of what it has drawn, sent and spent.

The memory is one JSON file, keyed by collection id and not by plan, so that a second plan of one collection
cannot ask again. Round and report are fixed before anything is sent; a retry sends the stored bytes.
Only its owner can read it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpsql.client.device import draw_round, respond
from dpsql.client.entropy import Entropy, is_insecure
from dpsql.client.kinds import Row
from dpsql.client.plan import Plan
from dpsql.errors import DataError, PrivacyError


@dataclass(frozen=True)
class Memory:
    """What a device keeps.

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
            raise PrivacyError("the plan asks for more than this device gives to one collection")
        with self._locked():
            kept = self._load()
            entry = kept.get(plan.collection)
            if entry is None:
                self._check_cap(kept, plan)
                entry = {"epsilon": str(plan.epsilon), "round": draw_round(plan, entropy), "report": None}
                kept[plan.collection] = entry
                self._store(kept)
            if entry["report"] is not None:
                return bytes.fromhex(entry["report"])
            if entry["round"] != plan.round:
                return None
            if Fraction(entry["epsilon"]) < plan.epsilon:
                raise PrivacyError("the collection raised its epsilon after this device joined it")
            report = respond(plan, rows, entropy)
            entry["report"] = report.hex()
            self._store(kept)
            return report

    def _check_cap(self, kept: dict[str, Any], plan: Plan) -> None:
        spent = sum((Fraction(entry["epsilon"]) for entry in kept.values()), Fraction(0))
        if spent + plan.epsilon > self.lifetime_cap:
            raise PrivacyError("this device has given all it gives to collections")

    def _load(self) -> dict[str, Any]:
        if not self.path.exists():
            return {}
        try:
            kept = json.loads(self.path.read_text())
            for entry in kept.values():
                _read_entry(entry)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise DataError("the memory of past reports is damaged", hint="do not take part") from error
        return dict(kept)

    def _store(self, kept: dict[str, Any]) -> None:
        fresh = self.path.with_name(self.path.name + ".new")
        fresh.unlink(missing_ok=True)  # what a crash left, perhaps open to others
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(kept, file, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
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
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _read_entry(entry: Any) -> None:
    """Fail unless an entry holds what `answer` wrote: an epsilon above 0, a round, a report or none."""
    if Fraction(entry["epsilon"]) <= 0 or type(entry["round"]) is not int:
        raise ValueError("not an entry")
    if entry["report"] is not None:
        bytes.fromhex(entry["report"])
