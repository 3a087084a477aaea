"""Every local randomizer by full enumeration in fractions: no two inputs' probabilities differ by more than W / S.

The client's own code runs with every possible answer of `below`, one after another. Weights are shrunk (S = 1,
W = 3) so that all draws can be listed; the code does not know the difference.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsql.catalog import parse_catalog
from dpsql.client import Row, device, oracles
from dpsql.client import plan as plans
from dpsql.client.plan import Plan, largest_weight, read_plan
from dpsql.local.mechanisms.truncation import level_edges
from dpsql.local.oracles import oracle_named
from dpsql.local.plan import CollectionDesign, PlannedAxis, build_plan
from dpsql.local.run import write_plan
from dpsql.local.survey import design_of, public_axis_maker, survey_of

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.local.lle import catalog_text
from benchmarks.local.published import printed_bias, printed_distribution, printed_tau

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "local.json").read_text())
OWN = 3
Distribution = dict[Hashable, Fraction]


def level_combinations(depths: Sequence[int]) -> list[tuple[int, ...]]:
    """All combinations of levels, the all-root one left out; it says nothing and would waste its users."""
    combos = itertools.product(*(range(d + 1) for d in depths))
    return [c for c in combos if any(c)]


def path_shares(nodes: Sequence[int], epsilon: float, weights: Sequence[float] | None = None) -> np.ndarray:
    """Share of each level combination when one report ranges over all nodes: w (e^eps + D - 1), scaled.

    Args:
        nodes: node combinations of each level combination.
        epsilon: privacy of one report.
        weights: w_l; equal if None.

    Returns:
        Shares that sum to 1.
    """
    spoken = np.ones(len(nodes)) if weights is None else np.asarray(weights, dtype=np.float64)
    raw = spoken * (math.exp(epsilon) + np.asarray(nodes, dtype=np.float64) - 1)
    return np.asarray(raw / raw.sum())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Hashable]], Distribution]:
    """A function that lists the exact output distribution of a procedure that draws with `below`."""
    script: list[int] = []
    bounds: list[int] = []
    at = [0]

    def below(bound: int, entropy: object) -> int:
        if at[0] == len(script):
            script.append(0)
            bounds.append(bound)
        at[0] += 1
        return script[at[0] - 1]

    def distribution(procedure: Callable[[], Hashable]) -> Distribution:
        found: Distribution = defaultdict(Fraction)
        script.clear()
        bounds.clear()
        while True:
            at[0] = 0
            answer = procedure()
            chance = Fraction(1)
            for bound in bounds:
                chance /= bound
            found[answer] += chance
            while script and script[-1] == bounds[-1] - 1:
                script.pop()
                bounds.pop()
            if not script:
                return dict(found)
            script[-1] += 1

    monkeypatch.setattr(oracles, "below", below)
    monkeypatch.setattr(device, "below", below)
    monkeypatch.setattr(plans, "below", below)
    monkeypatch.setattr(oracles, "OTHER", 1)
    monkeypatch.setattr(oracles, "SEED_POOL", 5)
    return distribution


def worst_ratio(distributions: Sequence[Mapping[Any, Fraction]]) -> Fraction | None:
    """The largest ratio of one output's probabilities; None if an output is possible for some inputs only."""
    outputs = set().union(*distributions)
    worst = Fraction(1)
    for output in outputs:
        chances = [d.get(output, Fraction(0)) for d in distributions]
        if min(chances) == 0:
            return None
        worst = max(worst, max(chances) / min(chances))
    assert all(sum(d.values()) == 1 for d in distributions)
    return worst


def no_entropy(size: int) -> bytes:
    raise AssertionError("draws are scripted")


def reports_of(
    small: Callable[..., Distribution], plan: Plan, people: Sequence[Sequence[Row]]
) -> list[Distribution]:
    """The law of each person's report."""
    return [small(lambda rows=rows: device.respond(plan, rows, no_entropy)) for rows in people]


