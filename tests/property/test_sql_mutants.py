"""Damaged statements: whatever arrives, the answer is a result or a typed error of one line, at once."""

from __future__ import annotations

import random
import resource
import time

import pytest

from dpsql.errors import Error, InternalError
from dpsql.executor.engine import ReleaseEngine
from tests.thinned import by_default

pytestmark = pytest.mark.long

SEEDS = [
    "SELECT region, COUNT(*) AS n, SUM(amount) FROM sales s JOIN customer c ON s.customer_id = c.customer_id"
    " WHERE age BETWEEN 20 AND 29 AND NOT (region = 'north' OR region IS NULL) GROUP BY region HAVING COUNT(*) > 3"
    " ORDER BY n DESC LIMIT 10",
    "WITH t AS (SELECT DATE_TRUNC('month', sold_on) AS m, AVG(amount) AS a FROM sales GROUP BY 1) SELECT m, a,"
    " RANK() OVER (ORDER BY a) FROM t WHERE a > 1",
    "SELECT SUM(CASE WHEN age < 25 THEN amount ELSE 0 END) / NULLIF(COUNT(*), 0) FROM shop",
    "SELECT DP_STDERR(COUNT(*)), DP_INTERVAL_LOW(SUM(qty), 0.9) FROM sales WHERE sold_on >= DATE '2025-01-05'",
    "SELECT 'a' AS k, COUNT(*) FROM sales UNION ALL SELECT 'b', COUNT(*) FROM customer WHERE age IN (20, 21, 22)",
    "SELECT x.r, x.n * 2 FROM (SELECT region AS r, COUNT(*) FILTER (WHERE age > 30) AS n FROM shop GROUP BY ALL) AS x",
    "SELECT MEDIAN(age), MIN(age), COUNT(DISTINCT region) FROM customer WHERE region LIKE '%o%'",
    "SELECT * FROM information_schema.columns WHERE table_name = 'sales' LIMIT 5",
]
WORDS = [
    "SELECT", "FROM", "WHERE", "GROUP BY", "(", ")", ",", "NULL", "*", "'", '"', "--", "/*", "1e400", "-1",
    "NOT", "CASE", "END", "age", "region", "OVER ()", "UNION", "JOIN", "ON", "::DATE", "[1]", "{}", ";",
    "\u202e", "é", "LATERAL", "EXISTS", "$1", "?", "INTERVAL", "99999999999999999999", "0.0", "% 0", "/ 0",
    "||", "DISTINCT", "WITH", "PIVOT", "kind", "dp_at", "axis_0", "node", "meta", "dp_block_0", "k0", "now()",
    "getenv('HOME')", "JOIN customer c JOIN customer c", "REPEAT(region, 1000000)", "LPAD(region, 99999999)",
    "(VALUES (1), (2), (3)) v(x),", "CROSS JOIN", "UNION ALL SELECT region, COUNT(*), 1 FROM shop GROUP BY 1",
    "OVER (ORDER BY n)", "STRING_AGG(region, ',')", "region || region", "(SELECT COUNT(*) FROM sales)",
]  # fmt: skip
SECONDS, MEGABYTES = 1.0, 500
"""CPU of one mutant, and what all of them together may add to the process."""


def mutant(draw: random.Random) -> str:
    """A statement with a few tokens or characters dropped, doubled, swapped or put in."""
    text = draw.choice(SEEDS)
    if draw.random() < 0.3:
        place = draw.randrange(len(text))
        return (
            text[:place]
            + draw.choice(["", "(", "'", " ", "\n", "x", text[place:][:9]])
            + text[place + draw.randrange(3) :]
        )
    tokens = text.split(" ")
    for _ in range(draw.randrange(1, 4)):
        place = draw.randrange(len(tokens))
        act = draw.randrange(4)
        if act == 0:
            del tokens[place]
        elif act == 1:
            tokens.insert(place, draw.choice(WORDS))
        elif act == 2:
            tokens[place] = draw.choice(WORDS)
        else:
            other = draw.randrange(len(tokens))
            tokens[place], tokens[other] = tokens[other], tokens[place]
        tokens = tokens or ["SELECT"]
    return " ".join(tokens)


def run_mutants(answerer: ReleaseEngine, seed: int, count: int) -> dict[str, int]:
    """Answer mutants, each within its limits; count what came of them."""
    draw, seen = random.Random(seed), {"answered": 0, "refused": 0}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        text, start = mutant(draw), time.thread_time()
        try:
            answerer.query(text)
            seen["answered"] += 1
        except Error as error:
            assert "\n" not in str(error), text
            assert not isinstance(error, InternalError), text
            assert error.exit_code == 1, (text, error)
            assert "dp_block" not in str(error) or "dp_block" in text, (text, error)
            seen["refused"] += 1
        assert time.thread_time() - start < SECONDS, text
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < MEGABYTES
    return seen


@pytest.mark.parametrize(("count", "least"), by_default([(500, 20), (2500, 100)], 1))
def test_mutants(answerer: ReleaseEngine, count: int, least: int) -> None:
    seen = run_mutants(answerer, 1, count)
    assert min(seen.values()) > least, seen


@pytest.mark.slow
def test_twenty_thousand_mutants(answerer: ReleaseEngine) -> None:
    seen = run_mutants(answerer, 2, 20_000)
    assert sum(seen.values()) == 20_000 and min(seen.values()) > 1000, seen
