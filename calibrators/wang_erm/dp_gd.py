"""DP-GD takes full gradients with Gaussian noise (Wang, Ye & Xu 2017, Algorithm 4, Theorems 6.2 and 6.3)."""

from __future__ import annotations

import math
from dataclasses import replace

from accounting.events import FullBatch
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.algorithm import (
    EXAMPLE_TARGET,
    Algorithm,
    Assumption,
    Example,
    ExampleRequest,
    Given,
    StepCount,
    read_assumptions,
)
from calibrators.noise import calibration_of, solve_gaussian_steps
from calibrators.plan import Clip, Phase
from calibrators.provenance import GRADIENT, LOSS, PURE, SMOOTHNESS, STEP, Provenance, ProvenanceKind
from calibrators.release import LAST_ITERATE, RandomIterate
from calibrators.scopes import Measure, Scope, Shape
from calibrators.spec import Calibration, Spec
from calibrators.wang_erm.full_gradient import (
    PAPER,
    FullGradientTheorem,
    NonConvex,
    PolyakLojasiewicz,
    Smooth,
    choose_iterations,
)
from calibrators.wang_erm.paper_noise import paper_noise

HOLDS = (
    "every record's gradient is at most max_grad_norm long at every iterate, so that no gradient is clipped",
    "F is L-smooth on all of R^p",
    "F(x_0) - inf F <= D_0",
)
HOLDS_WITH_PL = (*HOLDS, "|grad F|^2 >= 2 mu (F - inf F)")

