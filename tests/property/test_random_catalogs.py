"""Random catalogs are published and asked what they offer: they answer or refuse, and no error lacks its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.property.catalogs import Published, faults, publish_random
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

STATEMENTS = 20
SEEDS = (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("seed", by_default(SEEDS, 2))
def test_a_random_catalog_answers_or_refuses(tmp_path: Path, seed: int) -> None:
    published = publish_random(tmp_path, seed)
    assert isinstance(published, Published), published  # chosen so that all of these are published
    assert faults(published, seed, STATEMENTS) == []
