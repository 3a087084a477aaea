"""The view that would answer a refused question, as the curator would write it.

**Privacy**: a function of the statement and of the release's public catalog.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.answer.block import Block
from dpsql.answer.plan import conditions
from dpsql.answer.terms import ColumnRef, Term, predicates
from dpsql.star import Catalog
from dpsql.star.graph import paths_to, reachable


def wanted_view(block: Block, terms: Sequence[Term], catalog: Catalog) -> str:
    """One line below `views:`; empty where the table is not one that views count.

    Args:
        block: the question.
        terms: what it counts and sums.
        catalog: the release's catalog.
    """
    of = next((name for name in catalog.tables if name.lower() == block.root.lower()), None)
    if of is None or catalog.tables[of].is_public:
        return ""
    used = {c for group in block.groups for c in group.columns}
    used |= {
        c
        for condition in conditions(block, terms)
        for p in predicates(condition)
        for c in p.expression.columns
    }
    used |= {c for term in terms if term.factor is not None for c in term.factor.columns}
    refs = [block.columns[number] for number in sorted(used)]
    shown = [ref for ref in refs if not ref.partner]
    axes: dict[str, list[str]] = {}
    for ref in [*shown, *(ref for ref in refs if ref.partner and not _covered(ref, shown))]:
        path = _public_end(catalog, of, ref)
        if path is None:
            axes[f"{_place(catalog, of, ref.path, ref.table)}.{ref.column}"] = []
        else:
            table = reachable(catalog, of)[path]
            axes.setdefault(_place(catalog, of, path, table), []).append(ref.column)
    if not axes:
        return ""
    written = ", ".join(
        f"{{axis: {axis}, by: [{', '.join(by)}]}}" if by else axis for axis, by in axes.items()
    )
    name = "_by_".join((by or [axis.rpartition(".")[2]])[-1] for axis, by in axes.items())
    measures = ", ".join(dict.fromkeys(["count", *(term.measure for term in terms)]))
    return f"{name}: {{of: {of}, axes: [{written}], measures: [{measures}]}}"


def _covered(partner: ColumnRef, refs: Sequence[ColumnRef]) -> bool:
    """Whether the axis of some column says which rows have a partner too."""
    return any(ref.path[: len(partner.path)] == partner.path for ref in refs)


def _public_end(catalog: Catalog, of: str, ref: ColumnRef) -> tuple[str, ...] | None:
    """The path to the first public table on a column's way; None for private columns."""
    tables = reachable(catalog, of)
    hops = (ref.path[:n] for n in range(1, len(ref.path) + 1))
    return next((hop for hop in hops if hop in tables and catalog.tables[tables[hop]].is_public), None)


def _place(catalog: Catalog, of: str, path: tuple[str, ...], table: str) -> str:
    """The shortest name of a place."""
    return table if len(paths_to(catalog, of, table)) == 1 or not path else ".".join(path)
