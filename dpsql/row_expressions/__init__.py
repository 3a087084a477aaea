"""Rules shared by statements and a curator's expressions: limits on text, row-local SQL, quoting, pure SQL.

Pure is what has no clock, no random number, no file and no setting.

Names are those of the parser's node types; what it has no type for stands in NAMED_* by its SQL name. OPERATORS,
SCALARS and VALUES look at one row alone, and so does all that is built of them; AGGREGATES and WINDOWS look at many.

This package and `dpsql.sql` are the places that import the parser, which changes often.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain, count


def words(text: str) -> frozenset[str]:
    """A list of names, written with spaces between."""
    return frozenset(text.split())


OPERATORS = words("""
    And Or Not Xor EQ NEQ NullSafeEQ NullSafeNEQ GT GTE LT LTE Is Like ILike SimilarTo RegexpLike RegexpILike Escape
    Add Sub Mul Div IntDiv Mod Pow Neg BitwiseAnd BitwiseOr BitwiseXor BitwiseNot
    BitwiseLeftShift BitwiseRightShift DPipe Concat Cast TryCast
""")

SCALARS = words("""
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
""")

NAMED_SCALARS = words("""
    isodow isoyear weekday dayname monthname epoch date_part datepart date_trunc make_date strftime
    position instr locate starts_with ends_with nullif ifnull isnull
    div mod truncate sign cbrt even log2 log10 ln round_even
    regexp_matches regexp_full_match left right lpad rpad ltrim rtrim strip_accents
    year month day quarter week hour minute second decade century yearweek last_day datediff date_diff
""")

VALUES = words("""
    Column Identifier Literal Boolean Null Var Interval IntervalSpan DataType DataTypeParam DType
    Paren Tuple Case If In Between National
""")

SHAPES = words("""
    Select From Join Where Group Having Qualify Order Ordered Limit Offset Fetch Distinct With CTE Subquery
    Table TableAlias Alias Star Union Except Intersect Values
    WithinGroup Window WindowSpec Filter Dot Collate
""")

AGGREGATES = words("""
    Count CountIf Sum Avg Min Max Median Quantile PercentileCont PercentileDisc ApproxQuantile
    ApproxDistinct Stddev StddevPop StddevSamp Variance VariancePop AnyValue First Last Mode
    LogicalAnd LogicalOr ArrayAgg GroupConcat Corr CovarPop CovarSamp Grouping
""")

WINDOWS = words("RowNumber Rank DenseRank PercentRank CumeDist Ntile Lag Lead FirstValue LastValue NthValue")

NAMED_OVER_ROWS = words("""
    row_number rank dense_rank ntile lag lead percent_rank cume_dist first_value last_value nth_value
    median quantile quantile_cont quantile_disc
""")


def identifier(name: str) -> str:
    """A quoted SQL identifier.

    >>> identifier('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def free_name(taken: Collection[str], name: str, *others: str) -> str:
    """The first of some names that is free whatever its case; else the first of all, with a number behind it.

    Args:
        taken: in lower case.

    >>> free_name({"day", "day_2"}, "Day"), free_name({"day"}, "Day", "sales_day")
    ('Day_3', 'sales_day')
    """
    numbered = (f"{name}_{i}" for i in count(2))
    return next(n for n in chain((name, *others), numbered) if n.lower() not in taken)


def literal(text: str) -> str:
    """A quoted SQL string.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
