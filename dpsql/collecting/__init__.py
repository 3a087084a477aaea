"""Local collections: a public plan, reports from people's devices, and a release made of nothing but reports.

| module     | idea |
|------------|------|
| plan       | which views people are drawn to, from axes and measures |
| predict    | how noisy answers will be, before anyone reports |
| decode     | report bytes to items, everything else rejected by reason |
| collector  | spools in, tallies out: idempotent by file, one report a token |
| tallies    | counts per view and fold of people |
| estimate   | tallies to tables of shares with covariances |
| content    | tables to a release of the same shape as a central one |
| raw        | a raw star as people with rows |
| simulate   | people with rows to reports, for planning and for tests |
| survey     | a catalog as questions to people |
| parts      | interactions of several axes |
| smooth     | the smooth estimates beside the unbiased ones |
| positive   | smooth, non-negative counts, stored beside them for answers on request |
| rounds     | adaptive collections, a plan a round |
| run        | plan, collect: the two steps |
"""
