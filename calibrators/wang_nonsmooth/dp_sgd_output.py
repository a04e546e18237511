r"""Steps of one record each, whose average is released with noise (Wang, Lei, Ying & Zhang 2022, Algorithm 1).

$$w_1 = 0,\qquad w_{t+1} = \Pi_W\big(w_t - \eta\,\partial\ell(w_t; z_{i_t})\big),\qquad \text{released: } \tfrac1T
\sum_{t=1}^T w_t + \sigma Z .$$

Noise is added once, at the end. The privacy relies on the stability of the steps, and so on properties of the losses:
they must be convex and Hoelder smooth on all of $\mathbb{R}^d$, for every record of every data set. Clipped gradients
are not gradients of such losses. Therefore a run trains only linear models, whose losses have proved constants if the
features of a record are bounded. A run scales longer rows down to the length at which the model's constants are at most
the plan's constants.

**Noise.** The noise is the least $\sigma$ at which the mixture over the number of draws of one record meets the target,
rounded outward. Two other rules are given for comparison. The paper's rule is
$\sqrt{2\ln(2.5/\delta)}\,\Delta(\delta/2)/\varepsilon$ with the $\Delta$ of Theorem 7. The analytic rule is
$\Delta_k/\mu_*(\varepsilon, \delta/2)$, where $k$ is the $\delta/2$-quantile of the number of draws. The whole run is
one (epsilon, delta) event, and parts of it have no cost of their own.
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

#: Charges are at most this factor times the target's epsilon. This covers the rounding of sums of epsilons.
_BELOW = 1.0 - 1e-12

_MIXTURE = (
    r"\delta(\varepsilon) \le \sum_k \mathrm{Bin}(k; T, 1/n)\,\delta_G(\varepsilon; \Delta_k/\sigma),\;"
    r" \Delta_k = \min(c_0 + s\,G\,\eta\,k,\, 2R),\; \Delta_0 = 0"
)


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps before noise is added.

    Attributes:
        stability: The stability of the average.
        radius: The radius of all points.
        chosen: The numbers that the theorem chose, with their provenance.
        rate: The rate of the theorem; None if a number that it needs is missing.
    """

    stability: Stability
    radius: float
    chosen: tuple[Provenance, ...]
    rate: OutputRate | None


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the mixture gives the noise. Theorem 10 (in a ball) or Theorem 9 (without a ball) gives the
    step size and the number of steps.

    Raises:
        InvalidValue: If a number is outside its range or missing, or if the step size is not below min(1, 1/L).
        Unsupported: If the target is not (epsilon, delta), batches have more than one record, a penalty is given, or
            the domain is not an l2 ball; or if the number of steps or the batch size is solved for.
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
    """Return the mixture over the number of draws, in units of G eta. This is the distance by which one draw moves a
    point.
    """
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
            "the target must be approximate_dp for single records: how often a record is drawn is secret, and "
            "the cost of the resulting mixture of Gaussians is known only as an epsilon at a delta",
            code="no_cost_in_filter",
            pointer=("target", "kind"),
        )
    if not isinstance(target, OpenDelta) and not 0.0 < target.delta < 1.0:
        raise Unsupported("delta must be in (0, 1) for Gaussian noise", pointer=("target", "delta"))
    refuse(
        spec,
        sizes=(
            f"{spec.unknown} cannot be solved for: the theorem's step size depends on the number of steps, and each "
            "step takes one record. Solve for noise_multiplier"
        ),
    )
    if spec.batch_size not in (None, 1):
        raise Unsupported(
            "batch_size must be 1, because the stability of the steps is proved only for one record per step",
            pointer=("batch_size",),
        )
    refuse(spec, penalty="dp_sgd_output cannot handle a penalty; make it a part of the loss and of its constants")


def _steps(spec: Spec, problem: HolderProblem) -> _Steps:
    """Return the number of steps, the step size, and the constants that the stability depends on."""
    exponent, constant = problem.exponent, problem.constant
    if exponent is None or constant is None or problem.gradient_at_zero is None:
        named = (exponent, constant, problem.gradient_at_zero)
        name = next(name for name, value in zip(HOLDER_NAMES, named, strict=True) if value is None)
        raise InvalidValue(
            f"{name} is needed, because the privacy depends on the smoothness of the losses: give "
            f"{', '.join(HOLDER_NAMES)}, or only lipschitz",
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
                f"iterations is needed, because the theorem chooses {iterations:.4g} steps for this "
                f"holder_exponent and a plan can have at most {MAX_COUNT:.0e}",
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
                "radius or loss_at_zero is needed to bound the points: give one of them",
                code="missing",
                pointer=("assumptions", "radius"),
            )
        radius = iterate_radius(exponent, constant, longest or 0.0, problem.loss_at_zero, step_size, iterations)
        longest = longest or problem.gradient_at_zero + constant * math.pow(radius, exponent)
    assert longest is not None, "the constants and the radius determine G"
    cap = math.inf if problem.radius is None else problem.radius
    return _Steps(Stability(exponent, constant, longest, step_size, iterations, cap), radius, tuple(chosen), rate)


