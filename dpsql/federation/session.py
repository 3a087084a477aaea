"""Releases that are open: several under one connection, what its user has set, and those that this process keeps.

One release answers everything. With several, a table name says which ones may answer: releases whose
catalogs name the same population are alternatives (`dpsql.federation.route`); a schema name (`retail.sales`) picks one
release by its catalog's name. DB-API, the shell and the wire server hold such a session; what a user sets in SQL is a
`Settings` of her own. The functions of `dpsql.api` name a release in each call: it stays open while its file stays the
same.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from dpsql.errors import InterfaceError, QueryTimeout
from dpsql.executor.engine import ReleaseEngine
from dpsql.federation.route import Router
from dpsql.intervals.partial_bins import checked
from dpsql.release import Release, open_release
from dpsql.release.promises import raised_min_people
from dpsql.release.read import release_file
from dpsql.release.request import requested
from dpsql.release.signature import required_signers
from dpsql.results.result import Result, hide
from dpsql.sql.settings import SETTINGS, read_change


@dataclass(frozen=True)
class OpenReleases:
    """Open releases and their answerers, in the order they were named.

    Args:
        releases: the open files.
        answerers: one for each.
        combine: whether what independent releases hold alike is put together.
    """

    releases: tuple[Release, ...]
    answerers: tuple[ReleaseEngine, ...]
    combine: bool = False
    _turned: dict[bool, OpenReleases] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def router(self) -> Router | None:
        """Router over the open releases; None where one release answers everything."""
        local = self.releases[0].meta.local
        if len(self.answerers) == 1 and (local is None or local.everybody is None):
            return None
        names = tuple(_label(release, self.releases) for release in self.releases)
        return Router(self.answerers, names, self.combine)

    @property
    def nonnegative(self) -> bool | None:
        """True if counts are answered from their non-negative (biased) estimates; None as each release prefers."""
        return self.releases[0].nonnegative

    def with_nonnegative(self, wanted: bool) -> OpenReleases:
        """The same open files, answering counts from these estimates or those; made once each, then kept."""
        if wanted == self.nonnegative:
            return self
        if wanted not in self._turned:
            releases = tuple(replace(release, nonnegative=wanted) for release in self.releases)
            pairs = zip(releases, self.answerers, strict=True)
            answerers = tuple(ReleaseEngine(new, old.timeout, old.on_partial_bin) for new, old in pairs)
            self._turned[wanted] = OpenReleases(releases, answerers, self.combine)
        return self._turned[wanted]

    def query(self, sql: str, *, dialect: str = "duckdb") -> Result:
        """The answer of whoever errs least, block by block; with `combine` also of tables that several hold together.

        Args:
            sql: one statement.
            dialect: the SQL dialect it is written in.

        Raises:
            ProgrammingError, NotSupportedError: no release can answer; the first one says why.

        **Privacy**: post-processing; the choice depends on published numbers alone.
        """
        router = self.router
        with requested(self.answerers[0].timeout):
            try:
                if router is None:
                    return self.answerers[0].query(sql, dialect=dialect)
                return router.query(sql, dialect)
            except RuntimeError as error:  # DuckDB's own of Ctrl-C, which no type tells from others
                if "interrupted" not in str(error):
                    raise
                raise QueryTimeout("the statement was stopped") from error

    def explain(self, sql: str, *, dialect: str = "duckdb") -> str:
        """Explain a statement: the chosen release and the reason, then numbered stages in words."""
        return "\n".join(self.stages(self.query(sql, dialect=dialect)))

    def stages(self, answer: Result) -> Sequence[str]:
        """Stages of an answer, in words."""
        if self.router is None:
            return answer.plan
        return [*self.router.explained(answer), *answer.plan, *answer.notes]

    def close(self) -> None:
        if "router" in self.__dict__ and self.router is not None:
            self.router.close()
        for release in self.releases:
            release.close()


@dataclass
class Settings:
    """Session settings of one user.

    Args:
        nonnegative: answer counts from their non-negative (biased) estimates; None as the releases were opened.
        min_relative_error: suppress groups as noise from here on; None hides none.
        errors: put the ends of its interval beside each noisy column.
        rounds: answer counts as whole numbers; None as True.
    """

    nonnegative: bool | None = None
    min_relative_error: float | None = None
    errors: bool | None = None
    rounds: bool | None = None

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
        for name in [change.name] if change.name else SETTINGS:
            setattr(self, SETTINGS[name].field, change.value)
        if change.value is None:
            return "settings are as the session began"
        setting = SETTINGS[change.name]
        return f"{change.name} is {setting.state(change.value)}: {setting.does(change.value)}"

    def shown(self, text: str, releases: OpenReleases) -> tuple[str, str] | None:
        """Name and state of the setting that `SHOW` asks for; None if the statement asks for something else."""
        change = read_change(text)
        if change is None or change.verb != "SHOW":
            return None
        setting = SETTINGS[change.name]
        value = getattr(self, setting.field)
        if value is None and setting.field == "nonnegative":
            value = releases.nonnegative
        return change.name, setting.state(value)

    @property
    def telling(self) -> bool:
        """True if answers are other than they would be without settings."""
        return bool(self.nonnegative) or self.min_relative_error is not None

    def of(self, releases: OpenReleases) -> OpenReleases:
        """Open releases as this user asks them."""
        return releases if self.nonnegative is None else releases.with_nonnegative(self.nonnegative)

    def query(self, releases: OpenReleases, sql: str, *, dialect: str = "duckdb") -> Result:
        """Answer a statement for this user; arguments as `OpenReleases.query`."""
        with requested():
            answer = self.of(releases).query(sql, dialect=dialect)
            if self.min_relative_error is not None:
                answer = hide(answer, self.min_relative_error)
            answer = answer if self.rounds is False else answer.rounded()
            return answer.with_intervals() if self.errors else answer


def open_session(
    paths: Sequence[str | os.PathLike[str]],
    *,
    insecure: bool = False,
    on_partial_bin: str | None = None,
    nonnegative: bool | None = None,
    as_of: int | str | None = None,
    require_signature: str | None = None,
) -> OpenReleases:
    """Open releases together.

    Args:
        paths: release files or stream directories, at least one.
        insecure: also open releases that were drawn with test entropy.
        on_partial_bin: `limit`, `interpolate` or `refuse` where a predicate cuts a bin; by default, and where it says
            `refuse`, as each catalog says.
        nonnegative: answer counts from their non-negative (biased) estimates where a release has them, or from
            unbiased ones; None as each release prefers, several together unbiased.
        as_of: for streams, the newest batch wanted, by number or label; None takes the newest there is.
        require_signature: a public key, or a file with one a line, of which one must have signed each release; None
            takes `$DPSQL_REQUIRE_SIGNATURE`.

    Raises:
        InterfaceError: no path, or an unknown word.
        ReleaseError: one cannot be opened; none is left open.
    """
    if not paths:
        raise InterfaceError("no release is named", hint="pass the path of at least one release")
    rule, opened = checked(on_partial_bin), list[Release]()
    signers = required_signers(require_signature)
    kind = False if nonnegative is None and len(paths) > 1 else nonnegative
    try:
        for path in paths:
            opened.append(
                open_release(Path(path), insecure=insecure, nonnegative=kind, as_of=as_of, signers=signers)
            )
        return OpenReleases(
            tuple(opened), tuple(ReleaseEngine(release, on_partial_bin=rule) for release in opened)
        )
    except BaseException:
        for release in opened:
            release.close()
        raise


def _label(release: Release, releases: Sequence[Release]) -> str:
    """A release's catalog name, with its file's where several share it."""
    alone = sum(peer.name == release.name for peer in releases) == 1
    return release.name if alone else f"{release.name} ({release.path.name})"


ReleasePath = str | os.PathLike[str]
MOST_OPEN = 16
"""Releases that a process keeps open for calls that name one each time."""


class FileState(NamedTuple):
    """A file as it is now, and how it is asked."""

    path: Path
    changed: int
    file: int
    nonnegative: bool | None
    signers: frozenset[str] | None
    min_people: int


class ReleaseCache:
    """Releases that stay open between calls, the least asked forgotten first, and the one asked when none is named.

    A release that is forgotten closes once no answer that came from it is left: answers work out their errors late.
    """

    def __init__(self, most: int) -> None:
        self.most, self.default, self._lock = most, None, threading.Lock()
        self._answerers: OrderedDict[FileState, ReleaseEngine] = OrderedDict()
        self._sessions: OrderedDict[tuple[object, ...], OpenReleases] = OrderedDict()
        self._paths: OrderedDict[tuple[Path, int, int], Path] = OrderedDict()

    default: Path | None

    def answerer(
        self, release: ReleasePath | None, as_of: int | str | None = None, *, nonnegative: bool | None = None
    ) -> ReleaseEngine:
        """The open release; a stream directory is opened anew once it has moved on.

        Args:
            release: a release file or a stream directory; None as in `path`.
            as_of: for streams, the newest batch wanted, by number or label.
            nonnegative: answer counts from their non-negative (biased) estimates where the release has them, or from
                unbiased ones; None as the release prefers.

        Raises:
            InterfaceError: none is named.
            ReleaseError: it cannot be opened.
        """
        path, signers, least = (
            release_file(self.path(release), as_of),
            required_signers(),
            raised_min_people(),
        )
        try:
            status = path.stat()
            # cached by the file behind the path: resolving links looks into every folder
            with self._lock:
                resolved = self._paths.get((path, status.st_dev, status.st_ino))
            if resolved is None:
                resolved = path.resolve()
                with self._lock:
                    self._paths[path, status.st_dev, status.st_ino] = resolved
                    while len(self._paths) > 4 * self.most:
                        self._paths.popitem(last=False)
            state = FileState(resolved, status.st_mtime_ns, status.st_ino, nonnegative, signers, least)
        except OSError:
            state = FileState(path, 0, 0, nonnegative, signers, least)
        with self._lock:
            if state not in self._answerers:
                # what the path held before is closed: DuckDB would go on answering from it
                for older in [s for s in self._answerers if s.path == state.path and s[1:3] != state[1:3]]:
                    self._answerers.pop(older).release.close()
                self._answerers[state] = ReleaseEngine(
                    open_release(path, nonnegative=nonnegative, signers=signers)
                )
            self._answerers.move_to_end(state)
            while len(self._answerers) > self.most:
                self._answerers.popitem(last=False)
            return self._answerers[state]

    def session(
        self,
        releases: ReleasePath | Sequence[ReleasePath] | None,
        as_of: int | str | None = None,
        *,
        nonnegative: bool | None = None,
        combine: bool = False,
    ) -> OpenReleases:
        """Releases that are asked together, one or several, as `connect` asks them.

        Args:
            releases: their paths; None as in `path`.
            as_of, nonnegative: as for `answerer`.
            combine: whether what independent releases hold alike is put together.

        Raises:
            InterfaceError: none is named.
            ReleaseError: one cannot be opened.
        """
        alone = releases is None or isinstance(releases, str | os.PathLike)
        paths: list[ReleasePath | None] = [releases] if alone else list(releases)  # type: ignore[list-item, arg-type]
        if not paths:
            raise InterfaceError("no release is named", hint="pass the path of at least one release")
        answerers = tuple(self.answerer(path, as_of, nonnegative=nonnegative) for path in paths)
        key = (*map(id, answerers), combine)
        with self._lock:
            if key not in self._sessions:
                opened = tuple(answerer.release for answerer in answerers)
                self._sessions[key] = OpenReleases(opened, answerers, combine)
            self._sessions.move_to_end(key)
            while len(self._sessions) > self.most:
                self._sessions.popitem(last=False)
            return self._sessions[key]

    def path(self, release: ReleasePath | None) -> Path:
        """The release meant: the one named, `$DPSQL_RELEASE`, or the one set by `use`.

        Raises:
            InterfaceError: none of them.
        """
        release_path = release or os.environ.get("DPSQL_RELEASE") or self.default
        if release_path is None:
            raise InterfaceError(
                "no release is named", hint="pass release=, set DPSQL_RELEASE, or call dpsql.use(path)"
            )
        return Path(release_path)

    def close(self) -> None:
        """Close all of them, and forget the one asked when none is named."""
        with self._lock:
            self._sessions.clear()
            while self._answerers:
                self._answerers.popitem()[1].release.close()
            self.default = None


OPENED = ReleaseCache(MOST_OPEN)
"""The process's own."""
answerer = OPENED.answerer
opened = OPENED.session


def use(release: ReleasePath) -> None:
    """Make a release the one that is asked when none is named.

    Raises:
        ReleaseError: it cannot be opened.
    """
    answerer(release)
    OPENED.default = Path(release)
