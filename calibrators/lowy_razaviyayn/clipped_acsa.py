r"""Clipped noisy accelerated SGD for convex smooth losses, one pass over disjoint batches (Algorithm 2, Theorem 9).

**Setting.** n i.i.d. records, a ball W of diameter D, a convex and $\beta$-smooth population loss F, and gradients with
k bounded moments, but no Lipschitz constant: single records' losses need not be smooth. An l2 `penalty` is added
outside the clip, where it costs no privacy and no bias. Then $\beta$ is that of the sum, and the moments are those of
the clipped gradients.

**Update.** From $w_0^{ag} = w_0$, for $t = 1..T$ with disjoint batches of $s = \lfloor n/T \rfloor$ records and
$\alpha_t = 2/(t+1)$,

$$w_t^{md} = (1 - \alpha_t) w_{t-1}^{ag} + \alpha_t w_{t-1}, \quad
  g_t = \frac1s \sum_{i \in B_t} \Pi_C(\nabla f(w_t^{md}, x_i)) + \frac{z C}{s} Z_t + \lambda w_t^{md}, \quad
  w_t = \Pi_W(w_{t-1} - t \gamma g_t), \quad w_t^{ag} = (1 - \alpha_t) w_{t-1}^{ag} + \alpha_t w_t,$$

and $w_T^{ag}$ is released. `step_size` is $\gamma = \frac{1}{2\eta}$ in the paper's letters: one number for the run;
step t has t times this size.

**Privacy.** Each record is read in one step, so a pass costs one Gaussian mechanism, whatever T is; everything else
that the steps carry follows from noisy sums. Positions are cut into batches by a permutation that no record decides,
which is sound if neighbours have the same positions (replace_one, replace_special). If a record comes or goes, every
record draws its batch for itself, and s stays the public divisor.

**Preset.** `ConvexSmoothProblem` has T and C of Theorem 9, read at $\varepsilon_p = 2/z$, and the step size that
minimises the bound whose constants are proved.

**Guarantee.** `convex_smooth` has the bound and its proof; `excess_risk_bound` evaluates it round by round,
`excess_risk_bound_closed_form` is the formula, and `excess_risk_bound_printed` is the paper's. Theorem 9's rate is
known up to its constant, and so are the lower bounds of Theorem 7; `lower_bound` is a smaller number with its
constants. All of these are for clipping at C itself: the margin that the trainer leaves for rounding ($10^{-5}$ of C in
float64, $2^{-7}$ in float32) is not in B.
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
        "the population loss has a gradient with this Lipschitz constant on the domain, a penalty included; single "
        "records' losses need none; 0 for losses that are linear",
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
    """Calibrate: the noise is from the engine, T and C from Theorem 9, and the step size from the bound.

    Raises:
        InvalidValue: If a number is outside its range, or is missing and no preset can fill it in; if the assumptions
            contradict each other; or if there are not enough records for the rounds.
        Unsupported: If the number of steps or the batch size is solved for, on which the privacy of one pass does not
            depend; or if the domain is no l2 ball, or the penalty is not l2.
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
    """Return the constants, or None if some are missing; the names of the missing ones; and the constant of the
    rates."""
    known = read_assumptions(ASSUMPTIONS, with_diameter(spec, _NAME), needed=[("dimension", spec.dimension)])
    strength = l2_strength(spec, _NAME)
    if known.missing:
        return None, known.missing, known["order_constant"]
    smoothness = known["smoothness"]
    if strength > smoothness:
        raise InvalidValue(
            f"smoothness includes the penalty: it must be at least its strength {strength:g}, got {smoothness!r}",
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


#: The constants that the example assumes.
_EXAMPLE_CONSTANTS = {"smoothness": 2.0, "diameter": 1.0, "moment_order": 4.0, "moment_bound": 2.0}

ALGORITHM = Algorithm(
    name=_NAME,
    summary="One accelerated pass over disjoint batches for convex smooth losses with heavy-tailed gradients: clip, "
    "average, add Gaussian noise, take ever longer steps, project; release the aggregated point.",
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
    guarantee="The privacy of one Gaussian mechanism for all points together, hence for the last aggregated one.",
    gradient_complexity=r"s T \le n",
    verdict=(
        "Sound where T divides n. Elsewhere its batches of n/T records are no numbers of records, and on those of "
        "floor(n/T) the printed noise lacks the factor n/(s T), which Proposition 3's slack outweighs in (epsilon, "
        "delta). The verdict is computed for each request."
    ),
    errata=(
        "Algorithm 2 takes batches of n/T records, whether or not T divides n. Here they have floor(n/T), and the "
        "noise is that of their real size.",
        "Theorem 9's T is below 1 for losses that are nearly linear; here it is 1 at least.",
        "The proof of Proposition 30 prints Gamma_t on both sides of Gamma_t = (1 - alpha_t) Gamma_{t-1}.",
        "Proposition 30's factor 2 before alpha_t^2 (Sigma^2 + B^2) can be 1/2, as the bias is fixed given the past; "
        "with the exact sum of the schedule its D^2 term is half, and the noise term at most a quarter, of the print.",
        "Remark 16 of the proceedings version has a threshold on beta that does not follow from its own bound; it is "
        "not used.",
        "Lemma 6 prints E|nu_hat - nu| between the two ends of the bias line. That includes the sampling error, and is "
        "false; the two ends hold.",
        "The proof of Theorem 7's non-private part omits the number of records in a divergence; it can be mended, and "
        "n > 7202 is not needed.",
        "The listing of Algorithm 2 omits the clip threshold in its calls of the mean oracle; it is one C for a run.",
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
