"""The explorer's page: who may ask it, what it answers, and that nothing of it can fetch or make markup.

A static site holds what the release prints, and nothing in it is markup of a release either.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import math
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import dpsql
from benchmarks.processes import worked
from dpsql.errors import InterfaceError
from dpsql.executor.engine import HALF
from dpsql.federation.session import OpenReleases, open_session
from dpsql.interfaces.python.describe import WELL, totals
from dpsql.interfaces.web.explore import FILES, HOST, MOST_BODY, MOST_CONNECTIONS, App, serve
from dpsql.interfaces.web.explore.answers import (
    MOST_EXAMPLES,
    MOST_GROUP_ROWS,
    MOST_ROWS,
    Explorer,
    write_site,
)
from dpsql.interfaces.web.page import SHARED, asset
from dpsql.progress import silent
from dpsql.results.render import render, shown, split_margin
from tests.interfaces.test_shell import ENDLESS, TEN
from tests.interfaces_release import CATALOG, build
from tests.interrupts import ended_children

GATE = ("secret", 8000)
BY_REGION = "SELECT region, COUNT(*) AS n, AVG(amount) AS average FROM shop GROUP BY region ORDER BY region"
HOSTILE = [
    "COPY (SELECT 1) TO '/tmp/out.csv'", "SELECT * FROM read_csv('/etc/passwd')", "ATTACH '/tmp/x' AS x",
    "SELECT 1; DROP x", "", ";", "\x00", "\ud800", "SELECT COUNT(*) FROM shop WHERE region = '\udfff'",
    "SELECT " * 5000, "(" * 5000, "SET dp_nonnegative = true", "SELECT * FROM sales", "<script>alert(1)</script>",
]  # fmt: skip


class Reply(NamedTuple):
    status: int
    headers: Mapping[bytes, bytes]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@pytest.fixture(scope="module")
def app(opened: OpenReleases) -> App:
    return App(Explorer(opened), *GATE)


def request(
    app: App, name: str = "", body: object = None, *, method: str | None = None, path: str | None = None,
    leaves: bool = False, **headers: str,
) -> Reply:  # fmt: skip
    """One request of a client that is let in, except for what is given otherwise; `leaves` before it has its answer."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    said = {"host": f"{HOST}:8000"} | ({} if body is None else {"content-type": "application/json"}) | headers
    scope: MutableMapping[str, Any] = {
        "type": "http", "method": method or ("GET" if body is None else "POST"), "path": path or f"/secret/{name}",
        "headers": [(key.replace("_", "-").encode(), value.encode()) for key, value in said.items() if value],
    }  # fmt: skip
    sent: list[MutableMapping[str, Any]] = []

    async def talk() -> None:
        messages = iter(
            [
                {"type": "http.request", "body": raw[:9], "more_body": True},
                {"type": "http.request", "body": raw[9:]},
            ]
        )

        async def receive() -> MutableMapping[str, Any]:
            message = next(messages, None)
            if message is None:
                await asyncio.sleep(0.3 if leaves else 60)
                return {"type": "http.disconnect"}
            return message

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await app(scope, receive, send)

    asyncio.run(talk())
    if not sent:
        return Reply(0, {}, b"")
    start, end = sent
    return Reply(start["status"], dict(start["headers"]), end["body"])


def test_the_page_and_its_files_come_with_a_policy_that_lets_nothing_else_in(app: App) -> None:
    for name, (package, file, kind) in FILES.items():
        reply = request(app, name)
        assert reply.status == 200
        assert reply.body.decode() == asset(package, file)
        assert reply.headers[b"content-type"].decode() == f"{kind}; charset=utf-8"
        policy = reply.headers[b"content-security-policy"].decode()
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
        assert reply.headers[b"x-frame-options"] == b"DENY"
        assert reply.headers[b"cache-control"] == b"no-store"
        assert reply.headers[b"referrer-policy"] == b"no-referrer"


