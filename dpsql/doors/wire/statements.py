"""What a statement is: a question for the releases, a catalogue query, a setting, or a word to nod at."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpsql.answer.output import margin_lines
from dpsql.answer.session import OpenReleases, Settings
from dpsql.answer.views import shown
from dpsql.doors.scan import LEADING, TOKEN
from dpsql.doors.wire.catalogue import Catalogue
from dpsql.doors.wire.protocol import TYPES, WireColumn, oid_of
from dpsql.errors import ProgrammingError

NODS = {
    "BEGIN": "BEGIN", "START": "BEGIN", "COMMIT": "COMMIT", "END": "COMMIT", "ROLLBACK": "ROLLBACK",
    "ABORT": "ROLLBACK", "SET": "SET", "RESET": "RESET", "DISCARD": "DISCARD ALL", "DEALLOCATE": "DEALLOCATE",
    "CLOSE": "CLOSE CURSOR", "SAVEPOINT": "SAVEPOINT", "RELEASE": "RELEASE", "LISTEN": "LISTEN", "UNLISTEN": "UNLISTEN",
}  # fmt: skip
"""Statements that drivers send and that change nothing here: the tag that answers each."""

SETTINGS = {
    "transaction isolation level": "serializable", "transaction_isolation": "serializable",
    "standard_conforming_strings": "on", "server_version": "15.0", "server_version_num": "150000",
    "client_encoding": "UTF8", "server_encoding": "UTF8", "datestyle": "ISO, MDY", "timezone": "UTC",
    "search_path": "main", "max_identifier_length": "63", "transaction_read_only": "on",
    "default_transaction_read_only": "on", "integer_datetimes": "on", "extra_float_digits": "1",
}  # fmt: skip

CATALOGUE = re.compile(
    r"\bpg_(?!version)\w+|\bversion\s*\(|\bcurrent_(?:schema|schemas|database|catalog|user|setting)\b|\bset_config\s*\(",
    re.IGNORECASE,
)
GIVEN = re.compile(r"(?:^|\s)(?:-c\s*|--)(\w+=[^\s;]+)")


@dataclass(frozen=True)
class WireAnswer:
    """Rows with their columns, or a bare tag.

    Args:
        tag: what CommandComplete says, without the number of rows.
        columns: None for a bare tag.
        rows: Python values.
        flags: what the client is told beside the rows.
    """

    tag: str
    columns: tuple[WireColumn, ...] | None = None
    rows: Sequence[tuple[Any, ...]] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Backend:
    """What statements run on."""

    releases: OpenReleases
    catalogue: Catalogue

    def run(self, sql: str, settings: Settings) -> WireAnswer:
        """Answer one statement.

        Args:
            sql: without placeholders; blank gives an answer without a tag.
            settings: of the client who asks; the statement may change them.

        Raises:
            dpsql.errors.Error: it cannot be answered.
        """
        bare = _bare(sql)
        if not bare:
            return WireAnswer("")
        word = _first_word(bare)
        if notice := settings.take(bare):
            return WireAnswer(NODS.get(word, "SET"), flags=(notice,) if settings.telling else ())
        if word in NODS:
            return WireAnswer(NODS[word])
        if word == "SHOW" and shown(bare) == bare:
            ours = settings.shown(bare, self.releases)
            return _shown(*ours) if ours else _setting(bare[4:].strip().strip('"').lower())
        if CATALOGUE.search(_outside_of_strings(bare)):
            return _answer(*self.catalogue.query(bare))
        answer = settings.query(self.releases, bare, dialect="postgres")
        return replace(
            _answer(answer.columns, answer.types, answer.rows), flags=(*answer.flags, *margin_lines(answer))
        )


def _bare(sql: str) -> str:
    """A statement without leading comments, blanks and its `;`."""
    begun = LEADING.match(sql)
    return sql[begun.end() if begun else 0 :].strip().rstrip(";").rstrip()


def _first_word(bare: str) -> str:
    return re.split(r"\W", bare, maxsplit=1)[0].upper()


def _shown(name: str, state: str) -> WireAnswer:
    return _answer((name,), ("VARCHAR",), [(state,)])


def _setting(name: str) -> WireAnswer:
    if name not in SETTINGS:
        raise ProgrammingError(
            f"there is no setting {name}", hint=f"for instance SHOW {next(iter(SETTINGS))}"
        )
    return _answer((name,), ("VARCHAR",), [(SETTINGS[name],)])


def _answer(names: Sequence[str], types: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> WireAnswer:
    oids = [oid_of(kind) for kind in types]
    columns = tuple(WireColumn(name, oid, TYPES[oid].width) for name, oid in zip(names, oids, strict=True))
    return WireAnswer("SELECT", columns, rows)


def _outside_of_strings(sql: str) -> str:
    return "".join(p.group() for p in TOKEN.finditer(sql) if not p.group().startswith(("'", "--", "/*", "$")))


def sets(sql: str) -> bool:
    """Whether a statement, placeholders or not, changes a setting and so has no columns to describe."""
    return _first_word(_bare(sql)) in ("SET", "PRAGMA", "RESET")


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
