"""Rows of reports in, tallies out: DuckDB tells views apart and packs payloads, an oracle counts many of them at once.

| step | where |
|------|-------|
| the first 13 bytes name magic, plan, view and oracle: a report has a view, or a reason why not | SQL, a join |
| payloads of one view, length and fold become one text of hex digits | SQL, an aggregate |
| payloads that the oracle cannot give are rejected by its reason, the others counted | numpy, by bytes and bits |

No step looks at reports one by one in Python. Rows come in portions that fit in memory, whatever their number.

**Privacy**: reports are private before they get here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpsql.client.plan import Plan
from dpsql.client.report import HEADER, MAGIC
from dpsql.engines.duck import private_connection
from dpsql.local.tallies import FOLDS, empty_tallies, oracle_of
from dpsql.release.write import registered

PORTION = 1 << 25
"""Bytes of reports that are packed at once."""
CHECKS = (
    (f"octet_length(report) <= {HEADER}", "too short"),
    ("view IS NULL AND report[:2] <> $magic", "not a report of version 1"),
    ("view IS NULL AND report[3:10] <> $plan", "another plan"),
    ("view IS NULL AND report[11:12] > $last", "no such view"),
    ("view IS NULL", "not the view's oracle"),
    ("octet_length(report) > $longest", "payload length"),
)
"""In this order, what is looked at before an oracle sees a payload; `view` is that of a report whose head is known."""
LONGEST = 64
"""Bytes that any payload may have; beyond, none has more than a byte for each item of the largest view."""


def heads_of(plan: Plan) -> list[bytes]:
    """The first bytes of a report to each view."""
    return [
        MAGIC + plan.hash + number.to_bytes(2, "big") + bytes([view.perturbs.code])
        for number, view in enumerate(plan.views)
    ]


def longest_report(plan: Plan) -> int:
    """Bytes of the longest report that an oracle looks at."""
    return HEADER + max(LONGEST, *(view.domain for view in plan.views))


class Counting:
    """Counts the reports to one plan, portion by portion.

    Args:
        connection: where the rows are; it gets a temporary table of the plan's views.
        plan: the plan that reports must name.

    Attributes:
        tallies: of the accepted reports.
        rejected: how many were rejected for each reason.
        accepted: how many were accepted.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, plan: Plan) -> None:
        self._connection = connection
        self._oracles = [oracle_of(plan, view) for view in plan.views]
        self.tallies = empty_tallies(plan)
        self.rejected = Counter[str]()
        self.accepted = 0
        heads = heads_of(plan)
        connection.execute("CREATE OR REPLACE TEMP TABLE plan_head (view INTEGER, head BLOB)")
        connection.executemany("INSERT INTO plan_head VALUES (?, ?)", list(enumerate(heads)))
        self._known = {
            "magic": MAGIC,
            "plan": plan.hash,
            "last": heads[-1][10:12],
            "longest": longest_report(plan),
        }

    def add(self, rows: str) -> None:
        """Count one portion.

        Args:
            rows: a relation in SQL with columns `report` BLOB and `fold`, an integer below `FOLDS`.
        """
        cases = " ".join(f"WHEN {check} THEN {number}" for number, (check, _) in enumerate(CHECKS))
        groups = self._connection.execute(
            f"""
            WITH said AS (
                SELECT report, fold, view, CASE {cases} END AS failed
                FROM ({rows}) LEFT JOIN plan_head ON report[:{HEADER}] = head)
            SELECT failed, if(failed IS NULL, view, 0) AS number, if(failed IS NULL, fold, 0) AS part,
                if(failed IS NULL, octet_length(report) - {HEADER}, 0) AS width, count(*),
                string_agg(if(failed IS NULL, hex(report[{HEADER + 1}:]), NULL), '')
            FROM said GROUP BY ALL
            """,
            self._known,
        ).fetchall()
        for failed, view, fold, width, reports, digits in groups:
            if failed is not None:
                self.rejected[CHECKS[failed][1]] += reports
                continue
            table = np.frombuffer(bytes.fromhex(digits), dtype=np.uint8).reshape(reports, width)
            self._add_table(view, fold, table)

    def _add_table(self, view: int, fold: int, payloads: NDArray[np.uint8]) -> None:
        oracle, tally = self._oracles[view], self.tallies[view]
        accepted, reason = oracle.check(payloads)
        sound = int(accepted.sum())
        self.rejected[reason] += len(payloads) - sound
        if sound:
            tally.reports[fold] += sound
            tally.support[fold] += oracle.count(payloads if sound == len(payloads) else payloads[accepted])
            self.accepted += sound


def decode_reports(plan: Plan, reports: Sequence[bytes], folds: NDArray[np.uint8]) -> Counting:
    """Check and count reports that are in memory.

    Args:
        plan: the plan that they must name.
        reports: report bytes.
        folds: fold of people of each report, 0 .. 3; must not depend on the report.

    Returns:
        The counts.
    """
    connection, spill = private_connection()
    try:
        counting = Counting(connection, plan)
        with registered(connection, "given", {"digits": [r.hex() for r in reports], "fold": folds % FOLDS}):
            counting.add("SELECT from_hex(digits) AS report, fold FROM given")
    finally:
        connection.close()
        spill.cleanup()
    return counting
