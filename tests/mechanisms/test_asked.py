"""Rows for a few questions: exact spends, never above what is paid per question, as noisy as the model says."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.budget import scaled_denominator
from dpsql.budget.curve import SLACK
from dpsql.errors import CatalogError, InternalError
from dpsql.matrices.blocks import AskedVariance, asked_from_columns
from dpsql.mechanisms.axis.dense import matrix_root
from dpsql.mechanisms.designs.measurement import DrawParameters
from dpsql.mechanisms.designs.question import DesignProblem, FamilyAxis, FamilyView, Grains
from dpsql.mechanisms.designs.workload_matrix import AskedRows, best_rows, classes_of, held_cells, offers
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoisyView
from dpsql.mechanisms.offers import Refusal, Word
from dpsql.noise import ExactNoise, insecure_test_entropy


def rectangles(seed: int, number: int, n: int = 12):
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(number):
        (a, b), (c, d) = (np.sort(rng.choice(n + 1, 2, replace=False)).tolist() for _ in range(2))
        found.append(((((a, b),), ((c, d),)),))
    return tuple(found)


def made(questions, law, n: int = 12):
    grains = Grains(1 << 14, 1 << 12)
    axes = tuple(FamilyAxis(name, n, None, grains) for name in "ab")
    view = FamilyView("v", (0, 1), Word("auto"), False, {"count": Fraction(1)}, True, False, questions)
    question = DesignProblem("t", (view,), axes, law, batches=False, people=False, named="asked")
    (offer,) = offers(question)
    assert not isinstance(offer, Refusal)
    return offer.make().strategy.measurement


@pytest.mark.long
@given(st.integers(0, 10_000), st.integers(1, 6), st.sampled_from([1, 2]))
def test_it_never_errs_more_than_what_is_paid_per_question(seed, number, norm):
    _, questions = classes_of(held_cells(rectangles(seed, number), (12, 12)))
    best = best_rows(questions, norm)
    assert best.error <= number ** (1 + 2 / norm) * (1 + 1e-6)
    depth = int(questions.sum(axis=0).max())
    assert best.error <= number * depth ** (2 / norm) * (1 + 1e-6)  # nor than where only overlaps share
    assert (np.abs(best.matrix) ** norm).sum(axis=0).max() == pytest.approx(1)


def test_disjoint_questions_get_all_of_the_budget_and_equal_ones_are_asked_once():
    disjoint = np.eye(5, dtype=np.int64)
    for norm in (1, 2):
        assert best_rows(disjoint, norm).error == pytest.approx(5)
        assert best_rows(np.repeat(disjoint[:1], 4, axis=0), norm).error == pytest.approx(4)


def test_under_gaussian_noise_it_is_near_the_least_error_of_all_rows():
    for seed in range(3):
        _, questions = classes_of(held_cells(rectangles(seed, 8), (12, 12)))
        gram = (questions.T @ questions).astype(float)
        price = np.ones(len(gram))
        for _ in range(200):
            side = np.sqrt(price)
            root = matrix_root(side[:, None] * gram * side)
            price = price * (np.diag(root) / price) ** 2
        side = np.sqrt(price)  # for any prices this is below the cost of every X of unit diagonal
        least = (
            np.sqrt(np.maximum(np.linalg.eigvalsh(side[:, None] * gram * side), 0)).sum() ** 2 / price.sum()
        )
        assert least <= best_rows(questions, 2).error * (1 + 1e-9) <= 1.02 * least


@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN])
def test_answers_are_unbiased_and_as_noisy_as_the_model_says(law):
    questions = rectangles(5, 6)
    rows = made(questions, law)
    held = held_cells(questions, (12, 12))
    cells = np.random.default_rng(1).integers(0, 50, (12, 12))
    terms, noise = DrawParameters((), law, Fraction(1, 4), 3), ExactNoise(insecure_test_entropy(3))
    masks = [np.array([[float(lo <= i < hi) for i in range(12)] for ((((lo, hi),), _),) in questions]),
             np.array([[float(lo <= i < hi) for i in range(12)] for ((_, ((lo, hi),)),) in questions])]  # fmt: skip
    said = rows.variance_at_unit_budget(terms) * rows.facts.model.covariance(masks)
    off = []
    for _ in range(400):
        leaves = rows.leaf_estimates(rows.draw(cells, terms, noise), ())
        off.append(held @ leaves.ravel() - held @ cells.ravel())
    found = np.mean(np.square(off), axis=0)
    assert np.abs(np.mean(off, axis=0) / np.sqrt(said / 400)).max() < 4.5
    assert (found / said).min() > 0.7 and (found / said).max() < 1.35
    exact = NoisyView(rows.measure(cells, ()), rows.budgets(terms), 1.0, 3)
    assert held @ rows.leaf_estimates(exact, ()).ravel() == pytest.approx(held @ cells.ravel(), abs=1e-7)


def test_the_model_comes_back_from_its_columns_and_knows_what_was_asked():
    questions = rectangles(2, 5)
    model = made(questions, GAUSSIAN).facts.model
    again = asked_from_columns(model.columns())
    assert np.array_equal(again.classes, model.classes) and np.array_equal(again.rows, model.rows)
    held = held_cells(questions, (12, 12)).reshape(-1, 12, 12)
    for boxes in questions:
        masks = [np.zeros((1, 12)), np.zeros((1, 12))]
        for mask, ((lo, hi),) in zip(masks, boxes[0], strict=True):
            mask[0, lo:hi] = 1
        assert again.knows(masks)
    outside = tuple(int(i[0]) for i in np.nonzero(held.sum(axis=0) == 0))
    one = [np.eye(12)[[i]] for i in outside]
    assert not again.knows(one)


def test_sums_of_rows_are_known_and_parts_of_them_are_not():
    model = AskedVariance(np.array([[0, 1], [2, -1]]), np.array([[1.0, 1, 0], [0, 1, 1]]))
    first = [np.array([[1.0, 0]]), np.array([[1.0, 1]])]  # classes 0 and 1: a row
    assert model.knows(first) and model.rank == 2
    assert not model.knows([np.array([[1.0, 0]]), np.array([[1.0, 0]])])
    far = [np.array([[0.0, 1]]), np.array([[1.0, 0]])]  # class 2 alone
    near = [np.array([[1.0, 0]]), np.array([[0.0, 1]])]  # class 1 alone
    assert not model.knows(far) and model.knows(far, near)


def test_boxes_that_make_no_sense_are_refused():
    for question, words in (
        (((((0, 13),), ((0, 1),)),), "is not an interval"),
        (((((0, 3),),),), "each axis"),
        (((((0, 3),), ((0, 3),)), (((2, 4),), ((2, 4),))), "overlap"),
    ):
        with pytest.raises(CatalogError, match=words):
            held_cells((question,), (12, 12))


def rows(law, seed: int) -> AskedRows:
    rng = np.random.default_rng(seed)
    held = (rng.random((5, 30)) < 0.4).astype(np.int64)
    classes, questions = classes_of(held)
    matrix = np.trunc(best_rows(questions, law.norm).matrix * (1 << 16)).astype(np.int64)
    largest = int((np.abs(matrix) ** law.norm).sum(axis=0).max())
    total = next(b for b in range(int(largest ** (1 / law.norm)), largest + 1) if b**law.norm >= largest)
    return AskedRows(classes.reshape(5, 6), matrix, total, law)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sensitivity", [1, 250])
def test_no_cell_spends_more_than_epsilon(seed: int, sensitivity: int):
    made, epsilon = rows(LAPLACE, seed), Fraction(1, 7)
    budget = made.budgets(DrawParameters((), LAPLACE, epsilon, sensitivity))
    t, spent = scaled_denominator(sensitivity), []
    for cell in np.ndindex(5, 6):
        one = np.zeros((5, 6), np.int64)
        one[cell] = sensitivity
        moved = made.measure(one, ())
        pairs = zip(moved, budget, strict=True)
        spent.append(sum((abs(int(m)) * Fraction(int(s), t * sensitivity) for m, s in pairs), Fraction(0)))
    assert epsilon * Fraction(98, 100) < max(spent) <= epsilon


@pytest.mark.parametrize("seed", range(3))
def test_no_cell_spends_more_than_mu2(seed: int):
    made, mu2 = rows(GAUSSIAN, seed), Fraction(1, 18)
    sigma2 = GAUSSIAN.row_variance(1, Fraction(made.total**2) / mu2)
    spent = []
    for cell in np.ndindex(5, 6):
        one = np.zeros((5, 6), np.int64)
        one[cell] = 1
        moved = made.measure(one, ())
        spent.append(sum((Fraction(int(m) ** 2) / (sigma2 - SLACK) for m in moved), Fraction(0)))
    assert mu2 * Fraction(98, 100) < max(spent) <= mu2


@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN])
def test_overspending_rows_cannot_be_built(law):
    good = rows(law, 1)
    with pytest.raises(InternalError):
        AskedRows(good.classes, good.matrix * 2, good.total, law)
    with pytest.raises(InternalError):
        AskedRows(good.classes, good.matrix, good.total - good.total // 50, law)
