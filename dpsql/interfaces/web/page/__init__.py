"""Style of all pages, their charts of answers with error bars, and the certificate: a page that prints on one sheet.

Plain files without a build step. A page may fetch nothing from elsewhere; texts of a release become text, never markup.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from html import escape
from importlib.resources import files

from dpsql.curator.certificate import Certificate

SHARED = "dpsql.interfaces.web.page"


def asset(package: str, name: str) -> str:
    """The text of a page's file.

    Args:
        package: the package that ships it.
        name: of the file.
    """
    return files(package).joinpath(name).read_text(encoding="utf-8")


STILL = "default-src 'none'; style-src 'unsafe-inline'"
"""The policy of whole pages: they run nothing and fetch nothing."""
SHEET = """
@page { size: A4; margin: 12mm }
@media print { body { font-size: 9.5pt } :root { color-scheme: light } }
body { padding: 1rem 1.5rem 3rem; overflow-wrap: anywhere } main { max-width: 64rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; border-bottom: 1px solid var(--rule) }
th { font-weight: normal; color: var(--soft) } code { font-size: .85rem }
caption { text-align: left }
"""


def document(title: str, body: str, sheet: str = SHEET) -> str:
    """A page that needs no network, in the look of all pages.

    Args:
        title: of the page; text.
        body: its markup.
        sheet: its style on top of the look; unless another is given it prints on white.
    """
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{STILL}">
<title>{escape(title)}</title>
<style>{asset(SHARED, "look.css")}{sheet}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


MOST_LINES = 8
"""Mechanisms that a page lists; beyond, they are counted, and the JSON has them all."""


def certificate_page(certificate: Certificate) -> str:
    """The page as HTML.

    Args:
        certificate: what it says.

    Returns:
        A whole document.
    """
    about, protected = certificate.about, certificate.protected
    body = [
        f"<h1>Certificate of the release {escape(about.name)}</h1>",
        f'<p class="soft">{escape(about.description)}</p>' if about.description else "",
        _table(
            [
                ("release", about.release_id),
                ("file", f"{about.file}, SHA-256 {about.sha256}"),
                ("signed by", about.signer or "nobody with a valid signature"),
                ("people", about.population or "not named"),
                ("written", f"{certificate.made_on} by dpsql {certificate.version}"),
            ]
        ),
        "<h2>Who is protected, and how</h2>",
        f"<p>{escape(protected.sentence)}</p>",
        _table(_promise(certificate)),
        "<h2>How it was measured</h2>",
        _table(_mechanisms(certificate)),
        "<h2>What it cost</h2>",
        _table(_cost(certificate)),
        "<h2>What was checked</h2>",
        _table(_checked(certificate)),
        "<h2>What is not promised</h2>",
        "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in certificate.not_promised) + "</ul>",
    ]
    return document(f"{about.name}: certificate", "\n".join(section for section in body if section))


def _promise(certificate: Certificate) -> list[tuple[str, str]]:
    protected = certificate.protected
    rows = [
        ("unit", protected.unit),
        ("neighbours", protected.neighbours),
        ("epsilon", _number(protected.epsilon)),
        ("delta", _number(protected.delta)),
    ]
    if protected.mu2 is not None and protected.rho is not None:
        rows += [("mu^2, rho", f"{_number(protected.mu2)}, {_number(protected.rho)}")]
    elif protected.mu2 is not None:
        rows += [("mu^2 but for the keys' delta", _number(protected.mu2))]
    counted = ", ".join(f"{table} {number}" for table, number in protected.rows_per_unit.items())
    rows += [("rows of a unit that count", counted)] if counted else []
    return [*rows, *((f"values of {table}", words) for table, words in protected.values.items())]


def _mechanisms(certificate: Certificate) -> list[tuple[str, str]]:
    shown = certificate.measured[:MOST_LINES]
    rows = [(f"{one.view}: {one.measure}", one.mechanism.rstrip(": ")) for one in shown]
    remaining = len(certificate.measured) - len(shown)
    return [*rows, ("and", f"{remaining} more, in the JSON")] if remaining else rows


def _cost(certificate: Certificate) -> list[tuple[str, str]]:
    line = certificate.ledger
    if line is None:
        return [("ledger", "not checked: made without the curator's catalog, or no line of this release")]
    return [
        ("ledger", f"{line.ledger}, lineage {line.lineage}, label {line.label}, {line.charged_on}"),
        ("charged", f"epsilon {line.charged:.6g} in {len(certificate.spends)} parts"),
        ("spent of the lineage's cap", f"{line.spent:.6g} of {line.cap:.6g}"),
    ]


def _checked(certificate: Certificate) -> list[tuple[str, str]]:
    passed, open_, failed = certificate.checked
    audit = f"{passed} checks passed, {failed} failed, {open_} could not be made"
    proof = certificate.proof
    if proof is None:
        return [("offline audit", audit), ("exact loss", "not measured (write --prove)")]
    provenance = f"dpsql {proof.version}, {proof.measured_on}, {len(proof.pairs)} pairs of made-up neighbours"
    loss = f"{proof.worst.share:.6g} at most: {provenance}"
    return [("offline audit", audit), ("exact loss over claim", loss)]


def _number(amount: str) -> str:
    return f"{float(Fraction(amount)):.6g}"


def _table(rows: Iterable[tuple[str, str]]) -> str:
    lines = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{''.join(lines)}</table>"