def test_report_and_certificate_are_pages_that_fetch_nothing_and_lead_back(
    app: App, opened: OpenReleases
) -> None:
    for name, holds in (("report", "What is promised"), ("certificate", "What is not promised")):
        reply = request(app, name)
        assert reply.status == 200 and reply.headers[b"content-type"] == b"text/html; charset=utf-8"
        header, text = reply.headers[b"content-security-policy"].decode(), reply.body.decode()
        assert (
            "default-src 'none'" in header
            and "frame-ancestors 'none'" in header
            and "connect-src" not in header
        )
        (own,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
        # beneath the header's, the page's own names its scripts or allows none
        assert "script-src 'unsafe" not in own
        assert holds in text and text.count('<a href="./">Questions</a>') == 1
        assert request(app, name, method="POST", body=b"{}").status == 405
    named = replace(opened.releases[0], path=Path("/nowhere.dpsql"))
    lost = Explorer(OpenReleases((named,), opened.answerers)).certificate
    assert "No certificate: " in lost and "<script" not in lost


def test_nothing_of_the_page_makes_markup_or_names_another_address() -> None:
    for package in (SHARED, "dpsql.interfaces.web.explore", "dpsql.interfaces.web.report"):
        folder = Path(dpsql.__file__).parent.parent / package.replace(".", "/")
        for path in [p for p in folder.iterdir() if p.suffix in (".js", ".css", ".html")]:
            text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"https?:|//[a-z]+\.|\burl\(|@import", text), path
            assert not re.search(
                r"(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser", text
            )
    page = asset("dpsql.interfaces.web.explore", "index.html")
    assert not re.search(r"<style|style=|\son\w+=|<script(?! src=)", page), "the policy would block it"


@pytest.mark.parametrize(
    ("status", "given"),
    [
        (421, {"host": "attacker.example:8000"}), (421, {"host": f"{HOST}:8001"}), (421, {"host": ""}),
        (403, {"origin": "http://attacker.example"}), (403, {"origin": "null"}),
        (403, {"sec_fetch_site": "cross-site"}), (403, {"sec_fetch_site": "same-site"}),
        (404, {"path": "/"}), (404, {"path": "/secret"}), (404, {"path": "/Secret/"}), (404, {"path": "/secret/x"}),
        (404, {"path": "/secret/../secret/"}), (404, {"path": "/secret/star/more"}), (404, {"path": "*"}),
        (404, {"path": "/sécret/"}), (405, {"name": "star", "body": {}}), (405, {"name": "ask"}),
        (405, {"method": "HEAD"}), (405, {"method": "OPTIONS", "name": "ask"}),
        (415, {"name": "ask", "body": {}, "content_type": "text/plain"}), (400, {"name": "ask", "body": b"{"}),
        (415, {"name": "ask", "body": {}, "content_type": "application/x-www-form-urlencoded"}),
        (400, {"name": "ask", "body": [1]}), (400, {"name": "ask", "body": b"\xff"}),
        (400, {"name": "ask", "body": b"[" * 90000}),
        (400, {"name": "ask", "body": {"sql": 1, "level": 0.95}}), (400, {"name": "ask", "body": {"sql": "SELECT 1"}}),
        (400, {"name": "ask", "body": {"sql": "SELECT 1", "level": 2.0}}), (400, {"name": "offers", "body": {}}),
        (413, {"name": "ask", "body": b" " * (MOST_BODY + 1)}),
    ],
)  # fmt: skip
def test_whoever_is_not_the_page_is_refused(app: App, status: int, given: dict[str, Any]) -> None:
    reply = request(app, **given)
    assert reply.status == status, reply
    assert b"secret" not in reply.body


def test_the_page_itself_is_let_in_by_both_names_of_this_machine(app: App) -> None:
    for host in (f"{HOST}:8000", "localhost:8000"):
        given = {"host": host, "origin": f"http://{host}", "sec_fetch_site": "same-origin"}
        assert request(app, "ask", {"sql": BY_REGION, "level": 0.95}, **given).status == 200
    assert app.address == "http://127.0.0.1:8000/secret/"


def test_an_answer_is_the_engines_with_its_intervals(app: App, opened: OpenReleases) -> None:
    found = request(app, "ask", {"sql": BY_REGION, "level": 0.9}).json()
    result = opened.query(BY_REGION).rounded()
    low, high = result.interval_rows(0.9)
    assert [column["name"] for column in found["columns"]] == list(result.columns)
    assert [column["noisy"] for column in found["columns"]] == [False, True, True]
    for r, row in enumerate(found["rows"]):
        assert row[0]["text"] == (result.rows[r][0] or "NULL")
        for c in (1, 2):
            if result.rows[r][c] is None:  # an average of a group that noise hides
                assert (result.rows[r][0], c) == ("(other)", 2) and set(row[c]) == {"text"}
                continue
            assert (row[c]["value"], row[c]["low"], row[c]["high"]) == (
                result.rows[r][c],
                low[r][c],
                high[r][c],
            )
            assert split_margin(row[c]["text"])[1] and " to " in row[c]["interval"]
    assert [row[0] for row in result.rows] == ["(other)", "east", "west", None]
    assert (found["total"], found["level"]) == (4, "90%")
    assert (
        request(app, "csv", {"sql": BY_REGION, "level": 0.9}).json()["csv"]
        == render(result, "csv", 0.9) + "\n"
    )
    explained = request(app, "explain", {"sql": BY_REGION}).json()
    assert explained["stages"] == opened.explain(BY_REGION).splitlines()


