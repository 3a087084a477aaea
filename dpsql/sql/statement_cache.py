"""Statements that differ in constants alone are read once; later ones fill their own constants in.

Dashboards ask the same few statements with ever new bounds. What a statement is taken apart into depends on its
constants by their text alone where they are compared with something in WHERE, and there they can be exchanged.

| a constant may change | |
|---|---|
| where it stands | beside a comparison under AND, OR and NOT of WHERE; it ends in conditions of blocks |
| as what | it stays of its kind: digits, decimal number, day, instant or text |
| not | where a condition of the catalog's own holds it: an equal part of a statement becomes its column |

Everything else is part of the shape, character by character: other constants, names, blanks, the dialect. A statement
with comments, other quotes or anything else that a regular expression might misread has no shape and is always read.

Trust is earned: each constant was seen to change once, in a statement that was read and came out as it was filled.
What a shape cannot answer, an error and its place in the text, is asked of the statement itself: callers read it.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property, partial
from typing import NamedTuple

from sqlglot import exp

from dpsql.errors import SqlSyntaxError
from dpsql.planner.block import ShapePlans
from dpsql.planner.schema import (
    Always,
    Bound,
    Comparison,
    Condition,
    Every,
    Expression,
    Predicate,
    Schema,
    every,
    predicates,
    some,
)
from dpsql.row_expressions.expression import MAX_BYTES, Node, check_text, parse_one
from dpsql.sql.parse import parse
from dpsql.sql.rewrite import split_statement
from dpsql.sql.statement import Statement

KEPT = 256
"""Shapes of one release that are kept, the least asked forgotten first."""
MOST_CONSTANTS = 1000
FAR = date(9000, 1, 1)
"""The first of the days that mark a place; nobody asks about them."""


class ConstantKind(NamedTuple):
    """A kind of constant.

    Args:
        mark: a constant of this kind for each place: what a text is searched for afterwards.
        value: what a comparison holds of a constant; None where it holds none.
    """

    mark: Callable[[int], str]
    value: Callable[[str], Bound | None]


KINDS = {
    "day": ConstantKind(lambda place: (FAR + timedelta(place)).isoformat(), date.fromisoformat),
    "instant": ConstantKind(lambda place: str(datetime(9000, 1, 1) + timedelta(0, place)), lambda text: None),
    "text": ConstantKind(lambda place: f"dp mark {place} of many", lambda text: None),
    "decimal": ConstantKind(lambda place: f"909090909.{place:05}9", Decimal),
    "whole": ConstantKind(lambda place: f"9090909{place:05}9", int),
}
"""By the groups of `PIECE`."""

PIECE = re.compile(
    r"""(?<![\w'"])'(?:(?P<day>\d{4}-\d\d-\d\d)|(?P<instant>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"""
    r"""|(?P<text>[^'\\\x00-\x1f]{0,200}))'(?![\w'"])"""
    r"""|(?<![\w.])(?:(?P<decimal>\d{1,9}\.\d{1,9})|(?P<whole>\d{1,18}))(?![\w.])"""
    r"""|(?:[^\W\d]\w*+|"[^"]*"|[\s,()*<>=+;%!|/:.-])++""",
    re.ASCII,
)


class Constant(NamedTuple):
    """A constant of a statement.

    Args:
        kind: of `KINDS`.
        start: its first character in the text, its quote if it has one.
        text: without quotes.
    """

    kind: str
    start: int
    text: str


class StatementShape(NamedTuple):
    """A statement without its constants, each of which has left its kind, and the constants in their order."""

    words: str
    constants: tuple[Constant, ...]


def shape_of(text: str) -> StatementShape | None:
    """The shape of a statement; None where only a parser can tell what is a constant.

    >>> shape_of("SELECT 1 FROM t WHERE a = 'x'").constants[1]
    Constant(kind='text', start=26, text='x')
    >>> shape_of("SELECT 1 -- 2") is None
    True
    """
    if len(text) > MAX_BYTES or "--" in text or "/*" in text or not _is_plain(text):
        return None
    pieces, constants, end = list[str](), list[Constant](), 0
    for piece in PIECE.finditer(text):
        if piece.start() != end:
            return None
        end, kind = piece.end(), piece.lastgroup
        if kind is None:
            pieces.append(piece.group())
            continue
        try:
            KINDS[kind].value(piece.group(kind))
        except ValueError:  # the 30th of February is no day
            return None
        pieces.append(f"\x00{kind}\x00")
        constants.append(Constant(kind, piece.start(), piece.group(kind)))
    complete = end == len(text) and len(constants) <= MOST_CONSTANTS
    return StatementShape("".join(pieces), tuple(constants)) if complete else None


def _is_plain(text: str) -> bool:
    """True if the guard passes it: of the guard's limits only those on characters are not the shape's own."""
    try:
        return text.isascii() or bool(check_text(text))
    except SqlSyntaxError:
        return False


ConstantPosition = tuple[int, int]
"""Origin of a comparison's constant: its index in the statement, and its sign."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """A predicate's expression with places for constants.

    Args:
        read: as it was read.
        exchanged: it over other texts of its constants, by where they stood, read anew.
        pieces: of its SQL, text and numbers of constants in turns.
        places: of the constants of its comparisons.
        starts: where each of its constants stood in the text, by number.
    """

    read: Expression
    exchanged: Callable[[Mapping[int, str]], Expression]
    pieces: tuple[str, ...]
    places: tuple[ConstantPosition, ...]
    starts: Mapping[int, int]

    def filled(self, constants: Sequence[Constant]) -> Expression:
        """The expression over other constants, of the same kinds; where it stands in the text is not known."""
        sql = [piece if i % 2 == 0 else constants[int(piece)].text for i, piece in enumerate(self.pieces)]
        compared = zip(self.read.comparisons, self.places, strict=True)
        comparisons = tuple(
            _compared(comparison, sign, constants[number]) for comparison, (number, sign) in compared
        )
        words = partial(_words, self, constants)
        return replace(
            self.read,
            sql="".join(sql),
            words=words,
            comparisons=comparisons,
            span=None,
            starts=(),
            exchanged=None,
        )


def _words(pattern: Pattern, constants: Sequence[Constant]) -> str:
    """An expression over other constants for people; worked out when somebody reads it."""
    texts = {start: constants[number].text for number, start in pattern.starts.items()}
    return pattern.exchanged(texts).words()


def _compared(comparison: Comparison, sign: int, constant: Constant) -> Comparison:
    value = KINDS[constant.kind].value(constant.text)
    assert value is not None
    return comparison._replace(constant=value if sign > 0 or isinstance(value, date) else -value)


def _pattern(read: Expression, constants: Mapping[int, Constant]) -> Pattern | None:
    """An expression's pattern; None where a comparison's constant is none of them.

    Args:
        read: as it was read.
        constants: those that it holds, by number.
    """
    exchanged = read.exchanged
    assert exchanged is not None
    marks = {KINDS[each.kind].mark(number): number for number, each in constants.items()}
    marked = exchanged({constants[number].start: mark for mark, number in marks.items()})
    pieces = re.split(f"({'|'.join(map(re.escape, marks))})", marked.sql)
    values = {KINDS[constants[number].kind].value(mark): number for mark, number in marks.items()}
    places = [_place(each.constant, values) for each in marked.comparisons]
    return Pattern(
        read, exchanged, tuple(str(marks.get(piece, piece)) for piece in pieces),
        tuple(place for place in places if place is not None),
        {number: each.start for number, each in constants.items()},
    ) if None not in places else None  # fmt: skip


def _place(value: Bound, values: Mapping[Bound | None, int]) -> ConstantPosition | None:
    """Origin of a marked comparison's constant."""
    negative = not isinstance(value, date) and value < 0
    number = values.get(-value if negative else value)  # type: ignore[operator]
    return None if number is None else (number, -1 if negative else 1)


Fill = Callable[[Sequence[Constant]], Condition]


@dataclass(eq=False)
class CachedStatement:
    """A statement that was read, and what fills others of its shape.

    Args:
        read: as it was read.
        constants: of its text.
        exchanged: numbers of those that may change.
        proved: numbers of the constants that were seen to change.
        fit: whether all that was read since came out as it was filled.
    """

    read: Statement
    constants: tuple[Constant, ...]
    exchanged: frozenset[int]
    proved: frozenset[int] = frozenset()
    fit: bool = True

    @cached_property
    def fills(self) -> tuple[Fill, ...] | None:
        """Of each block's WHERE; None where one cannot be made. Made when its shape comes again: most never do."""
        places = {self.constants[number].start: number for number in self.exchanged}
        fills = [_fill(block.where, self.constants, places) for block in self.read.blocks]
        usable = tuple(fill for fill in fills if fill is not None)
        return usable if len(usable) == len(fills) else None

    @cached_property
    def plans(self) -> tuple[ShapePlans, ...]:
        """Plans shared by the blocks of all statements of this shape."""
        return tuple(ShapePlans() for _ in self.read.blocks)

    def changed(self, constants: Sequence[Constant]) -> frozenset[int]:
        """Numbers of the constants that differ from those that were read."""
        pairs = enumerate(zip(self.constants, constants, strict=True))
        return frozenset(number for number, (old, new) in pairs if old.text != new.text)

    def filled(self, constants: Sequence[Constant]) -> Statement:
        """The statement over other constants."""
        assert self.fills is not None, "it is not fit"
        parts = zip(self.read.blocks, self.fills, self.plans, strict=True)
        blocks = tuple(replace(block, where=fill(constants), plans=plans) for block, fill, plans in parts)
        return replace(self.read, blocks=blocks)

    def check(self, fresh: Statement, constants: Sequence[Constant]) -> None:
        """Learn from a statement of the shape that was read."""
        self.fit = self.fit and self._gives(self.read, self.constants) and self._gives(fresh, constants)
        self.proved |= self.changed(constants)

    def _gives(self, fresh: Statement, constants: Sequence[Constant]) -> bool:
        """True if a statement that was read is what is filled with its constants."""
        if self.fills is None:
            return False
        filled = self.filled(constants)
        return fresh == filled and _compares(fresh) == _compares(filled)


def _compares(statement: Statement) -> list[tuple[Comparison, ...]]:
    """The comparisons of all conditions, which do not count when statements are compared."""
    return [
        predicate.expression.comparisons
        for block in statement.blocks
        for predicate in predicates(block.where)
    ]


def _keep(read: Statement, shape: StatementShape, numbers: frozenset[int]) -> CachedStatement | None:
    """Template for statements of the same shape; None where no constant can be exchanged, or one would be lost.

    Args:
        read: the statement.
        shape: its shape.
        numbers: of constants that WHERE compares something with.
    """
    places = {each.start: number for number, each in enumerate(shape.constants) if number in numbers}
    inside = {number for block in read.blocks for each in predicates(block.where)
              for number in _held(each.expression, places)}  # fmt: skip
    lost = {shape.constants[number].text for number in numbers - inside}
    if not inside or any(shape.constants[number].text in lost for number in inside):
        return None  # equal parts are one: this constant may stand for the other, too
    return CachedStatement(read, shape.constants, frozenset(inside))


def _held(expression: Expression, places: Mapping[int, int]) -> list[int]:
    """Numbers of the constants that an expression holds."""
    return [places[start] for start in expression.starts if start in places]


def _fill(condition: Condition, constants: Sequence[Constant], places: Mapping[int, int]) -> Fill | None:
    """Builder of a condition over other constants; None where it cannot be made."""
    if isinstance(condition, Predicate) and (numbers := _held(condition.expression, places)):
        pattern = _pattern(condition.expression, {number: constants[number] for number in numbers})
        return None if pattern is None else lambda new: Predicate(pattern.filled(new), condition.negated)
    if isinstance(condition, Predicate | Always):
        return lambda new: condition
    fills = [_fill(part, constants, places) for part in condition.parts]
    usable = [part for part in fills if part is not None]
    join = every if isinstance(condition, Every) else some
    return (lambda new: join([part(new) for part in usable])) if len(usable) == len(fills) else None


def _literals(expression: str) -> list[str]:
    """The constants of a catalog's expression that a comparison of WHERE could be a part of, as their texts."""
    tree = parse_one(expression)
    root = type(tree)
    if root is not exp.Literal and root not in AROUND and root not in LOGIC and root not in COMPARED:
        return []  # a comparison inside of a larger expression is no condition of WHERE
    return [str(literal.this) for literal in tree.find_all(exp.Literal)]


COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In)
AROUND = (exp.Neg, exp.Paren, exp.Cast, exp.DateStrToDate)
"""What may stand between a comparison and its constant."""
LOGIC = (exp.And, exp.Or, exp.Not, exp.Paren)


def _is_compared(literal: Node) -> bool:
    above = literal.parent
    while type(above) in AROUND:
        above = above.parent if above is not None else None
    if not isinstance(above, COMPARED):
        return False
    above = above.parent
    while isinstance(above, LOGIC):
        above = above.parent
    return isinstance(above, exp.Where) and isinstance(above.parent, exp.Select)


@dataclass(eq=False)
class Shapes:
    """The shapes of what one release was asked. Safe to use from several threads.

    Args:
        schema: its star.
    """

    schema: Schema
    _kept: OrderedDict[tuple[str, ...], CachedStatement] = field(default_factory=OrderedDict)
    _exchanged: OrderedDict[tuple[str, str], frozenset[int]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def _declared(self) -> frozenset[str]:
        """The constants of the catalog's own expressions."""
        tables = self.schema.tables.values()
        bodies = [body for table in tables for body in (*table.derived.values(), *table.measures.values())]
        return frozenset(text for body in bodies for text in _literals(body))

    def filled(self, text: str, dialect: str) -> Statement | None:
        """A statement as an earlier one of its shape tells; None where it must be read."""
        statement = shape_of(text)
        if statement is None:
            return None
        with self._lock:
            stored = self._find(statement, dialect)
            if stored is None or self._declares(statement, stored.exchanged):
                return None
            changed = stored.changed(statement.constants)
            fits = stored.fit and changed <= stored.proved
        if not changed:
            return stored.read
        return stored.filled(statement.constants) if fits else None

    def read(self, text: str, dialect: str) -> Statement:
        """A statement as it stands; its shape is kept for later ones.

        Raises:
            dpsql.errors.Error: as `parse` and `split_statement`.
        """
        tree = parse(text, dialect)
        cut, numbers = shape_of(text), frozenset[int]()
        if cut is not None:
            compared = {
                literal.meta.get("start") for literal in tree.find_all(exp.Literal) if _is_compared(literal)
            }
            numbers = frozenset(i for i, constant in enumerate(cut.constants) if constant.start in compared)
            if self._declares(cut, numbers):
                numbers = frozenset()  # the constant of a declared expression does not change
        statement = split_statement(tree, self.schema, text)
        if cut is not None and numbers and statement.moment is None:
            self._learn(statement, cut, dialect, numbers)
        return statement

    def _declares(self, shape: StatementShape, numbers: frozenset[int]) -> bool:
        """True if one of some constants stands in an expression of the catalog."""
        return any(shape.constants[number].text in self._declared for number in numbers)

    def _find(self, shape: StatementShape, dialect: str) -> CachedStatement | None:
        exchanged = self._exchanged.get((dialect, shape.words))
        key = None if exchanged is None else _key(shape, dialect, exchanged)
        if key is None or key not in self._kept:
            return None
        self._kept.move_to_end(key)
        self._exchanged.move_to_end((dialect, shape.words))
        return self._kept[key]

    def _learn(self, read: Statement, shape: StatementShape, dialect: str, numbers: frozenset[int]) -> None:
        with self._lock:
            previous = self._find(shape, dialect)
            if previous is not None:
                previous.check(read, shape.constants)
                return
        stored = _keep(read, shape, numbers)
        if stored is None:
            return
        with self._lock:
            self._exchanged[dialect, shape.words] = stored.exchanged
            self._kept[_key(shape, dialect, stored.exchanged)] = stored
            for cache in (self._kept, self._exchanged):
                while len(cache) > KEPT:
                    cache.popitem(last=False)


def _key(shape: StatementShape, dialect: str, exchanged: frozenset[int]) -> tuple[str, ...]:
    """The shape with the constants that do not change."""
    fixed = (constant.text for number, constant in enumerate(shape.constants) if number not in exchanged)
    return (dialect, shape.words, *fixed)
