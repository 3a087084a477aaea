"""Joint measurement of a table's views: one module for each design, and the choice among them.

Read in this order: `measurement` (what every way answers), `question` (what views ask for), `product` (each axis by its
own strategy), `plane` (two axes together), `residual` (sets of axes), `adaptive` (ways that look at released
numbers first), then the lists here: all that there are, and which one a family gets.

The list is closed: a mechanism without its proof in this project has no place in it. A view that names a mechanism
of families gets it or is refused. All other views of a table compete together:

1. E is the least error of all data-independent offers for these views as one family.
2. A view that may be measured by data-dependent selection leaves the family if the bound on the error of all views
   then, its selection paid for and the rest measured as a smaller family, is at most 1.1 E.

| here | meaning | unit |
|---|---|---|
| `MOST` | 1.1: what data-dependent selection may cost where it gains nothing | times E |
| `times` | bound on the view's error over the least data-independent error of the view alone | 1 |
| `_split_error` | sum over families of share^(1 - 2/p) error; p: 1 under pure epsilon, 2 under a delta | error |

The bound is by the noisy signal the error of the unbiased optimum over (1 - 3/200)^2, or the worst that a signal may
choose where no non-negative estimates are stored and below 189 leaves; by blocks that of the product over (1 -
1/100)^2; DiffHR has none and is taken by name alone. That the signal's tree errs at most 1.04 times the optimum where
both cross, and that blocks err less where they are taken, is measured and not proved. Of several mechanisms for one
view the first in the list is taken.

**Privacy**: a function of the catalog and of numbers of leaves, all public.
**Source**: docs/method/views.md, "Which mechanism".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite, nan
from typing import NamedTuple

from dpsql.errors import CatalogError
from dpsql.mechanisms.axis import AUTO
from dpsql.mechanisms.designs import (
    adaptive,
    blocks,
    diffhr,
    product,
    residual,
    weighted_leaves,
    workload_matrix,
)
from dpsql.mechanisms.designs.question import (
    DataDependentMechanism,
    DesignProblem,
    FamilyChoice,
    FamilyMechanism,
    FamilyView,
    NamedFamily,
    Proposal,
)
from dpsql.mechanisms.offers import Offer, Refusal, least

MECHANISMS: tuple[FamilyMechanism, ...] = (product, residual, weighted_leaves, workload_matrix)
"""Their errors are known before anything is drawn."""

DATA_DEPENDENT: tuple[DataDependentMechanism, ...] = (adaptive, blocks, diffhr)
"""They select by noisy numbers; each measures one view alone."""

MOST = 1.1


class Family(NamedTuple):
    """Views that are measured together, and what measures them.

    Args:
        question: what they ask for.
        choice: the winner. Its error is not a number where there was nothing to compare it with; of a data-dependent
            one it is a bound.
    """

    question: DesignProblem
    choice: FamilyChoice


def choose_families(table: DesignProblem) -> list[Family]:
    """The families of a table's views, in the order of their first views.

    Args:
        table: all its views.

    Raises:
        CatalogError: a view names a mechanism that does not fit it.
    """
    groups: dict[tuple[str, str], list[FamilyView]] = {}  # by the word that views name, and what they share
    for view in table.views:
        owner = _owner(view.word.name)
        group = ("", "") if owner is None else (view.word.name, owner[1].kin(view.name))
        groups.setdefault(group, []).append(view)
    families = []
    for (word, _), views in groups.items():
        alone = len(groups) == 1
        if word:
            families.append(_named(_named_question(table, word, views, alone)))
        else:
            families += _competing(replace(table, views=tuple(views), alone=alone))
    order = {view.name: place for place, view in enumerate(table.views)}
    return sorted(families, key=lambda family: order[family.question.views[0].name])


def _owner(word: str) -> tuple[FamilyMechanism, NamedFamily] | None:
    """The mechanism that a catalog names by a word, and what it says under that word."""
    owners = ((m, m.NAMED[word]) for m in (*MECHANISMS, *DATA_DEPENDENT) if word in m.NAMED)
    return next(owners, None)


def _named_question(
    table: DesignProblem, word: str, views: Sequence[FamilyView], alone: bool
) -> DesignProblem:
    owner = _owner(word)
    assert owner is not None
    open_views, (_, named) = tuple(view._replace(word=AUTO) for view in views), owner
    return replace(table, views=open_views, named=word, alone=alone, whole=named.whole, cells=named.cells)


def _named(question: DesignProblem) -> Family:
    """Mechanisms that the views name, with what they are compared with."""
    owner = _owner(question.named)
    assert owner is not None
    named_mechanism, _ = owner
    answers = list(named_mechanism.offers(question))
    refusals = [answer for answer in answers if isinstance(answer, Refusal)]
    if len(refusals) == len(answers):
        where = f"views.{question.views[0].name}.mechanism: {question.named}"
        raise CatalogError(f"{where} {refusals[0].reason}", hint=refusals[0].hint)
    choice = _least(answers, rated=True)
    if not isfinite(choice.expected_error):
        return Family(question, choice)
    others = _least(
        [
            a
            for mechanism in MECHANISMS
            if mechanism is not named_mechanism
            for a in mechanism.offers(question)
        ],
        rated=True,
    )
    rivals = ((others.name, others.expected_error), *others.runners_up)
    return Family(question, choice._replace(runners_up=rivals, refused=others.refused))


def _competing(question: DesignProblem) -> list[Family]:
    """Views that name no mechanism of families: see the module for the rule."""
    refused: list[Refusal] = []
    rivals: list[Family] = []
    for view in question.views:
        for answer in _data_dependent(question, view):
            (refused if isinstance(answer, Refusal) else rivals).append(answer)  # type: ignore[arg-type]
    taken: dict[str, Family] = {}
    if rivals:
        least_error = _independent(question).expected_error
        for rival in rivals:
            (view,) = rival.question.views
            bound = _split_error(question, {**taken, view.name: rival})
            if view.name not in taken and bound <= MOST * least_error:
                taken[view.name] = rival
            else:
                refused.append(_too_dear(rival, bound, least_error))
    families = [Family(r.question, _with_refused(r.choice, refused)) for r in taken.values()]
    rest = tuple(view for view in question.views if view.name not in taken)
    if rest:
        remaining = replace(question, views=rest, alone=question.alone and not taken)
        choice = _least(_answers(remaining), rated=bool(rivals))
        families.append(Family(remaining, _with_refused(choice, refused)))
    return families


def _data_dependent(question: DesignProblem, view: FamilyView) -> Iterable[Family | Refusal]:
    """Offers, each with its bound, and refusals of data-dependent mechanisms for one view of a family."""
    for mechanism in DATA_DEPENDENT:
        alone = replace(question, views=(view,), alone=question.alone and len(question.views) == 1)
        for answer in mechanism.offers(replace(alone, whole=mechanism.WHOLE)):
            if isinstance(answer, Refusal):
                yield answer
            else:
                yield _rival(replace(alone, whole=mechanism.WHOLE), answer)


def _rival(question: DesignProblem, offer: Offer) -> Family:  # type: ignore[type-arg]
    """A data-dependent offer for a view alone; the best without it comes first of those that it is compared with."""
    others, candidate = _independent(question), offer.make()
    without = (others.name, others.expected_error)
    choice = FamilyChoice(candidate.strategy, candidate.name, candidate.error, (without, *others.runners_up))
    return Family(question, choice)


def _split_error(question: DesignProblem, taken: Mapping[str, Family]) -> float:
    """Bound on the mean error of all views where some are measured by data-dependent selection, each alone."""
    charges = {view.name: float(sum(view.charges.values())) for view in question.views}
    power = 1 - 2 / question.law.norm
    total, error = sum(charges.values()), 0.0
    rest = tuple(view for view in question.views if view.name not in taken)
    parts = []
    for alone, choice in taken.values():
        _, least_error = choice.runners_up[0]
        parts.append((alone.views, choice.expected_error / least_error if least_error else math.inf))
    for views, times in [*parts, *([(rest, 1.0)] if rest else [])]:
        share = sum(charges[view.name] for view in views) / total
        family = replace(question, views=views, alone=question.alone and len(views) == len(question.views))
        error += share**power * times * _independent(family).expected_error
    return error


def _too_dear(rival: Family, bound: float, least_error: float) -> Refusal:
    (view,) = rival.question.views
    return Refusal(
        rival.choice.name,
        f"for {view.name} may have error {bound:.4g}, above {MOST} times the {least_error:.4g} available without it",
    )


def _with_refused(choice: FamilyChoice, refused: Sequence[Refusal]) -> FamilyChoice:
    return choice._replace(refused=tuple(dict.fromkeys((*choice.refused, *refused))))


def _answers(question: DesignProblem) -> list[Proposal]:
    return [answer for mechanism in MECHANISMS for answer in mechanism.offers(question)]


def _independent(question: DesignProblem) -> FamilyChoice:
    """The least of all data-independent offers, with its error."""
    return _least(_answers(question), rated=True)


def _least(answers: list[Proposal], *, rated: bool) -> FamilyChoice:
    """As `offers.least`, but a single offer is rated only if it must be."""
    offered = [answer for answer in answers if not isinstance(answer, Refusal)]
    if rated or len(offered) != 1:
        return least(answers)
    candidate = offered[0].make()
    refused = tuple(answer for answer in answers if isinstance(answer, Refusal))
    return FamilyChoice(candidate.strategy, candidate.name, nan, (), refused)