#: An assumption of every rate of the paper.
_HIDDEN = "order_constant stands for the constant that the paper leaves open"


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise. Theorem 6.2 (with a PL constant) or 6.3 gives the step size
    and the bound.

    The number of steps may be left out if the noise is solved for and the theorem's constants are given. The number
    with the smallest bound at the target is then chosen.

    Raises:
        InvalidValue: If a number is outside its range or missing, or mu is above L.
        Unsupported: If the batch size of full batches is solved for.
        Unreachable: If no noise multiplier meets the target.
    """
    bound = spec.clip
    given = read_assumptions(ASSUMPTIONS, spec.assumptions, needed=[("dimension", spec.dimension)])
    theorem, warnings = _theorem(spec, given)
    spec, chosen = choose_iterations(
        spec,
        theorem,
        given.missing,
        chooser="the theorem",
        silent="theorem covers this step size, domain or penalty",
        formula="" if theorem is None else theorem.iterations_formula,
        source="" if theorem is None else theorem.source,
    )
    steps = solve_gaussian_steps(spec)
    event, iterations = steps.event, steps.event.count
    s = Phase(event, bound, steps.batch_size).noise_stddev_on_mean

    utility = [
        Provenance(
            "gradient_evaluations",
            float(iterations * spec.dataset_size),
            "n T",
            f"{PAPER}, Algorithm 4",
            ProvenanceKind.EXACT,
        )
    ]
    step_size = spec.step_size
    if theorem is not None:
        step_size = theorem.problem.eta
        value = theorem.bound(s, iterations)
        utility.append(
            Provenance(
                theorem.name,
                value,
                theorem.formula,
                theorem.source,
                ProvenanceKind.DERIVED,
                HOLDS_WITH_PL if isinstance(theorem, PolyakLojasiewicz) else HOLDS,
                vacuous=value >= theorem.trivial,
                units=theorem.units,
            )
        )
        utility += _rates(spec, theorem, bound.max_grad_norm, given["order_constant"])
    phase = Phase(event, bound, steps.batch_size, step_size)
    return calibration_of(
        ALGORITHM.name,
        spec,
        steps,
        phase,
        domain=spec.domain,
        penalty=spec.penalty,
        release=RandomIterate() if given.get("pl_constant") is None else LAST_ITERATE,
        hyperparameters=(*_recommended_step(spec, given), *chosen),
        utility=tuple(utility),
        missing=given.missing,
        warnings=warnings,
        as_published=paper_noise(spec, iterations, bound.max_grad_norm, given["order_constant"]),
    )


def _theorem(spec: Spec, given: Given) -> tuple[FullGradientTheorem | None, list[str]]:
    """Return the theorem that applies to this spec. If none applies, return None and warnings with the reason."""
    if given.missing:
        return None, []
    smoothness, mu = given["smoothness"], given.get("pl_constant")
    usual = Smooth(smoothness, given["initial_gap"], spec.need("dimension"))
    if mu is not None:
        PolyakLojasiewicz(usual, mu)  # refuses mu above L, even if the theorem does not apply
    if _is_constrained(spec):
        return None, [
            (
                "The theorems cover only the loss itself, minimised over all of R^p, so they give no step size and no "
                "bound "
                "with a domain or a penalty. The privacy guarantee holds without them."
            )
        ]
    if spec.step_size is not None and spec.step_size > usual.eta * (1.0 + 1e-12):
        return None, [
            (
                f"The bound is left out, because step_size is {spec.step_size:g} and the theorems need at most "
                f"1/smoothness = {usual.eta:g}. The privacy guarantee holds without the bound."
            )
        ]
    problem = replace(usual, step_size=spec.step_size)
    return (NonConvex(problem) if mu is None else PolyakLojasiewicz(problem, mu)), []


def _is_constrained(spec: Spec) -> bool:
    return spec.domain is not None or spec.penalty is not None


def _recommended_step(spec: Spec, given: Given) -> tuple[Provenance, ...]:
    if given.missing or _is_constrained(spec):
        return ()
    source, holds = f"{PAPER}, Theorems 6.2 and 6.3", (HOLDS[1],)
    value = 1.0 / given["smoothness"]
    return (Provenance("step_size", value, r"\eta = 1/L", source, ProvenanceKind.EXACT, holds, units=STEP),)


def _rates(spec: Spec, theorem: FullGradientTheorem, lipschitz: float, order_constant: float) -> list[Provenance]:
    """Return the paper's rates in epsilon and delta. The constants that the paper hides are restored by their units."""
    target, p, n = spec.target, spec.need("dimension"), spec.dataset_size
    if not isinstance(target, ApproximateDpTarget) or not 0.0 < target.delta < 1.0:
        return []
    problem, log_delta = theorem.problem, -math.log(target.delta)
    privacy = math.sqrt(p * log_delta) / (n * target.epsilon)
    if not isinstance(theorem, PolyakLojasiewicz):
        scale = math.sqrt(problem.smoothness * problem.initial_gap) * lipschitz
        rate = math.sqrt(order_constant * scale * privacy)
        return [
            Provenance(
                "gradient_norm_rate",
                rate,
                r"c\, \sqrt{L D_0}\, G \sqrt{p \ln(1/\delta)} / (n \varepsilon) \text{ (of the squared norm)}",
                f"{PAPER}, Theorem 6.3",
                ProvenanceKind.ORDER,
                (_HIDDEN, "D_0, which the paper hides, is restored by its units"),
                vacuous=rate >= theorem.trivial,
                units=GRADIENT,
            )
        ]
    mu = theorem.pl_constant
    rate = order_constant * problem.smoothness * (lipschitz * privacy * math.log(n) / mu) ** 2
    lower = order_constant * lipschitz**2 / mu * min(1.0, p / (n * target.epsilon) ** 2)
    return [
        Provenance(
            "excess_risk_rate",
            rate,
            r"c\, \tfrac{L}{\mu^2}\, G^2 p \ln^2(n) \ln(1/\delta) / (n^2 \varepsilon^2)",
            f"{PAPER}, Theorem 6.2",
            ProvenanceKind.ORDER,
            (
                _HIDDEN,
                (
                    "L and mu, which the paper hides, are restored as L/mu^2, because the rate is proportional to T/mu "
                    "with T = (L/mu) ln(..)"
                ),
            ),
            vacuous=rate >= theorem.trivial,
            units=LOSS,
        ),
        Provenance(
            "lower_bound_rate",
            lower,
            r"c\, \tfrac{G^2}{\mu} \min(1, p / (n^2 \varepsilon^2))",
            f"{PAPER}, Table 1",
            ProvenanceKind.ORDER,
            (_HIDDEN, "the rate for the worst strongly convex loss; the table has G = L = 1", "delta = o(1/n)"),
            units=LOSS,
        ),
    ]


