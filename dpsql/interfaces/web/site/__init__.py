"""`dpsql site`: a release as a folder of plain files for any host, with a builder of questions that needs no SQL.

Every grouping of a view by one column or two is asked once, here, and its answer is written down as it is printed:
text, value and the ends of its interval. The page offers these and nothing else: a sum over some of the rows shown
would need what the release knows of how their errors go together, so it is asked of the release, or is a coarser
question that is here too.

    index.html  site.css  look.css     the page; it fetches nothing from elsewhere
    site.js  chart.js                  the builder and its charts
    data.js                            the answers

**Privacy**: post-processing; asks the open release as everybody may.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dpsql.errors import Error, InterfaceError
from dpsql.faults import ANEW, machine
from dpsql.federation.session import OpenReleases
from dpsql.interfaces.questions import groupings, headlines
from dpsql.interfaces.web.explore.answers import answer_values
from dpsql.interfaces.web.page import SHARED, asset
from dpsql.progress import Progress, Stage
from dpsql.release.promises import FREE, promise_words
from dpsql.results.export import new_folder

HERE = "dpsql.interfaces.web.site"
LEVEL = 0.95
MOST_CELLS, MOST_GROUP_ROWS = 40_000, 400
"""Rows of all answers together, and of one."""
SCRIPT = {ord("<"): "\\u003c", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def write_site(releases: OpenReleases, folder: Path, on_progress: Progress) -> dict[str, Any]:
    """Write the files of a site.

    Args:
        releases: one open release.
        folder: to make.
        told: called with each step.

    Returns:
        The folder, how many questions it answers, which are left out, and its bytes.

    Raises:
        InterfaceError: several releases, or a folder that exists.
        MachineFault: the folder cannot be written.
    """
    if len(releases.releases) > 1:
        raise InterfaceError("a site is of one release", hint="write one for each")
    if folder.exists():
        raise InterfaceError(f"{folder} exists", hint="choose another folder, or remove it")
    content, left_out = site_content(releases, on_progress)
    with machine("the site was not written", ANEW), new_folder(folder) as draft:
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).translate(SCRIPT)
        (draft / "data.js").write_text(f"const release = {text};\n", encoding="utf-8")
        for package, name in FILES:
            (draft / name).write_text(asset(package, name), encoding="utf-8")
        size = sum(file.stat().st_size for file in draft.iterdir())
    questions = len(content["questions"])
    return {"folder": str(folder), "questions": questions, "left_out": left_out, "bytes": size}


FILES = (
    (HERE, "index.html"), (HERE, "site.css"), (HERE, "site.js"), (SHARED, "look.css"), (SHARED, "chart.js"),
)  # fmt: skip


def site_content(releases: OpenReleases, on_progress: Progress) -> tuple[dict[str, Any], list[str]]:
    """Contents of a site: the release, each question with its answer, and the questions left out."""
    release = releases.releases[0]
    asked = [*headlines(releases), *groupings(releases, MOST_GROUP_ROWS)]
    questions, left_out, cells = list[dict[str, Any]](), list[str](), 0
    for number, question in enumerate(dict.fromkeys(asked)):
        on_progress(Stage("asking", question.words, {}, number + 1, len(asked)))
        try:
            answer = releases.query(question.sql)
        except Error as error:
            left_out.append(f"{question.words}: {error.reason}")
            continue
        if cells + len(answer.rows) > MOST_CELLS or len(answer.rows) > MOST_GROUP_ROWS:
            left_out.append(f"{question.words}: too many rows")
            continue
        cells += len(answer.rows)
        shown = answer_values(answer, LEVEL)
        by = question.topic.partition(" ")[2] if question.topic else ""
        questions.append({
            "what": question.words.removesuffix(f" by {by}") if by else question.words,
            "by": by.split(" and ") if by else [], "sql": question.sql, "columns": shown["columns"],
            "rows": [list(map(_cell, row)) for row in shown["rows"]], "below": list(shown["below"]),
        })  # fmt: skip
    about = {
        "name": release.name,
        "id": release.meta.release_id,
        "description": " ".join(release.catalog.description.split()),
        "promise": [*promise_words(release.meta.privacy), FREE],
        "level": f"{LEVEL:.0%}",
        "questions": questions,
    }
    return about, left_out


def _cell(cell: dict[str, Any]) -> list[Any]:
    """A cell as a list: text alone, or text, value, low, high and the interval in words."""
    if "value" not in cell:  # the builder of the explorer alone needs its literal
        return [cell["text"]]
    return [cell["text"], cell["value"], cell.get("low"), cell.get("high"), cell.get("interval", "")]
