"""What a machine refuses during an append is one line, and the same append ends it: one batch, one charge."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsql.errors import CatalogError, MachineFault, OperationalError
from dpsql.ledger.store import budget_report
from dpsql.streams.public import read_manifest
from tests.kill.scenes import DAYS
from tests.ledger.test_faults import FAULTS, Refusal
from tests.releases import seeded
from tests.stream_shop import CATALOG, StreamShop, make_stream_shop
from tests.thinned import by_default

TEXT = CATALOG[: CATALOG.index("views:")] + DAYS


def refuse(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int, day: int) -> bool:
    """Append a day while one system call fails, then again; whether there was such a call."""
    shop: StreamShop = make_stream_shop(folder, customers=20, text=TEXT, noise=seeded(number))
    for before in range(day):
        shop.append(before)
    uncharged = False
    with monkeypatch.context() as patch:
        refusal = Refusal(patch, name, number, FAULTS[number % len(FAULTS)])
        try:
            shop.append(day)
        except MachineFault as error:
            assert error.exit_code == 4 and "run the same command again" in str(error)
        except (CatalogError, OperationalError) as error:
            assert "retail.yaml: cannot be read" in str(error) or "a temporary folder" in str(error)
            uncharged = True
    if refusal.left > 0:
        return False
    ledger = shop.folder / ".dpsql" / "ledger.duckdb"
    if uncharged and not day:
        assert not ledger.exists() or not budget_report(ledger).lineages
    shop.append(day)
    (lineage,) = budget_report(ledger).lineages
    assert (lineage.spent, len(lineage.entries)) == (1, 1)
    assert read_manifest(shop.directory).batches == day + 1
    assert not [path for path in shop.folder.rglob("*") if path.name.endswith((".new", ".draft", ".copy"))]
    return True


@pytest.mark.usefixtures("publishes")
@pytest.mark.parametrize(
    ("name", "number", "day"),
    by_default([("fsync", 9, 0), ("fsync", 3, 1), ("replace", 4, 1), ("open", 9, 1)], 1),
)
def test_a_refused_call(tmp_path, monkeypatch, name, number, day):
    assert refuse(tmp_path, monkeypatch, name, number, day)


@pytest.mark.slow
@pytest.mark.parametrize("day", [0, 1])
@pytest.mark.parametrize("name", ["fsync", "replace", "open", "unlink", "mkdir", "chmod"])
def test_every_refused_call(tmp_path, monkeypatch, name, day):
    number = 1
    while refuse(tmp_path / str(number), monkeypatch, name, number, day):
        number += 1
    assert number > 1 or (name, day) == ("mkdir", 1)
