"""The `collection:` part of a catalog: how people report for themselves under local differential privacy.

| key             | meaning |
|-----------------|---------|
| `tau`           | slots of one person: a number, `theory` (from `row_guess`) or `estimate` (from a first round) |
| `row_share`     | share of the people who report how many rows they have, and nothing else |
| `row_weighting` | `bit`: one row and a bit for how many, the default for people with several rows; `none` |
| `row_bit_cap`   | rows at which that bit is certain: a number, `auto` (by `row_guess`) or `estimate` (a first round) |
| `branching`     | children of a node in the trees of the axes |
| `joint`         | grids over three axes or more, each asked of its own part of the people |
| `shares`        | view: share of the people who report on its axes and pairs |
| `participation` | whom the people who report stand for: everybody, a random sample of them, or nobody knows |
| `everybody`     | how many people the population has |
| `estimate`      | `lle`: one view of three to six axes, held as its pairs; larger boxes by maximum entropy |
| `services`      | who holds which axes, where no device holds them all |

Each service collects a report of its own about its axes, for its part of the person's epsilon; the collector joins
the reports by a pseudonymous id. One of them may hold a person's rows, the others know one value of a person.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from dpsql.catalog.base import Exact, MeasureName, Model, OneOf, Problem

MOST_SERVICES = 8
BESIDE_SERVICES = {"epsilon", "services", "participation", "everybody", "row_bit_cap"}
"""Keys that a collection by services may set."""


class Service(Model):
    """One service: the axes that it can tell about, and its part of a person's epsilon."""

    axes: tuple[str, ...] = Field(
        description="as written in the views' `axes`", json_schema_extra={"minItems": 1}
    )
    share: Exact | None = Field(None, description="its share of epsilon; equal shares if none is written")
    measures: tuple[MeasureName, ...] = Field(
        (), description="the measure that it reports, as written in the views; at most one"
    )


def service_shares(collection: Collection) -> dict[str, Fraction]:
    """Every service's part of a person's epsilon; the parts add up to 1."""
    even = Fraction(1, max(len(collection.services), 1))
    return {name: even if s.share is None else s.share for name, s in collection.services.items()}


MOST_TAU = 10**4
MOST_EPSILON = 16
"""What a device gives at most to one collection: beyond it a report as good as tells the answer."""


ParticipationWord = Literal["all", "random", "unknown"]


class Participation(NamedTuple):
    """Population that the reporting people represent.

    Args:
        name: the catalog's word.
        whole: whether they are everybody.
        sampled: whether they are a random sample.
    """

    name: ParticipationWord
    whole: bool = False
    sampled: bool = False


UNKNOWN = Participation("unknown")
PARTICIPATIONS = {
    participation.name: participation
    for participation in (Participation("all", whole=True), Participation("random", sampled=True), UNKNOWN)
}
"""Every participation by its word."""

ROW_SHARE = Fraction(1, 10)
"""Of a million people a tenth leaves an error of 1.2% on the rows a person has, a fiftieth 2.7%. Where nothing else is
declared, the part is chosen with the bit's cap (`local.forecast.with_best_rows`)."""


class Slots(NamedTuple):
    """Origin of tau: `row_guess`, or people who are asked in a round before.

    Without either it is the number that the catalog declares.
    """

    name: str
    guessed: bool = False
    counted: bool = False


DECLARED, BY_GUESS, BY_COUNT = (
    Slots("declared"),
    Slots("theory", guessed=True),
    Slots("estimate", counted=True),
)
TAUS = (("theory", BY_GUESS), ("estimate", BY_COUNT))
"""Words that `tau` may be, in place of a number."""
CAPS = (("auto", BY_GUESS), ("estimate", BY_COUNT))
"""Words that `row_bit_cap` may be."""


def _slots(word: object, words: Sequence[tuple[str, Slots]]) -> Slots:
    return next((slots for name, slots in words if name == word), DECLARED)


