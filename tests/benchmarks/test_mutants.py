"""Mutants that are the same program: what is said of a line is said of a line that is there."""

from __future__ import annotations

import pytest

from benchmarks.mutants.defects import defects
from benchmarks.mutants.equivalent import EQUIVALENT
from benchmarks.mutants.run import PROJECT


@pytest.mark.parametrize("module", sorted({module for module, *_ in EQUIVALENT}))
def test_each_is_a_defect_of_its_module(module: str) -> None:
    source = (PROJECT / module).read_text("utf-8")
    lines = source.splitlines()
    known = {(module, lines[d.line - 1].strip(), d.before, d.after) for d in defects(source)}
    assert {key for key in EQUIVALENT if key[0] == module} - known == set()
