"""DP-NSGD: normalise every record's gradient, add noise, step (Yang et al. 2022, Algorithm 1, Theorem 3.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from accounting.errors import InvalidValue
from calibrators.algorithm import Algorithm
from calibrators.plan import Normalize
from calibrators.spec import Calibration, Spec
from calibrators.units import PARAMETER, Units
from calibrators.yang_nsgd.nonconvex import ASSUMPTIONS, ERRATA, PAPER, RELATIONS, SAMPLINGS, VERDICT, Problem
from calibrators.yang_nsgd.theorem import GradientNormTheorem, calibrate_with_theorem


@dataclass(frozen=True, slots=True)
class NormalizedTheorem:
    """The derived form of Theorem 3.2.

    Args:
        problem: Constants of the objective.
        regularizer: r > 0, in gradient units.
        theta: Where the two regimes meet, in gradient units, at least t_0; None takes r + t_0.

    Guarantees:
        - With every valid step size eta, E[min_k |grad f(x_k)|] <= sqrt(theta E_T) + E_T + floor.
        - The floor decreases in the regularizer, and is 0 when tau_0 is 0.

    Source: Yang et al. 2022, Theorem 3.2 and Lemma A.3; the proof of the constants is in docs/algorithms/yang_nsgd.md.

    >>> problem = Problem(initial_gap=2, l0=1, l1=0.5, tau0=0.3, tau1=0.2, dimension=100)
    >>> theorem = NormalizedTheorem(problem, regularizer=1.0)
    >>> round(theorem.bound(theorem.step_size(0.01, 20000), 0.01, 20000), 10)
    0.7842684413
    """

    source: ClassVar[str] = f"{PAPER}, Theorem 3.2 (constants derived)"
    step_size_formula: ClassVar[str] = (
        r"\eta = \sqrt{2 D_0 / (K_0 V T)},\; V = d s^2 + 1,\; K_0 = L_0 + L_1 \theta,\; \theta = r + t_0"
    )
    step_size_units: ClassVar[Units] = PARAMETER
    bound_formula: ClassVar[str] = (
        r"\mathbb{E}\min_{k<T}\|\nabla f(x_k)\| \le \sqrt{\theta E_T} + E_T + \min(4 t_0^2/r,\, t_0),\;"
        r" E_T = \tfrac{2}{\kappa}\left(\tfrac{D_0}{\eta T} + \tfrac{\eta K_0 V}{2}\right)"
    )

    problem: Problem
    regularizer: float
    theta: float | None = None

    def __post_init__(self) -> None:
        if self.regularizer == 0.0:
            raise InvalidValue("the theorem needs a regularizer above 0", pointer=("gradient_bound", "regularizer"))
        if self.theta is None:
            object.__setattr__(self, "theta", self.regularizer + self.problem.t0)

    @property
    def _theta(self) -> float:
        assert self.theta is not None
        return self.theta

    @property
    def kappa(self) -> float:
        """Share of the gradient that survives normalisation where |grad f| >= theta; equation (17)."""
        p = self.problem
        return self._theta / (self.regularizer + p.tau0 + (1.0 + p.tau1) * self._theta)

    @property
    def k0(self) -> float:
        """Smoothness constant below theta: L_0 + L_1 theta."""
        return self.problem.l0 + self.problem.l1 * self._theta

    @property
    def floor(self) -> float:
        """What no number of steps removes: min(4 t_0^2 / r, t_0), gradient units."""
        t0 = self.problem.t0
        return min(4.0 * t0 * t0 / self.regularizer, t0)

    def _second_moment(self, noise_stddev_on_mean: float) -> float:
        return self.problem.dimension * noise_stddev_on_mean**2 + 1.0

    def step_size(self, noise_stddev_on_mean: float, iterations: int) -> float:
        """eta = sqrt(2 D_0 / (K_0 V T)) with V = d s^2 + 1; parameter units."""
        v = self._second_moment(noise_stddev_on_mean)
        return math.sqrt(2.0 * self.problem.initial_gap / (self.k0 * v * iterations))

    def largest_step_size(self, noise_stddev_on_mean: float) -> float:
        """The theorem holds up to here: eta L_1 V <= kappa."""
        scale = self.problem.l1 * self._second_moment(noise_stddev_on_mean)
        return self.kappa / scale if scale > 0.0 else math.inf

    def fewest_iterations(self, noise_stddev_on_mean: float) -> float:
        """From how many steps on the recommended step size is valid: 2 D_0 L_1^2 V / (K_0 kappa^2)."""
        p = self.problem
        v = self._second_moment(noise_stddev_on_mean)
        return 2.0 * p.initial_gap * p.l1**2 * v / (self.k0 * self.kappa**2)

    def bound(self, step_size: float, noise_stddev_on_mean: float, iterations: int) -> float:
        """sqrt(theta E_T) + E_T + floor with E_T = (2/kappa) (D_0/(eta T) + eta K_0 V / 2); gradient units."""
        v = self._second_moment(noise_stddev_on_mean)
        e_t = (2.0 / self.kappa) * (self.problem.initial_gap / (step_size * iterations) + step_size * self.k0 * v / 2.0)
        return math.sqrt(self._theta * e_t) + e_t + self.floor


def calibrate(spec: Spec) -> Calibration:
    """Noise from the engine, step size and gradient bound from the derived Theorem 3.2.

    Raises:
        InvalidValue: a number is outside its range, or the gradient bound is not `normalize`.
        Unsupported: the sampling is not available.
        Unreachable: no noise multiplier meets the target.
    """
    bound = spec.gradient_bound
    if not isinstance(bound, Normalize):
        raise InvalidValue("dp_nsgd normalises: gradient_bound.kind must be normalize", pointer=("gradient_bound",))

    def theorem(problem: Problem) -> GradientNormTheorem:
        return NormalizedTheorem(problem, bound.regularizer)

    return calibrate_with_theorem(DP_NSGD, spec, theorem)


DP_NSGD = Algorithm(
    name="dp_nsgd",
    summary="Divide each record's gradient g by (r + |g|), sum, add Gaussian noise, step. Needs no clip threshold.",
    source=f"{PAPER}, Algorithm 1, equation (3), Theorem 3.2",
    update=r"x \leftarrow x - \frac{\eta}{B}\left(\sum_i \frac{g_i}{r + \|g_i\|} + \sigma Z\right)",
    samplings=SAMPLINGS,
    relations=RELATIONS,
    gradient_bounds=(Normalize,),
    assumptions=ASSUMPTIONS,
    guarantee="(epsilon, delta)-differential privacy of all iterates together, hence of the released last one.",
    gradient_complexity="T B",
    verdict=VERDICT,
    errata=(
        *ERRATA,
        "The noise on the sum is sigma whatever r is: scaling it by r, as one public fork does, voids the guarantee.",
    ),
    calibrate=calibrate,
)
