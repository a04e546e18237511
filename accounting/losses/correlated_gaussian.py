"""This module accounts noise that is correlated over steps, as one Gaussian mechanism or as a sampled one for each
cycle.

The run releases C G + s Z (`accounting.events.correlated_gaussian`), with sums that may depend on all earlier releases.

Without sampling, the run is one Gaussian mechanism with mu = sens / s. Given the past, row t of the release is a normal
number that the record moves by sum over i <= t of C_ti u_i, |u_i| <= 1. On every path the squares of these moves add up
to at most sens^2, which makes adaptive Gaussian steps (sens / s)-GDP (Smith & Thakurta 2022; Denisov, McMahan, Rush,
Smith & Thakurta 2022, arXiv 2202.08312). Equal contributions in the worst steps attain it.

Cyclic Poisson batches: with at most as many coefficients as the cycle has steps, the run is dominated by one
Poisson-sampled Gaussian step of noise s / |c| for each cycle, begun cycles included (Choquette-Choo et al. 2023, arXiv
2306.08153, Theorem 4). The record's steps are a cycle apart, and column i of C is nonzero only on as many rows from i
on as there are coefficients. So the columns of the record lie on disjoint blocks of rows, and rows before the first
block do not see the record. Given all rows before a block, its rows are functions of earlier ones, plus C_ri beta u,
plus noise, with the record's own fresh coin beta. A rotation that makes column i an axis leaves one Poisson-sampled
Gaussian and pure noise. Each block is dominated by the same pair whatever came before, and dominating pairs compose
adaptively (Zhu, Dong & Wang 2022). A random group is a mixture over groups, and hockey-stick divergences are jointly
convex.

The theorem is false if noise reaches farther than the cycle, if every step draws from all records, or if groups or
orders are drawn anew: with c = (0.8, 0.6) a record in the last step of one epoch and the first of the next has sens^2 =
2.96, not 2.

A replaced record moves a sum by two contribution bounds, as everywhere. Several records of one owner may be in several
groups, so only the bounds that follow from single records hold for them.
"""

from __future__ import annotations

from accounting.events.correlated_gaussian import (
    BufferedGaussian,
    Correlated,
    CorrelatedGaussian,
    InverseSquareRootGaussian,
    SquareRootGaussian,
)
from accounting.events.samplings import FULL_BATCH
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.rules import MechanismRules, rules_for


@rules_for(CorrelatedGaussian)
@rules_for(SquareRootGaussian)
@rules_for(InverseSquareRootGaussian)
@rules_for(BufferedGaussian)
class CorrelatedRules(MechanismRules[Correlated]):
    """The rules of correlated noise. A list of events is resolved before it is accounted, so only single steps occur
    here.
    """

    def loss(self, mechanism: Correlated, sensitivity: float) -> GaussianLoss:
        return GaussianLoss(sensitivity * mechanism.sensitivity(FULL_BATCH, 1) / mechanism.noise_multiplier)
