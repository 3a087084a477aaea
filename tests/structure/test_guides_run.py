"""Every command of the guides is typed, over small stand-ins for the files that they name.

Tutorials and the walk make their own files (`test_pages_run.py`); guides name files that a reader has. Each console
block is typed in a folder of its own. `GUIDES` says by a block's first command what lies there before, and before which
later command something else comes in, such as people's reports. Commands that stay until they are stopped, or need
another machine, are in `ELSEWHERE` with what runs them.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.client import decode, read_plan, respond, to_json
from dpsql.client.device import to_rows
from dpsql.client.entropy import system_entropy
from dpsql.client.plan import Plan
from dpsql.examples import retail
from dpsql.local.services import read_sheet
from dpsql.local.simulate import simulate_reports, write_spool
from dpsql.local.survey import ReportProvenance, write_items
from dpsql.local.tallies import RespondentRows
from tests.central import test_hybrid
from tests.command import dpsql_command
from tests.local.test_local_adaptive import CATALOG as PLACES
from tests.local.test_services_release import catalog_text
from tests.pages import NOT_HERE, blocks, compare, run_command, typed
from tests.privacy.loss import RawRows, write_side
from tests.stream_shop import CATALOG as DAYS
from tests.stream_shop import make_stream_shop

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PEOPLE = 400
Prepare = Callable[[Path], None]

VISITS = """
dpsql: 1
name: visits
privacy: {lineage: visitors, cap: 4, unit: person.id, epsilon: 4}
collection: {epsilon: 4, tau: estimate, row_share: 1/5}
tables:
  person: {role: dimension, key: id, private: true, columns: {}}
  visit: {role: fact, foreign_keys: {id: person}, max_ids: 5, columns: {hour: {type: int, lower: 0, upper: 7}}}
views: {hours: {of: visit, axes: [visit.hour], measures: [count]}}
"""
ELSEWHERE = {
    "dpsql serve": "tests/interfaces/test_wire.py",
    "psql": "tests/interfaces/test_wire.py",
    "printf": "tests/interfaces/test_wire.py",
    "dpsql explore": "tests/interfaces/test_explore.py",
    "dpsql mcp": "tests/interfaces/test_mcp.py",
    "dpsql check": "tests/interfaces/test_mcp.py",
    "superset-env/bin/pip": "python -m tests.superset",
    "python3.11 -m venv": "python -m tests.superset",
    "node": "tests/privacy/test_witness.py",
    "curl": "a collector of the reader's own",
}


def ran(folder: Path, *words: str) -> None:
    """A command that the reader has typed before."""
    done = dpsql_command(*words, cwd=folder)
    assert done.returncode == 0, done.stderr


def shop(folder: Path) -> None:
    """The bundled shop with few customers, and the shipped catalogs over it."""
    retail.write_star(folder / "data", retail.make_star(7, 500, 50))
    shutil.copytree(ROOT / "catalog", folder / "catalog", ignore=shutil.ignore_patterns(".dpsql"))
    (folder / "catalog" / "data").symlink_to(folder / "data")


def published(folder: Path) -> None:
    """The shop's release."""
    shop(folder)
    ran(folder, "publish", "catalog/retail.yaml", "-o", "retail.dpsql")


def published_shop(folder: Path) -> None:
    """The same as a shop of the reader's own."""
    shop(folder)
    shutil.copy(folder / "catalog" / "retail.yaml", folder / "shop.yaml")
    ran(folder, "publish", "shop.yaml", "-o", "shop.dpsql")


def workload(folder: Path) -> None:
    """The questions that the page shows, and one between them."""
    shop(folder)
    shutil.copy(folder / "catalog" / "retail_user.yaml", folder / "catalog" / "shop.yaml")
    (folder / "questions.sql").write_text(
        """SELECT region, SUM(amount) FROM sales JOIN customer USING (customer_id)
        WHERE sold_on >= DATE '2025-07-01' GROUP BY region;
        SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE age < 30;
        SELECT * FROM sales;"""
    )


