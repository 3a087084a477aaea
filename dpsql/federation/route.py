"""Several releases under one statement: which of them answers each block, or which table that they hold together.

Blocks over one table go to one release as long as one can answer them all, so that a total and its parts come from one
reconciled table; else they are routed one by one. The least number of cells without an error wins, then the narrowest
95% intervals: both follow from what is published.

| candidate | answers for everybody |
|---|---|
| a central release | always |
| reports of all people, says the catalog | unless the test rejects it |
| a random sample, weighted to central margins | unless the test rejects it |
| one with no margin in common, scaled to everybody | also unless nobody says how many everybody is |
| respondents that the test rejects, weighted to central margins | what nothing else answers, with a note |
| a table of several releases, with `combine` | always |
| respondents as they are | averages of a random sample; else only what nothing else answers |

**Privacy**: post-processing of releases; costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dpsql.errors import DataError, Error, NotSupportedError, NoViewError, ProgrammingError, UnknownName
from dpsql.executor.engine import ReleaseEngine, assemble_result
from dpsql.executor.relation import Relation
from dpsql.federation.population import Pool, as_everybody, pools
from dpsql.federation.respondents import Sample, SampleTest, best_total, raked, sample_test
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, PARTS, STDERR
from dpsql.planner.answerability import shown
from dpsql.planner.block import Block
from dpsql.planner.notes import PARTICIPATIONS, Reads, reads_of
from dpsql.planner.schema import Schema, SchemaTable
from dpsql.release import Release
from dpsql.release.promises import promise_together
from dpsql.release.request import requested
from dpsql.results.result import Result
from dpsql.row_expressions import identifier as quoted
from dpsql.sql.parse import parse, pointed
from dpsql.sql.rewrite import split_statement
from dpsql.sql.statement import Statement
from dpsql.sql.statement_cache import Shapes

Refusal = NotSupportedError | UnknownName
DIFFERS = "respondents of {} differ from the population of {}: they are neither scaled to it nor combined"
UNTESTED = "respondents of {} were not tested for being a random sample: {}"


@dataclass(frozen=True, eq=False)
class RouteCandidate:
    """Candidate release for answering a block.

    Args:
        name: as provenance calls it.
        answerer: who answers.
        everybody: what it tells of everybody.
        names: the releases that are in it.
        last: whether it answers for everybody only what no other candidate does: a model weights its respondents.
    """

    name: str
    answerer: ReleaseEngine
    everybody: frozenset[Reads]
    names: tuple[str, ...]
    last: bool = False


class PopulationSources:
    """Releases that can answer for the whole population according to the others (`candidates`), and their `tests`.

    Args:
        answerers: of open releases.
        names: what they are called.
        combine: whether tables of several are wanted too.
    """

    def __init__(self, answerers: Sequence[ReleaseEngine], names: Sequence[str], combine: bool) -> None:
        candidates: list[RouteCandidate] = []
        tests: list[SampleTest] = []
        pooled: list[Pool] = []
        populations: dict[str, list[int]] = {}
        for i, answerer in enumerate(answerers):
            populations.setdefault(_population(answerer.release), []).append(i)
        for members in populations.values():
            central = [answerers[i].release for i in members if answerers[i].release.meta.local is None]
            population_releases = list(central)
            for i in members:  # reports of all people first: samples may be scaled by them
                local = answerers[i].release.meta.local
                if local is not None and local.whole:
                    local_tests = _tested(Sample(answerers[i].release, local, None), names[i], central)
                    tests += local_tests
                    if not any(test.rejected for test in local_tests):
                        population_releases.append(answerers[i].release)
            samples: list[Sample] = []
            for i in members:
                answerer, name = answerers[i], names[i]
                local = answerer.release.meta.local
                if local is None or answerer.release in population_releases:
                    candidates.append(RouteCandidate(name, answerer, frozenset(Reads), (name,)))
                    continue
                sample = Sample(answerer.release, local, _counted_by(population_releases, answerer.release))
                local_tests = _tested(sample, name, population_releases) if local.sampled else []
                tests += local_tests
                passed = not local.whole and not any(test.rejected for test in local_tests)
                candidate, usable = _candidate(sample, name, answerer, central, passed)
                candidates.append(candidate)
                samples += [sample] if usable else []
            if combine:
                called = {answerers[i].release.meta.release_id: names[i] for i in members}
                # Respondents whom no test rejects may differ all the same, and raked ones err with the central margins.
                pooled += pools(population_releases, [] if central else samples, called)
        for release, held in pooled:
            like = _like(answerers[0], release)
            candidates.append(RouteCandidate(" and ".join(held), like, frozenset(Reads), held))
        for candidate in candidates:  # a table made of several is as strict as the strictest of them
            if not any(candidate.answerer is answerer for answerer in answerers):
                candidate.answerer.release.min_people = max(a.release.min_people for a in answerers)
        self.candidates, self.tests = tuple(candidates), tuple(tests)


Rank = tuple[int, float]
"""Of answers to some blocks: cells without an error, then mean error."""


class RoutedStatement:
    """A statement that several may answer; `left_out` are those who answer only for people who reported to them.

    Args:
        statements: as each candidate reads it; their blocks are the same but for names.
        refusals: why others cannot, and why candidates cannot answer a block.
    """

    def __init__(self, statements: dict[RouteCandidate, Statement], refusals: list[Refusal]) -> None:
        self.statements, self.refusals, self.left_out = statements, refusals, list[str]()
        self._related: dict[tuple[RouteCandidate, int], Relation | None] = {}

    @property
    def first(self) -> RouteCandidate:
        return next(iter(self.statements))

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Its blocks, as the first candidate reads them."""
        return self.statements[self.first].blocks

    def relation(self, candidate: RouteCandidate, number: int) -> Relation | None:
        """A candidate's answer to a block; None if it has none."""
        if (candidate, number) not in self._related:
            try:
                relation = candidate.answerer.answer_block(self.statements[candidate].blocks[number])
            except (NotSupportedError, UnknownName) as error:
                self.refusals.append(error)
                relation = None
            self._related[candidate, number] = relation
        return self._related[candidate, number]

    def rank(self, candidate: RouteCandidate, part: Sequence[int]) -> Rank | None:
        """The rank of a candidate's answers to some blocks; None if one of them has none."""
        named = self.blocks[part[0]].release
        if named and [name.lower() for name in candidate.names] != [named]:
            return None
        relations = [self.relation(candidate, number) for number in part]
        answers = tuple(relation for relation in relations if relation is not None)
        return rank(answers) if len(answers) == len(part) else None

    def reads(self, part: Sequence[int]) -> Reads:
        """Reads of some blocks from a release."""
        return reads_of([self.blocks[number] for number in part])

    def chosen(self) -> tuple[dict[int, RouteCandidate], list[tuple[RouteCandidate, Rank]]]:
        """Release chosen for each block, with all candidates."""
        chosen: dict[int, RouteCandidate] = {}
        seen: list[tuple[RouteCandidate, Rank]] = []
        for group in groups_of(self.blocks):
            for numbers in self.parts(group):
                ranked = self.best(numbers)
                seen += ranked
                chosen |= dict.fromkeys(numbers, ranked[0][0])
        return chosen, seen

    def parts(self, group: Sequence[int]) -> list[Sequence[int]]:
        """Blocks that one candidate answers for everybody: all of a group if anyone can, else each alone."""
        reads = self.reads(group)
        candidates = [c for c in self.statements if reads in c.everybody and self.rank(c, group) is not None]
        return [group] if len(group) == 1 or candidates else [[number] for number in group]

    def best(self, part: Sequence[int]) -> list[tuple[RouteCandidate, Rank]]:
        """Candidates for some blocks, best first.

        Raises:
            NotSupportedError, UnknownName: nobody, or only several that each answer for those who reported to it.
        """
        able = [(c, rank) for c in self.statements if (rank := self.rank(c, part)) is not None]
        if not able:
            raise self.refusals[0]
        # releases may answer for each other only if they are about the same people
        if len({_population(candidate.answerer.release) for candidate, _ in able}) > 1:
            called = list(dict.fromkeys(candidate.name for candidate, _ in able))
            raise UnknownName(
                f"the tables stand in several releases ({', '.join(called)}) about different people",
                hint=f"qualify them, for instance {_qualifier(called[0])}.table",
            )
        reads = self.reads(part)
        eligible = able if len(able) == 1 else [option for option in able if reads in option[0].everybody]
        eligible = [option for option in eligible if not option[0].last] or eligible
        if not eligible:
            names = ", ".join(candidate.name for candidate, _ in able)
            first = _qualifier(able[0][0].name)
            raise UnknownName(
                f"several releases ({names}) answer, each for those who reported to it alone",
                hint=f"qualify the tables, for instance {first}.table, or open one of them",
            )
        self.left_out.extend(
            candidate.name
            for candidate, rank in able
            if (candidate, rank) not in eligible and candidate.name not in self.left_out
        )
        return sorted(eligible, key=lambda option: (option[1], -len(option[0].names)))


