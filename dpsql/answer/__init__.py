"""From SQL text to a Result: sees releases only, draws no noise, opens no raw row.

answerer    the whole way, and its cache: read this first
sql/        guard, parse, whitelist, name resolution; the only code here that knows the parser
block       what an aggregate block asks, free of parser types
forms       how a value depends on noisy terms
schema      tables, keys and axes of a release
leafsets    predicates and groups, evaluated by DuckDB on an axis table -> coverage of leaves
boxes       boolean conditions over several axes -> disjoint boxes
plan        how a view would answer
partial     how much of that would be interpolated
choose      which view answers, with the least predicted variance
nodes       leaf coverage -> tree nodes
recombine   one DuckDB statement that sums node combinations
relation    a block -> the relation of its groups
known       what the catalog alone answers
errorbars   variances, delta method, Fieller
weight      the weight that a local release's counts and sums share, in their error bars
cuts        what interpolating cut bins may add to an error
explain     a plan in words
result      what the caller gets
"""

from dpsql.answer.answerer import Answerer
from dpsql.answer.result import Result

__all__ = ["Answerer", "Result"]