def survey(folder: Path) -> None:
    """The two catalogs of the page."""
    shop(folder)
    shutil.copy(folder / "catalog" / "survey.yaml", folder / "survey.yaml")
    shutil.copy(folder / "catalog" / "shop_survey.yaml", folder / "shop.yaml")


def answered(plan: str, *files: str) -> Prepare:
    """Reports of made-up people to a plan that was made, spread over files."""

    def prepare(folder: Path) -> None:
        rng = np.random.default_rng(3)
        known = read_plan((folder / plan).read_bytes())
        reports = simulate_reports(known, some_people(known, rng), rng)
        for number, file in enumerate(files):
            spool(folder / file, reports[number :: len(files)])

    return prepare


def some_people(plan: Plan, rng: np.random.Generator) -> RespondentRows:
    """One row each, anywhere."""
    leaves = np.stack([rng.integers(0, axis.leaves, PEOPLE) for axis in plan.axes], axis=1)
    return RespondentRows(np.arange(PEOPLE + 1), leaves, np.zeros((PEOPLE, len(plan.measures)), np.int64))


def spool(path: Path, reports: list[bytes]) -> None:
    """Write reports as a spool of the kind that its ending names."""
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        write_spool(path, reports)
    else:
        path.write_text("".join(f"{to_json(decode(report))}\n" for report in reports))


def places(folder: Path) -> None:
    """A catalog that splits boxes, on an axis of four leaves: two rounds."""
    text = PLACES.replace("AXES", "[stop.x]").replace("upper: 31", "upper: 3")
    (folder / "places.yaml").write_text(text)


def last_round(folder: Path) -> None:
    """The second round of `places.yaml` is its last."""
    shutil.copy(folder / "2.json", folder / "last.json")
    answered("last.json", "last/a.parquet", "last/b.parquet")(folder)


def estimated(folder: Path) -> None:
    """A catalog whose row limit is chosen from people's own row counts."""
    (folder / "shop.yaml").write_text(VISITS)


def music(folder: Path) -> None:
    """The catalog of the page."""
    (block,) = (block for block in blocks(DOCS / "in-your-app.md") if block.language == "yaml")
    (folder / "music.yaml").write_text(block.text)


def listened(folder: Path) -> None:
    """Its plan, and reports."""
    music(folder)
    ran(folder, "collection-plan", "music.yaml", "-o", "plan.json")
    answered("plan.json", "reports.jsonl")(folder)


def trio(folder: Path) -> None:
    """Three services without a common device."""
    (folder / "trio.yaml").write_text(catalog_text(3))


def services(folder: Path) -> None:
    """Everybody's report at each of the three services, under one pseudonym."""
    held = read_sheet(folder / "plan.json")
    assert held is not None
    rng = np.random.default_rng(4)
    for name, plan in held.plans.items():
        reports = simulate_reports(plan, some_people(plan, rng), rng)
        people = [f"person {number}" for number in range(PEOPLE)]
        if name == "shop":
            (folder / "shop.jsonl").write_text(tokened(reports, people))
        else:
            (folder / name).mkdir()
            write_spool(folder / name / "a.parquet", reports, people)


def tokened(reports: list[bytes], tokens: list[str]) -> str:
    """Lines of JSON that also hold who sends them."""
    pairs = zip(reports, tokens, strict=True)
    return "".join(
        json.dumps({**json.loads(to_json(decode(raw))), "token": who}) + "\n" for raw, who in pairs
    )


def hybrid(folder: Path) -> None:
    """A shop whose customers' ages only their devices know."""
    catalog = test_hybrid.text("{epsilon: 2, collection: ages-2026}").replace(
        "customer.id", "customer.customer_id"
    )
    catalog = (
        re.sub(r"\bid\b", "customer_id", catalog).replace("upper: 57", "upper: 89").replace("48]", "48, 65]")
    )
    people = range(PEOPLE)
    sales = [(i, i % 4, i % 11) for i in people for _ in range(2)]
    tables = {
        "sales": RawRows("customer_id INT, day INT, amount INT", sales),
        "customer": RawRows("customer_id INT", [(i,) for i in people]),
    }
    side = write_side(folder / "side", catalog.replace("ROOT", "data"), tables)
    (folder / "data").mkdir()
    for table in tables:
        shutil.move(side / f"{table}.parquet", folder / "data")
    text = (side / "catalog.yaml").read_text()
    (folder / "shop.yaml").write_text(re.sub(r"root: [^,]+,", "root: data,", text))


