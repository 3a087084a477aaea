"""The survey page in a real browser: fill the form in, send one scrambled report, and count it."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dpsql.client import read_plan
from dpsql.local.collector import add_spool, close_collection
from dpsql.local.files import open_state
from dpsql.local.run import write_plan
from tests.local.test_local_release import CATALOG, page_collector

pytestmark = pytest.mark.long

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = """<!doctype html><title>driver</title><iframe id="page" src="/"></iframe><script>
const page = document.getElementById("page"), seen = [];
const status = () => page.contentDocument.querySelector("#status")?.textContent ?? "";
const until = async (text) => { while (status() !== text) await new Promise((done) => setTimeout(done, 20)); };
const say = (text) => { seen.push(text); fetch("/seen-" + seen.join("-")); };
const keep = () => JSON.stringify(Object.entries(page.contentWindow.localStorage));
page.addEventListener("load", async () => {
  await until("ready"); say("ready");
  const form = page.contentDocument.querySelector("#form"), send = form.querySelector("button");
  form.elements["answer.age"].value = "33"; form.elements["answer.minutes"].value = "12";
  send.click(); await until("sent"); say("sent");
  const kept = keep();
  page.contentDocument.querySelector("#status").textContent = "";
  form.elements["answer.age"].value = "70";
  send.click(); await until("sent"); say(kept === keep() ? "remembered" : "drawn-again");
}, { once: true });
</script>"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_page_sends_one_report_and_remembers_it(tmp_path: Path) -> None:
    write_plan(CATALOG, tmp_path / "plan.json", 1000)
    (tmp_path / "driver.html").write_text(DRIVER)
    module, spool = page_collector(), tmp_path / "spool.jsonl"
    module.PAGES["/driver"] = (tmp_path / "driver.html", "text/html; charset=utf-8")
    server = module.make_server(tmp_path / "plan.json", spool, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        shown = watch(module, f"http://127.0.0.1:{server.server_address[1]}/driver", tmp_path / "profile")
    finally:
        server.shutdown()
        server.server_close()
    assert shown[-1] == "/seen-ready-sent-remembered", shown
    first, second = spool.read_text().splitlines()
    assert first == second, "a second press sends the same bytes, whatever the form says now"
    plan = read_plan((tmp_path / "plan.json").read_bytes())
    state = open_state(plan)
    assert add_spool(state, plan, spool, b"k" * 32).accepted == 2
    assert close_collection(state, plan)[1].rejected == {}


def watch(module: ModuleType, address: str, profile: Path) -> list[str]:
    """What the driver says it saw, while a browser shows it; in real time, since locks do not wait in virtual time."""
    asked: list[str] = []
    serve = module.Handler.do_GET

    def recorded(handler: Any) -> None:
        asked.append(handler.path)
        serve(handler)

    module.Handler.do_GET = recorded
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
        "--remote-debugging-port=0", address,
    ]  # fmt: skip
    browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and sum(path.startswith("/seen-") for path in asked) < 3:
            time.sleep(0.05)
    finally:
        browser.terminate()
        browser.wait(30)
    return [path for path in asked if path.startswith("/seen-")]
