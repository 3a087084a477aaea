"""Releases that are open: several under one connection, what its user has set, and those that this process keeps.

One release answers everything. With several, a table name says which ones may answer: releases whose
catalogs name the same population are alternatives and the smallest predicted error wins, except that those who
reported stand for everybody only where their catalog says so; a schema name (`retail.sales`) picks one release by
its catalog's name. DB-API, the shell and the wire server hold such a session; what a user sets in SQL is a `Settings`
of her own. The functions of `dpsql.api` name a release in each call: it stays open while its file stays the same.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from dpsql.answer.answerer import Answerer
from dpsql.answer.combine import Source, blend, rank, routed
from dpsql.answer.notes import stands_for_everybody
from dpsql.answer.relation import checked
from dpsql.answer.result import Result
from dpsql.answer.sql.settings import read_change
from dpsql.errors import InterfaceError, NotSupportedError, QueryTimeout, UnknownName
from dpsql.release import Release, open_release
from dpsql.release.read import release_file

NOT_COMBINED = (
    "not combined: groups differ, a value has no standard error, or the releases are not independent"
)


class Choice(NamedTuple):
    """Which releases may answer a statement.

    Args:
        sources: their answers, the best first.
        answerers: theirs, in the same order.
        left_out: names of those that answer too, but only for the people who reported to them.
    """

    sources: list[Source]
    answerers: list[Answerer]
    left_out: list[str]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about who does not answer."""
        return tuple(f"{name} is left out: it answers for those who reported to it" for name in self.left_out)


@dataclass(frozen=True)
class OpenReleases:
    """Open releases and their answerers, in the order they were named.

    Args:
        releases: the open files.
        answerers: one for each.
        combine: whether independent answers are averaged by inverse variance.
    """

    releases: tuple[Release, ...]
    answerers: tuple[Answerer, ...]
    combine: bool = False
    _turned: list[OpenReleases] = field(default_factory=list, repr=False, compare=False)

    @property
    def nonnegative(self) -> bool:
        """Whether counts are answered from their non-negative (biased) estimates where a release has them."""
        return self.releases[0].nonnegative

    def with_nonnegative(self, wanted: bool) -> OpenReleases:
        """The same open files, answering counts from these estimates or those; made once, then kept."""
        if wanted == self.nonnegative:
            return self
        if not self._turned:
            releases = tuple(replace(release, nonnegative=wanted) for release in self.releases)
            pairs = zip(releases, self.answerers, strict=True)
            answerers = tuple(Answerer(new, old.timeout, old.on_partial_bin) for new, old in pairs)
            self._turned.append(OpenReleases(releases, answerers, self.combine))
        return self._turned[0]

    def query(self, sql: str, *, dialect: str = "duckdb") -> Result:
        """The answer with the smallest mean predicted error, or with `combine` the estimate from all.

        Args:
            sql: one statement.
            dialect: the SQL dialect it is written in.

        Raises:
            ProgrammingError, NotSupportedError: no release can answer; the first one says why.

        **Privacy**: post-processing; the choice depends on published variances alone.
        """
        if len(self.answerers) == 1:
            return _ask(self.answerers[0], sql, dialect)
        choice = self._choose(sql, dialect)
        sources, opened = choice.sources, [release.meta for release in self.releases]
        best = sources[0].result
        if self.combine:
            blended = blend(sources, opened)
            if blended is not None:
                return replace(blended, notes=(*blended.notes, *choice.notes))
            best = replace(best, notes=(*best.notes, NOT_COMBINED)) if len(sources) > 1 else best
        route = {"routed": routed(sources, choice.left_out, opened)}
        return replace(best, provenance={**best.provenance, **route}, notes=(*best.notes, *choice.notes))

    def explain(self, sql: str, *, dialect: str = "duckdb") -> str:
        """How a statement would be answered, by the release that `query` would take."""
        if len(self.answerers) == 1:
            return self.answerers[0].explain(sql, dialect=dialect)
        choice = self._choose(sql, dialect)
        return "\n".join([choice.answerers[0].explain(sql, dialect=dialect), *choice.notes])

    def _choose(self, sql: str, dialect: str) -> Choice:
        """The releases that may answer, the best first."""
        answers: list[tuple[Source, Answerer]] = []
        refusals: list[NotSupportedError | UnknownName] = []
        answering: list[Release] = []
        for release, answerer in zip(self.releases, self.answerers, strict=True):
            try:
                source = Source(_label(release, self.releases), release.meta, _ask(answerer, sql, dialect))
            except (NotSupportedError, UnknownName) as error:
                refusals.append(error)
            else:
                answers.append((source, answerer))
                answering.append(release)
        if not answers:
            raise refusals[0]
        _check_alternatives(answering)
        kept = (
            answers
            if len(answers) == 1
            else [(s, a) for s, a in answers if stands_for_everybody(s.meta, s.result.reads)]
        )
        if not kept:
            names = [source.name for source, _ in answers]
            raise UnknownName(
                f"several releases ({', '.join(names)}) answer, each for those who reported to it alone",
                hint=f"qualify the tables, for instance {answering[0].name}.table, or open one of them",
            )
        kept = sorted(kept, key=lambda each: rank(each[0]))
        left_out = [each[0].name for each in answers if not any(each[0] is source for source, _ in kept)]
        return Choice([source for source, _ in kept], [answerer for _, answerer in kept], left_out)

    def close(self) -> None:
        """Close every release."""
        for release in self.releases:
            release.close()


