"""Children that tests stop, and the CPU time that they take: a loaded machine does not lengthen it."""

from __future__ import annotations

import resource
import signal


def heed_interrupts() -> None:
    """For `preexec_fn`: a background job is started with SIGINT ignored, and its children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def ended_children() -> float:
    """CPU seconds of all children that have ended and were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