@pytest.mark.parametrize(
    ("oracle", "domain", "extra"),
    [
        *(("GRR", domain, 0) for domain in (2, 3, 5, 17, 64)), *(("OUE", domain, 0) for domain in (2, 3, 5)),
        ("OLH", 5, 2), ("OLH", 64, 4), ("WAVE", 2, 0), ("WAVE", 5, 1), ("WAVE", 16, 3), ("WAVE", 64, 12),
    ],
)  # fmt: skip
def test_an_oracle(small: Callable[..., Distribution], oracle: str, domain: int, extra: int) -> None:
    """`extra` are the buckets of a hash, or how far a square wave reaches; a wave has a law for no row too."""
    draws: dict[str, Callable[[Any], Hashable]] = {
        "GRR": lambda item: oracles.grr(item, domain, OWN, no_entropy),
        "OUE": lambda item: oracles.oue(item, domain, OWN, no_entropy),
        "OLH": lambda item: oracles.olh(item, extra, OWN, no_entropy),
        "WAVE": lambda item: oracles.wave(item, domain, extra, OWN, no_entropy),
    }
    items = [*range(domain), *([None] if oracle == "WAVE" else [])]
    assert worst_ratio([small(lambda item=item: draws[oracle](item)) for item in items]) == OWN


def test_oue_bits_of_a_large_domain_are_independent_and_bounded(small: Callable[..., Distribution]) -> None:
    own = small(lambda: oracles.oue(0, 1, OWN, no_entropy)[0] >> 7)
    other = small(lambda: (oracles.oue(0, 2, OWN, no_entropy)[0] >> 6) & 1)
    assert own == {0: Fraction(1, 2), 1: Fraction(1, 2)}
    assert other == {0: Fraction(3, 4), 1: Fraction(1, 4)}
    # two inputs change two bits' laws, whatever the domain
    assert max(own[a] / other[a] for a in (0, 1)) * max(other[b] / own[b] for b in (0, 1)) == OWN


def plan_of(views: list[dict[str, Any]], sizes: list[int], tau: int = 1) -> Plan:
    common: dict[str, Any] = {"boxes": [], "edges": [], "measure": None, "empty": False}
    common |= {"extra": 0, "share": 1, "oracle": "GRR"}
    body = {
        "dpsql_plan": 1, "collection": "exact", "epsilon": "2", "own": 3 << 20, "other": 1 << 20, "tau": tau,
        "rows_floor": 0, "rows_cap": 3, "round": 0, "rounds": 1,
        "axes": [{"name": f"a{i}", "leaves": size} for i, size in enumerate(sizes)],
        "measures": [{"name": "m", "lower": 0, "upper": 2, "scale": 0}],
        "views": [{**common, **view} for view in views],
    }  # fmt: skip
    return dataclasses.replace(read_plan(json.dumps(body).encode()), own=OWN)


def test_the_plan_of_kind_lprr(small: Callable[..., Distribution]) -> None:
    """As it is written for a catalog, but for the weights that are shrunk here."""
    axes = tuple(PlannedAxis(f"a{i}", 4, 4) for i in (0, 1))
    made = CollectionDesign(
        "l", Fraction(1), 100, axes, together=((0, 1),), rows_floor=1, branching=2, kind="lprr"
    )
    written = read_plan(build_plan(made))
    views = tuple(dataclasses.replace(view, share=1, oracle="GRR", extra=0) for view in written.views)
    assert len(views) == len(level_combinations([2, 2]))
    plan = dataclasses.replace(written, own=OWN, views=views)
    people = [[Row((a, b))] for a, b in itertools.product(range(4), repeat=2)]
    assert worst_ratio(reports_of(small, plan, people)) == OWN


def test_a_plan_of_all_pairs(small: Callable[..., Distribution]) -> None:
    """As `estimate: lle` has it written: a tree an axis and a grid a pair; weights are shrunk."""
    catalog = parse_catalog(catalog_text(3, 2, "1").replace(", branching: 4", ""), "boxes.yaml")
    survey = survey_of(catalog, public_axis_maker(catalog))
    written = read_plan(build_plan(design_of(survey, 1000)))
    assert {view.axes for view in written.views} >= {(0, 1), (0, 2), (1, 2)}
    views = tuple(dataclasses.replace(view, share=1, oracle="GRR", extra=0) for view in written.views)
    plan = dataclasses.replace(written, own=OWN, views=views)
    people = [[Row(leaves)] for leaves in itertools.product(range(3), repeat=3)]
    assert worst_ratio(reports_of(small, plan, people)) == OWN


@pytest.mark.parametrize("tau", [1, 2, 3])
def test_slot_empty_item_and_measure_bit(small: Callable[..., Distribution], tau: int) -> None:
    view = {"kind": "grid", "axes": [0], "edges": [[0, 1, 2]], "domain": 5, "measure": 0, "empty": True}
    rows_view = {"kind": "rows", "axes": [], "domain": 4}
    bit_view = {"kind": "rows_bit", "axes": [], "domain": 2, "rows": [0, 3]}
    plan = plan_of([view, rows_view, bit_view], [2], tau)
    own = [Row((leaf,), (amount,)) for leaf in (0, 1) for amount in (0, 1, 2)]
    people = [[], *([r] for r in own), *(list(p) for p in itertools.combinations(own, 2)), own[:4]]
    assert worst_ratio(reports_of(small, plan, people)) == OWN


