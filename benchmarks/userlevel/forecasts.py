"""Half-widths that `dpsql plan` foresees over those that releases print.

Stated of a star are the true units, rows, most rows and means of each fact, of which `guess:` keeps one digit. Each
question is asked of the plan and of releases; compared are medians over its groups, then over releases. Random stars
are those of the rehearsal, of seeds that nothing was developed on; real ones are asked for counts and sums by what
they and their dimensions name.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import yaml

from benchmarks.central.datasets import data_root
from benchmarks.figures import Figures, main
from benchmarks.firsthour.drafts import UNITS
from dpsql.api import init
from dpsql.catalog import Catalog, load_catalog
from dpsql.catalog.base import SQUARES_OF
from dpsql.curator.confirm import confirm_file, groups_of, open_marks
from dpsql.curator.draft import CuratorChoices
from dpsql.curator.forecast import plan_catalog
from dpsql.errors import Error
from dpsql.executor.engine import HALF
from dpsql.results.result import Result
from tests.rehearsal.generator import drawn_knobs, generate
from tests.rehearsal.published import QUIET, draft, published
from tests.rehearsal.questions import ask

REAL = ("foodmart", "chinook", "northwind", "online-retail")
FACTORS = ((2.0, 80.0), (1.5, 60.0))
"""Within this factor so many percent of the questions."""
RELEASES = 5
"""Of each star: one draw of the rows beyond a bound makes an interval a third or twice of the median."""
Ratio = tuple[str, float]
"""Kind of an answer, and what is foreseen over what is printed."""


def guessed(catalog: Catalog, data: Path, table: str) -> dict[str, Any]:
    """Units, rows, most rows and means of a table, as they are."""
    unit = catalog.star.tables[table].unit
    assert unit is not None
    joined, last = f'"{data}/{table}.parquet" AS t0', table
    for number, key in enumerate(unit.path):
        last = catalog.tables[last].foreign_keys[key].references
        joined += f' JOIN "{data}/{last}.parquet" AS t{number + 1} ON t{number}."{key}" = '
        joined += f't{number + 1}."{catalog.tables[last].key}"'
    column = f't{len(unit.path)}."{unit.column}"'
    with duckdb.connect() as database:
        owned = f"SELECT count(*) AS n FROM {joined} WHERE {column} IS NOT NULL GROUP BY {column}"
        counted = f"SELECT count(*), sum(n), max(n) FROM ({owned})"
        ((units, rows, most),) = database.execute(counted).fetchall()
        means = {}
        for name in (n for n in catalog.tables[table].summable if not n.startswith(SQUARES_OF)):
            written = catalog.tables[table].measures.get(name)
            value = f'"{name}"' if written is None else written.expr
            ((mean,),) = database.execute(f"SELECT avg({value}) FROM '{data}/{table}.parquet'").fetchall()
            means |= {name: float(mean)} if mean else {}
    return {"units": units, "rows": int(rows), "most_rows": most, "means": means}


def stated(file: Path, data: Path) -> None:
    """Write the guesses of all counted tables into a catalog."""
    catalog, text = load_catalog(file), yaml.safe_load(file.read_text())
    for table in catalog.star.tables:
        text["tables"][table]["guess"] = guessed(catalog, data, table)
    file.write_text(yaml.safe_dump(text, sort_keys=False))


def asked_of(catalog: Catalog) -> Iterator[str]:
    """Counts of each fact and sums of its measures, in all and by its own and its dimensions' categories."""
    for of in catalog.star.tables:
        table = catalog.tables[of]
        values = ["COUNT(*) AS n", *(f'SUM("{of}"."{name}") AS s' for name in table.summable[:2])]
        groups = [("", f'"{of}"."{name}"') for name, c in table.written.items() if c.type == "string"]
        for key, foreign in table.foreign_keys.items():
            there = catalog.tables[foreign.references]
            join = f' JOIN "{foreign.references}" ON "{of}"."{key}" = "{foreign.references}"."{there.key}"'
            groups += [
                (join, f'"{foreign.references}"."{name}"')
                for name, column in there.written.items() if column.type == "string"
            ][:2]  # fmt: skip
        for value in values:
            yield f'SELECT {value} FROM "{of}"'
            yield from (f'SELECT {group}, {value} FROM "{of}"{join} GROUP BY 1' for join, group in groups)


