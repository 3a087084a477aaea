"""Random stars cost their claim from every kind of source without a server; the sources benchmark adds PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.privacy.stored import SOURCES, measure_stored, random_stored
from tests.thinned import by_default

KINDS = [name for name in SOURCES if name != "PostgreSQL"]
TIGHT = 6
"""A star over two tables on the way to the person, with halves among its amounts; its claim is tight."""


@pytest.mark.parametrize("name", by_default(KINDS, 3))
def test_a_tight_star_uses_up_its_claim(tmp_path: Path, name: str) -> None:
    star = random_stored(TIGHT)
    assert star.tight
    assert 0.98 <= measure_stored(star.pair, SOURCES[name](TIGHT), tmp_path, TIGHT).share <= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 13))
def test_no_star_costs_more_than_its_claim(tmp_path: Path, seed: int) -> None:
    star = random_stored(seed)
    for name in KINDS:
        assert measure_stored(star.pair, SOURCES[name](seed), tmp_path / name, seed).share <= 1
