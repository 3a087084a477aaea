"""Stages of long work as values: what is done, to what, with which counts, how far. Who shows them chooses the words.

**Privacy**: what a stage counts is public, or told to the curator alone.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class Stage:
    """A stage that was reached.

    Args:
        doing: what is done.
        what: the table, view or file that it is done to; empty for all.
        counts: what there is of what.
        done, total: how many of such stages are begun, of how many; None where nobody knows.

    >>> print(Stage("drawing", "sales", done=1, total=2)), print(Stage("planned", counts={"axes": 2, "cells": 60}))
    drawing sales (1 of 2)
    planned: 2 axes, 60 cells
    (None, None)
    """

    doing: str
    what: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    done: int = 0
    total: int | None = None

    def __str__(self) -> str:
        """A line for people."""
        far = "" if self.total is None else f" ({self.done} of {self.total})"
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        return f"{self.doing} {self.what}".rstrip() + far + (f": {counts}" if counts else "")


Progress: TypeAlias = Callable[[Stage], None]
"""Called with each stage; `print` will do."""


def silent(stage: Stage) -> None:
    """Show nothing."""


def in_notebook() -> Progress | None:
    """A bar below the cell that runs; None outside of a notebook."""
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    if running is None or not hasattr(running, "kernel"):
        return None
    from IPython.display import HTML, display

    handle = display(HTML("<progress></progress> starting"), display_id=True)

    def show(stage: Stage) -> None:
        far = "" if stage.total is None else f' value="{stage.done}" max="{stage.total}"'
        handle.update(HTML(f"<progress{far}></progress> {html.escape(str(stage))}"))

    return show
