"""The signing key: made once, private, and refused when it is not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dpsql.errors import IntegrityError, MachineFault
from dpsql.ledger.files import signing_seed


def test_it_is_made_once_and_for_its_owner_alone(tmp_path: Path):
    ledger = tmp_path / "private" / "ledger.duckdb"
    with ThreadPoolExecutor(8) as pool:
        seeds = set(pool.map(signing_seed, [ledger] * 32))
    assert len(seeds) == 1
    assert signing_seed(ledger) in seeds
    key = ledger.with_name("ledger.duckdb.key")
    assert seeds == {bytes.fromhex(key.read_text())} and len(*seeds) == 32
    assert key.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in ledger.parent.iterdir()] == [key.name]


def test_a_key_that_others_read_signs_nothing(tmp_path: Path):
    ledger = tmp_path / "ledger"
    signing_seed(ledger)
    key = tmp_path / "ledger.key"
    key.chmod(0o640)
    with pytest.raises(IntegrityError, match="others can read"):
        signing_seed(ledger)
    key.chmod(0o600)
    key.write_bytes(b"ab" * 31)
    with pytest.raises(IntegrityError, match="damaged"):
        signing_seed(ledger)


def test_a_key_that_cannot_be_read_is_a_fault_of_the_machine(tmp_path: Path):
    (tmp_path / "ledger.key").mkdir(mode=0o600)
    with pytest.raises(MachineFault, match="cannot be read or made"):
        signing_seed(tmp_path / "ledger")
