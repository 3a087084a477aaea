"""From SQL text to a Result: sees releases only, draws no noise, opens no raw row.

answerer    the whole way, and its cache: read this first
sql/        guard, parse, whitelist, name resolution; the only code here that knows the parser
terms       columns, conditions and noisy terms of a block; block puts them together, free of parser types
schema      tables, keys and axes of a release; views lists them, and information_schema
leafsets    predicates and groups, evaluated on an axis table -> coverage of leaves
plan        how a view would answer: leaves on each axis, disjoint boxes
answered    leaf coverage -> tree nodes -> one DuckDB statement -> terms
relation    a block -> the view that answers -> the relation of its groups
known       what the catalog alone answers, and quantiles
uncertainty forms of values, their standard errors and intervals: linear numbers, quotients, cut bins, scale
notes       what no error bar tells: whom an answer is about, what may have biased it
explain     a plan in words; predict says standard errors beforehand
errorfunctions  DP_STDERR and its like, by their names in SQL
run         one DuckDB statement, and stopping it
result      what the caller gets; output writes and draws it
session     open releases, several together; combine blends their answers
"""

from dpsql.answer.answerer import Answerer
from dpsql.answer.result import Result

__all__ = ["Answerer", "Result"]
