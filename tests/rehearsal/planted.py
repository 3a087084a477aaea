"""Defects of answers that once stood here, each put back through one seam: how many loud stars find them.

    python -m tests.rehearsal.planted [STARS]

| defect | what an answer then leaves out |
|---|---|
| people in many cells | the bound on people who touch more cells than count |
| groups of the catalog alone | that `(other)`, MISSING and NULL are no groups of the rows |
| another table's axis | that a public table lists more rows than an axis reaches |
| cut bins | the rows on either side of a cut |
| one scale for all tables | that the totals of two tables are drawn apart |
| beyond declared bounds | sums of values beyond a measure's bounds |
| unknown is zero | open ends |
| an amount's own axis | that who spends much weighs less |
| a number without a reason | why a number has no interval |
| unlisted texts | that a condition may mean some of them |
| far beyond a declared bound | units with more than four times as many rows |
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from benchmarks.figures import Figures
from dpsql.errors import CatalogError
from dpsql.intervals.errorfunctions import ErrorComponents
from tests.rehearsal.differences import difference_of
from tests.rehearsal.generator import drawn_knobs
from tests.rehearsal.judge import FAILS, Verdict
from tests.rehearsal.run import Rehearsal, rehearse

STARS = 40
"""Made-up stars within which a defect is to be found."""


class Defect(NamedTuple):
    """A defect.

    Args:
        name: what is left out.
        seam: module, and the attribute that is replaced, with a dot for one of a class.
        broken: what stands there instead, made from what stood there.
        kinds: of questions that are asked.
        knobs: replaced in every star.
        way: `quiet` where there must be noise to leave out.
    """

    name: str
    seam: tuple[str, str]
    broken: Callable[[Any], Any]
    kinds: frozenset[str]
    knobs: tuple[tuple[str, Any], ...] = ()
    way: str = "loud"


def _none(_: Any) -> Callable[..., None]:
    return lambda *given: None


def _no_reach(_: Any) -> Callable[..., ErrorComponents]:
    return lambda lines, numbers, *given: ErrorComponents(*(np.zeros(numbers) for _ in range(6)))


def _closed(was: Any) -> Any:
    """Open ends are taken for certain ones."""

    def joined(components: Any) -> Any:
        found = was.__func__(components)
        sides = {} if found is None else {side: getattr(found, side) for side in ("down", "up")}
        closed = {side: np.where(np.isinf(variance), 0.0, variance) for side, variance in sides.items()}
        return None if found is None else replace(found, **closed)

    return staticmethod(joined)


def _one_table(was: Any) -> Callable[..., Any]:
    def tables(terms: Any) -> Any:
        first = next(iter(was(terms)), None)
        return {} if first is None else {first: terms}

    return tables


USER, ROW = (("level", "user"),), (("level", "row"),)
DEFECTS = (
    Defect("people in many cells", ("dpsql.central.people", "CellWeights.bounds"), lambda was: property(_none(was)),
           frozenset({"people_pairs"}), (*USER, ("people", 8_000), ("law", "lognormal")), "quiet"),
    Defect("groups of the catalog alone", ("dpsql.executor.outer", "shifted"),
           lambda was: lambda keys, offset: 0,
           frozenset({"mean_over_groups", "mean_over_months", "groups_above", "mean_of_means"})),
    Defect("another table's axis", ("dpsql.planner.schema", "Schema.anywhere"),
           lambda was: lambda self, ref, root: self.reached(ref, root), frozenset({"two_hops", "zones"}),
           (("snowflake", True),)),
    Defect("cut bins", ("dpsql.intervals.composite", "Composite.cut_ends"), lambda was: lambda self: (),
           frozenset({"age_range", "money_range", "income_range", "age_groups", "between_days"}),
           (("coarse", True),)),
    Defect("one scale for all tables", ("dpsql.intervals.scale", "_tables"), _one_table,
           frozenset({"counts_of_tables", "ratio_of_tables"}),
           (*USER, ("max_ids", "auto"), ("second", True), ("delta", "1e-6"), ("people", 20_000), ("law", "poisson")),
           "quiet"),
    Defect("beyond declared bounds", ("dpsql.intervals.excess", "excess_reach"), _no_reach,
           frozenset({"total", "sum_by", "average", "average_by"}), (*ROW, ("bounds", "narrow"))),
    Defect("unknown is zero", ("dpsql.intervals.errorfunctions", "ErrorComponents.joined"), _closed,
           frozenset({"count", "share", "total", "average", "by"}),
           (*USER, ("max_ids", "auto"), ("delta", "0"), ("people", 400), ("law", "lognormal")), "quiet"),
    Defect("an amount's own axis", ("dpsql.intervals.scale", "reach_of_amounts"), _none,
           frozenset({"money_above", "total"}),
           (*USER, ("max_ids", "auto"), ("law", "pareto"), ("people", 20_000), ("spend", 0.8), ("signed", False)),
           "quiet"),
    Defect("a number without a reason", ("dpsql.executor.outer", "OuterStatement.undefined"),
           lambda was: property(lambda self: {}),
           frozenset({"ranked"}), (("level", "row"), ("people", 400)), "quiet"),
    Defect("unlisted texts", ("dpsql.planner.axis_query", "has_unlisted"), lambda was: lambda release, axis: False,
           frozenset({"not_in", "unequal"})),
    Defect("far beyond a declared bound", ("dpsql.release.format", "RowsBeyondBound.unbounded"),
           lambda was: property(lambda self: False), frozenset({"count", "total", "by"}),
           (*USER, ("max_ids", "3"), ("law", "few"))),
)  # fmt: skip


def verdicts(defect: Defect, seed: int, *, broken: bool) -> list[Verdict]:
    """Failing verdicts of one star, with the defect put back or without."""
    knobs = replace(drawn_knobs(seed), **{"coarse": False, **dict(defect.knobs)})
    *owner, last = defect.seam[1].split(".")
    where: Any = import_module(defect.seam[0])
    for name in owner:
        where = getattr(where, name)
    with ExitStack() as stack:
        if broken:
            was = where.__dict__[last]
            stack.enter_context(mock.patch.object(where, last, defect.broken(was)))
        found = rehearse(seed, knobs, Rehearsal(defect.way, kinds=defect.kinds, alone=True))
        return [each for each in found if each.verdict in FAILS and difference_of(each) is None]


def stars_until_found(defect: Defect, stars: int, first: int = 7_000) -> int | None:
    """How many stars it takes until one fails that holds without the defect; None if none does."""
    for number in range(stars):
        with suppress(CatalogError):  # a draft for few questions, whose bounds were moved past its cuts
            seen, without = (
                {(v.kind, v.column) for v in verdicts(defect, first + number, broken=broken)}
                for broken in (True, False)
            )
            if seen - without:
                return number + 1
    return None


def main(stars: int) -> int:
    """Print how many stars each defect took; the exit code."""
    figures, missed = Figures(), 0
    for defect in DEFECTS:
        needed = stars_until_found(defect, stars)
        missed += needed is None
        print(f"{defect.name}: {'not found' if needed is None else f'found by star {needed}'}", flush=True)
    figures.at_most(f"defects of answers not found within {stars} loud stars, of {len(DEFECTS)}", missed, 0)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else STARS))
