"""Every defect that is put back is found, and nothing is found where nothing is planted."""

from __future__ import annotations

import pytest

from dpsql.errors import CatalogError
from tests.privacy.plant import PLANTS, Plant, is_found


def test_there_are_plants_enough() -> None:
    assert len({plant.name for plant in PLANTS}) == len(PLANTS) >= 15


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(plant, id=plant.name, marks=pytest.mark.slow if number % 4 else ())
        for number, plant in enumerate(PLANTS)
    ],
)
def test_a_planted_defect_is_found(plant: Plant, tmp_path) -> None:
    assert is_found(plant, tmp_path / "broken")


MEASURED_HERE = ("windowed_source", "fractions_after_whole_amounts", "file_beside_folders", "spelt_alike")


@pytest.mark.slow
@pytest.mark.parametrize(
    "measured",
    dict.fromkeys(plant.measured for plant in PLANTS if plant.measured.__name__ in MEASURED_HERE),
    ids=lambda measured: measured.__name__,
)
def test_nothing_is_found_where_nothing_is_planted(measured, tmp_path) -> None:
    """Of sources; joints are measured by themselves."""
    if any(plant.refused for plant in PLANTS if plant.measured is measured):
        with pytest.raises(CatalogError):
            measured(tmp_path)
    else:
        assert measured(tmp_path).share <= 1


def test_every_defect_has_a_place_to_be_put() -> None:
    """A class that is called otherwise now would be missed by the defects that are planted in `make slow` alone."""
    assert [plant.name for plant in PLANTS if not hasattr(*plant.seam)] == []
