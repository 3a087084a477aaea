"""Report of an audit: one line for each check, and whether all passed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Args:
        what: the claim.
        held: whether it is true; None where it could not be checked.
        detail: figures, or what is wrong, or why it was not checked.
    """

    what: str
    held: bool | None
    detail: str = ""


@dataclass(frozen=True)
class AuditReport:
    """All checks of one release, in order."""

    release: Path
    checks: tuple[Check, ...]

    @property
    def held(self) -> bool:
        return all(check.held is not False for check in self.checks)

    def plus(self, check: Check) -> AuditReport:
        """The same with one more check."""
        return AuditReport(self.release, (*self.checks, check))

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        checks = [asdict(check) for check in self.checks]
        return {"release": str(self.release), "held": self.held, "checks": checks}

    def text(self) -> str:
        """One line for each check, for people."""
        words = {True: "ok  ", False: "BAD ", None: "    "}
        lines = [f"{words[c.held]} {c.what}" + (f": {c.detail}" if c.detail else "") for c in self.checks]
        return "\n".join(lines)
