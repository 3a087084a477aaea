"""Statements and refusals as text, for whoever writes no Python: files beside the tests.

A file of statements has sections:

    $JOINED = FROM sales JOIN customer USING (customer_id)      an abbreviation of what follows
    # a comment
    ## refused                                                  a section
    -- keys that find no customer are counted together          what is expected of the next statement, line by line
    SELECT COUNT(*) $JOINED WHERE NOT customer_id = 3;          one or more lines, up to a semicolon
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml


def sections(file: Path) -> dict[str, list[tuple[str, str]]]:
    """(statement, what is expected of it or nothing) of each section, in order."""
    found: dict[str, list[tuple[str, str]]] = {}
    words: dict[str, str] = {}
    statement, expected, section = list[str](), "", list[tuple[str, str]]()
    for line in file.read_text(encoding="utf-8").splitlines():
        for word, text in words.items():
            line = line.replace(word, text)
        if line.startswith("## "):
            section = found.setdefault(line[3:], [])
        elif re.match(r"\$[A-Z]+ = ", line):
            word, _, text = line.partition(" = ")
            words = {word: text} | words  # the longest of $A and $AB is the later one
        elif line.startswith("-- "):
            expected += "\n" * bool(expected) + line[3:]
        elif line and not line.startswith("# "):
            statement.append(line.strip())
            if line.endswith(";"):
                section.append((" ".join(statement)[:-1], expected))
                statement, expected = [], ""
    return found


def refusals(catalog: str) -> list[list[Any]]:
    """Changes of a catalog that are refused, each with what the refusal says."""
    file = Path(__file__).parent / "catalog" / "refusals.yaml"
    return list(yaml.safe_load(file.read_text(encoding="utf-8"))[catalog])
