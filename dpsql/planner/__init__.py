"""Planning: from the blocks of a bound statement to the views of a release that can answer them.

    schema          tables, keys and axes of a release, information_schema; columns, conditions and terms of a block
    block           forms of a block's values, free of parser types
    axis_query      predicates and groups, evaluated on an axis table -> coverage of leaves
    leaf_values     values that the leaves of an axis stand for
    plan            leaves on each axis, disjoint boxes
    answerability   which stored numbers add up, keys that are not shown, and the listing of views
    domain_values   answers of the catalog alone; `quantiles` those of cumulative counts
    notes           caveats that no interval expresses

**Privacy**: post-processing of a release.
"""
