"""Which parts of SQL may reach DuckDB. One list for node types, one for functions; the rest is refused.

A query part passes if its node type stands in SHAPES, OPERATORS or FUNCTIONS, or if it is a function
that the parser does not know and its name stands in NAMED. All of them are pure: no clock, no random
number, no file, no setting, so the same statement has the same answer.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.answer.sql.node import Node
from dpsql.answer.sql.refuse import refusal
from dpsql.errors import NotSupportedError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SHAPES = _words("""
    Select From Join Where Group Having Qualify Order Ordered Limit Offset Fetch Distinct With CTE Subquery
    Table TableAlias Alias Identifier Column Star Union Except Intersect Tuple Paren Values
    Literal Boolean Null Var Interval IntervalSpan DataType DataTypeParam DType WithinGroup
    Window WindowSpec Filter If Case In Between Dot National
""")

OPERATORS = _words("""
    And Or Not Xor EQ NEQ NullSafeEQ NullSafeNEQ GT GTE LT LTE Is Like ILike SimilarTo RegexpLike RegexpILike Escape
    Add Sub Mul Div IntDiv Mod Pow Neg BitwiseAnd BitwiseOr BitwiseXor BitwiseNot
    BitwiseLeftShift BitwiseRightShift DPipe Concat Cast TryCast Collate
""")

AGGREGATES = _words("""
    Count CountIf Sum Avg Min Max Median Quantile PercentileCont PercentileDisc ApproxQuantile
    ApproxDistinct Stddev StddevPop StddevSamp Variance VariancePop AnyValue First Last Mode
    LogicalAnd LogicalOr ArrayAgg GroupConcat Corr CovarPop CovarSamp Grouping
""")

FUNCTIONS = _words("""
    Abs Ceil Floor Round Sign Sqrt Exp Ln Log Greatest Least Trunc Cbrt Pi Degrees Radians
    Sin Cos Tan Asin Acos Atan Atan2
    Coalesce Nullif IsNan IsInf
    Lower Upper Length Trim Substring Left Right Replace StrPosition StartsWith EndsWith Contains Initcap
    Reverse Pad Ascii Chr Repeat SplitPart RegexpReplace RegexpExtract ConcatWs
    DateTrunc TimestampTrunc DatetimeTrunc Extract Year Month Day Quarter Week WeekOfYear DayOfWeek
    DayOfWeekIso DayOfMonth DayOfYear Hour Minute Second Date Timestamp TimeToStr StrToTime StrToDate
    TsOrDsToDate TsOrDsAdd TsOrDsDiff TsOrDsToTimestamp DateAdd DateSub DateDiff TimestampAdd TimestampSub
    TimestampDiff DatetimeAdd DatetimeSub DatetimeDiff DateFromParts TimestampFromParts LastDay
    UnixToTime TimeToUnix Datetime Monthname Dayname DateStrToDate TimeStrToTime
    RowNumber Rank DenseRank PercentRank CumeDist Ntile Lag Lead FirstValue LastValue NthValue
""")

NAMED = _words("""
    dp_stderr dp_interval_low dp_interval_high dp_bias_hint dp_model_bound
    isodow isoyear weekday dayname monthname epoch date_part datepart date_trunc make_date strftime
    position instr locate starts_with ends_with nullif ifnull isnull
    row_number rank dense_rank ntile lag lead percent_rank cume_dist first_value last_value nth_value
    median quantile quantile_cont quantile_disc
    div mod truncate sign cbrt even log2 log10 ln round_even
    regexp_matches regexp_full_match left right lpad rpad ltrim rtrim strip_accents
    year month day quarter week hour minute second decade century yearweek last_day datediff date_diff
""")

ALLOWED = SHAPES | OPERATORS | AGGREGATES | FUNCTIONS

REASONS = {
    "Rand": "random numbers would make the answer differ from time to time",
    "CurrentDate": "the clock would make the answer differ from day to day; write the date as a literal",
    "CurrentTimestamp": "the clock would make the answer differ from day to day; write the date as a literal",
    "Placeholder": "a placeholder has no value here; bind it in execute()",
    "Parameter": "a placeholder has no value here; bind it in execute()",
    "Lateral": "a lateral join would read rows",
    "Exists": "a correlated subquery would read rows",
    "Pivot": "PIVOT is not supported; use COUNT(*) FILTER (WHERE ..)",
}


def check(tree: Node) -> None:
    """Refuse the statement if any part of it is not on the lists.

    Args:
        tree: a parsed statement.

    Raises:
        NotSupportedError: names the part, its place and, where there is one, the way round.
    """
    for node in tree.walk():
        name = type(node).__name__
        if name in ALLOWED:
            if isinstance(node, exp.Table):
                _check_table(node)
            if isinstance(node, exp.With) and node.args.get("recursive"):
                raise refusal(NotSupportedError, "recursive CTEs are not supported", clause="WITH", at=node)
            continue
        if isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc)):
            called = str(node.this).lower()
            if called in NAMED:
                continue
            raise refusal(NotSupportedError, f"function {called} is not on the list of pure functions", at=node,
                          hint="docs/sql.md has the list")
        reason = REASONS.get(name, f"{name} is not supported")
        raise refusal(NotSupportedError, reason, at=node if not isinstance(node, exp.Query) else None,
                      hint="" if name in REASONS else "docs/sql.md lists what is")


def _check_table(node: exp.Table) -> None:
    """A table is a plain name: no function, no file, no sample, no time travel."""
    extras = {k for k, v in node.args.items() if v} - {"this", "db", "catalog", "alias"}
    if extras or not isinstance(node.this, exp.Identifier):
        raise refusal(NotSupportedError, "FROM takes names of tables, not functions, files or samples", at=node,
                      clause="FROM")
