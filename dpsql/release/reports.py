"""Metadata of people's own reports: of releases made of them, and of columns that devices reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from dpsql.catalog.collection import PARTICIPATIONS, ParticipationWord
from dpsql.catalog.columns import NonresponseWord


@dataclass(frozen=True)
class ManifestMeta:
    """Contents of a collection: files, reports, accepted ones, the rest by reason, and how many carried a token."""

    files: int
    reports: int
    accepted: int
    rejected: Mapping[str, int]
    tokens: int = 0


@dataclass(frozen=True)
class InfluenceMeta:
    """Largest influence of one hostile report: in reports of its view, and in rows of a count over one axis."""

    reports_in_its_view: float
    rows_at_most: float | None = None


@dataclass(frozen=True)
class FirstRoundMeta:
    """The round in which some people reported how many rows they have."""

    plan_hash: str
    reports_of_row_counts: int


@dataclass(frozen=True)
class ShuffledMeta:
    """The second promise, of all reports together behind an anonymous shuffler, or why it is `void`."""

    void: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    people: int | None = None
    holds_if: str | None = None


class StandsFor(NamedTuple):
    """The population that respondents were scaled to, when releases were opened together.

    Args:
        rows: of the population, with standard error `error`.
        source: who says so: a release, or `declared`.
        margins: columns by whose margins respondents were weighted.
        random: whether no test rejects that respondents are a random sample.
    """

    rows: float
    error: float
    source: str
    margins: tuple[str, ...] = ()
    random: bool = True


@dataclass(frozen=True)
class LocalMeta:
    """Metadata of people's reports.

    Args:
        collection: its name; a device answers it once.
        participation: whom they stand for, as in the catalog.
        manifest: what was collected.
        tau: slots of one person.
        plan_hash: of the plan that they answered.
        row_weight, row_weight_error: what counts are scaled by for the rows that tau left out.
        clipped_fraction, clipped_fraction_error: the part of rows that tau left out, where it was asked.
        influence: how far one hostile report reaches.
        missing_at_random: of reports of one row and a bit, axis -> p-value of "a person's rows have nothing to do with
            how many they are".
        mixed: axis -> share of the likelihood at that in the non-negative mix; the estimator of counts is a ratio.
        first_round: where tau was estimated.
        shuffled: where reports came through a shuffler.
        smooth_outside_unbiased: axis -> part of its ranges where smooth counts leave the 95% interval.
        people, services: of a collection by services: who answered all, and each service's part of epsilon; of one in
            rounds, who answered in any of them.
        rounds, boxes: of an adaptive collection: how many rounds there were, and boxes in the last.
        times_the_variance_of_a_device_join: axes of several services -> how much noisier than one device.
        everybody: how many people the population has, where the catalog declares it.
        stands_for: of a random sample that was scaled to everybody; never in a file.
        simulated: True where made-up people reported.
    """

    collection: str
    participation: ParticipationWord
    manifest: ManifestMeta
    tau: int
    plan_hash: str | None = None
    row_weight: float | None = None
    row_weight_error: float | None = None
    clipped_fraction: float | None = None
    clipped_fraction_error: float | None = None
    influence: InfluenceMeta | None = None
    missing_at_random: Mapping[str, float] | None = None
    mixed: Mapping[str, float] | None = None
    first_round: FirstRoundMeta | None = None
    shuffled: ShuffledMeta | None = None
    smooth_outside_unbiased: Mapping[str, float] | None = None
    people: int | None = None
    rounds: int | None = None
    boxes: int | None = None
    services: Mapping[str, str] | None = None
    times_the_variance_of_a_device_join: Mapping[str, float] | None = None
    everybody: int | None = None
    stands_for: StandsFor | None = None
    simulated: bool | None = None

    @property
    def reporters(self) -> int:
        return self.manifest.accepted if self.people is None else self.people

    @property
    def weight_error(self) -> float:
        """Relative standard error of the weight of rows; 0 where rows have none."""
        return (self.row_weight_error or 0.0) / (self.row_weight or 1.0)

    @property
    def whole(self) -> bool:
        """True if everybody reported, says the catalog."""
        return PARTICIPATIONS[self.participation].whole

    @property
    def sampled(self) -> bool:
        """True if those who reported are a random sample, says the catalog."""
        return PARTICIPATIONS[self.participation].sampled


def unasked_words(asked: int) -> str:
    """Sentence on rows beyond those that people were asked about."""
    return (
        f"rows beyond {asked} of a person were not asked about, so intervals of counts and sums have no upper end, "
        f"and averages and shares are of up to {asked} rows a person"
    )


UNSEEN = 0.4
"""Rows of units beyond four bounds (a small bound is measured farther, which leaves less), over those measured up to
there, with bounds from the middle to the 98% quantile of rows per unit: 0 to .25 (foodmart, Black Friday, flights,
batting), .43 to .89 (Online Retail), .04 to 1 (log-normal of deviation 1 and 1.5, Pareto of 1.5 and 2), 1.3 and more
beyond. Two of these deviations are inside of a 95% interval."""

TASTE = 0.8
"""As of `max_ids: auto` (docs/method/rows.md): rows of heavy people do not average out over groups."""

BIT: Literal["bit"] = "bit"
UNDECLARED_ROWS = 10
"""Rows of a person that a device speaks of where the catalog declares no `max_ids`."""


@dataclass(frozen=True)
class SlotsLeftOut:
    """Rows beyond the slots of people who report for themselves.

    Args:
        of: the counted table.
        tau: slots of a person.
        clipped_fraction, clipped_fraction_error: the part of the rows of up to `asked` a person; None where nobody was
            asked.
        asked: rows up to which a person was asked; those beyond bound no count or sum from above.
    """

    of: str
    tau: int
    asked: int
    clipped_fraction: float | None = None
    clipped_fraction_error: float | None = None
    bounding: Literal["slots"] = "slots"
    misread: ClassVar[bool] = True

    def note(self) -> str:
        """Note on answers about the table."""
        if self.clipped_fraction is None or self.clipped_fraction_error is None:
            cut = f"people report {self.tau} of their rows of {self.of}; the number of rows left out was not asked"
            return f"{cut}; {unasked_words(self.asked)}"
        share, error = 100 * self.clipped_fraction, 100 * self.clipped_fraction_error
        cut = f"slots ({self.tau} a person) left out about {share:.2g}% (error {error:.1g}%) of the rows of {self.of}"
        return f"{cut}, of up to {self.asked} a person; {unasked_words(self.asked)}"


@dataclass(frozen=True)
class BitLeftOut:
    """Rows left out where a person reports one row and a bit for their number.

    Args:
        of: the counted table.
        tau: rows at which the bit is certain.
        clipped_fraction, clipped_fraction_error: the part of the rows of up to `asked` a person that lies beyond; None
            where nobody was asked.
        asked: rows up to which a person was asked; those beyond bound no count or sum from above.
    """

    of: str
    tau: int
    asked: int
    clipped_fraction: float | None = None
    clipped_fraction_error: float | None = None
    bounding: Literal["bit"] = BIT
    misread: ClassVar[bool] = True

    def note(self) -> str:
        """Note on answers about the table."""
        cut = f"a person with more than {self.tau} rows of {self.of} counts as one with {self.tau}"
        if self.clipped_fraction is None or self.clipped_fraction_error is None:
            return f"{cut}; the number of rows left out was not asked; {unasked_words(self.asked)}"
        share, error = 100 * self.clipped_fraction, 100 * self.clipped_fraction_error
        return (
            f"{cut}, which leaves out about {share:.2g}% (error {error:.1g}%) of the rows of up to {self.asked} a "
            "person; counts and sums are scaled to these, and error bars allow for rows left out in other groups; "
            + unasked_words(self.asked)
        )


class SquareMeta(NamedTuple):
    """A noisy integer that error bars of a reported column are made of.

    Args:
        statistic: whose.
        square: which one, as ledger lines name it.
        value: as drawn.
    """

    statistic: int
    square: str
    value: int


@dataclass(frozen=True)
class ReportedMeta:
    """A column that people's devices reported, each once, to the curator.

    Args:
        column: `table.column`.
        epsilon_local: what one report cost its person towards the curator.
        collection: its name.
        plan_hash: of the plan that devices answered.
        levels: the channel's levels, in words.
        items: how many items it has.
        squares: how the rows of one person add up.
        nonresponse: the catalog's word for those who did not report.
    """

    column: str
    epsilon_local: str
    collection: str
    plan_hash: str
    levels: tuple[str, ...]
    items: int
    squares: tuple[SquareMeta, ...] = ()
    nonresponse: NonresponseWord = "respondents"

    @property
    def line(self) -> str:
        """Ledger line of a reported column; it costs no budget of the curator's."""
        return (
            f"reported: {self.column}, epsilon_local {self.epsilon_local}, collection {self.collection}, "
            f"plan {self.plan_hash}"
        )
