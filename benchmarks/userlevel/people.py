"""Distinct people on real stars: `make bench TOPIC=userlevel` prints a `figure` line for each number.

A release counts people in one view with a tenth of its rho, at (1, 1e-6) and under pure epsilon. Counting is the code
that publishes, once; noise is drawn again for each release by the same code, from a seeded generator. Errors are
against plain COUNT(DISTINCT ..) of DuckDB over the same placed rows, for questions that at least 1% of the people
answer to. Nothing was tuned on any star: budgets of gaps and of everybody follow from computed variances. FoodMart and
Online Retail have bounds; the Star Schema Benchmark, with some 2,000 customers, was held back and is told.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from benchmarks.baselines.common import SimulationNoise
from benchmarks.figures import Figures
from dpsql.catalog import load_catalog
from dpsql.central.axes import axis_maker
from dpsql.central.bounding import DrawnRelease
from dpsql.central.content import release_content
from dpsql.central.people import PeopleRows, draw_people
from dpsql.central.placed_rows import counted_rows, prepare_tables
from dpsql.central.plan import plan_release
from dpsql.central.planned import ReleasePlan
from dpsql.engines.counting import stored_rows
from dpsql.engines.duck import RawSide
from dpsql.engines.engine import Engine
from dpsql.engines.keys import open_star
from dpsql.matrices.model import Reading
from dpsql.matrices.reading import piece, reading
from dpsql.release.format import UNIT
from dpsql.release.write import ReleaseBuilder
from dpsql.tree import FloatArray, IntArray

ROOT = Path(__file__).resolve().parents[2]
SHARE = "1/10"
SEEN, MOST = 0.01, 150
Z = {"1e-6": 1.95996, "0": 1.95996}
"""Standard errors on each side of a 95% interval; sums of many draws are normal."""

HELD_BACK = "ssb_user"
HOLDS, APART = 95, 2
"""Percent of 95% intervals that cover the exact answer, over all zCDP cases of a star and kind of question."""

PRICES = [1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 10, 12, 15]
Axes = list[Any]


class Case(NamedTuple):
    """A view that counts people.

    Args:
        star: the catalog.
        name: of the view's questions.
        axes: of the view.
        ranges: whether ranges of its one axis are asked; else single groups.
        median: bound of the median error in percent, None where it is told.
    """

    star: str
    name: str
    axes: Axes
    ranges: bool
    median: float | None


CASES = [
    Case("foodmart_user", "income", ["customer.yearly_income"], False, None),
    Case("foodmart_user", "months", ["time_by_day.the_date"], True, 2.6),
    Case("foodmart_user", "prices", [{"axis": "product.SRP", "cuts": {"width": "0.25"}}], True, 2.6),
    Case("foodmart_user", "store by month", [{"axis": "store", "by": ["store_name"]}, "time_by_day.the_date"], False,
         None),
    Case("online_retail_user", "country", ["customer.country"], False, None),
    Case("online_retail_user", "months", ["invoice_line.InvoiceDate"], True, 2.6),
    Case("online_retail_user", "prices", [{"axis": "product.median_price", "cuts": PRICES}], True, 2.6),
    Case("ssb_user", "segment", ["customer.c_mktsegment"], False, None),
    Case("ssb_user", "years", [{"axis": "dates", "by": ["d_year"]}], True, 2.6),
    Case("ssb_user", "quantities", ["lineorder.lo_quantity"], True, None),
]  # fmt: skip


@dataclass(frozen=True)
class Remembering:
    """An engine that runs each statement once.

    Args:
        engine: what runs it.
        known: what it gave.
    """

    engine: Engine
    known: dict[str, Mapping[str, IntArray]]

    def fetch(self, statement: str) -> Mapping[str, IntArray]:
        """See `Engine`."""
        if statement not in self.known:
            self.known[statement] = self.engine.relations("counting").fetch(statement)
        return self.known[statement]

    def __getattr__(self, name: str) -> Any:
        """Everything else is the engine's."""
        return getattr(self.engine, name)


class Question(NamedTuple):
    """One question: what it is, its masks, and the exact answer."""

    kind: str
    masks: tuple[FloatArray, ...]
    true: float


