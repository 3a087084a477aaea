"""Variance models: public facts about a release, in a form that makes a range cheap.

After least squares the leaf estimates of an axis are correlated, so a variance is a function of the
whole query, never a sum of per-node variances. Each module holds one kind of model of one axis.

    model       independent, dense or grouped leaves    O(1) per range; O(leaves) where grouped
    tree        weighted tree after BLUE                O(depth)
    intervals   sparse interval rows after BLUE         O(log rows)
    sine        the sine-transform strategy             O(1)
    blocks      boxes of cells, measured cell by cell or as wholes
    entropy     boxes over three axes and more, fitted to tables of pairs
"""

from dpsql.matrices.model import AxisVariance, covariance, mean_variance

__all__ = ["AxisVariance", "covariance", "mean_variance"]
