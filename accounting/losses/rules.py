"""This module defines the rules by which mechanisms and samplings are accounted. Each file of this folder registers its
own rules.

* `MechanismRules`: the loss of a step on all records, and the cost of a step in each kind of budget.
* `sampled`: the loss of a step of one mechanism under one sampling.
* `SamplingRules`: further rules of a sampling.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Generic, TypeVar

from accounting.discrepancy import Discrepancy
from accounting.events.event import Event
from accounting.events.mechanism import Mechanism
from accounting.events.samplings import Sampling
from accounting.events.schedules import check_event, is_sampled
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.relations import NeighboringRelation
from accounting.units import Between, about, exact

M = TypeVar("M", bound=Mechanism)
S = TypeVar("S", bound=Sampling)
SampledLoss = Callable[[M, S, NeighboringRelation, float], PrivacyLoss]


@dataclass(frozen=True, slots=True)
class ChargedStep:
    """One step of a resolved event, as budgets charge it.

    Attributes:
        event, relation: The charged event, and the relation under which it is charged.
    """

    event: Event
    relation: NeighboringRelation

    @property
    def sensitivity(self) -> Fraction:
        """The distance of two neighbours' sums without amplification, in contribution bounds."""
        return exact(self.relation.sensitivity)

    @property
    def is_sampled(self) -> bool:
        return is_sampled(self.event)

    @property
    def loss(self) -> PrivacyLoss:
        """The loss of the step, amplified if it is sampled."""
        return loss_of(self.event, self.relation)


class MechanismRules(ABC, Generic[M]):
    """The rules by which one mechanism is accounted.

    Only `loss` must be given. By default, costs follow from the loss, which is sound wherever the loss has them.
    `Mechanism.filters` names the budgets in which a mechanism has a cost.

    Attributes:
        sums_epsilons: Whether the mechanism's epsilons add up in an approximate_dp budget, so that it needs no charge
            delta there.
        linear_in_order: Whether the mechanism's Renyi divergence without sampling is `zcdp_rho` times the order, at
            every order.
        amplified_sums: Whether sampling lowers the mechanism's costs in zcdp and gaussian_dp budgets.
    """

    sums_epsilons: ClassVar[bool] = False
    linear_in_order: ClassVar[bool] = False
    amplified_sums: ClassVar[bool] = True

    @abstractmethod
    def loss(self, mechanism: M, sensitivity: float) -> PrivacyLoss:
        """Return the loss of one step on all records.

        Args:
            sensitivity: Distance of two neighbours' sums in contribution bounds: 1, or 2 if a record is replaced.
        """

    def pure_epsilon(self, mechanism: M, step: ChargedStep) -> Between:
        """Return the largest loss of one step. Sampling never makes it larger."""
        return about(step.loss.pure_epsilon)

    def zcdp_rho(self, mechanism: M, step: ChargedStep) -> Between:
        """Return rho of one step. A sampled step costs no more than an unsampled one: divergences are jointly
        quasi-convex."""
        return about(step.loss.zcdp_rho, step.loss.least_zcdp_rho)

    def mu_squared(self, mechanism: M, step: ChargedStep) -> Between:
        """Return mu^2 of one step. A sampled step costs no more than an unsampled one: trade-off functions are
        convex."""
        return about(step.loss.gaussian_mu**2, step.loss.least_gaussian_mu**2)

    def stated_divergences(self, mechanism: M) -> Mapping[float, float]:
        """Return Renyi divergences that are charged as they are stated, by their orders."""
        return {}

    def without_failure(self, mechanism: M) -> tuple[Mechanism, float]:
        """Return an unsampled step under the condition that it does not fail, and the delta with which it fails."""
        return mechanism, 0.0


class SamplingRules(Generic[S]):
    """The rules of a sampling that go beyond the losses of its steps."""

    def stand_in(self, event: Event, sampling: S) -> tuple[Event, Discrepancy]:
        """Return the event whose losses stand for all steps of this event, and a bound of the difference between the
        two."""
        return event, Discrepancy()

    def steps(self, mechanism: Mechanism, sampling: S, count: int) -> Sequence[tuple[PrivacyLoss, int]] | None:
        """Return the losses of ``count`` steps of one event, each with the number of times that it occurs.

        Return None if every step has the same loss, so that equal events may be counted together.
        """
        return None


