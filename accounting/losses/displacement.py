"""This module compares a record that takes another record's place in the batch with a null record that leaves the place
empty.

s is the noise multiplier, and r is the probability that the record takes another record's place. Let x be the record's
contribution and w that of the other record, both of norm at most 1. The sum is a + w if the record (or the null record)
is outside the batch. Relative to a + w, the sum moves by u = x - w if the record is inside, and by v = -w if the null
record is inside. So one law is (1-r) N(0) + r N(u), and the other is (1-r) N(0) + r N(v), around a + w.

P - g Q = r [N(u) - b N(0) - g N(v)] with b = (1-r)(g-1)/r >= 0 for g >= 1, and the hockey stick of such a pair grows
with |u|^2, |u - v|^2 and <u, u - v> (`losses.poisson`). For the record against the null record, they are at most 4, 1
and 2, which u = 2, v = 1 attains; the other way round they are at most 1, 1 and 1, which v = 1, u = 0 attains. With

    A = (1-r) N(0) + r N(2) against (1-r) N(0) + r N(1),      R = (1-r) N(0) + r N(1) against N(0)

the profile of the record against the null record is at most A's for eps >= 0. For eps < 0 it is at most the profile
that follows from R's by delta(-eps) = 1 - e^-eps + e^-eps delta_swapped(eps). Both halves are attained, so together
they are a supremum of profiles. This supremum is the profile of one pair, and compositions are dominated by
compositions of this pair (Zhu, Dong & Wang 2022). Losses above 0 have A's law under P. Losses below 0 have the law of
minus the log of R's ratio under Q. The rest of the mass is at 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.fourier.displacement_path import DisplacementPart
from accounting.fourier.ratio_path import RatioPart
from accounting.fourier.ratio_step import RatioStep
from accounting.losses.atomic import AtomicLoss
from accounting.losses.atoms import Atoms
from accounting.losses.mills import scaled_mills_difference
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.privacy_loss import Moments, PrivacyLoss, ratio_digits
from accounting.losses.support import Support

Array = NDArray[np.float64]

#: The digits of a moment's quadrature. They are far more than the rounding of the sum allows, so small moments keep
#: their digits.
_MOMENT_DIGITS = 70.0
#: The number of cells of the attained pair, and the number of standard deviations on either side that the cells cover.
_CELLS, _REACH = 2000, 12.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


@dataclass(frozen=True, slots=True)
class DisplacementLoss(PrivacyLoss):
    """One step under replace_special. The remove direction has the record's law as P and the null record's law as Q.

    Attributes:
        noise_multiplier: The noise multiplier s.
        probability: The probability r, below 1.
    """

    noise_multiplier: float
    probability: float

    pure_epsilon = math.inf
    symmetric = False
    has_pair = True
    moments = Moments.QUADRATURE

    @property
    def _null(self) -> PoissonGaussianLoss:
        """The loss of the pair R."""
        return PoissonGaussianLoss(self.noise_multiplier, self.probability)

    def log_moment(self, tilts: Array) -> Array:
        """Return the moment of the larger direction, computed by integrals and rounded up by the bound of their
        error.
        """
        return np.maximum(self._moment_ends(tilts, remove=True)[1], self._moment_ends(tilts, remove=False)[1])

    def least_log_moment(self, tilts: Array) -> Array:
        return np.maximum(self._moment_ends(tilts, remove=True)[0], self._moment_ends(tilts, remove=False)[0])

    def _moment_ends(self, tilts: Array, *, remove: bool) -> tuple[Array, Array]:
        try:
            table = self._step(_MOMENT_DIGITS, remove=remove).table(tilts)
        except OverflowError:
            return np.zeros_like(tilts), np.full_like(tilts, math.inf)
        known = np.isfinite(table.moments) & np.isfinite(table.errors)
        errors = np.where(known, table.errors, 0.0)
        lower = np.where(known, np.maximum(table.moments - errors, 0.0), 0.0)
        return lower, np.where(known, table.moments + errors, math.inf)

    def excess(self, epsilons: Array, *, remove: bool) -> Array:
        """Return the excess. In the remove direction it is A's profile for eps >= 0, and e^eps times R's profile at
        -eps for eps < 0.

        In the add direction, A and R change places.
        """
        positive = epsilons >= 0.0
        excess = np.empty_like(epsilons)
        sizes = np.abs(epsilons)
        for own, displaced in ((positive, remove), (~positive, not remove)):
            profile = displaced_profile(self.noise_multiplier, self.probability, sizes[own])
            excess[own] = profile if displaced else self._null.excess(sizes[own], remove=True)
        excess[~positive] *= np.exp(epsilons[~positive])
        return excess

    def support(self, log_mass: float, *, remove: bool) -> Support:
        """Return the range of the loss. Outcomes in the tails of N(2) (in R, of N(1)) with at most the given mass are
        left out.
        """
        reach, mass = -float(scipy.special.ndtri_exp(log_mass)), math.exp(log_mass)
        s = self.noise_multiplier
        displaced = _log_displaced_ratio(s, self.probability, 2.0 + s * reach)
        null = self._null.support(log_mass, remove=True).upper
        return Support(-null, displaced, mass, mass) if remove else Support(-displaced, null, mass, mass)

    @property
    def unamplified_mu(self) -> float:
        """Return the mu of the Gaussian mechanism that dominates without sampling. Two batches that differ by the
        record are a distance of 1 apart.

        By joint convexity, the hockey stick of A is at most r times that of N(2) against N(1). That of R is at most r
        times that of N(1) against N(0).
        """
        return 1.0 / self.noise_multiplier

    def contour_step(self, log_count: float, *, remove: bool) -> RatioStep:
        """Return the step with M(z) = 1 + E_Q[(f^(z+1) - f) 1{f > 1}] + E_0[(g^-z - 1) 1{g > 1}].

        f is the likelihood ratio of the pair A, Q is the second law of A, g is the likelihood ratio of the pair R, and
        E_0 is the mean under N(0).

        Guarantees: moment_within_its_error; line_within_its_error; envelope_is_above_and_falls.
        """
        return self._step(ratio_digits(log_count), remove=remove)

    def _step(self, digits: float, *, remove: bool) -> RatioStep:
        s, r = self.noise_multiplier, self.probability
        log_scale = math.log(s) - 0.5 * math.log(2.0 * math.pi) - 0.125 / s**2
        displaced = DisplacementPart.of(s, r, upward=remove)
        null = RatioPart(r, log_scale, s * s, 0.0, math.inf, upward=not remove)
        at_zero = (1.0 - r) * (scipy.special.ndtr(0.5 / s) - scipy.special.ndtr(-1.5 / s))
        parts = (displaced, null) if remove else (null, displaced)
        return RatioStep(parts, (), float(at_zero), digits, r, math.inf)


def displaced_profile(s: float, r: float, epsilons: Array) -> Array:
    """Return the profile of A at eps >= 0, in closed form.

    Let y be the log of N(2) over N(1), Y = e^y and k = e^(-1/s^2) (1-r)/r. The likelihood ratio f is e^eps where Y^2 -
    e^eps Y = k (e^eps - 1). At this place the densities satisfy N(2) = b N(0) + e^eps N(1). Let w0 and w1 = 1 - w0 be
    the shares of the two terms on the right. Then the hockey stick is r phi(v) [w1 (m(v) - m(v + 1/s)) + w0 (m(v) - m(v
    + 2/s))] with v = s y - 1/(2s) and the Mills ratio m. All terms are positive.
    """
    log_k = math.log1p(-r) - math.log(r) - 1.0 / s**2
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        # The log of k (e^eps - 1) / e^(2 eps), from which e^y is computed without overflow.
        log_square = log_k + np.log(-np.expm1(-epsilons)) - epsilons
        root = np.sqrt(1.0 + 4.0 * np.exp(np.minimum(log_square, 600.0)))
        large = epsilons + np.where(log_square > 600.0, 0.5 * log_square, np.log(0.5 * (1.0 + root)))
        rise = np.expm1(np.minimum(epsilons, 0.5))
        k = math.exp(log_k)
        small = np.log1p(2.0 * rise * (1.0 + k) / (np.sqrt((1.0 + rise) ** 2 + 4.0 * k * rise) + 1.0 - rise))
        y = np.where(epsilons < 0.5, small, large)
        near, far = np.exp(epsilons - y), np.exp(log_square + 2.0 * (epsilons - y))
    v = s * y - 0.5 / s
    profile: Array = near * scaled_mills_difference(v, 1.0 / s) + far * scaled_mills_difference(v, 2.0 / s)
    return r * profile


def _log_displaced_ratio(s: float, r: float, x: float) -> float:
    """Return log f of A at x."""
    log_k, y = math.log1p(-r) - math.log(r) - 1.0 / s**2, (x - 1.5) / s**2
    return float(np.logaddexp(2.0 * y, log_k) - np.logaddexp(y, log_k))


@dataclass(frozen=True, slots=True)
class DisplacedCellsLoss(AtomicLoss):
    """The loss of A if only the cell of the output is seen, one of two thousand. Some neighbours cost at least this
    much in all steps.

    All others' contributions agree and the record's is their opposite. Seeing only the cell is a post-processing, so
    compositions cost no more than those of A.

    Attributes:
        noise_multiplier, probability: As in `DisplacementLoss`.
    """

    noise_multiplier: float
    probability: float

    symmetric = False
    on_lattice = False

    def find_atoms(self) -> Atoms:
        s, r = self.noise_multiplier, self.probability
        edges = np.linspace(-_REACH * s, 2.0 + _REACH * s, _CELLS + 1)
        half = 0.5 * float(edges[1] - edges[0])
        x = (edges[:-1] + half)[:, None] + half * _NODES
        scale = np.log(half * _WEIGHTS) - 0.5 * math.log(2.0 * math.pi) - math.log(s)
        shares = (math.log1p(-r), math.log(r), math.log(r))
        null, one, two = (
            np.logaddexp.reduce(share + scale - 0.5 * ((x - mean) / s) ** 2, axis=1)
            for share, mean in zip(shares, (0.0, 1.0, 2.0), strict=True)
        )
        first, second = np.logaddexp(null, two), np.logaddexp(null, one)
        # The change is P's mass less Q's, divided by Q's. It keeps the digits of the difference if both masses are
        # close.
        near = np.abs(two - one) < 1.0
        change = np.exp(one - second) * np.expm1(np.where(near, two - one, 0.0))
        losses = np.where(near, np.log1p(change), first - second)
        order = np.argsort(losses)
        losses, starts = np.unique(losses[order], return_index=True)
        return Atoms(np.logaddexp.reduceat(first[order], starts), losses)