RowWeighting = Literal["bit", "none"]


def weighting_of(collection: Collection, one_row: bool) -> RowWeighting:
    """The weighting of a collection: without a word, none where everybody has one row or slots are declared, else bits.

    Args:
        collection: the catalog's.
        one_row: whether everybody has one row by construction.
    """
    if collection.row_weighting is not None:
        return collection.row_weighting
    return "none" if one_row or "tau" in collection.settled else "bit"


def has_bit(collection: Collection, one_row: bool = False) -> bool:
    """True if a bit tells how many rows a person has; else people have slots for rows.

    Args:
        collection: the catalog's.
        one_row: whether everybody has one row by construction.
    """
    return weighting_of(collection, one_row) == "bit"


def counted_share(collection: Collection, one_row: bool) -> Fraction:
    """The share of the people who report how many rows they have."""
    if one_row:
        return Fraction(0)
    if collection.row_share is not None:
        return collection.row_share
    needed = has_bit(collection) or collection.slots.counted
    return ROW_SHARE if needed else Fraction(0)


def _rows(called: str, words: Sequence[tuple[str, Slots]]) -> BeforeValidator:
    """Number of rows, from text too, or one of some words."""

    def read(value: Any) -> Any:
        if not isinstance(value, str) or _slots(value, words) is not DECLARED:
            return value
        if not value.isdecimal() or not 1 <= int(value) <= MOST_TAU:
            named = " or ".join(f"`{word}`" for word, _ in words)
            raise ValueError(f"`{value}`: {called} is a number from 1 to {MOST_TAU}, {named}")
        return int(value)

    return BeforeValidator(read)


class JointGrid(Model):
    """One grid over several axes of a view, asked of its own part of the people."""

    axes: tuple[str, ...] = Field(
        description="as written in one view's `axes`", json_schema_extra={"minItems": 3, "maxItems": 6}
    )
    share: Exact = Field(description="share of the people who are asked this grid and nothing else")

    @field_validator("axes")
    @classmethod
    def _several(cls, axes: tuple[str, ...]) -> tuple[str, ...]:
        if not 3 <= len(axes) <= 6:
            raise ValueError("a joint grid has three to six; single axes and pairs have grids anyway")
        return axes

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if not 0 < self.share < 1:
            raise ValueError("`share` must be above 0 and below 1")
        if len(set(self.axes)) != len(self.axes):
            raise ValueError("an axis is listed twice; list each once")
        return self


