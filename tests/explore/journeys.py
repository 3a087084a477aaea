"""People's journeys through `dpsql explore` and `dpsql report` in headless Chromium. `make explore` runs it.

python -m tests.explore.journeys <folder for results> <axe.min.js> [<folder for pictures>]

| journey | goes |
|---|---|
| ask, chart, error, download | by keyboard alone: ask, see a chart, read a refusal, take CSV and PNG home |
| complete | words are offered, chosen by arrow keys and taken |
| examples, explain, stop | an example by a press, how it is answered, and a long statement that is stopped |
| hostile | a catalog and an answer that are full of markup, which stays text |
| site | every question of the static site is chosen, read and linked |
| builder, pages | ten questions without SQL, a bar that is pressed; report and certificate and back |
| report | the static page: numbers with margins, not wider than the window |

The release is the bundled shop with repeatable draws; pictures show nothing else. Every journey watches the console,
and whether anything is fetched from elsewhere; axe-core looks at each state in light, dark and on a small screen.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

import dpsql
from benchmarks.figures import Figures
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.results.render import render, shown
from dpsql.results.result import Result
from tests.interfaces.test_shell import ENDLESS
from tests.interfaces_release import CATALOG, build, unstamp

ROOT = Path(__file__).resolve().parents[2]
RETAIL_SEED, DRAWS = 20250101, 1
PATIENCE = 20_000
"""Milliseconds for one step on a busy machine."""
COLOURS = 96
BY_MONTH = """SELECT DATE_TRUNC('month', sold_on) AS month, region, COUNT(*) AS sales
FROM retail
GROUP BY month, region ORDER BY month, region"""
BY_REGION = "SELECT region, COUNT(*) AS sales FROM retail GROUP BY region ORDER BY region"
MARGIN = re.compile("±|-[0-9]")
"""What follows a number: one margin, or two."""
MARKUP = "<img src=x onerror=alert(1)>"
WIDE, SMALL = {"width": 1280, "height": 960}, {"width": 390, "height": 844}
PICTURED = ("dark", "small")
"""Looks of which docs/images has a picture of the builder."""
LOOKS = {"light": ("light", WIDE), "dark": ("dark", WIDE), "small": ("light", SMALL)}


@dataclass
class Seen:
    """What all journeys saw: console errors, fetches from elsewhere, findings of axe, journeys that failed."""

    console: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    serious: list[str] = field(default_factory=list)
    checked: int = 0
    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def shop(folder: Path) -> Path:
    """The bundled shop as a release, the same in every run."""
    command = [
        sys.executable,
        "-m",
        "dpsql.examples.retail",
        str(folder / "data"),
        "--seed",
        str(RETAIL_SEED),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    shutil.copy(ROOT / "catalog" / "retail_user.yaml", folder / "retail.yaml")
    noise = ExactNoise(insecure_test_entropy(DRAWS))
    release = folder / "retail.dpsql"
    publish_release(load_catalog(folder / "retail.yaml"), release, noise=noise, key=bytes(32))
    unstamp(release)
    return release


def hostile(folder: Path) -> Path:
    """A release whose names and values are markup."""
    described = f'description: "{MARKUP}</script><script>alert(2)</script>"'
    text = CATALOG.replace("population: shop-people", described).replace(
        "[east, west]", f'["{MARKUP}", west]'
    )
    return build(folder, text=text)


@contextlib.contextmanager
def served(release: Path) -> Iterator[str]:
    """`dpsql explore` as people start it; gives its address."""
    command = [sys.executable, "-m", "dpsql", "explore", str(release), "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield json.loads(server.stdout.readline())["url"]
    finally:
        server.terminate()
        server.wait(30)


@dataclass
class Visit:
    """A browser, what it saw, axe's source, and where pictures go, those of failures too."""

    browser: Browser
    seen: Seen
    axe: str
    pictures: Path
    results: Path
    figures: dict[str, tuple[float, float]] = field(default_factory=dict)

    @contextlib.contextmanager
    def page(self, address: str, look: str = "light") -> Iterator[Page]:
        """A page in a look, watched."""
        scheme, size = LOOKS[look]
        context = self.browser.new_context(color_scheme=scheme, viewport=size, accept_downloads=True)  # type: ignore[arg-type]
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda m: m.type in ("error", "warning") and self.seen.console.append(m.text))
        page.on("pageerror", lambda error: self.seen.console.append(str(error)))
        page.on("dialog", lambda dialog: (self.seen.console.append("a dialog"), dialog.dismiss()))
        page.on(
            "request",
            lambda r: (
                r.url.startswith((address.partition("#")[0], "data:", "blob:"))
                or self.seen.elsewhere.append(r.url)
            ),
        )
        page.goto(address)
        try:
            yield page
        except (AssertionError, Error):
            page.screenshot(path=self.results / f"failed-{len(self.seen.failed)}.png")
            raise
        finally:
            context.close()

    def look(self, page: Page, state: str) -> None:
        """Let axe look at a state of a page."""
        page.evaluate(self.axe)
        found = page.evaluate("() => axe.run()")
        self.seen.checked += len(found["passes"])
        for each in found["violations"]:
            if each["impact"] in ("serious", "critical"):
                where = "; ".join(node["html"][:90] for node in each["nodes"][:3])
                self.seen.serious.append(f"{state}: {each['id']}: {each['help']}: {where}")


