"""Releases in memory, and whole tables: no file makes a reader take more time or memory than it gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dpsql.curator.audit.contents import read_table
from dpsql.errors import QueryTimeout, ReleaseError
from dpsql.federation import tables
from dpsql.federation.tables import TakenAxis, release_in_memory
from dpsql.release import Release, open_release, read
from dpsql.release.request import Request
from tests.release.hostile import make
from tests.release_fixture import make_rows, write_fixture


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fixture(tmp_path_factory.mktemp("memory") / "good.dpsql", make_rows())


@pytest.fixture
def release(good: Path) -> Iterator[Release]:
    found = open_release(good, insecure=True)
    yield found
    found.close()


def made(release: Release) -> Release:
    """A copy of the release's first statistic."""
    first = release.statistics[0]
    axes = [TakenAxis(release, axis) for axis in first.axes]
    return release_in_memory(
        release.meta, axes, [(first, np.zeros([a.meta.leaves for a in axes], np.int64))], {}
    )


def test_a_copy_has_the_same_axes_and_can_reach_nothing_else(release: Release):
    copy = made(release)
    for own, axis in enumerate(release.statistics[0].axes):
        for name, values in release.atoms(axis).items():
            np.testing.assert_array_equal(copy.atoms(own)[name], values)
    ask = "SELECT value FROM duckdb_settings() WHERE name = '{}'"
    told = {
        name: copy.read(ask.format(name), (), lambda result: result.fetchone())
        for name in ("enable_external_access", "lock_configuration", "memory_limit")
    }
    assert told == {
        "enable_external_access": ("false",), "lock_configuration": ("true",), "memory_limit": ("1.8 GiB",)
    }  # fmt: skip
    copy.close()


def test_what_does_not_fit_is_one_line(release: Release, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "LOCKDOWN", read.LOCKDOWN | {"memory_limit": "200KB"})
    with pytest.raises(ReleaseError, match="more than the memory allowed"):
        made(release)
    monkeypatch.undo()
    monkeypatch.setattr(tables, "MOST_NUMBERS", 1000)
    with pytest.raises(ReleaseError, match="more than the memory allowed"):
        made(release)


def test_a_copy_is_made_of_checked_tables(good: Path, tmp_path: Path):
    with pytest.raises(ReleaseError, match="larger than a release makes it"):
        made(open_release(make("millions of atoms", good, tmp_path / "hostile.dpsql"), insecure=True))


def test_whole_tables_are_read_within_bounds(release: Release, monkeypatch: pytest.MonkeyPatch):
    assert len(read_table(release, "node_combination_0")["estimate"]) > 100
    with pytest.raises(QueryTimeout), Request().working() as request:
        request.stop()
        read_table(release, "node_combination_0")
    monkeypatch.setattr(read, "MOST_NUMBERS", 100)
    with pytest.raises(ReleaseError, match="larger than a release makes it"):
        read_table(release, "node_combination_0")
