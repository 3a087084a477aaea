"""Progress of long commands: a bar with the current step on a terminal, silence otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dpsql.engine import Progress


@contextmanager
def steps(title: str) -> Iterator[Progress | None]:
    """A callback that shows each step on standard error while the block runs.

    Args:
        title: what is being done, for instance `publish`.

    Yields:
        A callback for the engine, or None where standard error is not a terminal.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    what, step_now = TextColumn("{task.fields[title]}"), TextColumn("{task.description}")
    columns = (SpinnerColumn(), what, BarColumn(24), TimeElapsedColumn(), step_now)
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("starting", total=None, title=title)

        def show(step: str) -> None:
            bars.update(task, description=step)
            bars.print(step, style="dim", highlight=False, markup=False)

        yield show
