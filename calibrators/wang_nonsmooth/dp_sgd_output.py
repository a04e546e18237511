r"""Steps of one record each, their average released with noise (Wang, Lei, Ying & Zhang 2022, Algorithm 1).

$$w_1 = 0,\qquad w_{t+1} = \Pi_W\big(w_t - \eta\,\partial\ell(w_t; z_{i_t})\big),\qquad \text{released: } \tfrac1T
\sum_{t=1}^T w_t + \sigma Z .$$

Noise comes once, at the end. Its privacy relies on the stability of the steps, hence on the properties of the losses:
convex and Hoelder smooth on all of $\mathbb{R}^d$, for every record of every data set. Clipped gradients are not
gradients of such losses. A run therefore trains only linear models, whose losses have proved constants under a bound on
the record's features. It scales longer rows down to the bound at which the model's constants are within those of the
plan.

**Noise.** The noise is the least $\sigma$ at which the mixture over the number of draws of one record meets the target,
rounded outward. Two other rules are stated for comparison: the paper's,
$\sqrt{2\ln(2.5/\delta)}\,\Delta(\delta/2)/\varepsilon$ with Theorem 7's $\Delta$; and the analytic one,
$\Delta_k/\mu_*(\varepsilon, \delta/2)$ at the $\delta/2$-quantile $k$ of the number of draws. The whole run is one
(epsilon, delta) event: no part of it has a cost of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.errors import InvalidValue, Unsupported
from accounting.events import ApproximateDp, Event, WithoutReplacement
from accounting.intervals import Answer
from accounting.numbers import MAX_COUNT
from accounting.relations import NeighboringRelation
from accounting.solve import solve_delta, solve_epsilon
from accounting.targets import ApproximateDpTarget
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest, StepCount
from calibrators.geometry import L2Ball
from calibrators.phases.output_perturbation import OutputPerturbation
from calibrators.plan import Plan
from calibrators.provenance import PARAMETER, STEP, Provenance, ProvenanceKind
from calibrators.refusals import refuse
from calibrators.release import AverageIterate
from calibrators.scopes import Measure, Scope, Shape
from calibrators.spec import Calibration, OpenDelta, OpenEpsilon, Spec, Unknown
from calibrators.wang_nonsmooth.holder import (
    ASSUMPTIONS,
    EXAMPLE_CONSTANTS,
    HOLDER_NAMES,
    PAPER,
    HolderProblem,
    read_problem,
)
from calibrators.wang_nonsmooth.mixture import Mixture
from calibrators.wang_nonsmooth.other_output_noise import analytic_stddev, theorem_8
from calibrators.wang_nonsmooth.output_rates import OutputRate
from calibrators.wang_nonsmooth.output_utility import HOLDS, OutputNoise, OutputRun, utility_of
from calibrators.wang_nonsmooth.stability import Stability, iterate_radius
from calibrators.wang_nonsmooth.utility import step_size_limit

#: The factor by which charges stay below the target's epsilon. It covers the rounding of sums of epsilons.
_BELOW = 1.0 - 1e-12

_MIXTURE = (
    r"\delta(\varepsilon) \le \sum_k \mathrm{Bin}(k; T, 1/n)\,\delta_G(\varepsilon; \Delta_k/\sigma),\;"
    r" \Delta_k = \min(c_0 + s\,G\,\eta\,k,\, 2R),\; \Delta_0 = 0"
)


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps, before their noise.

    Attributes:
        stability: The stability of the average.
        radius: The radius of all points.
        chosen: The theorem's choice, with its provenance.
        rate: The rate of the theorem; None if a number that it needs is missing.
    """

    stability: Stability
    radius: float
    chosen: tuple[Provenance, ...]
    rate: OutputRate | None