def ask(page: Page, sql: str) -> None:
    """Fill a question in and ask it by its key."""
    page.locator("#sql").focus()
    page.locator("#sql").fill(sql)
    page.locator("#sql").press("Control+Enter")


def picture(page: Page, path: Path) -> None:
    """What the page shows, in few colours: pictures of docs stay small."""
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(COLOURS).save(path, optimize=True)


def asked_of(release: Path, sql: str) -> Result:
    """An answer as pages show it: counts are whole numbers."""
    return dpsql.query(sql, release=release).rounded()


def journey_ask(visit: Visit, address: str, release: Path) -> None:
    with visit.page(address) as page:
        expect(page.locator("#free")).to_contain_text("cost nothing")
        expect(page.locator(".tree summary").first).to_contain_text("retail")
        ask(page, "SELECT COUNT(*) AS sales FROM retail")
        expect(page.locator("#status")).to_contain_text("1 row")
        counted = str(asked_of(release, "SELECT COUNT(*) AS sales FROM retail"))
        expect(page.locator("#headline")).to_have_text(counted.splitlines()[2].strip())
        ask(page, BY_REGION)
        expect(page.locator("#table tbody tr")).to_have_count(5)
        expect(page.locator("#table tbody th").first).to_have_attribute("scope", "row")
        page.locator("#level").select_option("0.8")
        expect(page.locator("#table caption")).to_contain_text("80%")


def journey_chart(visit: Visit, address: str, release: Path) -> None:
    for look in LOOKS:
        with visit.page(address, look) as page:
            ask(page, BY_MONTH)
            expect(page.locator("#picture path.line")).to_have_count(5)
            expect(page.locator("#picture path.band")).to_have_count(5)
            visit.look(page, f"lines, {look}")
            if look != "light":
                picture(page, visit.pictures / f"explore-{look}.png")
            ask(page, BY_REGION)
            expect(page.locator("#picture rect.fill-0")).to_have_count(5)
            expect(page.locator("#picture path.error")).to_have_count(5)
            assert page.locator("#picture text").all_inner_texts()
            visit.look(page, f"bars, {look}")
            page.locator("#kind").select_option("lines")
            expect(page.locator("#picture path.line")).to_have_count(1)
            wide = page.evaluate(
                "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
            )
            assert wide, f"{look}: the page scrolls sideways"
    with visit.page(address) as page:
        ask(page, BY_MONTH)
        expect(page.locator("#picture path.line")).to_have_count(5)
        picture(page, visit.pictures / "explore.png")


def journey_error(visit: Visit, address: str, release: Path) -> None:
    with visit.page(address) as page:
        ask(page, "SELECT * FROM sales")
        expect(page.locator("#error")).to_contain_text("the statement asks for rows of sales")
        expect(page.locator("#error pre")).to_contain_text("^")
        expect(page.locator("#answer")).to_be_hidden()
        visit.look(page, "error")
        ask(page, "SELECT COUNT(*) FROM retail WHERE regin = 'east'")
        expect(page.locator("#error")).to_contain_text("did you mean")
        ask(page, BY_REGION)
        expect(page.locator("#error")).to_be_hidden()
        expect(page.locator("#table tbody tr")).to_have_count(5)


