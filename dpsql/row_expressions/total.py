"""Expressions of one row that no value can make fail, and that mean the same in every engine.

DuckDB reads any checked expression inside TRY; servers have no TRY, and a cast that fails on one row would stop a
publish and tell of that row. So a server takes total expressions alone: each node below has a value, or NULL, for all
values of its operands' types, and is written from one form with few words of an engine (`Words`).

| node | value |
|---|---|
| `+ - *` and `-x` of whole numbers and decimals | exact; NULL beyond the type that DuckDB gives it |
| `// %` by a whole number above 0 | towards 0 |
| `= <> < <= > >=`, IN, BETWEEN, LIKE, IS NULL, AND, OR, NOT | of one family of types; texts by bytes; NaN above all |
| CASE, COALESCE, NULLIF, GREATEST, LEAST, ABS, FLOOR, CEIL, ROUND | of one family |
| parts of dates and times, days between dates | proleptic Gregorian, UTC; of infinite ones as in DuckDB |
| LENGTH, LEFT, SUBSTRING, `starts_with`, `contains`, `||` of texts | by code points |
| casts | that hold every value: to wider numbers, of whole numbers to text, of times to dates |

Everything else is refused by name: quotients and arithmetic of floats, LOWER and UPPER (engines fold letters by other
tables), TRIM (which blanks?), regular expressions, casts of texts.

The type of a node is DuckDB's own, asked of an empty row; so numbers overflow at the same values everywhere.

**Privacy**: a total function of one row. Types come from schemas and catalogs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import TypeAlias

from sqlglot import exp

from dpsql.row_expressions.expression import Node, check_row, parse_one
from dpsql.row_expressions.typed import (
    BITS,
    FLOAT_DIGITS,
    INSTANTS,
    MOST_DIGITS,
    Arithmetic,
    Columns,
    TotalExpression,
    Words,
    days_of,
    digits,
    duck_type,
    family,
    refused,
    typed,
)


def total_expression(text: str, columns: Mapping[str, str]) -> TotalExpression:
    """Check that an expression is total.

    Args:
        text: as the curator writes it.
        columns: column in lower case -> type in DuckDB's words.

    Raises:
        CatalogError: it is no pure expression of one row, or not total; names the part.

    >>> total_expression("price * 2", {"price": "DECIMAL(9,2)"}).sql_type
    'DECIMAL(18,2)'
    """
    tree = parse_one(text)
    check_row(tree)
    return total(tree, columns)


Builder: TypeAlias = "Callable[[Node, Mapping[str, str]], TotalExpression]"


def _written(sql_type: str | Node, form: str, *parts: TotalExpression) -> TotalExpression:
    """An expression that all engines write in one form.

    Args:
        sql_type: its type; a node where DuckDB shall say it.
        form: of the expression, with `{}` for each part.
        parts: its parts.

    Raises:
        CatalogError: it has no type that engines share.
    """

    def write(words: Words, sql: Columns) -> str:
        return form.format(*(part.write(words, sql) for part in parts))

    text = form.format(*(part.duck for part in parts))
    return (
        TotalExpression(sql_type, write, text) if isinstance(sql_type, str) else typed(sql_type, text, write)
    )


def total(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    """The same of a tree that `check_row` accepts; a column's table is ignored.

    Raises:
        CatalogError: it is not total; names the part.
    """
    build = NODES.get(type(node).__name__)
    if build is None:
        raise refused(node)
    if node.args.get("negate"):  # the parser writes NOT LIKE so
        bare = node.copy()
        bare.set("negate", None)
        return total(exp.Not(this=exp.Paren(this=bare)), columns)
    return build(node, columns)


def _column(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    name = node.name.lower()
    sql_type = columns.get(name, "")
    if not family(sql_type):
        raise refused(
            node,
            f"a column of type {sql_type.partition('(')[0]}"
            if sql_type
            else "no column of that name is typed",
        )
    return TotalExpression(sql_type, lambda words, sql: sql[name], f"CAST(NULL AS {sql_type})")


def _literal(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    value = str(node.name)
    if node.args.get("is_string"):
        if "\0" in value:
            raise refused(node, "a text with NUL")
        quoted = "'" + value.replace("'", "''") + "'"
        return TotalExpression("VARCHAR", lambda words, sql: words.literal(value), quoted)
    if not re.fullmatch(r"\d+(\.\d+)?", value):
        raise refused(node, "write a number by its digits")
    return typed(node, value, lambda words, sql: value)


def _truth(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    word = "TRUE" if node.this else "FALSE"
    return TotalExpression("BOOLEAN", lambda words, sql: word, word)


def _same(node: Node, parts: Sequence[Node], columns: Mapping[str, str]) -> list[TotalExpression]:
    """Operands that are compared or chosen from: all of one family. A text beside dates or times is one of them.

    Raises:
        CatalogError: they are not; or a common type of decimals would not hold every value.
    """
    built = [None if isinstance(part, exp.Null) else total(part, columns) for part in parts]
    typed = [part for part in built if part is not None]
    if not typed:
        raise refused(node, "NULL alone has no type")
    literals = [_is_literal(part) for part in parts]
    lead = next(
        (b for b, plain in zip(built, literals, strict=True) if b is not None and not plain), typed[0]
    )
    for i, (part, expression) in enumerate(zip(parts, built, strict=True)):
        if expression is None:
            built[i] = TotalExpression(lead.sql_type, lambda words, sql: "NULL", "NULL")
        elif literals[i] and family(expression.sql_type) != family(lead.sql_type):
            built[i] = _read_literal(node, part, lead.sql_type)
    complete = [part for part in built if part is not None]
    families = {family(part.sql_type) for part in complete}
    if len(families) > 1:
        raise refused(
            node,
            f"{' and '.join(sorted(families))} are read differently; cast neither, compare like with like",
        )
    if families == {"time"} and len({part.sql_type for part in complete}) > 1:
        raise refused(node, "times with and without a zone")
    if families == {"number"}:
        whole, places = (
            max(column) for column in zip(*(digits(part.sql_type) for part in complete), strict=True)
        )
        if whole + places > MOST_DIGITS:
            raise refused(node, f"it needs more than {MOST_DIGITS} digits")
    return complete


def _is_literal(node: Node) -> bool:
    inner = node.this if isinstance(node, (exp.Neg, exp.Paren, exp.Cast)) else node
    return isinstance(inner, exp.Literal) or (
        isinstance(inner, exp.Neg) and isinstance(inner.this, exp.Literal)
    )


def _read_literal(node: Node, part: Node, sql_type: str) -> TotalExpression:
    """A literal as a value of another operand's type.

    Raises:
        CatalogError: engines could read it differently.
    """
    text = part.sql("duckdb") if not isinstance(part, exp.Cast) else str(part.this.name)
    number = text.replace("(", "").replace(")", "").replace(" ", "")
    if sql_type == "DOUBLE" and re.fullmatch(r"-?\d+(\.\d+)?", number):
        if len(number.strip("-").replace(".", "").lstrip("0")) > FLOAT_DIGITS:
            raise refused(part, f"a float is compared with at most {FLOAT_DIGITS} digits")
        duck = f"CAST({number} AS DOUBLE)"
        return TotalExpression(sql_type, lambda words, sql: f"CAST('{number}' AS {words.double})", duck)
    inner = part.this if isinstance(part, exp.Cast) else part
    if isinstance(inner, exp.Literal) and inner.args.get("is_string") and sql_type in ("DATE", *INSTANTS):
        return _moment(part, str(inner.name), sql_type)
    raise refused(node, "its types do not fit")


def _moment(node: Node, text: str, sql_type: str) -> TotalExpression:
    """A date or an instant of a literal, years 1 to 9999, UTC."""
    try:
        if sql_type == "DATE":
            days = (date.fromisoformat(text) - date(1970, 1, 1)).days
            return TotalExpression(sql_type, lambda words, sql: words.date(days), f"DATE '{text}'")
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise refused(node, "write dates as 2025-01-31, times as 2025-01-31 08:30:00") from None
    if moment.tzinfo is not None:
        raise refused(node, "write a time without a zone: it is UTC")
    micros = int((moment - datetime(1970, 1, 1)).total_seconds()) * 10**6 + moment.microsecond
    duck = f"CAST('{moment.isoformat(sep=' ')}' AS {sql_type})"
    return TotalExpression(sql_type, lambda words, sql: words.instant(micros, sql_type), duck)


def _comparison(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    sign = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}[type(node).__name__]
    left, right = _same(node, (node.this, node.expression), columns)
    if isinstance(node.this, exp.Null) or isinstance(node.expression, exp.Null):
        raise refused(node, "write IS NULL")
    return _written(node, f"({{}} {sign} {{}})", left, right)


def _between(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    low = exp.GTE(this=node.this, expression=node.args["low"])
    high = exp.LTE(this=node.this.copy(), expression=node.args["high"])
    return _connected(exp.And(this=low, expression=high), columns)


def _in(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    if not node.expressions or not all(_is_literal(member) for member in node.expressions):
        raise refused(node, "IN takes a list of literals")
    value, *members = _same(node, (node.this, *node.expressions), columns)
    if value.sql_type == "DOUBLE":
        raise refused(node, "engines look floats up by their bits; compare by <= and >=")
    return _written(node, f"({{}} IN ({', '.join('{}' for _ in members)}))", value, *members)


def _connected(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    word = type(node).__name__.upper()
    left, right = _condition(node.this, columns), _condition(node.expression, columns)
    return _written("BOOLEAN", f"({{}} {word} {{}})", left, right)


def _condition(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    condition = total(node, columns)
    if condition.sql_type != "BOOLEAN":
        raise refused(node, "a condition is true or false")
    return condition


def _is(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    if not isinstance(node.expression, exp.Null):
        raise refused(node, "only IS NULL and IS NOT NULL are")
    return _written("BOOLEAN", "({} IS NULL)", total(node.this, columns))


def _like(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    value, pattern = _of(node, node.this, columns, "text"), node.expression
    if not isinstance(pattern, exp.Literal) or "\\" in pattern.name or "\0" in pattern.name:
        raise refused(node, "a pattern is a literal without \\")
    shape = _literal(exp.Literal.string(pattern.name), columns)
    return _written("BOOLEAN", "({} LIKE {})", value, shape)


def _of(node: Node, part: Node, columns: Mapping[str, str], *families: str) -> TotalExpression:
    """An operand of some families of types."""
    operand = total(part, columns)
    if family(operand.sql_type) not in families:
        raise refused(node, f"it takes a {' or a '.join(families)}")
    return operand


def _case(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    branches = list(node.args["ifs"]) if isinstance(node, exp.Case) else [node]
    otherwise = node.args.get("default") if isinstance(node, exp.Case) else node.args.get("false")
    tests = []
    for branch in branches:
        test = branch.this
        if isinstance(node, exp.Case) and node.this is not None:
            test = exp.EQ(this=node.this.copy(), expression=branch.this.copy())
        tests.append(_condition(test, columns))
    values = _same(node, [*(b.args["true"] for b in branches), otherwise or exp.Null()], columns)
    pairs = [part for pair in zip(tests, values[:-1], strict=True) for part in pair]
    return _written(node, f"(CASE {'WHEN {} THEN {} ' * len(tests)}ELSE {{}} END)", *pairs, values[-1])


def _called(word: str, *families: str) -> Builder:
    """A function of several operands of one family."""

    def build(node: Node, columns: Mapping[str, str]) -> TotalExpression:
        second = [node.expression] if isinstance(node, exp.Nullif) else node.expressions
        operands = _same(node, (node.this, *second), columns)
        if families and family(operands[0].sql_type) not in families:
            raise refused(node, f"it takes {' or '.join(families)}s")
        return _written(node, f"{word}({', '.join('{}' for _ in operands)})", *operands)

    return build


def _arithmetic(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    sign = {"Add": "+", "Sub": "-", "Mul": "*"}[type(node).__name__]
    if isinstance(node, exp.Sub):
        left, right = total(node.this, columns), total(node.expression, columns)
        if left.sql_type == right.sql_type == "DATE":
            return _days_between(node, left, right)
    left, right = (_of(node, part, columns, "number") for part in (node.this, node.expression))
    return _exact(node, left, sign, right)


def _exact(node: Node, left: TotalExpression, sign: str, right: TotalExpression) -> TotalExpression:
    """A sum, difference or product: exact, and NULL beyond its type."""
    duck = f"({left.duck} {sign} {right.duck})"
    sql_type = duck_type(duck)
    if family(sql_type) != "number":
        raise refused(node, "its type has no bound")
    whole, places = digits(sql_type)
    for operand in (left, right) if sign != "*" else ():
        if digits(operand.sql_type)[0] > whole and sql_type not in BITS:
            raise refused(node, f"{sql_type} cannot hold its operands; cast one to more digits")
    # Spark gives a product one digit more than both factors have, and cuts places where that is above 38
    product = sum(map(sum, (digits(left.sql_type), digits(right.sql_type)))) + 1
    if sql_type not in BITS and (product if sign == "*" else whole + places + 1) > MOST_DIGITS:
        raise refused(node, f"it needs more than {MOST_DIGITS} digits")
    kinds = left.sql_type, right.sql_type
    return TotalExpression(
        sql_type,
        lambda words, sql: words.exact(
            Arithmetic(left.write(words, sql), sign, right.write(words, sql), kinds, sql_type)
        ),
        duck,
    )


def _negative(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    if isinstance(node.this, exp.Literal):
        number = _literal(node.this, columns)
        if number.sql_type == "VARCHAR":
            raise refused(node)
        return _written(node, "(-{})", number)
    operand = _of(node, node.this, columns, "number")
    zero = TotalExpression(operand.sql_type, lambda words, sql: "0", f"CAST(0 AS {operand.sql_type})")
    whole = operand.sql_type in BITS
    return _exact(node, zero, "-", operand) if whole else _written(operand.sql_type, "(-{})", operand)


def _abs(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    operand, negative = _of(node, node.this, columns, "number"), _negative(exp.Neg(this=node.this), columns)

    def write(words: Words, sql: Columns) -> str:
        value = operand.write(words, sql)
        return f"(CASE WHEN {value} < 0 THEN {negative.write(words, sql)} ELSE {value} END)"

    return typed(node, f"abs({operand.duck})", write)


def _divided(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    """The quotient or what is left, of whole numbers by one above 0."""
    value, divisor = _of(node, node.this, columns, "number"), node.expression
    if value.sql_type not in BITS or not isinstance(divisor, exp.Literal) or not divisor.name.isdecimal():
        raise refused(node, "whole numbers are divided by a whole number")
    by = str(int(divisor.name))
    if by == "0" or duck_type(by) not in BITS:
        raise refused(node, "the divisor is above 0 and below 2^63")
    mod = isinstance(node, exp.Mod)

    def write(words: Words, sql: Columns) -> str:
        dividend = f"CAST({value.write(words, sql)} AS BIGINT)"
        return f"({words.remainder(dividend, by) if mod else words.quotient(dividend, by)})"

    return typed(node, f"({value.duck} {'%' if mod else '//'} {by})", write)


def _rounded(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    word = type(node).__name__.lower()
    value, to = _of(node, node.this, columns, "number"), node.args.get("decimals")
    if to is not None and (word != "round" or not isinstance(to, exp.Literal) or not to.name.isdecimal()):
        raise refused(node, "the number of places is a literal")
    if value.sql_type in BITS:
        return value  # `round(x, -2)` is no literal
    places = "" if to is None else f", {int(to.name)}"
    return _written(node, f"{word}({{}}{places})", value)


def _cast(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    target = duck_type(f"CAST(NULL AS {node.args['to'].sql('duckdb')})")
    if (
        isinstance(node.this, exp.Literal)
        and node.this.args.get("is_string")
        and family(target) in ("date", "time")
    ):
        return _moment(node, str(node.this.name), target)
    value = total(node.this, columns)
    cast = f"CAST({{}} AS {target})"
    if value.sql_type == target:
        return value
    if family(value.sql_type) == family(target) == "number":
        (whole, places), (new_whole, new_places) = digits(value.sql_type), digits(target)
        if isinstance(node.this, exp.Literal):
            whole, places = (len(part) for part in (str(node.this.name) + ".").split(".")[:2])
        wider = (
            BITS[target] >= BITS[value.sql_type]
            if {target, value.sql_type} <= BITS.keys()
            else (new_whole >= whole and new_places >= places and target not in BITS)
        )
        if not wider:
            raise refused(node, f"not every {value.sql_type} is a {target}")
        return _written(target, cast, value)
    if value.sql_type in BITS and target == "VARCHAR":
        duck = cast.format(value.duck)
        return TotalExpression(target, lambda words, sql: words.text(value.write(words, sql)), duck)
    if value.sql_type in INSTANTS and target == "DATE":
        return _written(target, cast, value)
    raise refused(
        node, f"a {value.sql_type.partition('(')[0]} is read as {target or 'that'} by rules of each engine"
    )


def _part_of(part: str) -> Builder:
    """A part of a date or a time."""

    def build(node: Node, columns: Mapping[str, str]) -> TotalExpression:
        source = node.expression if isinstance(node, exp.Extract) else node.this
        return _part(node, part, _of(node, source, columns, "date", "time"))

    return build


def _part(node: Node, part: str, value: TotalExpression) -> TotalExpression:
    if value.sql_type == "DATE" and part in ("HOUR", "MINUTE", "SECOND"):
        raise refused(node, "a date has no time")

    def write(words: Words, sql: Columns) -> str:
        text = value.write(words, sql)
        if part in ("ISODOW", "DOW"):  # 1970-01-01 was a Thursday
            day = text if value.sql_type == "DATE" else f"CAST({text} AS DATE)"
            shifted = words.remainder(f"{words.days(day)} + 3", "7")
            monday = words.remainder(f"{shifted} + 7", "7")
            number = f"{monday} + 1" if part == "ISODOW" else words.remainder(f"{monday} + 1", "7")
            return f"(CASE WHEN {words.year(text)} IS NOT NULL THEN {number} END)"  # infinite ones have none
        if part == "YEAR":
            return f"CAST({words.year(text)} AS BIGINT)"
        return f"CAST(floor(EXTRACT({part} FROM {text})) AS BIGINT)"

    return TotalExpression("BIGINT", write, "CAST(NULL AS BIGINT)")


PARTS = {
    "YEAR": "YEAR", "MONTH": "MONTH", "QUARTER": "QUARTER", "DAY": "DAY", "HOUR": "HOUR", "MINUTE": "MINUTE",
    "SECOND": "SECOND", "ISODOW": "ISODOW", "DOW": "DOW", "DAYOFWEEK": "DOW", "WEEKDAY": "DOW",
}  # fmt: skip


def _extract(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    part = PARTS.get(node.this.name.upper())
    if part is None:
        raise refused(node)
    return _part_of(part)(node, columns)


def _days_between(node: Node, left: TotalExpression, right: TotalExpression) -> TotalExpression:
    first, last = days_of(right), days_of(left)
    return typed(
        node,
        f"({left.duck} - {right.duck})",
        lambda words, sql: f"({last(words, sql)} - {first(words, sql)})",
    )


def _whole(node: Node, part: object, least: int) -> int:
    if isinstance(part, exp.Literal) and part.name.isdecimal() and least <= int(part.name) < 1 << 31:
        return int(part.name)
    raise refused(node, f"its numbers are literals from {least} on")


def _substring(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    value = _of(node, node.this, columns, "text")
    if isinstance(node, exp.Left):
        start, length = 1, _whole(node, node.expression, 0)
    else:
        start, length = _whole(node, node.args.get("start"), 1), _whole(node, node.args.get("length"), 0)
    return _written("VARCHAR", f"substring({{}}, {start}, {length})", value)


def _held(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    """True if a text begins with a literal, or contains it."""
    value, piece = _of(node, node.this, columns, "text"), node.expression
    if not isinstance(piece, exp.Literal) or not piece.args.get("is_string") or not piece.name:
        raise refused(node, "it looks for a literal")
    literal = _literal(piece, columns)

    def write(words: Words, sql: Columns) -> str:
        text, quoted = value.write(words, sql), literal.write(words, sql)
        if isinstance(node, exp.Contains):
            return f"(position({quoted} IN {text}) > 0)"
        return f"(substring({text}, 1, {len(piece.name)}) = {quoted})"

    return TotalExpression("BOOLEAN", write, f"({value.duck} = 'x')")


def _joined(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    left, right = (_of(node, part, columns, "text") for part in (node.this, node.expression))
    return _written("VARCHAR", "({} || {})", left, right)


def _nan(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    value = _of(node, node.this, columns, "float")

    def write(words: Words, sql: Columns) -> str:
        text = value.write(words, sql)
        return f"(CASE WHEN {text} IS NOT NULL THEN {words.is_nan(text)} END)"

    return TotalExpression("BOOLEAN", write, f"isnan({value.duck})")


def _named(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    """Functions for which the parser has no type."""
    name, arguments = str(node.this).lower(), node.expressions
    if name in ("date_part", "datepart") and len(arguments) == 2 and isinstance(arguments[0], exp.Literal):
        part, value = PARTS.get(arguments[0].name.upper()), arguments[1]
    else:
        part, value = (PARTS.get(name.upper()), arguments[0]) if len(arguments) == 1 else (None, node)
    if part is None:
        raise refused(node)
    return _part(node, part, _of(node, value, columns, "date", "time"))


def _day_difference(node: Node, columns: Mapping[str, str]) -> TotalExpression:
    if str(node.args.get("unit") or "").upper() != "DAY":
        raise refused(node, "only days between dates are")
    last, first = (_of(node, part, columns, "date") for part in (node.this, node.expression))
    return _days_between(node, last, first)


NODES: dict[str, Builder] = {
    "Column": _column, "Literal": _literal, "Boolean": _truth, "Neg": _negative, "Cast": _cast,
    "Paren": lambda node, columns: total(node.this, columns),
    **dict.fromkeys(("EQ", "NEQ", "LT", "LTE", "GT", "GTE"), _comparison),
    **dict.fromkeys(("And", "Or"), _connected), "Is": _is, "In": _in, "Between": _between, "Like": _like,
    "Case": _case, "If": _case, "Coalesce": _called("coalesce"), "Nullif": _called("nullif"),
    "Greatest": _called("greatest", "number"), "Least": _called("least", "number"),
    **dict.fromkeys(("Add", "Sub", "Mul"), _arithmetic), "IntDiv": _divided, "Mod": _divided, "Abs": _abs,
    **dict.fromkeys(("Floor", "Ceil", "Round"), _rounded),
    "Year": _part_of("YEAR"), "Month": _part_of("MONTH"), "Quarter": _part_of("QUARTER"), "Day": _part_of("DAY"),
    "DayOfMonth": _part_of("DAY"), "Hour": _part_of("HOUR"), "Minute": _part_of("MINUTE"),
    "Second": _part_of("SECOND"), "DayOfWeek": _part_of("DOW"), "DayOfWeekIso": _part_of("ISODOW"),
    "Extract": _extract, "DateDiff": _day_difference, "Anonymous": _named,
    "Not": lambda node, columns: _written("BOOLEAN", "(NOT {})", _condition(node.this, columns)),
    "Length": lambda node, columns: _written(
        "BIGINT", "CAST(length({}) AS BIGINT)", _of(node, node.this, columns, "text")
    ),
    "Left": _substring, "Substring": _substring, "StartsWith": _held, "Contains": _held,
    "DPipe": _joined, "IsNan": _nan,
}  # fmt: skip
"""What is total, by the parser's node types."""
