"""JSON values of the page: the star, examples, completions, answers with their errors, plans.

Every statement goes through `OpenReleases.query`, with its guard and its limits of time, rows and memory, and nowhere
else. What cannot be answered is a refusal of one sentence.

`dpsql site` writes a release as a folder of plain files for any host, with a builder of questions that needs no SQL.
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

import datetime
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

from dpsql.api import certificate
from dpsql.errors import Error, InterfaceError
from dpsql.executor.engine import HALF
from dpsql.faults import ANEW, machine
from dpsql.federation.session import OpenReleases
from dpsql.interfaces.python import describe
from dpsql.interfaces.web.page import SHARED, asset, certificate_page, document
from dpsql.interfaces.web.report import report_page
from dpsql.progress import Progress, Stage
from dpsql.release import Release
from dpsql.release.promises import FREE, promise_words
from dpsql.results.export import new_folder
from dpsql.results.render import NUMBERS, NUMERIC, margins, number, plain, render, shown
from dpsql.results.result import Result
from dpsql.row_expressions import identifier, literal

MOST_ROWS = 500
"""Rows that the page shows and draws; the CSV file holds all of them."""
MOST_OFFERS, MOST_EXAMPLES = 50, 12
PLAIN_TYPES = {
    "INT": "whole number", "DECIMAL": "number", "DOUBLE": "number", "VARCHAR": "text", "BOOL": "yes or no",
    "TIMESTAMP": "time", "DATE": "day",
}  # fmt: skip
Json = dict[str, Any]


class Explorer:
    """Open releases as the page sees them. Its methods may run in several threads."""

    def __init__(self, releases: OpenReleases) -> None:
        self.releases = releases

    @cached_property
    def words(self) -> describe.Words:
        return describe.Words(
            table for release in self.releases.releases for table in describe.describe(release)
        )

    @cached_property
    def star(self) -> Json:
        """The releases: name, subject, description, promise, and their tables as trees of foreign keys."""
        described = [{"subject": self._subject(r), **_release(r)} for r in self.releases.releases]
        return {"free": FREE, "releases": described}

    def _subject(self, release: Release) -> str:
        """Whose data a release is about, how many by a public guess or else by its own noisy count, and their days."""
        catalog, unit = release.catalog, release.catalog.privacy.unit
        table = unit.table or next(iter(dict.fromkeys(s.of for s in release.statistics)), "")
        guesses = [t.guess for t in catalog.tables.values() if t.guess is not None]
        many = f"about {guesses[0].units:,} " if guesses and unit.table else ""
        if not many:
            answer = self.ask(f"SELECT COUNT(*) FROM {identifier(table)}", 0.95)
            many = f"{answer['rows'][0][0]['text']} " if "rows" in answer else ""
        columns = [c for t in catalog.tables.values() if not t.is_public for c in t.columns.values()]
        days = [
            str(end) for c in columns if c.type in ("date", "timestamp") for end in (c.lower, c.upper) if end
        ]
        when = f", {min(days)} to {max(days)}" if days else ""
        return f"{many}{'' if unit.table else 'rows of '}{table}{when}"

    @cached_property
    def examples(self) -> Json:
        """Questions that these releases answer well, in words and in SQL, with their relative errors."""
        rated = describe.well_answered(self.releases, MOST_EXAMPLES)
        return {
            "examples": [
                {"words": question.words, "sql": question.sql, "error": f"± {HALF * error:.1%}"}
                for question, _, error in rated
            ]
        }

    @cached_property
    def builder(self) -> Json:
        """Parts of a question for the builder: each counted table's aggregates, and the groupings of each view."""
        tables: dict[str, Json] = {}
        for release in self.releases.releases:
            for (source, _, aggregates), expressions in describe.together(release, self.releases):
                table = tables.setdefault(source, {"source": source, "aggregates": aggregates, "views": []})
                views = [{"words": by.words, "sql": by.sql, "selected": by.selected} for by in expressions]
                table["views"] += [views] if views and views not in table["views"] else []
        return {"tables": list(tables.values())}

    @cached_property
    def report(self) -> str:
        """The page about the first release, and what it promises beside the others."""
        first, *others = self.releases.releases
        return _with_way_back(report_page(first, self.releases if others else None))

    @cached_property
    def certificate(self) -> str:
        """The first release's certificate, or why it has none."""
        release = self.releases.releases[0]
        try:
            page = certificate_page(certificate(release.path))
        except Error as error:
            words = f"<h1>{escape(release.name)}</h1><p>No certificate: {escape(str(error))}</p>"
            page = document(release.name, words)
        return _with_way_back(page)

    def offers(self, before: str) -> Json:
        """Words that may go on from the text before the cursor."""
        offers = islice(describe.complete(self.words, before), MOST_OFFERS)
        return {"offers": [dict(zip(("text", "typed", "comment"), offer, strict=True)) for offer in offers]}

    def ask(self, sql: str, level: float) -> Json:
        """An answer with its errors, or a refusal."""
        try:
            return answer_values(self.releases.query(sql).rounded(), level)
        except Error as error:
            return refusal(error)

    def explain(self, sql: str) -> Json:
        """Stages of a plan in words, with the nodes of each axis, or a refusal."""
        try:
            answer = self.releases.query(sql)
            stages = "\n".join(self.releases.stages(answer)).splitlines()
            return {"stages": stages, "axes": _summed_nodes(answer.decomposition)}
        except Error as error:
            return refusal(error)

    def csv(self, sql: str, level: float) -> Json:
        """The whole answer as a CSV file's text, with columns for its errors, or a refusal."""
        try:
            return {"csv": render(self.releases.query(sql).rounded(), "csv", level) + "\n"}
        except Error as error:
            return refusal(error)


