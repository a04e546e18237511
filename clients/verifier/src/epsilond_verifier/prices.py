"""Prices: H(e) <= F(e) = d + (1 - d) delta_G(e; m) for every e >= 0, the profile of a Gaussian that fails with d.

docs/concepts/gaussian_filter.md, "How a price is proved". As a function of x = exp(e), the profile H is convex and
decreasing, so it is below the chord of the bounds u_i at two neighbouring nodes. F is convex in x, too, and therefore
above each of its tangents. So a chord that is at or below one tangent at both ends is below F between them. Beyond the
last node H <= u_k <= d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from flint import arb, fmpq

from epsilond_verifier import laws
from epsilond_verifier.bounds import CannotCheck, Node, normal_cdf, require
from epsilond_verifier.reading import Reader

MOST_NODES = 400
OWN = "Gaussian, Laplace and pure DP steps are Gaussian DP with the mu of their total variation (Dong, Roth & Su 2022)"
FILTER = "the charges of adaptively chosen steps add up, for each limit (docs/concepts/gaussian_filter.md)"


@dataclass(frozen=True, slots=True)
class Price:
    """A price: m > 0 is mu squared, d the failure, and ``pure`` the sum of pure epsilons, or None if not stated."""

    exact: fmpq
    d: arb
    pure: arb | None
    spelled: str

    @classmethod
    def read(cls, stated: Reader) -> Price:
        """Read the price from whole numbers, in units of 1e-9, 1e-18 and 1e-9."""
        m, d = stated.whole("nano_mu_squared", 1, 10**18), stated.whole("atto_failure", 0, 10**18)
        pure = stated.whole("nano_pure_epsilon", 0, 10**18) if stated.has("nano_pure_epsilon") else None
        spelled = f"mu squared {m}e-9 with failure {d}e-18" + ("" if pure is None else f" and pure epsilon {pure}e-9")
        sum_of_pure = None if pure is None else arb(fmpq(pure, 10**9))
        return cls(fmpq(m, 10**9), arb(fmpq(d, 10**18)), sum_of_pure, spelled)

    @property
    def m(self) -> arb:
        """Return m as a ball."""
        return arb(self.exact)

    def delta(self, e: arb) -> arb:
        """Return F(e)."""
        return self.d + (1 - self.d) * laws.delta_of_normal(self.m.sqrt(), e)

    def require(self, steps: Sequence[laws.Step], nodes: Sequence[Node]) -> None:
        """Check that the price follows from the bounds at its nodes or, without nodes, from the steps' own mu."""
        self.require_pure(steps)
        if nodes:
            self.require_chords(nodes)
        else:
            self.require_own(steps)

    def require_pure(self, steps: Sequence[laws.Step]) -> None:
        """Check that the losses add up to at most the pure epsilon, in both directions."""
        if self.pure is not None:
            for direction in ("add", "remove"):
                require(laws.sum_of_largest(steps, direction) <= self.pure, "the stated pure epsilon is large enough")

    def require_own(self, steps: Sequence[laws.Step]) -> None:
        """Check that the squares of the steps' own mu add up to at most m. In this case no failure is needed."""
        left, total = self.exact, arb(0)
        for step in steps:
            if isinstance(step.law, laws.Normal) and step.law.rational is not None:
                left -= step.count * step.law.rational
            else:
                total += step.count * _own(step)
        require(total <= arb(left), "the squares of mu add up to at most the stated one")

    def require_chords(self, nodes: Sequence[Node]) -> None:
        """Check that F is above the chords of the nodes' bounds, and d above the last of them."""
        require(nodes[0].e == 0, "the epsilon of the first node is 0")
        require(nodes[-1].most <= self.d, "the last node's delta is at most the stated failure")
        mu = self.m.sqrt()
        for left, right in pairwise(nodes):
            require(left.e < right.e, "the epsilons of the nodes increase")
            x, y = left.e.exp(), right.e.exp()
            # Any tangent is valid. The best one has the slope of the chord.
            share = ((left.most - right.most) / (y - x) / (1 - self.d)).min(arb(1) / 2)
            place = (mu * (arb(2).sqrt() * (1 - 2 * share).erfinv() - mu / 2)).max(left.e).min(right.e)
            place = arb(place.mid())
            value, slope = self.delta(place), -(1 - self.d) * normal_cdf(-place / mu - mu / 2)
            for end, bound in ((x, left.most), (y, right.most)):
                require(bound <= value + slope * (end - place.exp()), f"the price holds from e = {left.e.str(9)} on")


def _own(step: laws.Step) -> arb:
    """Return the square of mu = 2 sqrt 2 erfinv(TV), at which a Gaussian has the step's total variation TV."""
    law = step.law
    if isinstance(law, laws.Normal):
        return law.mu_squared
    if isinstance(law, laws.Laplace):
        variation = -(-law.lam / 2).expm1()
    elif isinstance(law, laws.Atoms) and laws.is_symmetric(law):
        variation = (laws.largest_loss(law, "remove") / 2).tanh()
    else:
        raise CannotCheck("a step has no Gaussian DP guarantee that this verifier knows")
    return 8 * variation.erfinv() ** 2