def weighted_plan(cap: int, cells: int, measure: int | None, oracle: str) -> Plan:
    """One row and a bit, certain at `cap` rows, and the counts that scale what is told."""
    states = 2 if measure is None else 3
    view = {"kind": "weighted", "axes": [0], "edges": [list(range(cells + 1))], "domain": states * cells}
    bits = [
        {"kind": "rows_bit", "axes": [], "domain": 2, "rows": rows} for rows in ([0, 1], [cap, 3]) if cap < 3
    ]
    return plan_of([{**view, "measure": measure, "oracle": oracle}, *bits], [cells], cap)


@pytest.mark.parametrize(
    ("cap", "cells", "measure", "oracle"),
    [(1, 2, None, "OUE"), (2, 2, None, "OUE"), (2, 3, None, "GRR"), (3, 2, None, "GRR"), (2, 2, 0, "GRR"),
     (3, 2, 0, "GRR"), (2, 1, 0, "OUE")],
)  # fmt: skip
def test_one_row_and_a_bit_for_how_many(small, cap, cells, measure, oracle):
    """All persons of up to cap + 1 rows (with a measure, up to cap), a row that the plan does not know included."""
    plan = weighted_plan(cap, cells, measure, oracle)
    amounts = (0,) if measure is None else (0, 1, 2)
    rows = [Row((leaf,), (amount,)) for leaf in range(cells) for amount in amounts]
    most = cap + 1 if measure is None else cap
    people = [list(p) for n in range(most + 1) for p in itertools.combinations_with_replacement(rows, n)]
    people += [[Row((cells,), (0,))], [rows[0], Row((-1,), (0,))]]
    assert worst_ratio(reports_of(small, plan, people)) == OWN


@pytest.mark.parametrize("measure", [None, 0])
@pytest.mark.parametrize("cap", [1, 2, 3])
def test_the_bit_makes_a_row_stand_for_all_of_a_persons(small, cap, measure):
    """Item's law: (cell, 1) has min(r, R)/R times the share of her rows there; all states of a cell that share."""
    plan, states = weighted_plan(cap, 2, measure, "GRR"), 2 if measure is None else 3
    view = plan.views[0]
    rows = [Row((leaf,), (amount,)) for leaf in (0, 1) for amount in (0, 1, 2)]
    for n in range(1, 4):
        for person in itertools.combinations_with_replacement(rows, n):
            law = small(lambda person=person: view.asks.draw(plan, view, person, no_entropy))
            for leaf in (0, 1):
                here = [row.measures[0] for row in person if row.leaves[0] == leaf]
                told = [law.get(states * leaf + state, Fraction(0)) for state in range(states)]
                weight = Fraction(min(n, cap), cap * n)
                assert sum(told) == Fraction(len(here), n)
                assert sum(told[1:]) == weight * len(here)
                if measure is not None:
                    assert told[2] == weight * Fraction(sum(here), 2)
    nobody = small(lambda: view.asks.draw(plan, view, [], no_entropy))
    assert nobody == {0: Fraction(1, 2), states: Fraction(1, 2)}


@pytest.mark.parametrize("oracle", ["GRR", "OUE"])
@pytest.mark.parametrize("tau", [1, 2])
def test_a_plan_without_a_place_for_no_row_or_for_every_row(small, oracle, tau):
    boxes = [[0, 1], [2, 4], [3, 4]]  # leaf 1 lies in none of them
    plan = plan_of([{"kind": "boxes", "axes": [0], "boxes": boxes, "domain": 3, "oracle": oracle}], [4], tau)
    people = [[], *([Row((leaf,))] for leaf in range(-1, 6)), [Row((1,)), Row((3,))]]
    people += [[Row((0,))] * 3, [Row((3,))] * 2]
    reports = reports_of(small, plan, people)
    assert worst_ratio(reports) == OWN
    assert reports[0] == reports[3]  # whoever has no row, or none the plan knows, says any item alike


@pytest.mark.parametrize("oracle", ["GRR", "OUE"])
def test_the_number_of_rows_a_person_has(small: Callable[..., Distribution], oracle: str) -> None:
    plan = plan_of([{"kind": "rows", "axes": [], "domain": 4, "oracle": oracle}], [2])
    people = [[Row((0,))] * count for count in range(6)]
    reports = reports_of(small, plan, people)
    assert worst_ratio(reports) == OWN
    assert reports[3] == reports[4] == reports[5]  # rows beyond the cap are not told


