"""Several releases under one statement: which of them answers each block, or which table that they hold together.

Blocks over one table go to one release as long as one can answer them all, so that a total and its parts come from one
reconciled table; else they are routed one by one. The least number of cells without an error wins, then the least mean
standard error: both follow from published variances and shapes.

| candidate | answers for everybody |
|---|---|
| a release about everybody | always |
| a random sample, scaled to everybody | unless the test rejects it, or where nobody says how many everybody is |
| a table of several releases, with `combine` | always |
| those who reported, as they are | averages of a random sample; else only what nothing else answers |

**Privacy**: post-processing of releases; costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from dpsql.answer.answerer import Answerer, put_together
from dpsql.answer.block import Block, ErrorOf, Known
from dpsql.answer.combine import promise_together
from dpsql.answer.errorfunctions import PARTS, STDERR
from dpsql.answer.notes import PARTICIPATIONS, Reads, reads_of
from dpsql.answer.population import Pool, Sample, Tested, as_everybody, best_total, is_random, pools
from dpsql.answer.relation import Relation
from dpsql.answer.result import Result
from dpsql.answer.schema import Schema, Table
from dpsql.answer.sql.parse import parse, pointed
from dpsql.answer.sql.rewrite import take_apart
from dpsql.answer.sql.statement import Statement
from dpsql.answer.views import shown
from dpsql.errors import Error, NotSupportedError, NoViewError, UnknownName
from dpsql.release import Release
from dpsql.star.sql import identifier as quoted

Refusal = NotSupportedError | UnknownName
DIFFERS = (
    "who reported to {} differs from the population: it is not scaled to everybody, and mixed with nothing"
)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Who may answer a block.

    Args:
        name: as provenance calls it.
        answerer: who answers.
        everybody: what it tells of everybody.
        names: the releases that are in it.
    """

    name: str
    answerer: Answerer
    everybody: frozenset[Reads]
    names: tuple[str, ...]


class Standing(NamedTuple):
    """What open releases say of everybody: candidates, the tests that samples had to pass, and tables of several."""

    candidates: tuple[Candidate, ...]
    tests: tuple[Tested, ...]
    pooled: tuple[Pool, ...]


class Taken(NamedTuple):
    """Who answers some blocks, and its rank: cells without an error, then mean error."""

    candidate: Candidate
    rank: tuple[int, float]


@dataclass(frozen=True, eq=False)
class Question:
    """A statement that several may answer.

    Args:
        statements: as each candidate reads it; their blocks are the same but for names.
        refusals: why others cannot, and why candidates cannot answer a block.
        left_out: who answers only for those who reported to it.
    """

    statements: dict[Candidate, Statement]
    refusals: list[Refusal]
    left_out: list[str] = field(default_factory=list)
    _related: dict[tuple[Candidate, int], Relation | None] = field(default_factory=dict)

    @property
    def first(self) -> Candidate:
        """Who reads it first."""
        return next(iter(self.statements))

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Its blocks, as the first candidate reads them."""
        return self.statements[self.first].blocks

    def relation(self, candidate: Candidate, number: int) -> Relation | None:
        """A candidate's answer to a block; None if it has none."""
        if (candidate, number) not in self._related:
            try:
                found = candidate.answerer.relate(self.statements[candidate].blocks[number])
            except (NotSupportedError, UnknownName) as error:
                self.refusals.append(error)
                found = None
            self._related[candidate, number] = found
        return self._related[candidate, number]

    def taken(self, candidate: Candidate, part: Sequence[int]) -> Taken | None:
        """A candidate's answers to some blocks; None if one of them has none."""
        named = self.blocks[part[0]].release
        if named and [name.lower() for name in candidate.names] != [named]:
            return None
        relations = [self.relation(candidate, number) for number in part]
        found = tuple(each for each in relations if each is not None)
        return Taken(candidate, rank(found)) if len(found) == len(part) else None

    def reads(self, part: Sequence[int]) -> Reads:
        """What some blocks take from a release."""
        return reads_of([self.blocks[number] for number in part])

    def chosen(self) -> tuple[dict[int, Candidate], list[Taken]]:
        """Who answers each block, and all who could."""
        chosen: dict[int, Candidate] = {}
        seen: list[Taken] = []
        for group in groups_of(self.blocks):
            for part in self.parts(group):
                taken = self.best(part)
                seen += taken
                chosen |= dict.fromkeys(part, taken[0].candidate)
        return chosen, seen

    def parts(self, group: Sequence[int]) -> list[Sequence[int]]:
        """Blocks that one candidate answers for everybody: all of a group if anyone can, else each alone."""
        reads = self.reads(group)
        whole = [c for c in self.statements if reads in c.everybody and self.taken(c, group) is not None]
        return [group] if len(group) == 1 or whole else [[number] for number in group]

    def best(self, part: Sequence[int]) -> list[Taken]:
        """Who may answer some blocks, the best first.

        Raises:
            NotSupportedError, UnknownName: nobody, or only several that each answer for those who reported to it.
        """
        able = [taken for c in self.statements if (taken := self.taken(c, part)) is not None]
        if not able:
            raise self.refusals[0]
        _check_alternatives([each.candidate for each in able])
        reads = self.reads(part)
        kept = able if len(able) == 1 else [each for each in able if reads in each.candidate.everybody]
        if not kept:
            names = ", ".join(each.candidate.name for each in able)
            first = _qualifier(able[0].candidate.name)
            raise UnknownName(
                f"several releases ({names}) answer, each for those who reported to it alone",
                hint=f"qualify the tables, for instance {first}.table, or open one of them",
            )
        self.left_out.extend(
            each.candidate.name
            for each in able
            if each not in kept and each.candidate.name not in self.left_out
        )
        return sorted(kept, key=lambda each: (each.rank, -len(each.candidate.names)))


