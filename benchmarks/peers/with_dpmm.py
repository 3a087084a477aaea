"""MST (or AIM) of private-pgm's family, as dpmm ships them: synthetic rows, of which every pair of columns is counted.

One JSON object in: rows as leaves by column, the leaves of each column, epsilon, delta, model, iterations of inference,
megabytes of the model, seconds of CPU. One out: a table a pair. Past its CPU the system ends it.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from importlib.metadata import version
from itertools import combinations

from benchmarks.peers.protocol import lines


def main() -> None:
    """Fit, generate, count."""
    out, sys.stdout = sys.stdout, sys.stderr
    job = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (job["seconds"], job["seconds"]))
    start = time.process_time()
    # user
    import numpy as np
    import pandas as pd
    from dpmm.pipelines.aim import AIMPipeline
    from dpmm.pipelines.mst import MSTPipeline

    frame = pd.read_csv(job["rows"])
    model = {"mst": MSTPipeline, "aim": AIMPipeline}[job["model"]](
        epsilon=job["epsilon"], delta=job["delta"], compress=True, disable_processing=True, n_jobs=1,
        max_model_size=job["megabytes"], gen_kwargs={"n_iters": job["iterations"]},
    )  # fmt: skip
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
