"""The backslash commands. Each takes the state and the rest of its line and returns text to show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dpsql.answer.plan import is_declared
from dpsql.errors import InterfaceError, OperationalError
from dpsql.output import STYLES
from dpsql.shell.state import State

Command = Callable[[State, str], str]


def columns_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns under a head.

    >>> print(columns_text(["a", "bb"], [["xxx", "y"]]))
    a    bb
    ---  --
    xxx  y
    """
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def list_or_describe(state: State, rest: str) -> str:
    """All tables, or the columns of one."""
    wanted = rest.strip().strip(";").replace('"', "").lower()
    tables = state.tables()
    if not wanted:
        return columns_text(
            ["release", "table", "kind", "columns", "comment"],
            [[name, t.name, t.kind, str(len(t.columns)), t.comment] for name, t in tables],
        )
    found = [t for name, t in tables if wanted in (t.name.lower(), f"{name}.{t.name}".lower())]
    if not found:
        raise InterfaceError(f"there is no table {rest.strip()}", hint="\\d lists the tables")
    rows = [[c.name, c.type, "yes" if c.nullable else "no", c.comment] for c in found[0].columns]
    arrows = [f"{column} -> {table}.{key}" for column, (table, key) in found[0].references.items()]
    return "\n".join([columns_text(["column", "type", "nullable", "comment"], rows), *arrows])


def releases(state: State, rest: str) -> str:
    """The open releases and what each promises."""
    rows = []
    for release in state.releases.releases:
        privacy = release.meta["privacy"]
        promise = ", ".join(
            f"{k} {v}" for k, v in privacy.items() if k in ("epsilon", "delta", "rho", "unit") and v
        )
        views = len({s.view for s in release.statistics if is_declared(s.view)})
        rows.append(
            [release.name, str(release.meta["release_id"])[:12], promise, str(views), str(release.path)]
        )
    return columns_text(["release", "id", "promise", "views", "file"], rows)


def budget(state: State, rest: str) -> str:
    """What each open release spent, on what; questions cost nothing."""
    rows = [
        [release.name, str(what), str(amount)]
        for release in state.releases.releases
        for what, amount in release.meta.get("spends", [])
    ]
    return columns_text(["release", "spent on", "amount"], rows) + "\nquestions cost nothing"


def explain(state: State, rest: str) -> str:
    """How a statement would be answered."""
    if not rest.strip():
        raise InterfaceError(
            "\\explain needs a statement", hint="for instance \\explain SELECT COUNT(*) FROM t"
        )
    return state.asked.explain(rest.strip().rstrip(";"))


def set_style(state: State, rest: str) -> str:
    """Choose how results are written."""
    word = rest.strip().lower()
    if word not in STYLES:
        raise InterfaceError(f"there is no format {word!r}", hint=f"one of {', '.join(STYLES)}")
    state.style = word
    return f"format is {word}"


def switch(name: str, attribute: str) -> Command:
    """A command that turns a setting on or off; without a word it turns it round."""

    def run(state: State, rest: str) -> str:
        word = rest.strip().lower()
        if word not in ("", "on", "off"):
            raise InterfaceError(f"{name} takes on or off, not {word!r}")
        value = not getattr(state, attribute) if not word else word == "on"
        setattr(state, attribute, value)
        return f"{name} is {'on' if value else 'off'}"

    return run


def redirect(state: State, rest: str) -> str:
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


def help_text(state: State, rest: str) -> str:
    """The commands."""
    rows = [
        [f"\\{name}", takes, (command.__doc__ or says).split(".")[0]]
        for name, (takes, says, command) in TABLE.items()
    ]
    return columns_text(
        ["command", "takes", "does"], [*rows, ["\\i", "file", "Run a file"], ["\\q", "", "Leave"]]
    )


TABLE: dict[str, tuple[str, str, Command]] = {
    "d": ("[table]", "", list_or_describe),
    "releases": ("", "", releases),
    "budget": ("", "", budget),
    "explain": ("statement", "", explain),
    "error": ("[on|off]", "Show margins and marks", switch("error", "errors")),
    "timing": ("[on|off]", "Show elapsed time", switch("timing", "timing")),
    "x": ("[on|off]", "Show each row vertically", switch("expanded", "expanded")),
    "format": ("|".join(STYLES), "", set_style),
    "o": ("[file]", "", redirect),
    "?": ("", "", help_text),
}

SYNONYMS = {
    "dt": "d", "tables": "d", "schema": "d", "mode": "format", "output": "o", "read": "i", "timer": "timing",
    "help": "?", "h": "?", "quit": "q", "exit": "q", "errors": "error", "expanded": "x",
}  # fmt: skip
"""Words of other shells; `.word` and `\\word` both work."""

NAMES = (*TABLE, "i", "q")