def journey_download(visit: Visit, address: str, release: Path) -> None:
    with visit.page(address, "dark") as page:
        ask(page, BY_REGION)
        expect(page.locator("#picture svg")).to_be_visible()
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Download CSV").press("Enter")
        text = Path(waiting.value.path()).read_text("utf-8")
        assert text == render(asked_of(release, BY_REGION), "csv", 0.95) + "\n"
        assert text.startswith("region,sales,sales_stderr,sales_low,sales_high,sales_bound\n")
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Download PNG").press("Enter")
        picture = Path(waiting.value.path()).read_bytes()
        assert picture.startswith(b"\x89PNG") and len(picture) > 8_000
        assert waiting.value.suggested_filename == "answer.png"
        expect(page.locator("#status")).to_have_text("downloaded answer.png")


def journey_complete(visit: Visit, address: str, release: Path) -> None:
    with visit.page(address) as page:
        expect(page.locator("#sql")).not_to_have_value("")
        page.locator("#sql").focus()
        page.keyboard.press("Control+A")
        page.keyboard.type("SELECT region, COU")
        expect(page.locator("#offers li")).to_have_count(1)
        visit.look(page, "completions")
        page.keyboard.press("ArrowDown")
        expect(page.locator("#sql")).to_have_attribute("aria-activedescendant", "offer-0")
        visit.look(page, "a completion is chosen")
        page.keyboard.press("Enter")
        page.keyboard.type("*) AS n FROM ret")
        expect(page.locator("#offers li")).to_have_text(
            ["retailsales with the columns of every dimension it refers to"]
        )
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Tab")
        page.keyboard.type(" WHERE region = 'no")
        expect(page.locator("#offers li")).to_have_count(1)
        page.keyboard.press("Escape")
        expect(page.locator("#offers")).to_be_hidden()
        page.keyboard.type("rth' GROUP BY 1")
        page.keyboard.press("Control+Enter")
        expect(page.locator("#table tbody tr")).to_have_count(1)
        page.keyboard.press("Tab")
        expect(page.locator("#ask")).to_be_focused()


def journey_examples(visit: Visit, address: str, release: Path) -> None:
    with visit.page(address) as page:
        examples = page.locator("#examples button")
        expect(examples.first).to_be_visible()
        assert examples.count() >= 8
        for i in range(examples.count()):
            examples.nth(i).press("Enter")
            expect(page.locator("#status")).to_contain_text("it cost nothing")
            expect(page.locator("#picture svg")).to_be_visible()
        page.locator(".tree .word", has_text="income").first.press("Enter")
        assert "income" in page.locator("#sql").input_value()


def journey_explain(visit: Visit, address: str, release: Path) -> None:
    with visit.page(address) as page:
        ask(page, BY_REGION)
        page.get_by_role("button", name="Explain").press("Enter")
        expect(page.locator("#stages")).to_contain_text("half of the 95% interval / 1.96 is")
        visit.look(page, "explained")


def journey_stop(visit: Visit, address: str, release: Path) -> None:
    with visit.page(address) as page:
        ask(page, ENDLESS)
        expect(page.locator("#status")).to_have_text("asking …")
        page.wait_for_timeout(300)
        page.get_by_role("button", name="Stop").press("Enter")
        expect(page.locator("#status")).to_have_text("stopped")
        ask(page, BY_REGION)
        expect(page.locator("#table tbody tr")).to_have_count(5)


def journey_hostile(visit: Visit, address: str, release: Path) -> None:
    bad = hostile(release.parent / "hostile")
    with served(bad) as own, visit.page(own) as page:
        expect(page.locator("#about")).to_contain_text(MARKUP)
        ask(page, "SELECT region, COUNT(*) AS n FROM sales JOIN customer USING (customer_id) GROUP BY 1")
        expect(page.locator("#table")).to_contain_text(MARKUP)
        expect(page.locator("#picture")).to_contain_text(MARKUP[:17])
        ask(page, f'SELECT COUNT(*) AS n FROM "{MARKUP}"')
        expect(page.locator("#error")).to_contain_text(MARKUP)
        assert page.locator("img, #about script, iframe, object").count() == 0


