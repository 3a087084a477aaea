"""What a shell user has set, and where output goes."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TextIO

from dpsql.describe import TableInfo, describe
from dpsql.session import OpenReleases, Settings


@dataclass
class State:
    """The shell's settings; commands change them.

    Args:
        releases: what is asked.
        style: one of `dpsql.output.STYLES`.
        level: of the margins shown.
        terminal: whether output goes to a person: pager, colours, elapsed time.
        errors: whether margins and marks are shown.
        timing: whether elapsed time is shown.
        expanded: whether each row is shown vertically.
        output: where results go.
        settings: what was set in SQL.
    """

    releases: OpenReleases
    style: str
    level: float = 0.95
    terminal: bool = False
    errors: bool = True
    timing: bool = False
    expanded: bool = False
    output: TextIO = field(default_factory=lambda: sys.stdout)
    depth: int = 0
    settings: Settings = field(default_factory=Settings)

    @property
    def asked(self) -> OpenReleases:
        """The open releases, under the settings."""
        return self.settings.of(self.releases)

    def tables(self) -> list[tuple[str, TableInfo]]:
        """(release name, table) of everything a statement may name."""
        return [(r.name, table) for r in self.releases.releases for table in describe(r)]

    def write(self, text: str) -> None:
        """Text and a line end to the output."""
        print(text, file=self.output, flush=True)

    def redirect(self, path: str) -> None:
        """Send results to a file, or back to standard output for an empty path."""
        if self.output is not sys.stdout:
            self.output.close()
        self.output = open(path, "w", encoding="utf-8") if path else sys.stdout  # noqa: SIM115, PTH123 - kept open