@dataclass(frozen=True)
class Star:
    """One star with one view that counts people.

    Args:
        raw: its raw side.
        plan: what a release would measure.
        of: the counted table.
    """

    raw: RawSide
    plan: ReleasePlan
    of: str

    @cached_property
    def people(self) -> PeopleRows:
        """Its rows, which are counted once."""
        rows = counted_rows(self.plan.catalog, self.raw, self.plan, self.of).rows
        engine: Any = Remembering(self.raw, {})
        return PeopleRows(engine, self.plan, self.of, rows, SimulationNoise(0))

    def release(self, seed: int) -> ReleaseBuilder:
        """Draw the people of one release; it holds nothing else."""
        drawn = draw_people(replace(self.people, noise=SimulationNoise(seed)))
        plan = replace(self.plan, statistics=tuple(each.statistic for each in drawn.values()))
        views = tuple(each.view for each in drawn.values())
        return release_content(DrawnRelease(plan, views), "simulated", insecure=True)

    def questions(self, case: Case) -> Iterator[Question]:
        """All ranges of a view's axis, or its groups, and everybody."""
        placed = f"({stored_rows(self.people.rows, self.raw.dialect)})"
        axes = next(s.axes for s in self.plan.unit_statistics(self.of).values() if s.view == "asked")
        leaves = [self.plan.axes[axis].axis.leaves for axis in axes]
        self.raw.connection.execute(f"CREATE OR REPLACE TEMP TABLE placed AS SELECT * FROM {placed}")
        everybody = self._asked("true")
        yield Question("total", tuple(np.ones((1, n)) for n in leaves), everybody)
        if case.ranges:
            (n,), (axis,) = leaves, axes
            masks = [np.arange(n)[None, :] for _ in (0,)]
            for i in range(n):
                for j in range(i + 1, n + 1):
                    true = self._asked(f"a{axis} >= {i} AND a{axis} < {j}")
                    mask = ((masks[0] >= i) & (masks[0] < j)).astype(np.float64)
                    if true >= SEEN * everybody:
                        yield Question("range", (mask,), true)
            return
        keys = ", ".join(f"a{axis}" for axis in axes)
        found = self.raw.connection.execute(
            f"SELECT {keys}, count(DISTINCT unit) FROM placed GROUP BY {keys}"
        ).fetchall()
        for *cell, true in found:
            if true >= SEEN * everybody:
                masks = [np.eye(n)[[at]] for n, at in zip(leaves, cell, strict=True)]
                yield Question("group", tuple(masks), true)

    def _asked(self, where: str) -> float:
        rows = self.raw.connection.execute(
            f"SELECT count(DISTINCT unit) FROM placed WHERE {where}"
        ).fetchall()
        return float(rows[0][0])


def open_case(case: Case, delta: str, folder: Path, view: Mapping[str, Any] | None = None) -> Star:
    """The star of a case: its catalog with one view."""
    text = yaml.safe_load((ROOT / "catalog" / f"{case.star}.yaml").read_text(encoding="utf-8"))
    of = next(iter(text["views"].values()))["of"]
    own = {"of": of, "axes": case.axes, "measures": {"count": "9/10", "people": SHARE}, "share": "1"}
    text["views"] = {"asked": dict(view or own)}
    text["privacy"] |= {"delta": delta}
    text["tables"][of]["max_ids"] = 10
    file = folder / f"{case.star} {case.name} {delta}.yaml"
    file.write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    catalog = load_catalog(file)
    raw = open_star(catalog)
    plan = plan_release(catalog, axis_maker(catalog, raw))
    prepare_tables(catalog, raw, plan)
    return Star(raw, plan, text["views"]["asked"]["of"])


class Answer(NamedTuple):
    """A value and its standard error."""

    value: float
    sd: float


@dataclass(frozen=True)
class Opened:
    """A release in memory, which answers as one in a file does."""

    builder: ReleaseBuilder

    def answer(self, masks: Sequence[FloatArray]) -> Answer | None:
        """The least noisy statistic that can answer; None where none can."""
        found = [self._of(i, masks) for i in range(len(self.builder.statistics))]
        answers = [answer for answer in found if answer is not None]
        return min(answers, key=lambda answer: answer.sd) if answers else None

    def _of(self, i: int, masks: Sequence[FloatArray]) -> Answer | None:
        meta, content = self.builder.statistics[i]
        whole = all(mask.all() for mask in masks)
        if len(meta.axes) != len(masks) and not (whole and not meta.axes):
            return None
        own = list(masks) if meta.axes else []
        read = self.readings[i]
        if not read.takes([own]):
            return None
        numbers = content.nodes
        (term,) = read.terms(own)
        for at, (axis, mask) in enumerate(zip(meta.axes, term.masks, strict=True)):
            tree = self.builder.axes[axis].content.tree
            numbers = numbers if at in read.listed else np.take(numbers, tree.leaves, axis=at)
            numbers = np.moveaxis(np.moveaxis(numbers.astype(np.float64), at, -1) @ mask[0][:, None], -1, at)
        return Answer(float(numbers.ravel()[0]) / UNIT, sqrt(float(read.covariance(own).noise[0])))

    @cached_property
    def readings(self) -> list[Reading]:
        """How each statistic answers."""
        leaves = {axis.meta.model: axis.meta.leaves for axis in self.builder.axes}
        models = [piece(m.kind, leaves.get(k, 0), m.columns()) for k, m in enumerate(self.builder.models)]
        metas = [part.meta for part in self.builder.statistics]
        return [reading(m.reading, [models[k] for k in m.models], dict(m.components)) for m in metas]


