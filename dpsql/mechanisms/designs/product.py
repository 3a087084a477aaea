"""Each axis by a strategy of its own: a row of the view is a product of the axes' rows.

Views that share axes are reconciled part by part. Every word of the catalog for the strategy of an axis leads here,
and so does `auto` where no way to measure several axes at once errs less.

**Privacy**: docs/privacy.md; budgets are products over axes, as the law combines them.
**Source**: docs/method/views.md, "Products of axes".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from dpsql.errors import CatalogError
from dpsql.matrices.estimated import Estimated
from dpsql.matrices.kronecker import ProductReading
from dpsql.matrices.strategy import Strategy, axis_budgets, tree_of
from dpsql.mechanisms.axis import WHOLE, axis_strategy, laws_of
from dpsql.mechanisms.designs import measurement
from dpsql.mechanisms.designs.question import (
    DesignProblem,
    FamilyAxis,
    FamilyCandidate,
    FamilyDesign,
    FamilyView,
    NamedFamily,
    Proposal,
    ViewChoice,
)
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution
from dpsql.mechanisms.offers import AxisChoice, AxisProblem, JointCells, Offer, Refusal, Word, leaf_estimates


class Product(measurement.LinearRows):
    """Axes one by one. See `Measurement` and `LinearRows` for what its methods answer."""

    @property
    def facts(self) -> measurement.MeasurementFacts:
        """One part; all views of a table are one family."""
        return measurement.MeasurementFacts(
            (measurement.ChargeLine("", Fraction(1)),), ProductReading.name, "", linear=self
        )

    def estimate(
        self, family: Sequence[measurement.DrawnMember], axes: Mapping[int, measurement.MeasuredAxis]
    ) -> list[Estimated]:
        """Every view by itself, then reconciled part by part."""
        leaves = [leaf_estimates(m.view, [axes[axis].strategy for axis in m.axes]) for m in family]
        return measurement.estimated(self, family, leaves, axes, agree=True)


PRODUCT = Product()

NAMED: Mapping[str, NamedFamily] = {}


def offers(question: DesignProblem) -> Iterator[Proposal]:
    """Fits all views whose rows per person are declared."""
    name = "axes one by one"
    if question.people:
        yield Refusal(name, f"needs a declared number in max_ids of {question.of}")
        return

    def design(views: Sequence[ViewChoice], words: str = name) -> FamilyCandidate:
        words = " x ".join(choice.name for choice in views[0].axes) if len(views) == 1 else words
        return FamilyCandidate(words, FamilyDesign(PRODUCT, tuple(views)), lambda: _error(question, views))

    views = [product_view(question, view, trees=len(question.views) == 1) for view in question.views]
    yield Offer(name, 0.0, lambda: design(views))
    on_trees = [_on_tree(question, views, place) for place in range(len(views))]
    if any(choice is not None for choice in on_trees):
        chosen = [tree or view for tree, view in zip(on_trees, views, strict=True)]
        yield Offer("joint trees", 0.0, lambda: design(chosen, "axes one by one, some leaves by one draw"))


def product_view(question: DesignProblem, view: FamilyView, *, trees: bool = True) -> ViewChoice:
    """The strategies of a view's axes, as its word says.

    Args:
        question: its family.
        view: the view.
        trees: whether the leaves of its axis may be drawn together, where it has one.

    Raises:
        CatalogError: the word has no rows for the family's noise.
    """
    law = question.law
    if law not in laws_of(view.word):
        needed, hint = (
            ("delta 0", "remove it") if law == GAUSSIAN else ("delta above 0", "write privacy.delta")
        )
        raise CatalogError(
            f"views.{view.name}.mechanism: {view.word.name} needs {needed}", hint=f"{hint}, or auto"
        )
    joint = question.joint_cells(view, 0) if trees and len(view.axes) == 1 else None
    shared = len(view.axes) > 1 and question.whole > 0
    choices = (question.axes[i].once(_strategy, law, view.word, shared, joint) for i in view.axes)
    return ViewChoice(law, tuple(choices))


def _on_tree(question: DesignProblem, views: Sequence[ViewChoice], place: int) -> ViewChoice | None:
    """Leaves of one axis drawn together for each cell of the others, where that errs less than rows of each axis.

    Args:
        question: the family.
        views: its views without trees.
        place: of the view among them.
    """
    view, choices = question.views[place], [views[place]]
    if question.joint_cells(view, 0) is None:
        return None
    shared = len(view.axes) > 1 and question.whole > 0
    if len(view.axes) == 1:
        choices.append(product_view(question, view))
    for position, axis in enumerate(view.axes if len(view.axes) > 1 else ()):
        joint = question.joint_cells(view, position)
        tree = question.axes[axis].once(_strategy, LAPLACE, view.word, shared, joint)
        if tree_of(axis_budgets([tree.strategy])) is not None:
            cells = [question.axes[i].once(_strategy, LAPLACE, CELLS, shared, None) for i in view.axes]
            choices.append(ViewChoice(LAPLACE, (*cells[:position], tree, *cells[position + 1 :])))
    kept = [choice for choice in choices if _still_agrees(question, views, place, choice)]
    best = min(kept, key=lambda choice: choice.error)
    return None if best is choices[0] else best


def _still_agrees(
    question: DesignProblem, views: Sequence[ViewChoice], place: int, choice: ViewChoice
) -> bool:
    """True if a view may be measured so and still agree with all views that it agrees with now: they are
    reconciled on axes that have one strategy, and no answer of one may contradict the other's."""
    for axis, before, after in zip(question.views[place].axes, views[place].axes, choice.axes, strict=True):
        for view, other in zip(question.views, views, strict=True):
            if other is not views[place] and axis in view.axes:
                strategy = other.axes[view.axes.index(axis)].strategy
                if before.strategy == strategy and after.strategy != strategy:
                    return False
    return True


