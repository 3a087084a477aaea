"""The report page: its numbers are the release's; it runs and fetches nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

import dpsql
from dpsql.interfaces.web.report import report_page
from dpsql.release import open_release
from dpsql.release.format import SpentAmount
from dpsql.results.render import split_margin
from tests.releases import published, seeded
from tests.userlevel_star import uneven_rows, write_star

pytestmark = pytest.mark.usefixtures("publishes")


@pytest.fixture(scope="module")
def page(shop: Path) -> str:
    return report_page(open_release(shop))


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
    assert "default-src 'none'; style-src 'unsafe-inline'\"" in page and "<script" not in page
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
