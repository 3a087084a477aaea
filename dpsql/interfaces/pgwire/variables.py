"""Settings of a session that PostgreSQL's clients set and read: `SET x = y`, `SHOW x`, `RESET x`.

Most change nothing here and are only remembered. `statement_timeout` bounds the time of a statement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dpsql.interfaces.pgwire.protocol import StatementRefused

DEFAULTS: Mapping[str, str] = {
    "application_name": "", "bytea_output": "hex", "client_encoding": "UTF8", "client_min_messages": "notice",
    "DateStyle": "ISO, MDY", "default_transaction_isolation": "serializable", "default_transaction_read_only": "on",
    "extra_float_digits": "1", "geqo": "on", "idle_in_transaction_session_timeout": "0", "integer_datetimes": "on",
    "IntervalStyle": "postgres", "is_superuser": "off", "jit": "on", "lc_collate": "C.UTF-8", "lc_ctype": "C.UTF-8",
    "lc_messages": "C.UTF-8", "lc_monetary": "C.UTF-8", "lc_numeric": "C.UTF-8", "lc_time": "C.UTF-8",
    "lock_timeout": "0", "max_identifier_length": "63", "max_index_keys": "32", "search_path": "main",
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


class Variables:
    """The settings of one client."""

    def __init__(self) -> None:
        self.values = dict(DEFAULTS)

    @property
    def timeout(self) -> float:
        """Seconds that a statement may take; 0 for no bound of the client's."""
        return _seconds(self.values["statement_timeout"])

    def set(self, statement: str) -> str:
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
        self.values[name] = value
        return name

    def reset(self, statement: str) -> None:
        """Do what RESET x, RESET ALL or DISCARD ALL says."""
        setting = statement.split()[-1].lower()
        setting = SPELLED.get(setting, setting)
        if setting == "all":
            self.values = dict(DEFAULTS)
        elif setting in DEFAULTS:
            self.values[setting] = DEFAULTS[setting]
        else:
            self.values.pop(setting, None)

    def show(self, setting: str) -> list[tuple[str, str]]:
        """(setting, value) of a setting, or of all.

        Raises:
            StatementRefused: there is no such setting.
        """
        if setting == "all":
            return sorted(self.values.items())
        spelled = SPELLED.get(" ".join(setting.split()), setting)
        if spelled not in self.values:
            raise StatementRefused(
                "42704", f"there is no setting {setting}", hint="for instance SHOW server_version"
            )
        return [(spelled, self.values[spelled])]


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
