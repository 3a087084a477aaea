"""Kinds of statements: a question for the releases, a catalogue query, a setting, a cursor, or a word to
acknowledge."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb

from dpsql.errors import Error, NotSupportedError, ProgrammingError, SqlSyntaxError
from dpsql.federation.session import OpenReleases, Settings
from dpsql.interfaces.pgwire.catalogue import Catalogue, CatalogueRows
from dpsql.interfaces.pgwire.cursors import (
    COPY,
    DECLARE,
    FETCH,
    CopyForm,
    DeclaredCursor,
    bare,
    copy_form,
    no_cursor,
)
from dpsql.interfaces.pgwire.duckdb_ast import parse
from dpsql.interfaces.pgwire.parameters import bind, infer, without_array_casts
from dpsql.interfaces.pgwire.protocol import StatementRefused, WireColumn
from dpsql.interfaces.pgwire.rewrite import names_of
from dpsql.interfaces.pgwire.values import TYPES, oid_of
from dpsql.interfaces.pgwire.variables import REPORTED, Variables
from dpsql.interfaces.python.scan import LEADING, TOKEN
from dpsql.planner.views import shown
from dpsql.release.request import size_of
from dpsql.results.render import margin_lines

NODS = {
    "BEGIN": "BEGIN", "START": "BEGIN", "COMMIT": "COMMIT", "END": "COMMIT", "ROLLBACK": "ROLLBACK",
    "ABORT": "ROLLBACK", "SAVEPOINT": "SAVEPOINT", "RELEASE": "RELEASE", "LISTEN": "LISTEN", "UNLISTEN": "UNLISTEN",
}  # fmt: skip
"""Statements that drivers send and that change nothing here: the tag that answers each."""
SILENT = frozenset({*NODS, "SET", "PRAGMA", "RESET", "DISCARD", "DEALLOCATE", "CLOSE", "DECLARE", "MOVE", "COPY",
                    "PREPARE"})  # fmt: skip
"""Words that begin statements without columns."""
CATALOGUE = re.compile(
    r'\bpg_\w+|\binformation_schema"?\s*\.\s*"?(?!dp_)|\b_pg_expandarray\b|\bcurrent_schemas\b|\bcurrent_setting\b',
    re.IGNORECASE,
)
FROM = re.compile(r"\bFROM\b", re.IGNORECASE)
GIVEN = re.compile(r"(?:^|\s)(?:-c\s*|--)(\w+=[^\s;]+)")
PREPARE = re.compile(r'PREPARE\s+("[^"]+"|\w+)\s*(?:\(([^)]*)\))?\s*AS\s+(.*)', re.IGNORECASE | re.DOTALL)
EXECUTE = re.compile(r'EXECUTE\s+("[^"]+"|\w+)\s*(?:\((.*)\))?', re.IGNORECASE | re.DOTALL)
EXPLAIN = re.compile(r"EXPLAIN\s+(?:\([^)]*\)\s*|ANALYZE\s+|VERBOSE\s+)*(.*)", re.IGNORECASE | re.DOTALL)
NUMBER = re.compile(r'"(?:[^"]|"")*"|(?<![\w$."])\d+(?:\.\d+)?')
MOST_CALLED, LONGEST_CALLED = 512, 4096
"""Shapes of statements whose columns' names are kept, and characters of one: what clients send fills no memory."""
MOST_PREPARED, MOST_PREPARED_TEXT, MOST_CURSORS, MOST_TOLD = 1000, 2**22, 64, 256
"""Of one client: prepared statements, their characters, cursors that are open, and flags that are sent once."""


@dataclass(frozen=True)
class WireAnswer:
    """Rows with their columns, or a bare tag.

    Args:
        tag: what CommandComplete says, without the number of rows.
        columns: None for a bare tag.
        rows: Python values.
        flags: what the client is told beside the rows.
        standing: flags that other answers have too; a connection is told each once.
        copy: how the rows are written as a file; None for rows.
        reported: names and values of settings that have changed.
    """

    tag: str
    columns: tuple[WireColumn, ...] | None = None
    rows: Sequence[tuple[Any, ...]] = ()
    flags: tuple[str, ...] = ()
    standing: tuple[str, ...] = ()
    copy: CopyForm | None = None
    reported: tuple[tuple[str, str], ...] = ()