def test_the_plan_lights_up_the_nodes_of_every_axis(app: App) -> None:
    """Nodes that the answer is a sum of, once each, and a mark for each in the page."""
    one = "SELECT COUNT(*) FROM shop WHERE age BETWEEN 20 AND 39"
    for sql in (one, f"SELECT ({one}) - ({one})"):
        axes = request(app, "explain", {"sql": sql}).json()["axes"]
        (axis,) = (axis for axis in axes if axis["axis"].endswith("age"))
        assert set(axis["nodes"][0]) == {"from", "to", "level", "measured"}
        taken = [leaf for node in axis["nodes"] for leaf in range(node["from"], node["to"])]
        assert sorted(taken) == list(range(len(taken))) and 0 < len(taken) < axis["leaves"]
    script, page = (request(app, name).body.decode() for name in ("explore.js", ""))
    assert 'at("nodes").replaceChildren(...axes.map(lit))' in script and 'id="nodes"' in page


def test_long_answers_are_shown_in_part_and_downloaded_whole(app: App) -> None:
    sql = f"SELECT age, n, t.x, u.x FROM (SELECT age, COUNT(*) AS n FROM shop GROUP BY 1), {TEN} AS t(x), {TEN} AS u(x)"
    found = request(app, "ask", {"sql": sql, "level": 0.95}).json()
    assert (len(found["rows"]), found["total"]) == (MOST_ROWS, 4100)
    assert found["below"][0] == "3600 more rows"
    whole = request(app, "csv", {"sql": sql, "level": 0.95}).json()["csv"]
    assert whole.count("\n") == 4101


@pytest.mark.parametrize("sql", HOSTILE)
def test_what_cannot_be_answered_is_one_sentence_and_runs_nowhere(app: App, sql: str) -> None:
    for name in ("ask", "explain", "csv"):
        reply = request(app, name, {"sql": sql, "level": 0.95})
        assert reply.status == 200
        found = reply.json()
        assert set(found) == {"refused", "hints", "caret"}
        assert found["refused"] and "\n" not in found["refused"] and "Traceback" not in reply.body.decode()


def test_a_question_whose_asker_leaves_is_stopped(app: App) -> None:
    started = time.process_time()
    assert request(app, "ask", {"sql": ENDLESS, "level": 0.95}, leaves=True).status == 0
    assert time.process_time() - started < 10
    assert request(app, "ask", {"sql": BY_REGION, "level": 0.95}).json()["total"] == 4, (
        "the next one is answered"
    )