class Router:
    """Several releases, asked as one.

    Args:
        answerers: one for each open release.
        names: what they are called.
        combine: whether tables of several releases answer too.
    """

    def __init__(self, answerers: tuple[ReleaseEngine, ...], names: tuple[str, ...], combine: bool) -> None:
        self.answerers, self.names, self.combine = answerers, names, combine
        self._kept: dict[tuple[str, str], Result] = {}

    def query(self, text: str, dialect: str) -> Result:
        """Answer a statement, block by block.

        Raises:
            dpsql.errors.Error: no release can answer; the first one says why.
        """
        if (text, dialect) in self._kept:
            return self._kept[text, dialect]
        try:
            with requested(self.answerers[0].timeout):
                answer = self._answer(text, dialect)
        except Error as error:
            raise pointed(error, text) from error.__cause__
        if "moment" not in answer.provenance:
            if len(self._kept) >= 256:
                self._kept.clear()
            self._kept[text, dialect] = answer
        return answer

    @cached_property
    def standing(self) -> PopulationSources:
        """Population that every open release can answer for, computed on first use."""
        return PopulationSources(self.answerers, self.names, self.combine)

    @cached_property
    def _shapes(self) -> Mapping[RouteCandidate, Shapes]:
        """The shapes of what each candidate was asked."""
        schemas = [self._joined(answerer) for answerer in self.answerers]
        named = {name.lower(): schema for name, schema in zip(self.names, schemas, strict=True)}
        candidates = self.standing.candidates
        return {c: Shapes(replace(self._joined(c.answerer), named=named)) for c in candidates}

    def _answer(self, text: str, dialect: str) -> Result:
        filled = self._filled(text, dialect)
        if filled is not None:
            # said anew, with its place in this text
            with suppress(ProgrammingError, NotSupportedError, DataError):
                return self._answer_of(filled, text, dialect)
        return self._answer_of(self._read(text, dialect), text, dialect)

    def _answer_of(self, question: RoutedStatement, text: str, dialect: str) -> Result:
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
        answer = assemble_result(
            question.statements[runs],
            [r for r in relations if r is not None],
            [c.answerer for c in by],
            runs.answerer,
        )
        return self._told(answer, by or [runs], seen, question.left_out)

    def _filled(self, text: str, dialect: str) -> RoutedStatement | None:
        """The statement as earlier ones of its shape tell each candidate; None where one of them must read it."""
        filled = {c: shapes.filled(shown(text), dialect) for c, shapes in self._shapes.items()}
        statements = {c: statement for c, statement in filled.items() if statement is not None}
        return self._agreed(statements, []) if len(statements) == len(filled) else None

    def _read(self, text: str, dialect: str, carries: bool = False) -> RoutedStatement:
        """The statement as each candidate reads it; those that read it as the first one does.

        Raises:
            NotSupportedError, UnknownName: nobody can read it; the first one says why.
        """
        statements: dict[RouteCandidate, Statement] = {}
        refusals: list[Refusal] = []
        for candidate, shapes in self._shapes.items():
            try:
                statements[candidate] = (
                    split_statement(parse(shown(text), dialect), shapes.schema, shown(text), carries)
                    if carries
                    else shapes.read(shown(text), dialect)
                )
            except (NotSupportedError, UnknownName) as error:
                refusals.append(error)
        if not statements:
            raise refusals[0]
        return self._agreed(statements, refusals)

    def _agreed(self, read: Mapping[RouteCandidate, Statement], refusals: list[Refusal]) -> RoutedStatement:
        """The statements that differ from the first one in their blocks alone."""
        shapes = {c: (s.outer, s.common, s.names, s.carriers, len(s.blocks)) for c, s in read.items()}
        first = next(iter(shapes.values()), None)
        return RoutedStatement({c: s for c, s in read.items() if shapes[c] == first}, refusals)

    def _joined(self, answerer: ReleaseEngine) -> Schema:
        """A schema with the tables, columns and measures of all releases of its population."""
        schema, population = answerer.schema, _population(answerer.release)
        tables, measures = dict(schema.tables), set(schema.measures)
        for peer in self.answerers:
            if peer is not answerer and _population(peer.release) == population:
                measures |= peer.schema.measures
                for name, table in peer.schema.tables.items():
                    tables[name] = _merged(tables[name], table) if name in tables else table
        return replace(schema, tables=tables, measures=frozenset(measures))

    def _told(
        self,
        answer: Result,
        by: Sequence[RouteCandidate],
        seen: Sequence[tuple[RouteCandidate, Rank]],
        left_out: Sequence[str],
    ) -> Result:
        """The answer with who gave it, why, and what all open releases promise together."""
        metas = [answerer.release.meta for answerer in self.answerers]
        names = list(dict.fromkeys(each.name for each in by))
        errors: dict[str, list[float]] = {}
        for candidate, (_, mean_error) in seen:
            errors.setdefault(candidate.name, []).append(mean_error)
        provenance: dict[str, Any] = {
            "routed": {
                "chosen": names[0] if len(names) == 1 else names,
                "because": "smallest mean predicted error",
                "blocks": [each.name for each in by],
                "mean_errors": {
                    name: sum(mean_errors) / len(mean_errors) for name, mean_errors in errors.items()
                },
                "left_out": list(left_out),
                "tests": [test._asdict() for test in self.standing.tests],
                "all_together": promise_together(metas),
            }
        }
        together = list(dict.fromkeys(name for each in by for name in each.names))
        if any(len(each.names) > 1 for each in by):
            provenance["combined"] = together
        rejected = {test.local: test.central for test in self.standing.tests if test.rejected}
        weighted = {each.name for each in by if each.last}
        notes = [
            *(DIFFERS.format(name, rejected[name]) for name in self.names
              if name in rejected and name not in weighted),
            *(f"{name} is left out: it covers only those who reported to it" for name in left_out
              if name not in rejected),
            *(UNTESTED.format(test.local, "; ".join(column.words() for column in test.columns))
              for test in self.standing.tests if not test.compared and test.local in together),
        ]  # fmt: skip
        return replace(
            answer,
            provenance={**answer.provenance, **provenance},
            notes=tuple(dict.fromkeys([*answer.notes, *notes])),
        )

    def words(self) -> list[str]:
        """Population of each release, and the tests, one sentence each."""
        stands = {True: "answers for everybody", False: "answers for those who reported to it"}
        sentences = [
            f"{c.name} {stands[Reads.TOTALS in c.everybody]}"
            + (", weighted to central margins, where nothing else answers" if c.last else "")
            for c in self.standing.candidates
        ]
        return sentences + [test.words() for test in self.standing.tests]

    def explained(self, result: Result) -> list[str]:
        """Routing decision in words, one line a release: its mean error, or the reason against it."""
        routed = result.provenance["routed"]
        errors, taken = routed["mean_errors"], list(dict.fromkeys(routed["blocks"]))
        lines = [f"answered by {name}{_with_error(errors.get(name))}" for name in taken]
        for candidate in self.standing.candidates:
            if candidate.name not in taken:
                lines.append(f"not by {candidate.name}: {self._why_not(candidate, routed)}")
        return [*lines, *(test.words() for test in self.standing.tests)]

    def _why_not(self, candidate: RouteCandidate, routed: dict[str, Any]) -> str:
        if any(test.rejected and test.local == candidate.name for test in self.standing.tests):
            return "its respondents differ from the population"
        if candidate.name in routed["left_out"]:
            return "it covers only those who reported to it"
        error = routed["mean_errors"].get(candidate.name)
        return "it has no view for this" if error is None else f"its error is larger{_with_error(error)}"

    def close(self) -> None:
        """Close what was made of the releases; they themselves stay open."""
        if "standing" in self.__dict__:
            answerer_ids = {id(answerer) for answerer in self.answerers}
            for candidate in self.standing.candidates:
                if id(candidate.answerer) not in answerer_ids:
                    candidate.answerer.release.close()


