"""Settings of a shell user, and the backslash commands.

Each command takes the state and the rest of its line and returns text to show.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple, TextIO

from dpsql.errors import InterfaceError, OperationalError, visible_lines
from dpsql.federation.session import OpenReleases, Settings
from dpsql.interfaces import aligned
from dpsql.interfaces.python.describe import TableInfo, describe
from dpsql.planner.views import list_views
from dpsql.release.request import heeding_keys
from dpsql.results.render import STYLES


class ShellState:
    """The shell's settings; commands change them. `errors` shows margins and marks, `timing` elapsed time, `expanded`
    each row vertically; `settings` is what was set in SQL; `notes` are those of the last answer, and `known_lines`
    lines below answers that the session has shown.

    Args:
        releases: what is asked.
        style: one of `dpsql.results.render.STYLES`.
        level: of the margins shown.
        terminal: whether output goes to a person: pager, colours, elapsed time.
        output: where results go.
    """

    def __init__(
        self, releases: OpenReleases, style: str, level: float = 0.95, terminal: bool = False,
        output: TextIO | None = None,
    ) -> None:  # fmt: skip
        self.releases, self.style, self.level, self.terminal = releases, style, level, terminal
        self.errors, self.timing, self.expanded = True, False, False
        self.output, self.depth, self.settings = output or sys.stdout, 0, Settings()
        self.notes: tuple[str, ...] = ()
        self.known_lines: set[str] = set()

    @property
    def asked(self) -> OpenReleases:
        """The open releases, under the settings."""
        return self.settings.of(self.releases)

    def tables(self) -> list[tuple[str, TableInfo]]:
        """(release name, table) of everything a statement may name."""
        return [(r.name, table) for r in self.releases.releases for table in describe(r)]

    def write(self, text: str) -> None:
        """Text and a line end to the output; names and labels in it may come from anybody."""
        print(visible_lines(text), file=self.output, flush=True)

    def redirect(self, path: str) -> None:
        """Send results to a file, or back to standard output for an empty path."""
        if self.output is not sys.stdout:
            self.output.close()
        self.output = open(path, "w", encoding="utf-8") if path else sys.stdout  # noqa: SIM115, PTH123 - kept open


Command = Callable[[ShellState, str], str]


def columns_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns under a head.

    >>> print(columns_text(["a", "bb"], [["xxx", "y"]]))
    a    bb
    ---  --
    xxx  y
    """
    rule = ["-" * max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(aligned([head, rule, *rows]))


def list_or_describe(state: ShellState, rest: str) -> str:
    """All tables, or the columns of one."""
    wanted = rest.strip().strip(";").replace('"', "").lower()
    tables = state.tables()
    if not wanted:
        return columns_text(
            ["release", "table", "kind", "columns", "comment"],
            [[name, t.name, t.kind, str(len(t.columns)), t.comment] for name, t in tables],
        )
    matches = [t for name, t in tables if wanted in (t.name.lower(), f"{name}.{t.name}".lower())]
    if not matches:
        raise InterfaceError(f"there is no table {rest.strip()}", hint="\\d lists the tables")
    rows = [[c.name, c.type, "yes" if c.nullable else "no", c.comment] for c in matches[0].columns]
    arrows = [f"{column} -> {table}.{key}" for column, (table, key) in matches[0].references.items()]
    return "\n".join(
        [columns_text(["column", "type", "nullable", "comment"], rows), *arrows, *_views(state, matches[0])]
    )


def _views(state: ShellState, table: TableInfo) -> list[str]:
    """The views that count a table, and how far off an answer is: `SHOW VIEWS` in words."""
    lines = []
    for release in state.releases.releases:
        for view in list_views(release):
            if view.table_name == table.of and view.error_total is not None and view.error_half is not None:
                total, half = (format_error(error) for error in (view.error_total, view.error_half))
                lines.append(
                    f"view {view.view_name} ({view.axes}): COUNT(*) +- {total} in all, {half} of half of each axis"
                )
    return lines


def format_error(error: float) -> str:
    """A standard error with two digits.

    >>> format_error(0.00106), format_error(15.3154), format_error(123456.0)
    ('0.0011', '15', '120,000')
    """
    digits = 1 - math.floor(math.log10(error))
    return f"{round(error, digits):,.{max(0, digits)}f}"


def releases(state: ShellState, rest: str) -> str:
    """The open releases and what each promises."""
    rows = []
    for release in state.releases.releases:
        privacy = release.meta.privacy
        amounts = [(name, getattr(privacy, name)) for name in ("delta", "epsilon", "mu2", "unit")]
        promise = ", ".join(f"{name} {amount}" for name, amount in amounts if amount)
        views = len({s.view for s in release.statistics if release.declares(s.view)})
        rows.append([release.name, release.meta.release_id[:12], promise, str(views), str(release.path)])
    return columns_text(["release", "id", "promise", "views", "file"], rows)


def budget(state: ShellState, rest: str) -> str:
    """Spend of each open release by purpose; questions cost nothing."""
    rows = []
    for release in state.releases.releases:
        amounts = {spend.purpose: Fraction(spend.amount) for spend in release.meta.spends}
        total = sum(amounts.values()) or 1
        rows += [[release.name, purpose, f"{float(part / total):.1%}"] for purpose, part in amounts.items()]
    return columns_text(["release", "spent on", "part"], rows) + "\nquestions cost nothing"


def explain(state: ShellState, rest: str) -> str:
    """Explain a statement."""
    if not rest.strip():
        raise InterfaceError(
            "\\explain needs a statement", hint="for instance \\explain SELECT COUNT(*) FROM t"
        )
    return heeding_keys(lambda: state.asked.explain(rest.strip().rstrip(";")))


def set_style(state: ShellState, rest: str) -> str:
    """Choose how results are written."""
    word = rest.strip().lower()
    if word not in STYLES:
        raise InterfaceError(f"there is no format {word!r}", hint=f"one of {', '.join(STYLES)}")
    state.style = word
    return f"format is {word}"


def switch(name: str, attribute: str) -> Command:
    """A command that turns a setting on or off; without a word it turns it round."""

    def run(state: ShellState, rest: str) -> str:
        word = rest.strip().lower()
        if word not in ("", "on", "off"):
            raise InterfaceError(f"{name} takes on or off, not {word!r}")
        value = not getattr(state, attribute) if not word else word == "on"
        setattr(state, attribute, value)
        return f"{name} is {'on' if value else 'off'}"

    return run


def redirect(state: ShellState, rest: str) -> str:
    """Send results to a file; without a file back to the screen."""
    path = rest.strip()
    try:
        state.redirect(path)
    except OSError as error:
        raise OperationalError(f"cannot write {path}: {error.strerror}") from error
    return ""


def read_file(path: str) -> str:
    """The text of a script.

    Raises:
        OperationalError: it cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OperationalError(f"cannot read {path}", hint="check the path; it must be UTF-8 text") from error


def help_text(state: ShellState, rest: str) -> str:
    """The commands."""
    rows = [
        [f"\\{name}", command.takes, (command.run.__doc__ or command.says).split(".")[0]]
        for name, command in TABLE.items()
    ]
    return columns_text(
        ["command", "takes", "does"], [*rows, ["\\i", "file", "Run a file"], ["\\q", "", "Leave"]]
    )


def notes(state: ShellState, rest: str) -> str:
    """All notes of the last answer."""
    return "\n".join(state.notes)


class ShellCommand(NamedTuple):
    """A command in the table: what it does, what it takes, and a line of help where the function has none."""

    run: Command
    takes: str = ""
    says: str = ""


TABLE = {
    "d": ShellCommand(list_or_describe, "[table]"),
    "releases": ShellCommand(releases),
    "budget": ShellCommand(budget),
    "explain": ShellCommand(explain, "statement"),
    "notes": ShellCommand(notes),
    "error": ShellCommand(switch("error", "errors"), "[on|off]", "Show margins and marks"),
    "timing": ShellCommand(switch("timing", "timing"), "[on|off]", "Show elapsed time"),
    "x": ShellCommand(switch("expanded", "expanded"), "[on|off]", "Show each row vertically"),
    "format": ShellCommand(set_style, "|".join(STYLES)),
    "o": ShellCommand(redirect, "[file]"),
    "?": ShellCommand(help_text),
}

SYNONYMS = {
    "dt": "d", "tables": "d", "schema": "d", "mode": "format", "output": "o", "read": "i", "timer": "timing",
    "help": "?", "h": "?", "quit": "q", "exit": "q", "errors": "error", "expanded": "x",
}  # fmt: skip
"""Words of other shells; `.word` and `\\word` both work."""

NAMES = (*TABLE, "i", "q")