_OF_MECHANISMS: dict[type[Mechanism], MechanismRules[Any]] = {}
_OF_SAMPLINGS: dict[type[Sampling], SamplingRules[Any]] = {}
_OF_SAMPLED: dict[tuple[type[Mechanism], type[Sampling]], SampledLoss[Any, Any]] = {}
_NOTHING_MORE: SamplingRules[Any] = SamplingRules()

R = TypeVar("R", bound=type[MechanismRules[Any]])
Q = TypeVar("Q", bound=type[SamplingRules[Any]])
F = TypeVar("F", bound=Callable[..., PrivacyLoss])


def rules_for(mechanism: type[Mechanism]) -> Callable[[R], R]:
    """Register the rules of a mechanism."""

    def register(rules: R) -> R:
        _OF_MECHANISMS[mechanism] = rules()
        return rules

    return register


def sampling_rules_for(sampling: type[Sampling]) -> Callable[[Q], Q]:
    """Register the rules that a sampling needs in addition to the losses of its steps."""

    def register(rules: Q) -> Q:
        _OF_SAMPLINGS[sampling] = rules()
        return rules

    return register


def sampled(mechanism: type[Mechanism], sampling: type[Sampling]) -> Callable[[F], F]:
    """Register the loss of a step on a part of the records, drawn anew at every step.

    The function takes the mechanism, the sampling, the relation, and the sensitivity as
    `Sampling.charged_sensitivity` says.
    """

    def register(loss: F) -> F:
        _OF_SAMPLED[mechanism, sampling] = loss
        return loss

    return register


def rules_of(mechanism: Mechanism) -> MechanismRules[Any]:
    """Return the rules by which a mechanism is accounted.

    Raises:
        LookupError: If no file of `accounting.losses` registers rules for the mechanism.
    """
    try:
        return _OF_MECHANISMS[type(mechanism)]
    except KeyError:
        raise LookupError(
            f"{mechanism.kind} has no rules; register a subclass of MechanismRules with @rules_for in accounting/losses"
        ) from None


def sampling_rules_of(sampling: Sampling) -> SamplingRules[Any]:
    """Return the rules of a sampling that go beyond the losses of its steps."""
    return _OF_SAMPLINGS.get(type(sampling), _NOTHING_MORE)


def sampled_loss(
    mechanism: Mechanism, sampling: Sampling, relation: NeighboringRelation, sensitivity: float
) -> PrivacyLoss:
    """Return the loss of a step of a mechanism under a sampling, a combination that `Event` has already checked.

    Raises:
        LookupError: If no file of `accounting.losses` registers a loss for the pair.
    """
    loss = _OF_SAMPLED.get((type(mechanism), type(sampling)))
    if loss is None:
        raise LookupError(
            f"{mechanism.kind} steps with {sampling.kind} batches have no privacy-loss rule; register one with "
            "@sampled in accounting/losses"
        )
    return loss(mechanism, sampling, relation, sensitivity)


def loss_of(event: Event, relation: NeighboringRelation) -> PrivacyLoss:
    """Return the loss of one step of ``event``; a step of a fixed schedule counts as a full batch.

    Guarantees: dominates_every_neighbour: the pair's hockey-stick divergence of every order is at least that of any
    two neighbours' outputs (by the theorem in the mechanism's file, or in that of the sampling).

    Raises:
        Unsupported: If the scheme or the mechanism is not accounted under the relation.
    """
    check_event(event, relation)
    sensitivity = event.sampling.charged_sensitivity(relation, event.mechanism)
    if event.sampling.is_amplified:
        return sampled_loss(event.mechanism, event.sampling, relation, sensitivity)
    return rules_of(event.mechanism).loss(event.mechanism, sensitivity)
