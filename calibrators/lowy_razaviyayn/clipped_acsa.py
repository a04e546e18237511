r"""Clipped noisy accelerated SGD for convex smooth losses, in one pass over disjoint batches (Algorithm 2, Theorem 9).

**Setting.** There are n i.i.d. records and a ball W of diameter D. The population loss F is convex and $\beta$-smooth.
Gradients have k bounded moments, but no Lipschitz constant, and the losses of single records need not be smooth. The
gradient of an l2 `penalty` is added after clipping, where it causes no privacy cost and no bias. Then $\beta$ is the
smoothness of loss plus penalty, and the moments are those of the gradients without the penalty.

**Update.** From $w_0^{ag} = w_0$, for $t = 1..T$ with disjoint batches of $s = \lfloor n/T \rfloor$ records and
$\alpha_t = 2/(t+1)$,

$$w_t^{md} = (1 - \alpha_t) w_{t-1}^{ag} + \alpha_t w_{t-1}, \quad
  g_t = \frac1s \sum_{i \in B_t} \Pi_C(\nabla f(w_t^{md}, x_i)) + \frac{z C}{s} Z_t + \lambda w_t^{md}, \quad
  w_t = \Pi_W(w_{t-1} - t \gamma g_t), \quad w_t^{ag} = (1 - \alpha_t) w_{t-1}^{ag} + \alpha_t w_t,$$

and $w_T^{ag}$ is released. `step_size` is $\gamma = \frac{1}{2\eta}$ in the paper's notation. It is one number for the
run; step t is t times as long.

**Privacy.** Each record is read in one step, so a pass costs one Gaussian mechanism, whatever T is. All points are
functions of the noisy sums. Positions are cut into batches by a permutation that no record decides, which is sound if
neighbours have the same positions (replace_one, replace_special). If records may be added or removed, every record
draws its own batch independently, and s stays the public divisor.

**Preset.** `ConvexSmoothProblem` computes T and C by Theorem 9 with $\varepsilon_p = 2/z$, and the step size that
minimises the bound with proved constants.

**Guarantee.** The module `convex_smooth` contains the bound and its proof. In an answer, `excess_risk_bound` evaluates
the bound round by round, `excess_risk_bound_closed_form` is the closed formula, and `excess_risk_bound_printed` is the
paper's bound. The rate of Theorem 9 and the lower bounds of Theorem 7 are known only up to constants. `lower_bound` is
a smaller lower bound with proved constants. All of these assume that gradients are clipped at exactly C. The trainer
leaves a margin for rounding ($10^{-5}$ of C in float64, $2^{-7}$ in float32), which B does not include.
"""

from __future__ import annotations

from dataclasses import replace

from accounting.errors import InvalidValue
from accounting.events import DisjointBatches
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Assumption, Example, ExampleRequest, read_assumptions
from calibrators.lowy_razaviyayn.convex_smooth import ConvexSmoothProblem
from calibrators.lowy_razaviyayn.moments import (
    DIAMETER,
    LARGEST,
    MOMENT_BOUND,
    MOMENT_BOUND_2,
    MOMENT_ORDER,
    ORDER_CONSTANT,
    PAPER,
    Moments,
)
from calibrators.lowy_razaviyayn.one_pass import (
    RELATIONS,
    PlannedBatches,
    ball,
    check_unknown,
    choose,
    l2_strength,
    solve_pass,
    with_diameter,
)
from calibrators.lowy_razaviyayn.planned_acceleration import PlannedAcceleration
from calibrators.lowy_razaviyayn.planned_risk import calibration_of_pass
from calibrators.lowy_razaviyayn.printed_noise import printed_noise
from calibrators.lowy_razaviyayn.zcdp import paper_epsilon
from calibrators.plan import Clip, Phase
from calibrators.provenance import SMOOTHNESS
from calibrators.scopes import Shape, heavy_tailed
from calibrators.spec import Calibration, Spec

_NAME = "clipped_acsa"

