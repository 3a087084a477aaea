"""A few damaged pieces of every kind of input; `make withstand` reads thousands of each."""

from __future__ import annotations

import random

import pytest

from dpsql.client.device import from_json
from dpsql.errors import CatalogError, DataError, InternalError
from tests.property import fuzz
from tests.property.fuzz import KINDS, Kind, malformed, read_catalog, run
from tests.thinned import by_default

FEW = {
    "catalogs": 100, "collection plans": 1000, "reports": 60, "JSON reports": 300, "CSV sources": 5,
    "Parquet sources": 15,
}  # fmt: skip


@pytest.mark.usefixtures("publishes")
@pytest.mark.parametrize("name", by_default(FEW, 4))
def test_damaged_input_ends_in_an_answer_or_one_typed_line(name: str):
    found = run(KINDS[name], 3, FEW[name])
    assert not found.faults, "\n".join(found.faults)
    assert found.ends["refused"] >= FEW[name] // 5
    assert name == "reports" or found.ends["read"] > 0, "whoever reads nothing refuses nothing either"
    if name == "reports":
        assert found.ends["read"] == 0


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_thousands():
    from benchmarks.withstand.fuzz import measure

    assert measure(2) == 0


def test_a_fault_is_found(monkeypatch: pytest.MonkeyPatch):
    def fall(piece: int) -> None:
        if piece == 1:
            raise KeyError("no line")
        if piece == 2:
            raise InternalError("a sum that cannot be")
        if piece == 3:
            sum(range(3_000_000))

    monkeypatch.setattr(fuzz, "SECONDS", 0.01)
    found = run(Kind(lambda draw: draw.randrange(4), fall), 1, 12)
    assert found.ends.keys() == {"read", "traceback", "a broken promise", "slow"}
    assert found.slowest > 0.01


def test_a_catalog_of_names_for_names_is_refused_at_once():
    """Nine names of nine names .. of nine entries: a few hundred characters for 9^9 entries."""
    lines = ["dpsql: 1", "a: &a [x,x,x,x,x,x,x,x,x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]")
    with pytest.raises(CatalogError, match="aliases"):
        read_catalog("\n".join(lines))


def test_a_report_that_nests_without_end_is_one_line():
    with pytest.raises(DataError):
        from_json('{"report":' * 100_000)


def test_every_malformed_report_differs_from_a_good_one():
    draw = random.Random(4)
    assert len({malformed(draw) for _ in range(200)}) > 150
