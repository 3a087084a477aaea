"""Local collections: a public plan, reports from people's devices, and a release made of nothing but reports.

| module    | idea |
|-----------|------|
| survey    | a catalog as questions to people |
| plan      | which views people are drawn to, by which oracle, how often |
| forecast  | how noisy answers will be, and how many rows of one person may speak |
| services  | one plan for each of several services that cannot join on a device |
| files     | plans, the collector's private state, the release: whole or not there |
| collector | files or a server's tables in, counts out: idempotent by file, one report a token |
| tallies   | a plan with its counts per view and fold of people, and what each kind of view tells |
| reported  | columns that people report beside rows that a curator holds |
| estimate  | tallies to tables of shares with covariances |
| totals    | one number from all axes: rows, a measure's total, its centre, one report's reach |
| parts     | interactions of several axes |
| smooth    | smooth, non-negative estimates beside the unbiased ones |
| content   | tables to a release of the same shape as a central one |
| ahead     | adaptive collections, a plan a round, to a release |
| joined    | reports of several services to a release |
| simulate  | a raw star as people with rows, and their reports |
| run       | plan, collect: the two steps |
"""
