"""What BI tools send, against PostgreSQL over the raw star: is it answered, and rightly?

Statements are those of each tool's documented templates (`statements/`), in PostgreSQL's dialect. An answer is
correct if it has PostgreSQL's columns by name, every row that PostgreSQL has with its values, and no further rows but
groups of the domain without rows. Where a statement cuts a bin, a value may differ by its model bound, which the
answer states. Refusals count apart; each must say what to write instead.
"""

from __future__ import annotations

import datetime
import math
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.bi.star import fill, made, publish, statements
from benchmarks.figures import Figures, main
from dpsql.errors import Error, InternalError
from dpsql.executor.engine import ReleaseEngine
from dpsql.results.result import Result
from tests.engines.servers import postgres_programs, running_postgres

if TYPE_CHECKING:
    import psycopg

SEED = 11
NUMBERS = (int, float, Decimal)
STATEMENTS = Path(__file__).with_name("statements")


class Verdict(NamedTuple):
    """How a statement ended: `correct`, `refused` or `wrong`, with what there is to say of it."""

    end: str
    reason: str = ""
    hint: str = ""


def plain(value: Any) -> Any:
    """A value as both sides write it: numbers as floats, days at midnight, no zone."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, NUMBERS):
        return float(value)
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, datetime.date):
        return datetime.datetime.combine(value, datetime.time())
    return value


def same(exact: Any, value: Any, bound: float) -> bool:
    """Equal values; SUM over no row is NULL in SQL and 0 here."""
    if exact is None or value is None:
        return exact in (None, 0.0) and value in (None, 0.0)
    if isinstance(exact, float) and isinstance(value, float):
        return math.isclose(exact, value, rel_tol=1e-7, abs_tol=max(1e-6, 1.000001 * bound))
    return bool(exact == value)


def bounds_of(result: Result) -> list[list[float]]:
    """How far each value may be off because a bin is cut; 0 where nothing is, or where no bound is known."""
    return [
        [float(value) if isinstance(value, NUMBERS) and not math.isnan(value) else 0.0 for value in row]
        for row in result.model_bound
    ]


def difference(want: list[tuple[Any, ...]], got: list[tuple[Any, ...]], bounds: list[list[float]]) -> str:
    """What differs; empty where nothing does. Rows are matched by their values that are no numbers or are equal."""
    rest = list(range(len(got)))
    for row in want:
        match = next((i for i in rest if all(map(same, row, got[i], bounds[i]))), None)
        if match is None:
            return f"no row {row[:6]}; rows are {got[:2]}"
        rest.remove(match)
    filled = [i for i, values in enumerate(zip(*want, strict=True)) if not any(map(empty, values))]
    extra = [got[i] for i in rest if not any(empty(got[i][column]) for column in filled)]
    return f"a row too many: {extra[0]}" if extra else ""


def empty(value: Any) -> bool:
    """Whether a value is what an empty group shows."""
    return value is None or (isinstance(value, float) and value == 0)


def judge(text: str, release: ReleaseEngine, database: psycopg.Connection[Any]) -> Verdict:
    """Ask both sides and compare."""
    cursor = database.execute(text)
    names = [column.name for column in cursor.description or ()]
    want = [tuple(map(plain, row)) for row in cursor.fetchall()]
    try:
        result = release.query(text, dialect="postgres")
        got = [tuple(map(plain, row)) for row in result.rows]
    except InternalError as error:
        return Verdict("wrong", f"{type(error).__name__}: {error}")
    except Error as error:
        return Verdict("refused", f"{type(error).__name__}: {error}", error.hint)
    if list(result.columns) != names:
        return Verdict("wrong", f"columns {list(result.columns)} for {names}")
    reason = difference(want, got, bounds_of(result))
    return Verdict("wrong", reason) if reason else Verdict("correct")


def measure(figures: Figures, folder: Path, *, verbose: bool = False) -> None:
    """Ask all statements; `verbose` prints those that are not answered rightly."""
    import psycopg  # an extra: the judge's tests run without

    programs = postgres_programs()
    if programs is None:
        sys.exit("bench-bi needs PostgreSQL's server programs (Debian: apt-get install postgresql)")
    ends, tools, hints = Counter[str](), set[str](), 0
    today = datetime.datetime.now(datetime.UTC).date()
    rows = made(SEED, today)
    with running_postgres(programs) as server:
        release = publish(folder / "lodging", rows, today)
        with psycopg.connect(server.dsn, autocommit=True, options="-c TimeZone=UTC") as database:
            fill(database, rows)
            for tool, heading, text in statements(STATEMENTS, today):
                verdict = judge(text, release, database)
                tools.add(tool)
                ends[verdict.end] += 1
                hints += verdict.end == "refused" and verdict.hint != ""
                if verdict.end != "correct":
                    print(f"{verdict.end}: {tool}: {heading}\n    {verdict.reason}", flush=True)
                    if verbose:
                        print("   ", " ".join(text.split()))
    asked = sum(ends.values())
    figures.table("bi-tools", len(tools))
    figures.at_least(f"bi-correct, of {asked} statements", ends["correct"], math.ceil(112 / 120 * asked))
    figures.at_most("bi-wrong", ends["wrong"], 0)
    figures.table("bi-refusals-with-a-way-out", hints)


if __name__ == "__main__":
    main(measure)