CELLS = Word("identity")


def _strategy(
    axis: FamilyAxis, law: NoiseDistribution, word: Word, shared: bool, joint: JointCells | None
) -> AxisChoice:
    """The strategy of an axis; one that shares its views is asked as a whole half of the time."""
    scale = axis.grains.shared if shared else axis.grains.alone
    question = AxisProblem(axis.leaves, law, axis.workload, WHOLE if shared else 0.0, scale, joint)
    return axis_strategy(question, word, shared)


def _error(question: DesignProblem, views: Sequence[ViewChoice]) -> float:
    """Of one view in closed form; of several once they are reconciled, the mean over measures."""
    if len(views) == 1:
        return question.joint_gain(question.views[0]) * views[0].error
    ids: dict[tuple[int, Strategy], int] = {}  # views that share a strategy have one axis
    members = []
    for view, choice in zip(question.views, views, strict=True):
        own = [(axis, axis_choice.strategy) for axis, axis_choice in zip(view.axes, choice.axes, strict=True)]
        members.append(tuple(sorted(ids.setdefault(pair, len(ids)) for pair in own)))
    asked_axes = {
        i: measurement.AxisWorkload(own.solver, question.workload(axis)) for (axis, own), i in ids.items()
    }
    errors = []
    for measure in question.measures:
        charges = [float(view.charges.get(measure, 0)) for view in question.views]
        drawn = [
            measurement.StatisticShare(axes, question.joint_gain(view) * question.unit(charge / sum(charges)))
            for view, axes, charge in zip(question.views, members, charges, strict=True)
            if charge
        ]
        sets = measurement.asked_sets(
            [
                measurement.StatisticShare(axes, charge)
                for axes, charge in zip(members, charges, strict=True)
                if charge
            ]
        )
        errors.append(measurement.mean_error(PRODUCT, drawn, sets, asked_axes))
    return sum(errors) / len(errors)
