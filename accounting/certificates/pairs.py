"""This module maps each event to the dominating pair that the verifier uses for it, as a loss of the engine."""

from __future__ import annotations

import math

import numpy as np

from accounting.certificates.certificate import NoCertificate
from accounting.certificates.nodes import SampledStep
from accounting.events import (
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    GaussianMixture,
    Laplace,
    Poisson,
    PureDp,
    RandomizedResponse,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
)
from accounting.losses.batch_hits import branches, hits_with_replacement
from accounting.losses.displacement import DisplacementLoss
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.group_poisson import MOST_HITS
from accounting.losses.hits import HitsLoss
from accounting.losses.poisson import PoissonGaussianLoss, PoissonReplaceLoss
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.rules import loss_of
from accounting.losses.visible_mixture import VisibleMixtureLoss
from accounting.losses.with_replacement import DrawsLoss
from accounting.losses.without_replacement import SymmetrizedLoss
from accounting.relations import NeighboringRelation

_WIDER_PAIR = (
    "certificates use a wider dominating pair than these batches of a fixed size have under replace_special: a lower "
    "bound for the wider pair does not hold for the batches"
)
_NOT_ATTAINED = (
    "certificates use a pair that dominates these batches but is not attained: a lower bound for the pair does not "
    "hold for the batches"
)
#: The most branches that the verifier tells apart.
_MOST_BRANCHES = 64
#: A record that is certainly in the batch of its branch gets this probability instead, so that nodes can be chosen for
#: it.
_ALMOST = 1.0 - 1e-12


def is_wider(event: Event, relation: NeighboringRelation) -> str:
    """Return the reason why a lower bound for the certificate's pair is no lower bound for a step.

    The text is empty if the bound for the pair does hold for the step.
    """
    cut = isinstance(event.sampling, TruncatedPoisson) and event.sampling.is_random
    if cut or isinstance(event.sampling, WithReplacement):
        return _NOT_ATTAINED
    null = relation is NeighboringRelation.REPLACE_SPECIAL
    return _WIDER_PAIR if null and isinstance(event.sampling, WithoutReplacement) else ""


def certified_loss(event: Event, relation: NeighboringRelation, group_size: int) -> PrivacyLoss:
    """Return the loss of the pair for which the verifier has a theorem.

    Raises:
        NoCertificate: If the verifier has no theorem for this event.
    """
    mechanism, sampling = event.mechanism, event.sampling
    if group_size > 1:
        return _of_group(event, relation, group_size)
    if isinstance(mechanism, Gaussian) and isinstance(sampling, WithoutReplacement | WithReplacement):
        if isinstance(sampling, WithReplacement) and sampling.batch_size > 1:
            return loss_of(event, relation)
        return _symmetrized(mechanism.noise_multiplier / 2.0, sampling.batch_size / sampling.dataset_size)
    if isinstance(mechanism, Gaussian) and isinstance(sampling, TruncatedPoisson) and sampling.is_random:
        return _cut(loss_of(event, relation).dominating)
    if isinstance(mechanism, Gaussian | GaussianMixture) and isinstance(sampling, Poisson):
        return loss_of(event, relation)
    full = Gaussian | GaussianMixture | Laplace | RandomizedResponse | PureDp | DiscreteLaplace | DiscreteGaussian
    if isinstance(mechanism, full) and sampling.kind == "full_batch":
        return loss_of(event, relation)
    raise NoCertificate(f"no certificate covers {mechanism.kind} with {sampling.kind} batches yet")


def _of_group(event: Event, relation: NeighboringRelation, size: int) -> PrivacyLoss:
    mechanism, sampling = event.mechanism, event.sampling
    if isinstance(mechanism, Gaussian) and sampling.kind == "full_batch":
        return GaussianLoss(relation.sensitivity * size / mechanism.noise_multiplier)
    if isinstance(mechanism, Gaussian) and isinstance(sampling, Poisson) and size <= MOST_HITS:
        q, h = sampling.sampling_probability, np.arange(size)
        odds = np.log((size - h) / (h + 1.0)) + math.log(q) - math.log1p(-q)
        logs = size * math.log1p(-q) + np.concatenate([[0.0], np.cumsum(odds)])
        return HitsLoss(mechanism.noise_multiplier, tuple(logs.tolist()), relation is NeighboringRelation.REPLACE_ONE)
    if isinstance(mechanism, Gaussian) and isinstance(sampling, Poisson):
        raise NoCertificate(
            f"the verifier covers at most {MOST_HITS} records of a group in one batch, and this step needs more"
        )
    raise NoCertificate(f"no certificate covers groups with {mechanism.kind} and {sampling.kind} batches yet")


