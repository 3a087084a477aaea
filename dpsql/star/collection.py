"""The `collection:` part of a catalog: how people report for themselves under local differential privacy.

| key             | meaning |
|-----------------|---------|
| `tau`           | slots of one person: a number, `theory` (from `row_guess`) or `estimate` (from a first round) |
| `row_share`     | part of the people who report how many rows they have, and nothing else |
| `row_weighting` | `bit`: one row and a bit for how many, the default for people with several rows; `mar`, `none` |
| `row_bit_cap`   | rows at which that bit is certain: a number, `auto` (by `row_guess`) or `estimate` (a first round) |
| `branching`     | children of a node in the trees that axes are asked by |
| `joint`         | grids over three axes or more, each asked of its own part of the people |
| `shares`        | view: part of the people who report on its axes and pairs |
| `participation` | whom the people who report stand for: everybody, a random sample of them, or nobody knows |
| `everybody`     | how many people the population has |
| `services`      | who holds which axes, where no device holds them all |

Each service collects a report of its own about its axes, for its part of the person's epsilon; the collector joins
the reports by a pseudonymous id. One of them may hold a person's rows, the others know one value of a person.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from dpsql.star.base import Exact, Model, OneOf, Problem, nearest

if TYPE_CHECKING:
    from dpsql.star.model import Catalog, Privacy


MOST_SERVICES = 8
BESIDE_SERVICES = {"epsilon", "services", "participation", "everybody", "row_bit_cap"}
"""Keys that a collection by services may set."""


class Service(Model):
    """One service: the axes that it can tell about, and its part of a person's epsilon."""

    axes: tuple[str, ...] = Field(
        description="as written in the views' `axes`", json_schema_extra={"minItems": 1}
    )
    share: Exact | None = Field(
        None, description="its part of epsilon; without shares every service gets the same"
    )
    measures: tuple[str, ...] = Field(
        (), description="the measure that it tells, as written in the views; at most one"
    )


def service_shares(collection: Collection) -> dict[str, Fraction]:
    """Every service's part of a person's epsilon; the parts add up to 1."""
    even = Fraction(1, max(len(collection.services), 1))
    return {name: even if s.share is None else s.share for name, s in collection.services.items()}


def check_services(catalog: Catalog) -> None:
    """Refuse services that do not divide the views' axes and epsilon between them.

    Args:
        catalog: a catalog whose parts are valid one by one.

    Raises:
        Problem: at a key path, with what to write instead.
    """
    collection = catalog.collection
    if collection is None or not collection.services:
        return
    at = ("collection", "services")
    if not 2 <= len(collection.services) <= MOST_SERVICES:
        raise Problem(at, f"there are 2 to {MOST_SERVICES} services; with one, leave `services` out")
    odd = [name for name in collection.services if not re.fullmatch(r"[A-Za-z0-9_]{1,40}", name)]
    if odd:
        raise Problem(
            (*at, odd[0]), "a name is 1 to 40 letters, digits and underscores; it names a plan file"
        )
    _check_axes(catalog, collection)
    shares = [s.share for s in collection.services.values() if s.share is not None]
    if shares and (len(shares) != len(collection.services) or min(shares) <= 0 or sum(shares) != 1):
        raise Problem(at, "give every service a `share` above 0, adding up to 1, or none of them")
    odd = sorted(collection.settled - BESIDE_SERVICES)
    if odd:
        raise Problem(at, f"services ask one question each, in one round, alone; leave out {', '.join(odd)}")
    if collection.cap_from.counted:
        raise Problem(
            ("collection", "row_bit_cap"), "services ask in one round; write a number of rows, such as 5"
        )