def rows_then_slots(tau: int) -> tuple[Plan, Plan]:
    """The two rounds of a collection that asks some people for row counts and the others at a tau made of those."""
    grid = {"kind": "grid", "axes": [0], "edges": [[0, 1, 2]], "domain": 3, "empty": True}
    first = plan_of([{"kind": "rows", "axes": [], "domain": 4}], [2])
    second = dataclasses.replace(plan_of([grid], [2], tau), round=1)
    return (
        dataclasses.replace(first, rounds=2, round_shares=(1, 3)),
        dataclasses.replace(second, rounds=2, round_shares=(1, 3)),
    )


@pytest.mark.parametrize("tau", [1, 2, 3])
def test_a_tenth_reports_rows_and_the_others_answer_at_the_tau_of_that(small, tau):
    rounds = rows_then_slots(tau)

    def whole(rows: Sequence[Row]) -> Hashable:
        number = device.draw_round(rounds[0], no_entropy)
        return number, device.respond(rounds[number], rows, no_entropy)

    people = [
        [Row((leaf,)) for leaf in leaves] for n in range(4) for leaves in itertools.product((0, 1), repeat=n)
    ]
    reports = [small(lambda rows=rows: whole(rows)) for rows in people]
    assert worst_ratio(reports) == OWN
    told = {sum(chance for (number, _), chance in d.items() if number == 0) for d in reports}  # type: ignore[misc]
    assert told == {Fraction(1, 4)}  # who belongs to the first round does not depend on anybody's rows


def test_a_device_that_answered_both_rounds_would_spend_twice(small: Callable[..., Distribution]) -> None:
    first, second = rows_then_slots(1)

    def twice(rows: Sequence[Row]) -> Hashable:
        return device.respond(first, rows, no_entropy), device.respond(second, rows, no_entropy)

    people = [[], [Row((0,))], [Row((1,))]]
    assert worst_ratio([small(lambda rows=rows: twice(rows)) for rows in people]) == OWN**2


@pytest.mark.parametrize("oracle", ["GRR", "OUE"])
def test_a_round_of_an_adaptive_quadtree(small: Callable[..., Distribution], oracle: str) -> None:
    boxes = [[0, 2, 0, 4], [2, 4, 0, 2], [2, 3, 2, 4], [3, 4, 2, 4]]
    plan = plan_of([{"kind": "boxes", "axes": [0, 1], "boxes": boxes, "domain": 4, "oracle": oracle}], [4, 4])
    people = [[Row((a, b))] for a, b in itertools.product(range(4), repeat=2)]
    reports = reports_of(small, plan, people)
    assert worst_ratio(reports) == OWN


@pytest.mark.parametrize("split", [(3, 2, 2), (2, 3), (2, 2, 2, 2)])
def test_services_that_split_the_budget(small: Callable[..., Distribution], split: tuple[int, ...]) -> None:
    """The whole transcript of K devices, from the plans that services get: epsilons add up, tightly, and never more."""
    sizes = [3, 2, 2, 2][: len(split)]
    plans = [
        dataclasses.replace(
            plan_of([{"kind": "grid", "axes": [0], "edges": [list(range(m + 1))], "domain": m}], [m]), own=own
        )
        for m, own in zip(sizes, split, strict=True)
    ]

    def transcript(person: Sequence[int]) -> Hashable:
        return tuple(
            device.respond(plan, [Row((leaf,))], no_entropy) for plan, leaf in zip(plans, person, strict=True)
        )

    people = list(itertools.product(*map(range, sizes)))
    reports = {p: small(lambda p=p: transcript(p)) for p in people}
    assert worst_ratio(list(reports.values())) == math.prod(split)
    # Neighbours who differ at one service alone are told apart by that service's epsilon alone.
    for service, own in enumerate(split):
        for others in itertools.product(*map(range, sizes[:service] + sizes[service + 1 :])):
            group = [(*others[:service], leaf, *others[service:]) for leaf in range(sizes[service])]
            assert worst_ratio([reports[p] for p in group]) == own


