"""A first catalog, drafted from raw tables as somebody who knows them would: read `drafting` first.

    words     what names tell
    look      what stands in the tables: columns, types, few values, bounds
    links     which column names which table's rows, by names and by inclusion of values
    roles     facts, dimensions and bridges; whose the rows are; what may be public
    domains   columns as axes and measures: bounds, cuts, categories in their order; ids and free text left out
    views     a first view of every fact, where no questions were given
    drafting  all of it as YAML

**Privacy**: sees raw rows, for the curator's eyes. What was read of private rows carries `confirm: true`, and
publishing refuses while one is left.
"""
