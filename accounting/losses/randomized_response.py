"""This module accounts randomised response on k categories: an answer is kept, or replaced by one that is drawn
uniformly.

Let u = 1 - p + p/k be the probability of the true answer, and v = p/k that of each other answer.

* replace_one: u, v, v, ... against v, u, v, ...: loss log(u/v) with mass u, -log(u/v) with mass v, 0 with the rest.
  All pairs of answers give this one, up to the names of the categories: it is attained.
* replace_special: the null record answers uniformly. u, v, v, ... against 1/k each: loss log(k u) with mass u,
  log(k v) with mass (k - 1) v; the directions differ.

add_or_remove_one is not covered, because the number of answers would reveal that a record came or went.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.events.randomized_response import RandomizedResponse
from accounting.losses.atomic import AtomicLoss
from accounting.losses.atoms import Atoms
from accounting.losses.concentration import least_rho_of, rho_of
from accounting.losses.gaussian_mu import less_rounding, mu_of_categorical_response
from accounting.losses.privacy_loss import GroupStep
from accounting.losses.rules import MechanismRules, rules_for
from accounting.losses.stated import RandomizedResponseLoss


@dataclass(frozen=True, slots=True)
class BinaryResponseLoss(RandomizedResponseLoss):
    """The loss of one record's answer to a question with two answers. All other records answer independently."""

    def for_group(self, size: int) -> GroupStep:
        """Return k steps, because every record answers independently."""
        return GroupStep(self, is_exact=True, repeats=size)


@rules_for(RandomizedResponse)
class RandomizedResponseRules(MechanismRules[RandomizedResponse]):
    def loss(self, mechanism: RandomizedResponse, sensitivity: float) -> CategoricalResponseLoss | BinaryResponseLoss:
        loss = CategoricalResponseLoss(mechanism.num_categories, mechanism.flip_probability, sensitivity == 1.0)
        if mechanism.flip_probability == 1.0 or (mechanism.num_categories == 2 and not loss.against_null):
            return BinaryResponseLoss(loss.pure_epsilon)
        return loss


@dataclass(frozen=True, slots=True)
class CategoricalResponseLoss(AtomicLoss):
    """The loss of one record's answer to a question with several categories.

    Attributes:
        num_categories, flip_probability: k and p.
        against_null: Whether Q is the law of a null record's uniform answer; otherwise it is that of a record with
            another category.
    """

    num_categories: int
    flip_probability: float
    against_null: bool

    @property
    def symmetric(self) -> bool:
        return not self.against_null

    @property
    def pure_epsilon(self) -> float:
        """The largest loss: log(1 + k (1 - p) / p), or against the null record the larger of log(k - (k - 1) p) and
        -log p.
        """
        k, p = self.num_categories, self.flip_probability
        if self.against_null:
            return max(math.log1p((k - 1) * (1.0 - p)), -math.log(p))
        odds = k * ((1.0 - p) / p)
        return math.log1p(odds) if math.isfinite(odds) else math.log(k) - math.log(p)

    @property
    def zcdp_rho(self) -> float:
        """The smallest rho of the mechanism's zCDP, rounded up."""
        return rho_of(self)

    @property
    def least_zcdp_rho(self) -> float:
        return least_rho_of(self)

    @property
    def gaussian_mu(self) -> float:
        return mu_of_categorical_response(self.num_categories, self.flip_probability, self.against_null)

    @property
    def least_gaussian_mu(self) -> float:
        return less_rounding(self.gaussian_mu)

    def for_group(self, size: int) -> GroupStep:
        """Return k steps, because every record answers independently."""
        return GroupStep(self, is_exact=True, repeats=size)

    def find_atoms(self) -> Atoms:
        k, p = self.num_categories, self.flip_probability
        kept, other = math.log((1.0 - p) + p / k), math.log(p) - math.log(k)
        if self.against_null:
            rest = math.log(k - 1) + other
            return Atoms(np.array([rest, kept]), np.array([math.log(p), math.log1p((k - 1) * (1.0 - p))]))
        size = self.pure_epsilon
        if k == 2:
            return Atoms(np.array([other, kept]), np.array([-size, size]))
        return Atoms(np.array([other, math.log(k - 2) + other, kept]), np.array([-size, 0.0, size]))
