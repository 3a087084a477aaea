"""Children that tests stop with Ctrl-C."""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """For `preexec_fn`: a background job is started with SIGINT ignored, and its children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
