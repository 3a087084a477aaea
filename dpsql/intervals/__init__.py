"""Standard errors and intervals of values over noisy cells.

errorfunctions  DP_STDERR and its kin; intervals of functions of one value: SQRT, LN, GREATEST ..
reads           what a release stores of an answer, and its covariances group by group
linear          numbers that are linear in cells: weights, reads and covariances, of a block's rows and of outer sums
composite       any value: standard error, interval, components
cells           what a column of an outer statement follows; rows that noisy values chose
partial_bins    bins that are cut: how much is interpolated, when it is refused; `reads` what it may add
possible        values that an exact answer can have
scale           scale, spread and tail of tables whose shapes were scaled to totals
excess          rows beyond a contribution bound

**Privacy**: post-processing of a release.
"""
