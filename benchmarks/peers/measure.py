"""dpsql beside other libraries on one star, and the figures that follow.

Every job is one process in the library's own environment; its answers are kept in build/peers/jobs, so that a run can
be stopped and goes on. `python -m benchmarks.peers.measure --again` measures all of them anew.

| error | |
|---|---|
| COUNT, SUM | mean absolute error over the asked boxes and the runs |
| AVG | median absolute error: a mean is ruled by the one noisy count that came near 0, which flatters dpsql |

AVG's error depends on how many sales a box has, so it is taken over the boxes that all engines were asked.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.figures import Figures, main
from benchmarks.peers import star
from benchmarks.peers.environments import BUILD, JOBS, commit, once, prepare, python_of
from benchmarks.peers.protocol import Job

DELTA = 1e-9
TOTALS = (10, 100, 1000)
ROWS = 40
"""Rows of a customer that peers keep: nine customers in ten have no more, a public guess that suits this star."""
SECONDS = 3600
"""A job that takes longer is reported as such. It is long, as the machine may be busy; CPU is what is compared."""
ENOUGH = 60
"""Answers from which on an error counts for "best": the least of several errors from few answers is low by luck."""
RESULTS = BUILD / "results.json"


class Part(NamedTuple):
    """A job, so often.

    Args:
        peer, unit, delta, total, method: as in `protocol.Job`.
        asked: how many of the K questions are put; the noise of each is that of all K.
        runs: with fresh noise.
    """

    peer: str
    unit: str
    delta: float
    total: int
    asked: int
    method: str = "questions"
    runs: int = 1

    @property
    def name(self) -> str:
        """Of its file."""
        return "-".join(str(each) for each in self[:-1])

    @property
    def common(self) -> int:
        """How many boxes all engines were asked that count for "best"."""
        return 10 if self.total == 10 else 40 if self.unit == "customer" else ENOUGH


def parts() -> Iterator[Part]:
    """All jobs; all are asked the first questions.

    An error is a mean over noise, so what it rests on is the number of answers: 60 of Laplace noise give it to 13%, 100
    to 10%, 300 to 6%. Cheap engines give 100 to 300, costly ones 60, and Tumult, on Spark, 12. At K = 10 those that
    enforce a budget are asked anew; those that count only are asked 60 times with a tenth of it each, since the noise
    is the same.
    """
    for delta in (0.0, DELTA):
        yield Part("diffprivlib", "sale", delta, 10, 10, runs=6)
        yield Part("diffprivlib", "sale", delta, 100, 100, runs=3)
        yield Part("diffprivlib", "sale", delta, 1000, 300)
    for delta in (0.0, DELTA):
        yield Part("dpsql", "sale", delta, 1000, 100, runs=6)
        yield Part("dpsql", "sale", delta, 10, 10, "buy", runs=6)
    yield Part("dpsql", "sale", 0.0, 1000, 100, "fast")
    yield Part("dpsql", "sale", 0.0, 1000, 100, "shapes")
    for total, asked in ((10, 60), (100, 100), (1000, 100)):
        yield Part("pyqrlew", "sale", DELTA, total, asked)
    yield Part("opendp", "sale", 0.0, 1000, 100, "cells", runs=3)
    for delta in (0.0, DELTA):
        yield Part("opendp", "sale", delta, 10, 10, runs=6)
        yield Part("opendp", "sale", delta, 100, 100, runs=3)
        yield Part("opendp", "sale", delta, 1000, 300)
    for delta, total in product((0.0, DELTA), TOTALS):
        yield Part("smartnoise", "sale", delta, total, 60, runs=3 if (delta, total) == (0.0, 100) else 1)
    for delta in (0.0, DELTA):
        yield Part("dpsql", "customer", delta, 100, 40, runs=6)
        yield Part("opendp", "customer", delta, 100, 60)
        yield Part("smartnoise", "customer", delta, 100, 60)
    yield Part("pyqrlew", "customer", DELTA, 100, 60)
    yield Part("tumult", "sale", 0.0, 100, 12)


def shape(box: star.Question, number: int) -> str:
    """A statement of a shape of its own: names, order and form of the conditions are new each time."""
    ages = (f"age BETWEEN {box[0]} AND {box[1]}", f"age >= {box[0]} AND age <= {box[1]}")[number % 2]
    prices = (
        f"NOT (price < {box[2]} OR price > {box[3]})"
        if number % 3
        else f"price BETWEEN {box[2]} AND {box[3]}"
    )
    both = f"{ages} AND {prices}" if number % 5 else f"{prices} AND {ages}"
    return (
        f"SELECT COUNT(*) AS n{number}, SUM(amount) AS s{number}, AVG(amount) AS m{number} FROM sales AS f{number} "
        f"JOIN customer AS c{number} USING (customer_id) JOIN product AS p{number} USING (product_id) WHERE {both}"
    )


def run(part: Part, folder: Path, boxes: Sequence[star.Question]) -> dict[str, Any]:
    """One job, in its environment; {"failed": reason} where it could not be done."""
    reason = prepare(part.peer)
    if reason:
        return {"failed": reason}
    asked = boxes[: part.asked]
    shapes = part.method == "shapes"
    statements = [shape(box, i) if shapes else box.sql for i, box in enumerate(asked)]
    job = Job(
        str(folder), part.unit, 1.0, part.delta, part.total, asked, statements,
        "fast" if shapes else part.method, ROWS,
    )  # fmt: skip
    command = [python_of(part.peer), "-m", f"benchmarks.peers.with_{part.peer}"]
    try:
        done = subprocess.run(
            command, input=json.dumps(job._asdict()), capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"did not end in {SECONDS} seconds"}
    if done.returncode:
        told = [line for line in done.stderr.splitlines() if line.strip()]
        return {"failed": told[-1][:200] if told else f"ended with {done.returncode}"}
    return {**json.loads(done.stdout), "commit": commit()}


def collect(
    folder: Path, boxes: Sequence[star.Question], only: Sequence[str], kept: bool
) -> dict[Part, list[dict[str, Any]]]:
    """The runs of every job, or of some peers' jobs; with `kept` of those alone that have a file."""
    found = {}
    for part in (part for part in parts() if not only or part.peer in only):
        runs = []
        for name in (f"{part.name}-{number}" for number in range(part.runs)):
            if kept and not (JOBS / f"{name}.json").exists():
                runs.append({"failed": "not measured in this run"})
            else:
                runs.append(once(name, partial(run, part, folder, boxes)))
        failed = [each["failed"] for each in runs if "failed" in each]
        print(f"{part.name}: {failed[0] if failed else 'done'}", flush=True)
        found[part] = runs
    return found


