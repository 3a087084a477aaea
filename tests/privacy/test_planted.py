"""Every defect that is put back is found, and nothing is found where nothing is planted."""

from __future__ import annotations

import pytest

from dpsql.errors import CatalogError
from tests.privacy.planted import PLANTS, is_found


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_planted_defect_is_found(plant, tmp_path):
    if plant.refused:
        with pytest.raises(CatalogError):
            plant.measured(tmp_path / "sound")
    else:
        assert plant.measured(tmp_path / "sound").share <= 1
    assert is_found(plant, tmp_path / "broken")