def _with_way_back(page: str) -> str:
    """A whole page with links to the others."""
    links = (("./", "Questions"), ("report", "Report"), ("certificate", "Certificate"))
    anchors = " ".join(f'<a href="{place}">{words}</a>' for place, words in links)
    return page.replace("<body>", f'<body><nav aria-label="Pages" class="pages">{anchors}</nav>', 1)


def _summed_nodes(blocks: Sequence[Json]) -> list[Json]:
    """The nodes of each axis that an answer is a sum of, once each, coarse ones first."""
    axes: dict[tuple[str, int], dict[tuple[int, int], Json]] = {}
    sums = (
        each for block in blocks for view in block["views"] for term in view["terms"] for each in term["sums"]
    )
    for axis in (axis for each in sums for axis in each["axes"]):
        nodes = axes.setdefault((axis["axis"], axis["leaves"]), {})
        nodes.update({(node["from"], node["to"]): node for node in axis["nodes"] if "from" in node})
    keys = ("from", "to", "level", "measured")
    ordered = {
        axis: sorted(nodes.values(), key=lambda node: (node["level"], node["from"]))[:MOST_ROWS]
        for axis, nodes in axes.items()
    }
    return [
        {"axis": name, "leaves": leaves, "nodes": [{key: node[key] for key in keys} for node in nodes]}
        for (name, leaves), nodes in ordered.items()
        if nodes
    ]


def refusal(error: Error) -> Json:
    """Refusal of a statement: the reason, what to write instead, and the position."""
    hints = [error.hint] if error.hint else []
    hints += [f"for instance {error.nearest}"] if error.nearest not in error.hint else []
    return {"refused": error.reason, "hints": hints, "caret": error.caret}


def answer_values(result: Result, level: float) -> Json:
    """An answer as the page shows and draws it.

    Args:
        result: the answer.
        level: of its intervals.

    Returns:
        Columns, the first `MOST_ROWS` rows cell by cell, and the lines below them.
    """
    cells, below = shown(result, level, MOST_ROWS)
    first = result.head(MOST_ROWS)
    low, high = first.interval_rows(level)
    noisy = frozenset(first.noisy)
    columns = []
    for c, (name, kind) in enumerate(zip(result.columns, result.types, strict=True)):
        is_number, ordered = any(word in kind for word in NUMERIC), (*NUMBERS, datetime.date)
        # a line may join values that follow one another
        in_order = all(isinstance(row[c], ordered) and not isinstance(row[c], bool) for row in first.rows)
        columns.append({"name": name, "noisy": c in noisy, "number": is_number, "ordered": in_order})
    rows = [
        [_cell(text, first.rows[r][c], low[r][c], high[r][c], c in noisy) for c, text in enumerate(row)]
        for r, row in enumerate(cells)
    ]
    return {
        "columns": columns, "rows": rows, "below": below, "total": len(result.rows), "level": f"{level:.0%}"
    }  # fmt: skip