def calibrate(spec: Spec) -> Calibration:
    """Calibrate: the noise is from the mixture, step size and steps from Theorem 10 (in a ball) or 9 (without one).

    Raises:
        InvalidValue: If a number is outside its range or missing, or if the step size is not below min(1, 1/L).
        Unsupported: If the target is not (epsilon, delta), batches have more than one record, a penalty is given, or
            the domain is no l2 ball; or if the number of steps or the batch size is solved for.
        Unreachable: If no noise meets the target.
    """
    _refuse_what_has_no_part(spec)
    problem = read_problem(spec)
    steps = _steps(spec, problem)
    stability, sensitivity = steps.stability, spec.relation.sensitivity
    mixture = mixture_of(stability, spec.dataset_size, sensitivity)
    multiplier, event, achieved = _solve(spec, mixture)
    stddev = multiplier * stability.draw
    phase = OutputPerturbation(
        event=event,
        iterations=stability.iterations,
        step_size=stability.step_size,
        holder_exponent=stability.exponent,
        holder_constant=stability.constant,
        gradient_norm=stability.gradient_norm,
        radius=steps.radius,
        noise_stddev=stddev,
    )
    noise = None
    if spec.dimension is not None:
        noise = OutputNoise(stddev, spec.dimension, stability.gradient_norm, stability.exponent, stability.constant)
    run = OutputRun(
        problem,
        noise,
        stability.iterations,
        stability.step_size,
        steps.radius,
        spec.step_size is not None,
        steps.rate,
    )
    value = {Unknown.EPSILON: achieved.value.upper, Unknown.DELTA: achieved.value.upper}.get(spec.unknown, multiplier)
    return Calibration(
        plan=Plan(
            ALGORITHM.name,
            spec.dataset_size,
            spec.relation,
            (phase,),
            domain=None if problem.radius is None else L2Ball(problem.radius),
            release=AverageIterate(),
        ),
        unknown=spec.unknown,
        value=value,
        achieved=achieved,
        next_achieved=None,
        hyperparameters=(*steps.chosen, *_noise(spec, stability, multiplier, stddev)),
        utility=tuple(utility_of(run)),
        missing_assumptions=problem.missing,
        warnings=achieved.warnings,
        as_published=theorem_8(spec, problem, stability),
    )


def mixture_of(stability: Stability, dataset_size: int, sensitivity: float) -> Mixture:
    """Return the mixture in units of G eta, the distance by which one draw moves a point."""
    return Mixture(
        stability.iterations,
        dataset_size,
        stability.drift / stability.draw,
        sensitivity,
        2.0 * stability.radius / stability.draw,
    )


def _refuse_what_has_no_part(spec: Spec) -> None:
    target = spec.target
    if not isinstance(target, ApproximateDpTarget | OpenEpsilon | OpenDelta):
        raise Unsupported(
            "the cost of the released average is known only as epsilon at a delta: the number of times that a "
            "record is drawn is hidden, and no better cost is known for the resulting mixture of Gaussians; use an "
            "approximate_dp target for single records",
            code="no_cost_in_filter",
            pointer=("target", "kind"),
        )
    if not isinstance(target, OpenDelta) and not 0.0 < target.delta < 1.0:
        raise Unsupported("Gaussian noise needs a delta in (0, 1)", pointer=("target", "delta"))
    refuse(
        spec,
        sizes=f"{spec.unknown} is not solved for: the theorem's step size goes with the steps, and each step takes one "
        "record. Solve for noise_multiplier",
    )
    if spec.batch_size not in (None, 1):
        raise Unsupported(
            "the stability of the steps is proved only for one record a step: batch_size must be 1",
            pointer=("batch_size",),
        )
    refuse(spec, penalty="dp_sgd_output has no penalty; put it into the loss and the constants")


def _steps(spec: Spec, problem: HolderProblem) -> _Steps:
    """Return the number of steps, the step size, and the constants on which the stability rests."""
    exponent, constant = problem.exponent, problem.constant
    if exponent is None or constant is None or problem.gradient_at_zero is None:
        named = (exponent, constant, problem.gradient_at_zero)
        name = next(name for name, value in zip(HOLDER_NAMES, named, strict=True) if value is None)
        raise InvalidValue(
            f"{name} is needed for the privacy itself, which rests on the losses' smoothness: give "
            f"{', '.join(HOLDER_NAMES)}, or lipschitz alone",
            code="missing",
            pointer=("assumptions", name),
        )
    rate = _rate(spec, problem, exponent)
    chosen: list[Provenance] = []
    iterations = spec.iterations
    if iterations is None:
        if rate is None:
            raise _missing(spec, problem, "iterations", "the number of steps")
        iterations = rate.iterations
        if iterations > MAX_COUNT:
            raise InvalidValue(
                f"the theorem takes {iterations:.4g} steps for this holder_exponent, and a plan has at most "
                f"{MAX_COUNT:.0e}: give iterations",
                pointer=("iterations",),
            )
        chosen.append(
            Provenance("iterations", float(iterations), rate.iterations_formula, rate.source, ProvenanceKind.ORDER)
        )
    step_size = _step_size(spec, problem, rate, iterations, chosen)
    radius, longest = problem.radius, problem.gradient_norm
    if radius is None:
        if problem.loss_at_zero is None:
            raise InvalidValue(
                "without a radius the points are bounded by loss_at_zero: give one of them",
                code="missing",
                pointer=("assumptions", "radius"),
            )
        radius = iterate_radius(exponent, constant, longest or 0.0, problem.loss_at_zero, step_size, iterations)
        longest = longest or problem.gradient_at_zero + constant * math.pow(radius, exponent)
    assert longest is not None, "follows from the constants and the radius"
    cap = math.inf if problem.radius is None else problem.radius
    return _Steps(Stability(exponent, constant, longest, step_size, iterations, cap), radius, tuple(chosen), rate)


