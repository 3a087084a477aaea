"""Every joint of the house under aimed neighbours: the loss stays within the claim, and comes as near as is proved."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.promises.stars import random_pair
from tests.privacy.joints import JOINTS, WITHIN, Joint
from tests.privacy.loss import measure

CASES = [pytest.param(j, id=j.name, marks=[pytest.mark.slow] if j.slow else []) for j in JOINTS]


@pytest.mark.parametrize("joint", CASES)
def test_a_joint_loses_no_more_than_its_claim_and_as_much_as_is_proved(joint: Joint, tmp_path: Path) -> None:
    assert WITHIN * joint.proved <= joint.measured(tmp_path).share <= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_random_stars_lose_no_more_than_their_claim(seed: int, tmp_path: Path) -> None:
    pair = random_pair(seed)
    loss = measure(pair.catalog, pair.left, pair.right, tmp_path, batches=pair.batches, seed=seed)
    assert loss.share <= 1, pair.kind
