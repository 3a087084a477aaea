"""Agents are told numbers with claims, and a report's numbers are looked up: none that is wrong passes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from dpsql.federation.session import OpenReleases
from dpsql.interfaces.agents import ClaimFile, Quote, Statement, check_report, claimed_answer, tools
from tests.command import dpsql_command

pytestmark = pytest.mark.usefixtures("publishes")
SQL = "SELECT region, COUNT(*) AS n, AVG(amount) AS spent FROM sales JOIN customer USING (customer_id) GROUP BY region"


@pytest.fixture
def told(opened: OpenReleases, tmp_path: Path) -> tuple[ClaimFile, list[dict[str, Any]]]:
    """A file of claims with one statement, and what an agent was told of it."""
    claims = ClaimFile(tmp_path / "claims.jsonl")
    statement = Statement(opened.releases[0].meta.release_id, SQL, 0.95)
    answer = claimed_answer(opened.query(SQL), statement, claims.add(statement))
    assert claims.add(statement) in claims.statements() and len(claims.statements()) == 1
    return claims, answer["rows"]


def verdicts(text: str, claims: ClaimFile, opened: OpenReleases) -> list[str]:
    return [quote.verdict for quote in check_report(text, claims.statements(), opened)]


def quoted(cell: dict[str, Any]) -> str:
    return f"{cell['value']:,.0f} ({cell['low']:,.0f} to {cell['high']:,.0f}) {cell['claim']}"


def test_right_numbers_are_right_however_they_are_written(
    opened: OpenReleases, told: tuple[ClaimFile, list[dict[str, Any]]]
) -> None:
    claims, rows = told
    n, spent = rows[1]["n"], rows[1]["spent"]
    margin = (n["high"] - n["low"]) / 2
    ways = [
        quoted(n), f"**{n['value']:.1f}** {n['claim']}", f"{n['value'] / 1000:.2f}k {n['claim']}",
        f"{n['value'] / 1e3:.1f} thousand{n['claim']}", f"{n['value']:.0f} ± {margin:.0f} {n['claim']}",
        f"{spent['value']:.2f} {spent['claim']}", f"({n['low']:,.1f} to {n['high']:,.1f}) {n['claim']}",
    ]  # fmt: skip
    for way in ways:
        assert set(verdicts(f"In 2025, on 2025-03-04, there were {way} of them.\n", claims, opened)) == {
            "right"
        }, way


def test_what_is_no_number_of_an_answer_needs_no_claim(
    opened: OpenReleases, told: tuple[ClaimFile, Any]
) -> None:
    text = "# 1 Shop\n\n1. First `12` at 10:30 in 2024\n2) second <!-- 99 -->\n```\n42\n```\n[x](https://a.example/77)\n"
    text += "Since 1999; March 2024. A 95% interval and v2beta, sha1 abc123.\n"
    assert verdicts(text, told[0], opened) == []


@pytest.mark.parametrize(("text", "verdict"), [
    ("There were 4,217.", "unclaimed"), ("About 12% left.", "unclaimed"), ("12 [00000000/0/n]", "invented"),
    ("2013 customers came.", "unclaimed"), ("To the market 2013 came.", "unclaimed"),
    ("It rose [{c}/0/n].", "wrong"), ("12 [{c}/99/n]", "invented"), ("12 [{c}/0/nothing]", "invented"),
    ("-1 [{c}/0/n]", "wrong"), ("0.5 [{c}/0/n]", "wrong"),
])  # fmt: skip
def test_what_is_not_right_is_told_apart(
    opened: OpenReleases, told: tuple[ClaimFile, Any], text: str, verdict: str
) -> None:
    claims, rows = told
    name = rows[0]["n"]["claim"][1:9]
    assert verdicts(text.replace("{c}", name), claims, opened) == [verdict]


def test_no_altered_number_passes(opened: OpenReleases, told: tuple[ClaimFile, list[dict[str, Any]]]) -> None:
    claims, rows = told
    chance = random.Random(5)
    for _ in range(300):
        row = chance.choice([row for row in rows if row["spent"]["value"] is not None])
        cell = row[chance.choice(("n", "spent"))]
        text = f"{cell['value']:.{chance.randrange(3)}f}"
        places = [place for place, character in enumerate(text) if character.isdigit()]
        place = chance.choice(places)
        other = str((int(text[place]) + chance.randrange(1, 10)) % 10)
        altered = text[:place] + other + text[place + 1 :]
        if altered.lstrip("-0") in ("", "."):
            continue
        assert verdicts(f"So {altered} {cell['claim']} it is.", claims, opened) == ["wrong"], (text, altered)
        swapped = next(peer["claim"] for peer in (r["n"] for r in rows) if peer["claim"] != cell["claim"])
        assert verdicts(f"So {text} {swapped} it is.", claims, opened) == ["wrong"]


def test_a_changed_file_of_claims_proves_nothing(
    opened: OpenReleases, told: tuple[ClaimFile, list[dict[str, Any]]], tmp_path: Path
) -> None:
    claims, rows = told
    line = json.loads(claims.file.read_text())
    forged = ClaimFile(tmp_path / "forged.jsonl")
    forged.file.write_text(json.dumps({**line, "sql": "SELECT 12 AS n"}) + "\n[1, 2]\nnot json\n")
    assert verdicts(f"12 {rows[0]['n']['claim']}", forged, opened) == ["invented"]
    other = Statement("f" * 32, SQL, 0.95)
    stale = f"12 [{forged.add(other)}/0/n]"
    (quote,) = check_report(stale, forged.statements(), opened)
    assert quote == Quote(1, "12", "stale", quote.why) and "ffffffff" in quote.why


def test_the_sdks_client_asks_and_its_report_is_checked(
    shop: Path, opened: OpenReleases, tmp_path: Path
) -> None:
    mcp, anyio = pytest.importorskip("mcp"), pytest.importorskip("anyio")

    claims = ClaimFile(tmp_path / "claims.jsonl")

    async def asked() -> tuple[dict[str, Any], dict[str, Any], Any]:
        async with mcp.Client(tools(opened, claims)) as client:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            assert listed == {"views", "ask", "explain"}
            views = await client.call_tool("views", {})
            answer = await client.call_tool("ask", {"sql": SQL})
            refused = await client.call_tool("ask", {"sql": "SELECT * FROM customer"})
            return json.loads(views.content[0].text), json.loads(answer.content[0].text), refused

    views, answer, refused = anyio.run(asked)
    assert {table["name"] for table in views["releases"][0]["tables"]} >= {"sales", "customer"}
    assert views["examples"] and views["releases"][0]["promise"]
    assert refused.is_error and "a release contains no rows" in refused.content[0].text
    report = tmp_path / "report.md"
    report.write_text("\n".join(f"- {row['region']}: {quoted(row['n'])}" for row in answer["rows"]))
    words = ["check", report, "--release", shop, "--claims", claims.file]
    done = dpsql_command(*words, cwd=tmp_path)
    assert done.returncode == 0 and "are right" in done.stdout, done.stdout + done.stderr
    report.write_text(report.read_text() + "\n\nAltogether 12,345,678.\n")
    done = dpsql_command(*words, cwd=tmp_path)
    assert done.returncode == 3 and "12,345,678 is unclaimed" in done.stdout
    assert dpsql_command(*words, "--allow-unclaimed", cwd=tmp_path).returncode == 0
