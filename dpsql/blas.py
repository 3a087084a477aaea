"""Dense linear algebra on one thread, for work that is many small solves.

Numpy's BLAS starts a thread a core for every product and factorisation. Local estimates solve thousands of systems of
tens to hundreds of unknowns; there the threads cost far more in waiting for each other than they bring, above all while
other programs use the cores. A user should not have to know of `OPENBLAS_NUM_THREADS`.

| work (2 cores; a machine in use, and with two busy programs besides) | a thread a core | one thread |
|----------------------------------------------------------------------|-----------------|------------|
| release of one axis of 100 leaves, by the stack                      | 4.7-7.1, 14 s   | 0.5, 1.5 s |
| release of two views of two axes, by joint fits                      | 34 s            | 1.8, 5.2 s |

Planning a central release takes the same time either way, so publishing leaves the threads alone.

The number of threads mostly belongs to the process, so only one Python thread at a time is inside a block.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

_turn = threading.RLock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS on one thread inside a `with` block or a decorated function; the number before comes back after it.

    Blocks may be nested; another Python thread waits until the first one has left.
    """
    with _turn, threadpool_limits(limits=1, user_api="blas"):
        yield