@pytest.mark.parametrize("measure", [None, 0])
def test_a_service_of_rows_and_one_of_the_person_split_the_budget(small, measure):
    """One knows a value of the person, the other her rows and how many: every transcript of every person."""
    grid = {"kind": "grid", "axes": [0], "edges": [[0, 1, 2]], "domain": 2}
    plans = dataclasses.replace(plan_of([grid], [2]), own=2), weighted_plan(2, 2, measure, "GRR")
    rows = [Row((leaf,), (amount,)) for leaf in (0, 1) for amount in ((0,) if measure is None else (0, 2))]
    several = [p for n in range(4) for p in itertools.combinations_with_replacement(rows, n)]

    def transcript(leaf: int, held: Sequence[Row]) -> Hashable:
        own = [Row((leaf,))], held
        return tuple(device.respond(plan, r, no_entropy) for plan, r in zip(plans, own, strict=True))

    people = {
        (leaf, held): small(lambda p=(leaf, held): transcript(*p)) for leaf in (0, 1) for held in several
    }
    assert worst_ratio(list(people.values())) == 2 * OWN
    for held in several:  # neighbours at the first service alone, and at the second alone
        assert worst_ratio([people[leaf, held] for leaf in (0, 1)]) == 2
    for leaf in (0, 1):
        assert worst_ratio([people[leaf, held] for held in several]) == OWN


def test_the_plans_of_three_services_add_up_to_the_persons_epsilon(tmp_path: Path) -> None:
    """Real weights: the product of the three W / S is at most e^epsilon, in exact arithmetic."""
    catalog = """
dpsql: 1
name: trio
privacy: {lineage: trio, cap: 2, unit: row, epsilon: 2}
collection:
  services: {one: {axes: [p.a], share: 1/2}, two: {axes: [p.b], share: 1/3}, three: {axes: [p.c], share: 1/6}}
tables:
  p: {role: fact, columns: {
    a: {type: int, lower: 0, upper: 3}, b: {type: int, lower: 0, upper: 2}, c: {type: int, lower: 0, upper: 1}}}
views: {all: {of: p, axes: [p.a, p.b, p.c], measures: [count]}}
"""
    (tmp_path / "c.yaml").write_text(catalog)
    write_plan(tmp_path / "c.yaml", tmp_path / "plan.json", 100)
    plans = [read_plan((tmp_path / f"plan.{name}.json").read_bytes()) for name in ("one", "two", "three")]
    assert [plan.epsilon for plan in plans] == [1, Fraction(2, 3), Fraction(1, 3)]
    assert len({plan.collection for plan in plans}) == 3
    spent = math.prod(Fraction(plan.own, 1 << 20) for plan in plans)
    assert spent <= Fraction(largest_weight(Fraction(2)) + 1, 1 << 20)


def test_the_printed_mechanism_has_infinite_ratio() -> None:
    people = list(itertools.product(range(4), repeat=2))
    assert worst_ratio([printed_distribution(p, 4, 2, Fraction(3)) for p in people]) is None
    assert VECTORS["published_lprr"]["max_log_ratio"] == "inf"


def test_the_printed_estimator_is_biased() -> None:
    assert printed_bias(1000, 1.0, 0) == pytest.approx(VECTORS["published_lprr"]["bias_1000_users_eps1"])


def test_the_printed_tau() -> None:
    given = VECTORS["thm11_tau_as_printed"]
    tau = printed_tau(given["d"], given["h"], given["n"], given["gamma"], given["K"])
    assert tau == pytest.approx(given["tau"])


def test_level_shares_of_one_report_over_all_nodes() -> None:
    counts = [e.size - 1 for e in level_edges(4, 2)]
    combos = level_combinations([2, 2])
    nodes = [([1, *counts][a]) * ([1, *counts][b]) for a, b in combos]
    shares = dict(zip(combos, path_shares(nodes, 1.0), strict=True))
    for key, share in VECTORS["corrected_lprr"]["level_share_w1"].items():
        first, second = map(int, key.split(","))
        assert shares[(first, second)] == pytest.approx(share, abs=5e-5)


@pytest.mark.parametrize("row", VECTORS["e_eps_3"]["GRR"])
def test_grr_probabilities_as_fractions(row: dict[str, Any]) -> None:
    p, q = oracle_named("GRR", row["D"], 3 << 20).exact
    assert (p, q) == (Fraction(row["p"]), Fraction(row["q"]))
    assert q * (1 - q) / (p - q) ** 2 == Fraction(row["var0"])


@pytest.mark.parametrize(("name", "extra"), [("OUE", 0), ("OLH", 4)])
def test_unary_and_hashing_probabilities_as_fractions(name: str, extra: int) -> None:
    given = VECTORS["e_eps_3"][name]
    p, q = oracle_named(name, 9, 3 << 20, extra).exact
    assert (p, q) == (Fraction(given["p"]), Fraction(given["q"]))
    assert q * (1 - q) / (p - q) ** 2 == Fraction(given["var0"])