class Measured(NamedTuple):
    """Relative errors in percent, and whether intervals held, by kind of question."""

    errors: dict[str, list[float]]
    held: dict[str, list[bool]]


def _some(questions: list[Question]) -> list[Question]:
    """At most `MOST` of them, the first kept: it asks for everybody."""
    left = np.random.default_rng(0).permutation(np.arange(1, len(questions)))[: MOST - 1]
    return [questions[0], *(questions[i] for i in sorted(left.tolist()))]


def measure(case: Case, delta: str, seeds: range, folder: Path) -> Measured:
    """Ask all questions of many releases, one a seed."""
    star = open_case(case, delta, folder)
    questions = _some(list(star.questions(case)))
    found = Measured(defaultdict(list), defaultdict(list))
    for seed in seeds:
        opened = Opened(star.release(seed))
        for question in questions:
            answer = opened.answer(question.masks)
            if answer is not None:
                found.errors[question.kind].append(100 * abs(answer.value / question.true - 1))
                found.held[question.kind].append(abs(answer.value - question.true) <= Z[delta] * answer.sd)
    star.raw.close()
    return found


def attribute_figure(figures: Figures, case: Case, unit: str, folder: Path) -> None:
    """Standard errors of an attribute's groups beside those of a view of the people's own table at the same price."""
    errors = []
    plain = {"of": unit, "axes": case.axes, "measures": {"count": SHARE}, "share": "1"}
    for view in (None, plain):
        star = open_case(case, "1e-6", folder, view)
        statistics = star.plan.unit_statistics(star.of) or star.plan.row_statistics(star.of)
        own = next(s for s in statistics.values() if s.view == "asked")
        (axis,) = own.axes
        leaves = np.arange(star.plan.axes[axis].axis.leaves)
        variance = star.plan.axes[axis].strategy.variance().ranges(leaves, leaves + 1)
        errors.append(sqrt(own.variance_at_unit_budget(star.plan.axes) * float(np.mean(variance))))
        star.raw.close()
    what = f"people {case.star}, {case.name}: standard error of a group over that of a view of {unit}"
    figures.at_most(what, errors[0] / errors[1], 1.06)


def report(figures: Figures, case: Case, delta: str, measured: Measured) -> None:
    """Lines of one case."""
    law = "zCDP" if delta != "0" else "pure"
    for kind, errors in measured.errors.items():
        what = f"people {case.star} {law}, {case.name}, {kind}"
        median, held = float(np.median(errors)), 100 * float(np.mean(measured.held[kind]))
        bound = 1.0 if kind == "total" else case.median
        if delta != "0" and bound is not None and case.star != HELD_BACK:
            figures.table(f"distinct people, median relative error by its bound, {what}", median / bound)
        told = f"median {median:.2f}%, p90 {np.quantile(errors, 0.9):.2f}%, intervals hold {held:.1f}%"
        print(f"told   {what}: {told}, {len(errors)} answers", flush=True)


def main() -> int:
    """Print all figures; 1 if any is short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=200, help="of each case")
    releases, figures = parser.parse_args().releases, Figures()
    held: dict[str, list[bool]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for number, (case, delta) in enumerate(product(CASES, Z)):
            measured = measure(case, delta, range(number * releases, (number + 1) * releases), Path(folder))
            report(figures, case, delta, measured)
            for kind, those in measured.held.items() if delta != "0" else ():
                held[f"{case.star} zCDP, {kind}"] += those
        attribute_figure(figures, CASES[0], "customer", Path(folder))
    for what, those in held.items():
        off = abs(100 * float(np.mean(those)) - HOLDS)
        figures.at_most("distinct people, coverage: % off 95", off, APART, what)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
