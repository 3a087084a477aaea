"""NOT SHIPPED: Fenwick nodes with equal budgets, 1 / bit_length(N) each, to show what FDA's budgets gain."""

from __future__ import annotations

import numpy as np

from dpsql.mechanisms.law import NoiseLaw
from dpsql.mechanisms.timeline.fda import fenwick_nodes
from dpsql.mechanisms.timeline.nodes import NodeErrors, node_errors


def equal_fenwick(law: NoiseLaw, horizon: int) -> NodeErrors:
    """Errors over `horizon` batches; no batch lies in more than bit_length(N) nodes."""
    return node_errors(fenwick_nodes(horizon), np.full(horizon, 1 / horizon.bit_length()), law)