def _rate(spec: Spec, problem: HolderProblem, exponent: float) -> OutputRate | None:
    target, gamma = spec.target, problem.failure_probability
    if not isinstance(target, ApproximateDpTarget) or gamma is None or spec.dimension is None:
        return None
    if spec.dataset_size < 2:
        raise InvalidValue(
            "dataset_size must be at least 2, because the theorems need a positive ln n", pointer=("dataset_size",)
        )
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
            f"the step size must be below min(1, 1/L) = {limit:.4g} for the steps to be stable, got "
            f"{value:.4g}: raise iterations, or give a smaller step_size",
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
                (
                    *HOLDS,
                    f"constant c = {problem.order_constant:g} (order_constant)",
                    ("the step size is below min(1, 1/L)"),
                ),
                units=STEP,
            )
        )
    return value


def _missing(spec: Spec, problem: HolderProblem, name: str, what: str) -> InvalidValue:
    """Return the error for a missing number. It names the constants with which the theorem could choose the number."""
    needs: list[tuple[str, ...]] = []
    if problem.failure_probability is None:
        needs.append(("assumptions", "failure_probability"))
    if spec.dimension is None:
        needs.append(("dimension",))
    given = ", ".join(pointer[-1] for pointer in needs)
    why = (
        f"the theorem can choose it, given {given}"
        if needs
        else ("the theorem can choose it if the noise is solved for")
    )
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
    """Return the provenance of the plan's noise and of the analytic rule's noise."""
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
                ("for comparison: sound, and more noise than the plan's", s),
                units=PARAMETER,
            )
        )
    return found


ALGORITHM = Algorithm(
    name="dp_sgd_output",
    summary=(
        "Projected subgradient steps of one record each, without noise. Gaussian noise is added to the released "
        "average."
    ),
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
        "The released average is (epsilon, delta)-differentially private for every data set, because rows are "
        "scaled so that all losses are as smooth as assumed. Points and indices are never released."
    ),
    gradient_complexity=(
        r"T; \text{ the paper's } T \text{ is } n^{(2-\alpha)/(1+\alpha)} \text{ or } n \text{ in a ball, }"
        r" n^{(6-3\alpha-\alpha^2)/((1+\alpha)(3+\alpha))} \text{ or } n \text{ without}"
    ),
    verdict=(
        "The printed noise uses a union bound over all records, Chernoff's bound for a binomial, and a "
        "Gaussian formula that is proved only for epsilon <= 1. It is sound wherever we computed it, with tens "
        "of times the noise that is needed."
    ),
    errata=(
        "Theorem 8 uses sqrt(2 ln(1.25/delta')) Delta / epsilon, which is proved only for epsilon <= 1, but "
        "does not state this condition. The formula alone fails from about epsilon 7.5 on. Here the noise "
        "comes from the exact mixture. The verdict on the printed noise is computed for each request.",
        (
            "The failure probability of Theorem 7 is for all n records at once. Privacy is about one pair of "
            "neighbours, and the indices do not depend on data. So no part of delta needs to be set aside for "
            "them, and the mixture is the exact bound."
        ),
        (
            "The Delta of Theorem 7 has a factor sqrt(e) and no cap. It often exceeds the diameter 2 R of the ball "
            "that contains both averages. An intermediate equation in its proof has ln(1/gamma) where ln(n/gamma) "
            "is meant."
        ),
        (
            "The constants C_alpha and c_alpha,2 overflow as alpha tends to 1. Here products that do not overflow "
            "are used instead."
        ),
        (
            "The paper compares the step size with min(1, 1/L), although 1 and 1/L have different units. Here the "
            "condition is used as printed, and the 1 is read as 1/c."
        ),
        (
            "The proof of the optimisation error prints c_alpha,1 where its square is meant. Here this error is "
            "bounded without the self-bounding property, with constants that have units."
        ),
        (
            "The guarantee needs convex and Hoelder smooth losses for every data set. Clipping does not ensure "
            "this. So runs train only linear models, and scale rows down until the model's constants are at most "
            "the plan's."
        ),
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