def _cut(loss: PrivacyLoss) -> PrivacyLoss:
    """Return Poisson's pair mixed with the pair of a cut batch. The verifier computes how often a batch is cut."""
    if not isinstance(loss, VisibleMixtureLoss):
        raise NoCertificate("a step whose batches are always cut has no certificate yet")
    (weight, whole), (seen, cut), *_ = zip(loss.weights, loss.losses, strict=True)
    if isinstance(cut, DisplacementLoss):
        # A record that becomes null is a special case of a replaced one.
        cut = _symmetrized(cut.noise_multiplier / 2.0, cut.probability)
    sampled = isinstance(whole, PoissonGaussianLoss | PoissonReplaceLoss)
    if not sampled or not isinstance(cut, HitsLoss | SymmetrizedLoss):
        raise NoCertificate("a step whose batches are always cut has no certificate yet")
    return VisibleMixtureLoss((weight, seen), (whole, cut))


def _symmetrized(noise: float, probability: float) -> SymmetrizedLoss:
    return SymmetrizedLoss(PoissonGaussianLoss(noise, probability))


def shares_stated(loss: DrawsLoss, mass: float) -> tuple[VisibleMixtureLoss, tuple[float, ...]]:
    """Return a loss with as few numbers of draws as possible, and the shares of the branches of two draws or more.

    Numbers of draws with a total probability of at most ``mass`` are left out. So are the rare numbers that share one
    branch in the engine. The branch of one draw has the remaining share.
    """
    pair = loss.pair
    assert isinstance(pair, PoissonGaussianLoss)
    hits = hits_with_replacement(loss.sampling.batch_size, loss.sampling.dataset_size, 1)
    found = branches(hits, pair.distance)
    each = next((i for i, branch in enumerate(found) if branch.hits != i + 1), len(found))
    kept = min(max(_enough(np.array(hits.weights), mass) - 1, 2), each, _MOST_BRANCHES)
    shares = tuple(branch.share for branch in found[1:kept])
    weights = (1.0 - math.fsum(shares), *shares)
    taken = [min(w / share, _ALMOST) for w, share in zip(hits.weights[1 : kept + 1], weights, strict=True)]
    losses = [_symmetrized(pair.noise_multiplier / h, eta) for h, eta in enumerate(taken, 1)]
    return VisibleMixtureLoss(weights, tuple(losses)), shares


def rare_left_out(loss: PrivacyLoss, mass: float) -> tuple[PrivacyLoss, int]:
    """Return a loss with as few branches (or records in a batch) as possible, and the number of those that are kept.

    The others have a total probability of at most ``mass``. The number is 0 if nothing is left out.
    """
    if isinstance(loss, VisibleMixtureLoss) and len(loss.weights) > 1:
        kept = _enough(np.array(loss.weights), mass)
        known = len(loss.weights) <= _MOST_BRANCHES
        if known and kept == len(loss.weights):
            return loss, 0
        kept = min(kept, _MOST_BRANCHES)
        return VisibleMixtureLoss(loss.weights[:kept], loss.losses[:kept]), kept
    if isinstance(loss, HitsLoss):
        kept = max(_enough(np.exp(np.array(loss.log_weights)), mass) - 1, 1)
        if kept < loss.most_hits:
            return HitsLoss(loss.noise_multiplier, loss.log_weights[: kept + 1], loss.replaced), kept
    return loss, 0


def _enough(weights: np.ndarray, mass: float) -> int:
    beyond = np.append(np.cumsum(weights[::-1])[::-1][1:], 0.0)
    return int(np.argmax(beyond <= mass)) + 1


def sampled_step(loss: PrivacyLoss, name: str) -> SampledStep | None:
    """Return the step for which nodes have to be chosen; None if the verifier has the transform in closed form."""
    one_sided = "add" if name == "add" else "remove"
    if isinstance(loss, HitsLoss):
        return SampledStep("replace" if loss.replaced else one_sided, loss.noise_multiplier, loss.log_weights)
    if isinstance(loss, PoissonGaussianLoss):
        return SampledStep.of_one(one_sided, loss.noise_multiplier, loss.sampling_probability)
    if isinstance(loss, PoissonReplaceLoss):
        return SampledStep.of_one("replace", loss.noise_multiplier, loss.sampling_probability)
    if isinstance(loss, SymmetrizedLoss):
        assert isinstance(loss.pair, PoissonGaussianLoss)
        return SampledStep.of_one("fixed_size", loss.pair.noise_multiplier, loss.pair.sampling_probability)
    return None
