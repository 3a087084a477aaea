"""What a statement is: a question for the releases, a catalogue query, a setting, or a word to nod at."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpsql.dbapi.binding import PIECE, literal
from dpsql.errors import ProgrammingError
from dpsql.output import margin_lines
from dpsql.session import OpenReleases, Settings
from dpsql.split import LEADING
from dpsql.wire.catalogue import Catalogue
from dpsql.wire.encode import WIDTHS, oid_of

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
PLACE = re.compile(r"\$(\d+)")


@dataclass(frozen=True)
class Answer:
    """Rows with their columns, or a bare tag.

    Args:
        tag: what CommandComplete says, without the number of rows.
        columns: (name, OID, width) of each column; None for a bare tag.
        rows: Python values.
        flags: what the client is told beside the rows.
    """

    tag: str
    columns: tuple[tuple[str, int, int], ...] | None = None
    rows: Sequence[tuple[Any, ...]] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Backend:
    """What statements run on."""

    releases: OpenReleases
    catalogue: Catalogue

    def run(self, sql: str, settings: Settings) -> Answer:
        """Answer one statement.

        Args:
            sql: without placeholders; blank gives an answer without a tag.
            settings: of the client who asks; the statement may change them.

        Raises:
            dpsql.errors.Error: it cannot be answered.
        """
        bare = _bare(sql)
        if not bare:
            return Answer("")
        word = _first_word(bare)
        if told := settings.take(bare):
            return Answer(NODS.get(word, "SET"), flags=(told,) if settings.nonnegative else ())
        if word in NODS:
            return Answer(NODS[word])
        if word == "SHOW":
            ours = settings.shown(bare, self.releases)
            return _switch(*ours) if ours else _setting(bare[4:].strip().strip('"').lower())
        if CATALOGUE.search(_outside_of_strings(bare)):
            names, types, rows = self.catalogue.query(bare)
            return _answer(names, types, rows)
        result = settings.of(self.releases).query(bare, dialect="postgres")
        return replace(
            _answer(result.columns, result.types, result.rows), flags=(*result.flags, *margin_lines(result))
        )


def _bare(sql: str) -> str:
    """A statement without leading comments, blanks and its `;`."""
    begun = LEADING.match(sql)
    return sql[begun.end() if begun else 0 :].strip().rstrip(";").rstrip()


def _first_word(bare: str) -> str:
    return re.split(r"\W", bare, maxsplit=1)[0].upper()


def _switch(name: str, on: bool) -> Answer:
    return _answer((name,), ("VARCHAR",), [("on" if on else "off",)])


def _setting(name: str) -> Answer:
    if name not in SETTINGS:
        raise ProgrammingError(
            f"there is no setting {name}", hint=f"for instance SHOW {next(iter(SETTINGS))}"
        )
    return _answer((name,), ("VARCHAR",), [(SETTINGS[name],)])


def _answer(names: Sequence[str], types: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Answer:
    oids = [oid_of(kind) for kind in types]
    columns = tuple((name, oid, WIDTHS.get(oid, -1)) for name, oid in zip(names, oids, strict=True))
    return Answer("SELECT", columns, rows)


def _outside_of_strings(sql: str) -> str:
    return "".join(p.group() for p in PIECE.finditer(sql) if not p.group().startswith(("'", "--", "/*", "$")))


def bind_numbered(sql: str, values: Sequence[Any]) -> str:
    """The statement with `$1, $2, ..` outside of quotes replaced by literals.

    Raises:
        ProgrammingError: a number without a value.

    >>> bind_numbered("SELECT $1, '$1', $2", ["it's", 2])
    "SELECT 'it''s', '$1', 2"
    """
    parts, copied = [], 0
    for place in PLACE.finditer(sql):
        if not _free(sql, place.start()):
            continue
        number = int(place.group(1))
        if not 1 <= number <= len(values):
            raise ProgrammingError(f"there is no value for ${number}")
        parts += [sql[copied : place.start()], literal(values[number - 1])]
        copied = place.end()
    return "".join([*parts, sql[copied:]])


def _free(sql: str, at: int) -> bool:
    """Whether a position lies outside of quotes and comments."""
    for piece in PIECE.finditer(sql):
        if piece.end() > at:
            return piece.start() == at or piece.lastgroup == "other"
    return True


def placeholders(sql: str) -> int:
    """The largest `$n` outside of quotes."""
    return max((int(p.group(1)) for p in PLACE.finditer(sql) if _free(sql, p.start())), default=0)


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
    given = [f"{name}={value}" for name, value in options.items() if name.lower().startswith("dp_")]
    given += GIVEN.findall(options.get("options", ""))
    return [f"SET {name} = {value}" for name, _, value in (each.partition("=") for each in given)]
