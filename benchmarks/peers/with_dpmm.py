"""MST (or AIM) of private-pgm's family, as dpmm ships them: synthetic rows, of which every pair of columns is counted.

One JSON object in: rows as leaves by column, the leaves of each column, epsilon, delta, model. One out: a table a pair.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from itertools import combinations

from benchmarks.peers.protocol import lines


def main() -> None:
    """Fit, generate, count."""
    out, sys.stdout = sys.stdout, sys.stderr
    job = json.load(sys.stdin)
    start = time.process_time()
    # user
    import numpy as np
    import pandas as pd
    from dpmm.pipelines.aim import AIMPipeline
    from dpmm.pipelines.mst import MSTPipeline

    frame = pd.read_csv(job["rows"])
    model = {"mst": MSTPipeline, "aim": AIMPipeline}[job["model"]](
        epsilon=job["epsilon"], delta=job["delta"], compress=True, disable_processing=True, n_jobs=1
    )
    model.fit(frame, domain=job["leaves"])
    synthetic = model.generate(n_records=len(frame))
    # end
    tables = []
    for a, b in combinations(job["leaves"], 2):
        sides = [np.arange(job["leaves"][name] + 1) for name in (a, b)]
        tables.append(np.histogram2d(synthetic[a], synthetic[b], bins=sides)[0].tolist())
    found = {
        "tables": tables,
        "cpu": time.process_time() - start,
        "version": version("dpmm"),
        "lines": lines(__file__),
    }
    json.dump(found, out)


if __name__ == "__main__":
    main()
