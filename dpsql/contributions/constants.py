"""Constants of the recipe for `max_ids: auto`: one table, each with the measurement that set it.

Half-widths are medians of 95% intervals of COUNT at (1, 1e-6) over nine design stars, divided by those of the best
fixed bound of each star; with all constants as below they are 1.75 for totals and 2.56 for groups. "Coverage" is the
share of intervals that contain the exact answer. Nothing here was set on the stars that judge it
(`benchmarks.userlevel.stars.HELD_BACK`, `FURTHER`).

**Source**: docs/method/rows.md, "The low bound", "Totals with a high bound", "A factor for each measure".
"""

from __future__ import annotations

# Histograms of people.

QUIET = 2.0
"""Noise SDs below which a bin counts as empty."""

ROW_ENDS = (1, 2, 3, 4, 6, 8, 12, *(1 << octave for octave in range(4, 16)))
"""Upper ends of the bins of rows per unit: half octaves up to 16, since short tails end at any row, then octaves."""

SUM_BINS, SUM_START = 20, 16
"""Bins of sums per unit: from a 16th of the largest value of one row, doubling."""

NORM_BINS, NORM_START = 20, 8
"""Bins of squared norms: from 2^-8 of the typical one, doubling."""

# The last clear bin.

CLEAR_BIN = 2.0
"""Noise SDs above which the next bin belongs to the visible tail; single far bins above it are noise and moved totals
by 200%."""

CERTAIN_BIN = {2: 4.0, 1: 6.0}
"""Noise SDs above which a bin counts alone, by the norm of the noise: a gap may lie before it. One Laplace bin in ten
thousand passes 6, one Gaussian bin in thirty thousand passes 4."""

# Curves of people per bin, beyond the last clear bin.

SLOPES = (-1.0, -0.5, 0.0, 0.3, 0.6, 0.9, 1.2, 1.6, 2.0, 2.5, 3.2, 4.0, 6.0)
BENDS = {0.0: 1.0, 0.1: 1.0, 0.2: 1.0, 0.4: 1.0, 0.8: 1.0, 1.6: 1.0, 3.2: 0.1, 6.4: 0.1, 12.8: 0.1}
"""Bend of a power curve -> its prior weight. Above 2 a curve ends: without such curves totals are 2.36 wide, and
of a table where everybody owns one row they cover 67%."""

STEEPEST_RISE = 2.0 ** -min(SLOPES)
"""Times as many people as the bin before that the last clear one has at most, along any curve."""

HEIGHTS = tuple(z / 2 for z in range(-4, 5))
"""Noise SDs between the last clear bin as drawn and where a power curve starts."""

ENDING_BEND = 2.0
"""Bends above it end: amounts inside every bin of such a curve have its slope."""

PLATEAUS = (0.15, 0.3, 0.6, 1.0, 1.4, 1.8, 2.2)
PLATEAU_BINS = range(1, 11)
SPIKE_SLOPES = (1.5, 3.0, 8.0)
SPIKE_HEIGHTS = (-1.0, 0.0, 1.0)
"""Block curves: a spike of light people, then a plateau of so many noise SDs over so many bins."""

FAINT = 16.0
"""Noise SDs of people at which plateaus weigh half as much as power curves."""

BLOCKS_LEAST, BLOCKS_MOST = 0.08, 0.5
"""Weight of blocks over that of power curves. At least .04 the SUM of Online Retail covers 73%."""

HIDDEN_LEAST, FEW_SEEN = 0.002, 60.0
"""The same of plateaus after an end (spike 8), and the noise SDs of people from which only the least is left."""

ISLANDS = (3.0, 4.0, 5.0, 6.0)
ISLAND_STARTS, ISLAND_BINS = range(1, 12), (1, 2)
ISLANDS_WEIGHT = 0.0003
"""People far beyond a gap: so many noise SDs in one or two bins. 4 SDs in one Laplace bin move these curves, 2 do not.
Pure totals of a table with few heavy people cover 40% with them, 3% without."""

