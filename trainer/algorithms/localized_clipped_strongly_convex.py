"""Localised noisy clipped subgradient steps for strongly convex losses: one localised run after the other.

Source: Lowy & Razaviyayn 2023 (arXiv 2209.07403), Algorithm 4 run by run on ever more records, Theorem 18.
"""

from __future__ import annotations

from trainer.algorithms.localized_clipped_subgradient import LocalizedSubgradient


class LocalizedReduction(LocalizedSubgradient):
    """A run starts where the one before it ended, as a block does: so the runs are their blocks, in order.

    The plan has their radii and step sizes, which are larger again where a run begins.
    """
