"""From SQL text to a Result: sees releases only, draws no noise, opens no raw row.

    sql/        guard, parse, whitelist, name resolution; the only code here that knows the parser
    block       what an aggregate block asks, free of parser types
    schema      tables, keys and axes of a release
    leafsets    predicates and groups, evaluated by DuckDB on an axis table -> coverage of leaves
    boxes       boolean conditions over several axes -> disjoint boxes
    plan        which view answers, with the least predicted variance
    recombine   leaf coverage -> tree nodes -> one DuckDB statement that sums node combinations
    errorbars   variances, delta method, Fieller
    result      what the caller gets
    session     the whole way, and its caches: read this first
"""