def _tested(sample: Sample, name: str, references: Sequence[Release]) -> list[SampleTest]:
    """A local release against all that answer for the population."""
    return [
        sample_test(sample, reference, scaled=sample.local.whole)._replace(local=name)
        for reference in references
        if reference is not sample.release
    ]


def _candidate(
    sample: Sample, name: str, answerer: ReleaseEngine, central: Sequence[Release], passed: bool
) -> tuple[RouteCandidate, bool]:
    """A local release's candidate, and whether it may be combined with others."""
    declared = sample.local.sampled or sample.local.whole
    random = sample.local.sampled and passed
    population_release = _raked(sample, central, random) if declared else None
    if population_release is None and random:
        population_release = as_everybody(sample)
    if population_release is not None:
        candidate_answerer = _like(answerer, population_release)
        return RouteCandidate(name, candidate_answerer, frozenset(Reads), (name,), last=not random), random
    stands = PARTICIPATIONS[sample.local.participation if passed else "unknown"].everybody
    return RouteCandidate(name, answerer, stands, (name,)), False


def _raked(sample: Sample, central: Sequence[Release], random: bool) -> Release | None:
    """Respondents weighted to a central release's margins, if that makes them agree with every central release."""
    for release in central:
        raked_release = raked(sample, release, random=random)
        if raked_release is not None:
            again = replace(sample, release=raked_release)
            if not any(sample_test(again, reference, scaled=True).rejected for reference in central):
                return raked_release
            raked_release.close()
    return None


