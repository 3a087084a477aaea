"""`dpsql init`: look at raw tables and write a first catalog, as somebody who knows them would; read `draft` for how.

Every bound, category list and public table that came from data gets ``confirm: true``, and so does the promise unless
the curator states it: publishing refuses while a mark is left, since a bound that one person decides would tell on that
person. The draft is a valid catalog as it is written.

**Privacy**: reads raw rows and shows bounds to the curator, before any promise is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dpsql.curate.design.designing import design_catalog
from dpsql.curate.draft.drafting import CatalogDraft, CuratorChoices, Sketch, draft
from dpsql.curate.draft.look import called, open_reader
from dpsql.errors import InterfaceError
from dpsql.publishing.userlevel.guess import Guess
from dpsql.star import parse_catalog


class DraftWorkload(NamedTuple):
    """Questions that a release is for, and about how many units and rows there are, in public."""

    statements: Sequence[str]
    guess: Guess | None = None


def draft_from_source(
    source: str | Path,
    output: Path,
    name: str | None,
    ask: Callable[[Sketch], CuratorChoices],
    workload: DraftWorkload | None = None,
) -> CatalogDraft:
    """Write a first catalog.

    Args:
        source: a folder of Parquet or CSV files, one such file, a DuckDB file, or `postgresql://..`.
        output: the catalog; must not exist.
        name: its name; the source's own unless given.
        ask: shown what was found, says what only the curator can.
        workload: questions that the views are designed for; without them each table gets first views.

    Returns:
        The draft, which is written to the output.

    Raises:
        SourceError: nothing readable there.
        InterfaceError: the output exists, or an answer names no table.
    """
    if output.exists():
        raise InterfaceError(f"{output} exists", hint="choose another output, or remove it")
    reader = open_reader(source)
    try:
        first_draft = draft(name or called(source), reader, ask)
    finally:
        reader.close()
    parse_catalog(first_draft.text, str(output))
    if workload is not None:
        designed = design_catalog(first_draft.text, output, workload.statements, workload.guess)
        first_draft = replace(first_draft, text=designed.text, design=designed)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(first_draft.text, encoding="utf-8")
    return first_draft
