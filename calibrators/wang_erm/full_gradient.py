"""This module bounds the utility of full-gradient descent with noise on a smooth loss, by derived forms of Theorems 6.2
and 6.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from accounting.errors import InvalidValue
from accounting.numbers import MAX_COUNT
from calibrators.noise import solve_gaussian_steps
from calibrators.plan import Phase
from calibrators.provenance import GRADIENT, LOSS, Provenance, ProvenanceKind, Units
from calibrators.spec import Spec, Unknown

PAPER = "Wang, Ye & Xu 2017"

#: A step size may exceed 1/L by this factor, because a caller may have rounded it.
_ROUNDING = 1.0 + 1e-12


@dataclass(frozen=True, slots=True)
class Smooth:
    """A loss that is L-smooth on all of R^p, and a step size eta in (0, 1/L].

    One step with noise of standard deviation s per coordinate lowers the expected loss by at least
    ``decrease`` times the squared gradient norm, up to ``noise_cost(s)``: from the descent lemma,
    E f(x - eta (grad f + s Z)) <= f - eta (1 - L eta / 2) |grad f|^2 + L eta^2 p s^2 / 2.

    Attributes:
        smoothness: The smoothness L.
        initial_gap: A bound D_0 >= f(x_0) - inf f.
        dimension: The dimension p.
        step_size: The step size eta; None takes 1/L.

    Raises:
        InvalidValue: If eta is above 1/L.

    >>> Smooth(smoothness=4.0, initial_gap=1.0, dimension=10).eta
    0.25
    """

    smoothness: float
    initial_gap: float
    dimension: int
    step_size: float | None = None

    def __post_init__(self) -> None:
        if self.eta * self.smoothness > _ROUNDING:
            raise InvalidValue(
                f"step_size must be at most 1/smoothness = {1.0 / self.smoothness:g} for the theorem",
                pointer=("step_size",),
            )

    @property
    def eta(self) -> float:
        """The step size eta."""
        return 1.0 / self.smoothness if self.step_size is None else self.step_size

    @property
    def decrease(self) -> float:
        """The number eta (1 - L eta / 2), in step-size units; 1/(2 L) at eta = 1/L."""
        return self.eta * (1.0 - 0.5 * min(1.0, self.smoothness * self.eta))

    def noise_cost(self, noise_stddev_on_mean: float) -> float:
        """Return the cost of the noise in one step, L eta^2 p s^2 / 2, in loss units."""
        return 0.5 * self.smoothness * (self.eta * noise_stddev_on_mean) ** 2 * self.dimension


class FullGradientTheorem(Protocol):
    """A bound on the result of T steps, where s is the standard deviation of the noise on the mean, per coordinate."""

    name: ClassVar[str]
    units: ClassVar[Units]
    source: ClassVar[str]
    formula: ClassVar[str]
    iterations_formula: ClassVar[str]

    @property
    def problem(self) -> Smooth: ...
    @property
    def trivial(self) -> float: ...
    def bound(self, noise_stddev_on_mean: float, iterations: int) -> float: ...
    def best_iterations(self, noise_stddev_of_one_step: float) -> int: ...


@dataclass(frozen=True, slots=True)
class PolyakLojasiewicz:
    """Theorem 6.2 with explicit constants, for losses with |grad f|^2 >= 2 mu (f - inf f).

    Guarantees:
        - E f(x_T) - inf f <= q^T D_0 + c (1 - q^T), q = 1 - 2 mu eta (1 - L eta / 2), c = L eta^2 p s^2 / (2 (1 - q)).
          At eta = 1/L: q = 1 - mu / L and c = p s^2 / (2 mu).

    Raises:
        InvalidValue: If mu is above L, because no loss has such constants.

    >>> theorem = PolyakLojasiewicz(Smooth(1.0, 1.0, dimension=10), pl_constant=0.1)
    >>> round(theorem.bound(0.008449357779, 100), 11)
    0.00359604893
    """

    name: ClassVar[str] = "excess_risk_bound"
    units: ClassVar[Units] = LOSS
    source: ClassVar[str] = f"{PAPER}, Theorem 6.2 (constants derived)"
    formula: ClassVar[str] = (
        r"\mathbb{E} F(x_T) - F^* \le q^T D_0 + \tfrac{L \eta^2 p \sigma^2}{2(1 - q)} (1 - q^T),\;"
        r" q = 1 - 2\mu\eta(1 - L\eta/2) = 1 - \mu/L \text{ at } \eta = 1/L"
    )
    iterations_formula: ClassVar[str] = (
        r"T = \arg\min_{T \ge 1} q^T D_0 + T c_1 (1 - q^T),\; c_1 = \tfrac{L \eta^2 p \sigma_1^2}{2(1 - q)}"
    )

    problem: Smooth
    pl_constant: float

    def __post_init__(self) -> None:
        if self.pl_constant > self.problem.smoothness:
            raise InvalidValue(
                f"pl_constant must be at most smoothness, {self.problem.smoothness:g}, because no loss has a "
                f"larger one; got {self.pl_constant:g}",
                pointer=("assumptions", "pl_constant"),
            )

    @property
    def trivial(self) -> float:
        """The bound D_0, which holds before any step."""
        return self.problem.initial_gap

    @property
    def contraction(self) -> float:
        """The number 1 - q, in (0, 1]."""
        return 2.0 * self.pl_constant * self.problem.decrease

    def _kept(self, iterations: int) -> float:
        """Return q^T, the share of the initial gap that is left after T steps."""
        if self.contraction >= 1.0:
            return 0.0
        return math.exp(iterations * math.log1p(-self.contraction))

    def bound(self, noise_stddev_on_mean: float, iterations: int) -> float:
        """Return the bound on the expected excess risk of x_T, in loss units."""
        kept, floor = self._kept(iterations), self.problem.noise_cost(noise_stddev_on_mean) / self.contraction
        return kept * self.problem.initial_gap + floor * (1.0 - kept)

    def best_iterations(self, noise_stddev_of_one_step: float) -> int:
        """Return the T >= 1 with the smallest bound, if T steps need sqrt(T) times the noise of one step.

        With a = -ln q the derivative of q^T D_0 + c T (1 - q^T) has the sign of u + e^u - 1 - a D_0 / c, u = a T, which
        increases in T. So there is a single minimum. Bisection of u finds it.
        """
        if self.contraction >= 1.0:
            return 1
        per_step = self.problem.noise_cost(noise_stddev_of_one_step) / self.contraction
        rate = -math.log1p(-self.contraction)
        if rate * self.problem.initial_gap >= 1e300 * per_step:
            return MAX_COUNT
        level = rate * self.problem.initial_gap / per_step
        lower, upper = 0.0, math.log1p(level)  # at upper, u + e^u - 1 = u + level
        for _ in range(200):
            middle = 0.5 * (lower + upper)
            if middle + math.expm1(middle) < level:
                lower = middle
            else:
                upper = middle
        return _best_of(self, noise_stddev_of_one_step, lower / rate)


@dataclass(frozen=True, slots=True)
class NonConvex:
    """Theorem 6.3 with explicit constants, for the released x_m with m uniform on {0, .., T-1}.

    Guarantees:
        - E |grad f(x_m)|^2 <= D_0 / (a T) + L eta^2 p s^2 / (2 a), a = eta (1 - L eta / 2). The answer's bound is its
          square root, which bounds E |grad f(x_m)|. At eta = 1/L: sqrt(2 L D_0 / T + p s^2).

    >>> theorem = NonConvex(Smooth(1.0, 1.0, dimension=10))
    >>> round(theorem.bound(0.0, 50), 12)
    0.2
    """

    name: ClassVar[str] = "gradient_norm_bound"
    units: ClassVar[Units] = GRADIENT
    source: ClassVar[str] = f"{PAPER}, Theorem 6.3 (constants derived)"
    formula: ClassVar[str] = (
        r"\mathbb{E}\|\nabla F(x_m)\| \le \sqrt{\tfrac{D_0}{aT} + \tfrac{L\eta^2 p\sigma^2}{2a}},\;"
        r" a = \eta(1 - L\eta/2);\; \sqrt{2LD_0/T + p\sigma^2} \text{ at } \eta = 1/L"
    )
    iterations_formula: ClassVar[str] = (
        r"T \approx \tfrac{1}{\eta\sigma_1} \sqrt{2D_0/(Lp)} = \tfrac{1}{\sigma_1} \sqrt{2LD_0/p}"
        r" \text{ at } \eta = 1/L"
    )

    problem: Smooth

    @property
    def trivial(self) -> float:
        """The bound sqrt(2 L D_0), which holds at x_0 for an L-smooth loss."""
        return math.sqrt(2.0 * self.problem.smoothness * self.problem.initial_gap)

    def bound(self, noise_stddev_on_mean: float, iterations: int) -> float:
        """Return the bound on the expected gradient norm at x_m, in gradient units."""
        cost = self.problem.noise_cost(noise_stddev_on_mean)
        return math.sqrt((self.problem.initial_gap / iterations + cost) / self.problem.decrease)

    def best_iterations(self, noise_stddev_of_one_step: float) -> int:
        """Return the T >= 1 that minimises D_0/T + cost T, because T steps need sqrt(T) times the noise of one step."""
        per_step = self.problem.noise_cost(noise_stddev_of_one_step)
        if self.problem.initial_gap >= 1e300 * per_step:
            return MAX_COUNT
        return _best_of(self, noise_stddev_of_one_step, math.sqrt(self.problem.initial_gap / per_step))


def _best_of(theorem: FullGradientTheorem, noise_stddev_of_one_step: float, near: float) -> int:
    """Return the better of the two integers around ``near``, limited to the number of steps that a plan can hold."""
    below = min(max(1, math.floor(near)), MAX_COUNT - 1)
    return min((below, below + 1), key=lambda count: theorem.bound(noise_stddev_of_one_step * math.sqrt(count), count))


class Chooser(Protocol):
    """A theorem that can choose a number of steps."""

    def best_iterations(self, noise_stddev_of_one_step: float) -> int: ...


def choose_iterations(
    spec: Spec,
    theorem: Chooser | None,
    missing: tuple[str, ...],
    *,
    chooser: str,
    silent: str,
    formula: str,
    source: str,
) -> tuple[Spec, list[Provenance]]:
    """Return the spec with its number of steps. If the number was chosen, also return its provenance.

    If the noise is solved for, the number with the smallest bound is chosen. This is possible because the cost of T
    full batches depends only on the noise divided by sqrt(T).

    Args:
        theorem: The theorem; None if no theorem covers the spec.
        missing: The names of the constants that a theorem would need.
        chooser: The words for what chooses the number, such as "the theorem".
        silent: The words after "no" in the reason why no theorem covers a spec that has all constants.
        formula, source: The formula and source of the chosen number.

    Raises:
        InvalidValue: If the number is missing and cannot be chosen.
    """
    if spec.iterations is None and spec.unknown is Unknown.NOISE_MULTIPLIER and theorem is not None:
        one = solve_gaussian_steps(replace(spec, iterations=1))
        chosen = theorem.best_iterations(Phase(one.event, spec.clip, one.batch_size).noise_stddev_on_mean)
        words = (
            "sigma_1 is the noise on the mean with which one step meets the target; T steps need sqrt(T) times sigma_1",
            "the number with the smallest bound among all T >= 1",
        )
        said = Provenance("iterations", float(chosen), formula, source, ProvenanceKind.DERIVED, words)
        return replace(spec, iterations=chosen), [said]
    if spec.unknown is not Unknown.ITERATIONS:
        why = f"no {silent}, so the number cannot be chosen"
        if missing:
            why = f"{chooser} can choose it, given {', '.join(missing)}"
        elif spec.unknown is not Unknown.NOISE_MULTIPLIER:
            why = f"{chooser} can choose it if the noise is solved for"
        spec.need("iterations", f"this is the number of steps ({why})")
    return spec, []
