"""A made-up app reports in Chromium as docs/in-your-app.md has it, and the collection counts every report.

The page, the catalog and the client are the documentation's own text and what npm packs. Each person is a browser
context of her own; she comes back once, and then nothing is sent again. The types are
checked by `tsc`, right programs and wrong ones. Needs Debian's `chromium`, node and npm.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright

from benchmarks.figures import Figures, main
from dpsql.client import decode, to_json

ROOT = Path(__file__).resolve().parents[2]
PAGE, CLIENT = ROOT / "docs" / "in-your-app.md", ROOT / "clients" / "js"
PEOPLE = 24
TYPESCRIPT = "typescript@5"
RIGHT = """
import { Memory, readPlan, type TextStorage } from "dpsql-client";
import { checkFields, join, toRows } from "dpsql-client/rows";
import { indexedStorage } from "dpsql-client/storage";
declare const bytes: Uint8Array;
interface Native { getItem(key: string): Promise<string | null>; setItem(key: string, text: string): Promise<void> }
declare const native: Native;
export async function report(): Promise<Uint8Array | null> {
  const plan = await readPlan(bytes);
  checkFields(plan, ["listener.plan"]);
  const storage: TextStorage = plan.round > 0 ? native : indexedStorage();
  const records = join([{ "listener.plan": "free", day: new Date(), n: 3n }], new Map(), "listener.plan");
  return new Memory(storage, 1, "4").answer(plan, toRows(plan, records));
}
"""
WRONG = (
    "new Memory({ getItem: (key: string) => 3, setItem() {} }, 1, 4);",
    "new Memory(indexedStorage(), 1);",
    "const report: Uint8Array = await new Memory(indexedStorage(), 1, 4).answer(await readPlan(bytes), []);",
    'toRows(await readPlan(bytes), [{ "listener.plan": ["free"] }]);',
    'readPlan("{}");',
    'checkFields(await readPlan(bytes), "listener.plan");',
)
"""Programs that must not compile, each for one mistake."""


def measure(figures: Figures, folder: Path) -> None:
    """Report, and compile."""
    counted, drawn = reports(folder, packed(folder))
    figures.at_least("devices: reports of a made-up app that the collection counts", counted, PEOPLE)
    figures.table("devices: reports drawn beyond one a person who comes back", drawn - PEOPLE)
    errors, refused = typed(folder)
    figures.table("devices: errors of tsc over the app, as modules and CommonJS", errors)
    figures.table(f"devices: wrong programs that tsc refuses, of {len(WRONG)}", refused)


def packed(folder: Path) -> Path:
    """What npm packs, among a project's modules."""
    pack = ["npm", "pack", "--json", "--pack-destination", str(folder), str(CLIENT)]
    subprocess.run(pack, check=True, capture_output=True)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    (folder / "node_modules").mkdir()
    (folder / "package").rename(folder / "node_modules" / "dpsql-client")
    return folder / "node_modules" / "dpsql-client"


def block(kind: str) -> str:
    """The first block of a kind on the page."""
    found = re.search(rf"```{kind}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


class Reports(SimpleHTTPRequestHandler):
    """Files of a folder, and POST /report, spooled there; it keeps no address and no time."""

    def do_POST(self) -> None:
        """Spool one report."""
        report = decode(self.rfile.read(int(self.headers["Content-Length"])))
        with Path(self.directory, "reports.jsonl").open("a") as spool:
            spool.write(to_json(report) + "\n")
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Keep no log."""


@contextmanager
def hosted(folder: Path) -> Iterator[str]:
    """The app on a host of its own."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Reports, directory=str(folder))) as host:
        threading.Thread(target=host.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{host.server_port}/"
        host.shutdown()


def reports(folder: Path, modules: Path) -> tuple[int, int]:
    """Reports that `dpsql collect` counts, and those that arrived."""
    app = folder / "app"
    app.mkdir()
    shutil.copytree(modules, app / "dpsql-client")
    (app / "music.yaml").write_text(block("yaml"))
    (app / "index.html").write_text(block("html"))
    dpsql("collection-plan", "music.yaml", "-o", "plan.json", "--people", str(PEOPLE), folder=app)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("needs Chromium: apt-get install chromium")
    with hosted(app) as place, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for number in range(PEOPLE):
            plan = ("free", "paid")[number % 2]
            person(browser, f"{place}#listener.plan={plan}&listener.hours={number * 2}")
        browser.close()
    collected = dpsql("collect", "plan.json", "reports.jsonl", "-o", "music.dpsql", "--json", folder=app)
    print(dpsql("query", "music.dpsql", "SELECT COUNT(*) FROM listener", folder=app).strip())
    return int(json.loads(collected)["accepted"]), len((app / "reports.jsonl").read_text().splitlines())


def person(browser: Browser, address: str) -> None:
    """One person's two visits."""
    context = browser.new_context()
    page = context.new_page()
    for _ in range(2):
        page.goto(address)
        expect(page.locator("#status")).to_have_text("sent", timeout=20_000)
        page.reload()
    context.close()


def dpsql(*words: str, folder: Path) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "dpsql", *words]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def typed(folder: Path) -> tuple[int, int]:
    """Errors in the right program, in two module systems; wrong programs that are refused."""
    install = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--no-save", "--prefix"]
    subprocess.run([*install, str(folder / "tools"), TYPESCRIPT], check=True)
    head = RIGHT.partition("export async")[0]
    for name in ("app.mts", "app.cts"):
        (folder / name).write_text(RIGHT)
    errors = len(compiled(folder, "app.mts", "app.cts"))
    refused = 0
    for number, text in enumerate(WRONG):
        (folder / f"wrong{number}.mts").write_text(f"{head}{text}\nexport {{}};\n")
        refused += bool(compiled(folder, f"wrong{number}.mts"))
    return errors, refused


def compiled(folder: Path, *files: str) -> list[str]:
    """The errors of some files."""
    tsc = [str(folder / "tools" / "node_modules" / ".bin" / "tsc"), "--noEmit", "--strict", "--module", "node16",
           "--moduleResolution", "node16", "--target", "es2022", "--lib", "es2022,dom"]  # fmt: skip
    done = subprocess.run([*tsc, *files], cwd=folder, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if "error TS" in line]
    assert bool(lines) == bool(done.returncode), done.stdout
    return lines


if __name__ == "__main__":
    main(measure)
