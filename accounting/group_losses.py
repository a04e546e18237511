"""What stands for one step where a group of k records moves together.

* Gaussian, Laplace and stated zCDP: k times the distance or mu, k^2 times rho (Bun & Steinke 2016, Proposition 1.9).
  Exact for noise on sums: k records that agree attain it. Noise of a visible scale: the same in each of the scales.
* Discrete Laplace and Gaussian noise: the law and itself k times as far apart, which k records that agree attain, and
  log-concavity makes the worst. A group of very many grid steps is charged for fewer losses, of which the law's own
  are a refinement: between two losses the profile is linear in e^eps, and the law's is convex.
* The exponential mechanism: k records move a score by k times as much, and any such move may be split among them. To a
  group it is the mechanism with k times the range of losses: what is proved and what is attained are that one's.
* Pure guarantees: of f-DP steps a group has the trade-off 1 - (1 - f)^{o k} (Dong, Roth & Su 2022, Theorem 2.14). With
  f of epsilon-DP, 1 - f is what one step of discrete Laplace noise of scale 1 / epsilon does to the tails of its law,
  at every point of the lattice and linearly between, so that this is the pair of such noise k steps apart. The count
  with such noise attains it: exact for a guarantee as stated, above what one mechanism with a proof costs.
* Poisson batches with Gaussian noise: a mixture over how many of them are in the batch, exactly (`group_poisson`), but
  for the probability that they are more than are told apart.
* Laplace noise in Poisson batches, and batches of a fixed size: given that the batch holds some of the group, with
  probability p <= min(1, k q), outputs are within k times the distance of those without, so that the sampled pair with
  p and k times the distance dominates (its theorem asks no more of the two batches).

Bounds of one mechanism's moments (rho) hold for groups k^2 fold, and nothing is known from below. Randomised response
is k steps, as every record answers by itself: see `groups.group_composition`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from accounting.mechanisms.discrete_gaussian import DiscreteGaussianLoss, FineGaussianLoss
from accounting.mechanisms.discrete_laplace import DiscreteLaplaceLoss
from accounting.mechanisms.exponential import BoundedRangeLoss
from accounting.mechanisms.gaussian import GaussianLoss
from accounting.mechanisms.laplace import LaplaceLoss
from accounting.mechanisms.plain import PureDpLoss, RandomizedResponseLoss, RenyiLineLoss, ZcdpLoss
from accounting.mechanisms.visible_mixture import VisibleMixtureLoss
from accounting.privacy_loss import PrivacyLoss
from accounting.sampling.group_poisson import GroupPoissonLoss, group_poisson_loss
from accounting.sampling.laplace import PoissonLaplaceLoss
from accounting.sampling.poisson import PoissonGaussianLoss, PoissonReplaceLoss
from accounting.sampling.without_replacement import SymmetrizedLoss

_LARGEST_LAPLACE = 200.0
#: Losses of discrete Laplace noise that are told apart.
_MOST_ATOMS = 50_000
#: Below, masses of discrete Laplace noise are no numbers.
_SMALLEST_PURE = 1e-100


def group_loss(loss: PrivacyLoss, size: int) -> tuple[PrivacyLoss, bool] | None:
    """What dominates one step for a group.

    Args:
        loss: Of the step, for one record.
        size: k, above 1.

    Returns:
        The loss, and whether some group attains it; None where no pair is known.

    Guarantees: dominates_every_group: of ``size`` records.

    >>> group_loss(GaussianLoss(0.5), 4)
    (GaussianLoss(mu=2.0), True)
    """
    return _of_noise(loss, size) or _of_guarantees(loss, size) or _of_samples(loss, size)


def _of_noise(loss: PrivacyLoss, size: int) -> tuple[PrivacyLoss, bool] | None:
    """Noise on the sum of all records."""
    found: tuple[PrivacyLoss, bool] | None = None
    match loss:
        case GaussianLoss(mu):
            found = GaussianLoss(size * mu), True
        case LaplaceLoss(epsilon):
            group = size * epsilon
            # Beyond, compositions of the pair are slow, and all but the largest loss is out of reach of any delta.
            found = (LaplaceLoss(group), True) if group <= _LARGEST_LAPLACE else (RandomizedResponseLoss(group), False)
        case DiscreteLaplaceLoss(epsilon, shift):
            exact = size * shift <= _MOST_ATOMS
            found = DiscreteLaplaceLoss(size * epsilon, size * shift if exact else shift), exact
        case DiscreteGaussianLoss() | FineGaussianLoss():
            found = replace(loss, shift=size * loss.shift), True
        case VisibleMixtureLoss(weights, losses):
            parts = [GaussianLoss(size * part.mu) for part in losses if isinstance(part, GaussianLoss)]
            found = (VisibleMixtureLoss(weights, tuple(parts)), True) if len(parts) == len(losses) else None
    return found


def _of_guarantees(loss: PrivacyLoss, size: int) -> tuple[PrivacyLoss, bool] | None:
    """What is stated or proved of one mechanism."""
    found: tuple[PrivacyLoss, bool] | None = None
    match loss:
        case BoundedRangeLoss(epsilon):
            found = BoundedRangeLoss(size * epsilon), True
        case RandomizedResponseLoss(epsilon):
            pure = _pure(size * epsilon, size)
            found = pure, isinstance(loss, PureDpLoss) and isinstance(pure, DiscreteLaplaceLoss)
        case ZcdpLoss(rho):
            found = ZcdpLoss(size * size * rho * (1.0 + 4e-16)), True
        case RenyiLineLoss(rho):
            found = RenyiLineLoss(size * size * rho * (1.0 + 4e-16)), False
    return found


def _of_samples(loss: PrivacyLoss, size: int) -> tuple[PrivacyLoss, bool] | None:
    """Of random batches."""
    found: tuple[PrivacyLoss, bool] | None = None
    match loss:
        case PoissonGaussianLoss(noise, probability):
            mixture = group_poisson_loss(noise, probability, size, replaced=False)
            found = _mixed(mixture) or (_farther(loss, size, fixed_size=False), False)
        case PoissonReplaceLoss(noise, probability):
            mixture = group_poisson_loss(noise, probability, size, replaced=True)
            found = _mixed(mixture) or (GaussianLoss(2.0 * size / noise), False)
        case PoissonLaplaceLoss():
            found = _farther(loss, size, fixed_size=False), False
        case SymmetrizedLoss(pair):
            farther = _farther(pair, size, fixed_size=True)
            if isinstance(farther, PoissonGaussianLoss | PoissonLaplaceLoss):
                found = SymmetrizedLoss(farther), False
            else:
                found = farther, False
    return found


def _pure(epsilon: float, size: int) -> DiscreteLaplaceLoss | RandomizedResponseLoss:
    """What dominates ``size`` steps of one ``size``-th of epsilon; randomised response where that is not computed."""
    if epsilon >= _SMALLEST_PURE:
        return DiscreteLaplaceLoss(epsilon, size)
    return RandomizedResponseLoss(epsilon)


def _mixed(mixture: GroupPoissonLoss | None) -> tuple[PrivacyLoss, bool] | None:
    return None if mixture is None else (mixture, True)


def _farther(
    pair: PoissonGaussianLoss | PoissonLaplaceLoss, size: int, *, fixed_size: bool
) -> PoissonGaussianLoss | PoissonLaplaceLoss | GaussianLoss | LaplaceLoss:
    """The sampled pair at ``size`` times the distance, with the probability that the batch holds some of the group."""
    single = pair.sampling_probability
    # Of a batch of a fixed size a union bound; of independent records 1 - (1 - q)^k.
    probability = size * single if fixed_size else -math.expm1(size * math.log1p(-single))
    probability = min(1.0, probability * (1.0 + 1e-14))
    if isinstance(pair, PoissonGaussianLoss):
        noise = pair.noise_multiplier / size
        return PoissonGaussianLoss(noise, probability) if probability < 1.0 else GaussianLoss(1.0 / noise)
    epsilon = size * pair.epsilon
    return PoissonLaplaceLoss(epsilon, probability) if probability < 1.0 else LaplaceLoss(epsilon)
