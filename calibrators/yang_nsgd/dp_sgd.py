"""DP-SGD: clip every record's gradient, add noise, step (Yang et al. 2022, equation (2), Theorem 3.4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from accounting.errors import InvalidValue
from calibrators.algorithm import Algorithm
from calibrators.plan import Clip
from calibrators.spec import Calibration, Spec
from calibrators.units import STEP, Units
from calibrators.yang_nsgd.nonconvex import ASSUMPTIONS, ERRATA, PAPER, RELATIONS, SAMPLINGS, VERDICT, Problem
from calibrators.yang_nsgd.theorem import GradientNormTheorem, calibrate_with_theorem


@dataclass(frozen=True, slots=True)
class ClippedTheorem:
    """The derived form of Theorem 3.4.

    Args:
        problem: Constants of the objective.
        max_grad_norm: Clip threshold c >= 2 t_0, in gradient units.

    Guarantees:
        - With every valid step size eta, E[min_k |grad f(x_k)|] <= sqrt(G_c E_T) + E_T: there is no floor.

    Raises:
        InvalidValue: c < 2 t_0, where the first-order lower bound fails (Lemma A.5).

    Source: Yang et al. 2022, Theorem 3.4 and Lemma A.5; the proof of the constants is in docs/algorithms/yang_nsgd.md.

    >>> problem = Problem(initial_gap=2, l0=1, l1=0.5, tau0=0.3, tau1=0.2, dimension=100)
    >>> theorem = ClippedTheorem(problem, max_grad_norm=1.5)
    >>> round(theorem.bound(theorem.step_size(0.015, 20000), 0.015, 20000), 10)
    0.2807391434
    """

    source: ClassVar[str] = f"{PAPER}, Theorem 3.4 (constants derived)"
    step_size_formula: ClassVar[str] = r"\eta = \sqrt{2 D_0 / (K_0 V_c T)},\; V_c = d s^2 + c^2,\; K_0 = L_0 + L_1 G_c"
    step_size_units: ClassVar[Units] = STEP
    bound_formula: ClassVar[str] = (
        r"\mathbb{E}\min_{k<T}\|\nabla f(x_k)\| \le \sqrt{G_c E_T} + E_T,\;"
        r" E_T = \tfrac{2}{G_c}\left(\tfrac{D_0}{\eta T} + \tfrac{\eta K_0 V_c}{2}\right),\;"
        r" G_c = \tfrac{c - \tau_0}{1 + \tau_1}"
    )

    problem: Problem
    max_grad_norm: float

    def __post_init__(self) -> None:
        smallest = 2.0 * self.problem.t0
        if self.max_grad_norm < smallest:
            raise InvalidValue(
                f"the theorem needs max_grad_norm >= 2 tau_0 / (1 - tau_1) = {smallest:g}; raise it, or leave the "
                "assumptions out to calibrate the noise alone",
                code="clip_below_theorem",
                pointer=("gradient_bound", "max_grad_norm"),
            )

    @property
    def g_c(self) -> float:
        """(c - tau_0) / (1 + tau_1): up to this gradient norm no record is clipped."""
        return (self.max_grad_norm - self.problem.tau0) / (1.0 + self.problem.tau1)

    @property
    def k0(self) -> float:
        """Smoothness constant below G_c: L_0 + L_1 G_c."""
        return self.problem.l0 + self.problem.l1 * self.g_c

    def _second_moment(self, noise_stddev_on_mean: float) -> float:
        return self.problem.dimension * noise_stddev_on_mean**2 + self.max_grad_norm**2

    def step_size(self, noise_stddev_on_mean: float, iterations: int) -> float:
        """eta = sqrt(2 D_0 / (K_0 V_c T)) with V_c = d s^2 + c^2; parameter units over gradient units."""
        v = self._second_moment(noise_stddev_on_mean)
        return math.sqrt(2.0 * self.problem.initial_gap / (self.k0 * v * iterations))

    def largest_step_size(self, noise_stddev_on_mean: float) -> float:
        """The theorem holds up to here: eta L_1 V_c <= G_c."""
        scale = self.problem.l1 * self._second_moment(noise_stddev_on_mean)
        return self.g_c / scale if scale > 0.0 else math.inf

    def fewest_iterations(self, noise_stddev_on_mean: float) -> float:
        """From how many steps on the recommended step size is valid: 2 D_0 L_1^2 V_c / (K_0 G_c^2)."""
        p = self.problem
        v = self._second_moment(noise_stddev_on_mean)
        return 2.0 * p.initial_gap * p.l1**2 * v / (self.k0 * self.g_c**2)

    def bound(self, step_size: float, noise_stddev_on_mean: float, iterations: int) -> float:
        """sqrt(G_c E_T) + E_T with E_T = (2/G_c) (D_0/(eta T) + eta K_0 V_c / 2); gradient units."""
        v = self._second_moment(noise_stddev_on_mean)
        e_t = (2.0 / self.g_c) * (self.problem.initial_gap / (step_size * iterations) + step_size * self.k0 * v / 2.0)
        return math.sqrt(self.g_c * e_t) + e_t


def calibrate(spec: Spec) -> Calibration:
    """Noise from the engine, step size and gradient bound from the derived Theorem 3.4.

    Raises:
        InvalidValue: a number is outside its range, the gradient bound is not `clip`, or c < 2 t_0.
        Unsupported: the sampling is not available.
        Unreachable: no noise multiplier meets the target.
    """
    bound = spec.gradient_bound
    if not isinstance(bound, Clip):
        raise InvalidValue("dp_sgd clips: gradient_bound.kind must be clip", pointer=("gradient_bound",))

    def theorem(problem: Problem) -> GradientNormTheorem:
        return ClippedTheorem(problem, bound.max_grad_norm)

    return calibrate_with_theorem(DP_SGD, spec, theorem)


DP_SGD = Algorithm(
    name="dp_sgd",
    summary="Clip each record's gradient to l2 norm c, sum, add Gaussian noise of c times the multiplier, step.",
    source=f"{PAPER}, equation (2), Theorem 3.4",
    update=r"x \leftarrow x - \frac{\eta}{B}\left(\sum_i \min(1, c/\|g_i\|)\, g_i + c\,\sigma Z\right)",
    samplings=SAMPLINGS,
    relations=RELATIONS,
    gradient_bounds=(Clip,),
    assumptions=ASSUMPTIONS,
    guarantee="(epsilon, delta)-differential privacy of all iterates together, hence of the released last one.",
    gradient_complexity="T B",
    verdict=VERDICT,
    errata=ERRATA,
    calibrate=calibrate,
)