@dataclass(frozen=True, eq=False)
class Router:
    """Several releases, asked as one.

    Args:
        answerers: one for each open release.
        names: what they are called.
        combine: whether tables of several releases answer too.
    """

    answerers: tuple[Answerer, ...]
    names: tuple[str, ...]
    combine: bool
    _kept: dict[tuple[str, str], Result] = field(default_factory=dict)

    def query(self, text: str, dialect: str) -> Result:
        """Answer a statement, block by block.

        Raises:
            dpsql.errors.Error: no release can answer; the first one says why.
        """
        if (text, dialect) not in self._kept:
            if len(self._kept) >= 256:
                self._kept.clear()
            try:
                self._kept[text, dialect] = self._answer(text, dialect)
            except Error as error:
                raise pointed(error, text) from error.__cause__
        return self._kept[text, dialect]

    @cached_property
    def standing(self) -> Standing:
        """What the releases say of everybody; worked out when it is first asked."""
        return stand(self.answerers, self.names, self.combine)

    def _answer(self, text: str, dialect: str) -> Result:
        question = self._read(text, dialect)
        try:
            chosen, seen = question.chosen()
        except NoViewError:
            if not question.statements[question.first].block_errors:
                raise
            question = self._read(text, dialect, carries=True)
            chosen, seen = question.chosen()
        by = [chosen[number] for number in range(len(question.blocks))]
        runs = by[0] if by else question.first
        relations = [question.relation(candidate, number) for number, candidate in enumerate(by)]
        result = put_together(
            question.statements[runs],
            [r for r in relations if r is not None],
            [c.answerer for c in by],
            runs.answerer,
        )
        return self._told(result, by or [runs], seen, question.left_out)

    def _read(self, text: str, dialect: str, carries: bool = False) -> Question:
        """The statement as each candidate reads it; those that read it as the first one does.

        Raises:
            NotSupportedError, UnknownName: nobody can read it; the first one says why.
        """
        found: dict[Candidate, Statement] = {}
        refusals: list[Refusal] = []
        named = {
            name.lower(): self._joined(each) for name, each in zip(self.names, self.answerers, strict=True)
        }
        shape = None
        for candidate in self.standing.candidates:
            schema = replace(self._joined(candidate.answerer), named=named)
            try:
                statement = take_apart(parse(shown(text), dialect), schema, text, carries)
            except (NotSupportedError, UnknownName) as error:
                refusals.append(error)
                continue
            own = (
                statement.outer,
                statement.common,
                statement.names,
                statement.carriers,
                len(statement.blocks),
            )
            shape = shape or own
            if own == shape:
                found[candidate] = statement
        if not found:
            raise refusals[0]
        return Question(found, refusals)

    def _joined(self, answerer: Answerer) -> Schema:
        """A schema with the tables, columns and measures of all releases of its population."""
        own, population = answerer.schema, _population(answerer.release)
        tables, measures = dict(own.tables), set(own.measures)
        for other in self.answerers:
            if other is not answerer and _population(other.release) == population:
                measures |= other.schema.measures
                for name, table in other.schema.tables.items():
                    tables[name] = _merged(tables[name], table) if name in tables else table
        return replace(own, tables=tables, measures=frozenset(measures))

    def _told(
        self, result: Result, by: Sequence[Candidate], seen: Sequence[Taken], left_out: Sequence[str]
    ) -> Result:
        """The answer with who gave it, why, and what all open releases promise together."""
        metas = [answerer.release.meta for answerer in self.answerers]
        names = list(dict.fromkeys(each.name for each in by))
        errors: dict[str, list[float]] = {}
        for each in seen:
            errors.setdefault(each.candidate.name, []).append(each.rank[1])
        told: dict[str, Any] = {
            "routed": {
                "chosen": names[0] if len(names) == 1 else names,
                "because": "smallest mean predicted error",
                "blocks": [each.name for each in by],
                "mean_errors": {name: sum(found) / len(found) for name, found in errors.items()},
                "left_out": list(left_out),
                "tests": [test._asdict() for test in self.standing.tests],
                "all_together": promise_together(metas),
            }
        }
        together = list(dict.fromkeys(name for each in by for name in each.names))
        if any(len(each.names) > 1 for each in by):
            told["combined"] = together
        rejected = {test.local for test in self.standing.tests if test.rejected}
        notes = [
            *(DIFFERS.format(name) for name in self.names if name in rejected and name not in together),
            *(f"{name} is left out: it answers for those who reported to it" for name in left_out
              if name not in rejected),
        ]  # fmt: skip
        return replace(
            result,
            provenance={**result.provenance, **told},
            notes=tuple(dict.fromkeys([*result.notes, *notes])),
        )

    def words(self) -> list[str]:
        """Whom each release stands for, and the tests, one sentence each."""
        stands = {True: "answers for everybody", False: "answers for those who reported to it"}
        told = [f"{c.name} {stands[Reads.TOTALS in c.everybody]}" for c in self.standing.candidates]
        return told + [
            f"{test.local} against {test.central}: chi-squared {test.statistic:g}, degrees of freedom {test.freedom}, "
            f"farthest cell {test.farthest:g} standard errors, "
            + ("rejected" if test.rejected else "not rejected")
            for test in self.standing.tests
        ]

    def close(self) -> None:
        """Close what was made of the releases; they themselves stay open."""
        if "standing" in self.__dict__:
            own = {id(answerer) for answerer in self.answerers}
            for candidate in self.standing.candidates:
                if id(candidate.answerer) not in own:
                    candidate.answerer.release.close()