@dataclass
class SessionState:
    """Session state of one client: settings, prepared statements, cursors.

    Args:
        settings: of dpsql.
        variables: of PostgreSQL.
        prepared: statements by name.
        cursors: by name.
        told: flags of answers, of which each is sent once.
    """

    settings: Settings = field(default_factory=Settings)
    variables: Variables = field(default_factory=Variables)
    prepared: dict[str, tuple[str, list[int]]] = field(default_factory=dict)
    cursors: dict[str, DeclaredCursor] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def news(self, answer: WireAnswer) -> list[str]:
        """Flags of an answer that the client has not seen; DISCARD, which a pool sends, begins anew."""
        fresh = [flag for flag in dict.fromkeys(answer.standing) if flag not in self.told]
        if len(self.told) + len(fresh) > MOST_TOLD:
            self.told.clear()
        self.told.update(fresh)
        return [*fresh, *answer.flags]

    @property
    def size(self) -> int:
        """Bytes of the rows of open cursors."""
        return sum(cursor.size for cursor in self.cursors.values())

    def prepare(self, name: str, sql: str, oids: list[int]) -> None:
        """Keep a statement.

        Raises:
            ProgrammingError: there are too many, or they are too long.
        """
        if len(self.prepared) >= MOST_PREPARED and name not in self.prepared:
            raise ProgrammingError(f"more than {MOST_PREPARED} prepared statements", hint="close some")
        if len(sql) + sum(len(text) for text, _ in self.prepared.values()) > MOST_PREPARED_TEXT:
            raise ProgrammingError("the prepared statements are too long", hint="close some")
        self.prepared[name] = sql, oids

    def statement(self, name: str) -> tuple[str, list[int]]:
        """A kept statement, and the types of its parameters.

        Raises:
            StatementRefused: there is none of that name.
        """
        if name not in self.prepared:
            raise StatementRefused("26000", f"there is no prepared statement {name!r}", hint="parse it first")
        return self.prepared[name]

    def end_transaction(self) -> None:
        """Close the cursors that do not outlive their transaction."""
        self.cursors = {name: cursor for name, cursor in self.cursors.items() if cursor.hold}