def printed(answers: Sequence[Result], name: str) -> float | None:
    """Half of the interval of a column, the median over groups, then over releases; None where nothing is noisy."""
    halves = []
    for answer in answers:
        place = answer.columns.index(name)
        ends = zip(answer.rows, *answer.interval_rows(), strict=True)
        own = [
            inf if low[place] is None or high[place] is None else float(high[place] - low[place]) / 2
            for row, low, high in ends if isinstance(row[place], int | float)
        ]  # fmt: skip
        halves += [float(np.median(own))] if own else []
    return float(np.median(halves)) if halves else None


def over_printed(file: Path, statements: Sequence[str], seeds: Sequence[int]) -> Iterator[Ratio]:
    """Every noisy column that the plan has a number for, or says to have no end; not those where both have none."""
    queries = plan_catalog(load_catalog(file), statements).queries
    with published(file, seeds) as releases:
        for query in queries:
            try:
                answers = [release.query(query.sql) for release in releases]
            except Error:
                continue
            for column in query.columns:
                shown = printed(answers, column.name) if column.name in answers[0].columns else None
                if shown and (column.median is not None or column.open_groups):
                    told = inf if column.median is None else HALF * column.median
                    kind = "counts" if column.counts else "averages" if column.ratio else "sums and others"
                    if min(told, shown) < inf:
                        yield kind, told / shown


def random_star(seed: int, folder: Path, questions: int) -> Iterator[Ratio]:
    """A star of the rehearsal whose people are units, drafted for its questions."""
    star = generate(seed, drawn_knobs(seed, "user"))
    (folder / "exact").mkdir()
    star.write(folder / "exact")
    with star.exact(folder / "exact") as database:
        statements = [question.sql for question in ask(star, database, seed, questions)]
    file = draft(star, folder, statements, QUIET)
    stated(file, folder / "data")
    yield from over_printed(file, statements, range(RELEASES * seed, RELEASES * (seed + 1)))


def real_star(name: str, folder: Path, max_ids: str) -> Iterator[Ratio]:
    """A star of the data folder with the first views of its draft; none of its tables is public."""
    data, file = data_root() / name, folder / "star.yaml"
    choices = CuratorChoices(UNITS[name], frozenset(), epsilon="1", cap="100", data_dependent=False)
    init(data, file, ask=lambda sketch: choices)
    confirm_file(file, dict.fromkeys(groups_of(open_marks(load_catalog(file))), True), "forecasts")
    file.write_text(file.read_text().replace("max_ids: auto", f"max_ids: {max_ids}"))
    stated(file, data)
    yield from over_printed(file, list(asked_of(load_catalog(file))), range(1, 1 + RELEASES))


def measure(
    figures: Figures, *, seed: int = 1, stars: int = 20, questions: int = 20, real: Sequence[str] = REAL
) -> None:
    """Compare on so many random stars from a seed on, each asked so many kinds of questions, and on real ones."""
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    asked = [("random", str(number)) for number in range(seed, seed + stars)]
    asked += [(name, bound) for name in real for bound in ("auto", "3")]
    for name, which in asked:
        with tempfile.TemporaryDirectory() as place:
            folder, is_random = Path(place), name == "random"
            found = (
                random_star(int(which), folder, questions) if is_random else real_star(name, folder, which)
            )
            told = list(found)
        print(f"told   {name} {which}: {[(kind, round(ratio, 2)) for kind, ratio in told]}", flush=True)
        for kind, ratio in told:
            ratios["random stars" if is_random else "real stars", kind].append(ratio)
    for (of, kind), values in sorted(ratios.items()):
        for factor, share in FACTORS:
            near = 100 * float(np.mean([1 / factor <= value <= factor for value in values]))
            title = f"plan within {factor:g} of printed, {kind} of {of}, % of {len(values)}"
            figures.at_least(title, near, share)


if __name__ == "__main__":
    main(measure)
