"""Kinds of statements: a question for the releases, a catalogue query, a setting, a cursor, or a word to acknowledge.

Of the settings that PostgreSQL's clients set and read (`SET x = y`, `SHOW x`, `RESET x`) most change nothing here and
are only remembered. `statement_timeout` bounds the time of a statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import duckdb

from dpsql.errors import Error, NotSupportedError, ProgrammingError, SqlSyntaxError
from dpsql.federation.session import OpenReleases, Settings
from dpsql.interfaces.pgwire.catalogue import query_catalogue, wire_columns
from dpsql.interfaces.pgwire.portals import (
    COPY,
    DECLARE,
    FETCH,
    DeclaredCursor,
    WireAnswer,
    bare,
    bind,
    copy_form,
    infer,
    no_cursor,
    without_array_casts,
)
from dpsql.interfaces.pgwire.protocol import StatementRefused, oid_of
from dpsql.interfaces.pgwire.rewrite import names_of, parse
from dpsql.interfaces.python.dbapi import LEADING, TOKEN
from dpsql.planner.answerability import shown
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
    r'\bpg_\w+|\binformation_schema"?\s*\.\s*"?(?!dp_)|\b_pg_expandarray\b|\bcurrent_schemas\b|\bcurrent_setting\b'
    r"|\bFROM\s+current_(?:schema|database)\b",
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
DEFAULTS: Mapping[str, str] = {
    "application_name": "", "bytea_output": "hex", "client_encoding": "UTF8", "client_min_messages": "notice",
    "DateStyle": "ISO, MDY", "default_transaction_isolation": "serializable", "default_transaction_read_only": "on",
    "extra_float_digits": "1", "geqo": "on", "idle_in_transaction_session_timeout": "0", "integer_datetimes": "on",
    "IntervalStyle": "postgres", "is_superuser": "off", "jit": "on", "lc_collate": "C.UTF-8", "lc_ctype": "C.UTF-8",
    "lc_messages": "C.UTF-8", "lc_monetary": "C.UTF-8", "lc_numeric": "C.UTF-8", "lc_time": "C.UTF-8",
    "lock_timeout": "0", "max_identifier_length": "63", "max_index_keys": "32", "search_path": "public",
    "server_encoding": "UTF8", "server_version": "15.0", "server_version_num": "150000",
    "session_authorization": "dpsql", "standard_conforming_strings": "on", "statement_timeout": "0",
    "synchronous_commit": "on", "TimeZone": "UTC", "transaction_isolation": "serializable",
    "transaction_read_only": "on", "work_mem": "4MB",
}  # fmt: skip
REPORTED = ("application_name", "client_encoding", "DateStyle", "standard_conforming_strings", "TimeZone")
"""Those that a client hears of when they change."""
SPELLED = {name.lower(): name for name in DEFAULTS} | {
    "transaction isolation level": "transaction_isolation", "time zone": "TimeZone", "names": "client_encoding",
}  # fmt: skip
SET = re.compile(
    r"SET\s+(?:SESSION\s+|LOCAL\s+)?(?P<name>TIME\s+ZONE|NAMES|[\w.]+)\s*(?:=|\bTO\b)?\s*(?P<value>.*)",
    re.IGNORECASE | re.DOTALL,
)
DURATION = re.compile(r"(\d+)\s*(us|ms|s|min|h|d)?")
SECONDS = {"us": 1e-6, "ms": 1e-3, "": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
IGNORED = re.compile(r"SET\s+(?:SESSION\s+CHARACTERISTICS|TRANSACTION|CONSTRAINTS)\b", re.IGNORECASE)
BECOMES = re.compile(
    r"SET\s+(?:(?:SESSION|LOCAL)\s+)?(?:ROLE|SESSION\s+AUTHORIZATION)\s*(?:=|\bTO\b)?\s*(?P<role>.*)",
    re.IGNORECASE | re.DOTALL,
)


class SessionState:
    """Session state of one client: settings of dpsql, variables of PostgreSQL, prepared statements and cursors by name,
    and the flags of answers that it was told, each of which is sent once."""

    def __init__(self) -> None:
        self.settings, self.variables = Settings(), dict(DEFAULTS)
        self.prepared: dict[str, tuple[str, list[int]]] = {}
        self.cursors: dict[str, DeclaredCursor] = {}
        self.told: set[str] = set()

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

    @property
    def timeout(self) -> float:
        """Seconds that a statement may take; 0 for no bound of the client's."""
        return _seconds(self.variables["statement_timeout"])

    def set_variable(self, statement: str) -> str:
        """Do what a SET says; the name that it sets, or an empty one.

        Raises:
            StatementRefused: `statement_timeout` is no time, or another role is wanted.
        """
        becomes = BECOMES.fullmatch(statement)
        if becomes is not None:
            if becomes["role"].strip("'\" \t\r\n").lower() not in ("none", "default"):
                raise StatementRefused(
                    "0A000", "a role is chosen when a client logs in", hint="log in again as that role"
                )
            return ""
        match = SET.fullmatch(statement)
        if match is None or IGNORED.match(statement):
            return ""
        written = " ".join(match["name"].lower().split())
        name = SPELLED.get(written, written)
        value = ", ".join(word.strip().strip("'\"") for word in match["value"].split(","))
        if value.lower() == "default":
            value = DEFAULTS.get(name, "")
        if name == "statement_timeout":
            value = _shown(value)
        self.variables[name] = value
        return name

    def reset_variable(self, statement: str) -> None:
        """Do what RESET x, RESET ALL or DISCARD ALL says."""
        setting = statement.split()[-1].lower()
        setting = SPELLED.get(setting, setting)
        if setting == "all":
            self.variables = dict(DEFAULTS)
        elif setting in DEFAULTS:
            self.variables[setting] = DEFAULTS[setting]
        else:
            self.variables.pop(setting, None)


