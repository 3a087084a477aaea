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
from dpsql.mechanisms.axis.registry import AUTO, WHOLE
from dpsql.mechanisms.family import adaptive, asked, blocks, diffhr, plane, product, residual, whitened
from dpsql.mechanisms.family.question import (
    Answer,
    FamilyChoice,
    FamilyMechanism,
    FamilyQuestion,
    FamilyView,
    NamedFamily,
)
from dpsql.mechanisms.offers import Refusal, least

MECHANISMS: tuple[FamilyMechanism, ...] = (
    product,
    plane,
    residual,
    whitened,
    adaptive,
    blocks,
    diffhr,
    asked,
)


class Family(NamedTuple):
    """Views that are measured together, and what measures them.

    Args:
        question: what they ask for.
        choice: the winner. Its error is not a number where there was nothing to compare it with.
    """

    question: FamilyQuestion
    choice: FamilyChoice


class _Owner(NamedTuple):
    """A mechanism, by one of its words; a word may have several, which fit different views."""

    mechanism: FamilyMechanism
    named: NamedFamily


class _Kin(NamedTuple):
    """What views of one family have in common.

    Args:
        word: that they go by.
        kin: what its mechanism says.
        whole: as of `FamilyQuestion`.
    """

    word: str
    kin: str
    whole: float = WHOLE


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
    questions = [_part(table, kin, views, alone=len(groups) == 1) for kin, views in groups.items()]
    return [Family(question, _choose(question)) for question in questions]


def _owners(word: str) -> list[_Owner]:
    return [_Owner(m, m.NAMED[word]) for m in MECHANISMS if word in m.NAMED]


def _kin(table: FamilyQuestion, view: FamilyView) -> _Kin:
    """The family of a view: of the mechanism that it names, or of one that looks first where it may and fits."""
    for word in (view.word.name, view.looks):
        kins = [_Kin(word, owner.named.kin(view.name), owner.named.whole) for owner in _owners(word)]
        for owner, kin in zip(_owners(word), kins, strict=True):
            alone = _part(table, kin, [view], alone=len(table.views) == 1)
            if any(not isinstance(answer, Refusal) for answer in owner.mechanism.offers(alone)):
                return kin
        if kins and word == view.word.name:
            return kins[0]
    return _Kin("", "")


def _part(table: FamilyQuestion, kin: _Kin, views: list[FamilyView], *, alone: bool) -> FamilyQuestion:
    """The question of some views that go by one word."""
    if not kin.word:
        return replace(table, views=tuple(views), alone=alone)
    open_ended = tuple(v._replace(word=AUTO) if v.word.name == kin.word else v for v in views)
    return replace(table, views=open_ended, named=kin.word, alone=alone, whole=kin.whole)


def _choose(question: FamilyQuestion) -> FamilyChoice:
    """What the views name, with what it is compared with; else the least of all offers."""
    if not question.named:
        return _least([answer for mechanism in MECHANISMS for answer in mechanism.offers(question)])
    named_mechanisms = [owner.mechanism for owner in _owners(question.named)]
    answers = [answer for mechanism in named_mechanisms for answer in mechanism.offers(question)]
    if all(isinstance(answer, Refusal) for answer in answers):
        raise _refused(question, [answer for answer in answers if isinstance(answer, Refusal)])
    chosen = _least(answers, rated=True)
    if not isfinite(chosen.expected_error):
        return chosen
    alternative = _least(
        [
            a
            for mechanism in MECHANISMS
            if mechanism not in named_mechanisms
            for a in mechanism.offers(question)
        ],
        rated=True,
    )
    rivals = ((alternative.name, alternative.expected_error), *alternative.runners_up)
    return chosen._replace(runners_up=rivals, refused=alternative.refused)


def _least(answers: list[Answer], *, rated: bool = False) -> FamilyChoice:
    """As `offers.least`, but a single offer is rated only if it must be."""
    offered = [answer for answer in answers if not isinstance(answer, Refusal)]
    if rated or len(offered) != 1:
        return least(answers)
    candidate = offered[0].make()
    refused = tuple(answer for answer in answers if isinstance(answer, Refusal))
    return FamilyChoice(candidate.strategy, candidate.name, nan, (), refused)


def _refused(question: FamilyQuestion, refusals: list[Refusal]) -> CatalogError:
    """Why the views cannot have what they name."""
    where = f"views.{question.views[0].name}.mechanism: {question.named}"
    return CatalogError(f"{where} {refusals[0].reason}", hint=refusals[0].hint)
