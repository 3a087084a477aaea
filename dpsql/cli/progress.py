"""Progress of long commands: a bar with the current step on a terminal, silence otherwise.

The bar fills where steps are counted (`view 3 of 14`) and runs to and fro where nobody knows how many there are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dpsql.engine import Progress

COUNTED = re.compile(r"\w+ (\d+) of (\d+)")


def filled(step: str) -> tuple[int, int | None]:
    """How many steps are done, of how many; None where the step is not a counted one.

    Example:
        >>> filled("view 3 of 14"), filled("writing r.parquet"), filled("r.jsonl: 7 of 9 reports")
        ((3, 14), (0, None), (0, None))
    """
    found = COUNTED.fullmatch(step)
    return (int(found[1]), int(found[2])) if found else (0, None)


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
            done, total = filled(step)
            if total is None:
                bars.update(task, description=step)
            else:
                bars.update(task, description=step, completed=done, total=total)
            bars.print(step, style="dim", highlight=False, markup=False)

        yield show