@dataclass
class Settings:
    """What one user has set for her session.

    Args:
        nonnegative: answer counts from their non-negative (biased) estimates; None as the releases were opened.
    """

    nonnegative: bool | None = None

    def take(self, text: str) -> str | None:
        """Change a setting, if that is what a statement does.

        Args:
            text: one statement.

        Returns:
            What it did in words, or None if it is about something else.

        Raises:
            ProgrammingError: it names no setting that there is, or a value that it cannot have.
        """
        change = read_change(text)
        if change is None or change.verb == "SHOW":
            return None
        self.nonnegative = change.value
        if change.value is None:
            return "settings are as the session began"
        if not change.value:
            return "dp_nonnegative is off: estimates are unbiased"
        return (
            "dp_nonnegative is on: counts are their non-negative (biased) estimates where a release has them"
        )

    def shown(self, text: str, releases: OpenReleases) -> tuple[str, bool] | None:
        """Name and state of the setting that `SHOW` asks for; None if the statement asks for something else."""
        change = read_change(text)
        if change is None or change.verb != "SHOW":
            return None
        return change.name, releases.nonnegative if self.nonnegative is None else self.nonnegative

    def of(self, releases: OpenReleases) -> OpenReleases:
        """Open releases as this user asks them."""
        return releases if self.nonnegative is None else releases.with_nonnegative(self.nonnegative)


def open_session(
    paths: Sequence[str | os.PathLike[str]],
    *,
    insecure: bool = False,
    on_partial_bin: str | None = None,
    nonnegative: bool = False,
    as_of: int | str | None = None,
) -> OpenReleases:
    """Open releases together.

    Args:
        paths: release files or stream directories, at least one.
        insecure: also open releases that were drawn with test entropy.
        on_partial_bin: `limit`, `interpolate` or `refuse` where a predicate cuts a bin; by default, and where it says
            `refuse`, as each catalog says.
        nonnegative: answer counts from their non-negative (biased) estimates where a release has them.
        as_of: for streams, the newest batch wanted, by number or label; None takes the newest there is.

    Raises:
        InterfaceError: no path, or an unknown word.
        ReleaseError: one cannot be opened; none is left open.
    """
    if not paths:
        raise InterfaceError("no release is named", hint="pass the path of at least one release")
    rule, opened = checked(on_partial_bin), list[Release]()
    try:
        for path in paths:
            opened.append(open_release(Path(path), insecure=insecure, nonnegative=nonnegative, as_of=as_of))
        return OpenReleases(tuple(opened), tuple(Answerer(each, on_partial_bin=rule) for each in opened))
    except BaseException:
        for release in opened:
            release.close()
        raise


