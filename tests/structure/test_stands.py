"""Each figure of `make structure` keeps its bound, and one that is short of it does not move away from it."""

from __future__ import annotations

import pytest

from tests.structure.bounds import BOUNDS, PROJECT, RULES
from tests.structure.source import the_package


@pytest.mark.long
def test_sizes_are_within_bounds() -> None:
    assert RULES.keys() == BOUNDS.keys()
    measured = {name: len(rule(the_package())) for name, rule in RULES.items()}
    assert {name: value for name, value in measured.items() if value > BOUNDS[name].most} == {}
    project = {name: measure() for name, (measure, _) in PROJECT.items()}
    assert {name: value for name, value in project.items() if value > PROJECT[name][1].most} == {}


def test_a_ceiling_stands_above_its_bound() -> None:
    assert [name for name, bound in BOUNDS.items() if bound.most < bound.bound] == []