def _check_axes(catalog: Catalog, collection: Collection) -> None:
    """Every axis and every measure of every view stands in exactly one service, and no service tells two measures."""
    at = ("collection", "services")
    axis_uses = Counter(axis for service in collection.services.values() for axis in service.axes)
    view_axes = {axis.axis for view in catalog.views.values() for axis in view.axes}
    for name, service in collection.services.items():
        if not service.axes:
            raise Problem((*at, name, "axes"), "a service without an axis asks nothing; leave it out")
    for axis in sorted(view_axes | set(axis_uses)):
        if axis not in view_axes:
            raise Problem(at, f"no view has the axis `{axis}`; write axes as in the views")
        if axis_uses[axis] != 1:
            raise Problem(
                at, f"`{axis}` stands in {axis_uses[axis]} services; each axis belongs to exactly one"
            )
    uses = Counter(measure for service in collection.services.values() for measure in service.measures)
    wanted = {measure for view in catalog.views.values() for measure in view.measures} - {"count"}
    for measure in sorted(wanted | set(uses)):
        if measure not in wanted:
            raise Problem(at, f"no view asks the measure `{measure}`; write measures as in the views")
        if uses[measure] != 1:
            raise Problem(
                at,
                f"`{measure}` stands in {uses[measure]} services; write measures: [{measure}] in the one that knows it",
            )
    for name, service in collection.services.items():
        if len(service.measures) > 1:
            raise Problem((*at, name, "measures"), "a report of a service tells one measure; write one")


MOST_TAU = 10**4
MOST_EPSILON = 16
"""What a device gives at most to one collection: beyond it a report as good as tells the answer."""


ParticipationWord = Literal["all", "random", "unknown"]


class Participation(NamedTuple):
    """Whom the people who report stand for.

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
"""Of a million people a tenth leaves an error of 1.2% on the rows a person has, a fiftieth 2.7%."""


class Slots(NamedTuple):
    """Where tau comes from: whether from `row_guess`, whether from people who are asked in a round before.

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


class Weighting(NamedTuple):
    """How people with several rows are asked, whether they must tell how many, and whether tau is how many slots."""

    name: str
    counted: bool
    slotted: bool = True


NO_WEIGHT, BY_BIT = Weighting("none", False), Weighting("bit", True, slotted=False)
WEIGHTINGS = (NO_WEIGHT, Weighting("mar", True), BY_BIT)


def weighting_of(collection: Collection, one_row: bool) -> Weighting:
    """The weighting of a collection: without a word, none where everybody has one row or slots are declared, else bits.

    Args:
        collection: the catalog's.
        one_row: whether everybody has one row by construction.
    """
    if collection.row_weighting is not None:
        return next(weighting for weighting in WEIGHTINGS if weighting.name == collection.row_weighting)
    return NO_WEIGHT if one_row or "tau" in collection.settled else BY_BIT


def counted_share(collection: Collection, one_row: bool) -> Fraction:
    """The part of the people who report how many rows they have."""
    if one_row:
        return Fraction(0)
    if collection.row_share is not None:
        return collection.row_share
    needed = weighting_of(collection, one_row).counted or collection.slots.counted
    return ROW_SHARE if needed else Fraction(0)


def _tau(value: Any) -> Any:
    if isinstance(value, str) and _slots(value, TAUS) is DECLARED:
        if not value.isdecimal() or not 1 <= int(value) <= MOST_TAU:
            raise ValueError(f"`{value}`: tau is a number from 1 to {MOST_TAU}, `theory` or `estimate`")
        return int(value)
    return value


def _cap(value: Any) -> Any:
    if isinstance(value, str) and _slots(value, CAPS) is DECLARED:
        if not value.isdecimal() or not 1 <= int(value) <= MOST_TAU:
            raise ValueError(f"`{value}`: it is a number from 1 to {MOST_TAU}, `auto` or `estimate`")
        return int(value)
    return value


class JointGrid(Model):
    """One grid over several axes of a view, asked of its own part of the people."""

    axes: tuple[str, ...] = Field(
        description="as written in one view's `axes`", json_schema_extra={"minItems": 3, "maxItems": 6}
    )
    share: Exact = Field(description="part of all people who are asked this grid and nothing else")

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
            raise ValueError("an axis stands twice; list each once")
        return self


