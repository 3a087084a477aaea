"""Publishing says what an earlier crash had left behind."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.budget import Epsilon
from dpsql.central.central import Published
from dpsql.errors import IntegrityError
from dpsql.ledger.files import beside
from dpsql.ledger.identity import Label, Receipt, Recovery
from dpsql.ledger.publish import opened, published_before
from tests.ledger.test_ledger import Curator


@pytest.mark.parametrize(
    ("recovery", "words"),
    [
        (Recovery(), "published"),
        (Recovery(finished=Path("a.dpsql")), "a.dpsql is now in place"),
        (Recovery(lost=Path("b.dpsql")), "stays charged but its file b.dpsql is gone"),
        (Recovery(removed=Path(".c")), "its draw was destroyed"),
    ],
)
def test_recovery_is_said(recovery, words):
    receipt = Receipt("id", Path("x.dpsql"), "0" * 64, True, Fraction(1), Fraction(3), Epsilon(), recovery)
    assert words in Published(Path("x.dpsql"), receipt, 2, 10).summary().splitlines()[0]


@pytest.mark.usefixtures("publishes")
def test_a_label_is_looked_up_only_where_a_ledger_is_and_never_beside_a_lost_one(tmp_path: Path) -> None:
    curator, name = Curator(tmp_path), Label("shop", "a", "spec")
    assert published_before(curator.ledger, name, tmp_path / "a.dpsql") is None
    assert not curator.ledger.exists()
    curator.publish("a")
    receipt = published_before(curator.ledger, name, tmp_path / "a.dpsql")
    assert receipt is not None and receipt.path == tmp_path / "a.dpsql"
    beside(curator.ledger, ".head").rename(tmp_path / "head")
    with pytest.raises(IntegrityError):
        published_before(curator.ledger, name, tmp_path / "a.dpsql")
    (tmp_path / "head").rename(beside(curator.ledger, ".head"))
    curator.ledger.unlink()
    with pytest.raises(IntegrityError):
        published_before(curator.ledger, name, tmp_path / "a.dpsql")


@pytest.mark.usefixtures("publishes")
def test_a_head_may_lie_one_row_behind_and_no_more(tmp_path: Path) -> None:
    curator, heads = Curator(tmp_path), []
    for label in "abc":
        curator.publish(label)
        heads.append(beside(curator.ledger, ".head").read_bytes())
    beside(curator.ledger, ".head").write_bytes(heads[0])
    with pytest.raises(IntegrityError, match="has 6 entries, its head 2"):
        curator.publish("d")
    beside(curator.ledger, ".head").write_bytes(heads[2])
    with opened(curator.ledger) as (store, _):
        behind = {"sequence": 5, "hash": store.entries[4].hash}
    beside(curator.ledger, ".head").write_text(json.dumps(behind))
    assert curator.publish("d").drawn