class Backend:
    """Backend that runs statements.

    Args:
        releases: that answer.
        catalogue: of what drivers ask about the star.
        columns: OIDs of the star's columns by name in lower case.
        files: names of the releases' files, for the log.
    """

    def __init__(
        self, releases: OpenReleases, catalogue: duckdb.DuckDBPyConnection,
        columns: Mapping[str, int] | None = None, files: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.releases, self.catalogue = releases, catalogue
        self.columns, self.files = columns or {}, list(files)
        # names of unnamed columns, by a statement's text without its constants and by its answer's columns
        self.called: dict[tuple[str, tuple[str, ...]], Sequence[str]] = {}

    def parameter_oids(self, sql: str) -> dict[int, int]:
        """Types of the parameters of a statement, as `parameters.infer`."""
        return infer(self.catalogue.cursor(), sql, self.columns)

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
            if again := word in ("RESET", "DISCARD"):
                state.reset_variable(bare_sql)
                state.told.clear()
            return WireAnswer("RESET" if again else "SET", flags=(notice,) if state.settings.telling else ())
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
            return WireAnswer("SELECT", *query_catalogue(self.catalogue, bare_sql, described=True))
        return self.run(sql, state)

    def _query(self, sql: str, state: SessionState) -> WireAnswer:
        outside = _outside_of_strings(sql)
        ours = CATALOGUE.search(outside)
        if ours or not FROM.search(outside):
            try:
                return WireAnswer("SELECT", *query_catalogue(self.catalogue, sql))
            except Error:
                if ours:
                    raise
                # a constant that only an answer knows, such as DP_STDERR
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
        # 0 for a number; a quoted name as it is
        text = NUMBER.sub(lambda token: token.group() if token.group().startswith('"') else "0", outside)
        shape = text, names
        if shape not in self.called:
            if len(self.called) >= MOST_CALLED:
                self.called.clear()
            self.called[shape] = self._named(sql, names)
        return self.called[shape]

    def _named(self, sql: str, names: tuple[str, ...]) -> Sequence[str]:
        try:
            called = names_of(parse(self.catalogue.cursor(), sql))
        except (Error, duckdb.Error):
            return names
        if len(called) != len(names) or None in called:
            return names
        return [word if "(" in name and word else name for name, word in zip(names, called, strict=True)]

    def _begin_or_end(self, sql: str, state: SessionState) -> WireAnswer:
        tag = NODS[_first_word(sql)]
        if tag in ("COMMIT", "ROLLBACK") and not returns_to_savepoint(sql):
            state.cursors = {name: cursor for name, cursor in state.cursors.items() if cursor.hold}
        return WireAnswer(tag)

    def _set(self, sql: str, state: SessionState) -> WireAnswer:
        name = state.set_variable(sql)
        return WireAnswer("SET", reported=((name, state.variables[name]),) if name in REPORTED else ())

    def _reset(self, sql: str, state: SessionState) -> WireAnswer:
        state.reset_variable(sql)
        return WireAnswer("RESET")

    def _discard(self, sql: str, state: SessionState) -> WireAnswer:
        state.variables = dict(DEFAULTS)
        state.cursors.clear()
        state.prepared.clear()
        return WireAnswer("DISCARD ALL")

    def _show(self, sql: str, state: SessionState) -> WireAnswer:
        if shown(sql) != sql:
            return self._query(sql, state)
        if ours := state.settings.shown(sql, self.releases):
            return _answer((ours[0],), ("VARCHAR",), [(ours[1],)], tag="SHOW")
        setting = sql[4:].strip().strip('"').lower()
        if setting == "all":
            rows = [(*pair, "") for pair in sorted(state.variables.items())]
            return _answer(("name", "setting", "description"), ("VARCHAR",) * 3, rows, tag="SHOW")
        spelled = SPELLED.get(" ".join(setting.split()), setting)
        if spelled not in state.variables:
            raise StatementRefused(
                "42704", f"there is no setting {setting}", hint="for instance SHOW server_version"
            )
        return _answer((spelled,), ("VARCHAR",), [(state.variables[spelled],)], tag="SHOW")

    def _declare(self, sql: str, state: SessionState) -> WireAnswer:
        match = DECLARE.fullmatch(sql)
        if match is None:
            raise SqlSyntaxError("this DECLARE cannot be parsed", hint="write DECLARE c CURSOR FOR SELECT ..")
        if len(state.cursors) >= MOST_CURSORS:
            raise ProgrammingError(f"more than {MOST_CURSORS} cursors", hint="close some")
        answer = self.run(match["query"], state)
        state.cursors[bare(match["name"])] = DeclaredCursor(answer, match["hold"] is not None)
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
        told = state.settings.of(self.releases).explain(match[1] if match else "", dialect="postgres")
        return _answer(("QUERY PLAN",), ("VARCHAR",), [(line,) for line in told.splitlines()], tag="EXPLAIN")

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
        rows = query_catalogue(self.catalogue, f"SELECT {match[2]}")[1] if match[2] else [()]
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
    return WireAnswer(tag, wire_columns(names, map(oid_of, types)), rows)


def _outside_of_strings(sql: str) -> str:
    return "".join(p.group() for p in TOKEN.finditer(sql) if not p.group().startswith(("'", "--", "/*", "$")))


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
    return [f"SET {name} = {value}" for name, _, value in (given.partition("=") for given in assignments)]


def _seconds(text: str) -> float:
    match = DURATION.fullmatch(text.strip())
    if match is None:
        raise StatementRefused(
            "22023", "statement_timeout is not a duration", hint="for instance SET statement_timeout = '5s'"
        )
    return int(match[1]) * SECONDS[match[2] or ""]


def _shown(text: str) -> str:
    """A time as PostgreSQL shows it.

    >>> _shown("300"), _shown("2000 ms"), _shown("0")
    ('300ms', '2s', '0')
    """
    milliseconds = round(_seconds(text) * 1000)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0"