def _rate(spec: Spec, problem: HolderProblem, exponent: float) -> OutputRate | None:
    target, gamma = spec.target, problem.failure_probability
    if not isinstance(target, ApproximateDpTarget) or gamma is None or spec.dimension is None:
        return None
    if spec.dataset_size < 2:
        raise InvalidValue("the theorems need at least 2 records: ln n is 0", pointer=("dataset_size",))
    return OutputRate(
        spec.dataset_size, spec.dimension, target.epsilon, target.delta, gamma, exponent, problem.radius is not None
    )


def _step_size(
    spec: Spec, problem: HolderProblem, rate: OutputRate | None, iterations: int, chosen: list[Provenance]
) -> float:
    limit = step_size_limit(problem)
    if spec.step_size is None:
        if rate is None:
            raise _missing(spec, problem, "step_size", "the step size, on which the noise depends")
        value, pointer = rate.step_size(iterations, problem.order_constant), ("iterations",)
    else:
        value, pointer = spec.step_size, ("step_size",)
    if value >= limit:
        raise InvalidValue(
            f"the step size {value:.4g} must be below min(1, 1/L) = {limit:.4g}, for the steps to be stable: raise "
            "iterations, or give a smaller step_size",
            code="step_size_too_large",
            pointer=pointer,
        )
    if rate is not None:
        recommended = rate.step_size(iterations, problem.order_constant)
        chosen.append(
            Provenance(
                "step_size",
                recommended,
                rate.step_size_formula,
                rate.source,
                ProvenanceKind.ORDER,
                (*HOLDS, f"constant c = {problem.order_constant:g} (order_constant)", "step size below min(1, 1/L)"),
                units=STEP,
            )
        )
    return value


def _missing(spec: Spec, problem: HolderProblem, name: str, what: str) -> InvalidValue:
    """Return the error that names the constants that the theorem would need to choose a number."""
    needs: list[tuple[str, ...]] = []
    if problem.failure_probability is None:
        needs.append(("assumptions", "failure_probability"))
    if spec.dimension is None:
        needs.append(("dimension",))
    given = ", ".join(pointer[-1] for pointer in needs)
    why = f"the theorem can choose it, given {given}" if needs else "the theorem chooses it where the noise is unknown"
    return InvalidValue(f"{name} is needed: {what} ({why})", code="missing", pointer=needs[0] if needs else (name,))


def _solve(spec: Spec, mixture: Mixture) -> tuple[float, Event, Answer]:
    """Return the noise multiplier, the event of the whole run and its certified cost."""
    target = spec.target
    if isinstance(target, OpenEpsilon):
        assert spec.noise_multiplier is not None, "the spec requires it if another quantity is solved for"
        event = Event(ApproximateDp(mixture.epsilon(target.delta, spec.noise_multiplier), target.delta))
        return spec.noise_multiplier, event, solve_epsilon([event], spec.relation, target.delta).achieved
    if isinstance(target, OpenDelta):
        assert spec.noise_multiplier is not None, "the spec requires it if another quantity is solved for"
        event = Event(ApproximateDp(target.epsilon, mixture.delta(target.epsilon, spec.noise_multiplier)))
        return spec.noise_multiplier, event, solve_delta([event], spec.relation, target.epsilon).achieved
    assert isinstance(target, ApproximateDpTarget), "others were refused"
    epsilon = target.epsilon * _BELOW
    multiplier = mixture.noise_multiplier(epsilon, target.delta)
    event = Event(ApproximateDp(epsilon, target.delta))
    return multiplier, event, target.assess([event], spec.relation)


def _noise(spec: Spec, stability: Stability, multiplier: float, stddev: float) -> list[Provenance]:
    """Return the noise that is used, and that of the analytic rule beside it."""
    derived, source = ProvenanceKind.DERIVED, f"{PAPER}, Theorems 7 and 8 (derived: mixture over the number of draws)"
    s = "s is 2 under replace_one and 1 under replace_special"
    found = [
        Provenance("noise_stddev", stddev, _MIXTURE, source, derived, (*HOLDS[:1], s), units=PARAMETER),
        Provenance("noise_multiplier", multiplier, r"\sigma / (G \eta)", source, derived, (s,)),
    ]
    target = spec.target
    if isinstance(target, ApproximateDpTarget):
        analytic = analytic_stddev(stability, spec.dataset_size, spec.relation.sensitivity, target)
        found.append(
            Provenance(
                "analytic_noise_stddev",
                analytic,
                r"\sigma = \Delta_k / \mu_*(\varepsilon, \delta/2),\; P(\mathrm{Bin}(T, 1/n) > k) \le \delta/2",
                f"{PAPER}, Theorem 8 (derived: quantile per pair, exact Gaussian cost)",
                derived,
                ("for comparison: sound, and more than is used", s),
                units=PARAMETER,
            )
        )
    return found


