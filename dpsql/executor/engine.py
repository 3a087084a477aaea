"""The whole way from SQL text to a Result, with its caches. Read this first.

text -> guard, parse, whitelist -> blocks + outer statement     (sql/)
block -> view and leaves -> node lists -> one DuckDB statement  (plan, recombine)
relations of groups -> outer statement, run by DuckDB           (outer)
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import duckdb

from dpsql.errors import (
    DataError,
    Error,
    NotSupportedError,
    NoViewError,
    PartialBinError,
    ProgrammingError,
    ReleaseError,
    SqlSyntaxError,
    visible,
)
from dpsql.executor.explain import decomposition, explain_relation
from dpsql.executor.outer import OuterStatement
from dpsql.executor.relation import Relation, answer_block
from dpsql.intervals.partial_bins import PartialBin, coarse_notes
from dpsql.planner.answerability import entropy_caveat, estimates_kind, listings, shown
from dpsql.planner.block import Block
from dpsql.planner.notes import Note, reads_of
from dpsql.planner.schema import Schema, read_schema
from dpsql.release import Release
from dpsql.release.format import StatisticMeta, to_json
from dpsql.release.request import LIMIT, requested
from dpsql.results.result import Result
from dpsql.sql.added import bit_offsets
from dpsql.sql.parse import parse, pointed
from dpsql.sql.rewrite import split_statement
from dpsql.sql.statement import Statement
from dpsql.sql.statement_cache import Shapes

CACHED = 256
MAX_ROWS_CACHED = 10_000
SIMULATED = "made of simulated reports: it shows what a collection would bring, and protects nobody"


@dataclass
class ReleaseEngine:
    """One open release and what has been asked of it. Safe to use from several threads.

    Args:
        release: an open release.
        timeout: seconds until a statement is stopped.
        on_partial_bin: what is done with bins that a predicate cuts; None as the catalog says.
    """

    release: Release
    timeout: float = LIMIT
    on_partial_bin: PartialBin | None = None
    schema: Schema = field(init=False)
    _results: OrderedDict[tuple[str, str], Result] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.schema = read_schema(self.release)
        self._shapes = Shapes(self.schema)

    def query(self, text: str, *, dialect: str = "") -> Result:
        """Answer one statement.

        Args:
            text: SQL.
            dialect: how to read it; by default DuckDB's and Postgres's.

        Returns:
            The answer.

        Raises:
            dpsql.errors.Error: typed, one line, with the clause, its place and what to do.

        **Privacy**: post-processing of a release; costs nothing.
        """
        key = (text, dialect)
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        try:
            with requested(self.timeout):
                answer = self._answer(text, dialect)
        except Error as error:
            raise pointed(error, text) if isinstance(text, str) else error from error.__cause__
        except RecursionError as error:
            raise SqlSyntaxError(
                "the statement has a chain of operators that is too long", hint="shorten it"
            ) from error
        except duckdb.Error as error:
            raise ReleaseError(
                f"{self.release.path} is damaged ({type(error).__name__})",
                hint="ask its curator for a fresh copy",
            ) from error
        if len(answer.rows) <= MAX_ROWS_CACHED and "moment" not in answer.provenance:
            with self._lock:
                self._results[key] = answer
                while len(self._results) > CACHED:
                    self._results.popitem(last=False)
        return answer

    def explain(self, text: str, *, dialect: str = "") -> str:
        """The plan of a statement as numbered stages, the DuckDB statements last."""
        return "\n".join(self.query(text, dialect=dialect).plan)

    def _answer(self, text: str, dialect: str) -> Result:
        shown_text = shown(text)
        filled = self._shapes.filled(shown_text, dialect)
        if filled is not None:
            # said anew, with its place in this text
            with suppress(ProgrammingError, NotSupportedError, DataError):
                return self._put_together(filled)
        statement = self._shapes.read(shown_text, dialect)
        try:
            return self._put_together(statement)
        except NoViewError:
            if (answer := self._of_times(shown_text, dialect)) is not None:
                return answer
            if not statement.block_errors:
                raise
        carried = split_statement(parse(shown_text, dialect), self.schema, shown_text, carries=True)
        return self._put_together(carried)  # a value of two views has an error that no one of them knows

    def _of_times(self, text: str, dialect: str) -> Result | None:
        """The answer from views of times themselves, where those of their fields have none; None: nor have they."""
        if self.schema.fields:
            schema = replace(self.schema, fields={})
            # of the columns that views have, said before
            with suppress(ProgrammingError, NotSupportedError, DataError):
                return self._put_together(split_statement(parse(text, dialect), schema, text))
        return None

    def _put_together(self, statement: Statement) -> Result:
        relations, by = [self.answer_block(block) for block in statement.blocks], self
        read = [statistic for relation in relations for statistic in statistics_read(relation)]
        preferred = bool(read) and all(statistic.preferred for statistic in read)  # one kind for all
        if self.release.nonnegative is None and preferred:
            by = self.positive
            relations = [by.answer_block(block) for block in statement.blocks]
        return assemble_result(statement, relations, [by] * len(relations), by)

    @cached_property
    def positive(self) -> ReleaseEngine:
        """The same release, answering counts from non-negative estimates."""
        return ReleaseEngine(replace(self.release, nonnegative=True), self.timeout, self.on_partial_bin)

    def answer_block(self, block: Block) -> Relation:
        """The relation of a block's groups.

        Raises:
            NoViewError, NotSupportedError: no view answers it.
        """
        return answer_block(block, self.release, self.schema, self.on_partial_bin)


def assemble_result(
    statement: Statement, relations: Sequence[Relation], by: Sequence[ReleaseEngine], runs: ReleaseEngine
) -> Result:
    """A statement's answer from those of its blocks.

    Args:
        statement: the statement.
        relations: one for each block.
        by: who answered each.
        runs: whose limits the outer statement has.

    Raises:
        PartialBinError: the statement builds on groups that also count others.
    """
    lines = (line for r in relations for answered in r.answered for line in coarse_notes(answered.plan))
    line = next(lines, None)
    # Groups that also count others are shown row by row; a sum over their keys would be of other rows than its words.
    if line is not None and not (statement.direct or (statement.carriers == (0,) and len(relations) == 1)):
        raise PartialBinError(
            f"{line}, and the statement builds on these groups",
            hint="ask for the groups by themselves, or in bins that the view has",
        )
    outer = OuterStatement(
        statement, tuple(relations), partial(listings, runs.release, runs.schema, statement), runs.timeout
    )
    answer = outer.answer
    shown = tuple(row[: len(statement.names)] for row in answer.rows)

    releases = [
        answerer.release for answerer in by
    ]  # not the answerers: results outlive them, and they keep results
    seconds = runs.timeout

    def stages() -> tuple[str, ...]:
        lines, statements = list[str](), list[str]()
        with requested(seconds):
            for number, (relation, release) in enumerate(zip(relations, releases, strict=True)):
                block_lines, block_statements = explain_relation(number, relation, release)
                lines += block_lines
                statements += block_statements
        lines += [f"no error for {name}: {why}" for name, why in outer.undefined.items()]
        lines += [f"DuckDB: {sql}" for sql in (*statements, statement.text)]
        return tuple(f"{i}. {line}" for i, line in enumerate(lines, 1))

    simulated = any(r.meta.local is not None and r.meta.local.simulated for r in (runs.release, *releases))
    stamp = [Note(SIMULATED)] if simulated else []
    stamp += (
        [Note(f"the time is {statement.moment} UTC, when the statement began")] if statement.moment else []
    )
    mapped = [Note(text, flag=True) for text in statement.notes]
    all_notes = [note for relation in relations for note in relation.notes]
    for relation, offset in zip(relations, bit_offsets(statement.blocks), strict=True):
        all_notes += relation.text_notes(statement.key_texts, offset)
    all_notes += [*outer.notes, *mapped, *stamp]
    # notes repeat texts of statements and keys that anybody may have chosen
    notes = list(dict.fromkeys(Note(visible(text), flag) for text, flag in all_notes))
    positive = any(release.nonnegative is not None for release in releases) and any(
        release.estimate(statistic.id) == "nonnegative"
        for release, relation in zip(releases, relations, strict=True)
        for statistic in statistics_read(relation)
    )
    fitted = any(
        entropy_caveat(answered.plan, list(answered.totals), release)
        for release, relation in zip(releases, relations, strict=True)
        for answered in relation.answered
    )
    origin = provenance(runs.release, relations) | {"estimates": estimates_kind(positive, fitted)}
    origin |= {"moment": str(statement.moment)} if statement.moment else {}

    def decompositions() -> list[dict[str, Any]]:
        blocks = enumerate(zip(relations, releases, strict=True))
        with requested(seconds):
            return [decomposition(number, relation, release) for number, (relation, release) in blocks]

    return Result(
        statement.names, answer.types, shown, origin, tuple(n.text for n in notes), outer.grid,
        stages, reads_of(statement.blocks), tuple(n.text for n in notes if n.flag), statement.ordered,
        lambda: outer.undefined, lambda: outer.moved, decompositions,
    )  # fmt: skip


def statistics_read(relation: Relation) -> list[StatisticMeta]:
    """The statistics that a block's answer is made of."""
    return [
        answered.plan.view.statistics[term.measure]
        for answered in relation.answered
        for term in answered.totals
    ]


