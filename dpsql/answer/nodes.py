"""Coverage of leaves -> nodes of the axis's look-up tree, with weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsql.answer.leafsets import AxisCells, FloatArray, IntArray, masks
from dpsql.tree import Tree, cover


@dataclass(frozen=True, eq=False)
class NodeList:
    """Nodes that add up to each group's leaves.

    Args:
        group, node: indices, shape (m,).
        weight: 1 for whole nodes, the coverage for a cut leaf, shape (m,).
    """

    group: IntArray
    node: IntArray
    weight: FloatArray

    @property
    def whole(self) -> bool:
        """Whether no leaf is cut."""
        return bool(np.all(self.weight == 1.0))


def runs(mask: npt.NDArray[np.bool_]) -> tuple[IntArray, IntArray, IntArray]:
    """Maximal runs of True in each row.

    Args:
        mask: shape (groups, leaves).

    Returns:
        (row, start, stop) of each run, half-open.

    >>> [a.tolist() for a in runs(np.array([[True, True, False, True]]))]
    [[0, 0], [0, 3], [2, 4]]
    """
    padded = np.zeros((mask.shape[0], mask.shape[1] + 2), np.int8)
    padded[:, 1:-1] = mask
    change = np.diff(padded, axis=1)
    row, start = np.nonzero(change == 1)
    stop = np.nonzero(change == -1)[1]
    return row.astype(np.int64), start.astype(np.int64), stop.astype(np.int64)


def node_list(cells: AxisCells, truths: frozenset[int] | None, tree: Tree) -> NodeList:
    """The least nodes for each group.

    Args:
        cells: coverage of leaves.
        truths: which truth patterns count; None for all.
        tree: the axis's look-up tree.

    Returns:
        The nodes of all groups.
    """
    mask = masks(cells, truths)
    row, start, stop = runs(mask == 1.0)
    which, node = cover(tree, start, stop)
    part_row, part_leaf = np.nonzero((mask > 0.0) & (mask < 1.0))
    return NodeList(
        np.concatenate([row[which], part_row]),
        np.concatenate([node, tree.leaves[part_leaf]]),
        np.concatenate([np.ones(len(node)), mask[part_row, part_leaf]]),
    )
