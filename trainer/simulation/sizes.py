r"""This module chooses the number of synthetic rows, and the target with which fewer rows get the noise of all rows.

If there are fewer rows than the declared $n$, say $n' = n/f$, the target's Gaussian $\mu$ is multiplied by $f$. A
calibration adds noise in proportion to $1/(\mu n')$ to a mean of $n'$ records. So the noise is the same as on a mean of
$n$ records under the target itself. For full batches with Gaussian noise this is exact. For sampled batches, whose
amplification depends on $\mu$, and for selections it is a rule of thumb. Only the sampling error of the rows differs:
it is larger by $\sqrt f$ for every algorithm.
"""

from __future__ import annotations

from dataclasses import replace

from accounting.composition.gaussian_dp import epsilon_of_gaussian, mu_of_gaussian
from accounting.errors import Unsupported
from accounting.group_targets import GroupDpTarget
from accounting.targets import ApproximateDpTarget, GaussianDpTarget, PureDpTarget, Target, ZcdpTarget

#: The most rows times parameters, and the fewest rows.
NUMBERS, FEWEST_RECORDS = 400_000, 1_000
#: The most parameters of a simulation. With more of them, the results would show only sampling error.
MOST_PARAMETERS = 10_000


def simulated_records(dataset_size: int, dimension: int) -> int:
    """Return how many rows are simulated: all of them, or as many as allow quick training.

    >>> simulated_records(50_000, 20), simulated_records(500, 20), simulated_records(50_000, 1_000)
    (20000, 500, 1000)
    """
    return min(dataset_size, max(NUMBERS // dimension, FEWEST_RECORDS))


def target_for_fewer(target: Target, factor: float) -> Target:
    """Return the target with the Gaussian mu multiplied by the factor; a factor of 1 gives the target itself.

    Raises:
        Unsupported: If a run cannot have a target of this kind.
        InvalidValue: If the new target would be out of range.

    >>> target_for_fewer(ZcdpTarget(0.5), 2.0), target_for_fewer(GaussianDpTarget(0.5), 2.0)
    (ZcdpTarget(rho=2.0), GaussianDpTarget(mu=1.0))
    """
    if factor == 1.0:
        return target
    match target:
        case ZcdpTarget():
            return ZcdpTarget(target.rho * factor**2)
        case GaussianDpTarget():
            return GaussianDpTarget(target.mu * factor)
        case PureDpTarget():
            return PureDpTarget(target.epsilon * factor)
        case ApproximateDpTarget() | GroupDpTarget():
            return replace(target, epsilon=_epsilon(target.epsilon, target.delta, factor))
    raise Unsupported(f"a simulation needs a target that a run can have, not {target.kind}", pointer=("target", "kind"))


def _epsilon(epsilon: float, delta: float, factor: float) -> float:
    if not 0.0 < delta < 1.0:
        return epsilon * factor
    return epsilon_of_gaussian(mu_of_gaussian(epsilon, delta) * factor, delta, upward=False)
