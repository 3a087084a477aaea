"""Boolean conditions over several axes -> disjoint boxes.

A box takes on each axis some truth patterns of that axis's predicates. An axis is split by its patterns,
the rest of the condition is simplified under each, and patterns that leave the same rest are put together;
so boxes never overlap and their sums add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpsql.answer.block import FALSE, TRUE, Always, Condition, Predicate, every, predicates, some
from dpsql.errors import NotSupportedError

MAX_BOXES = 64
"""Each box is one more join; 64 keep the slowest statement under a second."""

Box = tuple[frozenset[int] | None, ...]
"""For each axis of the view the truth patterns taken, or None for all of them."""


def disjoint_boxes(
    condition: Condition,
    classes: Sequence[Sequence[Predicate]],
    patterns: Sequence[Sequence[tuple[bool, ...]]],
) -> list[Box]:
    """Boxes that together are the rows where the condition is true.

    Args:
        condition: over the predicates in `classes`.
        classes: for each axis its predicates.
        patterns: for each axis the truths that occur on it.

    Returns:
        Disjoint boxes.

    Raises:
        NotSupportedError: more than MAX_BOXES of them.
    """
    boxes = _split(condition, classes, patterns, 0)
    if len(boxes) > MAX_BOXES:
        raise NotSupportedError(
            f"the condition falls into {len(boxes)} boxes over several axes, the limit is {MAX_BOXES}",
            hint="use fewer OR between different columns",
        )
    return boxes


def _split(
    condition: Condition,
    classes: Sequence[Sequence[Predicate]],
    patterns: Sequence[Sequence[tuple[bool, ...]]],
    axis: int,
) -> list[Box]:
    if condition == FALSE:
        return []
    if axis == len(classes):
        return [()] if condition == TRUE else []
    used = set(predicates(condition)) & set(classes[axis])
    if not used:
        return [(None, *box) for box in _split(condition, classes, patterns, axis + 1)]
    rests: dict[Condition, set[int]] = {}
    for number, truths in enumerate(patterns[axis]):
        known = dict(zip(classes[axis], truths, strict=True))
        rests.setdefault(_assign(condition, known), set()).add(number)
    boxes: list[Box] = []
    for rest, numbers in rests.items():
        boxes += [(frozenset(numbers), *box) for box in _split(rest, classes, patterns, axis + 1)]
        if len(boxes) > 4 * MAX_BOXES:
            break
    return boxes


def _assign(condition: Condition, known: Mapping[Predicate, bool]) -> Condition:
    """The condition once some predicates are known."""
    if isinstance(condition, Predicate):
        return Always(known[condition]) if condition in known else condition
    if isinstance(condition, Always):
        return condition
    parts = [_assign(part, known) for part in condition.parts]
    return every(parts) if type(condition).__name__ == "Every" else some(parts)
