"""Groups that drown in noise are hidden, with all that is known of them, and counted in a note."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpsql
from dpsql.errors import InterfaceError, ProgrammingError
from dpsql.results.render import suppressed
from dpsql.results.result import Grid, Result, hide
from tests.command import dpsql_command
from tests.interfaces.wire_client import Wire, serving, values

ROWS = (("a", 100.0, 5.0), ("b", 10.0, 1.0), ("c", -4.0, None), ("d", 0.0, 9.0), ("e", 3.0, 0.0))
ERRORS: Grid = ((None, 10.0, 1.0), (None, 10.0, 1.0), (None, 8.0, None), (None, 10.0, 9.0), (None, 0.0, 0.0))
BY_AGE = "SELECT age, COUNT(*) AS n FROM sales JOIN customer USING (customer_id) WHERE region = 'east' GROUP BY age"


def result(rows: tuple, errors: Grid) -> Result:
    names = tuple(f"c{i}" for i in range(len(rows[0])))
    return Result(names, ("DOUBLE",) * len(names), rows, {}, grid=lambda error, level, most: errors[:most])


def test_a_group_drowns_when_each_of_its_numbers_does() -> None:
    told = result(ROWS, ERRORS)
    assert suppressed(told, 1.0) == (False, True, True, True, False)
    assert suppressed(told, 2.0) == (False, False, True, False, False)
    assert suppressed(told, 0.1) == (True, True, True, True, False)


def test_totals_are_no_groups() -> None:
    assert suppressed(result(((1.0,),), ((9.0,),)), 0.5) == (False,)
    assert suppressed(result((("a", 1),), ((None, None),)), 0.5) == (False,)


def test_hidden_groups_leave_with_their_errors() -> None:
    told = hide(result(ROWS, ERRORS), 1.0)
    assert [row[0] for row in told.rows] == ["a", "e"]
    assert told.stderr_rows == (ERRORS[0], ERRORS[4]) and told.interval_rows()[0] == (ERRORS[0], ERRORS[4])
    assert "3 of 5 groups are hidden" in told.notes[-1] and told.flags == told.notes
    assert "3 of 5 groups are hidden" in str(told)
    whole = result(ROWS[:1], ERRORS[:1])
    assert hide(whole, 1.0) is whole


def test_notebooks_show_them_grey() -> None:
    assert result(ROWS, ERRORS)._repr_html_().count("<tr style='opacity:.5'>") == 3


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("inf"), float("nan")])
def test_other_numbers_are_refused(wrong: float) -> None:
    with pytest.raises(InterfaceError, match="above 0"):
        suppressed(result(ROWS, ERRORS), wrong)


def wanted(shop: Path, at_least: float) -> list[tuple]:
    """The rows that stay, worked out apart."""
    told = dpsql.query(BY_AGE, shop)
    pairs = zip(told.rows, told.stderr_rows, strict=True)
    return [row for row, errors in pairs if errors[1] < at_least * abs(row[1])]


def test_every_interface_hides_the_same(shop: Path) -> None:
    whole = dpsql.query(BY_AGE, shop)
    at_least = sorted(e[1] / abs(r[1]) for r, e in zip(whole.rows, whole.stderr_rows, strict=True))[20]
    kept = wanted(shop, at_least)
    assert 0 < len(kept) < len(whole.rows)
    assert list(dpsql.query(BY_AGE, shop, min_relative_error=at_least).rows) == kept
    connection = dpsql.connect(shop)
    connection.execute("SET dp_round = off")
    connection.execute(f"SET dp_min_relative_error = {at_least!r}")
    assert connection.execute(BY_AGE).fetchall() == kept
    connection.execute("RESET dp_min_relative_error")
    assert connection.execute(BY_AGE).fetchall() == list(whole.rows)
    with pytest.raises(ProgrammingError, match="a number above 0"):
        connection.execute("SET dp_min_relative_error = 0")
    done = dpsql_command(
        "query", str(shop), BY_AGE, "--format", "csv", "--min-relative-error", repr(at_least)
    )
    assert len(done.stdout.splitlines()) == 1 + len(kept) and "groups are hidden" in done.stderr
    with serving(shop) as port:
        client = Wire(port)
        client.until_ready()
        client.ask(f"SET dp_min_relative_error = {at_least!r}")
        sent = client.ask(BY_AGE)
        assert [float(values(body)[1] or 0) for kind, body in sent if kind == "D"] == [
            round(row[1]) for row in kept
        ]
        assert any(kind == "N" and b"groups are hidden" in body for kind, body in sent)
        shown = client.ask("SHOW dp_min_relative_error")
        assert values(next(body for kind, body in shown if kind == "D"))[0] == f"{at_least:g}".encode()
