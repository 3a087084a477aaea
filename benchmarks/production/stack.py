"""The stack of `deploy/` from its own steps: how large, how soon healthy, what a reload, an end and a restore lose.

    python -m benchmarks.production.stack

The image's install lines are run in a clean environment, and its server is started with the shipped server file: two
releases, two roles, TLS, metrics. No container is built.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figures
from dpsql.examples.retail import make_star, write_star
from tests.interfaces_release import build

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CLIENTS = 32
SQL = "SELECT region, COUNT(*) FROM sales JOIN customer USING (customer_id) GROUP BY region"
PROGRAM = """
import ssl, sys, time, psycopg
lost = asked = half = broken = 0
while True:
    try:
        with psycopg.connect(sys.argv[1], autocommit=True) as connection:
            lost, broken = lost + broken, 0
            for _ in range(20):
                asked += 1
                half += len(connection.execute(sys.argv[3]).fetchall()) != int(sys.argv[2])
    except psycopg.errors.AdminShutdown:
        break
    except psycopg.OperationalError as error:
        if "refused" in str(error) or "shutting down" in str(error):
            break  # what broke before was the server's end: a client that asks nothing then reads 57P01 as a notice
        broken += 1
print(asked, lost, half)
"""


def main() -> int:
    """Measure and print."""
    figures = Figures()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        programs = image(figures, place)
        served(figures, place, programs)
        restored(figures, place, programs)
    return figures.finish()


def image(figures: Figures, place: Path) -> Path:
    """The install lines of the Dockerfile in a clean environment."""
    source, environment = place / "src", place / "image"
    source.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x"], cwd=source, input=archive, check=True)
    (lines,) = re.findall(
        r"^RUN (python -m venv (?:.*\\\n)*.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE
    )
    world = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    lines = lines.replace("/opt/dpsql", str(environment)).replace("python -m", f"{sys.executable} -m", 1)
    subprocess.run(["sh", "-ec", lines], cwd=source, check=True, capture_output=True, env=world)
    files = (file for file in environment.rglob("*") if file.is_file() and not file.is_symlink())
    size = sum(file.stat().st_size for file in files)
    figures.table("production: MB installed by the image's steps", size / 1e6)
    return environment / "bin"


def shipped(place: Path) -> dict[str, str]:
    """The shipped server folder with two releases, passwords and a certificate; its addresses are free local ones."""
    folder = place / "server"
    shutil.copytree(DEPLOY / "server", folder)
    shutil.copy(build(place / "one"), folder / "shop.dpsql")
    shutil.copy(build(place / "two", seed=8), folder / "survey.dpsql")
    for role in ("ana", "board"):
        (folder / f"{role}.pw").write_text(f"{role}:correct horse staple\n")
        (folder / f"{role}.pw").chmod(0o600)
    subject = ["-subj", "/CN=localhost", "-days", "30", "-nodes", "-newkey", "rsa:2048"]
    written = ["-keyout", folder / "server.key", "-out", folder / "server.pem"]
    subprocess.run(["openssl", "req", "-x509", *subject, *written], check=True, capture_output=True)
    (folder / "server.key").chmod(0o600)
    ports = {"5433": free_port(), "9187": free_port()}
    text = (folder / "server.yaml").read_text().replace("0.0.0.0", "127.0.0.1")
    for port, free in ports.items():
        text = text.replace(port, free)
    (folder / "server.yaml").write_text(text + f"log: {folder / 'log.jsonl'}\n")
    return ports


def free_port() -> str:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return str(holder.getsockname()[1])


@contextlib.contextmanager
def started(place: Path, programs: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [programs / "dpsql", "serve", "--config", "server.yaml"]
    world = {"PATH": os.environ["PATH"], "DPSQL_STATE": "/dev/null", "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(command, cwd=place / "server", env=world, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def get(port: str, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
        return str(answer.read().decode())


def served(figures: Figures, place: Path, programs: Path) -> None:
    """Seconds until healthy; statements lost by reloads and half answers by an end under clients over TLS; a scrape."""
    ports = shipped(place)
    begun = time.monotonic()
    with started(place, programs) as process:
        while True:
            with contextlib.suppress(OSError):
                get(ports["9187"], "/healthz")
                break
            assert process.poll() is None and time.monotonic() < begun + 60, "not healthy"
            time.sleep(0.05)
        figures.table("production: seconds until the stack is healthy", time.monotonic() - begun)
        dsn = (
            f"host=localhost port={ports['5433']} user=ana password='correct horse staple' dbname=shop "
            f"sslmode=verify-full sslrootcert={place / 'server' / 'server.pem'}"
        )
        count = _groups(dsn)
        clients = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, dsn, str(count), SQL], stdout=subprocess.PIPE, text=True
            )
            for _ in range(CLIENTS)
        ]
        time.sleep(10)
        for number in range(3):
            process.send_signal(signal.SIGHUP)
            end = time.monotonic() + 60
            while _reloads(place / "server" / "log.jsonl") <= number and time.monotonic() < end:
                time.sleep(0.2)
        scraped = get(ports["9187"], "/metrics")
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        told = [list(map(int, client.communicate(timeout=60)[0].split())) for client in clients]
    asked, lost, half = map(sum, zip(*told, strict=True))
    print(
        f"{asked} statements of {CLIENTS} clients over TLS, {_reloads(place / 'server' / 'log.jsonl')} reloads"
    )
    figures.table("production: statements of 32 clients over TLS lost under three reloads", lost)
    figures.table("production: half answers under reloads and SIGTERM", half)
    metered = sum(line.startswith("dpsql_") and not line.startswith("#") for line in scraped.splitlines())
    figures.table("production: metrics scraped under load", metered)


def _groups(dsn: str) -> int:
    import psycopg

    with psycopg.connect(dsn) as connection:
        return len(connection.execute(SQL).fetchall())


def _reloads(log: Path) -> int:
    return sum(json.loads(line).get("reload") == "done" for line in log.read_text().splitlines() if line)


def restored(figures: Figures, place: Path, programs: Path) -> None:
    """The drill: back up after each publish, lose the machine, restore the newest; then an older one: refused."""
    folder = place / "drill"
    write_star(folder / "data", make_star(3, 2000, 40))
    text = (ROOT / "catalog" / "retail.yaml").read_text()
    (folder / "retail.yaml").write_text(text)
    world = {"PATH": os.environ["PATH"], "DPSQL_STATE": "/dev/null"}

    def dpsql(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [programs / "dpsql", *words], cwd=folder, env=world, capture_output=True, text=True
        )
        assert (done.returncode == 0) is (code == 0), done.stderr
        return done.stdout

    ledger = ".dpsql/ledger.duckdb"
    for number in (1, 2):
        dpsql("publish", "retail.yaml", "-o", f"r{number}.dpsql")
        dpsql("ledger", "backup", ledger, "-o", f"copy{number}.duckdb")
    before = json.loads(dpsql("budget", "retail.yaml", "--json"))["lineages"]
    shutil.rmtree(folder / ".dpsql")
    (folder / ".dpsql").mkdir(mode=0o700)
    for end in ("", ".head"):
        if (folder / f"copy2.duckdb{end}").exists():
            shutil.copy(folder / f"copy2.duckdb{end}", folder / f"{ledger}{end}")
    after = json.loads(dpsql("budget", "retail.yaml", "--json"))["lineages"]
    lost = sum(len(line["releases"]) for line in before) - sum(len(line["releases"]) for line in after)
    figures.at_most("production: charges lost by a restore of the newest backup", lost, 0)
    for end in ("", ".head"):
        if (folder / f"copy1.duckdb{end}").exists():
            shutil.copy(folder / f"copy1.duckdb{end}", folder / f"{ledger}{end}")
    dpsql("publish", "retail.yaml", "-o", "r3.dpsql", code=3)
    figures.table("production: publishes over an older backup", int((folder / "r3.dpsql").exists()))


if __name__ == "__main__":
    sys.exit(main())