def devices(folder: Path) -> None:
    """Everybody's device answers the plan about her age."""
    plan = read_plan((folder / "ages.json").read_bytes())
    ages = ({"customer.age": 18 + number % 72} for number in range(PEOPLE))
    reports = [respond(plan, to_rows(plan, [age]), system_entropy) for age in ages]
    (folder / "spool.jsonl").write_text(tokened(reports, [str(number) for number in range(PEOPLE)]))


def joined(folder: Path) -> None:
    """The hybrid release of the block before."""
    hybrid(folder)
    ran(folder, "collection-plan", "shop.yaml", "--for", "customer.age", "-o", "ages.json")
    devices(folder)
    ran(folder, "collect", "ages.json", "spool.jsonl", "--for", "customer.age", "-o", "data/reports.parquet")
    ran(folder, "publish", "shop.yaml", "-o", "shop.dpsql")


def days(folder: Path) -> None:
    """A stream whose newest batch is the page's day."""
    shop(folder)
    text = DAYS.replace("EPSILON", "1").replace("DELTA", "0")
    (folder / "days.yaml").write_text(
        text.replace("2025-01-01", "2026-11-19").replace("2025-12-31", "2027-11-18")
    )
    for day in ("2026-11-19", "2026-11-20"):
        ran(folder, "append", "days.dpsql", "--catalog", "days.yaml", "--batch", day)


def erasable(folder: Path) -> None:
    """One person's report in a collection's state and in stored reports, and her batches in a stream."""
    shop = make_stream_shop(folder, customers=300)
    shop.append(0)
    sales = (folder / "data" / "sales.parquet").as_posix()
    day = f"SELECT CAST(customer_id AS VARCHAR) FROM '{sales}' WHERE sold_on = DATE '2025-01-01' LIMIT 1"
    ((her,),) = duckdb.sql(day).fetchall()
    (folder / "people.txt").write_text(f"{her}\n")
    dpsql.collection_plan(ROOT / "catalog" / "survey.yaml", folder / "plan.json", people=1000)
    plan = read_plan((folder / "plan.json").read_bytes())
    rows = to_rows(plan, [{"answer.age": 41, "answer.district": "north", "answer.minutes": 25}])
    reports = [json.loads(to_json(decode(respond(plan, rows, system_entropy)))) for _ in range(300)]
    lines = [json.dumps(report | {"token": her if i == 0 else f"t{i}"}) for i, report in enumerate(reports)]
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")
    dpsql.collect(
        folder / "plan.json", folder / "a.jsonl", folder / "survey.dpsql", state=folder / "survey.state"
    )
    write_items(
        folder / "person_age.parquet", ReportProvenance("person.age", "", ""), [(her, 0, 1), ("bob", 0, 2)]
    )


