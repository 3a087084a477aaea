"""Drive Superset over a release: database, SQL Lab, dataset, two charts, a picture. `python -m tests.superset` runs it.

python tests/superset/drive.py <superset's python> <release> <folder for results>

Needs an environment of its own with apache-superset 6.1, rich, cachetools, flask-caching < 2.4 and dpsql.
The statements that Superset sent are left in <folder>/sent.sql, the picture in <folder>/chart.png.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
METRICS = [
    {"expressionType": "SQL", "sqlExpression": expression, "label": label}
    for label, expression in (
        ("n", "COUNT(*)"),
        ("low", "DP_INTERVAL_LOW(COUNT(*))"),
        ("high", "DP_INTERVAL_HIGH(COUNT(*))"),
    )
]


class Rest:
    """Superset's REST interface."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.head = {"Content-Type": "application/json"}

    def __call__(self, path: str, body: Any = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, self.head, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{path}: {error.code} {error.read().decode()[:600]}") from error


@contextlib.contextmanager
def running(python: str, folder: Path) -> Iterator[Rest]:
    """A Superset with an empty metadata database."""
    environment = {**os.environ, "SUPERSET_HOME": str(folder), "FLASK_APP": "superset.app:create_app()"}
    environment["SUPERSET_CONFIG_PATH"] = str(HERE / "superset_config.py")
    command = [str(Path(python).parent / "superset")]
    user = ["--username", "a", "--firstname", "a", "--lastname", "a", "--email", "a@b.c", "--password", "a"]
    log = (folder / "log.txt").open("w")
    for words in (["db", "upgrade"], ["fab", "create-admin", *user], ["init"]):
        subprocess.run([*command, *words], env=environment, stdout=log, stderr=log, check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = subprocess.Popen(
        [*command, "run", "-p", str(port), "--with-threads"], env=environment, stdout=log, stderr=log
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/health")
        yield Rest(f"http://127.0.0.1:{port}")
    finally:
        served.terminate()
        served.wait(20)


def wait_for(url: str) -> None:
    """Until the server answers, two minutes at most."""
    for _ in range(120):
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(1)
    raise SystemExit("Superset did not start")


def query(dataset: int, **more: Any) -> dict[str, Any]:
    """A chart's data request."""
    asked = {"metrics": METRICS, "filters": [], "extras": {}, "row_limit": 1000, "orderby": [], **more}
    return {
        "datasource": {"id": dataset, "type": "table"},
        "queries": [asked],
        "result_format": "json",
        "result_type": "full",
    }


def check(name: str, good: bool, value: Any, bound: str) -> bool:
    """One figure line."""
    print(f"figure superset {name}: {value} ({bound}) {'ok' if good else 'short'}", flush=True)
    return good


def drive(rest: Rest, release: Path, folder: Path) -> bool:
    """Everything an analyst does once; True if all of it went well."""
    made = rest(
        "/api/v1/database/",
        {"database_name": "shop", "sqlalchemy_uri": f"dpsql:///{release}", "expose_in_sqllab": True},
    )
    database = made["id"]
    tables = rest(f"/api/v1/database/{database}/tables/?q=(schema_name:main)")["result"]
    fine = [check("tables", len(tables) == 4, len(tables), "4")]
    lab = {
        "database_id": database,
        "schema": "main",
        "sql": "SELECT region, COUNT(*) AS n, DP_STDERR(COUNT(*)) AS e FROM shop GROUP BY region",
        "runAsync": False,
        "client_id": "check123",
    }
    rows = rest("/api/v1/sqllab/execute/", lab)["data"]
    fine.append(check("SQL Lab rows", len(rows) == 3, len(rows), "3"))
    dataset = rest("/api/v1/dataset/", {"database": database, "schema": "main", "table_name": "shop"})["id"]
    columns = rest(f"/api/v1/dataset/{dataset}")["result"]["columns"]
    fine.append(check("dataset columns", len(columns) == 7, len(columns), "7"))
    bars = rest("/api/v1/chart/data", query(dataset, columns=["category"]))["result"][0]["data"]
    inside = [row for row in bars if row["low"] <= row["n"] <= row["high"]]
    fine.append(
        check(
            "bar chart rows inside their intervals",
            len(inside) == len(bars) >= 3,
            len(inside),
            f"{len(bars)}",
        )
    )
    month = {
        "columnType": "BASE_AXIS",
        "sqlExpression": "sold_on",
        "label": "sold_on",
        "expressionType": "SQL",
        "timeGrain": "P1M",
    }
    limits = [{"col": "sold_on", "op": "TEMPORAL_RANGE", "val": "2025-01-01 : 2025-07-01"}]
    series = rest(
        "/api/v1/chart/data", query(dataset, columns=[month], filters=limits, granularity="sold_on")
    )["result"][0]["data"]
    fine.append(check("time series months", len(series) == 6, len(series), "6"))
    fine.append(picture(rest, dataset, folder))
    return all(fine)


def picture(rest: Rest, dataset: int, folder: Path) -> bool:
    """Save a bar chart and draw it in a headless browser."""
    form = {
        "datasource": f"{dataset}__table",
        "viz_type": "table",
        "query_mode": "aggregate",
        "groupby": ["category"],
        "metrics": METRICS,
        "adhoc_filters": [],
        "row_limit": 100,
    }
    form |= {"viz_type": "echarts_timeseries_bar", "x_axis": "category", "groupby": []}
    body = {
        "slice_name": "shop by category",
        "viz_type": form["viz_type"],
        "datasource_id": dataset,
        "datasource_type": "table",
        "params": json.dumps(form),
    }
    chart = rest("/api/v1/chart/", body)["id"]
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        return check("chart drawn", False, "no chromium", "a picture")
    target = folder / "chart.png"
    url = f"{rest.base}/explore/?slice_id={chart}&standalone=1"
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder}/profile",
        "--window-size=1200,800",
    ]
    shown = subprocess.run(
        [browser, *options, "--timeout=60000", "--virtual-time-budget=60000", "--dump-dom", url],
        capture_output=True,
        text=True,
        timeout=180,
    ).stdout
    subprocess.run(
        [browser, *options, "--timeout=60000", "--virtual-time-budget=60000", f"--screenshot={target}", url],
        capture_output=True,
        timeout=180,
    )
    drawn = target.exists() and "<canvas" in shown
    return check(
        "chart drawn",
        drawn,
        f"{target.stat().st_size if target.exists() else 0} bytes",
        "a canvas and a picture",
    )


def main() -> None:
    """Run the check; exit code 1 if something is short."""
    python, release, folder = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with running(python, folder) as rest:
        good = drive(rest, release, folder)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