ALGORITHM = Algorithm(
    name="dp_sgd_output",
    summary="Projected subgradient steps of one record each, without noise; Gaussian noise on the released average.",
    source=f"{PAPER}, Algorithm 1, Theorems 7 to 10",
    update=(
        r"w \leftarrow \Pi_W(w - \eta\, \partial\ell(w; z_i)),\; i \sim \mathrm{Unif};\quad"
        r" \text{released: } \tfrac1T \sum_t w_t + \sigma Z"
    ),
    samplings=(WithoutReplacement,),
    relations=(NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL),
    gradient_bounds=(),
    gradient_bound_required=False,
    assumptions=ASSUMPTIONS,
    guarantee=(
        "(epsilon, delta)-differential privacy of the released average, for every data set: losses that are not as "
        "smooth as assumed are made so. Points and indices are never released."
    ),
    gradient_complexity=(
        r"T; \text{ the paper's } T \text{ is } n^{(2-\alpha)/(1+\alpha)} \text{ or } n \text{ in a ball, }"
        r" n^{(6-3\alpha-\alpha^2)/((1+\alpha)(3+\alpha))} \text{ or } n \text{ without}"
    ),
    verdict=(
        "The printed noise takes a union over all records, Chernoff's bound of a binomial and a Gaussian formula that "
        "is proved for epsilon <= 1 alone: sound wherever we computed it, with tens of times the noise that is needed."
    ),
    errata=(
        "Theorem 8 calibrates with sqrt(2 ln(1.25/delta')) Delta / epsilon, proved for epsilon <= 1 alone, and "
        "states no such condition; by itself the formula fails from epsilon about 7.5 on. Here the noise comes from "
        "the exact mixture; the printed one has a verdict computed at each request.",
        "Theorem 7's failure probability is of all n records at once. Privacy is per pair of neighbours, and indices "
        "look at no data, so that nothing of delta need be set aside for them: the mixture is the exact bound.",
        "Its Delta carries sqrt(e) and no cap, and routinely exceeds the diameter 2 R of the ball that both averages "
        "lie in. An intermediate display of its proof has ln(1/gamma) where ln(n/gamma) is meant.",
        "The constants C_alpha and c_alpha,2 overflow as alpha tends to 1; products that do not are used instead.",
        "The step size is compared with min(1, 1/L), numbers of different units: read as printed, the 1 as 1/c.",
        "The proof of the optimisation error prints c_alpha,1 where its square is meant. Here that error is bounded "
        "without self-bounding, with constants that have units.",
        "The guarantee needs convex, Hoelder smooth losses for every data set, which clipping does not give: runs "
        "train linear models, and scale rows down to where the model's constants are within the plan's.",
    ),
    fewer_steps=StepCount.ITERATIONS,
    calibrate=calibrate,
    scope=Scope(Shape.CONVEX, Measure.POPULATION_RISK, needs_smoothness=False),
    example=Example(
        Spec(1_000_000, EXAMPLE_TARGET, dimension=50, assumptions=EXAMPLE_CONSTANTS),
        variants={
            "smooth": {"dataset_size": 100_000, "assumptions": EXAMPLE_CONSTANTS | {"holder_exponent": 1.0}},
            "lipschitz": {
                "dataset_size": 100_000,
                "iterations": 4000,
                "assumptions": {"radius": 2.0, "lipschitz": 1.0, "loss_at_zero": 1.0, "failure_probability": 0.05},
            },
            "all of space": {
                "assumptions": {name: value for name, value in EXAMPLE_CONSTANTS.items() if name != "radius"}
                | {"initial_distance": 2.0}
            },
        },
    ),
    requests={
        "dp_sgd_output_theorem": ExampleRequest(
            "DP-SGD-Output for a 1.5-norm hinge in the unit ball: noise on the average alone",
            {
                "dataset_size": 100000,
                "dimension": 50,
                "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
                "assumptions": {
                    "holder_exponent": 0.5,
                    "holder_constant": 1.5,
                    "gradient_at_zero": 1.5,
                    "loss_at_zero": 1,
                    "radius": 1,
                    "failure_probability": 0.05,
                },
            },
        )
    },
)