class Collection(Model):
    """Collection of reports under local differential privacy."""

    epsilon: Exact | None = Field(None, description="spent by one person's report; default: privacy.epsilon")
    tau: Annotated[
        Annotated[int, Field(ge=1, le=MOST_TAU)] | Literal["theory", "estimate"] | None, _rows("tau", TAUS)
    ] = Field(
        None,
        description="slots of one person's rows in place of the bit; theory: from `row_guess`; estimate: a first round",
    )
    row_share: Exact | None = Field(
        None,
        description="share of the people who report how many rows they have; 1/10 to 2/5 where that is needed",
    )
    row_guess: dict[int, Exact] = Field(
        default_factory=dict, description="public guess: rows of a person: share of the people (tau: theory)"
    )
    joint: dict[str, JointGrid] = Field(
        default_factory=dict, description="grids over three axes or more of one view"
    )
    shares: dict[str, Exact] = Field(
        default_factory=dict, description="view: share of the people who report on it"
    )
    row_weighting: RowWeighting | None = Field(
        None,
        description="bit: one row and a bit for how many, the default where people may have several rows; "
        "none: slots for rows, and no account of those beyond them",
    )
    row_bit_cap: Annotated[
        Annotated[int, Field(ge=1, le=MOST_TAU)] | Literal["auto", "estimate"], _rows("it", CAPS)
    ] = Field(
        "auto",
        description="rows at which the bit is certain; auto: from `row_guess`, without it from max_ids; "
        "estimate: from a first round",
    )
    shuffled: bool = Field(
        False,
        description="reports come through an anonymous shuffler; the release then states a second promise",
    )
    participation: Annotated[Participation, OneOf(*PARTICIPATIONS.values())] = Field(
        UNKNOWN,
        description="who reports: all of the population, a random sample of it, or unknown; "
        "a random sample is scaled to the population where its size is known",
    )
    everybody: int | None = Field(
        None, ge=1, description="size of the population, a public number to which a random sample is scaled"
    )
    branching: int = Field(5, ge=2, le=64, description="children of a node in the trees of the axes")
    kind: Literal["auto", "ahead", "lprr"] = Field(
        "auto",
        description="auto: one round of trees and grids; ahead: rounds that split boxes where many people are; "
        "lprr: one round of every combination of the axes' tree levels",
    )
    estimate: Literal["tables", "lle"] = Field(
        "tables",
        description="tables: every view is one table whose parts add up; lle: one view of three to six axes is held as "
        "its pairs, and boxes over more than two axes are estimated by maximum entropy, biased and flagged",
    )
    services: dict[str, Service] = Field(
        default_factory=dict,
        description="services that cannot join on one device, each with its axes; far noisier than one report",
    )

    @property
    def slots(self) -> Slots:
        """Origin of tau, or of the bit's cap."""
        return self.cap_from if self.cap_from.counted else _slots(self.tau, TAUS)

    @property
    def cap_from(self) -> Slots:
        """Origin of the bit's cap."""
        return _slots(self.row_bit_cap, CAPS)

    @property
    def by_pairs(self) -> bool:
        """True if the view is stored as its pairs, and larger boxes are fitted."""
        return self.estimate == "lle"

    @property
    def way(self) -> Way:
        return next(way for way in WAYS if way.name == self.kind)

    @property
    def settled(self) -> set[str]:
        """Keys that say something else than when they are left out."""
        fields = type(self).model_fields.items()
        return {name for name, f in fields if getattr(self, name) != f.get_default(call_default_factory=True)}

    @property
    def fixed_share(self) -> Fraction:
        """The part of the people whose question is declared: row counts, joint grids, views with a share."""
        joint = sum((grid.share for grid in self.joint.values()), Fraction(0))
        return (self.row_share or Fraction(0)) + joint + sum(self.shares.values(), Fraction(0))


BESIDE_LLE = {"epsilon", "estimate", "participation", "shuffled", "branching"}
"""Keys that may stand beside `estimate: lle`: it is built for one round about one row of everybody."""
FEWEST_ENTROPY_AXES, MOST_ENTROPY_AXES = 3, 6
"""Pairs tell two axes whole; 7 axes have 21 pairs, and each pair's part of the people pays for all of them."""


class Way(NamedTuple):
    """Way in which a collection asks people.

    Args:
        name: what `kind` calls it.
        asks: in words.
        keys: keys of `collection:` that may stand beside it.
        followed: whether each round's plan follows from the reports of the one before.
    """

    name: str
    asks: str
    keys: frozenset[str]
    followed: bool = False


WAYS = (
    Way("auto", "asks trees and grids", frozenset(Collection.model_fields)),
    Way(
        "ahead",
        "asks everybody one thing a round",
        frozenset({"epsilon", "kind", "participation"}),
        followed=True,
    ),
    Way(
        "lprr",
        "asks combinations of levels alone",
        frozenset(Collection.model_fields) - {"joint", "services", "estimate"},
    ),
)


def report_epsilon(release: Fraction | None, collection: Collection) -> Fraction:
    """Spend of one person's report.

    Args:
        release: `epsilon` of the promise.
        collection: the catalog's.

    Raises:
        Problem: neither says so.
    """
    epsilon = release if collection.epsilon is None else collection.epsilon
    if epsilon is None:
        raise Problem(("privacy", "releases"), "a person's report draws on no cap; write `epsilon`")
    return epsilon