class Collection(Model):
    """How people report for themselves under local differential privacy."""

    epsilon: Exact | None = Field(
        None, description="spent by one person's report; without it, privacy.epsilon"
    )
    tau: Annotated[
        Annotated[int, Field(ge=1, le=MOST_TAU)] | Literal["theory", "estimate"], BeforeValidator(_tau)
    ] = Field(1, description="slots of one person's rows; theory: from `row_guess`; estimate: a first round")
    row_share: Exact | None = Field(
        None, description="part of the people who report how many rows they have; 1/10 where that is needed"
    )
    row_guess: dict[int, Exact] = Field(
        default_factory=dict, description="public guess: rows of a person: part of the people (tau: theory)"
    )
    joint: dict[str, JointGrid] = Field(
        default_factory=dict, description="grids over three axes or more of one view"
    )
    shares: dict[str, Exact] = Field(
        default_factory=dict, description="view: part of the people who report on it"
    )
    row_weighting: Literal["bit", "mar", "none"] | None = Field(
        None,
        description="bit: one row and a bit for how many, the default where people may have several rows; "
        "mar: counts are scaled to the rows that tau left out, as if they were like the others; none: they are not",
    )
    row_bit_cap: Annotated[
        Annotated[int, Field(ge=1, le=MOST_TAU)] | Literal["auto", "estimate"], BeforeValidator(_cap)
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
        "a random sample is scaled to everybody where their number is known",
    )
    everybody: int | None = Field(
        None, ge=1, description="people of the population, a public number: what a random sample is scaled to"
    )
    branching: int = Field(
        5, ge=2, le=64, description="children of a node in the trees that axes are asked by"
    )
    kind: Literal["auto", "ahead", "lprr"] = Field(
        "auto",
        description="auto: one round of trees and grids; ahead: rounds that split boxes where many people are; "
        "lprr: one round of every combination of the axes' tree levels",
    )
    services: dict[str, Service] = Field(
        default_factory=dict,
        description="services that cannot join on one device, each with its axes; far noisier than one report",
    )

    @property
    def slots(self) -> Slots:
        """Where tau, or the bit's cap, comes from."""
        return self.cap_from if self.cap_from.counted else _slots(self.tau, TAUS)

    @property
    def cap_from(self) -> Slots:
        """Where the bit's cap comes from."""
        return _slots(self.row_bit_cap, CAPS)

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


