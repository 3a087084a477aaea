"""Every block of the docs and of the README can be typed: commands and options exist, catalogs parse, programs compile.

Tutorials are run besides (`test_pages_run.py`); pages about engines and surveys have tests of their own that run them.
"""

from __future__ import annotations

import re
import shlex
from functools import lru_cache
from pathlib import Path

import click
import pytest
import yaml

from docs.make_reference import DOCS
from dpsql.interfaces.cli import all_commands
from tests.pages import NOT_HERE, Block, blocks, typed

WRITTEN = {DOCS / "api.md"}
"""Signatures of functions, which are no programs; another test holds this page equal to the code."""
PAGES = [DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md", *sorted({*DOCS.rglob("*.md")} - WRITTEN)]
LINKED = [*PAGES, *WRITTEN, DOCS.parent / "SECURITY.md", *sorted(DOCS.parent.glob("benchmarks/results/*.md"))]
PROGRAMS = ("psql", "curl", "ssh", "export", "printf", "superset-env/bin/pip", "python", "python3", "python3.11", "sed",
            "$EDITOR", ".venv/bin/python", ".venv/bin/pre-commit", "createdb", "spark-submit", "npm",
            "node", "cd", "dbt")  # fmt: skip
"""What pages type beside dpsql, pip, make and git."""


def unknown_options(words: list[str]) -> list[str]:
    """What is wrong with a command of dpsql; files need not exist."""
    command = all_commands().get(words[1])
    if isinstance(command, click.Group):
        command, words = command.commands.get(words[2]), words[1:]
    if command is None:
        return [f"there is no command {words[1]}"]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {
        "--help"
    }
    return [word for word in words[2:] if word.startswith("-") and word.split("=")[0] not in known]


def complaints(block: Block) -> list[str]:
    """What a reader who types a block would stumble over."""
    if block.language == "python":
        compile(block.text, "page", "exec")
    if block.language == "yaml":
        assert yaml.safe_load(block.text)
    wrong = []
    for command, _ in typed(block.text) if block.language == "console" else []:
        for line in command.split(" ; "):
            words = shlex.split(line, comments=True)
            if words[0] == "dpsql":
                wrong += [f"{line}: {found}" for found in unknown_options(words)]
            elif not line.startswith((*NOT_HERE, "pip")) and words[0] not in PROGRAMS:
                wrong.append(f"{line}: what is that?")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_what_a_page_shows_can_be_typed(page: Path) -> None:
    assert [found for block in blocks(page) for found in complaints(block)] == []


def test_a_command_or_an_option_that_is_not_there_is_found() -> None:
    shown = "$ dpsql qeury r.dpsql\n$ dpsql query r.dpsql --colour \"SELECT 1\"\n$ dpsql query r.dpsql 'SELECT 1'\n"
    assert len(complaints(Block("", "console", shown))) == 2
    with pytest.raises(SyntaxError):
        complaints(Block("", "python", "r = ("))


def broken_links(text: str, page: Path) -> list[str]:
    """Links to files and headings that are not there, and of the site, as Sphinx has it, to folders and other pages."""
    broken = []
    for name, anchor in re.findall(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)", text):
        target = (page.parent / name).resolve() if name else page
        is_page, of_site = target.suffix == ".md", page.is_relative_to(DOCS)
        if not (target.is_file() if of_site else target.exists()) or (
            of_site and is_page and not target.is_relative_to(DOCS.resolve())
        ):
            broken.append(f"{name} is no page or file of the site")
        elif anchor and is_page and anchor not in anchors(target):
            broken.append(f"{name}#{anchor} is no heading")
    return broken


@lru_cache
def anchors(page: Path) -> frozenset[str]:
    """A page's headings as the site names them, down to the fourth level, and its own marks."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#{1,4} (.+)$", text, re.M)
    slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    again = [f"{slug}-{slugs[:at].count(slug)}" for at, slug in enumerate(slugs) if slug in slugs[:at]]
    return frozenset([*slugs, *again, *re.findall(r"^\(([\w-]+)\)=$", text, re.M)])


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert broken_links(page.read_text("utf-8"), page) == []


@pytest.mark.parametrize(
    "link", ["../README.md", "../examples/dbt", "privacy.md#no-such-heading", "nowhere.md", "#nothing"]
)
def test_a_link_that_the_site_cannot_have_is_found(link: str) -> None:
    page = DOCS / "sql.md"
    assert (
        len(broken_links(f"see [this]({link}), [that](privacy.md) and [one](sql.md#error-bars)", page)) == 1
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_the_modules_that_a_page_names_are_there(page: Path) -> None:
    """Whole paths, or paths within the package."""
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)`", page.read_text("utf-8"))
    places = (DOCS.parent, DOCS.parent / "dpsql")
    assert [path for path in named if not any((place / path).exists() for place in places)] == []
