"""This module defines the protocol of a privacy loss, through which compositions, contour integrals, budgets and groups
query a step.

A pair (P, Q) has the privacy loss L = log dP/dQ under P. Its profile is delta(eps) = E_P (1 - e^(eps - L))_+ and its
log-moment function is K(x) = log E_P e^(x L), x > 0, which is x times the Renyi divergence of order x + 1. Both
directions (P, Q) and (Q, P) belong to a guarantee.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accounting.fourier.steps import Step
from accounting.losses.gaussian_mu import mu_of_pure_dp
from accounting.losses.support import Support

Array = NDArray[np.float64]


class Direction(Enum):
    """The order of two neighbours P and Q, named after what happens to the record on the way from P to Q."""

    REMOVE = "remove"
    ADD = "add"


class Moments(Enum):
    """The way in which a loss computes its moments. It decides at which tilts they are evaluated."""

    CLOSED_FORM = "closed_form"
    BINOMIAL_SUM = "binomial_sum"
    """Moments are cheap to compute, and exact at integer tilts."""
    QUADRATURE = "quadrature"
    """Each tilt needs an integral of its own."""


@dataclass(frozen=True, slots=True)
class GroupStep:
    """The privacy loss of one step if a group of records moves together.

    Attributes:
        loss: A loss that dominates the step for every group of that size.
        is_exact: Whether some group attains ``loss``.
        repeats: The number of times that the loss counts for one step.
        rare: A further delta that the step may cost.
    """

    loss: PrivacyLoss
    is_exact: bool
    repeats: int = 1
    rare: float = 0.0


class PrivacyLoss(ABC):
    """The loss of one step. Subclasses are frozen dataclasses of the numbers that determine it.

    The abstract members are enough for every evaluator except contour integrals. The others have defaults that are
    sound for every loss: they claim less, or say that nothing better is known.

    Attributes:
        moments: The method by which `log_moment` is computed.
        end_error: The relative error of the largest loss, at which the profile reaches zero. The profile is relatively
            accurate except within this distance of the largest loss.
        atom_error: The relative error of every loss, if there is no largest one but atoms make corners in the profile.
        is_mixture: Whether `without_rare_branches` may help.
        is_enclosed: Whether the loss lies between two pairs, `dominating` and `attained`.
        has_own_moments: Whether an enclosed loss has moments of its own, other than those of ``dominating``.
        moments_within: The relative amount by which `log_moment` may be above the true moment, at every tilt; None if
            that is not known, for example because `log_moment` is a bound of another kind.
        is_tight: Whether each delta of ``dominating`` is attained by some pair. Deltas of compositions need not be
            attained.
    """

    __slots__ = ()
    moments: ClassVar[Moments] = Moments.CLOSED_FORM
    end_error: ClassVar[float] = 1e-12
    atom_error: ClassVar[float] = 0.0
    is_mixture: ClassVar[bool] = False
    is_enclosed: ClassVar[bool] = False
    has_own_moments: ClassVar[bool] = True
    moments_within: ClassVar[float | None] = None
    is_tight: ClassVar[bool] = True

    @property
    @abstractmethod
    def pure_epsilon(self) -> float:
        """The largest possible loss in either direction; inf if there is none."""

    @property
    @abstractmethod
    def symmetric(self) -> bool:
        """Return whether the loss has the same law in both directions, so that evaluating one direction is enough."""

    @property
    @abstractmethod
    def has_pair(self) -> bool:
        """Return whether one pair dominates the mechanism; without it only moments are known."""

    @abstractmethod
    def log_moment(self, tilts: Array) -> Array:
        """Return K(x) of the worse direction for every x > 0 in ``tilts``, rounded up; inf at tilts that are not
        computed.
        """

    @abstractmethod
    def excess(self, epsilons: Array, *, remove: bool) -> Array:
        """Return delta(eps) - max(0, 1 - e^eps) of one direction, relatively accurate for either sign of eps.

        For eps >= 0 this is the profile; for eps < 0 it is e^eps times the other direction's profile at -eps.
        """

    @abstractmethod
    def support(self, log_mass: float, *, remove: bool) -> Support:
        """Return the interval in which the loss lies, apart from a P-mass of e^log_mass on each side."""

    @property
    def dominating(self) -> PrivacyLoss:
        """The loss of a pair that dominates the mechanism."""
        return self

    @property
    def simpler(self) -> PrivacyLoss | None:
        """Another dominating loss. It is larger than `dominating`, but its interval is narrower if that of
        `dominating` is wide.
        """
        return None

    @property
    def attained(self) -> PrivacyLoss:
        """The loss of a pair that some neighbours attain, or that is taken as stated."""
        return self

    @property
    def is_inverted(self) -> bool:
        """Return whether `cut_step` describes an enclosed loss itself and not only a pair that bounds it. Contour
        integrals are then tried first.
        """
        return False

    def contour_step(self, log_count: float, *, remove: bool) -> Step | None:
        """Return the step in the form that contour integrals need, in one direction; None if it has no line.

        Args:
            log_count: Logarithm of the number of all steps; see `line_digits`.
        """
        return None

    def cut_step(self, log_count: float, log_mass: float, *, remove: bool) -> tuple[Step | None, float]:
        """Return `contour_step` without the part of P in which its moments explode, and the P-mass of that part.

        Args:
            log_count: As in `contour_step`.
            log_mass: Logarithm of the mass that may be left out.
        """
        return self.contour_step(log_count, remove=remove), 0.0

    def for_group(self, size: int) -> GroupStep | None:
        """Return a loss that dominates the step for groups of ``size`` > 1 records; None if no pair is known.

        Guarantees: dominates_every_group: of ``size`` records.
        """
        return None

    @property
    def branches(self) -> tuple[PrivacyLoss, ...]:
        """The losses of the branches of a mixture whose branch is seen, including nested mixtures; otherwise the loss
        itself."""
        return (self,)

    @property
    def stated_tilts(self) -> Array:
        """The tilts at which moments are known better than at others."""
        return np.empty(0)

    @property
    def unamplified_mu(self) -> float | None:
        """The mu of a full batch of Gaussian noise that dominates the step; None for other noise."""
        return None

    @property
    def slow_on_lattice(self) -> bool:
        """Return whether the loss takes minutes to evaluate on a lattice."""
        return False

    @property
    def failure_probability(self) -> float:
        """The probability with which the step reveals everything, independently of everything else."""
        return 0.0

    @property
    def without_failure(self) -> PrivacyLoss:
        """The loss, given that the step does not fail."""
        return self

    def repeated(self, count: int) -> tuple[PrivacyLoss, int]:
        """Return another loss and a number of its steps that together stand for ``count`` steps of this loss."""
        return self, count

    def without_rare_branches(self, mass: float) -> tuple[PrivacyLoss, float]:
        """Return the loss without its rarest branches, and the probability of these branches, which is at most
        ``mass``.
        """
        return self, 0.0

    @property
    def zcdp_rho(self) -> float:
        """The smallest rho of zCDP that is known; by default that of every mechanism with this largest loss."""
        return rho_of_pure_dp(self.pure_epsilon)

    @property
    def least_zcdp_rho(self) -> float:
        """A lower bound of the exact value of `zcdp_rho`. By default, `zcdp_rho` is exact up to rounding.

        A loss that rounds `zcdp_rho` up by more than `units.TRANSCENDENTAL_ALLOWANCE` states the lowest possible value
        here.
        """
        return self.zcdp_rho

    @property
    def gaussian_mu(self) -> float:
        """The smallest mu of Gaussian DP that is known; by default that of every mechanism with this largest loss."""
        return mu_of_pure_dp(self.pure_epsilon)

    @property
    def least_gaussian_mu(self) -> float:
        """A lower bound of the exact value of `gaussian_mu`."""
        return self.gaussian_mu

    def least_log_moment(self, tilts: Array) -> Array:
        """Return lower bounds of the exact values of `log_moment`; 0 if nothing is known.

        If moments are known up to `moments_within`, the default multiplies them by 1 less this number. A loss whose
        moment is only a bound at some tilts returns smaller numbers. 0 is always a valid bound.
        """
        if self.moments_within is None:
            return np.zeros_like(tilts)
        moments: Array = self.log_moment(tilts) * (1.0 - self.moments_within)
        return moments


def rho_of_pure_dp(epsilon: float) -> float:
    """Return the smallest rho of the zCDP that epsilon-DP implies: eps tanh(eps/2).

    Source: let w = (order - 1/2)^2. log cosh(eps sqrt(w)) is concave in w, because its slope eps tanh(eps sqrt(w)) / (2
    sqrt(w)) falls in w. So the moment of randomised response is below its tangent at order 1, which is eps tanh(eps/2)
    times order (order - 1). Randomised response attains this rho as the order tends to 1. It is below eps^2 / 2, the
    rho of Bun & Steinke 2016, Proposition 3.3.
    """
    return epsilon * math.tanh(0.5 * epsilon)


def line_digits(log_count: float) -> float:
    """Return the digits of a quadrature. They are chosen such that e^-digits times the number of steps is far below
    the allowed error.
    """
    return 44.0 + log_count


def ratio_digits(log_count: float) -> float:
    """Return the digits of a step that is integrated over the likelihood ratio, which needs fewer."""
    return line_digits(log_count) - 8.0