def journey_report(visit: Visit, address: str, release: Path) -> None:
    target = release.parent / "report.html"
    command = [sys.executable, "-m", "dpsql", "report", str(release), "-o", str(target)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    for look in LOOKS:
        with visit.page(target.as_uri(), look) as page:
            expect(page.locator(".headlines dd").first).to_have_text(MARGIN)
            visit.look(page, f"report, {look}")
            wide = page.evaluate(
                "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
            )
            assert wide, f"report, {look}: the page scrolls sideways"
            if look == "light":
                picture(page, visit.pictures / "report.png")


def journey_builder(visit: Visit, address: str, release: Path) -> None:
    """Ten questions without a typed letter of SQL; each is answered as the release answers the SQL that was written."""
    answered, steps = 0, [
        ("#what", "sum of amount"), ("#first", "region"), ("#second", "month of sold_on"), ("#what", "sum of amount"),
        ("#what", "average amount"), ("#second", "—"), ("#first", "category"), ("#first", "age_group"),
        ("#what", "count of customer"), ("#first", "sex"),
    ]  # fmt: skip
    for look in LOOKS:
        with visit.page(address, look) as page:
            expect(page.locator("#builder")).to_be_visible()
            for place, value in steps if look == "light" else steps[:3]:
                page.locator(place).select_option(value)
                answered += same_as_printed(page, release)
            page.locator("#what").select_option("count of sales")
            page.locator("#first").select_option("region")
            page.locator("#second").select_option("—")
            expect(page.locator("#table tbody th button").first).to_be_visible()
            visit.look(page, f"builder, {look}")
            pressed = page.locator("#table tbody th button").first.inner_text()
            page.locator("#table tbody th button").first.click()
            expect(page.locator("#filters button")).to_contain_text(f"region is {pressed}")
            expect(page.locator("#status")).to_contain_text("it cost nothing")
            link, headline = page.url, page.locator("#table tbody").inner_text()
            if look in PICTURED:
                page.locator("#builder details summary").click()
                picture(page, visit.pictures / f"builder-{look}.png")
            with visit.page(link, look) as again:
                expect(again.locator("#table tbody")).to_contain_text(MARGIN.split(headline)[0].strip())
            page.locator("#filters button").click()
            expect(page.locator("#filters button")).to_have_count(0)
            expect(page.locator("#history button").nth(1)).to_be_visible()
            page.locator("#first").select_option("region")
            bar = page.locator("#picture g.press").nth(1)
            expect(bar).to_be_visible()
            label = (bar.locator("title").text_content() or "").partition(":")[0]
            bar.locator("rect").click()
            expect(page.locator("#filters button")).to_contain_text(f"region is {label}")
            wide = page.evaluate(
                "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
            )
            assert wide, f"builder, {look}: the page scrolls sideways"
    visit.figures["builder: questions built without SQL that are not answered as printed"] = (
        16 - answered,
        0,
    )


def same_as_printed(page: Page, release: Path) -> bool:
    """Whether the table comes to hold what the release prints for the SQL that stands there."""
    read = "(cells) => cells.map((cell) => (cell.querySelector('button') || cell).firstChild.textContent)"
    printed, _ = shown(asked_of(release, page.locator("#sql").input_value()), 0.95, 500)
    texts, end = [text for row in printed for text in row], time.monotonic() + PATIENCE / 1000
    while page.locator("#table tbody td, #table tbody th").evaluate_all(read) != texts:
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


@contextlib.contextmanager
def hosted(folder: Path) -> Iterator[str]:
    """A folder on a plain host of files."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as host:
        threading.Thread(target=host.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{host.server_port}/"
        host.shutdown()


def journey_site(visit: Visit, address: str, release: Path) -> None:
    """Every question of the site, without a word of SQL; a link reopens it; one value of the second column."""
    folder = visit.results / "site"
    command = [sys.executable, "-m", "dpsql", "site", str(release), "-o", str(folder), "--json"]
    written = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    visit.figures["site: megabytes of the shop"] = (written["bytes"] / 1e6, 5)
    with hosted(folder) as place:
        for look in LOOKS:
            begun = time.monotonic()
            with visit.page(place, look) as page:
                expect(page.locator("#table tbody tr").first).to_be_visible()
                visit.figures["site: seconds until the first answer, cold"] = (time.monotonic() - begun, 5)
                page.locator("#first").select_option("region")
                page.locator("#second").select_option("month of sold_on")
                expect(page.locator("#picture path.line, #picture rect").first).to_be_visible()
                visit.look(page, f"site, {look}")
                page.locator("#where").select_option(index=1)
                expect(page.locator("#title")).to_contain_text("where month of sold_on is")
                link, title = page.url, page.locator("#title").inner_text()
                with visit.page(link, look) as again:
                    expect(again.locator("#title")).to_have_text(title)
                wide = page.evaluate(
                    "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
                )
                assert wide, f"site, {look}: the page scrolls sideways"
        with visit.page(place) as page:
            wrong = 0
            for asked in page.evaluate("release.questions"):
                page.locator("#what").select_option(asked["what"])
                page.locator("#first").select_option(asked["by"][0] if asked["by"] else "—")
                if page.locator("#second").is_enabled():
                    page.locator("#second").select_option(asked["by"][1] if len(asked["by"]) > 1 else "—")
                shown_texts = page.locator("#table tbody td, #table tbody th").evaluate_all(
                    "(cells) => cells.map((cell) => cell.firstChild.textContent)"
                )
                printed, _ = shown(asked_of(release, asked["sql"]), 0.95, 500)
                wrong += shown_texts != [text for row in printed for text in row]
            visit.figures["site: questions whose numbers are not as the release prints them"] = (wrong, 0)


def journey_pages(visit: Visit, address: str, release: Path) -> None:
    """Report and certificate are pages of the same house, one press away, and back."""
    for look in LOOKS:
        with visit.page(address, look) as page:
            for name, words in (
                ("Report", "What is promised"),
                ("Certificate", "Who is protected, and how"),
            ):
                page.get_by_role("link", name=name).click()
                expect(page.get_by_role("heading", name=words)).to_be_visible()
                visit.look(page, f"{name.lower()} page, {look}")
                wide = page.evaluate(
                    "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
                )
                assert wide, f"{name}, {look}: the page scrolls sideways"
                page.get_by_role("link", name="Questions").click()
                expect(page.locator("#builder")).to_be_visible()


Journey = Callable[[Visit, str, Path], None]
JOURNEYS: dict[str, Journey] = {
    "ask": journey_ask, "chart": journey_chart, "error": journey_error, "download": journey_download,
    "complete": journey_complete, "examples": journey_examples, "explain": journey_explain, "stop": journey_stop,
    "hostile": journey_hostile, "report": journey_report, "site": journey_site, "builder": journey_builder,
    "pages": journey_pages,
}  # fmt: skip


def main(folder: Path, axe: Path, pictures: Path) -> int:
    """Go on every journey; print figures and what was found."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("needs Chromium: apt-get install chromium")
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pictures.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=PATIENCE)
    release, seen, figures = shop(folder), Seen(), Figures()
    with sync_playwright() as playwright, served(release) as address:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        visit = Visit(browser, seen, axe.read_text("utf-8"), pictures, folder)
        for name, journey in JOURNEYS.items():
            try:
                journey(visit, address, release)
                seen.done.append(name)
            except (AssertionError, Error) as error:
                seen.failed.append(f"{name}: {error}")
                print(seen.failed[-1], flush=True)
        browser.close()
    for line in [*seen.console, *seen.elsewhere, *seen.serious]:
        print(line)
    for name, (value, bound) in visit.figures.items():
        figures.at_most("pages, how far past a bound", value - bound, 0, name)
    figures.at_least("explore journeys that arrive", len(seen.done), len(JOURNEYS))
    figures.table("explore console errors", len(seen.console))
    figures.at_most("explore fetches from elsewhere", len(seen.elsewhere), 0)
    figures.table("explore rules that axe found kept", seen.checked)
    figures.at_most("explore serious axe findings", len(seen.serious), 0)
    return figures.finish()


if __name__ == "__main__":
    results, script, *rest = map(Path, sys.argv[1:])
    sys.exit(main(results, script, rest[0] if rest else results))