def _ask(answerer: Answerer, sql: str, dialect: str) -> Result:
    """Ask; Ctrl-C, which DuckDB turns into a RuntimeError of its own, becomes a typed error."""
    try:
        return answerer.query(sql, dialect=dialect)
    except RuntimeError as error:
        if "interrupted" not in str(error):
            raise
        raise QueryTimeout("the statement was stopped") from error


def _label(release: Release, others: Sequence[Release]) -> str:
    """A release's catalog name, with its file's where several share it."""
    alone = sum(other.name == release.name for other in others) == 1
    return release.name if alone else f"{release.name} ({release.path.name})"


def _check_alternatives(releases: Sequence[Release]) -> None:
    """Releases may answer for each other only if they are about the same people."""
    populations = {release.catalog.population or str(release.path) for release in releases}
    if len(populations) > 1:
        names = ", ".join(release.name for release in releases)
        raise UnknownName(
            f"the tables stand in several releases ({names}) about different people",
            hint=f"qualify them, for instance {releases[0].name}.table",
        )


ReleasePath = str | os.PathLike[str]
MOST_OPEN = 16
"""Releases that a process keeps open for calls that name one each time."""


class State(NamedTuple):
    """A file as it is now, and how it is asked."""

    path: Path
    changed: int
    file: int
    nonnegative: bool


class Opened:
    """Releases that stay open between calls, the least asked forgotten first, and the one asked when none is named.

    A release that is forgotten closes once no answer that came from it is left: answers work out their errors late.
    """

    def __init__(self, most: int) -> None:
        self.most, self.default, self._lock = most, None, threading.Lock()
        self._answerers: OrderedDict[State, Answerer] = OrderedDict()

    default: Path | None

    def answerer(
        self, release: ReleasePath | None, as_of: int | str | None = None, *, nonnegative: bool = False
    ) -> Answerer:
        """The open release; a stream directory is opened anew once it has moved on.

        Args:
            release: a release file or a stream directory; None as in `path`.
            as_of: for streams, the newest batch wanted, by number or label.
            nonnegative: answer counts from their non-negative (biased) estimates where the release has them.

        Raises:
            InterfaceError: none is named.
            ReleaseError: it cannot be opened.
        """
        path = release_file(self.path(release), as_of)
        try:
            found = path.stat()
            state = State(path.resolve(), found.st_mtime_ns, found.st_ino, nonnegative)
        except OSError:
            state = State(path, 0, 0, nonnegative)
        with self._lock:
            if state not in self._answerers:
                self._forget_older(state)
                self._answerers[state] = Answerer(open_release(path, nonnegative=nonnegative))
            self._answerers.move_to_end(state)
            while len(self._answerers) > self.most:
                self._answerers.popitem(last=False)
            return self._answerers[state]

    def _forget_older(self, state: State) -> None:
        """Close what a path held before: DuckDB would go on answering from it."""
        older = [s for s in self._answerers if s.path == state.path and s[1:3] != state[1:3]]
        for each in older:
            self._answerers.pop(each).release.close()

    def path(self, release: ReleasePath | None) -> Path:
        """The release meant: the one named, `$DPSQL_RELEASE`, or the one set by `use`.

        Raises:
            InterfaceError: none of them.
        """
        found = release or os.environ.get("DPSQL_RELEASE") or self.default
        if found is None:
            raise InterfaceError(
                "no release is named", hint="pass release=, set DPSQL_RELEASE, or call dpsql.use(path)"
            )
        return Path(found)

    def close(self) -> None:
        """Close all of them, and forget the one asked when none is named."""
        with self._lock:
            while self._answerers:
                self._answerers.popitem()[1].release.close()
            self.default = None


OPENED = Opened(MOST_OPEN)
"""The process's own."""
answerer = OPENED.answerer


def use(release: ReleasePath) -> None:
    """Make a release the one that is asked when none is named.

    Raises:
        ReleaseError: it cannot be opened.
    """
    answerer(release)
    OPENED.default = Path(release)
