"""This module accounts guarantees that are taken as stated: pure, approximate, zero-concentrated and Renyi DP."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accounting.errors import Unsupported
from accounting.events.mechanism import Mechanism
from accounting.events.stated import ApproximateDp, PureDp, RenyiDp, ZcDp
from accounting.fourier.ratio_step import RatioStep
from accounting.losses.discrete_laplace import DiscreteLaplaceLoss
from accounting.losses.privacy_loss import GroupStep, PrivacyLoss, ratio_digits
from accounting.losses.rules import ChargedStep, MechanismRules, rules_for
from accounting.losses.support import Support, mirrored
from accounting.units import Between, exact, exactly

Array = NDArray[np.float64]
_ALLOWANCE = 1e-12
#: The smallest epsilon for groups; below it, masses of discrete Laplace noise cannot be represented.
_SMALLEST_FOR_GROUPS = 1e-100


@dataclass(frozen=True, slots=True)
class RandomizedResponseLoss(PrivacyLoss):
    """Randomised response on one bit, which dominates every epsilon-DP mechanism (Kairouz, Oh & Viswanath 2015).

    The loss is +epsilon with probability p = e^eps / (1 + e^eps) and -epsilon otherwise.
    """

    epsilon: float

    symmetric = True
    has_pair = True
    #: An epsilon may be a rounded product or quotient.
    end_error = 2.0**-51
    moments_within = 3.0 * _ALLOWANCE
    #: Whether the loss stands for a stated guarantee, so that it is that of the worst mechanism with the guarantee.
    is_stated: ClassVar[bool] = False

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    def log_moment(self, tilts: Array) -> Array:
        """Return log [ cosh((x + 1/2) eps) / cosh(eps/2) ]  (Mironov 2017, Proposition 5, order x + 1)."""
        epsilon = self.epsilon
        largest = (tilts + 0.5) * epsilon
        with np.errstate(over="ignore", invalid="ignore"):
            numerator = 2.0 * np.sinh(0.5 * (tilts + 1.0) * epsilon) * np.sinh(0.5 * tilts * epsilon)
            small = np.log1p(numerator / math.cosh(min(0.5 * epsilon, 700.0)))
        large = tilts * epsilon + np.log1p(np.exp(-2.0 * largest)) - math.log1p(math.exp(-epsilon))
        moment: Array = np.where(largest > 300.0, large, small) * (1.0 + _ALLOWANCE)
        return moment

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        """Return the excess at each eps', which is p (1 - e^(eps' - eps)) for 0 <= eps' <= eps."""
        likely = 1.0 / (1.0 + math.exp(-self.epsilon))
        profile = -likely * np.expm1(np.minimum(np.abs(epsilons) - self.epsilon, 0.0))
        return mirrored(epsilons, profile)

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        return Support(-self.epsilon, self.epsilon, 0.0, 0.0)

    def contour_step(self, log_count: float, *, remove: bool) -> RatioStep:
        """Return a step of two atoms. Its |M(c + it)| does not fall, because the two phases keep meeting again.

        Guarantees: moment_within_its_error; line_within_its_error.
        """
        size = self.epsilon
        # e^-eps may underflow harmlessly: the atom then has a mass below every positive number.
        unlikely = math.exp(-size) / (1.0 + math.exp(-size))
        atoms = ((1.0 / (1.0 + math.exp(-size)), size), (max(unlikely, 5e-324), -size))
        return RatioStep((), atoms, 0.0, ratio_digits(log_count), 1.0, size)

    def for_group(self, size: int) -> GroupStep:
        """Return the pair of discrete Laplace noise of scale 1 / epsilon, k steps apart.

        If a step is f-DP, a group of k records has the trade-off function 1 - (1 - f)^{o k} (Dong, Roth & Su 2022,
        Theorem 2.14). For epsilon-DP, 1 - f describes how a shift by one step changes the tails of discrete Laplace
        noise: exactly at the lattice points, and linearly between them. A count with such noise attains the bound. So
        the bound is exact for a guarantee as stated. A single mechanism with this guarantee may cost less.
        """
        epsilon = size * self.epsilon
        if epsilon < _SMALLEST_FOR_GROUPS:
            return GroupStep(RandomizedResponseLoss(epsilon), is_exact=False)
        return GroupStep(DiscreteLaplaceLoss(epsilon, size), is_exact=self.is_stated)


