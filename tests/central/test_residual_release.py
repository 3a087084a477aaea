"""The residual design as it is published: integers, budgets, variances and answers of overlapping views."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce

import duckdb
import numpy as np
import pytest

from dpsql.budget.curve import mu2_of
from dpsql.catalog import parse_catalog
from dpsql.central.axes import axis_maker
from dpsql.central.plan import plan_release
from dpsql.curator.audit import audit_release
from dpsql.curator.dry_release import priced_plan
from dpsql.curator.forecast import forecast
from dpsql.engines.duck import RawSide
from dpsql.errors import CatalogError, NoViewError
from dpsql.matrices.reconcile import subsets
from dpsql.matrices.strategy import axis_budgets, measure_view
from dpsql.mechanisms.axis.dense import best_gram, zero_sum_strategy
from dpsql.mechanisms.designs.residual import RESIDUAL, residual_estimates
from dpsql.mechanisms.distribution import GAUSSIAN
from dpsql.noise import ZeroNoise
from tests.releases import published, seeded, write_tables
from tests.strategies import dense
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

CATALOG = """
dpsql: 1
name: clinic
source: {kind: parquet, root: ".", tables: {visit: visit.parquet}}
privacy: {lineage: clinic, cap: 10, unit: row, epsilon: 2.0, delta: 1e-6}
tables:
  visit: {role: fact, columns: {
    age: {type: int, lower: 0, upper: 39, cuts: {width: 5}, out_of_domain: drop},
    ward: {type: string, categories: [a, b, c], out_of_domain: drop},
    day: {type: int, lower: 1, upper: 12, out_of_domain: drop},
    cost: {type: int, lower: 0, upper: 40, measure: true}}}
views:
  who: {of: visit, axes: [visit.age, visit.ward], measures: [count, visit.cost]}
  when: {of: visit, axes: [visit.day, visit.ward], measures: [count, visit.cost]}
