"""The report page: what it computes equals what `dpsql explain` predicts; it fetches nothing."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import urllib.parse
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.interfaces.web.report import page_model, report_page
from dpsql.release import open_release
from dpsql.release.format import SpentAmount
from dpsql.results.render import split_margin
from tests.interfaces_release import CATALOG, build
from tests.releases import published, seeded
from tests.userlevel_star import uneven_rows, write_star

pytestmark = pytest.mark.usefixtures("publishes")

SCRIPT = Path(dpsql.__file__).parent / "interfaces" / "web" / "report" / "page.js"
ASK = """
const page = require(process.argv[1]);
const { model, asked } = JSON.parse(require("fs").readFileSync(0));
const out = asked.map((q) => ({ best: page.predict(model, q), sql: page.statement(model, q) }));
process.stdout.write(JSON.stringify({ out, questions: page.questions(model).map(
  (q) => ({ ...q, beside: page.besideNoise(model, q.of, q.measure) })) }));
"""


@pytest.fixture(scope="module")
def noise_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop without measured rows beyond `max_ids`: its standard errors are of noise."""
    text = CATALOG.replace("max_ids: 20", "max_ids: 20\n    clipped_share: 0")
    return build(tmp_path_factory.mktemp("noise_only"), text=text)


@pytest.fixture(scope="module")
def model(shop: Path) -> dict[str, Any]:
    return page_model(open_release(shop))


@pytest.fixture(scope="module")
def page(shop: Path) -> str:
    return report_page(open_release(shop))


def in_node(model: dict[str, Any], asked: list[dict[str, Any]]) -> dict[str, Any]:
    """Run the page's own functions."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node to run the page's script")
    done = subprocess.run(
        [node, "-e", ASK, str(SCRIPT)],
        input=json.dumps({"model": model, "asked": asked}),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_predicted_errors_equal_the_engines(noise_only: Path) -> None:
    model = page_model(open_release(noise_only))
    dice = random.Random(5)
    asked = []
    for question in in_node(model, [])["questions"]:
        for _ in range(25):
            ranges = {}
            for number in question["axes"]:
                last = len(model["axes"][number]["cuts"]) - 1
                a, b = sorted(dice.sample(range(last + 1), 2))
                if dice.random() < 0.4:
                    ranges[str(number)] = [a, b]
            asked.append({"of": question["of"], "measure": question["measure"], "ranges": ranges})
    connection = dpsql.connect(noise_only)
    compared = 0
    for question, answer in zip(asked, in_node(model, asked)["out"], strict=True):
        if answer["best"] is None:
            with pytest.raises(dpsql.NoViewError):
                connection.execute(answer["sql"])
            continue
        compared += 1
        (engines,) = connection.execute(answer["sql"]).stderr[0]
        assert answer["best"]["stderr"] == pytest.approx(engines, rel=1e-3), (question, answer["sql"])
    assert compared >= 30


def test_predicted_noise_is_not_passed_off_as_the_error(noise_only: Path, model: dict[str, Any]) -> None:
    """Where rows beyond the bound are measured, the engine's standard error has them and the prediction does not."""
    (count,) = [q for q in in_node(model, [])["questions"] if (q["of"], q["measure"]) == ("sales", "count")]
    assert count["beside"] == "; beside it rows beyond max_ids (20) may be missing"
    assert all(not q["beside"] for q in in_node(model, [])["questions"] if q["of"] == "customer")
    exact = page_model(open_release(noise_only))
    assert all(not q["beside"] for q in in_node(exact, [])["questions"])


def test_histograms_are_the_groups_of_a_query(shop: Path, model: dict[str, Any]) -> None:
    (demand,) = [view for view in model["views"] if view["name"] == "demand"]
    (region,) = [h for h in demand["histograms"] if model["axes"][h["axis"]]["name"] == "customer.region"]
    assert region["labels"] == ["east", "west", "NULL", "MISSING", "OTHER"]
    cursor = dpsql.connect(shop).execute("SET dp_round = off")
    cursor.execute("SELECT COUNT(*) FROM shop WHERE region = 'east'")
    assert region["bars"][0] == pytest.approx(cursor.fetchall()[0][0], rel=1e-5)
    low, high = cursor.interval(0.95)
    assert (region["low"][0], region["high"][0]) == pytest.approx((low[0][0], high[0][0]), rel=1e-5)


