"""Every joint of the house under aimed neighbours: the loss stays within the claim, and comes as near as is proved."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.promises.stars import random_pair
from tests.privacy.joints import DELTA, JOINTS, WITHIN, Joint, catalog, one_more
from tests.privacy.loss import measure

CASES = [pytest.param(j, id=j.name, marks=[pytest.mark.slow] if j.slow else []) for j in JOINTS]


@pytest.mark.parametrize("joint", CASES)
def test_a_joint_loses_no_more_than_its_claim_and_as_much_as_is_proved(joint: Joint, tmp_path: Path) -> None:
    assert WITHIN * joint.proved <= joint.measured(tmp_path).share <= 1


def test_a_weight_chosen_from_data_is_used_up(tmp_path: Path) -> None:
    """A heavy customer is clipped, so she costs all that the views spend; the recipe's own steps are not all hers."""
    loss = one_more(catalog(bounds="max_ids: auto,", promise=DELTA, mechanism=""), 5000)(tmp_path)
    drawn = [draw.mu2 for draw in loss.draws if draw.where.endswith("contributions.clipping.draw")]
    charged = [amount for purpose, amount in loss.lines if purpose.startswith("view ")]
    assert len(drawn) == len(charged)
    assert 0.98 <= sum(drawn) / sum(charged) <= 1


def test_pure_weights_are_used_up(tmp_path: Path) -> None:
    """The same without a delta: a heavy customer is clipped to tau rows."""
    loss = one_more(catalog(bounds="max_ids: auto,", measures="[count]"), 5000)(tmp_path)
    (drawn,) = [draw.epsilon for draw in loss.draws if draw.where.endswith("strategy.draw_view")]
    (charged,) = [amount for purpose, amount in loss.lines if purpose.startswith("view ")]
    assert 0.98 <= drawn / charged <= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_random_stars_lose_no_more_than_their_claim(seed: int, tmp_path: Path) -> None:
    pair = random_pair(seed)
    loss = measure(pair.catalog, pair.left, pair.right, tmp_path, batches=pair.batches, seed=seed)
    assert loss.share <= 1, pair.kind
