"""Every **Source** in a docstring names something that a reader can open, and every name in docs/method exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
METHOD = sorted((ROOT / "docs" / "method").glob("*.md"))
PAGE = re.compile(r'(\S+\.md)((?:, "[^"]+")*)')
PAPER = re.compile(r"[A-Z]\w+[^.;]*? \(?(?:19|20)\d\d\b")
CODE = re.compile(r"^Code: (.*?)(?=\. [A-Z]|\.$)", re.MULTILINE | re.DOTALL)


def sources() -> list[tuple[str, str]]:
    """(file and definition, text of one **Source** up to the next empty line or label)."""
    cited = []
    for file in sorted((ROOT / "dpsql").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                where = f"{file.relative_to(ROOT)}::{getattr(node, 'name', '')}"
                parts = re.findall(r"\*\*Source\*\*:?\s(.*?)(?=\n\n|\n\*\*|\Z)", text, flags=re.DOTALL)
                cited += [(where, " ".join(part.split())) for part in parts]
    return cited


def headings(page: Path) -> set[str]:
    return set(re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE))


def problem(source: str) -> str:
    """What is wrong with a citation; empty if it resolves."""
    pages = PAGE.findall(source)
    if not pages and not PAPER.search(source):
        return "names neither a page of docs nor a paper with its year"
    for name, quoted in pages:
        page = ROOT / name
        if not page.is_file():
            return f"{name} is not in the repository"
        wanted = re.findall(r'"([^"]+)"', quoted)
        if not wanted:
            return f"{name}: say which heading"
        if missing := set(wanted) - headings(page):
            return f"{name} has no heading {missing}"
    return ""


def test_every_source_can_be_opened() -> None:
    cited = sources()
    assert len(cited) > 60
    assert {where: found for where, text in cited if (found := problem(text))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "central.md section 3.",
        "LUE-DPTree, eq. (3.5).",
        "docs/method/views.md.",
        'docs/method/views.md, "Tentz".',
        'docs/method/views.md, "Tents"; notes.md, "Tents".',
    ],
)
def test_a_source_that_nobody_can_open_is_seen(text: str) -> None:
    assert problem(text)


def names_of_the_package() -> set[str]:
    known = {str(file.relative_to(ROOT / "dpsql")) for file in (ROOT / "dpsql").rglob("*.py")}
    for file in (ROOT / "dpsql").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                known.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                known.add(node.id)
    return known


def test_what_the_pages_say_is_in_the_code_is_there() -> None:
    known = names_of_the_package()
    for page in METHOD:
        for line in CODE.findall(page.read_text(encoding="utf-8")):
            named = re.findall(r"`([^`]+)`", line)
            assert named and not set(named) - known, (page.name, set(named) - known)


def test_a_test_that_a_page_cites_as_a_proof_is_there() -> None:
    files = [file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py")]
    stands = set(re.findall(r"^ *def (test_\w+)", "\n".join(files), re.M))
    stands |= {file.stem for file in (ROOT / "tests").rglob("test_*.py")}
    pages = [ROOT / "docs" / "privacy.md", *(ROOT / "docs" / "privacy").glob("*.md")]
    cited = {name for page in pages for name in re.findall(r"\btest_\w+", page.read_text(encoding="utf-8"))}
    assert len(cited) > 40 and cited - stands == set()


def test_paths_and_targets_that_contributors_read_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:dpsql|tests|docs)/[\w/.]*)`", text))
    assert len(paths) > 40 and {path for path in paths if not (ROOT / path).exists()} == set()
    made = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+[a-z])", text)) - {"bench"} <= made
    others = {"DPSQL_DATA", "DP_STDERR"}
    assert set(re.findall(r"`([A-Z_]{5,})`", text)) <= names_of_the_package() | others


def test_every_package_is_in_the_picture() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    packages = {file.parent.name for file in (ROOT / "dpsql").glob("*/__init__.py")} - {"examples"}
    assert {name for name in packages if f"`dpsql/{name}/" not in text} == set()
