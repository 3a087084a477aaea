"""Several releases in one session: which of them answers, and whom each stands for.

    session         open releases and the caches of their statements
    route           the release, central or local, that answers a statement with the least error
    population      people that the reports of a local release represent, and one table from all releases
    respondents     compared with a central release, and weighted to the margins that both have
    common_groups   groups of two releases, however each of them cuts a column
    tables          tables and views of all releases together

**Privacy**: post-processing of releases.
"""
