"""The client: shared stream vectors, plan refusals, rows and leaves, report bytes, once-only memory."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.client import Memory, Report, Row, decode, encode, from_json, read_plan, to_json
from dpsql.client.device import draw_round
from dpsql.client.entropy import below, system_entropy
from dpsql.client.oracles import ORACLES, grr, oue, read_varint, varint
from dpsql.client.plan import largest_weight
from dpsql.errors import DataError, PrivacyError
from tests.local_plans import W1, InsecureTestEntropy, plan_of, plan_text, view

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "local.json").read_text())["client_stream"]


def stream_reports(entropy: InsecureTestEntropy) -> list[str]:
    views = [(3, 5, "GRR"), (4, 25, "OUE"), (5, 625, "OUE")]
    reports = []
    for _ in range(4):
        draw, number = below(12, entropy), 0
        while draw >= views[number][0]:
            draw -= views[number][0]
            number += 1
        _, domain, oracle = views[number]
        item = [2, 7, 311][number]
        payload = (
            varint(grr(item, domain, W1, entropy)) if oracle == "GRR" else oue(item, domain, W1, entropy)
        )
        reports.append(encode(Report(bytes.fromhex("0102030405060708"), number, oracle, payload)).hex())
    return reports


def test_stream_vectors_are_reproduced_byte_for_byte() -> None:
    entropy = InsecureTestEntropy(b"dpsql-test-1")
    assert [below(n, entropy) for n in (2, 3, 5, 256, 257, 1000000)] == VECTORS["below"]
    assert [grr(i % 5, 5, W1, entropy) for i in range(12)] == VECTORS["grr"]
    assert oue(3, 25, W1, entropy).hex() == VECTORS["oue"]
    assert stream_reports(entropy) == VECTORS["reports"]


def test_largest_weight_is_the_floor() -> None:
    assert largest_weight(Fraction(1)) == VECTORS["W"]
    assert largest_weight(Fraction(1, 2)) == 1728809


@given(st.integers(1, 1 << 48), st.binary(max_size=8))
def test_below_stays_below(bound: int, seed: bytes) -> None:
    assert 0 <= below(bound, InsecureTestEntropy(seed)) < bound


@pytest.mark.parametrize("bound", [0, -1, (1 << 48) + 1])
def test_below_refuses_bounds_it_cannot_draw(bound: int) -> None:
    with pytest.raises(ValueError, match="bound"):
        below(bound, system_entropy)


@given(
    st.integers(0, (1 << 28) - 1),
    st.integers(0, 65535),
    st.sampled_from(sorted(oracle.name for oracle in ORACLES)),
)
def test_reports_survive_bytes_and_json(value: int, number: int, oracle: str) -> None:
    report = Report(bytes(range(8)), number, oracle, varint(value))
    assert decode(encode(report)) == report == from_json(to_json(report))
    assert read_varint(varint(value))[0] == value


@pytest.mark.parametrize(
    "raw", [b"", b"L1", b"L2" + bytes(12), b"L1" + bytes(10) + b"\x07\x00", b"L1" + bytes(11)]
)
def test_bytes_that_are_no_report(raw: bytes) -> None:
    with pytest.raises(DataError):
        decode(raw)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{}",
        '{"report":2}',
        to_json(Report(bytes(8), 1, "GRR", b"\0"))[:-1],
        '{"report":1,"plan":"00","view":true,"oracle":"GRR","payload":"00"}',
    ],
)
def test_lines_that_are_no_report(line: str) -> None:
    with pytest.raises(DataError):
        from_json(line)


@pytest.mark.parametrize("raw", [b"\x80", b"\x80\x00", b"\xff\xff\xff\xff\x01", b""])
def test_integers_must_be_in_shortest_form(raw: bytes) -> None:
    with pytest.raises(DataError):
        read_varint(raw)


def memory(folder: Path, largest: int = 1, cap: int = 2) -> Memory:
    return Memory(folder / "device" / "memory.json", Fraction(largest), Fraction(cap))


def test_a_retry_resends_the_same_bytes_and_a_new_plan_of_the_collection_gets_them_too(
    tmp_path: Path,
) -> None:
    first = memory(tmp_path).answer(plan_of(), [Row((1, 1))], system_entropy)
    assert first is not None
    assert memory(tmp_path).answer(plan_of(), [Row((3, 1))], system_entropy) == first
    assert memory(tmp_path).answer(plan_of(view(share=7)), [], system_entropy) == first
    named = Memory(str(tmp_path / "device" / "memory.json"), Fraction(1), Fraction(2))  # type: ignore[arg-type]
    assert named.answer(plan_of(), [], system_entropy) == first, "a path may be text"


def test_lifetime_cap_and_largest_epsilon_hold(tmp_path: Path) -> None:
    device = memory(tmp_path)
    for name in ("a", "b"):
        assert device.answer(plan_of(collection=name), [], system_entropy)
    with pytest.raises(PrivacyError, match="spent all"):
        device.answer(plan_of(collection="c"), [], system_entropy)
    with pytest.raises(PrivacyError, match="more epsilon than this device"):
        memory(tmp_path, largest=0).answer(plan_of(), [], system_entropy)


def test_a_person_belongs_to_one_round(tmp_path: Path) -> None:
    device = memory(tmp_path)
    answers = [device.answer(plan_of(rounds=4, round=r), [], system_entropy) for r in range(4)]
    assert len({a for a in answers if a is not None}) == 1


def test_rounds_are_drawn_by_their_weights_and_evenly_without() -> None:
    entropy = InsecureTestEntropy(b"rounds")
    uneven = plan_of(rounds=2, round_shares=[1, 9])
    first = [draw_round(uneven, entropy) for _ in range(4000)].count(0)
    assert 300 < first < 500
    even = [draw_round(plan_of(rounds=3), InsecureTestEntropy(b"e")) for _ in range(5)]
    assert even == [below(3, InsecureTestEntropy(b"e")) for _ in range(5)]


def test_a_collection_cannot_raise_its_epsilon(tmp_path: Path) -> None:
    device = memory(tmp_path, largest=2)
    answers = {}
    for name in map(str, range(2)):
        cheap = plan_of(collection=name, rounds=2, round=0, epsilon="1/2", own=largest_weight(Fraction(1, 2)))
        answers[name] = device.answer(cheap, [], system_entropy)
        dear = plan_of(collection=name, rounds=2, round=1)
        if answers[name] is None:
            with pytest.raises(PrivacyError, match="raised"):
                device.answer(dear, [], system_entropy)
        else:
            assert device.answer(dear, [], system_entropy) == answers[name]


def test_test_entropy_is_unstorable(tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="test entropy"):
        memory(tmp_path).answer(plan_of(), [], InsecureTestEntropy(b""))


def test_plan_bytes_decide_the_hash() -> None:
    assert read_plan(plan_text().encode()).hash != read_plan(plan_text(round=0, tau=3).encode()).hash
