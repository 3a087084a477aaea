"""A hundred questions by the agents' protocol over three unseen stars: does an invented number pass `dpsql check`?

The protocol's own client asks; a report quotes what it was told, and beside each right number stand invented ones: a
digit is another, the claim is that of another cell, of a release that was replaced, of nothing, or there is none.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import anyio
import mcp

from benchmarks.figures import Figures, main
from benchmarks.firsthour.unseen import QUESTIONS, STARS, UnseenStar, published, statements
from dpsql.federation.session import open_session
from dpsql.interfaces.agents import ClaimFile, check_report, tools
from dpsql.interfaces.python.describe import groupings, headlines

ASKED, CELLS = 40, 4


def measure(figures: Figures, folder: Path) -> None:
    """Ask about three stars."""
    chance = random.Random(11)
    asked = right = quoted = passed = invented = 0
    for star in STARS[:3]:
        drafted = star.draft(folder / star.name)
        releases = open_session([published(drafted, folder / star.name, star.name)])
        claims = ClaimFile(folder / star.name / "claims.jsonl")
        answers = anyio.run(answered, releases, claims, star)
        asked += len(answers)
        right_lines, invented_lines = reported(answers, chance)
        quotes = check_report("\n\n".join(right_lines), claims.statements(), releases)
        quoted += len(quotes)
        right += sum(quote.verdict == "right" for quote in quotes)
        for line in invented_lines:
            verdicts = {quote.verdict for quote in check_report(line, claims.statements(), releases)}
            invented += 1
            passed += verdicts <= {"right"}
        print(f"{star.name}: {len(answers)} answers, {len(quotes)} numbers quoted", flush=True)
        releases.close()
    figures.table("agents: questions answered over three unseen stars", asked)
    figures.table("agents: quoted numbers that are found right", right / quoted)
    figures.at_most(f"agents: invented numbers that pass, of {invented}", passed, 0)


async def answered(releases: Any, claims: ClaimFile, star: UnseenStar) -> list[dict[str, Any]]:
    """What the client is told, question by question; refused ones are left out."""
    listed = (*headlines(releases), *groupings(releases))
    questions = [*statements(QUESTIONS / f"{star.name}.sql"), *(question.sql for question in listed)]
    answers: list[dict[str, Any]] = []
    async with mcp.Client(tools(releases, claims)) as client:
        for sql in dict.fromkeys(questions):
            if len(answers) == ASKED:
                break
            told = await client.call_tool("ask", {"sql": sql})
            if not told.is_error:
                answers.append(json.loads(told.content[0].text))
    return answers


def reported(answers: list[dict[str, Any]], chance: random.Random) -> tuple[list[str], list[str]]:
    """Lines about some cells of every answer: those that are right, and those that somebody made up."""
    told = [_noisy(answer) for answer in answers]
    cells = [cell for noisy in told for cell in chance.sample(noisy, min(CELLS, len(noisy)))]
    right, invented = list[str](), list[str]()
    for cell in cells:
        places = chance.randrange(3)
        text = f"{cell['value']:,.{places}f}"
        low, high = (None if end is None else f"{end:,.{places}f}" for end in (cell["low"], cell["high"]))
        interval = f" ({low} to {high})" if low and high and chance.random() < 0.7 else ""
        right.append(f"It was {text}{interval} {cell['claim']}.")
        digits = [i for i, character in enumerate(text) if character.isdigit()]
        place = chance.choice(digits)
        other = str((int(text[place]) + chance.randrange(1, 10)) % 10)
        altered = text[:place] + other + text[place + 1 :]
        if altered.strip("-0,.") or text.strip("-0,."):
            invented.append(f"It was {altered} {cell['claim']}.")
        peer = chance.choice(cells)
        if abs(peer["value"] - cell["value"]) > 10.0**-places:
            invented.append(f"It was {text} {peer['claim']}.")
        name = cell["claim"][1:9]
        unknown = name.translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))
        invented.append(f"It was {text} {cell['claim'].replace(name, unknown)}.")
        invented.append(f"It was {text}.")
    return right, invented


def _noisy(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        cell
        for row in answer["rows"]
        for cell in row.values()
        if isinstance(cell, dict) and isinstance(cell["value"], int | float)
    ]


if __name__ == "__main__":
    main(measure)
