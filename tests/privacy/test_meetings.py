"""Every pair of features is published with a loss of at most its claim, or refused by name when it is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from dpsql.errors import CatalogError
from tests.engines.servers import postgres_or_skip
from tests.privacy.meetings import ENTRIES, PAIRS, Chosen, chosen, measured

REFUSED: dict[frozenset[str], str] = {
    frozenset({"Laplace", "private keys"}): "private keys need a delta",
    frozenset({"joint rows", "private keys"}): "private keys need a delta",
    frozenset({"joint tree", "private keys"}): "private keys need a delta",
    frozenset({"row", "summary"}): "under `unit: row` one row more would move a person",
    frozenset({"row", "reported"}): "only a column of the table that",
    frozenset({"row", "people"}): "each row of `sales` is a unit",
    frozenset({"auto", "reported"}): "a reported column needs a declared `max_ids`",
    frozenset({"auto", "stream"}): "a stream cannot choose it",
    frozenset({"weight", "stream"}): "streams bound rows by `truncate` alone",
    frozenset({"private keys", "stream"}): "a stream does not find private keys",
    frozenset({"summary", "stream"}): "a person's row would change with each batch",
    frozenset({"reported", "stream"}): "goes with neither `collection:` nor `stream:`",
    frozenset({"reported", "PostgreSQL"}): "reports are joined to rows in files or in DuckDB",
    frozenset({"people", "stream"}): "a stream does not count `people`",
    frozenset({"stream", "PostgreSQL"}): "a stream's batches are files or in DuckDB",
}
"""Pairs that no catalog has, and the words that say so."""

DRAWN_APART = ("auto", "count", "people", "stream")
"""Entries with which numbers of a row are drawn apart, or are one."""


def cases() -> Iterator[object]:
    """Each catalog once; PostgreSQL, and most of the others, in `make slow`."""
    catalogs: dict[tuple[str, ...], Chosen] = {tuple(chosen(pair).values()): chosen(pair) for pair in PAIRS}
    for number, (name, entries) in enumerate(catalogs.items()):
        dear = "stream" in name or "PostgreSQL" in name or number % 12
        yield pytest.param(entries, id=" + ".join(name), marks=[pytest.mark.slow] if dear else [])


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A PostgreSQL's connection string."""
    with postgres_or_skip() as running, mock.patch.dict(os.environ):  # each side's address is put there
        yield running.dsn


@pytest.mark.parametrize("entries", cases())
def test_where_two_features_meet(entries: Chosen, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    where = request.getfixturevalue("server") if entries["source"] == "PostgreSQL" else ""
    refused = [words for pair, words in REFUSED.items() if pair <= set(entries.values())]
    if refused:
        with pytest.raises(CatalogError) as refusal:
            measured(entries, tmp_path, where)
        assert any(words in str(refusal.value) for words in refused)
        assert "catalog.yaml" in str(refusal.value)  # while it was loaded, before any row was read
        return
    loss = measured(entries, tmp_path, where)
    assert 0 < loss.share <= 1
    if entries["law"] == "joint rows" and not set(entries.values()) & set(DRAWN_APART):
        assert any(purpose.endswith("together") for purpose, _ in loss.lines)


def test_the_table_is_whole() -> None:
    """199 pairs; each is in a catalog that is published, or is refused under its own name."""
    assert len(PAIRS) == 199 == len({frozenset(pair) for pair in PAIRS})
    published = [
        set(chosen(pair).values()) for pair in PAIRS
        if not any(names <= set(chosen(pair).values()) for names in REFUSED)
    ]  # fmt: skip
    for (_, one), (_, other) in PAIRS:
        assert frozenset({one, other}) in REFUSED or any({one, other} <= entries for entries in published)
    assert all(len(entries) == len(ENTRIES) for entries in published)
