"""Children that tests stop, and the CPU time that they take: a loaded machine does not lengthen it."""

from __future__ import annotations

import resource
import signal
import subprocess
from collections.abc import Sequence
from typing import Any


def heed_interrupts() -> None:
    """For `preexec_fn`: a background job is started with SIGINT ignored, and its children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def piped(command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """A child that heeds interrupts, with pipes for what it prints."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, preexec_fn=heed_interrupts, **pipes, **options)


def ended_children() -> float:
    """CPU seconds of all children that have ended and were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
