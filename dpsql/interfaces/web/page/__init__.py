"""Style of all pages, and their charts of answers with error bars.

Plain files without a build step. A page may fetch nothing from elsewhere; texts of a release become text, never markup.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files

SHARED = "dpsql.interfaces.web.page"


def asset(package: str, name: str) -> str:
    """The text of a page's file.

    Args:
        package: the package that ships it.
        name: of the file.
    """
    return files(package).joinpath(name).read_text(encoding="utf-8")


STILL = "default-src 'none'; style-src 'unsafe-inline'"
"""The policy of pages without a script."""
SHEET = """
@page { size: A4; margin: 12mm }
@media print { body { font-size: 9.5pt } :root { color-scheme: light } }
body { padding: 1rem 1.5rem 3rem; overflow-wrap: anywhere } main { max-width: 64rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; border-bottom: 1px solid var(--rule) }
th { font-weight: normal; color: var(--soft) } code { font-size: .85rem }
caption { text-align: left }
"""


def document(title: str, body: str, sheet: str = SHEET, policy: str = STILL, scripts: str = "") -> str:
    """A page that needs no network, in the look of all pages.

    Args:
        title: of the page; text.
        body: its markup.
        sheet: its style on top of the look; unless another is given it prints on white.
        policy: what it may run and load; nothing unless it says so.
        scripts: markup behind the body.
    """
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title>
<style>{asset(SHARED, "look.css")}{sheet}</style>
</head>
<body>
<main>
{body}
</main>
{scripts}</body>
</html>
"""
