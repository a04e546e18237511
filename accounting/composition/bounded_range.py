"""This module chooses the pairs that stand for all steps of bounded range in a list, from above and from below.

A few steps are one block, exact whatever else the list holds (`accounting.losses.bounded_range_steps`). More equal
steps form several equal blocks, whose epsilon differs from that of a single block by less than a thousandth. If there
are too many kinds of steps for one block, only the kind with the largest sum of squares forms blocks; every other step
has the pair of a single step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from accounting.losses.bounded_range_steps import AttainedBlockLoss, BlockLoss, Kinds, TwoLossesLoss, fits
from accounting.losses.exponential import BoundedRangeLoss, BoundedRangePairLoss
from accounting.losses.privacy_loss import PrivacyLoss

Steps = list[tuple[PrivacyLoss, int]]

#: The name of the method in answers about lists that have only steps of bounded range.
METHOD = "bounded_range_recursion"
#: The largest and the smallest number of steps in one block. With more steps the lattice is coarser; with fewer,
#: several blocks differ more from a single block.
_MOST, _LEAST = 250, 150


def together(steps: Sequence[tuple[BoundedRangeLoss, int]], tilt: float | None) -> tuple[Steps, Steps]:
    """Return steps that dominate all the given steps, and steps that some neighbours attain.

    Args:
        steps: The losses of bounded range, each with its number of steps.
        tilt: The approximate value of -d log delta / d eps at the value that is asked for. If there are many steps,
            their t is fixed in advance: the t that costs most at this tilt.

    >>> above, below = together([(BoundedRangeLoss(0.1), 20)], None)
    >>> above, below
    ([(BlockLoss(kinds=((0.1, 20),)), 1)], [(AttainedBlockLoss(kinds=((0.1, 20),)), 1)])
    """
    counts: dict[float, int] = {}
    for loss, count in steps:
        counts[loss.epsilon] = counts.get(loss.epsilon, 0) + count
    kinds = tuple(sorted(counts.items()))
    number = sum(counts.values())
    if number == 1:
        pair = BoundedRangePairLoss(kinds[0][0])
        return [(pair, 1)], [(pair, 1)]
    if number <= _MOST and fits(kinds):
        return [(BlockLoss(kinds), 1)], [(AttainedBlockLoss(kinds), 1)]
    main = max(kinds, key=lambda kind: kind[0] ** 2 * kind[1])
    others = tuple(kind for kind in kinds if kind != main)
    return _blocks(main, others), _attained(main, others, tilt)


def _blocks(main: tuple[float, int], kinds: Kinds) -> Steps:
    size, number = main
    others: Steps = [(BoundedRangePairLoss(length), count) for length, count in kinds]
    # Choose the length of a block such that the blocks together have as few steps as possible beyond the given ones.
    lengths = [number] if number <= _MOST else range(_LEAST, _MOST + 1)
    length = min(lengths, key=lambda each: (-(-number // each) * each, -each))
    kind = ((size, length),)
    if number == 1 or not fits(kind):
        return [*others, (BoundedRangePairLoss(size), number)]
    return [*others, (BlockLoss(kind), -(-number // length))]


def _attained(main: tuple[float, int], others: Kinds, tilt: float | None) -> Steps:
    """Return steps that some neighbours attain. If there are few steps, the choice of t in all or some of them may
    depend on earlier outputs.

    If t is fixed in advance, it is the t with the largest moment at ``tilt``.
    """
    if fits((main, *others)):
        return [(AttainedBlockLoss((main, *others)), 1)]
    last = bool(others) and fits(others)
    fixed = (main,) if last else (main, *others)
    below: Steps = [(TwoLossesLoss(size, _highest(size, tilt)), count) for size, count in fixed]
    return [*below, (AttainedBlockLoss(others), 1)] if last else below


def _highest(size: float, tilt: float | None) -> float:
    """Return the t with the largest moment at tilt x: e^t = x (e^eps - e^(-x eps)) / ((x + 1) (1 - e^(-x eps)))."""
    if tilt is None or size > 300.0:
        return 0.5 * size
    with np.errstate(all="ignore"):
        # e^eps is taken out of the numerator, so that nothing overflows.
        grown = -math.expm1(-(tilt + 1.0) * size) / -math.expm1(-tilt * size)
    t = size + math.log(tilt / (tilt + 1.0) * grown)
    return t if 0.0 < t < size else 0.5 * size