@dataclass(frozen=True)
class Backend:
    """Backend that runs statements.

    Args:
        releases: that answer.
        catalogue: of what drivers ask about the star.
        columns: OIDs of the star's columns by name in lower case.
        called: names of unnamed columns, by a statement's text without its constants and by its answer's columns.
    """

    releases: OpenReleases
    catalogue: Catalogue
    columns: Mapping[str, int] = field(default_factory=dict)
    called: dict[tuple[str, tuple[str, ...]], Sequence[str]] = field(default_factory=dict)

    def parameter_oids(self, sql: str) -> dict[int, int]:
        """Types of the parameters of a statement, as `parameters.infer`."""
        return infer(self.catalogue.connection.cursor(), sql, self.columns)

    def run(self, sql: str, state: SessionState) -> WireAnswer:
        """WireAnswer one statement.

        Args:
            sql: without placeholders; blank gives an answer without a tag.
            state: of the client who asks; the statement may change it.

        Raises:
            dpsql.errors.Error: it cannot be answered.
        """
        bare_sql = _bare(sql)
        if not bare_sql:
            return WireAnswer("")
        if notice := state.settings.take(bare_sql):
            word = _first_word(bare_sql)
            if word in ("RESET", "DISCARD"):
                state.variables.reset(bare_sql)
                state.told.clear()
            return WireAnswer(
                "RESET" if word in ("RESET", "DISCARD") else "SET",
                flags=(notice,) if state.settings.telling else (),
            )
        command = COMMANDS.get(_first_word(bare_sql))
        return command(self, bare_sql, state) if command else self._query(bare_sql, state)

    def describe(self, sql: str, state: SessionState) -> WireAnswer:
        """The columns of a statement; its rows are not wanted.

        Raises:
            dpsql.errors.Error: it cannot be answered.
        """
        bare_sql = _bare(sql)
        if match := FETCH.fullmatch(bare_sql):  # which would move the cursor
            cursor = state.cursors.get(bare(match["name"]))
            if cursor is None:
                raise no_cursor(bare(match["name"]))
            return WireAnswer("FETCH", cursor.answer.columns)
        if _first_word(bare_sql) not in COMMANDS and CATALOGUE.search(_outside_of_strings(bare_sql)):
            return _catalogue_answer(self.catalogue.query(bare_sql, described=True))
        return self.run(sql, state)

    def _query(self, sql: str, state: SessionState) -> WireAnswer:
        outside = _outside_of_strings(sql)
        if CATALOGUE.search(outside):
            return _catalogue_answer(self.catalogue.query(sql))
        if not FROM.search(outside):
            try:
                return _catalogue_answer(self.catalogue.query(sql))
            except Error:  # a constant that only an answer knows, such as DP_STDERR
                return self._release_answer(sql, outside, state)
        return self._release_answer(sql, outside, state)

    def _release_answer(self, sql: str, outside: str, state: SessionState) -> WireAnswer:
        answer = state.settings.query(self.releases, without_array_casts(sql), dialect="postgres")
        names = self._names(sql, outside, tuple(answer.columns))
        return replace(
            _answer(names, answer.types, answer.rows), flags=margin_lines(answer), standing=answer.flags
        )

    def _names(self, sql: str, outside: str, names: tuple[str, ...]) -> Sequence[str]:
        """Columns without a name are called as PostgreSQL calls them, whatever the statement's constants."""
        if not any("(" in name for name in names):
            return names
        if len(outside) > LONGEST_CALLED:
            return self._named(sql, names)
        shape = NUMBER.sub(_without_number, outside), names
        if shape not in self.called:
            if len(self.called) >= MOST_CALLED:
                self.called.clear()
            self.called[shape] = self._named(sql, names)
        return self.called[shape]

    def _named(self, sql: str, names: tuple[str, ...]) -> Sequence[str]:
        try:
            called = names_of(parse(self.catalogue.connection.cursor(), sql))
        except (Error, duckdb.Error):
            return names
        if len(called) != len(names) or None in called:
            return names
        return [word if "(" in name and word else name for name, word in zip(names, called, strict=True)]

    def _begin_or_end(self, sql: str, state: SessionState) -> WireAnswer:
        tag = NODS[_first_word(sql)]
        if tag in ("COMMIT", "ROLLBACK") and not returns_to_savepoint(sql):
            state.end_transaction()
        return WireAnswer(tag)

    def _set(self, sql: str, state: SessionState) -> WireAnswer:
        name = state.variables.set(sql)
        return WireAnswer("SET", reported=((name, state.variables.values[name]),) if name in REPORTED else ())

    def _reset(self, sql: str, state: SessionState) -> WireAnswer:
        state.variables.reset(sql)
        return WireAnswer("RESET")

    def _discard(self, sql: str, state: SessionState) -> WireAnswer:
        state.variables.reset("RESET ALL")
        state.cursors.clear()
        state.prepared.clear()
        return WireAnswer("DISCARD ALL")

    def _show(self, sql: str, state: SessionState) -> WireAnswer:
        if shown(sql) != sql:
            return self._query(sql, state)
        if ours := state.settings.shown(sql, self.releases):
            return _answer((ours[0],), ("VARCHAR",), [(ours[1],)], tag="SHOW")
        setting = sql[4:].strip().strip('"').lower()
        values = state.variables.show(setting)
        if setting == "all":
            kinds = ("VARCHAR",) * 3
            return _answer(
                ("name", "setting", "description"), kinds, [(*pair, "") for pair in values], tag="SHOW"
            )
        return _answer((values[0][0],), ("VARCHAR",), [(values[0][1],)], tag="SHOW")

    def _declare(self, sql: str, state: SessionState) -> WireAnswer:
        match = DECLARE.fullmatch(sql)
        if match is None:
            raise SqlSyntaxError("this DECLARE cannot be parsed", hint="write DECLARE c CURSOR FOR SELECT ..")
        if len(state.cursors) >= MOST_CURSORS:
            raise ProgrammingError(f"more than {MOST_CURSORS} cursors", hint="close some")
        answer = self.run(match["query"], state)
        cursor = DeclaredCursor(answer, size_of(answer.rows), match["hold"] is not None)
        state.cursors[bare(match["name"])] = cursor
        return WireAnswer("DECLARE CURSOR", flags=answer.flags, standing=answer.standing)

    def _fetch(self, sql: str, state: SessionState) -> WireAnswer:
        match = FETCH.fullmatch(sql)
        name = bare(match["name"]) if match else ""
        if match is None or name not in state.cursors:
            raise no_cursor(name)
        cursor = state.cursors[name]
        rows = cursor.rows((match["way"] or "").upper(), (match["count"] or "").upper())
        if _first_word(sql) == "MOVE":
            return WireAnswer(f"MOVE {len(rows)}")
        return WireAnswer("FETCH", cursor.answer.columns, rows)

    def _close(self, sql: str, state: SessionState) -> WireAnswer:
        cursor = bare(sql.split(maxsplit=1)[1]) if " " in sql else ""
        if cursor == "all":
            state.cursors.clear()
        elif state.cursors.pop(cursor, None) is None:
            raise no_cursor(cursor)
        return WireAnswer("CLOSE CURSOR")

    def _copy(self, sql: str, state: SessionState) -> WireAnswer:
        match = COPY.fullmatch(sql)
        if match is None:
            raise NotSupportedError("COPY is not a query here", hint="write COPY (SELECT ..) TO STDOUT")
        return replace(self.run(match["query"], state), tag="COPY", copy=copy_form(match["options"]))

    def _explain(self, sql: str, state: SessionState) -> WireAnswer:
        match = EXPLAIN.fullmatch(sql)
        lines = (
            state.settings.of(self.releases)
            .explain(match[1] if match else "", dialect="postgres")
            .splitlines()
        )
        return _answer(("QUERY PLAN",), ("VARCHAR",), [(line,) for line in lines], tag="EXPLAIN")

    def _prepare(self, sql: str, state: SessionState) -> WireAnswer:
        match = PREPARE.fullmatch(sql)
        if match is None:
            raise SqlSyntaxError("this PREPARE cannot be parsed", hint="write PREPARE p AS SELECT ..")
        state.prepare(bare(match[1]), match[3], [])
        return WireAnswer("PREPARE")

    def _execute(self, sql: str, state: SessionState) -> WireAnswer:
        match = EXECUTE.fullmatch(sql)
        if match is None:
            raise SqlSyntaxError("this EXECUTE cannot be parsed", hint="write EXECUTE p(1, 'a')")
        text, oids = state.statement(bare(match[1]))
        rows = self.catalogue.query(f"SELECT {match[2]}").rows if match[2] else [()]
        return self.run(bind(text, list(rows[0]), oids), state)

    def _deallocate(self, sql: str, state: SessionState) -> WireAnswer:
        prepared = bare(sql.split()[-1])
        if prepared == "all":
            state.prepared.clear()
        else:
            state.prepared.pop(prepared, None)
        return WireAnswer("DEALLOCATE")