def test_half_requests_shut_nobody_out(opened: OpenReleases) -> None:
    pytest.importorskip("uvicorn")
    program = (
        "import sys, dpsql.interfaces.web.explore as e; from dpsql.federation.session import open_session\n"
        "e.SECONDS_TO_ASK = 0.5\n"
        "e.serve(open_session([sys.argv[1]]), 0, lambda address: print(address, flush=True))"
    )
    command = [sys.executable, "-c", program, str(opened.releases[0].path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = urllib.parse.urlsplit(process.stdout.readline().strip())
        place = (address.hostname, address.port)
        heads = [b"GET / HTTP/1.1\r\nHost: x\r\n", b"", b"GET"]
        half = (
            b"POST %bask HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        heads.append(half % (address.path.encode(), address.netloc.encode()))
        attackers = [socket.create_connection(place) for _ in range(2 * MOST_CONNECTIONS)]
        for number, attacker in enumerate(attackers):
            attacker.sendall(heads[number % len(heads)])
        end, status = time.monotonic() + 60, 0
        while status != 200:
            assert time.monotonic() < end
            asker = http.client.HTTPConnection(address.netloc, timeout=60)
            with contextlib.suppress(OSError, http.client.HTTPException):
                asker.request("GET", address.path)
                status = asker.getresponse().status
            asker.close()
        process.terminate()


@pytest.mark.skipif(sys.platform != "linux", reason="a process's work is read from /proc")
def test_a_busy_page_ends(opened: OpenReleases) -> None:
    pytest.importorskip("uvicorn")
    others = ended_children()
    command = [sys.executable, "-m", "dpsql", "explore", "--json", str(opened.releases[0].path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = urllib.parse.urlsplit(json.loads(process.stdout.readline())["url"])
        body = json.dumps({"sql": ENDLESS.rstrip(";"), "level": 0.95})
        askers = [http.client.HTTPConnection(address.netloc, timeout=60) for _ in range(10)]
        for asker in askers:  # more than compute at a time
            asker.request("POST", f"{address.path}ask", body, {"content-type": "application/json"})
        time.sleep(1)
        before = worked(process.pid)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors
    assert ended_children() - others - before < 15  # half of what a single question may take


def test_the_star_is_a_tree_along_foreign_keys(app: App) -> None:
    (release,) = request(app, "star").json()["releases"]
    assert [(table["name"], table["kind"]) for table in release["tables"]] == [
        ("shop", "wide"),
        ("sales", "fact"),
    ]
    by_name = {column["name"]: column for column in release["tables"][1]["columns"]}
    assert by_name["customer_id"]["refers"]["name"] == "customer"
    assert "full years; 20 to 59; axis" in [c["comment"] for c in by_name["customer_id"]["refers"]["columns"]]
    assert (by_name["amount"]["refers"], by_name["amount"]["type"]) == (None, "number")
    assert "customer" in release["subject"]
    assert "epsilon = 80" in release["promise"][0]


def test_examples_are_answered_as_well_as_they_say_the_best_first(app: App, opened: OpenReleases) -> None:
    examples = request(app, "examples").json()["examples"]
    assert 5 <= len(examples) <= MOST_EXAMPLES
    errors = []
    for example in examples:
        result = opened.query(example["sql"]).rounded()
        c = result.noisy[-1]
        pairs = zip(result.rows, result.stderr_rows, strict=True)
        told = sorted(error[c] / abs(row[c]) for row, error in pairs if row[c])
        errors.append((told[(len(told) - 1) // 2] + told[len(told) // 2]) / 2)
        assert example["error"] == f"± {HALF * errors[-1]:.1%}"  # half of the 95% interval, as everywhere
    assert errors == sorted(errors) and errors[-1] <= WELL
    assert {"count of sales by region", "count of sales by month of sold_on"} <= {
        e["words"] for e in examples
    }
    assert all("product_id" not in example["sql"] for example in examples), (
        "a key is no grouping where a name is there"
    )


def test_headline_numbers_are_totals_and_averages(opened: OpenReleases) -> None:
    found = {question.words: answer for question, answer, _ in totals(opened)}
    assert set(found) == {"count of sales", "sum of amount", "average amount", "count of customer"}
    assert found["sum of amount"].scalar() == opened.query("SELECT SUM(amount) FROM sales").scalar()


def test_words_are_offered(app: App) -> None:
    def offers(before: str) -> list[str]:
        return [offer["text"] for offer in request(app, "offers", {"before": before}).json()["offers"]]

    assert offers("SELECT AV") == ["AVG("]
    assert offers("SELECT COUNT(*) FROM sal") == ["sales"]
    assert offers("SELECT customer.") == ["customer_id", "age", "region"]
    assert offers("SELECT * FROM shop WHERE region = 'e") == ["east"]
    assert "DP_STDERR(" in offers("SELECT dp_")


def test_words_of_a_hostile_catalog_stay_data(opened: OpenReleases) -> None:
    (release,) = opened.releases
    catalog = {**release.meta.catalog, "description": "</script><img src=x onerror=alert(1)>"}
    hostile = replace(release, meta=replace(release.meta, catalog=catalog))
    reply = request(App(Explorer(OpenReleases((hostile,), opened.answerers)), *GATE), "star")
    assert reply.headers[b"content-type"] == b"application/json; charset=utf-8"
    assert reply.json()["releases"][0]["description"].startswith("</script>")


def test_the_command_says_what_to_install(opened: OpenReleases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(dpsql.InterfaceError, match=r'pip install "dpsql\[explore\]"'):
        serve(opened, 0, print)


def in_node(program: str, expression: str) -> Any:
    """What an expression gives after a program."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node to run the page's script")
    command = [node, "-e", f"{program}; console.log(JSON.stringify({expression}))"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


WEB = Path(dpsql.__file__).parent / "interfaces" / "web"
CHART = f"const {{ ticks, number }} = require({json.dumps(str(WEB / 'page' / 'chart.js'))})"


def test_a_line_below_answers_is_in_full_view_once_a_page() -> None:
    script = (WEB / "explore" / "explore.js").read_text("utf-8")
    (function,) = re.findall(r"^const newAndShown = .*?^};$", script, re.MULTILINE | re.DOTALL)
    asked = "[['a', 'b'], ['b', 'c'], ['a']].map((lines) => newAndShown(lines, known))"
    found = in_node(f"{function} const known = new Set()", asked)
    assert [(each["fresh"], each["again"]) for each in found] == [
        (["a", "b"], []),
        (["c"], ["b"]),
        ([], ["a"]),
    ]


def test_ticks_are_round_numbers_around_the_values() -> None:
    asked = [(0, 100), (-3, 17), (44.1, 45.9), (0, 0), (1e-9, 3e-9), (8.1e6, 8.9e6), (-5, -1)]
    for free in ("false", "true"):
        drawn = in_node(CHART, f"{json.dumps(asked)}.map(([a, b]) => ticks(a, b, {free}))")
        for (low, high), found in zip(asked, drawn, strict=True):
            step = found[1] - found[0]
            assert found[0] <= low and high <= found[-1] and 2 <= len(found) <= 13, (low, high, found)
            assert free == "true" or found[0] <= 0 <= found[-1]
            assert round(step / 10 ** math.floor(math.log10(step) + 1e-9), 6) in (1, 2, 5)
    texts = in_node(
        CHART, "[number(32530, 10000), number(-2000, 1), number(0.25, 0.05), number(44.89), number(0)]"
    )
    assert texts == ["32\u202f530", "−2\u202f000", "0.25", "44.89", "0"]


MARKUP = "</script><img src=x onerror=alert(1)>\u2028"


@pytest.fixture(scope="module")
def hostile(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> OpenReleases:
    """A release whose description and categories are markup."""
    text = CATALOG.replace("population: shop-people", f"description: {json.dumps(MARKUP)}")
    return open_session(
        [
            build(
                tmp_path_factory.mktemp("site"),
                text=text.replace("[east, west]", f"[{json.dumps(MARKUP)}, west]"),
            )
        ]
    )


def test_every_answer_is_as_the_release_prints_it(hostile: OpenReleases, tmp_path: Path) -> None:
    written = write_site(hostile, tmp_path / "site", silent)
    text = (tmp_path / "site" / "data.js").read_text("utf-8")
    assert "<" not in text and "\u2028" not in text
    content = json.loads(re.fullmatch(r"const release = (.*);\n", text, re.DOTALL)[1])  # type: ignore[index]
    assert len(content["questions"]) == written["questions"] > 10
    assert written["bytes"] == sum(file.stat().st_size for file in (tmp_path / "site").iterdir()) < 1e6
    assert any(len(asked["by"]) == 2 for asked in content["questions"])
    for asked in content["questions"]:
        answer = hostile.query(asked["sql"]).rounded()
        printed, below = shown(answer, 0.95, MOST_GROUP_ROWS)
        assert [[cell[0] for cell in row] for row in asked["rows"]] == [list(row) for row in printed]
        assert asked["below"] == list(below)
        low, high = answer.interval_rows(0.95)
        for r, row in enumerate(asked["rows"]):
            assert [tuple(cell[2:4]) for cell in row if len(cell) > 1] == [
                (low[r][c], high[r][c]) for c in answer.noisy if len(row[c]) > 1
            ]


def test_a_question_is_found_by_what_and_by(hostile: OpenReleases, tmp_path: Path) -> None:
    write_site(hostile, tmp_path / "site", silent)
    content = json.loads((tmp_path / "site" / "data.js").read_text("utf-8")[len("const release = ") : -2])
    keys = [(asked["what"], *sorted(asked["by"])) for asked in content["questions"]]
    assert len(set(keys)) == len(keys)
    for asked in content["questions"]:
        assert len(asked["columns"]) == len(asked["by"]) + 1


def test_a_folder_that_exists_is_not_touched(hostile: OpenReleases, tmp_path: Path) -> None:
    with pytest.raises(InterfaceError, match="exists"):
        write_site(hostile, tmp_path, silent)
    assert not list(tmp_path.iterdir())