@dataclass(frozen=True, slots=True)
class PureDpLoss(RandomizedResponseLoss):
    """The loss of epsilon-DP as stated: the loss of the worst mechanism with this guarantee, for one record and for
    groups.
    """

    is_stated = True
    end_error = 0.0


@dataclass(frozen=True, slots=True)
class ApproximateDpLoss(PrivacyLoss):
    """The loss that dominates every (epsilon, delta)-DP mechanism (Kairouz, Oh & Viswanath 2015, section 3).

    With probability delta the outcome reveals the data set; otherwise it is randomised response. Whether a step
    fails is independent of everything else, so compositions separate: see `accounting.failure`.
    """

    epsilon: float
    delta: float

    symmetric = True
    has_pair = True

    @property
    def failure_probability(self) -> float:
        return self.delta

    @property
    def without_failure(self) -> PureDpLoss:
        return PureDpLoss(self.epsilon)

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon if self.delta == 0.0 else math.inf

    def log_moment(self, tilts: Array) -> Array:
        """Return the log-moment; inf if delta > 0, because no Renyi divergence is then bounded."""
        if self.delta == 0.0:
            return self.without_failure.log_moment(tilts)
        return np.full_like(tilts, math.inf)

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        """Return the excess. For eps >= 0 it is delta + (1 - delta) times the profile of randomised response."""
        profile = self.delta + (1.0 - self.delta) * self.without_failure.excess(np.abs(epsilons))
        return mirrored(epsilons, profile)

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        return Support(-self.epsilon, self.epsilon, 0.0, self.delta)


@dataclass(frozen=True, slots=True)
class RenyiLineLoss(PrivacyLoss):
    """A loss whose moments are bounded by K(x) <= rho x (x + 1), and of which nothing else is known. It has no
    dominating pair and no lower bounds.
    """

    rho: float

    pure_epsilon = math.inf
    symmetric = True
    has_pair = False
    moments_within = 1e-14

    def log_moment(self, tilts: Array) -> Array:
        moment: Array = self.rho * tilts * (tilts + 1.0) * (1.0 + 1e-15)
        return moment

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        raise Unsupported("zCDP bounds only moments, so no pair of distributions represents it")

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        raise Unsupported("zCDP bounds only moments, so no pair of distributions represents it")

    def for_group(self, size: int) -> GroupStep:
        """Return k^2 times rho (Bun & Steinke 2016, Proposition 1.9); no lower bound is known for a single
        mechanism."""
        return GroupStep(RenyiLineLoss(size * size * self.rho * (1.0 + 4e-16)), is_exact=False)


@dataclass(frozen=True, slots=True)
class ZcdpLoss(RenyiLineLoss):
    """The loss of rho-zCDP as stated. Its moments are those of the Gaussian mechanism with mu^2 = 2 rho, which has this
    guarantee."""

    def for_group(self, size: int) -> GroupStep:
        """Return k^2 times rho, which k records attain."""
        return GroupStep(ZcdpLoss(size * size * self.rho * (1.0 + 4e-16)), is_exact=True)