INNER_SLOPE = 0.7
"""Slope of amounts inside bins before and beyond the last clear one. With the curve's own slope beyond it the SUM of
Online Retail covers 80%."""

INNER_LEAST, INNER_MOST = -1.0, 12.0
POINTS, EXACT_TO = 8, 32
"""Amounts inside a bin: its whole numbers up to 32 rows, else 8 points. An end at 10 and one at 16 have the same bins,
and with slope .7 for both uniform rows from 1 to 10 covered 85%."""

MIDDLE = 0.72
"""Mean amount of a bin's people over its upper end."""

RICHEST = 9.0
"""Curves own at most so many times what visible bins own."""

NEGLIGIBLE = 1e-5
"""Weight of a curve, over the best one's, below which it is dropped."""

CHANCE = 0.9
"""Posterior quantile of the variance of who comes and who does not. The mean is ruled by curves of weight 1e-4 with
people in bins of 32,768 rows: totals 2.28."""

SIDE = 1.96
"""Standard errors on each side of a 95% interval."""

CLIP_STEPS = range(-2, 9)
"""Clips that compete: the end of the last clear bin times 2^(j / 2)."""

BLIND_ROWS, BLIND_SUMS = 8.0, 30.0
"""Noise SDs of people below which a histogram shows nothing: of rows, and of sums whose median is in the first bin."""

LOST = 3.0
"""Standard errors downwards that a total must be above 0 to be a scale."""

# Factors.

SEEN = 3.0
"""Standard errors from 0 at which a number counts as seen."""

FACTOR_LEAST = 0.5
"""Factors are cut here and not at 1. Where nothing is left out half of all draws have N < L_t; cut at 1 they answered
with the noisier total of the views, and the pure SUM of the demo covered 79% instead of 94%."""

GAP = 2.0
"""Standard errors from which the gap between two factors counts as real."""

ALIKE, UNEVEN = 0.03, 0.15
"""Prior deviation between two factors: at least, and for each unit of unevenness."""

WIDEST = 0.25
"""The most that its square is taken to be."""

TOGETHER = 0.5
"""Correlation of the errors of two tails of the same people."""

INFLUENCE = 0.05
"""Relative error of a sum whose factor is the rows' alone. Without it the SUM of Online Retail covers 80%."""

VALUES = 0.5
"""Standard deviation of the mean value of rows that heavy people own, relative to that of others: a judgement, as for
rows beyond declared bounds. Without it totals of 472 people at 60 rows, seen among rows and not among sums, covered
12% under pure epsilon 1, and 75% with it: the star that showed it. On ten real stars the half-widths of pure totals of
sums are 1.004 of what they were, all others 1.000."""

MEAN_LEAST, MEAN_SLOPE = 0.06, 0.12
"""Standard error of averages where sums are too faint for a factor: at least, and for each unit of log R."""

# The low bound and groups.

LOW_QUANTILES = (0.9, 0.95, 0.8, 0.98, 0.7, 0.99, 0.6, 0.995, 0.5, 0.998, 0.999)
"""Quantiles of rows per unit that tau may be, in the order that decides ties. Up to .9 alone groups are 4.01. Those
above .99 are chosen on none of ten real stars at epsilon 1 and less: they are for large budgets and many people, whose
groups would keep the error of what the last percent owns."""

FAR_QUANTILE = 0.9
"""Quantiles above it are read off bins up to the last clear one alone: far bins are noise."""

NORM_QUANTILE = {0.5: 0.4}
"""Quantile of the norms that K is, where it is not that of tau: K = q.4 was as good for counts of FoodMart and Online
Retail, and better for ranges and averages."""

TASTE = 1.2
"""Deviation of a group over U F (1 - F): it may hold none of the rows beyond the low bound, or more than twice its
share. At .8 the tiers of nafld cover 70%."""