class Row(NamedTuple):
    """What one part came to.

    Args:
        errors: of COUNT, SUM and AVG.
        relative: median error over the true answer, of each.
        held: share of 95% intervals that hold, of each; NaN where there is none.
        cpu: median seconds of CPU a question, the first ones left out.
        setup: seconds of CPU before the first.
        lines: that a user writes.
        version: of the library.
        failed: why there is nothing.
    """

    errors: list[float]
    relative: list[float]
    held: list[float]
    cpu: float
    setup: float
    lines: int
    version: str
    failed: str = ""


NOTHING = Row([math.nan] * 3, [math.nan] * 3, [math.nan] * 3, math.nan, math.nan, 0, "", "failed")


def row(
    runs: Sequence[Mapping[str, Any]], truths: Sequence[tuple[int, float, float]], common: int = ENOUGH
) -> Row:
    """Compare the runs of a part with the true answers.

    Args:
        runs: what its script told.
        truths: of all boxes; a part is asked the first of them.
        common: boxes over which AVG's error is taken.
    """
    failed = [each["failed"] for each in runs if "failed" in each]
    if failed:
        return NOTHING._replace(failed=failed[0])
    asked = np.array(truths[: len(runs[0]["values"])])
    values = np.array([each["values"] for each in runs], dtype=float)
    errors = np.abs(values - asked)
    shown = [np.nanmean(errors[..., 0]), np.nanmean(errors[..., 1]), np.nanmedian(errors[:, :common, 2])]
    relative = np.nanmedian(errors / np.maximum(asked, 1), axis=(0, 1))
    first = runs[0]
    cpu = np.median([cost for each in runs for cost in each["cpu"][min(2, len(each["cpu"]) - 1) :]])
    return Row(
        [float(each) for each in shown], relative.tolist(), _held(runs, errors, asked), float(cpu),
        float(np.median([each["setup_cpu"] for each in runs])), first["lines"], first["version"],
    )  # fmt: skip


def _held(runs: Sequence[Mapping[str, Any]], errors: np.ndarray, asked: np.ndarray) -> list[float]:
    """How often intervals hold, by aggregate."""
    held = []
    for aggregate in range(3):
        if len(runs[0]["ends"][0]):
            ends = np.array(
                [[[e[0][aggregate], e[1][aggregate]] for e in each["ends"]] for each in runs], float
            )
            known = ~np.isnan(ends).any(axis=2)
            inside = (ends[..., 0] <= asked[:, aggregate]) & (asked[:, aggregate] <= ends[..., 1])
            held.append(float(inside[known].mean()))
        elif len(runs[0]["halves"][0]) > aggregate:
            halves = np.array([[h[aggregate] for h in each["halves"]] for each in runs], float)
            known = ~np.isnan(halves)
            held.append(float((errors[..., aggregate] <= halves)[known].mean()) if known.any() else math.nan)
        else:
            held.append(math.nan)
    return held


PEERS = ("smartnoise", "opendp", "pyqrlew", "tumult", "diffprivlib")


