"""Rehearse made-up stars: `python -m tests.rehearsal --loud N --quiet N --seed S`, or `--minimise SEED KIND`.

One JSON line a question's column that is not `ok`, then a table by kind and one by verdict. Exit code 1 where a verdict
fails that is no difference stated in `differences.py`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections import Counter, defaultdict
from typing import Any

from dpsql.errors import Error
from tests.rehearsal.differences import difference_of
from tests.rehearsal.generator import Knobs, drawn_knobs
from tests.rehearsal.judge import FAILS
from tests.rehearsal.run import RELEASES, Rehearsal, rehearse


def main(words: list[str]) -> int:
    """Run and print; 1 where a verdict fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal", description=__doc__)
    parser.add_argument(
        "--loud", type=int, default=0, metavar="N", help="stars at epsilon 80, 4 releases each"
    )
    parser.add_argument(
        "--quiet", type=int, default=0, metavar="N", help="stars at epsilon 1, 16 releases each"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first star")
    parser.add_argument("--questions", type=int, default=None, help="kinds a star, at random; all by default")
    parser.add_argument("--kind", action="append", default=[], help="this kind alone")
    parser.add_argument("--releases", type=int, default=None)
    parser.add_argument("--level", choices=("user", "row"), default=None)
    parser.add_argument("--unserved", action="store_true", help="also print what is refused")
    parser.add_argument(
        "--minimise", nargs=2, metavar=("SEED", "KIND"), help="the smallest star that still fails"
    )
    options = parser.parse_args(words)
    if options.minimise:
        seed, kind = options.minimise
        return minimise(int(seed), kind, options.questions)
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    failed = False
    for way, count in (("loud", options.loud), ("quiet", options.quiet)):
        for seed in range(options.seed, options.seed + count):
            knobs = drawn_knobs(seed, options.level)
            rehearsal = Rehearsal(
                way, options.releases or RELEASES[way], options.questions, frozenset(options.kind)
            )
            started = time.process_time()
            for verdict in rehearse(seed, knobs, rehearsal):
                known = difference_of(verdict)
                name = verdict.verdict if known is None else f"known: {known.name}"
                by_kind[verdict.kind][name] += 1
                failed |= known is None and verdict.verdict in FAILS
                if name not in ("ok", "unserved") or (options.unserved and name == "unserved"):
                    _print(seed=seed, way=way, **{**dataclasses.asdict(verdict), "verdict": name})
            cpu = time.process_time() - started
            _print(seed=seed, way=way, cpu=round(cpu, 1), knobs=dataclasses.asdict(knobs))
    _tables(by_kind)
    return int(failed)


def minimise(seed: int, kind: str, questions: int | None) -> int:
    """Drop questions, then knobs, one by one while a verdict on a kind stays; print what is left."""

    def verdicts(knobs: Knobs, count: int | None) -> set[str]:
        asked = Rehearsal(questions=count, kinds=frozenset({kind}), alone=count == 1)
        try:
            return {verdict.verdict for verdict in rehearse(seed, knobs, asked)} & FAILS
        except Error:
            return set()  # the smaller catalog is none

    knobs = drawn_knobs(seed)
    wanted = verdicts(knobs, questions)
    if not wanted:
        print(f"seed {seed}: no verdict on {kind} fails")
        return 0
    if verdicts(knobs, 1) & wanted:
        questions = 1
    usual = dataclasses.asdict(Knobs())
    for name in usual:
        smaller = dataclasses.replace(knobs, **{name: usual[name]})
        if smaller != knobs and verdicts(smaller, questions) & wanted:
            knobs = smaller
    changed = {name: value for name, value in dataclasses.asdict(knobs).items() if value != usual[name]}
    _print(seed=seed, kind=kind, verdicts=sorted(wanted), alone=questions == 1, knobs=changed)
    return 1


def _print(**values: Any) -> None:
    print(json.dumps(values, default=str), flush=True)


def _tables(by_kind: dict[str, Counter[str]]) -> None:
    for kind, verdicts in sorted(by_kind.items()):
        print(f"{kind:20}", ", ".join(f"{name} {count}" for name, count in verdicts.most_common()))
    print("\n", sum(by_kind.values(), Counter[str]()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