class Way(NamedTuple):
    """How a collection asks people.

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
        frozenset(Collection.model_fields) - {"joint", "services"},
    ),
)


def report_epsilon(privacy: Privacy, collection: Collection) -> Fraction:
    """What one person's report spends.

    Raises:
        Problem: neither says so.
    """
    epsilon = privacy.epsilon if collection.epsilon is None else collection.epsilon
    if epsilon is None:
        raise Problem(("privacy", "releases"), "a person's report draws on no cap; write `epsilon`")
    return epsilon


def check_collection(catalog: Catalog) -> None:
    """Refuse a collection whose parts do not fit each other or the views.

    Args:
        catalog: a catalog whose parts are valid one by one.

    Raises:
        Problem: at a key path, with what to write instead.
    """
    collection = catalog.collection
    if collection is None:
        return
    epsilon = report_epsilon(catalog.privacy, collection)
    if not 0 < epsilon <= MOST_EPSILON:
        raise Problem(
            ("privacy" if collection.epsilon is None else "collection", "epsilon"),
            f"devices refuse epsilon {epsilon}; a report's is above 0 and at most {MOST_EPSILON}",
        )
    _check_rows(collection)
    if collection.everybody is not None and not collection.participation.sampled:
        raise Problem(
            ("collection", "everybody"),
            "only a random sample is scaled to everybody; write participation: random, or leave the number out",
        )
    check_services(catalog)
    odd = collection.settled - collection.way.keys
    if odd:
        raise Problem(
            ("collection", "kind"),
            f"`kind: {collection.kind}` {collection.way.asks}; leave out {', '.join(sorted(odd))}",
        )
    for name in collection.shares:
        if name not in catalog.views:
            hint = nearest(name, tuple(catalog.views))
            raise Problem(("collection", "shares", name), f"no such view; {hint}")
    if any(share <= 0 for share in collection.shares.values()):
        raise Problem(("collection", "shares"), "a share must be above 0")
    if sum(collection.shares.values(), Fraction(0)) > 1:
        raise Problem(("collection", "shares"), "the shares add up to more than 1; lower them")
    all_shared = bool(catalog.views) and set(collection.shares) == set(catalog.views)
    if collection.fixed_share > 1 or (collection.fixed_share == 1 and not all_shared):
        raise Problem(
            ("collection",),
            f"`row_share`, the shares of `joint` and `shares` add up to {collection.fixed_share} and leave nobody "
            "for the other questions; lower them",
        )
    for name, grid in collection.joint.items():
        if joint_view(catalog, grid) is None:
            raise Problem(
                ("collection", "joint", name, "axes"),
                "no view has all of these axes, so no answer could use them; write them as in one view's `axes`",
            )


def joint_view(catalog: Catalog, grid: JointGrid) -> str | None:
    """The first view, by name, that has all axes of a joint grid."""
    for name, view in sorted(catalog.views.items()):
        if set(grid.axes) <= {axis.axis for axis in view.axes}:
            return name
    return None


def _check_rows(collection: Collection) -> None:
    """Row counts, tau and the bit's cap."""
    share, slots = collection.row_share, collection.slots
    if share is not None and not 0 <= share < 1:
        raise Problem(("collection", "row_share"), "a share of the people is at least 0 and below 1")
    _check_weighting(collection)
    _check_guess(collection)
    if slots.counted and share == 0:
        where = "tau" if "tau" in collection.settled else "row_bit_cap"
        raise Problem(
            ("collection", "row_share"), f"`{where}: estimate` asks some people; raise it, such as 1/10"
        )
    if slots.counted and collection.shuffled:
        raise Problem(
            ("collection", "shuffled"),
            "what a shuffler adds is stated for one round; write a number, no `estimate`",
        )


def _check_weighting(collection: Collection) -> None:
    """Slots and bits do not go together."""
    weighting = weighting_of(collection, one_row=False)
    if weighting.slotted and not collection.cap_from.guessed:
        raise Problem(
            ("collection", "row_bit_cap"), "slots have no bit; leave it or `tau` and `row_weighting` out"
        )
    if not weighting.slotted and "tau" in collection.settled:
        raise Problem(
            ("collection", "tau"), "with a bit there are no slots; write row_bit_cap, or row_weighting: none"
        )
    if weighting.counted and weighting.slotted and (collection.slots.guessed or collection.slots.counted):
        raise Problem(
            ("collection", "row_weighting"),
            "with `mar` no row is lost on average, and then tau: 1 has the least noise; write tau: 1, or "
            "row_weighting: none",
        )


def _check_guess(collection: Collection) -> None:
    """A public guess of how many rows people have."""
    guess, guessed = collection.row_guess, collection.slots.guessed
    bits = not weighting_of(collection, one_row=False).slotted and collection.cap_from.guessed
    if (guessed and not guess) or (guess and not (guessed or bits)):
        raise Problem(
            ("collection", "row_guess"),
            "`tau: theory` or `row_bit_cap: auto` and a public guess go together; write both, such as "
            "row_guess: {1: 0.6, 2: 0.3, 3: 0.1}",
        )
    if guess and (sum(guess.values()) != 1 or min(guess.values()) < 0):
        raise Problem(("collection", "row_guess"), f"the parts add up to {sum(guess.values())}; make it 1")
    if guess and not (min(guess) >= 0 and 1 <= max(guess) <= MOST_TAU):
        raise Problem(("collection", "row_guess"), f"a person has 0 to {MOST_TAU} rows, some at least one")
