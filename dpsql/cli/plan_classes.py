"""How `dpsql plan` shows tables with `max_ids: auto`: relative errors by kind of question, hopeless views."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.forecast import PlanReport
    from dpsql.publishing.userlevel_predict import Hopeless


def class_lines(report: PlanReport) -> list[str]:
    """Kinds of questions over all views, then view by view, then what to coarsen or drop.

    Args:
        report: a plan's report.

    Returns:
        Lines; where no guess was stated, a word on how to state one; none without such tables.
    """
    if not report.classes:
        chosen = any(s.tau == 0 for s in report.statistics)
        return ["relative errors: state --units and --rows, public guesses"] if chosen else []
    from dpsql.publishing.userlevel_predict import by_kind

    lines = [
        "relative errors of typical questions, one standard error, if rows lie evenly (skewed groups: more)"
    ]
    for (of, kind, measure), (error, mean) in by_kind(report.classes).items():
        lines.append(f"  {of}, {kind}: {_errors(measure, error, mean)}")
    for c in report.classes:
        if c.view:
            lines.append(f"    {c.view}, {c.kind}: {_errors(c.measure, c.error, c.mean_error)}")
    lines += [
        f"  table {b.of} has few units: bounds are chosen well from about {b.fewest} on, errors may be far above these"
        for b in report.blind
    ]
    return lines + [_hopeless_line(h) for h in report.hopeless]


def _errors(measure: str, error: float, mean: float | None) -> str:
    if mean is None:
        return f"COUNT {error:.1%}"
    return f"SUM of {measure} {error:.1%}, AVG {mean:.1%}"


def _hopeless_line(hopeless: Hopeless) -> str:
    if not hopeless.view:
        return f"  table {hopeless.of} is hopeless (predicted error {hopeless.error:.0%}): coarsen its axes or drop it"
    advice = f", view {hopeless.coarser} answers better" if hopeless.coarser else ""
    return f"  view {hopeless.view} is hopeless (predicted error {hopeless.error:.0%}): coarsen or drop it{advice}"