COMMANDS: Mapping[str, Callable[[Backend, str, SessionState], WireAnswer]] = {
    **dict.fromkeys(NODS, Backend._begin_or_end), "SET": Backend._set, "RESET": Backend._reset,
    "DISCARD": Backend._discard, "SHOW": Backend._show, "DECLARE": Backend._declare, "FETCH": Backend._fetch,
    "MOVE": Backend._fetch, "CLOSE": Backend._close, "COPY": Backend._copy, "EXPLAIN": Backend._explain,
    "PREPARE": Backend._prepare, "EXECUTE": Backend._execute, "DEALLOCATE": Backend._deallocate,
}  # fmt: skip
"""By the word that a statement begins with; any other is a query."""


def returns_to_savepoint(sql: str) -> bool:
    """True if a ROLLBACK goes back to a savepoint, so that its transaction goes on."""
    return re.match(r"(?:ROLLBACK|ABORT)\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b", sql, re.IGNORECASE) is not None


def _bare(sql: str) -> str:
    """A statement without leading comments, blanks and its `;`."""
    begun = LEADING.match(sql)
    return sql[begun.end() if begun else 0 :].strip().rstrip(";").rstrip()


def _first_word(bare: str) -> str:
    return re.split(r"\W", bare, maxsplit=1)[0].upper()


def _answer(
    names: Sequence[str], types: Sequence[str], rows: Sequence[tuple[Any, ...]], *, tag: str = "SELECT"
) -> WireAnswer:
    oids = [oid_of(kind) for kind in types]
    columns = tuple(WireColumn(name, oid, TYPES[oid].width) for name, oid in zip(names, oids, strict=True))
    return WireAnswer(tag, columns, rows)


def _catalogue_answer(answer: CatalogueRows) -> WireAnswer:
    pairs = zip(answer.names, answer.oids, strict=True)
    return WireAnswer(
        "SELECT", tuple(WireColumn(name, oid, TYPES[oid].width) for name, oid in pairs), answer.rows
    )


def _outside_of_strings(sql: str) -> str:
    return "".join(p.group() for p in TOKEN.finditer(sql) if not p.group().startswith(("'", "--", "/*", "$")))


def _without_number(token: re.Match[str]) -> str:
    """0 for a number; a quoted name as it is."""
    return token.group() if token.group().startswith('"') else "0"


def is_silent(sql: str) -> bool:
    """True if a statement, placeholders or not, has no columns to describe."""
    word = _first_word(_bare(sql))
    return word in SILENT and word != "FETCH"


def started_with(options: Mapping[str, str]) -> list[str]:
    """The settings that a client starts with, as statements.

    Args:
        options: of its start-up message: `dp_nonnegative` itself, or `-c name=value` words in `options`.

    >>> started_with({"user": "ana", "options": "-c dp_nonnegative=on -cgeqo=off"})
    ['SET dp_nonnegative = on', 'SET geqo = off']
    """
    assignments = [f"{name}={value}" for name, value in options.items() if name.lower().startswith("dp_")]
    assignments += GIVEN.findall(options.get("options", ""))
    return [
        f"SET {name} = {value}"
        for name, _, value in (assignment.partition("=") for assignment in assignments)
    ]
