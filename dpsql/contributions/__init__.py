"""Units that own any number of rows: the recipe for `max_ids: auto`.

Read `recipe.settle_table` from the top. Modules, in the order in which they depend on each other:

| module | holds |
|---|---|
| `constants` | every measured number of the recipe, with the measurement that set it |
| `histogram` | noisy histograms of people by an amount, quantiles, totals |
| `tail` | what people own above a bound, read off a histogram; clips and clipped totals |
| `factors` | the scale factor of rows and of each measure, with errors |
| `statements` | the joint whitened norm; SQL for the engine that holds the rows: people, norms, weights, cells |
| `selection` | ledger steps, tau, totals, centres |
| `recipe` | the whole recipe of a table; clipping by each noise distribution; the deviation of groups |
| `rehearsal` | the recipe on a table made up from public statements |
"""