ASSUMPTIONS = (
    Assumption(
        "smoothness",
        r"\beta",
        SMOOTHNESS,
        "the Lipschitz constant on the domain of the population loss's gradient, including a penalty; the "
        "losses of single records need not be smooth; 0 for linear losses",
        lower=0.0,
        upper=LARGEST,
    ),
    DIAMETER,
    MOMENT_ORDER,
    MOMENT_BOUND,
    MOMENT_BOUND_2,
    ORDER_CONSTANT,
)


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise, Theorem 9 gives T and C, and the step size minimises the
    bound.

    Raises:
        InvalidValue: If a number is outside its range; if a number is missing and no preset can choose it; if the
            assumptions contradict each other; or if there are not enough records for the rounds.
        Unsupported: If the number of steps or the batch size is solved for, because the privacy of one pass does not
            depend on them; if the domain is not an l2 ball; or if the penalty is not l2.
        Unreachable: If no noise multiplier meets the target.
    """
    check_unknown(spec)
    problem, missing, order_constant = _read_problem(spec)
    noise = solve_pass(spec, rounds=1)
    chosen = choose(spec, problem, paper_epsilon(noise.noise_multiplier), preset_words="that of Theorem 9")
    steps = solve_pass(spec, rounds=chosen.iterations)
    phase = Phase(steps.event, chosen.bound, chosen.batch_size, spec.step_size)
    planned = None
    if problem is not None:
        batches = PlannedBatches(phase, problem.dimension, problem.moments, spec.dataset_size, spec.relation)
        planned = PlannedAcceleration(batches, spec.step_size, order_constant, problem)
        if spec.step_size is None:
            phase = replace(phase, step_size=planned.recommended_step_size)
    return calibration_of_pass(
        _NAME,
        spec,
        steps,
        phase,
        planned,
        source=f"{PAPER}, Algorithm 2",
        evaluations=r"s T \le n",
        domain=ball(spec, spec.assumptions.get("diameter") if problem is None else problem.diameter),
        missing=missing,
        as_published=printed_noise(spec, phase, algorithm=2, rounds=phase.steps),
    )


def _read_problem(spec: Spec) -> tuple[ConvexSmoothProblem | None, tuple[str, ...], float]:
    """Return three values: the constants, or None if some are missing; the names of the missing constants; and the
    constant of the rates.
    """
    known = read_assumptions(ASSUMPTIONS, with_diameter(spec, _NAME), needed=[("dimension", spec.dimension)])
    strength = l2_strength(spec, _NAME)
    if known.missing:
        return None, known.missing, known["order_constant"]
    smoothness = known["smoothness"]
    if strength > smoothness:
        raise InvalidValue(
            f"smoothness must be at least {strength:g}, the strength of the penalty, because it includes the "
            f"penalty; got {smoothness!r}",
            pointer=("assumptions", "smoothness"),
        )
    problem = ConvexSmoothProblem(
        smoothness=smoothness,
        diameter=known["diameter"],
        dimension=spec.need("dimension"),
        moments=Moments(known["moment_order"], known["moment_bound"], known.get("moment_bound_2")),
        penalty_strength=strength,
    )
    return problem, (), known["order_constant"]


#: The constants in the example.
_EXAMPLE_CONSTANTS = {"smoothness": 2.0, "diameter": 1.0, "moment_order": 4.0, "moment_bound": 2.0}

ALGORITHM = Algorithm(
    name=_NAME,
    summary=(
        "One accelerated pass over disjoint batches, for convex smooth losses with heavy-tailed gradients. Each "
        "step clips, averages, adds Gaussian noise and projects; steps become longer. The aggregated point is "
        "released."
    ),
    source=f"{PAPER}, Algorithms 2 and 5, Theorem 9, Proposition 30",
    update=r"w_t = \Pi_W\left(w_{t-1} - \tfrac{t}{2\eta}\left(\tfrac1s \sum_{i \in B_t} \min(1, C/\|g_i\|) g_i"
    r" + \tfrac{zC}{s} Z_t + \lambda w_t^{md}\right)\right),\; g_i = \nabla f(w_t^{md}, x_i),\;"
    r" w_t^{md} = (1 - \alpha_t) w_{t-1}^{ag} + \alpha_t w_{t-1},\;"
    r" w_t^{ag} = (1 - \alpha_t) w_{t-1}^{ag} + \alpha_t w_t,\; \alpha_t = \tfrac{2}{t+1}",
    samplings=(DisjointBatches,),
    relations=RELATIONS,
    gradient_bounds=(Clip,),
    gradient_bound_required=False,
    assumptions=ASSUMPTIONS,
    guarantee="All points together have the privacy of one Gaussian mechanism, and so does the released point.",
    gradient_complexity=r"s T \le n",
    verdict=(
        "Sound if T divides n. Otherwise n/T is not a whole number of records, and on batches of s = "
        "floor(n/T) records the printed noise is too small by the factor n/(s T). For targets in (epsilon, "
        "delta), the slack of Proposition 3 makes up for this factor. The verdict is computed for each "
        "request."
    ),
    errata=(
        "Algorithm 2 takes batches of n/T records, whether or not T divides n. Here a batch has floor(n/T) "
        "records, and the noise is computed for this size.",
        "For nearly linear losses, the T of Theorem 9 is below 1. Here T is at least 1.",
        "The proof of Proposition 30 prints Gamma_t on both sides of Gamma_t = (1 - alpha_t) Gamma_{t-1}.",
        (
            "In Proposition 30, the factor 2 before alpha_t^2 (Sigma^2 + B^2) can be 1/2, because the bias is "
            "fixed given the past. With the exact sum of the schedule, the D^2 term is half of the printed one, "
            "and the noise term at most a quarter."
        ),
        (
            "Remark 16 of the proceedings version has a threshold on beta that does not follow from the remark's "
            "bound. The threshold is not used here."
        ),
        (
            "In Lemma 6, the chain of inequalities for the bias has the middle term E|nu_hat - nu|. This term "
            "includes the sampling error, so its printed bound is false. The bound on the bias itself holds."
        ),
        (
            "The non-private part of the proof of Theorem 7 omits the number of records in a divergence. The proof "
            "can be repaired, and its condition n > 7202 is not needed."
        ),
        (
            "The listing of Algorithm 2 omits the clip threshold from its calls to the mean oracle. Here one C is "
            "used for the whole run."
        ),
    ),
    calibrate=calibrate,
    scope=heavy_tailed(Shape.CONVEX),
    example=Example(
        Spec(100_000, EXAMPLE_TARGET, dimension=50, assumptions=_EXAMPLE_CONSTANTS),
        variants={
            "own threshold": {"gradient_bound": Clip(5.0), "iterations": 12},
            "linear losses": {"assumptions": _EXAMPLE_CONSTANTS | {"smoothness": 0.0}},
        },
    ),
    requests={
        "clipped_acsa_theorem": ExampleRequest(
            "Clipped accelerated SGD, convex losses with four moments: steps, clip threshold and step size",
            {
                "dataset_size": 100000,
                "dimension": 50,
                "target": {"kind": "zcdp", "rho": 0.1},
                "assumptions": {"smoothness": 2, "diameter": 1, "moment_order": 4, "moment_bound": 2},
            },
        )
    },
)
