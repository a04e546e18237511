"""The same request in other units of the loss and of the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from calibrators.algorithm import Algorithm
from calibrators.geometry import Box, Domain, L1Penalty, L2Penalty, LpBall, Penalty, Simplex
from calibrators.plan import AnyPhase, BoundedSteps, Clip, GradientBound
from calibrators.provenance import GRADIENT, PARAMETER, PURE, SMOOTHNESS, Units
from calibrators.spec import Spec


@dataclass(frozen=True, slots=True)
class Rescaling:
    """Every loss is multiplied by ``loss`` and every parameter by ``parameter``.

    Attributes:
        holder_exponent: Of the problem, which units may name.
        step_size: The algorithm's unit of a step size.
    """

    loss: float
    parameter: float
    holder_exponent: float
    step_size: Units

    def factor(self, units: Units) -> float:
        return units.scale(self.loss, self.parameter, self.holder_exponent)

    def spec(self, algorithm: Algorithm, spec: Spec) -> Spec:
        """The same request."""
        return replace(
            spec,
            assumptions=self._constants(algorithm, spec.assumptions),
            gradient_bound=None if spec.gradient_bound is None else self._bound(spec.gradient_bound),
            domain=None if spec.domain is None else self.domain(spec.domain),
            penalty=None if spec.penalty is None else self.penalty(spec.penalty),
            step_size=None if spec.step_size is None else spec.step_size * self.factor(self.step_size),
        )

    def _constants(self, algorithm: Algorithm, given: Mapping[str, float]) -> dict[str, float]:
        """With the defaults that have units: left out, they would be numbers in the new ones."""
        known = {assumption.name: assumption for assumption in algorithm.assumptions}
        defaults = {
            name: assumption.default
            for name, assumption in known.items()
            if assumption.default is not None and assumption.units != PURE
        }
        return {name: value * self.factor(known[name].units) for name, value in (defaults | dict(given)).items()}

    def _bound(self, bound: GradientBound) -> GradientBound:
        """Both kinds are measured in units of a gradient."""
        if isinstance(bound, Clip):
            return Clip(bound.max_grad_norm * self.factor(GRADIENT))
        return replace(bound, regularizer=bound.regularizer * self.factor(GRADIENT))

    def domain(self, domain: Domain) -> Domain:
        length = self.factor(PARAMETER)
        match domain:
            case Box():
                return Box(domain.lower * length, domain.upper * length)
            case Simplex():
                return Simplex(domain.scale * length)
            case LpBall():
                return LpBall(domain.norm_order, domain.radius * length)
        return replace(domain, radius=domain.radius * length)

    def penalty(self, penalty: Penalty) -> Penalty:
        if isinstance(penalty, L2Penalty):
            return L2Penalty(penalty.strength * self.factor(SMOOTHNESS))
        return L1Penalty(penalty.strength * self.factor(GRADIENT))

    def numbers(self, phase: AnyPhase) -> dict[str, tuple[float | tuple[float, ...] | None, Units]]:
        """The numbers of a phase with their units."""
        if not isinstance(phase, BoundedSteps):
            return {name: (getattr(phase, name), units) for name, units in phase.units.items()}
        clipped = isinstance(phase.gradient_bound, Clip)
        own = phase.gradient_bound.max_grad_norm if clipped else phase.gradient_bound.regularizer
        return {
            "gradient_bound": (own, GRADIENT),
            # A normalised gradient is a pure number, and so is its noise.
            "noise_stddev_on_sum": (phase.noise_stddev_on_sum, GRADIENT if clipped else PURE),
            "step_size": (phase.step_size, self.step_size),
        }
