"""All mechanisms of families, and which one each family of a table gets.

The list is closed: a mechanism without its proof in this project has no place in it. A view that names a mechanism
of families gets it or is refused; all others of a table are one family, and the offer of least error takes it.

**Privacy**: a function of the catalog and of numbers of leaves, all public.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, nan
from typing import NamedTuple

from dpsql.errors import CatalogError
from dpsql.mechanisms.axis.registry import AUTO
from dpsql.mechanisms.family import adaptive, dawa, diffhr, plane, product, residual, whitened
from dpsql.mechanisms.family.question import (
    Answer,
    FamilyChoice,
    FamilyMechanism,
    FamilyQuestion,
    FamilyView,
    NamedFamily,
)
from dpsql.mechanisms.offers import Refusal, least

MECHANISMS: tuple[FamilyMechanism, ...] = (product, plane, residual, whitened, adaptive, dawa, diffhr)


class Family(NamedTuple):
    """Views that are measured together, and what measures them.

    Args:
        question: what they ask for.
        choice: the winner. Its error is not a number where there was nothing to compare it with.
    """

    question: FamilyQuestion
    choice: FamilyChoice


class _Owner(NamedTuple):
    """A mechanism, by one of its words."""

    mechanism: FamilyMechanism
    named: NamedFamily


class _Kin(NamedTuple):
    """What views of one family have in common: the word that they go by, and what its mechanism says."""

    word: str
    kin: str


def choose_families(table: FamilyQuestion) -> list[Family]:
    """The families of a table's views, in the order of their first views.

    Args:
        table: all its views.

    Raises:
        CatalogError: a view names a mechanism that does not fit it.
    """
    groups: dict[_Kin, list[FamilyView]] = {}
    for view in table.views:
        groups.setdefault(_kin(table, view), []).append(view)
    questions = [_part(table, kin.word, views, alone=len(groups) == 1) for kin, views in groups.items()]
    return [Family(question, _choose(question)) for question in questions]


def _owners() -> dict[str, _Owner]:
    return {word: _Owner(m, named) for m in MECHANISMS for word, named in m.NAMED.items()}


def _kin(table: FamilyQuestion, view: FamilyView) -> _Kin:
    """The family of a view: of the mechanism that it names, or of one that looks first where it may and fits."""
    owners = _owners()
    for word in (view.word.name, view.looks):
        if word not in owners:
            continue
        alone = _part(table, word, [view], alone=len(table.views) == 1)
        offered = any(not isinstance(a, Refusal) for a in owners[word].mechanism.offers(alone))
        if offered or word == view.word.name:
            return _Kin(word, owners[word].named.kin(view.name))
    return _Kin("", "")


def _part(table: FamilyQuestion, word: str, views: list[FamilyView], *, alone: bool) -> FamilyQuestion:
    """The question of some views that go by one word."""
    if not word:
        return replace(table, views=tuple(views), alone=alone)
    open_ended = tuple(v._replace(word=AUTO) if v.word.name == word else v for v in views)
    return replace(table, views=open_ended, named=word, alone=alone, whole=_owners()[word].named.whole)


def _choose(question: FamilyQuestion) -> FamilyChoice:
    """What the views name, with what it is compared with; else the least of all offers."""
    if not question.named:
        return _least([answer for each in MECHANISMS for answer in each.offers(question)])
    own = _owners()[question.named].mechanism
    answers = list(own.offers(question))
    if all(isinstance(answer, Refusal) for answer in answers):
        raise _refused(question, [answer for answer in answers if isinstance(answer, Refusal)])
    chosen = _least(answers, rated=True)
    if not isfinite(chosen.expected_error):
        return chosen
    beside = _least([a for each in MECHANISMS if each is not own for a in each.offers(question)], rated=True)
    rivals = ((beside.name, beside.expected_error), *beside.runners_up)
    return chosen._replace(runners_up=rivals, refused=beside.refused)


def _least(answers: list[Answer], *, rated: bool = False) -> FamilyChoice:
    """As `offers.least`, but a single offer is rated only if it must be."""
    offered = [answer for answer in answers if not isinstance(answer, Refusal)]
    if rated or len(offered) != 1:
        return least(answers)
    made = offered[0].make()
    refused = tuple(answer for answer in answers if isinstance(answer, Refusal))
    return FamilyChoice(made.strategy, made.name, nan, (), refused)


def _refused(question: FamilyQuestion, refusals: list[Refusal]) -> CatalogError:
    """Why the views cannot have what they name."""
    where = f"views.{question.views[0].name}.mechanism: {question.named}"
    return CatalogError(f"{where} {refusals[0].reason}", hint=refusals[0].hint)