ASSUMPTIONS = (
    Assumption(
        "smoothness",
        "L",
        SMOOTHNESS,
        "|grad F(x) - grad F(y)| <= L |x - y| on all of R^p; it is enough that every record's loss has this property",
        open_lower=True,
    ),
    Assumption("initial_gap", "D_0", LOSS, "upper bound on F(x_0) - inf F", open_lower=True),
    Assumption(
        "pl_constant",
        r"\mu",
        SMOOTHNESS,
        "|grad F|^2 >= 2 mu (F - inf F), as for a mu-strongly convex F; mu is at most L. If left out, F may be "
        "any smooth loss, and the bound is on the gradient norm",
        open_lower=True,
        required=False,
    ),
    Assumption(
        "order_constant",
        "c",
        PURE,
        "the constant that the paper leaves open in its noise and its rates",
        open_lower=True,
        required=False,
        default=1.0,
    ),
)

#: The constants in the example.
_EXAMPLE_CONSTANTS = {"smoothness": 2.0, "initial_gap": 1.0}

ALGORITHM = Algorithm(
    name="dp_gd",
    summary=(
        "Gradient descent on all records, with each gradient clipped to l2 norm G and Gaussian noise in every step."
    ),
    source=f"{PAPER}, Algorithm 4, Theorems 6.2 and 6.3",
    update=r"x \leftarrow x - \eta \left(\tfrac{1}{n}\sum_i \min(1, G/\|g_i\|)\, g_i + \sigma Z\right)",
    samplings=(FullBatch,),
    relations=(
        NeighboringRelation.REPLACE_ONE,
        NeighboringRelation.ADD_OR_REMOVE_ONE,
        NeighboringRelation.REPLACE_SPECIAL,
    ),
    gradient_bounds=(Clip,),
    assumptions=ASSUMPTIONS,
    guarantee=(
        "All iterates together are (epsilon, delta)-differentially private, and so is the released one. With a "
        "PL constant, the last iterate is released; without one, a random iterate."
    ),
    gradient_complexity="n T",
    verdict=(
        "The printed noise has an open constant c. At delta 1e-6 the engine needs c = 5.2 at epsilon 1 and c = "
        "7.9 at epsilon 8. So c = 1 is unsound at both, and c = 10 is sound but loose at both. The theorem "
        "claims that a single c suffices for every epsilon, but the c that is needed grows with epsilon / "
        "ln(1/delta)."
    ),
    errata=(
        "The paper claims its noise 'for epsilon, delta > 0' with an absolute constant c. By zCDP, the c that "
        "is needed is 2 (1 + sqrt(1 + epsilon / ln(1/delta)))^2, which is not bounded. Here the accounting "
        "engine computes the noise.",
        (
            "The paper prints that the released index is uniform on {0, .., m-1}. Here it is uniform on {0, .., "
            "T-1}, as the analysis needs."
        ),
        (
            "Theorem 6.3 is printed as a bound on the gradient norm. By its derivation and by the comparison with "
            "earlier work, it is a bound on the squared norm. Here the bound is the square root of the explicit "
            "bound."
        ),
        "The rates hide L, mu and D_0, and Theorem 6.2 has ln^2(n) where one logarithm suffices.",
        (
            "The gradient of a loss that is strongly convex on R^p is not bounded there. With such a loss, the "
            "bound holds as long as the iterates stay where gradients are at most max_grad_norm long."
        ),
    ),
    fewer_steps=StepCount.ITERATIONS,
    calibrate=calibrate,
    scope=Scope(Shape.NONCONVEX, Measure.STATIONARITY),
    example=Example(
        Spec(
            10_000,
            EXAMPLE_TARGET,
            gradient_bound=Clip(1.0),
            dimension=20,
            assumptions=_EXAMPLE_CONSTANTS | {"pl_constant": 0.2},
        ),
        variants={
            "any smooth loss": {"assumptions": _EXAMPLE_CONSTANTS},
            "own steps": {"iterations": 30, "step_size": 0.1},
        },
    ),
    requests={
        "dp_gd_theorem": ExampleRequest(
            "DP-GD under the Polyak-Lojasiewicz inequality; the theorem chooses the number of steps",
            {
                "dataset_size": 10000,
                "dimension": 10,
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
                "assumptions": {"smoothness": 1, "initial_gap": 1, "pl_constant": 0.1},
            },
        )
    },
)
