"""Which strategy an axis gets: the one with the least exact expected error on the declared ranges.

Nothing is hard-coded about which mechanism wins where; every candidate's error is computed, from public
facts alone, and the runners-up are kept for `dpsql plan`. The limits below bound the time of choosing:
under a second up to 65,536 leaves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsql.errors import InterfaceError
from dpsql.mechanisms.central.cut_tree import cut_tree, log_borders
from dpsql.mechanisms.central.gaussian import DENSE_LEAVES, DENSE_SCALE, dense_strategy, sine_strategy
from dpsql.mechanisms.central.lue_dptree import identity_strategy, lue_dptree, tree_strategy
from dpsql.mechanisms.central.optimised_tree import optimise_nodes
from dpsql.mechanisms.central.strategy import Strategy, variance_model
from dpsql.mechanisms.central.tents import WIDTHS, half_widths, tents
from dpsql.tree import Tree, Workload, kary_tree
from dpsql.variance import mean_variance

ARITIES = (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32)
_LONG_ARITIES = {1: (12, 16), 2: (2, 3, 8, 12, 16)}  # past 2^14 leaves, by norm: where the best arity has been found
_LONG = 1 << 14
_LONG_LOG = 1 << 12  # with a log, whose ranges are evaluated one by one
_LONG_LOG_ARITIES = (2, 4, 8, 16)
_SEARCH_ARITIES = (4, 8, 16)  # trees that get per-node budgets; the best arity is near one of them
_SEARCH_LEAVES = 1024  # per-node budgets take 0.2 s a tree here
_LOG_ARITIES = (2, 4, 8)  # narrow trees suit logs, which leave many of their nodes without budget
_LOG_SEARCH = ((1024, 80, 2), (_LONG_LOG, 60, 1))
"""Leaves (a quarter of the ranges, if more) up to which a log is searched for, steps and starts: half a second."""
_ROOT_SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35)
_TREE_LEAVES = 1 << 17  # beyond this trees have lost by a quarter, and take as long as all the rest


class Choice(NamedTuple):
    """What was chosen for an axis and why.

    Args:
        strategy: the winner.
        expected_error: mean squared error over the workload at epsilon 1 (norm 1), at sigma 1 (norm 2).
        runners_up: (name, expected error) of the others, best first.
        name: what the winner is called.
    """

    strategy: Strategy
    expected_error: float
    runners_up: tuple[tuple[str, float], ...]
    name: str


class _Asked(NamedTuple):
    """What is asked of an axis: ranges (None: all of them), how often the total instead; the grain of dense rows."""

    workload: Workload | None
    whole: float
    scale: int = DENSE_SCALE


class _Tried(NamedTuple):
    """A candidate and its expected error."""

    strategy: Strategy
    error: float


class _Tents(NamedTuple):
    """Arguments of `tents`."""

    widths: tuple[int, ...]
    graded: bool
    root: float

    @property
    def name(self) -> str:
        """In words."""
        rule = f"{'graded ' if self.graded else ''}tents of half-width {', '.join(map(str, self.widths))}"
        return f"{rule}, root" if self.root else rule


def expected_error(strategy: Strategy, workload: Workload | None = None, whole: float = 0.0) -> float:
    """Mean squared error over the workload at epsilon 1 (Laplace) or sigma 1 (Gaussian).

    Args:
        strategy: what is measured.
        workload: the ranges asked; None means all ranges, equally often.
        whole: the part of the questions that asks for the total instead, in [0, 1].
    """
    factor = 2.0 if strategy.norm == 1 else 1.0
    return factor * mean_variance(variance_model(strategy), workload, whole)


def auto_strategy(
    n: int, workload: Workload | None = None, norm: int = 1, whole: float = 0.0, scale: int = DENSE_SCALE
) -> Choice:
    """The best strategy for one axis.

    Args:
        n: number of leaves, at least 1.
        workload: the ranges asked; None means all ranges, equally often.
        norm: 1 for Laplace noise (pure epsilon), 2 for Gaussian noise (zCDP).
        whole: the part of the questions that asks for the total instead, in [0, 1): what an axis is asked
            by queries that use only the other axes of its view.
        scale: dense rows are rounded to multiples of 1 / scale.

    Returns:
        The winner, its error and its runners-up.

    Raises:
        InterfaceError: for an axis without leaves, or ranges that lie outside of it.

    **Privacy** Reads no data: the arguments are public.
    """
    if n < 1:
        raise InterfaceError("an axis needs at least one leaf")
    if not 0 <= whole < 1:
        raise InterfaceError("the total is asked a part of the time, in [0, 1)")
    if workload is not None:
        _check(n, workload)
    asked = _Asked(workload, whole, scale)
    tried = _laplace(n, asked) if norm == 1 else _gaussian(n, asked)
    name, *others = sorted(tried, key=lambda key: tried[key].error)
    best = tried[name]
    return Choice(best.strategy, best.error, tuple((key, tried[key].error) for key in others), name)


def _check(n: int, workload: Workload) -> None:
    """Ranges must lie in the axis and have some weight."""
    lo, hi, weight = (np.asarray(part) for part in workload)
    inside = bool(np.all((lo >= 0) & (lo < hi) & (hi <= n)))
    if not len(lo) or not inside or np.any(weight < 0) or not np.sum(weight) > 0:
        raise InterfaceError(f"a workload needs ranges inside [0, {n}) with positive weight")


def _try(strategy: Strategy, asked: _Asked) -> _Tried:
    """A candidate with its error."""
    return _Tried(strategy, expected_error(strategy, asked.workload, asked.whole))


def _laplace(n: int, asked: _Asked) -> dict[str, _Tried]:
    """Candidates of pure epsilon."""
    tried = {"identity": _try(identity_strategy(n), asked)}
    if n < 4:
        return tried
    tried |= _tents(n, asked)
    return tried | (_trees(n, asked, norm=1) if n <= _TREE_LEAVES else {})


def _tents(n: int, asked: _Asked) -> dict[str, _Tried]:
    """Tents of the share rule: the best levels at the middle width, the best width, then extra rows."""
    tried: dict[_Tents, _Tried] = {}
    work = asked.workload
    reach = n if work is None else int(np.max(np.asarray(work.hi) - np.asarray(work.lo)))
    long = _LONG if work is None else _LONG_LOG

    def attempt(widths: tuple[int, ...], graded: bool, root: float) -> float:
        key = _Tents(widths, graded, root)
        if key not in tried:
            tried[key] = _try(tents(n, widths, root=root, graded=graded), asked)
        return tried[key].error

    root = _ROOT_SHARES[2] if asked.whole > 0 else 0.0
    grades = (False, True) if n <= long else (work is None,)
    likely = 1 + sum(reach >= limit for limit in (560, 11_000, 200_000))
    middle = {
        count: _tent_widths(reach, count, WIDTHS[0], grades[0])
        for count in range(max(1, likely - 1), likely + 2)
    }
    levels = min(middle, key=lambda count: attempt(middle[count], grades[0], root))
    for graded in grades:
        some = WIDTHS if work is None or n <= long else WIDTHS[:1]
        sets = [_tent_widths(reach, levels, width, graded) for width in some]
        widths = min(sets, key=lambda each: attempt(each, graded, root))
        for share in () if asked.whole == 0 else _ROOT_SHARES if n <= _LONG else _ROOT_SHARES[:3]:
            attempt(widths, graded, share)
    best = min(tried, key=lambda key: tried[key].error)
    found = {best.name: tried[best]} if best.widths else {}
    if work is not None and float(np.sum(work.weight[np.asarray(work.lo) == 0])) > np.sum(work.weight) / 2:
        halves = [_try(tents(n, (half,), left=0.6), asked) for half in _prefix_half_widths(reach)]
        found["tents with a half-hat at the left border"] = min(halves, key=lambda one: one.error)
    return found


def _tent_widths(reach: int, levels: int, width: float, graded: bool) -> tuple[int, ...]:
    """Half-widths of the rule; under graded coarse hats the finer ones do better a little narrower."""
    coarse = half_widths(reach, levels, width)
    finer = half_widths(reach, levels, width - 0.1)
    return (*finer[:-1], coarse[-1]) if graded and len(finer) == len(coarse) > 1 else coarse


def _prefix_half_widths(reach: int) -> list[int]:
    """Half-widths of one level of tents for prefixes: the rule's times 1.2 to 2, which half-hats favour."""
    return sorted({min(round(c * reach**0.5), (reach + 1) // 2) for c in (1.25, 1.5, 1.75, 2.0)})


def _trees(n: int, asked: _Asked, norm: int) -> dict[str, _Tried]:
    """LUE-DPTree and HB (no root, equal levels) at their best arity, and per-node budgets on short axes."""
    short = n <= (_LONG if asked.workload is None else _LONG_LOG)
    arities: tuple[int, ...] = ARITIES
    if not short:
        arities = _LONG_ARITIES[norm] if asked.workload is None else _LONG_LOG_ARITIES
    shapes = {k: kary_tree(n, k) for k in arities if k <= n}
    lue = {
        k: _try(lue_dptree(shapes[k], asked.workload, norm=norm, whole=asked.whole), asked) for k in shapes
    }
    equal = {k: _try(_equal_levels(tree, norm), asked) for k, tree in shapes.items()}
    best, flat = min(lue, key=lambda k: lue[k].error), min(equal, key=lambda k: equal[k].error)
    tried = {f"LUE-DPTree k={best}": lue[best], f"HB k={flat}, no root": equal[flat]}
    if asked.workload is not None:
        return tried | _log_trees(shapes, asked, norm)
    if norm == 1 and n <= _SEARCH_LEAVES:
        near = sorted({*_SEARCH_ARITIES, best} & set(shapes))
        searched = {k: optimise_nodes(shapes[k], norm, asked.whole, steps=120) for k in near}
        k = min(searched, key=lambda arity: searched[arity][1])
        tried[f"tree k={k}, budgets per node"] = _try(tree_strategy(shapes[k], searched[k][0]), asked)
    return tried


def _log_trees(shapes: dict[int, Tree], asked: _Asked, norm: int) -> dict[str, _Tried]:
    """Trees cut at the borders of a log, and the best budgets per node where the search is short."""
    n, work, whole = shapes[2].n, asked.workload, asked.whole
    if work is None:
        return {}
    cuts = log_borders(n, work)
    arities = _LOG_ARITIES if n <= _LONG_LOG else _LOG_ARITIES[-1:]
    cut = {k: cut_tree(n, k, cuts) for k in arities if len(cuts)}
    lue = {k: _try(lue_dptree(tree, work, norm=norm, whole=whole), asked) for k, tree in cut.items()}
    tried = {}
    if lue:
        k = min(lue, key=lambda arity: lue[arity].error)
        tried[f"LUE-DPTree k={k}, cut at the log's borders"] = lue[k]
    size = max(n, len(work.lo) // 4)
    if size > _LOG_SEARCH[-1][0] or (norm == 2 and n <= DENSE_LEAVES):
        return tried
    _, steps, starts = next(limit for limit in _LOG_SEARCH if size <= limit[0])
    plain = {k: shapes[k] for k in _LOG_ARITIES[-2 if cut else 0 :] if k in shapes}
    named = {f"k={k}": tree for k, tree in plain.items()}
    named |= {f"k={k}, cut at the log's borders": tree for k, tree in cut.items()}
    found = {name: optimise_nodes(tree, norm, whole, work, steps, starts) for name, tree in named.items()}
    name = min(found, key=lambda key: found[key][1])
    tried[f"tree {name}, budgets per node"] = _try(
        tree_strategy(named[name], found[name][0], norm=norm), asked
    )
    return tried


def _equal_levels(tree: Tree, norm: int) -> Strategy:
    """Equal budgets on every level but the root, which almost no range uses."""
    share = np.where(tree.level == 0, 0.0, 1.0 / max(1, tree.depth - 1))
    return tree_strategy(tree, share if norm == 1 else np.sqrt(share), norm=norm)


def _gaussian(n: int, asked: _Asked) -> dict[str, _Tried]:
    """Candidates of zCDP: the dense optimum where it can be computed, else the sine transform and trees."""
    tried = {"identity": _try(identity_strategy(n, norm=2), asked)}
    if n < 4:
        return tried
    if n <= DENSE_LEAVES:
        tried["dense optimum"] = _try(dense_strategy(n, asked.workload, asked.scale, asked.whole), asked)
        return tried if asked.workload is None else tried | _trees(n, asked, norm=2)
    tried["sine transform"] = _try(sine_strategy(n), asked)
    return tried | (_trees(n, asked, norm=2) if n <= _TREE_LEAVES else {})