def _cell(text: str, value: Any, low: float | None, high: float | None, noisy: bool) -> Json:
    """A cell's text; where noise moves it, also its value and its interval."""
    if not noisy:
        return {"text": text, "literal": sql_literal(value)}
    if not isinstance(value, NUMBERS):
        return {"text": text}
    cell = {"text": text, "value": plain(value)}
    sides = [side for side in margins(value, low, high) if side is not None]
    if not sides:
        return cell
    ends = [
        sign + "∞" if end is None else number(end, max(sides))
        for sign, end in zip("-+", (low, high), strict=True)
    ]
    known = {name: plain(end) for name, end in (("low", low), ("high", high)) if end is not None}
    return cell | known | {"interval": " to ".join(ends)}


def sql_literal(value: Any) -> str | None:
    """A key's value as SQL writes it; None where it cannot be written, `NULL` where it is none.

    >>> sql_literal("it's"), sql_literal(None), sql_literal(datetime.date(2025, 1, 2)), sql_literal(True)
    ("'it''s'", 'NULL', "DATE '2025-01-02'", 'TRUE')
    """
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    if isinstance(value, datetime.datetime):
        return None if value.tzinfo else f"TIMESTAMP '{value.isoformat(' ')}'"
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str):
        return literal(value)
    return str(value) if isinstance(value, NUMBERS) else None


def _release(release: Release) -> Json:
    tables = describe.describe(release)
    by_name = {table.name: table for table in tables}
    wide = [
        table for table in tables if table.of != table.name
    ]  # it has another one's rows, with more columns
    facts = {table.of for table in wide} or set(by_name)
    pointed = {target for table in tables for target, _ in table.references.values()}
    # entry points of the star: the wide tables, the facts, and tables that no other refers to
    narrow = [table for table in tables if table.of == table.name]
    roots = [*wide, *(table for table in narrow if table.name in facts or table.name not in pointed)]
    seen = set[str]()
    return {
        "name": release.name,
        "description": " ".join(release.catalog.description.split()),
        "promise": promise_words(release.meta.privacy),
        "tables": [_tree(table, by_name, seen) for table in roots if table.name not in seen],
    }


def _tree(table: describe.TableInfo, by_name: Mapping[str, describe.TableInfo], seen: set[str]) -> Json:
    """A table with its columns, and below the first foreign key to another table that one."""
    columns = []
    seen.add(table.name)
    for column in table.columns:
        target = table.references.get(column.name, ("", ""))[0]
        inner = target in by_name and target not in seen
        below = _tree(by_name[target], by_name, seen) if inner else None
        words = next((words for kind, words in PLAIN_TYPES.items() if kind in column.type), column.type)
        columns.append({"name": column.name, "type": words, "comment": column.comment, "refers": below})
    return {"name": table.name, "comment": table.comment, "kind": table.kind, "columns": columns}


HERE = "dpsql.interfaces.web.explore"
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
        for file, package, name in FILES:
            (draft / file).write_text(asset(package, name), encoding="utf-8")
        size = sum(written.stat().st_size for written in draft.iterdir())
    questions = len(content["questions"])
    return {"folder": str(folder), "questions": questions, "left_out": left_out, "bytes": size}


FILES = (
    ("index.html", HERE, "site.html"), ("site.css", HERE, "site.css"), ("site.js", HERE, "site.js"),
    ("look.css", SHARED, "look.css"), ("chart.js", SHARED, "chart.js"),
)  # fmt: skip
"""Files of a site, each with the asset that it is."""


def site_content(releases: OpenReleases, on_progress: Progress) -> tuple[dict[str, Any], list[str]]:
    """Contents of a site: the release, each question with its answer, and the questions left out."""
    release = releases.releases[0]
    asked = [*describe.headlines(releases), *describe.groupings(releases, MOST_GROUP_ROWS)]
    questions, left_out, cells = list[dict[str, Any]](), list[str](), 0
    for at, question in enumerate(dict.fromkeys(asked), 1):
        on_progress(Stage("asking", question.words, {}, at, len(asked)))
        try:
            answer = releases.query(question.sql).rounded()
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
            "rows": [list(map(_cell_list, row)) for row in shown["rows"]], "below": list(shown["below"]),
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


def _cell_list(cell: dict[str, Any]) -> list[Any]:
    """A cell as a list: text alone, or text, value, low, high and the interval in words."""
    if "value" not in cell:  # the builder of the explorer alone needs its literal
        return [cell["text"]]
    return [cell["text"], cell["value"], cell.get("low"), cell.get("high"), cell.get("interval", "")]