def stand(answerers: Sequence[Answerer], names: Sequence[str], combine: bool) -> Standing:
    """Whom every release stands for, by what the others say.

    Args:
        answerers: of open releases.
        names: what they are called.
        combine: whether tables of several are wanted too.
    """
    candidates: list[Candidate] = []
    tests: list[Tested] = []
    pooled: list[Pool] = []
    populations: dict[str, list[int]] = {}
    for i, answerer in enumerate(answerers):
        populations.setdefault(_population(answerer.release), []).append(i)
    for members in populations.values():
        whole = [answerers[i] for i in members if _is_whole(answerers[i].release)]
        samples: list[Sample] = []
        for i in members:
            answerer, name = answerers[i], names[i]
            local = answerer.release.meta.local
            if local is None or answerer in whole:
                candidates.append(Candidate(name, answerer, frozenset(Reads), (name,)))
                continue
            central = _counted_by([each.release for each in whole], answerer.release)
            sample = Sample(answerer.release, local, central)
            found = [is_random(sample, each.release) for each in whole] if local.sampled else []
            tests += [test for test in found if test is not None]
            passed = not any(test is not None and test.rejected for test in found)
            candidate, kept = _standing(sample, name, answerer, passed)
            candidates.append(candidate)
            samples += [sample] if kept else []
        if combine:
            called = {answerers[i].release.meta.release_id: names[i] for i in members}
            pooled += pools([each.release for each in whole], samples, called)
    made = [
        Candidate(" and ".join(pool.names), _like(answerers[0], pool.release), frozenset(Reads), pool.names)
        for pool in pooled
    ]
    return Standing((*candidates, *made), tuple(tests), tuple(pooled))


