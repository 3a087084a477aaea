"""`dpsql report`: one HTML file without a script that needs no network, for whoever has to trust or use a release."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from html import escape

from dpsql.executor.engine import ReleaseEngine
from dpsql.federation.session import OpenReleases
from dpsql.interfaces.python import describe
from dpsql.interfaces.web.page import asset, document
from dpsql.intervals.reads import weight_error
from dpsql.planner.notes import PARTICIPATIONS, beyond_notes
from dpsql.release import Release, StatisticMeta
from dpsql.release.format import Promise, ScaleMeta, SpentAmount, to_json
from dpsql.release.promises import FREE, RULE, promise_together, promise_words, short
from dpsql.release.reports import LocalMeta, ShuffledMeta
from dpsql.results.render import shown, split_margin

MOST_QUESTIONS = 12

SIMULATED = (
    "These reports were simulated on one machine that saw all rows. The release shows what a collection would "
    "bring; it protects nobody."
)


def report_page(release: Release, beside: OpenReleases | None = None) -> str:
    """The page as HTML.

    Args:
        release: an open release.
        beside: it and others that are open together: what they promise, and whom each stands for.

    Returns:
        A whole document.

    **Privacy**: shows what the release publishes to everybody anyway.
    """
    name, description, weighted = release.name, release.catalog.description, weight_error(release) > 0
    alone = OpenReleases((release,), (ReleaseEngine(release),))
    sections = [
        f"<h1>{escape(name)}</h1>",
        f"<p>{escape(description)}</p>" if description else "",
        f'<p class="soft">release {escape(release.meta.release_id)}</p>',
        *_headlines(describe.totals(alone)),
        *_questions(describe.well_answered(alone, MOST_QUESTIONS)),
        "<h2>What is promised</h2>",
        *_promise(release.meta.privacy),
        *([f"<p>{RULE.format(release.min_people)}</p>"] if release.min_people else []),
        *collected(release.meta.local),
        *(_together(beside) if beside is not None else ()),
        "<h2>What was spent</h2>",
        table(("on", "part"), _spent(release.meta.spends)),
        f"<p>{FREE}</p>",
        *_scales(release.meta.scales, weighted),
        *_bounding(release),
        *(_view(release, view) for view in dict.fromkeys(s.view for s in _of_rows(release))),
    ]
    sheet = asset("dpsql.interfaces.web.report", "page.css")
    return document(f"{name}: release report", "\n".join(sections), sheet)


def _headlines(rated: Sequence[describe.RatedQuestion]) -> list[str]:
    """Totals and averages in large letters, each with its margin, and what must be known to read them."""
    if not rated:
        return []
    cards = []
    for question, answer, _ in rated:
        value, margin = split_margin(shown(answer)[0][0][0])
        words = f"<dt>{escape(question.words)}</dt>"
        cards.append(f"<div>{words}<dd>{escape(value)} <small>{escape(margin)}</small></dd></div>")
    flags = dict.fromkeys(flag for _, answer, _ in rated for flag in answer.flags)
    return [
        f'<dl class="headlines">{"".join(cards)}</dl>',
        *(f"<p>{escape(flag)}</p>" for flag in flags),
        '<p class="soft">± is half of a 95% interval; -/+ shows its reach to either side.</p>',
    ]


def _questions(rated: Sequence[describe.RatedQuestion]) -> list[str]:
    """Questions that the release answers well."""
    rows = [(asked.words, " ".join(asked.sql.split()), f"± {error:.1%}") for asked, _, error in rated]
    if not rows:
        return []
    head = ("question", "in SQL", "standard error to expect")
    return ["<h2>What you can ask</h2>", f'<div class="wide" tabindex="0">{table(head, rows)}</div>']


def _spent(spends: Sequence[SpentAmount]) -> list[tuple[str, ...]]:
    total = sum(Fraction(spend.amount) for spend in spends)
    return [
        (spend.purpose, f"{float(Fraction(spend.amount) / total):.0%}" if total else "0") for spend in spends
    ]


def _together(opened: OpenReleases) -> list[str]:
    """Releases that are open together: what they promise a person who is in all of them, and who answers for whom."""
    promised = promise_together([release.meta for release in opened.releases])
    words = (
        "no single epsilon: their promises are of different kinds"
        if promised is None
        else f"epsilon {promised['epsilon']} for replacing everything of one {promised['unit']}"
    )
    rows = [(release.name, release.meta.release_id) for release in opened.releases]
    standing = [] if opened.router is None else opened.router.words()
    return [
        "<h2>Opened together</h2>",
        table(("release", "id"), rows),
        f"<p>Whoever is in all of them is promised {escape(words)}, whichever answers.</p>",
        *(f"<p>{escape(line)}</p>" for line in standing),
    ]


AMOUNTS = ("epsilon", "delta", "mu2")


def _promise(promise: Promise) -> list[str]:
    rows = [
        (key, short(value) if key in AMOUNTS else _words(value)) for key, value in to_json(promise).items()
    ]
    return [*(f"<p>{escape(words)}</p>" for words in promise_words(promise)), table(("part", "value"), rows)]


def _words(value: object) -> str:
    """A part of the promise: tables and what is said of them, or a list, or a word.

    >>> _words({"sales": 20, "customer": 1}), _words(["a", "b"]), _words(True)
    ('sales 20, customer 1', 'a, b', 'True')
    """
    if isinstance(value, dict):
        return ", ".join(f"{key} {element}" for key, element in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def collected(local: LocalMeta | None) -> list[str]:
    """The page's part about people's own reports; nothing for a central release.

    Args:
        local: what they reported, or None.

    Returns:
        HTML.
    """
    if local is None:
        return []
    manifest = local.manifest
    rows = [
        ("collection", local.collection),
        ("reports accepted", f"{manifest.accepted:,} of {manifest.reports:,}".replace(",", " ")),
        *((f"rejected: {why}", str(count)) for why, count in manifest.rejected.items()),
        ("rows of one person that are counted (tau)", str(local.tau)),
        *_told(local),
    ]
    about = PARTICIPATIONS[local.participation].note.format(f"{local.reporters:,}")
    whom = f"<p>Counts, sums and averages are {escape(about)}.</p>"
    stamp = [f"<p><strong>{SIMULATED}</strong></p>"] if local.simulated else []
    return ["<h2>Who reported</h2>", whom, *stamp, table(("what", "value"), rows), *_shuffled(local.shuffled)]


def _told(local: LocalMeta) -> Iterator[tuple[str, str]]:
    """Facts that not every collection states."""
    if local.row_weight_error:
        weight = f"{local.row_weight or 1.0:.3g} ± {local.row_weight_error:.2g}"
        yield "weight of a row, for those beyond tau", weight
    for axis, chance in (local.missing_at_random or {}).items():
        rejected = " (rejected)" if chance < 0.05 else ""
        yield f"rows of {axis} missing at random, p-value", f"{chance:.2g}{rejected}"
    if local.first_round is not None:
        yield "reports of row counts, in the first round", str(local.first_round.reports_of_row_counts)
    if local.influence is not None and local.influence.rows_at_most is not None:
        reach = f"{local.influence.rows_at_most:,.0f} rows"
        yield "one hostile report moves a count over one axis by at most", reach
    # Where the smooth counts, stored beside the unbiased ones, leave the latter's intervals too often.
    for axis, share in (local.smooth_outside_unbiased or {}).items():
        yield f"ranges of {axis} where smooth counts leave the 95% interval", f"{share:.1%}"
    if local.plan_hash is not None:
        yield "hash of the plan", local.plan_hash


def _shuffled(shuffled: ShuffledMeta | None) -> list[str]:
    if shuffled is None:
        return []
    head = "<h2>With an anonymous shuffler in between</h2>"
    if shuffled.void is not None:
        return [head, f"<p>Nothing more is promised: {escape(shuffled.void)}.</p>"]
    promise = (
        f"All {shuffled.people} reports together are also ({shuffled.epsilon:.4g}, {shuffled.delta:g})-differentially "
        f"private, against whoever sees them shuffled. This holds only if {shuffled.holds_if}. Otherwise the promise "
        "above stands alone."
    )
    return [head, f"<p>{escape(promise)}</p>"]


def _scales(scales: Sequence[ScaleMeta], inside: bool) -> list[str]:
    """R of each table and measure, and what bounding may have biased."""
    if not scales:
        return []
    head = (
        "table", "measure", "factor R", "error of R", "left out by the low bound", "above what one unit counts for",
    )  # fmt: skip
    rows = [
        (
            scale.of, scaled.measure or "rows", f"{scaled.factor:.3g}", f"{scaled.error.noise:.1%}",
            "hidden by noise" if scaled.left_out is None else f"about {scaled.left_out:.0%}, put back by R",
            f"{scaled.above:.0%}",
        )
        for scale in scales
        for scaled in scale.measures
    ]  # fmt: skip
    where = "is part of their error bars" if inside else "comes on top of the error bars"
    note = (
        "Counts and sums of these tables are shapes, measured with few rows of each unit, times the factor R. Its "
        f"error is common to all of them and {where}; averages and shares are unaffected."
    )
    biased = " ".join(
        f"{scale.of}: answers may be biased where excluded rows differ from the others"
        + ("; the number of rows is published exactly." if scale.public_rows else ".")
        for scale in scales
    )
    return [
        "<h2>How shapes got their scale</h2>", f"<p>{note}</p>", table(head, rows), f"<p>{escape(biased)}</p>"
    ]  # fmt: skip


def _bounding(release: Release) -> list[str]:
    """Rows of a unit beyond the contribution bound, table by table, as far as known."""
    tables = dict.fromkeys(bounded.of for bounded in release.meta.bounding)
    notes = [f"<p>{escape(note.text)}</p>" for of in tables for note in beyond_notes(of, release)]
    return ["<h2>Rows beyond the contribution bound</h2>", *notes] if notes else []


def _of_rows(release: Release) -> list[StatisticMeta]:
    """Statistics that count and sum rows; the count of people is told beside them."""
    return [statistic for statistic in release.statistics if statistic.measure.sums_rows]


def _view(release: Release, name: str) -> str:
    statistics = [s for s in _of_rows(release) if s.view == name]
    axes = ", ".join(release.axes[number].name for number in statistics[0].axes) or "no axis"
    rows = [(s.measure, s.mechanism, f"{s.currency} {short(s.budget)}") for s in statistics]
    return (
        f"<h2>View {escape(name)}</h2>"
        f"<p>{escape(statistics[0].of)} by {escape(axes)}: {statistics[0].cells} cells</p>"
        f"{table(('measure', 'mechanism', 'budget'), rows)}"
    )


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """An HTML table.

    Args:
        head: names of the columns.
        rows: their cells, as text.

    Example:
        >>> table(("a",), [("<1",)])
        '<table><tr><th scope="col">a</th></tr><tr><td>&lt;1</td></tr></table>'
    """

    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{names}</tr>{lines}</table>"