def best(rows: Mapping[Part, Row], delta: float, total: int, aggregate: int) -> float:
    """The least error of a peer that pays for each question."""
    found = [
        each.errors[aggregate] for part, each in rows.items()
        if part.peer in PEERS and part[1:4] == ("sale", delta, total) and part.method == "questions"
        and part.asked * part.runs >= ENOUGH and not each.failed
    ]  # fmt: skip
    return min(found)


def break_even(rows: Mapping[Part, Row], delta: float) -> list[float]:
    """From how many questions on a release errs less than the best engine that is paid for each: COUNT, SUM, AVG."""
    ours = next(
        row for part, row in rows.items()
        if (part.peer, part.unit, part.delta, part.method) == ("dpsql", "sale", delta, "questions")
    )  # fmt: skip
    power = 2 if delta else 1  # of the number of questions that share a budget, an error is this root
    return [
        100 * (ours.errors[aggregate] / best(rows, delta, 100, aggregate)) ** power for aggregate in range(3)
    ]


def judge(rows: Mapping[Part, Row], figures: Figures) -> None:
    pick = {(p.peer, p.unit, p.delta, p.total, p.method): r for p, r in rows.items()}
    for delta, name in ((0.0, "pure"), (DELTA, "under a delta")):
        ours = pick["dpsql", "sale", delta, 1000, "questions"].errors
        bounds = {100: (1 / 2, 1 / 4, 1 / 5), 1000: (1 / 15, 1 / 4, 1 / 5)}
        for total, aggregate in product((100, 1000), range(3)):
            what = ("COUNT", "SUM", "AVG")[aggregate]
            ratio = ours[aggregate] / best(rows, delta, total, aggregate)
            bound = 1.0 if delta else bounds[total][aggregate]
            cell = f"{name}, {what}, K = {total}"
            figures.at_most("peers, error over the best peer's by its bound", ratio / bound, 1, cell)
        bought = pick["dpsql", "sale", delta, 10, "buy"].errors
        for aggregate, what in enumerate(("COUNT", "SUM", "AVG")):
            ratio = bought[aggregate] / best(rows, delta, 10, aggregate)
            figures.table(f"peers, bought at K = 10, error over the best peer's, {name}, {what}", ratio)
    for what, even, bound in zip(("COUNT", "SUM"), break_even(rows, 0.0), (25, 17), strict=False):
        figures.at_most(f"peers, pure, {what}: questions from which a release errs less", even, bound)
    ours, by_hand = pick["dpsql", "sale", 0.0, 1000, "questions"], pick["opendp", "sale", 0.0, 1000, "cells"]
    ratio = ours.errors[0] / by_hand.errors[0]
    figures.at_most("peers, pure, COUNT, error over OpenDP's with all cells once by hand", ratio, 1.0)
    costs = {
        part.peer: each.cpu for part, each in rows.items()
        if part.peer in PEERS and part.unit == "sale" and part.method == "questions" and not each.failed
    }  # fmt: skip
    fastest = min(costs, key=costs.__getitem__)
    for method, bound, what in (("fast", 1 / 20, "repeated"), ("shapes", 1 / 10, "new")):
        own = pick["dpsql", "sale", 0.0, 1000, method].cpu
        title = f"peers, CPU a question, {what} shapes, over the fastest peer's ({fastest})"
        figures.at_most(title, own / costs[fastest], bound)


def measure(
    figures: Figures,
    *,
    again: bool = False,
    sales: int = star.SALES,
    kept: bool = False,
    only: Sequence[str] = (),
) -> None:
    """Measure, and keep the rows for the page.

    Args:
        figures: gain those that follow.
        again: measure what has been measured, too.
        sales: rows of the star.
        kept: measure nothing; judge what there is.
        only: these libraries' jobs alone, and no figures.
    """
    if again:
        shutil.rmtree(JOBS, ignore_errors=True)
    folder = BUILD / f"star-{sales}"
    if not (folder / "sales.parquet").exists():
        star.generate(folder, sales)
    boxes = star.questions(max(TOTALS), star.SEED)
    truths = star.truths(folder, boxes)
    found = collect(folder, boxes, only, kept)
    if only:
        return
    rows = {part: row(runs, truths, part.common) for part, runs in found.items()}
    commits: dict[str, set[str]] = {"dpsql": set(), "peers": set()}
    for part, runs in found.items():
        commits["dpsql" if part.peer == "dpsql" else "peers"] |= {r["commit"] for r in runs if "commit" in r}
    shown = {who: sorted(at) for who, at in commits.items()}
    listed = [[list(p), list(r)] for p, r in rows.items()]
    RESULTS.write_text(json.dumps({"commits": shown, "sales": sales, "rows": listed}))
    judge(rows, figures)


if __name__ == "__main__":
    main(measure)
