"""Derivatives of values with respect to noisy cells, under sums, products, quotients and functions.

Texts are DuckDB's; `sql.follow` reads them off an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

CELLS = "STRUCT(c BIGINT, w DOUBLE)[]"
EMPTY = f"CAST([] AS {CELLS})"
NOWHERE = f"CAST([] AS STRUCT(b DOUBLE, g {CELLS})[])"


class Quotient(NamedTuple):
    """A quotient of two linear values: DuckDB text of both and of their cells."""

    above: str
    above_cells: str
    below: str
    below_cells: str


@dataclass(frozen=True)
class NoisyLineage:
    """Dependence of a value on noisy cells.

    Args:
        cells: text of the list of cells and weights.
        quotient: both sides, where it is a quotient of linear values.
        near: text of a list {b, g} of denominators and their cells; empty where there are none.
        linear: whether the weights are exact however far the cells are off.
        curve: where it is a function of one noisy value, which one.
        plain: whether it is a value of a block, or a sum of such, each with the weight 1.
    """

    cells: str
    quotient: Quotient | None = None
    near: str = ""
    linear: bool = True
    curve: Curve | None = None
    plain: bool = False

    @property
    def denominators(self) -> str:
        """All of them, its own included."""
        if self.quotient is None:
            return self.near
        return f"[{{'b': CAST({self.quotient.below} AS DOUBLE), 'g': {self.quotient.below_cells}}}]"

    @property
    def parts(self) -> tuple[str, ...]:
        """Its texts in one order: cells, both sides of a quotient, denominators, those of its curve."""
        curve = self.curve
        tail = () if curve is None else (curve.value, *curve.argument.parts, *curve.constants)
        return (self.cells, *(self.quotient or ()), *((self.near,) if self.near else ()), *tail)

    @property
    def shape(self) -> tuple[object, ...]:
        """Common shape of two values whose parts mean the same."""
        curve = self.curve and (self.curve.steps, self.curve.argument.shape)
        return self.quotient is not None, bool(self.near), self.linear, curve

    def mapped(self, change: Callable[[str], str]) -> NoisyLineage:
        """The same with every text changed."""
        return self._of_parts(iter([change(text) for text in self.parts]))

    def _of_parts(self, texts: Iterator[str]) -> NoisyLineage:
        cells = next(texts)
        quotient = self.quotient and Quotient(*islice(texts, 4))
        near, curve = next(texts) if self.near else "", self.curve
        if curve is not None:
            value, argument = next(texts), curve.argument._of_parts(texts)
            curve = Curve(value, argument, curve.steps, tuple(islice(texts, len(curve.steps))))
        return NoisyLineage(cells, quotient, near, self.linear, curve, self.plain)


class Curve(NamedTuple):
    """A function of one noisy value.

    Args:
        value: DuckDB text of the noisy value.
        argument: how it moves; has no curve itself.
        steps: functions applied in turn, by their names in `uncertainty.image.STEPS`.
        constants: text of each step's public constant.
    """

    value: str
    argument: NoisyLineage
    steps: tuple[str, ...]
    constants: tuple[str, ...]

    def then(self, step: str, constant: str = "0.0") -> Curve:
        """With one more step."""
        return self._replace(steps=(*self.steps, step), constants=(*self.constants, constant))


@dataclass(frozen=True)
class Unknown:
    """A value whose error is not defined, and why."""

    why: str


@dataclass(frozen=True)
class Extreme(Unknown):
    """MIN or MAX over noisy values: no derivative, but an interval, made of those of the values.

    Args:
        member: how each value moves.
        listed: DuckDB text of the list of them, each with the texts of `final_parts(member)`.
        least: whether it is MIN.
    """

    member: NoisyLineage
    listed: str
    least: bool


Dependence = NoisyLineage | Unknown | None
"""None: no noise in it."""


def times(cells: str, factor: str) -> str:
    """Cells with their weights multiplied. The factor stays outside of the function, where a window may not stand."""
    if cells == EMPTY:
        return EMPTY
    return (
        f"LIST_TRANSFORM([{{'g': {cells}, 'k': CAST({factor} AS DOUBLE)}}], LAMBDA dp_p : "
        "LIST_TRANSFORM(dp_p.g, LAMBDA dp_e : {'c': dp_e.c, 'w': dp_e.w * dp_p.k}))[1]"
    )


def together(*lists: str) -> str:
    """Lists one after the other."""
    nonempty = [text for text in lists if text not in ("", EMPTY)]
    return nonempty[0] if len(nonempty) == 1 else f"LIST_CONCAT({', '.join(nonempty)})" if nonempty else EMPTY


def scaled(value: NoisyLineage, factor: str) -> NoisyLineage:
    """A value times what has no noise."""
    unscaled = value.quotient
    quotient = unscaled and unscaled._replace(
        above=f"({unscaled.above} * {factor})", above_cells=times(unscaled.above_cells, factor)
    )
    curve = value.curve and value.curve.then("times", factor)
    return replace(value, cells=times(value.cells, factor), quotient=quotient, curve=curve, plain=False)


class MovingOperand(NamedTuple):
    """One side of an operator: its text and how it moves; no cells where it has no noise."""

    text: str
    moves: NoisyLineage | None


def added(left: MovingOperand, right: MovingOperand, sign: str) -> NoisyLineage:
    """left + right, or less it."""
    for noisy, public in ((left, right), (right, left)):
        if noisy.moves is not None and noisy.moves.curve is not None and public.moves is None:
            signed = scaled(noisy.moves, "-1.0") if sign == "-" and noisy is right else noisy.moves
            constant = f"({sign} {public.text})" if public is right else public.text
            return replace(signed, curve=signed.curve and signed.curve.then("plus", constant))
    first, second = (side.moves or NoisyLineage(EMPTY) for side in (left, right))
    turned = times(second.cells, "-1.0") if sign == "-" else second.cells
    cells = together(first.cells, turned)
    quotient = _one_below(left, right, sign)
    if quotient is not None:
        return NoisyLineage(cells, quotient, linear=False)
    near = (
        together(first.denominators, second.denominators) if first.denominators or second.denominators else ""
    )
    return NoisyLineage(cells, None, near, linear=first.linear and second.linear)


def _one_below(left: MovingOperand, right: MovingOperand, sign: str) -> Quotient | None:
    """a/n + p, p + a/n and a/n + c/n over one denominator; None where it is none of them."""
    first, second = (None if side.moves is None else side.moves.quotient for side in (left, right))
    if first is not None and second is not None and first.below == second.below:
        turned = times(second.above_cells, "-1.0") if sign == "-" else second.above_cells
        return first._replace(
            above=f"({first.above} {sign} {second.above})", above_cells=together(first.above_cells, turned)
        )
    if first is not None and right.moves is None:
        cells = times(first.below_cells, f"({sign} {right.text})")
        return first._replace(
            above=f"({first.above} {sign} {right.text} * {first.below})",
            above_cells=together(first.above_cells, cells),
        )
    if second is not None and left.moves is None:
        signed_cells = times(second.above_cells, "-1.0") if sign == "-" else second.above_cells
        return second._replace(
            above=f"({left.text} * {second.below} {sign} {second.above})",
            above_cells=together(times(second.below_cells, left.text), signed_cells),
        )
    return None


def by_delta(left: MovingOperand, right: MovingOperand, by_left: str, by_right: str) -> NoisyLineage:
    """By the delta method: the derivatives by both sides, and the denominators of both."""
    first, second = (side.moves or NoisyLineage(EMPTY) for side in (left, right))
    cells = together(times(first.cells, by_left), times(second.cells, by_right))
    denominators = [each.denominators for each in (first, second) if each.denominators]
    return NoisyLineage(cells, None, together(*denominators) if denominators else "", linear=False)


def divided(left: MovingOperand, right: MovingOperand) -> NoisyLineage:
    """left / right."""
    numerator, divisor = left.moves or NoisyLineage(EMPTY), right.moves
    if divisor is None:
        return scaled(numerator, f"(1.0 / {right.text})")
    if left.moves is None and divisor.curve is not None:
        return scaled(
            curved(divisor, right.text, "reciprocal", f"(-1.0 / ({right.text} * {right.text}))"), left.text
        )
    cells = together(
        times(numerator.cells, f"(1.0 / {right.text})"),
        times(divisor.cells, f"(-{left.text} / ({right.text} * {right.text}))"),
    )
    over, under = numerator.quotient, divisor.quotient
    if numerator.linear and divisor.linear:
        return NoisyLineage(
            cells, Quotient(left.text, numerator.cells, right.text, divisor.cells), linear=False
        )
    if over is not None and under is not None and over.below == under.below:
        quotient = Quotient(over.above, over.above_cells, under.above, under.above_cells)
        return NoisyLineage(cells, quotient, linear=False)
    if left.moves is None and under is not None:
        above = f"({left.text} * {under.below})"
        quotient = Quotient(above, times(under.below_cells, left.text), under.above, under.above_cells)
        return NoisyLineage(cells, quotient, linear=False)
    denominator = f"[{{'b': CAST({right.text} AS DOUBLE), 'g': {divisor.cells}}}]"
    near = together(*(text for text in (numerator.denominators, divisor.denominators, denominator) if text))
    return NoisyLineage(cells, None, near, linear=False)


def curved(argument: NoisyLineage, text: str, step: str, slope: str, constant: str = "0.0") -> NoisyLineage:
    """A function of a noisy value.

    Args:
        argument: how the value moves.
        text: the value, as DOUBLE.
        step: the function, by its name in `uncertainty.image.STEPS`.
        slope: its derivative.
        constant: of the step.
    """
    curve = Curve(text, argument, (), ()) if argument.curve is None else argument.curve
    near = argument.denominators
    return NoisyLineage(times(argument.cells, slope), None, near, False, curve.then(step, constant))


def noisy_lineages(dependences: Iterable[Dependence]) -> Unknown | list[NoisyLineage] | None:
    """The values with noise among some; the first unknown one where there is one, None where none has noise."""
    unknown = next((dependence for dependence in dependences if isinstance(dependence, Unknown)), None)
    return unknown or [each for each in dependences if isinstance(each, NoisyLineage)] or None


FIELDS = "LIST_TRANSFORM({}, LAMBDA dp_e : dp_e.{})"


def final_parts(follows: NoisyLineage) -> list[str]:
    """Texts of the parts as Python reads them: cells as a list of numbers and one of weights."""
    quotient, curve = follows.quotient, follows.curve
    cells = [FIELDS.format(follows.cells, name) for name in "cw"]
    if quotient is not None:
        above, below = (
            [FIELDS.format(side_cells, name) for name in "cw"]
            for side_cells in (quotient.above_cells, quotient.below_cells)
        )
        cells += [f"CAST({quotient.above} AS DOUBLE)", *above, f"CAST({quotient.below} AS DOUBLE)", *below]
    cells += [follows.near] if follows.near else []
    if curve is not None:
        constants = [f"CAST({constant} AS DOUBLE)" for constant in curve.constants]
        cells += [curve.value, *final_parts(curve.argument), *constants]
    return cells
