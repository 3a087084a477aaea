"""Do the statements of a dashboard find the plan that their shape keeps?

Twenty charts over the demo's star, as BI tools write them. A dashboard is opened, and its filters are moved once: then
each chart is asked five times more, with constants that were not asked before. A statement finds its plan if nothing of
it is parsed again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

import numpy as np

from benchmarks.figures import Figures
from benchmarks.speed.answers import cpu
from dpsql.answer.answerer import Answerer

REFRESHES = 5

JOINED = "FROM sales JOIN customer USING (customer_id) JOIN product USING (product_id)"
TABLEAU = (
    'FROM "sales" "sales" JOIN "customer" "customer" ON "sales"."customer_id" = "customer"."customer_id"'
)
SINCE = "sold_on >= CAST('{day} 00:00:00' AS TIMESTAMP) AND sold_on < CAST('{until} 00:00:00' AS TIMESTAMP)"

CATEGORIES = ("books", "clothes", "food", "garden", "home", "sport", "tech", "toys")
CHARTS = (
    "SELECT DATE_TRUNC('month', sold_on) AS sold_on, COUNT(*) AS count FROM main.sales WHERE " + SINCE
    + " GROUP BY DATE_TRUNC('month', sold_on) ORDER BY count DESC LIMIT 1000",
    "SELECT DATE_TRUNC('month', sold_on) AS __timestamp, SUM(amount) AS \"SUM(amount)\" FROM main.sales WHERE " + SINCE
    + " GROUP BY DATE_TRUNC('month', sold_on) ORDER BY \"SUM(amount)\" DESC LIMIT 10000",
    f"SELECT category, AVG(amount) AS a {JOINED} WHERE brand <> '{{brand}}' GROUP BY 1 "
    "ORDER BY a DESC LIMIT 100",
    "SELECT sold_on AS \"time\", COUNT(*) AS v FROM sales WHERE sold_on BETWEEN '{any_day}' AND '{until}' GROUP BY 1 "
    "ORDER BY 1",
    "SELECT COUNT(*) FROM sales WHERE sold_on >= '{any_day}'",
    f'SELECT "customer"."region" AS "region", SUM(1) AS "cnt:sales:ok" {TABLEAU} WHERE (("sales"."sold_on" >= '
    "DATE '{day}') AND (\"sales\".\"sold_on\" < DATE '{until}')) GROUP BY 1 HAVING (COUNT(1) > 0)",
    f'SELECT SUM("sales"."amount") AS "sum:amount:ok" {TABLEAU} WHERE ("customer"."region" = \'{{region}}\') '
    "AND (\"sales\".\"sold_on\" >= DATE '{day}') HAVING (COUNT(1) > 0)",
    'SELECT "public"."sales"."sold_on" AS "sold_on", count(*) AS "count" FROM "public"."sales" WHERE '
    "\"public\".\"sales\".\"sold_on\" >= date '{any_day}' GROUP BY \"public\".\"sales\".\"sold_on\" ORDER BY "
    '"public"."sales"."sold_on" ASC',
    'SELECT sum("public"."sales"."amount") AS "sum" FROM "public"."sales" WHERE "public"."sales"."sold_on" '
    ">= date '{day}' AND \"public\".\"sales\".\"sold_on\" < date '{until}'",
    'select "_"."region" as "region", "_"."a0" as "a0" from (select "rows"."region" as "region", count(1) as "a0" '
    'from (select "region", "sold_on" from "retail") "rows" where "rows"."sold_on" >= \'{day}\' and "rows"."sold_on" < '
    "'{until}' group by \"region\") \"_\" where not \"_\".\"a0\" is null limit 1000001",
    f"SELECT brand, COUNT(*), SUM(amount) {JOINED} WHERE category = '{{category}}' GROUP BY 1 "
    "ORDER BY 2 DESC LIMIT 5",
    f"SELECT CASE WHEN age < 45 THEN 1 ELSE 0 END AS young, COUNT(*) {JOINED} WHERE brand = '{{brand}}' GROUP BY 1",
    f"SELECT SUM(CASE WHEN age < 45 THEN 1 ELSE 0 END) AS young, COUNT(*) AS n {JOINED} WHERE price < {{dear}}",
    f"SELECT COUNT(*) {JOINED} WHERE age >= {{age}} AND age < {{old}} AND price >= {{price}} AND price < {{dear}}",
    "SELECT sex, COUNT(*) AS customers FROM customer WHERE income >= {income} AND age > {age} GROUP BY sex",
    "SELECT COUNT(*) AS n FROM customer WHERE age > {age} AND income < {income} AND sex = '{sex}'",
    "SELECT n / SUM(n) OVER () AS share, region FROM (SELECT region, COUNT(*) AS n FROM sales JOIN customer USING "
    "(customer_id) WHERE sold_on >= '{day}' AND sold_on < '{until}' GROUP BY region) AS t",
    "WITH m AS (SELECT EXTRACT(MONTH FROM sold_on) AS month, COUNT(*) AS n FROM sales WHERE sold_on >= '{any_day}' "
    "GROUP BY 1) SELECT month, n FROM m WHERE n > 5 ORDER BY month",
    f"SELECT brand, SUM(amount) / 1 AS total {JOINED} WHERE category IN ('{{category}}', '{{more}}') GROUP BY brand "
    "ORDER BY total DESC",
    "SELECT COUNT(*) AS n, DP_STDERR(COUNT(*)) AS e FROM sales JOIN customer USING (customer_id) WHERE region IN "
    "('{region}', '{other}') AND sold_on >= '{day}'",
)  # fmt: skip


def constants(rng: np.random.Generator) -> dict[str, str]:
    """What a user may choose in the filters of a dashboard."""
    months = np.sort(rng.choice(12, size=2, replace=False)).tolist()
    ages = np.sort(rng.choice(np.arange(20, 90, 5), size=2, replace=False)).tolist()
    prices = np.sort(rng.choice(np.arange(5, 105, 5), size=2, replace=False)).tolist()
    regions = rng.permutation(["north", "south", "east", "west"]).tolist()
    categories = rng.permutation(CATEGORIES).tolist()
    return {
        "any_day": (date(2025, 1, 1) + timedelta(int(rng.integers(0, 300)))).isoformat(),
        "day": date(2025, months[0] + 1, 1).isoformat(), "until": date(2025, months[1] + 1, 1).isoformat(),
        "age": str(ages[0]), "old": str(ages[1]), "price": str(prices[0]), "dear": str(prices[1]),
        "income": str(int(rng.choice([10000, 15000, 20000, 30000, 40000, 50000, 60000, 80000]))),
        "sex": str(rng.choice(["F", "M"])), "region": regions[0], "other": regions[1],
        "category": categories[0], "more": categories[1], "brand": f"{categories[0]}-{rng.integers(1, 6)}",
    }  # fmt: skip


def asked(chart: str, rng: np.random.Generator, seen: set[str]) -> str:
    """A statement of a chart that was not asked before, where its filters have one more choice."""
    text = chart
    for _ in range(20):
        text = chart.format(**constants(rng))
        if text not in seen:
            break
    seen.add(text)
    return text


def measure(answerer: Answerer, figures: Figures) -> None:
    """The figure: how many of a hundred statements find their plan."""
    rng, seen = np.random.default_rng(3), set[str]()
    finds: Callable[[str], bool] = lambda text: answerer._shapes.filled(text, "") is not None  # noqa: E731
    for _ in range(2):
        for chart in CHARTS:
            answerer.query(asked(chart, rng, seen))
    hits, spent = 0, list[float]()
    for _ in range(REFRESHES):
        for chart in CHARTS:
            text = asked(chart, rng, seen)
            hit = finds(text)
            if not hit:
                print(f"read again: {text}")
            hits += hit
            spent.append(cpu(lambda text=text: answerer.query(text).notes))  # type: ignore[misc]
    print(f"a chart of the demo: median {np.median(spent):.2f} ms of CPU, most {max(spent):.2f}")
    figures.table("dashboard statements of the demo that find their plan, of 100", hits)
