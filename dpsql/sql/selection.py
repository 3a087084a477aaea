"""Clauses that keep rows by their noisy values: how many rows each keeps, of how many, and by which value.

| clause | candidates | score | kept |
|---|---|---|---|
| `ORDER BY n DESC LIMIT r` | the rows before LIMIT | n | its r largest |
| `QUALIFY ROW_NUMBER() OVER (ORDER BY n DESC) <= r` | the rows before QUALIFY | n | its r largest |
| `WHERE`, `HAVING a > b` | the rows before it | a - b | where it is above 0 |
| any other | the rows before it | none | those for which it is true |

Each clause becomes a query that yields a row for every candidate: whether the clause keeps it, and the cells of its
score (`sql.carry`), so that its interval can be worked out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import sqlglot
from sqlglot import exp

from dpsql.row_expressions.expression import Node
from dpsql.sql import carry
from dpsql.sql.dependence import NoisyLineage, final_parts
from dpsql.sql.follow import NameScope, follow
from dpsql.sql.parse import add_test, group_keys, ordinal
from dpsql.sql.statement import ADDED, Statement, unguarded

TURNED: dict[type[Node], int] = {exp.GT: 1, exp.GTE: 1, exp.LT: -1, exp.LTE: -1}
"""Comparisons, and the sign that their left side less their right side has where they are true."""
RANKS = (exp.RowNumber, exp.Rank, exp.DenseRank)


class PickQuery(NamedTuple):
    """A query over the candidates of one clause.

    Args:
        sql, common: DuckDB text, and the parts of its WITH clause; yields whether a row is kept, then as `score` says.
        score: places of the value that rows are chosen by, and its cells; None where no one value chooses.
        ranked: whether the largest scores are kept; else those above 0.
        limit: the ranks that LIMIT keeps, from 0 on; None where the first column says which rows are kept.
        wide: whether one row's score may follow all groups.
    """

    sql: str
    common: tuple[str, ...]
    score: carry.LineageColumns | None = None
    ranked: bool = False
    limit: range | None = None
    wide: bool = False

    @property
    def counted(self) -> PickQuery:
        """The same without the score: all rows are candidates."""
        return self._replace(sql=f"SELECT dp_kept FROM ({self.sql}) AS dp_rows", score=None)


def pick_queries(statement: Statement) -> list[PickQuery | None]:
    """A query for each clause of a statement that chooses rows by noise; None for one whose rows nobody can count.

    Args:
        statement: a rewritten statement.
    """
    carrier = carry.Carrier(statement.blocks)
    carrier.query(sqlglot.parse_one(statement.text, read="duckdb"), {}, len(statement.names))
    common = tuple(f'"{alias}" AS ({query.sql(dialect="duckdb")})' for alias, query in carrier.common.items())
    return [_query(pick, common) for pick in carrier.picks]


class RankScore(NamedTuple):
    """A value that rows are chosen by, larger ones first or those above 0; its sign turns it where smaller ones are."""

    value: Node
    sign: int = 1
    ranked: bool = True


def _query(pick: carry.Pick, common: tuple[str, ...]) -> PickQuery | None:
    if pick.clause == "order":
        return _ordered(pick, common)
    clause = pick.select.args.get(pick.clause)
    if pick.clause not in LATER or clause is None:
        return None
    public, noisy = list[Node](), list[Node]()
    for test in _conjuncts(clause.this):
        (noisy if carry.is_noisy(test, pick.sight) else public).append(test)
    query = pick.select.copy()
    for later in LATER[pick.clause]:
        query.set(later, None)
    query.set(pick.clause, type(clause)(this=exp.and_(*public)) if public else None)
    stays = _stays(noisy[0].left) if len(noisy) == 1 and isinstance(noisy[0], exp.Binary) else None
    if stays is not None:  # the other rows have no rank
        add_test(query, exp.Where if query.args.get("group") is None else exp.Having, stays.copy())
    condition = exp.and_(*(pick.sight.spelled(test) for test in noisy))
    score = _compared(noisy[0]) if len(noisy) == 1 else None
    return _over_candidates(query, condition, score, pick.sight, common)


QUALIFY = ("qualify", "order", "limit", "offset", "fetch", "distinct", "with_")
HAVING = ("having", *QUALIFY)
LATER = {"where": ("where", "group", *HAVING), "having": HAVING, "qualify": QUALIFY}
"""Clauses that see only what a clause kept; its candidates are the rows before all of these."""


def _ordered(pick: carry.Pick, common: tuple[str, ...]) -> PickQuery | None:
    """LIMIT after ORDER BY; one that is no number, or a share, has no query."""
    limit, query = _limit(pick.select), pick.select.copy()
    if limit is None:
        return None
    for later in ("order", "limit", "offset", "fetch", "with_"):
        query.set(later, None)
    if isinstance(query, exp.SetOperation) or query.args.get("distinct") is not None:
        return PickQuery(
            f"SELECT TRUE AS dp_kept FROM ({query.sql(dialect='duckdb')}) AS dp_rows", common, limit=limit
        )
    key = pick.select.args["order"].expressions[0]
    value = ordinal(key.this, pick.select)
    score = RankScore(value, 1 if key.args.get("desc") else -1) if carry.is_noisy(value, pick.sight) else None
    return _over_candidates(query, exp.true(), score, pick.sight, common)._replace(limit=limit)


def _limit(select: Node) -> range | None:
    """The ranks that LIMIT and OFFSET, or FETCH, show."""
    limit, offset = select.args.get("limit"), select.args.get("offset")
    rows = limit.args.get("count") if isinstance(limit, exp.Fetch) else getattr(limit, "expression", None)
    texts = ["0" if offset is None else offset.expression.sql(), "" if rows is None else rows.sql()]
    if not all(text.isdigit() for text in texts):
        return None
    offset, shown = map(int, texts)
    return range(offset, offset + shown)


def _conjuncts(test: Node) -> Iterator[Node]:
    """The tests that must all be true."""
    bare = unguarded(test)
    while isinstance(bare, exp.Paren):
        bare = unguarded(bare.this)
    if isinstance(bare, exp.And):
        yield from _conjuncts(bare.left)
        yield from _conjuncts(bare.right)
    else:
        yield bare


def _compared(test: Node) -> RankScore | None:
    """The score of a comparison, or of a rank that is compared with a number."""
    sign = TURNED.get(type(test))
    if sign is None or not isinstance(test, exp.Binary):
        return None
    rank = _ranked(test.left)
    if rank is not None and sign < 0 and not test.right.find(exp.Column, exp.Subquery):
        return rank
    difference = exp.Sub(this=exp.paren(test.left.copy()), expression=exp.paren(test.right.copy()))
    return RankScore(difference, sign, ranked=False)


def _stays(node: Node) -> Node | None:
    """Rows that a rank is among, where it leaves out groups that the catalog adds (`sql.added`)."""
    bare = unguarded(node)
    branches = bare.args["ifs"] if isinstance(bare, exp.Case) and bare.args.get("default") is None else []
    reads = [column.name for column in branches[0].this.find_all(exp.Column)] if len(branches) == 1 else []
    test: Node | None = branches[0].this if reads and set(reads) == {ADDED} else None
    return test


def _ranked(node: Node) -> RankScore | None:
    """Ordering expression of a window over all rows."""
    stays = _stays(node)
    if stays is not None:
        node = unguarded(unguarded(node).args["ifs"][0].args["true"])
    parts = [part for part in node.args.get("partition_by") or [] if part != stays]
    over = isinstance(node, exp.Window) and isinstance(node.this, RANKS) and not parts
    order = node.args.get("order") if over else None
    if order is None:
        return None
    return RankScore(order.expressions[0].this, 1 if order.expressions[0].args.get("desc") else -1)


def _over_candidates(
    query: Node, condition: Node, score: RankScore | None, sight: NameScope, common: tuple[str, ...]
) -> PickQuery:
    """The query that yields whether each candidate is kept, and its score with its cells."""
    texts, column = [f"COALESCE({condition.sql(dialect='duckdb')}, FALSE) AS dp_kept"], None
    if score is not None and not carry.grouped_by_noise(query, sight):
        value = sight.spelled(score.value)
        if score.sign < 0:
            value = exp.Neg(this=exp.paren(value))
        follows = follow(value, sight)
        if isinstance(follows, NoisyLineage):
            texts += [f"CAST({value.sql(dialect='duckdb')} AS DOUBLE)", *final_parts(follows)]
            column = carry.emitted(1, follows, 2)
    if query.args.get("group") is not None:
        query.set("group", exp.Group(expressions=[sight.spelled(key) for key in group_keys(query)]))
    wide = any(query.find(kind) is not None for kind in (exp.Window, exp.Join, exp.Subquery)) or (
        score is not None and score.value.find(exp.Window, exp.Subquery) is not None
    )
    query.set("expressions", [exp.Var(this=text) for text in texts])
    ranked = score is not None and score.ranked
    return PickQuery(query.sql(dialect="duckdb"), common, column, ranked, None, wide)
