"""One long axis planned, published and asked in a process of its own, with bounded memory.

    python -m tests.long_axis LEAVES DELTA MECHANISM

The limit is on data (RLIMIT_DATA) and generous: DuckDB reserves more than it touches. What counts is resident memory.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import duckdb

from dpsql.catalog import load_catalog
from dpsql.curator.forecast import plan_catalog
from tests.releases import published, seeded, write_catalog

DATA_MB = 3072
QUESTIONS = 9
CATALOG = """
privacy: {{lineage: long, cap: 1, unit: row, epsilon: 1, delta: {delta}}}
tables:
  sales: {{role: fact, columns: {{x: {{type: int, lower: 0, upper: {last}, out_of_domain: drop}}}}}}
views:
  minutes: {{of: sales, axes: [sales.x], measures: [count], mechanism: {mechanism}}}
"""


class LongAxis(NamedTuple):
    """Largest resident memory in MB, median processor seconds of a range, and how many 95% intervals miss."""

    resident: float
    question: float
    missed: int


def measured(leaves: int, delta: str, mechanism: str) -> LongAxis:
    """One axis in a process of its own; an error is the process's last line."""
    command = [sys.executable, "-m", "tests.long_axis", str(leaves), delta, mechanism]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return LongAxis(*json.loads(ran.stdout.splitlines()[-1]))


def main(leaves: int, delta: str, mechanism: str, folder: Path) -> LongAxis:
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_MB << 20, DATA_MB << 20))
    sales = f"SELECT CAST(hash(i) % {leaves} AS INTEGER) AS x FROM range(20000) AS t(i)"
    text = CATALOG.format(delta=delta, last=leaves - 1, mechanism=mechanism)
    catalog = write_catalog(folder, text, {"sales": sales})
    plan_catalog(load_catalog(catalog), ["SELECT COUNT(*) FROM sales WHERE x BETWEEN 3 AND 17"])
    engine = published(catalog, seeded(1), "long")
    values, seconds, missed = duckdb.sql(sales).fetchnumpy()["x"], [], 0
    for i in range(QUESTIONS + 1):
        low, high = leaves * (i + 1) // 40, leaves * (i + 5) // 16
        start = time.process_time()
        answer = engine.query(f"SELECT COUNT(*) FROM sales WHERE x BETWEEN {low} AND {high}")
        below, above = (float(end.iat[0, 0]) for end in answer.interval(0.95))
        seconds.append(time.process_time() - start)
        missed += not below <= ((values >= low) & (values <= high)).sum() <= above
    # not `ru_maxrss`, which starts at what the parent held
    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return LongAxis(int(status["VmHWM"].split()[0]) / 1024, median(seconds[1:]), missed)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], Path(place))))