def provenance(release: Release, relations: Sequence[Relation]) -> dict[str, Any]:
    """Provenance of an answer: release, privacy promise and views."""
    views = [a.plan.view.name for relation in relations for a in relation.answered if a.plan.view.statistics]
    prefixes = (
        prefix for relation in relations for _, groups in relation.prefixes.values() for prefix in groups
    )
    views += [prefix.view for prefix in prefixes]
    notes = [note.text for relation in relations for note in relation.notes]
    facts = release.kept("provenance", partial(_release_facts, release))
    return {**facts, "views": list(dict.fromkeys(views)), "notes": notes}


def _release_facts(release: Release) -> dict[str, Any]:
    """Provenance that all answers of a release share."""
    local, arrived = release.meta.local, release.meta.stream
    collected: dict[str, Any] = {} if local is None else {"local": to_json(local)}
    collected |= {"simulated": True} if local is not None and local.simulated else {}
    stream = {} if arrived is None else {"as_of_batch": arrived.as_of_batch, "as_of": arrived.as_of}
    privacy, reported = release.meta.privacy, []
    for column in release.meta.reported:  # what her device promises to a person, and what the release does
        reported.append(
            {
                **to_json(column),
                "promise": {
                    "curator": f"epsilon {column.epsilon_local}, replace one value",
                    "analysts": f"epsilon {privacy.epsilon}, {privacy.neighbours}: rows and report together",
                },
            }
        )
    return {
        **({"reported": reported} if reported else {}),
        "release": release.meta.release_id,
        "signer": None if release.signer is None else str(release.signer),
        "catalog": release.name,
        "privacy": to_json(privacy),
        "views": [],
        "scale": {table: to_json(scale) for table, scale in release.scales.items()},
        "notes": [],
        **collected,
        **stream,
    }
