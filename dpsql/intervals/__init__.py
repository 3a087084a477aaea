"""Standard errors and intervals of values over noisy cells.

forms         how a value follows from counts, sums and the catalog
reads         what a release stores of an answer, and its covariances group by group
linear        numbers that are linear in cells: weights, reads and covariances, of a block's rows and of outer sums
fieller       quantiles of noise; intervals of quotients
image         intervals of functions of one value: SQRT, LN, GREATEST ..
composite     any value: standard error, interval, components
cells         what a column of an outer statement follows
partial_bins  bins that are cut: how much is interpolated, when it is refused, what it may add
scale         scale, spread and tail of tables whose shapes were scaled to totals
beyond        rows beyond a contribution bound
chosen        intervals of rows that noisy values chose
estimated     what a function of an error may ask of numbers

**Privacy**: post-processing of a release.
"""
