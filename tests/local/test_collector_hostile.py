"""Reports and spools that mean harm, or that nobody thought of: none stops a collection or counts twice."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpsql.client import decode, to_json
from dpsql.client.entropy import system_entropy
from dpsql.client.plan import Plan
from dpsql.local.collector import CollectionManifest, add_spool, close_collection
from dpsql.local.files import open_state
from dpsql.local.tallies import RespondentRows, kind_of
from tests.local.test_collector import KEY, plan_of, reports_of

NO_AMOUNT = np.zeros((0, 1), np.int64)


def counted(plan: Plan, *paths: Path) -> CollectionManifest:
    state = open_state(plan)
    for path in paths:
        add_spool(state, plan, path, KEY)
    return close_collection(state, plan)[1]


@pytest.mark.parametrize(
    "extra",
    [{"token": "\ud800"}, {"token": "a", "epoch": 10**12}, {"token": "a", "epoch": -(10**12)}, {"epoch": 10**40},
     {"token": "a", "epoch": True}, {"token": ["a"]}, {"token": {}}, {"token": 1.5}, {"view": 10**4000},
     {"plan": "\ud800"}, {"payload": None}, {"oracle": {}}, {"oracle": []}, {"report": [1]}],
)  # fmt: skip
def test_one_hostile_line_costs_itself_alone(tmp_path: Path, extra: dict[str, object]) -> None:
    plan = plan_of()
    lines = [to_json(decode(report)) for report in reports_of(plan, 20)]
    (tmp_path / "a.jsonl").write_text(
        "\n".join([*lines[:10], json.dumps(json.loads(lines[0]) | extra), *lines[10:]])
    )
    found = counted(plan, tmp_path / "a.jsonl")
    assert (found.accepted, found.rejected) == (20, {"not a JSON report of version 1": 1})


@pytest.mark.parametrize(
    "line", [b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"1e999999", b"NaN", b"9" * 100_000]
)
def test_lines_that_are_no_json_object(tmp_path: Path, line: bytes) -> None:
    plan = plan_of()
    (tmp_path / "a.jsonl").write_bytes(line + b"\n" + to_json(decode(reports_of(plan, 1)[0])).encode())
    found = counted(plan, tmp_path / "a.jsonl")
    assert (found.accepted, found.rejected) == (1, {"not a JSON report of version 1": 1})


@pytest.mark.parametrize("tokens", [False, True])
def test_a_spool_that_grows_counts_each_line_once(tmp_path: Path, tokens: bool) -> None:
    plan, path = plan_of(), tmp_path / "reports.jsonl"
    lines = [json.loads(to_json(decode(report))) for report in reports_of(plan, 30)]
    texts = [json.dumps({**line, "token": str(i)} if tokens else line) for i, line in enumerate(lines)]
    state = open_state(plan, tmp_path / "state.duckdb", KEY)
    seen = []
    for upto in (10, 10, 17, 30):
        path.write_text("".join(f"{text}\n" for text in texts[:upto]))
        seen.append(add_spool(state, plan, path, KEY).reports)
    tallies, manifest = close_collection(state, plan)
    assert seen == [10, 10, 7, 13]
    assert (manifest.accepted, manifest.reports, manifest.rejected) == (30, 30, {})
    assert sum(t.total for t in tallies) == 30


def test_a_spool_read_while_its_last_line_is_written(tmp_path: Path) -> None:
    plan, path = plan_of(), tmp_path / "reports.jsonl"
    texts = [to_json(decode(report)) for report in reports_of(plan, 4)]
    state = open_state(plan)
    for text in ("\n".join(texts[:2]) + "\n" + texts[2][:20], "\n".join(texts[:3]), "\n".join(texts)):
        path.write_text(text)
        add_spool(state, plan, path, KEY)
    assert close_collection(state, plan)[1].accepted == 4


def test_another_file_that_begins_alike_is_counted_whole(tmp_path: Path) -> None:
    plan = plan_of()
    texts = [to_json(decode(report)) for report in reports_of(plan, 6)]
    (tmp_path / "a.jsonl").write_text("\n".join(texts[:3]))
    (tmp_path / "b.jsonl").write_text("\n".join([texts[1], texts[0], *texts[3:]]))
    assert counted(plan, tmp_path / "a.jsonl", tmp_path / "b.jsonl").accepted == 8


def test_simulated_people_without_a_row_draw_as_devices_do() -> None:
    plan = plan_of(tau=1, rows_floor=1, row_weighting="none", row_share=Fraction(0), joint=())
    rng, nobody = (
        np.random.default_rng(1),
        RespondentRows(np.zeros(4001, np.int64), np.zeros((0, 2), np.int64), NO_AMOUNT),
    )
    view = next(v for v in plan.views if v.kind == "grid")
    assert not view.empty
    simulated = np.bincount(
        kind_of(view).draw(plan, view, nobody, np.arange(4000), rng), minlength=view.domain
    )
    real = np.bincount(
        [view.asks.draw(plan, view, [], system_entropy) or 0 for _ in range(4000)], minlength=view.domain
    )
    for drawn in (simulated, real):
        expected = 4000 / view.domain
        assert ((drawn - expected) ** 2 / expected).sum() < view.domain + 6 * (2 * view.domain) ** 0.5