GUIDES: Mapping[str, Mapping[str, Mapping[str, Prepare]]] = {
    "collections.md": {
        "dpsql simulate": {
            "dpsql simulate": survey,
            "dpsql collect plan.json": answered("plan.json", "monday.parquet", "tuesday.jsonl"),
        },
        "dpsql collection-plan places.yaml": {
            "dpsql collection-plan places.yaml -o": places,
            "dpsql collection-plan places.yaml one/*.parquet": answered(
                "1.json", "one/a.parquet", "one/b.parquet"
            ),
            "dpsql collect": last_round,
        },
        "dpsql collection-plan shop.yaml -o": {
            "dpsql collection-plan shop.yaml -o": estimated,
            "dpsql collection-plan shop.yaml rows/*.parquet": answered("first.json", "rows/a.parquet"),
            "dpsql collect": answered("second.json", "reports/a.parquet"),
        },
        "dpsql collection-plan trio.yaml": {"dpsql collection-plan": trio, "dpsql collect": services},
        "dpsql collection-plan shop.yaml --for": {"dpsql collection-plan": hybrid, "dpsql collect": devices},
        "dpsql plan": {"dpsql plan": joined},
    },
    "curator.md": {
        "dpsql design": {"dpsql design": workload},
        "dpsql buy": {"dpsql buy": shop},
    },
    "audit.md": {
        "dpsql certificate": {"dpsql certificate": published},
        "dpsql audit": {"dpsql audit": published},
    },
    "interfaces.md": {
        "dpsql budget shop.yaml": {"dpsql budget": published_shop},
        "dpsql query days.dpsql": {"dpsql query": days},
        "dpsql export": {"dpsql export": published},
        "dpsql site": {"dpsql site": published},
    },
    "in-your-app.md": {
        "dpsql collection-plan": {"dpsql collection-plan": music},
        "dpsql collect plan.json": {"dpsql collect": listened},
    },
    "privacy.md": {"dpsql forget": {"dpsql forget": erasable}},
    "reliability.md": {
        "dpsql publish": {"dpsql publish": shop},
        "dpsql ledger": {"dpsql ledger backup": published},
    },
}
BLOCKS = [
    (page, typed(block.text)[0].command)
    for page in GUIDES
    for block in blocks(DOCS / page)
    if block.language == "console"
]


def is_elsewhere(command: str) -> bool:
    return command.startswith((*NOT_HERE, *ELSEWHERE))


def dear(page: str, first: str) -> pytest.param:
    """Blocks that take half a minute are run by `make slow`."""
    marks = (
        [pytest.mark.slow]
        if first.startswith(
            (
                "dpsql certificate",
                "dpsql audit",
                "dpsql simulate",
                "dpsql design",
                "dpsql publish catalog",
                "dpsql plan",
            )
        )
        else []
    )
    return pytest.param(page, first, marks=marks, id=f"{page}: {first[:40].strip()}")


@pytest.mark.usefixtures("publishes")
@pytest.mark.parametrize(("page", "first"), [dear(*block) for block in BLOCKS])
def test_what_a_guide_shows_runs(
    page: str, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPSQL_REQUIRE_SIGNATURE", "the command sets it; put back afterwards")
    monkeypatch.delenv("DPSQL_REQUIRE_SIGNATURE")
    (block,) = [
        b for b in blocks(DOCS / page) if b.language == "console" and typed(b.text)[0].command == first
    ]
    commands = [line for line in typed(block.text) if not is_elsewhere(line.command)]
    known = {start: prepare for start, prepare in GUIDES[page].items() if first.startswith(start)}
    assert known or not commands, f"docs/{page}: what lies in the folder before `{first}`?"
    waiting = dict(*known.values())
    signer = ""
    for command, shown in commands:
        for start in [start for start in waiting if command.startswith(f"{start} ")]:
            waiting.pop(start)(tmp_path)
        files = re.sub(r"\S*\*\S*", lambda found: expanded(found[0], tmp_path), command)
        printed = run_command(files.replace("8f0c...", signer), tmp_path)
        signer = (re.findall("^signed by ([0-9a-f]{64})$", printed, flags=re.M) or [signer])[-1]
        if shown.strip():
            compare(command, shown, printed.replace(signer, "8f0c...") if signer else printed, exact=False)
    assert waiting == {}, "a stand-in that no command asks for"


def expanded(pattern: str, folder: Path) -> str:
    """The files of a pattern, as a shell would name them."""
    return " ".join(sorted(str(path.relative_to(folder)) for path in folder.glob(pattern))) or pattern


@pytest.mark.parametrize("path", sorted({word for word in ELSEWHERE.values() if word.startswith("tests/")}))
def test_what_runs_the_others_is_there(path: str) -> None:
    assert (ROOT / path).exists()