class Links(HTMLParser):
    """Collects everything that a browser might fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [
            f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href", "action", "srcset")
        ]


def test_the_page_is_one_file_that_fetches_nothing(page: str) -> None:
    links = Links()
    links.feed(page)
    assert links.found == []
    assert "default-src 'none'" in page
    assert "url(" not in page
    assert "epsilon = 80" in page
    assert "view demand: count and sales.amount together" in page
    assert "adding or removing everything that one customer.customer_id owns" in page


def test_the_page_begins_with_numbers_and_questions_in_words(shop: Path, page: str) -> None:
    counted = dpsql.query("SELECT COUNT(*) FROM sales", release=shop).rounded()
    value, margin = split_margin(str(counted).split("\n")[2].strip())
    assert margin, "also a lopsided one"
    assert f"<dt>count of sales</dt><dd>{value} <small>{margin}</small></dd>" in page
    asked = re.findall(r"<tr><td>([^<]*)</td><td>(SELECT [^<]*)</td><td>± ([\d.]+)%</td></tr>", page)
    assert "count of sales by region" in [words for words, _, _ in asked]
    for _, sql, error in asked:
        assert float(error) <= 10.0
        dpsql.query(unescape(sql), release=shop)
    release, long = open_release(shop), "9007199254740993/72057594037927936"
    release.meta = replace(release.meta, spends=(SpentAmount("view demand: count", long),) * 4)
    page = report_page(release)
    assert page.count("<td>view demand: count</td><td>25%</td>") == 4
    assert "9007199254740993" not in page
    assert "<td>customer 1, sales 20</td>" in page


def test_only_the_pages_own_scripts_may_run(page: str) -> None:
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert "unsafe" not in policy and "trusted-types 'none'" in policy
    parts = [
        *re.findall(r"<style>(.*?)</style>", page, re.S),
        *re.findall(r"<script>(.*?)</script>", page, re.S),
    ]
    hashes = [f"'sha256-{b64encode(sha256(part.encode()).digest()).decode()}'" for part in parts]
    assert len(hashes) == 3
    assert re.findall(r"'sha256-[^']*'", policy) == hashes


def test_scales_of_tables_with_uneven_owners_are_shown_with_their_errors(tmp_path: Path) -> None:
    release = published(write_star(tmp_path, *uneven_rows(3000, 4)), seeded(3)).release
    scale, page = release.scales["sales"], report_page(release)
    for own in scale.measures:
        assert own.factor > 1
        assert f"<td>{own.factor:.3g}</td><td>{own.error.noise:.1%}</td>" in page
        assert f"about {own.left_out:.0%}, put back by R" in page
    hidden = open_release(release.path, insecure=True)
    masked = replace(scale, measures=tuple(replace(own, factor=1.0, left_out=None) for own in scale.measures))
    hidden.meta = replace(hidden.meta, scales=(masked,))
    assert "hidden by noise" in report_page(hidden)


def test_each_promise_has_a_sentence_of_its_own(shop: Path, page: str) -> None:
    release = open_release(shop)
    assert "by a factor of at most exp(epsilon): epsilon = 80." in page
    promise = replace(release.meta.privacy, epsilon="2/3", delta="1/1000000", mu2="2/81")
    release.meta = replace(release.meta, privacy=promise)
    page = report_page(release)
    assert "by a factor of" not in page
    assert "to at most exp(epsilon) p + delta: epsilon = 0.666667, delta = 1e-06." in page
    assert "zero-concentrated with rho = 0.0123457" in page


def test_releases_without_scales_say_nothing_about_them(page: str) -> None:
    assert "How shapes got their scale" not in page


def test_text_of_the_catalog_cannot_become_markup(shop: Path) -> None:
    release = open_release(shop)
    catalog = {**release.meta.catalog, "description": "</script><script>alert(1)</script>"}
    release.meta = replace(release.meta, catalog=catalog)
    assert "<script>alert" not in report_page(release)


def test_cuts_of_long_axes_keep_those_that_coarser_axes_share() -> None:
    from dpsql.interfaces.web.report import MOST_CUTS, chosen_cuts

    long = [(f"{i:04d}", f"{i:04d}") for i in range(1000)]
    twin = [(f"{i:04d}", f"{i + 332:04d}") for i in (0, 333, 667)]
    cuts = chosen_cuts(long, [twin])
    assert {0, 333, 667, 1000} <= set(cuts)
    assert len(cuts) <= MOST_CUTS + 4
    assert np.all(np.diff(cuts) > 0)


@pytest.mark.slow
def test_in_a_browser_sliders_move_the_predicted_error(noise_only: Path, tmp_path: Path) -> None:
    model = page_model(open_release(noise_only))
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs chromium")
    page = tmp_path / "report.html"
    page.write_text(report_page(open_release(noise_only)), encoding="utf-8")
    age = next(
        i for i, axis in enumerate(model["axes"]) if axis["name"] == "customer.age" and axis["of"] == "sales"
    )
    seen = set()
    for positions in ("5-20", "0-40", "10-11"):
        hash_part = urllib.parse.urlencode({"what": 0, str(age): positions})
        command = [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}/profile",
            "--virtual-time-budget=3000",
            "--dump-dom",
            f"file://{page}#{hash_part}",
        ]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
        stderr = float(re.search(r'data-stderr="([^"]+)"', shown)[1])  # type: ignore[index]
        sql = unescape(re.search(r'data-sql="([^"]+)"', shown)[1])  # type: ignore[index]
        assert shown.count("<svg") >= 4
        (engines,) = dpsql.connect(noise_only).execute(sql).stderr[0]
        assert abs(stderr / engines - 1) < 0.01
        seen.add(stderr)
    assert len(seen) == 3
    print(f"figure report in chromium against explain: {abs(stderr / engines - 1):.2e} (<= 1e-2) ok")
