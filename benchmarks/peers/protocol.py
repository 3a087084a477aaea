"""How the driver and a script in another environment talk: one JSON object in, one out. Standard library alone.

A script has one function, which opens its engine on a star for one budget and gives a function that answers a question.
Between `# user` and `# end` stands what somebody who uses that engine writes; those lines are counted.

**Privacy**: seeded rows go in; noise is each engine's own and is never seeded.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

Number = float | None


class Job(NamedTuple):
    """What a script is asked.

    Args:
        folder: of the Parquet files.
        unit: `sale` or `customer`.
        epsilon, delta: of all questions together.
        total: how many questions the budget is for (K).
        boxes: those that are asked, each youngest, oldest, cheapest, dearest.
        statements: the same as SQL.
        method: how the engine is used, where a script knows several ways.
        rows: rows of a customer that are kept, where the unit is a customer.
    """

    folder: str
    unit: str
    epsilon: float
    delta: float
    total: int
    boxes: Sequence[Sequence[float]]
    statements: Sequence[str]
    method: str
    rows: int


class Answer(NamedTuple):
    """COUNT, SUM and AVG of a box; half the width of their 95% intervals, or both ends, where the engine has some."""

    values: Sequence[Number]
    halves: Sequence[Number] = ()
    ends: Sequence[Sequence[Number]] = ()


Ask = Callable[[int], Answer]
"""Answers a question by its number."""


def cpu() -> float:
    """Seconds of CPU of this process and of its living descendants (Spark's Java)."""
    children: dict[int, list[tuple[int, float]]] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):  # it has ended since
                continue
            spent = (int(fields[11]) + int(fields[12])) / tick
            children.setdefault(int(fields[1]), []).append((int(entry.name), spent))
    waiting, total = [os.getpid()], time.process_time()
    while waiting:
        for child, spent in children.get(waiting.pop(), []):
            total += spent
            waiting.append(child)
    return total


def rho(epsilon: float, delta: float) -> float:
    """The largest zCDP rho that is (epsilon, delta)-differentially private, by the tight conversion.

    Args:
        epsilon, delta: the promise.

    **Source**: Canonne, Kamath and Steinke, The discrete Gaussian for differential privacy, 2020, corollary 13.
    """

    def spent(amount: float) -> float:
        orders = (1 + 10 ** (i / 200) for i in range(-400, 1200))
        return min(
            math.exp(min(0.0, (a - 1) * (a * amount - epsilon) + a * math.log1p(-1 / a)) - math.log(a - 1))
            for a in orders
        )

    return _largest(lambda amount: spent(amount) <= delta, 0.0, epsilon)


def gaussian(epsilon: float, delta: float) -> float:
    """The largest mu of a Gaussian mechanism that is (epsilon, delta)-differentially private, exactly.

    **Source**: Balle and Wang, Improving the Gaussian mechanism for differential privacy, 2018, theorem 8.
    """

    def phi(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    def spent(mu: float) -> float:
        return phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu)

    return _largest(lambda mu: spent(mu) <= delta, 1e-6, 10.0)


def _largest(holds: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def lines(script: str) -> int:
    """How many lines of a script a user writes: those between the marks, without blank ones and comments."""
    counted, inside = 0, False
    for line in Path(script).read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text in ("# user", "# end"):
            inside = text == "# user"
        elif inside and text and not text.startswith("#"):
            counted += 1
    return counted


def serve(script: str, package: str, start: Callable[[Job], Ask], children: bool = False) -> None:
    """Answer the job on standard input.

    Args:
        script: its own file.
        package: the distribution that it shows.
        start: opens the engine.
        children: whether other processes work for it, whose CPU counts too.
    """
    measure = cpu if children else time.process_time  # a walk of /proc costs more than some answers
    out, sys.stdout = sys.stdout, sys.stderr  # an engine's own prints are not answers
    job = Job(**json.load(sys.stdin))
    before, clock = measure(), time.perf_counter()
    ask = start(job)
    found: dict[str, Any] = {
        "version": version(package), "lines": lines(script),
        "setup_cpu": measure() - before, "setup_seconds": time.perf_counter() - clock,
    }  # fmt: skip
    answers, costs = [], []
    for number in range(len(job.boxes)):
        before = measure()
        answers.append(ask(number))
        costs.append(measure() - before)
    found["cpu"] = costs
    for name in Answer._fields:
        found[name] = [getattr(answer, name) for answer in answers]
    json.dump(found, out)
