"""Every joint of the house under aimed neighbours: the loss stays within the claim, and comes as near as is proved.

Every defect that is put back is found, and nothing is found where nothing is planted; random stars from every kind of
source without a server cost their claim, and the sources benchmark adds PostgreSQL.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.promises.stars import random_pair
from dpsql.errors import CatalogError
from tests.privacy.joints import DELTA, JOINTS, WITHIN, Joint, catalog, one_more
from tests.privacy.loss import measure
from tests.privacy.plant import PLANTS, Plant, is_found
from tests.privacy.stored import SOURCES, measure_stored, random_stored
from tests.thinned import by_default

CASES = [pytest.param(j, id=j.name, marks=[pytest.mark.slow] if j.slow else []) for j in JOINTS]


@pytest.mark.parametrize("joint", CASES)
def test_a_joint_loses_no_more_than_its_claim_and_as_much_as_is_proved(joint: Joint, tmp_path: Path) -> None:
    assert WITHIN * joint.proved <= joint.measured(tmp_path).share <= 1


def test_a_weight_chosen_from_data_is_used_up(tmp_path: Path) -> None:
    """A heavy customer is clipped, so she costs all that the views spend; the recipe's own steps are not all hers."""
    loss = one_more(catalog(bounds="max_ids: auto,", promise=DELTA, mechanism=""), 5000)(tmp_path)
    drawn = [draw.mu2 for draw in loss.draws if draw.where.endswith("contributions.recipe.draw")]
    charged = [amount for purpose, amount in loss.lines if purpose.startswith("view ")]
    assert len(drawn) == len(charged)
    assert 0.98 <= sum(drawn) / sum(charged) <= 1


def test_pure_weights_are_used_up(tmp_path: Path) -> None:
    """The same without a delta: a heavy customer is clipped to tau rows."""
    loss = one_more(catalog(bounds="max_ids: auto,", measures="[count]"), 5000)(tmp_path)
    (drawn,) = [draw.epsilon for draw in loss.draws if draw.where.endswith("offers.draw_view")]
    (charged,) = [amount for purpose, amount in loss.lines if purpose.startswith("view ")]
    assert 0.98 <= drawn / charged <= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_random_stars_lose_no_more_than_their_claim(seed: int, tmp_path: Path) -> None:
    pair = random_pair(seed)
    loss = measure(pair.catalog, pair.left, pair.right, tmp_path, batches=pair.batches, seed=seed)
    assert loss.share <= 1, pair.kind


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


KINDS = [name for name in SOURCES if name != "PostgreSQL"]


TIGHT_STAR = 6


"""A star over two tables on the way to the person, with halves among its amounts; its claim is tight."""


@pytest.mark.parametrize("name", by_default(KINDS, 3))
def test_a_tight_star_uses_up_its_claim(tmp_path: Path, name: str) -> None:
    star = random_stored(TIGHT_STAR)
    assert star.tight
    assert 0.98 <= measure_stored(star.pair, SOURCES[name](TIGHT_STAR), tmp_path, TIGHT_STAR).share <= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 13))
def test_no_star_costs_more_than_its_claim(tmp_path: Path, seed: int) -> None:
    star = random_stored(seed)
    for name in KINDS:
        assert measure_stored(star.pair, SOURCES[name](seed), tmp_path / name, seed).share <= 1
