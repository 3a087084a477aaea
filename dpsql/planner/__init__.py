"""Planning: from the blocks of a bound statement to the views of a release that can answer them.

    schema          tables, keys and axes of a release; `views` lists them, and information_schema
    terms, block    columns, conditions and noisy terms of a block, free of parser types
    axis_query      predicates and groups, evaluated on an axis table -> coverage of leaves
    plan            leaves on each axis, disjoint boxes; `answerability` says which stored numbers add up
    domain_values   answers of the catalog alone; `quantiles` those of cumulative counts
    absent_values, leaf_values, unlisted_keys, dangling_keys
                    values, keys and rows that no leaf of an axis stands for
    notes           caveats that no interval expresses

**Privacy**: post-processing of a release.
"""
