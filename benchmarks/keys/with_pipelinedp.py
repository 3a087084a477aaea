"""PipelineDP's partition selection on a star's keys; run by the interpreter of its own environment.

python with_pipelinedp.py counts.npz epsilon delta cap

A person gives at most `cap` keys one row each; the most that the library's three strategies show.
"""

from __future__ import annotations

import sys

import numpy as np


def main(file: str, epsilon: float, delta: float, cap: int) -> int:
    import pipeline_dp as dp
    from pipeline_dp.partition_selection import create_partition_selection_strategy

    counts, shown = np.load(file)["count"].tolist(), []
    for name in dp.PartitionSelectionStrategy:
        strategy = create_partition_selection_strategy(name, epsilon, delta, cap, None)
        shown.append(sum(strategy.should_keep(count) for count in counts))
    return max(shown)


if __name__ == "__main__":
    print(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