"""


def planned(text=CATALOG):
    catalog = parse_catalog(text, "clinic.yaml")
    return plan_release(catalog, axis_maker(catalog, RawSide(None, {})))


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    """A small table and a way to publish it."""
    folder = tmp_path_factory.mktemp("clinic")
    visit = (
        "SELECT (i * 7919) % 40 AS age, chr(97 + ((i * i) % 3)::INT) AS ward, 1 + (i * 31) % 12 AS day, "
        "(i * 13) % 41 AS cost, i // 2 AS who FROM range(4000) t(i)"
    )
    write_tables(folder, {"visit": visit, "person": "SELECT range AS who FROM range(2000)"})
    made = {}

    def publish(text, noise, name):
        if name not in made:
            (folder / name).mkdir()
            (folder / name / "catalog.yaml").write_text(text.replace('root: "."', 'root: ".."'))
            made[name] = published(folder / name / "catalog.yaml", noise, key=b"k" * 32)
        return made[name]

    publish.table = f"'{folder}/visit.parquet'"
    return publish


@pytest.mark.parametrize(("n", "scale"), [(2, 1 << 6), (7, 1 << 6), (60, 1 << 9), (60, 1 << 14)])
def test_rows_are_integers_that_add_to_zero_and_their_norm_is_declared(n, scale):
    strategy = zero_sum_strategy(n, scale=scale)
    rows = strategy.stored["matrix"]
    assert not rows.sum(axis=1).any()
    squares = (rows.astype(object) ** 2).sum(axis=0)
    assert (strategy.total - 1) ** 2 < max(squares) <= strategy.total**2
    ranges, best = np.triu(np.ones((n, n))), np.linalg.pinv(best_gram(n), hermitian=True, rcond=1e-12)
    rounded = np.linalg.pinv(rows.T @ rows / strategy.total**2, hermitian=True, rcond=1e-12)
    spread = [float(np.sum((ranges @ each) * ranges, axis=1).mean()) for each in (rounded, best)]
    assert spread[0] < (1.04 if scale < 1 << 9 else 1.005) * spread[1]


def test_every_cell_costs_at_most_the_promised_rho_in_exact_fractions():
    """The charge of a cell over all sets of both measures: squared columns over twice the drawn variance."""
    plan = planned()
    whole, spent = mu2_of(plan.catalog.privacy.epsilon, plan.catalog.privacy.delta), {}
    for s in plan.statistics:
        assert s.measurement == RESIDUAL
        columns = [np.sum(plan.axes[i].strategy.stored["matrix"].astype(object) ** 2, axis=0)
                   for i in s.axes]  # fmt: skip
        norm = reduce(lambda a, b: a * b, (int(max(column)) for column in columns), 1)
        total = reduce(lambda a, b: a * b, (plan.axes[i].strategy.total for i in s.axes), 1)
        variance = Fraction((s.drawn_sensitivity * total) ** 2) / s.spend
        spent[s.view, s.measure.name] = s.drawn_sensitivity**2 * norm / variance
    assert len(spent) == 12
    assert (
        whole * Fraction(999, 1000) < sum(spent.values()) <= sum(line.amount for line in plan.lines) <= whole
    )


def test_variances_in_the_release_are_those_of_dense_least_squares(clinic):
    answerer = clinic(CATALOG, seeded(1), "noisy")
    plan, release = planned(), answerer.release
    counts = [(i, s) for i, s in enumerate(plan.statistics) if s.measure.name == "count"]
    sizes = [planned_axis.axis.leaves for planned_axis in plan.axes]
    information = np.zeros((np.prod(sizes),) * 2)
    for _, s in counts:
        rows = reduce(np.kron, [dense(plan.axes[i].strategy) / plan.axes[i].strategy.total if i in s.axes
                                else np.ones((1, n)) for i, n in enumerate(sizes)])  # fmt: skip
        information += rows.T @ rows / s.variance_at_unit_budget(plan.axes)
    covariance = np.linalg.pinv(information, hermitian=True, rcond=1e-10)
    draw = np.random.default_rng(2)
    for index, s in counts:
        masks = {i: draw.random((4, sizes[i])) for i in s.axes}
        found = release.reading(index).covariance([masks[i] for i in s.axes]).noise
        for g in range(4 if s.axes else 1):
            q = reduce(np.kron, [masks[i][g] if i in s.axes else np.ones(n) for i, n in enumerate(sizes)])
            assert found[g] == pytest.approx(q @ covariance @ q, rel=1e-8)


def drawn_set(rows, strategies, mu2, sensitivity, noise):
    """What a set of axes draws; the empty set is the total."""
    return GAUSSIAN.draw(measure_view(rows, strategies), axis_budgets(strategies), mu2, sensitivity, noise)


@pytest.mark.slow
def test_errors_are_as_large_as_predicted():
    """600 draws of a three-axis family: mean squared error of a box over its predicted variance."""
    sizes, noise = (6, 5, 4), seeded(3)
    strategies = {i: zero_sum_strategy(n, scale=1 << 9) for i, n in enumerate(sizes)}
    sets = subsets((0, 1, 2))
    histogram = np.arange(120).reshape(sizes)
    mu2 = {part: Fraction(1 + len(part), 20) for part in sets}
    predicted = 0.0
    box = [np.r_[0, 1, 1, 1, 0, 0.0], np.r_[1, 1, 0, 0, 0.0], np.r_[0, 1, 1, 1.0]]
    for part in sets:
        term = float(1 / mu2[part])
        for i, mask in enumerate(box):
            share = (mask.sum() / len(mask)) ** 2
            spread = float(strategies[i].solver.quadratic(mask[None])[0]) - share
            term *= spread if i in part else share
        predicted += term
    errors = []
    for _ in range(600):
        drawn = {
            part: drawn_set(histogram.sum(axis=tuple({0, 1, 2} - set(part))), [strategies[i] for i in part],
                                mu2[part], 1, noise)
            for part in sets
        }  # fmt: skip
        off = residual_estimates(drawn, strategies)[0, 1, 2] - histogram
        errors.append(float(np.einsum("abc,a,b,c->", off, *box)))
    assert abs(np.mean(errors)) < 4 * np.sqrt(predicted / 600)
    assert np.mean(np.square(errors)) == pytest.approx(predicted, rel=0.2)


def test_without_noise_answers_are_exact_and_hidden_sets_answer_too(clinic):
    exact, db = clinic(CATALOG, ZeroNoise(), "exact"), duckdb.connect()
    for where in (
        "",
        "WHERE day BETWEEN 3 AND 9",
        "WHERE ward = 'b' AND age < 20",
        "WHERE ward <> 'a' AND day > 4",
    ):
        sql = f"SELECT COUNT(*), SUM(cost) FROM visit {where}"
        assert [tuple(map(float, exact.query(sql).rows[0]))] == [
            tuple(map(float, row)) for row in db.execute(sql.replace("visit", clinic.table, 1)).fetchall()
        ]
    assert {s.view for s in exact.release.statistics} == {
        "who", "when", "(visit in all)", "(visit by visit.age)", "(visit by visit.ward)", "(visit by visit.day)"
    }  # fmt: skip


def test_both_views_tell_the_same_margin(clinic):
    answerer = clinic(CATALOG, seeded(1), "noisy")
    whole = answerer.query("SELECT ward, COUNT(*) FROM visit GROUP BY ward").rows
    for key in ("age < 20", "day"):
        parts = answerer.query(f"SELECT ward, {key}, COUNT(*) FROM visit GROUP BY ward, {key}").rows
        for ward, count in whole:
            # multiples of 2^-20, exact as floats
            assert sum(row[2] for row in parts if row[0] == ward) == count


def test_the_release_passes_its_audit(clinic, tmp_path):
    answerer = clinic(CATALOG, seeded(1), "noisy")
    report = audit_release(answerer.release.path, seeded(2), catalog=None, samples=0)
    wrong = [check.what for check in report.checks if check.held is False]
    assert wrong == ["noise from the system's entropy"]


def test_auto_takes_the_design_where_it_errs_less_and_says_what_it_predicts():
    assert all(s.measurement == RESIDUAL for s in planned().statistics)
    own = planned(
        CATALOG.replace("measures: [count, visit.cost]}", "measures: [count, visit.cost], share: 0.5}")
    )
    assert not any(s.measurement == RESIDUAL for s in own.statistics)
    pure = planned(CATALOG.replace(", delta: 1e-6", ""))
    assert not any(s.measurement == RESIDUAL for s in pure.statistics)
    catalog = parse_catalog(CATALOG, "clinic.yaml")
    typical = {}
    for mechanism in ("residual", "gaussian"):
        text = CATALOG.replace("visit.cost]}", f"visit.cost], mechanism: {mechanism}}}")
        catalog = parse_catalog(text, "clinic.yaml")
        found = forecast(priced_plan(catalog, axis_maker(catalog, RawSide(None, {}))))
        typical[mechanism] = {(s.view, s.measure): s.typical for s in found}
    assert all(typical["residual"][key] < value for key, value in typical["gaussian"].items())


def test_rows_with_weights_are_published_and_predicted_in_their_own_unit(clinic):
    text = CATALOG.replace("visit.parquet}", "visit.parquet, person: person.parquet}")
    text = text.replace("unit: row", "unit: person.who")
    text = text.replace(
        "role: fact,",
        "role: fact, max_ids: 2, clipped_share: 0, bounding: weight, foreign_keys: {who: person},",
    )
    text = text.replace("\ntables:\n", "\ntables:\n  person: {role: dimension, key: who, private: true}\n")
    exact = clinic(text, ZeroNoise(), "weighted")
    assert float(exact.query("SELECT COUNT(*) FROM visit").rows[0][0]) == 4000
    catalog = parse_catalog(text, "clinic.yaml")
    (total,) = [s for s in forecast(priced_plan(catalog, axis_maker(catalog, RawSide(None, {}))))
                if s.view == "(visit in all)" and s.measure == "count"]  # fmt: skip
    counted = exact.query("SELECT COUNT(*) FROM visit")
    assert total.typical == pytest.approx(float(counted.stderr.iloc[0, 0]))


def test_a_cut_bin_is_refused_where_every_view_of_an_axis_refuses_it(clinic):
    text = CATALOG.replace("axes: [visit.age,", "on_partial_bin: refuse, axes: [visit.age,")
    answerer = clinic(text, seeded(5), "strict")
    assert answerer.query("SELECT COUNT(*) FROM visit WHERE age < 20").rows
    with pytest.raises(NoViewError, match="would cut a bin") as refusal:
        answerer.query("SELECT COUNT(*) FROM visit WHERE age < 21")
    assert answerer.query("SELECT COUNT(*) FROM visit WHERE day < 4").rows
    assert "Traceback" not in str(refusal.value)


@pytest.mark.parametrize("measures", ["[count]", "[count, visit.cost]"])
@pytest.mark.parametrize("axes", by_default(["[visit.age, visit.ward, visit.day]", "[visit.age]"], 1))
@pytest.mark.parametrize("upper", [1, 10**6, 10**12])
def test_sixteen_million_rows_at_their_bound_fit_in_64_bits(measures, axes, upper):
    text = CATALOG.split("views:")[0].replace("upper: 40", f"upper: {upper}")
    text += f"views:\n  all: {{of: visit, axes: {axes}, measures: {measures}, mechanism: gaussian}}\n"
    if upper == 10**12 and "cost" in measures:
        with pytest.raises(CatalogError, match="may not fit 64 bits"):
            planned(text)
        return
    plan = planned(text)
    for s in plan.statistics:
        largest = (1 << 24) * (s.bounds.reach if s.bounds else 1)
        for strategy in plan.strategies(s):
            largest *= strategy.entries().largest
        assert largest < 1 << 62


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (", delta: 1e-6", "", "needs delta above 0"),
        (
            "visit.day, visit.ward]",
            "visit.age, visit.ward]",
            "who and when measure count on visit.age and visit.ward",
        ),
        ("upper: 39, cuts: {width: 5}", "upper: 3999", "2 to 1024 leaves and visit.age has 4000"),
        ("upper: 39, cuts: {width: 5}", "upper: 0", "2 to 1024 leaves and visit.age has 1"),
    ],
)
def test_refusals_say_what_to_change(old, new, said):
    text = CATALOG.replace("visit.cost]}", "visit.cost], mechanism: residual}")
    with pytest.raises(CatalogError, match=said):
        planned(text.replace(old, new))