@dataclass(frozen=True)
class RenyiCurveLoss(PrivacyLoss):
    """A loss with Renyi divergences stated at some orders. Only its moments are bounded, up to the largest order.

    K is convex with K(0) = 0, so it lies below every chord between 0 and the moments stated: below the lower convex
    hull of these points. (The first chord says that the divergence does not fall as the order grows.)

    Attributes:
        orders: The orders, above 1 and increasing.
        epsilons: The divergence at each order; K(order - 1) = (order - 1) epsilon.
    """

    orders: tuple[float, ...]
    epsilons: tuple[float, ...]

    pure_epsilon = math.inf
    symmetric = True
    has_pair = False
    #: Moments are computed from the stated divergences up to this relative error. Beyond the last order nothing is
    #: known.
    moments_within = 1e-13

    @property
    def stated_tilts(self) -> Array:
        """The tilts of the stated moments: the orders less 1."""
        return np.array(self.orders) - 1.0

    @cached_property
    def _hull(self) -> tuple[Array, Array]:
        moments = [tilt * epsilon for tilt, epsilon in zip(self.stated_tilts.tolist(), self.epsilons, strict=True)]
        corners = _lower_hull([(0.0, 0.0), *zip(self.stated_tilts.tolist(), moments, strict=True)])
        return np.array([x for x, _ in corners]), np.array([y for _, y in corners])

    def log_moment(self, tilts: Array) -> Array:
        """Return an upper bound of K(x) from the lower convex hull of the stated moments; inf beyond the last order.

        Guarantees: hull_bounds_every_mechanism: K of any mechanism with these divergences.
        """
        places, moments = self._hull
        bound: Array = np.interp(tilts, places, moments, right=math.inf) * (1.0 + 1e-14)
        return bound

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        raise Unsupported("stated Renyi divergences bound only moments, so no pair of distributions represents them")

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        raise Unsupported("stated Renyi divergences bound only moments, so no pair of distributions represents them")


@rules_for(PureDp)
class PureDpRules(MechanismRules[PureDp]):
    sums_epsilons = True

    def loss(self, mechanism: PureDp, sensitivity: float) -> PureDpLoss:
        return PureDpLoss(mechanism.epsilon)

    def pure_epsilon(self, mechanism: PureDp, step: ChargedStep) -> Between:
        return exactly(exact(mechanism.epsilon))


@rules_for(ApproximateDp)
class ApproximateDpRules(MechanismRules[ApproximateDp]):
    def loss(self, mechanism: ApproximateDp, sensitivity: float) -> ApproximateDpLoss:
        return ApproximateDpLoss(mechanism.epsilon, mechanism.delta)

    def without_failure(self, mechanism: ApproximateDp) -> tuple[Mechanism, float]:
        """Return an eps-DP event and delta. An (eps, delta)-DP step is eps-DP with probability at least 1 - delta, so
        deltas add up.

        Source: Kairouz, Oh & Viswanath 2015, Theorem 3.1.
        """
        return PureDp(mechanism.epsilon), mechanism.delta


@rules_for(ZcDp)
class ZcDpRules(MechanismRules[ZcDp]):
    linear_in_order = True

    def loss(self, mechanism: ZcDp, sensitivity: float) -> ZcdpLoss:
        return ZcdpLoss(mechanism.rho)

    def zcdp_rho(self, mechanism: ZcDp, step: ChargedStep) -> Between:
        return exactly(exact(mechanism.rho))


@rules_for(RenyiDp)
class RenyiDpRules(MechanismRules[RenyiDp]):
    def loss(self, mechanism: RenyiDp, sensitivity: float) -> RenyiCurveLoss:
        return RenyiCurveLoss(mechanism.orders, mechanism.epsilons)

    def stated_divergences(self, mechanism: RenyiDp) -> Mapping[float, float]:
        return dict(zip(mechanism.orders, mechanism.epsilons, strict=True))


def _lower_hull(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of the lower convex hull of points with increasing x. Each of its chords is a bound."""
    corners: list[tuple[float, float]] = []
    for x, y in points:
        while len(corners) > 1:
            (x0, y0), (x1, y1) = corners[-2:]
            if (y1 - y0) * (x - x0) < (y - y0) * (x1 - x0):
                break
            corners.pop()
        corners.append((x, y))
    return corners
