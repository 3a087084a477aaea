"""A damaged release answers as before or refuses with a typed error; it never answers something else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import ReleaseError
from dpsql.executor.engine import ReleaseEngine
from dpsql.release import open_release
from dpsql.release.format import Promise
from dpsql.release.write import ReleaseBuilder
from tests.release_fixture import make_rows, write_fixture

QUERIES = (
    "SELECT COUNT(*) FROM sales",
    "SELECT region, SUM(amount) AS s, AVG(amount) AS a FROM sales JOIN customer USING (customer_id) GROUP BY region",
    "SELECT sold_on, category, COUNT(*) AS n FROM sales JOIN product USING (product_id)"
    " JOIN category USING (category_id) GROUP BY sold_on, category",
    "SELECT age, COUNT(*) AS n FROM customer GROUP BY age",
)
HEADERS = 3 * 4096
"""Bytes of DuckDB's file header and its two database headers, of which the newer one counts."""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fixture(tmp_path_factory.mktemp("damage") / "shop.dpsql", make_rows())


def answers(path: Path) -> list[Any]:
    with closing(open_release(path, insecure=True)) as opened:
        answerer = ReleaseEngine(opened)
        results = [answerer.query(query) for query in QUERIES]
        return [(result.rows, result.stderr_rows, result.interval_rows(0.95)) for result in results]


def flipped(data: bytes, bits: Iterator[int]) -> Iterator[bytes]:
    for bit in bits:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bytes(damaged)


def survivors(release: Path, copies: Iterator[bytes]) -> tuple[int, int]:
    """How many damaged copies answered as before, and how many refused; anything else fails the test."""
    expected, same, refused = answers(release), 0, 0
    copy = release.with_name("copy.dpsql")
    for damaged in copies:
        copy.write_bytes(damaged)
        try:
            assert answers(copy) == expected
            same += 1
        except ReleaseError as error:
            assert "damaged" in str(error) or "lacks" in str(error), error
            refused += 1
    return same, refused


@pytest.mark.parametrize(
    ("flips", "headers", "cuts"), [(10, 6, 4), pytest.param(200, 200, 40, marks=pytest.mark.slow)]
)
def test_damage_is_never_silent(release: Path, flips: int, headers: int, cuts: int) -> None:
    data, draw = release.read_bytes(), random.Random(flips)
    anywhere = (draw.randrange(len(data) * 8) for _ in range(flips))
    assert survivors(release, flipped(data, anywhere))[1] > flips // 5  # else the bits missed what is read
    survivors(release, flipped(data, (draw.randrange(HEADERS * 8) for _ in range(headers))))
    _, refused = survivors(release, (data[: draw.randrange(len(data))] for _ in range(cuts)))
    assert refused > cuts // 2  # the last blocks may hold nothing that is read


def test_a_release_that_was_never_finished_is_no_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What lay in the file before its last table was written does not open as a release."""

    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dpsql.release.write.to_json", stop)
    with pytest.raises(KeyboardInterrupt):
        ReleaseBuilder("half", {}, "", Promise("row", "add_remove", "1"), [], False, [], [], []).write(
            tmp_path / "half"
        )
    with pytest.raises(ReleaseError):
        open_release(tmp_path / "half")