def _standing(sample: Sample, name: str, answerer: Answerer, passed: bool) -> tuple[Candidate, bool]:
    """A local release's candidate, and whether it may be mixed with others."""
    random = sample.local.sampled
    scaled = as_everybody(sample) if random and passed else None
    if scaled is not None:
        return Candidate(name, _like(answerer, scaled), frozenset(Reads), (name,)), True
    stands = PARTICIPATIONS[sample.local.participation if passed else "unknown"].everybody
    return Candidate(name, answerer, stands, (name,)), False


def _like(answerer: Answerer, release: Release) -> Answerer:
    """An answerer of another release, asked as this one is."""
    return Answerer(release, answerer.timeout, answerer.on_partial_bin)


def _is_whole(release: Release) -> bool:
    local = release.meta.local
    return local is None or local.whole


def _counted_by(whole: Sequence[Release], local: Release) -> Release | None:
    """The release that counts everybody best."""
    of = next((statistic.of for statistic in local.statistics), "")
    found = [(best_total(release, of), release) for release in whole]
    known = [(total.error, i) for i, (total, _) in enumerate(found) if total is not None]
    return found[min(known)[1]][1] if known else None


def _population(release: Release) -> str:
    return release.catalog.population or str(release.path)


def groups_of(blocks: Sequence[Block]) -> list[list[int]]:
    """Numbers of the blocks over each table of each release that is named."""
    found: dict[tuple[str, str], list[int]] = {}
    for number, block in enumerate(blocks):
        found.setdefault((block.release, block.root.lower()), []).append(number)
    return list(found.values())


def _merged(own: Table, other: Table) -> Table:
    """A table with the columns of another release's."""
    columns = {**other.columns, **own.columns}
    return replace(
        own,
        columns=columns,
        foreign_keys={**other.foreign_keys, **own.foreign_keys},
        measures={**other.measures, **own.measures},
        derived={**other.derived, **own.derived},
        nullable=own.nullable | other.nullable,
        types={**other.types, **own.types},
    )


def rank(relations: Sequence[Relation]) -> tuple[int, float]:
    """What the best answer has least of: cells without an error (NULLs), then mean error."""
    missing, errors = 0, []
    for relation in relations:
        for value in relation.block.values:
            form = value.form if isinstance(value, ErrorOf) else value
            if form is None or isinstance(form, Known):
                continue
            found = relation.errors_of(STDERR, form, 0.0)[1] or []
            inside = relation.errors_of(PARTS["within_leaf"], form, 0.0)[1] or []
            missing += sum(error is None for error in found)
            pairs = zip(found, inside, strict=True)
            errors += [math.hypot(error, within or 0.0) for error, within in pairs if error is not None]
    return missing, sum(errors) / len(errors) if errors else 0.0


def _check_alternatives(candidates: Sequence[Candidate]) -> None:
    """Releases may answer for each other only if they are about the same people."""
    if len({_population(candidate.answerer.release) for candidate in candidates}) > 1:
        names = list(dict.fromkeys(candidate.name for candidate in candidates))
        raise UnknownName(
            f"the tables stand in several releases ({', '.join(names)}) about different people",
            hint=f"qualify them, for instance {_qualifier(names[0])}.table",
        )


def _qualifier(name: str) -> str:
    """A release's name as SQL takes it."""
    return name if name.isidentifier() else quoted(name)
