"""Units that own any number of rows: the recipe for `max_ids: auto`.

Read `recipe.settle_table` from the top. Modules, in the order in which they depend on each other:

| module | holds |
|---|---|
| `constants` | every measured number of the recipe, with the measurement that set it |
| `histogram` | noisy histograms of people by an amount, quantiles, totals |
| `tail` | what people own above a bound, read off a histogram; clips and clipped totals |
| `factors` | the scale factor of rows and of each measure, with errors |
| `norm_clipping` | one weight a person under Gaussian noise: the joint whitened norm, clipped |
| `statements` | SQL for the engine that holds the rows: people, norms, weights, weighted cells |
| `selection` | ledger steps, tau, totals, centres |
| `clipping` | one class for each noise distribution: shares, weights, draws |
| `recipe` | the whole recipe of a table, and the deviation of groups |
| `guess`, `rehearsal` | the recipe on a table made up from public statements |
"""
