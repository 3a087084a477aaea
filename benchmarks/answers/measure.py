"""Random statements against DuckDB over the raw rows, on a release without noise: is anything wrong in silence?

A refusal is an answer too, as long as it is dpsql's own. Each statement that differs, or ends in another exception, is
printed.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.answers.clinic import made, plain, publish
from benchmarks.answers.statements import FORMS, Maker, Statement
from benchmarks.figures import Figures, main
from dpsql.errors import Error, InternalError
from dpsql.executor.engine import ReleaseEngine

SHOWN = 12


def same(exact: Any, value: Any, off: Any = None) -> bool:
    """Equal values, but for the bound of a cut leaf; SUM over no row is NULL in SQL and 0 here, AVG NULL in both."""
    if exact is None and isinstance(value, float):
        exact = 0.0
    if exact is None or value is None:
        return bool(off) or (exact in (None, 0) and value in (None, 0))
    if isinstance(exact, bool) or isinstance(value, str | bool):
        return bool(exact == value)
    if hasattr(exact, "isoformat"):
        return str(exact)[:10] == str(value)[:10]
    return math.isclose(float(exact), float(value), rel_tol=1e-7, abs_tol=1e-6 + (off or 0.0))


def _key(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_text(value) for value in values)


def _text(value: Any) -> str:
    """A group's name: 1 and 1.0 are one, and a day is its midnight."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return repr(value)
    return str(value)[:10] if hasattr(value, "isoformat") else f"{float(value):.6f}"


def difference(
    statement: Statement,
    got: list[tuple[Any, ...]],
    want: list[tuple[Any, ...]],
    off: list[tuple[Any, ...]],
    unlisted: bool = False,
) -> str:
    """What differs by more than `off` of each value; where unlisted texts may be meant, groups may be missing."""
    if statement.last:
        mine, theirs = (
            sorted((row[-1] for row in rows), key=lambda value: float(value or 0)) for rows in (got, want)
        )
        equal = len(mine) == len(theirs) and all(map(same, theirs, mine))
        return "" if equal else f"{mine} for {theirs}"
    if not statement.keys:
        equal = len(got) == len(want) and all(
            all(map(same, exact, values, bounds))
            for exact, values, bounds in zip(want, got, off, strict=True)
        )
        return "" if equal else f"{got[:2]} for {want[:2]}"
    keys = statement.keys
    mine = {_key(row[:keys]): row[keys:] for row in got}
    bounds = {_key(row[:keys]): each[keys:] for row, each in zip(got, off, strict=True)}
    theirs = {_key(row[:keys]): row[keys:] for row in want}
    if len(mine) < len(got) and len(theirs) == len(want):
        return "a group stands twice"
    for key, exact in theirs.items():
        if key not in mine and not unlisted:
            return f"no group {key}"
        if key in mine and not all(map(same, exact, mine[key], bounds[key])):
            return f"{key}: {mine[key]} for {exact}"
    for key, values in () if unlisted else mine.items():
        if key not in theirs and not all(_nothing(statement, value) for value in values):
            return f"a group without rows: {key}: {values}"
    return ""


def _reach(value: Any, bound: Any, low: Any, high: Any) -> Any:
    """How far a number's interval reaches; the bound of anything else."""
    if not isinstance(value, int | float | Decimal) or low is None or high is None:
        return math.inf if low is high and bound != 0 else bound  # the answer says why it has no interval
    return max(float(value) - float(low), float(high) - float(value), bound or 0.0)


def _nothing(statement: Statement, value: Any) -> bool:
    """What an empty group of the domain may show; a window shows the same for every row."""
    return value is None or abs(float(value)) < 1e-6 or statement.form in ("window", "derived")


def ask(statement: Statement, clinic: ReleaseEngine, raw: duckdb.DuckDBPyConnection) -> tuple[str, str]:
    """How a statement ends (`right`, `refused`, `wrong`, `crash`), and what is to be said of it."""
    try:
        answer = clinic.query(statement.text, dialect=statement.dialect)
        got, off = list(answer.rows), list(answer.model_bound)
        unlisted = any("unlisted values" in note for note in answer.notes)
        # how far conditions on them move a value is in its interval
        if unlisted or statement.form == "quantile":
            ends = zip(got, off, *answer.interval_rows(), strict=True)
            off = [tuple(map(_reach, *row)) for row in ends]
    except InternalError as error:
        return "crash", f"{type(error).__name__}: {error}"
    except Error as error:
        return "refused", f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - what must not happen is what is counted
        return "crash", f"{type(error).__name__}: {error}"
    try:
        want = raw.execute(statement.plain or statement.text).fetchall()
    except duckdb.Error as error:
        return "unanswered", str(error)
    groups = statement.chosen[0]
    if unlisted and groups:  # LIMIT takes groups by their numbers, without the rows that are perhaps meant
        keys = statement._replace(form="groups", text=groups, plain="", last=False, chosen=("", ""))
        end, found = ask(keys, clinic, raw)
        if end != "right":
            return end, found
        stays = {_key(row[: keys.keys]) for row in raw.execute("".join(statement.chosen)).fetchall()}
        listed = [row[keys.keys] for row in clinic.query(groups).rows if _key(row[: keys.keys]) in stays]
        listed.sort(key=lambda value: (value is None, -float(value or 0)))
        want = [(value,) for value in listed[: int(statement.text.split()[-1])]]
    found = difference(statement, got, want, off, unlisted)
    return ("wrong", found) if found else ("right", "")


def measure(
    figures: Figures, folder: Path, statements: int = 3000, seed: int = 7, *, verbose: bool = False
) -> None:
    """Ask so many random statements; `verbose` prints those that are refused, too."""
    ends, forms, rows = Counter[str](), Counter[str](), made(seed)
    clinic, raw, maker = publish(folder / "clinic", rows), plain(rows), Maker(seed)
    for _ in range(statements):
        statement = maker.statement()
        end, words = ask(statement, clinic, raw)
        ends[end] += 1
        forms[f"{statement.form} {end}"] += 1
        if (end in ("wrong", "crash", "unanswered") and ends[end] <= SHOWN) or (end == "refused" and verbose):
            print(f"{end}: [{statement.form}] {statement.dialect} {statement.text}\n    {words}", flush=True)
    print(", ".join(f"{count} {name}" for name, count in sorted(forms.items())))
    figures.table("forms of random statements", len(FORMS))
    figures.at_least(f"random statements answered, of {statements}", ends["right"], 0.8 * statements)
    figures.at_most("random statements wrong in silence", ends["wrong"] + ends["unanswered"], 0)
    figures.table("random statements that crash", ends["crash"])


if __name__ == "__main__":
    main(measure)
