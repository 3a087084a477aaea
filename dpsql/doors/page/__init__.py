"""What pages share: how they look, and how they draw answers with error bars.

Plain files without a build step. A page may fetch nothing from elsewhere; texts of a release become text, never markup.
"""

from __future__ import annotations

from importlib.resources import files

SHARED = "dpsql.doors.page"


def asset(package: str, name: str) -> str:
    """The text of a page's file.

    Args:
        package: the package that ships it.
        name: of the file.
    """
    return files(package).joinpath(name).read_text(encoding="utf-8")