def _with_error(error: float | None) -> str:
    return "" if error is None else f" (mean standard error {error:.4g})"


def _like(answerer: ReleaseEngine, release: Release) -> ReleaseEngine:
    """An answerer of another release, asked as this one is."""
    return ReleaseEngine(release, answerer.timeout, answerer.on_partial_bin)


def _counted_by(population_releases: Sequence[Release], local: Release) -> Release | None:
    """The release that counts everybody best."""
    of = next((statistic.of for statistic in local.statistics), "")
    totals = [(best_total(release, of), release) for release in population_releases]
    errors = [(total.error, i) for i, (total, _) in enumerate(totals) if total is not None]
    return totals[min(errors)[1]][1] if errors else None


def _population(release: Release) -> str:
    return release.catalog.population or str(release.path)


def groups_of(blocks: Sequence[Block]) -> list[list[int]]:
    """Numbers of the blocks over each table of each release that is named."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, block in enumerate(blocks):
        groups.setdefault((block.release, block.root.lower()), []).append(number)
    return list(groups.values())


def _merged(table: SchemaTable, extension: SchemaTable) -> SchemaTable:
    """A table with the columns of another release's."""
    columns = {**extension.columns, **table.columns}
    return replace(
        table,
        columns=columns,
        foreign_keys={**extension.foreign_keys, **table.foreign_keys},
        measures={**extension.measures, **table.measures},
        derived={**extension.derived, **table.derived},
        nullable=table.nullable | extension.nullable,
        types={**extension.types, **table.types},
    )


def rank(relations: Sequence[Relation]) -> tuple[int, float]:
    """Sort key of answers: cells without an error (NULLs, open ends), then mean half-width / 1.96.

    A cell whose interval has an open end counts with the standard error of its noise.
    """
    missing, errors = 0, []
    for relation in relations:
        for value in relation.block.values:
            form = value.subject
            if form is None or not form.sides:
                continue
            cells = relation.errors_of(STDERR, form, DEFAULT_LEVEL)[1] or []
            missing += sum(cell is None for cell in cells)
            noise = (
                relation.errors_of(PARTS["noise"], form, DEFAULT_LEVEL)[1] or [] if None in cells else cells
            )
            known = (drawn if cell is None else cell for cell, drawn in zip(cells, noise, strict=True))
            errors += [cell for cell in known if cell is not None]
    return missing, sum(errors) / len(errors) if errors else 0.0


def _qualifier(name: str) -> str:
    """A release's name as SQL takes it."""
    return name if name.isidentifier() else quoted(name)
