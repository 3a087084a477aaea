"""Before anyone reports: what each view costs, which answers drown in noise and the way out, how many must answer.

Everybody answers one question with all of epsilon, so a view costs the part of the people who are asked about it.

| here       | unit |
|------------|------|
| `error`    | one standard error of a count, as a share of the people |
| `size`     | the answer's own share of the people, if they are spread evenly |
| is noise   | an error of more than half the answer: its 95% interval holds 0 |

**Privacy**: public facts alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dpsql.client.plan import Plan
from dpsql.errors import InterfaceError
from dpsql.local.plan import CollectionDesign
from dpsql.local.survey import first_guess
from dpsql.local.tau import Prediction

NOISE_SHARE = 0.5
"""Which part of an answer an error may be at most."""
CLOSE = 0.99
TRIES = 12
MOST_PEOPLE = 10**12
LARGEST_EPSILON = 16.0
EXAMPLE_GUESS = (0.0, 0.6, 0.3, 0.0, 0.0, 0.1)
"""Shares of people with 0, 1, .. rows that a forecast shows `row_guess` by; nothing is planned with it."""
WORTH = 0.9
"""Part of an error that another public statement about rows must leave at most to be named."""
STEP = 1.25
"""Factor between the epsilons that are tried."""


class ViewCost(NamedTuple):
    """Cost and yield of one view of the catalog.

    Args:
        view: its name.
        part: part of the people whose report tells about some of its axes.
        error: largest standard error of its questions.
        question: which question that is.
    """

    view: str
    part: float
    error: float
    question: str


class CollectionForecast(NamedTuple):
    """Forecast of a collection plan.

    Args:
        plan: the plan; None where services have one each.
        people: how many were taken to report.
        predictions: errors by question.
        costs: what each view costs.
        services: epsilon of each service's report, where services are asked.
        ways_out: for each question whose answers would drown, its name and what would help.
        seconds: that `dpsql collect` will work on joint fits, about, on one core.
    """

    plan: Plan | None
    people: int
    predictions: list[Prediction]
    costs: list[ViewCost]
    services: Mapping[str, str]
    ways_out: dict[str, list[str]]
    seconds: float = 0.0


def view_costs(
    plan: Plan, views: Mapping[str, tuple[int, ...]], predictions: Sequence[Prediction]
) -> list[ViewCost]:
    """Cost and yield of each view of a catalog.

    Args:
        plan: the plan.
        views: positions of each view's axes.
        predictions: from `predict`.
    """
    costs = []
    for name, axes in views.items():
        view_predictions = [p for p in predictions if p.axes and set(p.axes) <= set(axes)]
        worst = max(view_predictions, key=lambda p: p.error, default=None)
        if worst is not None:
            costs.append(ViewCost(name, _part(plan, axes), worst.error, worst.question))
    return costs


def _part(plan: Plan, axes: Sequence[int]) -> float:
    """Part of the people whose report tells about some of these axes and no other."""
    share = sum(view.share for view in plan.views if view.axes and set(view.axes) <= set(axes))
    return share / sum(view.share for view in plan.views)


def is_noise(prediction: Prediction) -> bool:
    """True if noise is more than half of an even answer."""
    return prediction.error > NOISE_SHARE * prediction.size


def ways_out(
    plan: Plan, people: int, prediction: Prediction, at_epsilon: Callable[[float], Sequence[Prediction]]
) -> list[str]:
    """Single changes that would lift an answer out of the noise.

    Args:
        plan: the plan.
        people: how many were taken to report.
        prediction: the question.
        at_epsilon: predictions of the plan made anew with another epsilon.

    Returns:
        Sentences; each alone would do, where it can.
    """
    times = (prediction.error / (NOISE_SHARE * prediction.size)) ** 2
    ways = [f"more people: {math.ceil(people * times):,} instead of {people:,}"]
    epsilon = _enough_epsilon(float(plan.epsilon), prediction, at_epsilon)
    if epsilon is not None:
        ways.append(f"more epsilon: {epsilon:g} instead of {float(plan.epsilon):g}")
    if len(prediction.axes) > 1:
        most_cells, cells = math.floor(NOISE_SHARE / prediction.error), round(1 / prediction.size)
        if most_cells > 1:
            ways.append(
                f"fewer cells: {most_cells} instead of {cells}, by wider cuts (`cuts`) or fewer categories"
            )
        else:
            ways.append(
                f"fewer cells: even two of the {cells} would be lost in noise, so ask for its axes one by one"
            )
    share = _part(plan, prediction.axes)
    if share * times <= 1:
        ways.append(
            f"more of the people: ask {share * times:.0%} instead of {share:.0%} of them (`shares`), or fewer views"
        )
    return ways


def free_ways(
    design: CollectionDesign,
    prediction: Prediction,
    at_design: Callable[[CollectionDesign], Sequence[Prediction]],
) -> list[str]:
    """Statements about the rows of a person that a curator may add at no cost in people or epsilon.

    Args:
        design: the curator's decisions, of a collection by one row and a bit whose R nobody guessed.
        prediction: the question.
        at_design: predictions of the plan that is made from another design.

    Returns:
        Sentences with the error that each brings, where it is known before anyone is asked.
    """

    def error(changed: CollectionDesign) -> float:
        return next(each.error for each in at_design(changed) if each.question == prediction.question)

    guess = tuple(share for rows, share in enumerate(EXAMPLE_GUESS) if rows <= design.rows_cap)
    shown = ", ".join(f"{rows}: {share:g}" for rows, share in enumerate(guess) if share)
    guessed = replace(design, row_guess=tuple(share / sum(guess) for share in guess))
    fewer = max(design.rows_cap // 3, 2)
    cut = replace(design, rows_cap=fewer, row_guess=first_guess(fewer))
    cures = {
        f"free: a public guess of how many rows people have (`row_guess`), such as {{{shown}}}": guessed,
        f"a smaller `max_ids`: {fewer} instead of {design.rows_cap}, and rows beyond are not asked about": cut,
    }
    errors = {cure: error(changed) for cure, changed in cures.items()}
    ways = [
        f"{cure}; its error is {after / prediction.error:.0%} of this one"
        for cure, after in errors.items()
        if after < WORTH * prediction.error
    ]
    asked = "free: a first round that asks a tenth of the people how many rows they have (`row_bit_cap: estimate`)"
    return [*ways[:1], asked, *ways[1:]] if ways else []


def _enough_epsilon(
    epsilon: float, prediction: Prediction, at_epsilon: Callable[[float], Sequence[Prediction]]
) -> float | None:
    """Least epsilon tried at which a question's answers no longer drown."""
    while (epsilon := math.ceil(100 * epsilon * STEP) / 100) <= LARGEST_EPSILON:
        again = [p for p in at_epsilon(epsilon) if p.axes == prediction.axes]
        if not any(map(is_noise, again)):
            return epsilon
    return None


def people_needed(worst: Callable[[int], float], target: float, people: int) -> int:
    """Number of respondents needed for no standard error to pass a target.

    A plan's errors go with 1 over the square root of the people, and a plan for more people has finer grids: so it is
    made anew for each guess until the next one is less than a hundredth away.

    Args:
        worst: people to the largest error of the plan that is made for them, as a share of the people.
        target: the largest error wanted, a share of the people.
        people: where to begin.

    Raises:
        InterfaceError: a target outside (0, 1), or one that no number of people reaches.
    """
    if not 0 < target < 1:
        raise InterfaceError("a target is a share of the people between 0 and 1", hint="write 5% or 0.05")
    enough: int | None = None
    for _ in range(TRIES):
        error = worst(people)
        if error <= target:
            enough = people if enough is None else min(people, enough)
            if error >= CLOSE * target or people == 1:
                return enough
        people = min(max(math.ceil(people * (error / target) ** 2), 1), MOST_PEOPLE)
    people = people if enough is None else enough
    while worst(people) > target:
        people = math.ceil(people * (2 - CLOSE))
        if people > MOST_PEOPLE:
            raise InterfaceError("no number of people reaches this target", hint="name a larger one")
    return people
