r"""Clipped noisy proximal SGD under the proximal PL inequality, one pass over disjoint batches (Algorithm 8).

**Setting.** n i.i.d. records, a population loss $F = F^0 + f^1$ whose $F^0$ is $\beta$-smooth, convex or not, and
gradients with k bounded moments, but no Lipschitz constant. $f^1$ is public: the `penalty`, the indicator of the
`domain`, or both; it is not clipped. F satisfies the proximal Polyak-Lojasiewicz inequality with $\mu$ (`proximal_pl`
has its definition), as strongly convex losses do, and some that are not convex.

**Update.** For $t = 0..T-1$, with disjoint batches of $s = \lfloor n/T \rfloor$ records and $\eta = \frac{1}{2\beta}$,

$$w_{t+1} = \mathrm{prox}_{\eta f^1}\Big(w_t - \eta \Big(\frac1s \sum_{i \in B_t} \Pi_C(\nabla f^0(w_t, x_i))
  + \frac{z C}{s} Z_t\Big)\Big),$$

and $w_T$ is released. The prox of a penalty in a domain is the penalty's prox and then the projection.

**Privacy.** Each record is read in one step, so a pass costs one Gaussian mechanism, whatever T is. Positions are cut
into batches by a permutation that no record decides, which is sound if neighbours have the same positions
(replace_one, replace_special). If a record comes or goes, every record draws its batch for itself, and s stays the
public divisor.

**Preset.** $T = 2 \lceil \kappa \ln \max(e, \Delta \mu n / r_k^2) \rceil$ and
$C = r_k (\varepsilon_p^2 n^2/(d T^2))^{1/(2k)}$ with $\varepsilon_p = 2/z$.

**Guarantee.** `proximal_pl` has the bound and its proof; `excess_risk_bound` evaluates it round by round,
`excess_risk_bound_closed_form` is the formula, and `excess_risk_bound_printed` is the paper's. Theorem 20's rate is
known up to its constant; the lower bounds are those of strongly convex losses, which are a part of the class. All of
these are for clipping at C itself: the margin that the trainer leaves for rounding ($10^{-5}$ of C in float64, $2^{-7}$
in float32) is not in B.
"""

from __future__ import annotations

from dataclasses import replace

from accounting.errors import InvalidValue
from accounting.events import DisjointBatches
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Assumption, Example, ExampleRequest, read_assumptions
from calibrators.geometry import L1Penalty, L2Ball
from calibrators.lowy_razaviyayn.moments import (
    LARGEST,
    MOMENT_BOUND,
    MOMENT_BOUND_2,
    MOMENT_ORDER,
    ORDER_CONSTANT,
    PAPER,
    SMALLEST,
    Moments,
)
from calibrators.lowy_razaviyayn.one_pass import (
    RELATIONS,
    PlannedBatches,
    check_unknown,
    choose,
    solve_pass,
)
from calibrators.lowy_razaviyayn.planned_descent import PlannedDescent
from calibrators.lowy_razaviyayn.planned_risk import calibration_of_pass
from calibrators.lowy_razaviyayn.printed_noise import printed_noise
from calibrators.lowy_razaviyayn.proximal_pl import ProximalPlProblem
from calibrators.lowy_razaviyayn.zcdp import paper_epsilon
from calibrators.plan import Clip, Phase
from calibrators.provenance import LOSS, SMOOTHNESS
from calibrators.scopes import Shape, heavy_tailed
from calibrators.spec import Calibration, Spec

_NAME = "clipped_prox_sgd"

ASSUMPTIONS = (
    Assumption(
        "smoothness",
        r"\beta",
        SMOOTHNESS,
        "the population loss without the penalty has a gradient with this Lipschitz constant; single records' losses "
        "need none",
        lower=SMALLEST,
        upper=LARGEST,
    ),
    Assumption(
        "pl_constant",
        r"\mu",
        SMOOTHNESS,
        "the population loss, with the penalty and on the domain, satisfies the proximal Polyak-Lojasiewicz inequality "
        "with this constant; at most the smoothness",
        lower=SMALLEST,
        upper=LARGEST,
    ),
    Assumption(
        "initial_gap",
        r"\Delta",
        LOSS,
        "F(w_0) is at most this far above the least value, the penalty included",
        lower=SMALLEST,
        upper=LARGEST,
    ),
    MOMENT_ORDER,
    MOMENT_BOUND,
    MOMENT_BOUND_2,
    ORDER_CONSTANT,
)


def calibrate(spec: Spec) -> Calibration:
    """Calibrate: the noise is from the engine, T and C from Theorem 20, and the step size is the paper's.

    Raises:
        InvalidValue: If a number is outside its range, or is missing and no preset can fill it in; if the PL constant
            is above the smoothness; or if there are not enough records for the rounds.
        Unsupported: If the number of steps or the batch size is solved for, on which the privacy of one pass does not
            depend.
        Unreachable: If no noise multiplier meets the target.
    """
    check_unknown(spec)
    problem, missing, order_constant = _read_problem(spec)
    noise = solve_pass(spec, rounds=1)
    words = "2 ceil(kappa ln(Delta mu n / r_k^2))"
    chosen = choose(spec, problem, paper_epsilon(noise.noise_multiplier), preset_words=words)
    steps = solve_pass(spec, rounds=chosen.iterations)
    phase = Phase(steps.event, chosen.bound, chosen.batch_size, spec.step_size)
    planned = None
    if problem is not None:
        batches = PlannedBatches(phase, problem.dimension, problem.moments, spec.dataset_size, spec.relation)
        planned = PlannedDescent(batches, spec.step_size, order_constant, problem)
        if spec.step_size is None:
            phase = replace(phase, step_size=problem.step_size)
    return calibration_of_pass(
        _NAME,
        spec,
        steps,
        phase,
        planned,
        source=f"{PAPER}, Algorithm 8",
        evaluations=r"s T \le n",
        domain=spec.domain,
        missing=missing,
        as_published=printed_noise(spec, phase, algorithm=8, rounds=phase.steps),
    )


def _read_problem(spec: Spec) -> tuple[ProximalPlProblem | None, tuple[str, ...], float]:
    """Return the constants, or None if some are missing; the names of the missing ones; and the constant of the
    rates."""
    known = read_assumptions(ASSUMPTIONS, spec.assumptions, needed=[("dimension", spec.dimension)])
    if known.missing:
        return None, known.missing, known["order_constant"]
    smoothness, mu = known["smoothness"], known["pl_constant"]
    if mu > smoothness:
        raise InvalidValue(
            f"no loss has these constants: the proximal PL inequality holds with at most the smoothness "
            f"{smoothness:g}, got {mu!r}",
            pointer=("assumptions", "pl_constant"),
        )
    problem = ProximalPlProblem(
        smoothness=smoothness,
        pl_constant=mu,
        initial_gap=known["initial_gap"],
        dimension=spec.need("dimension"),
        moments=Moments(known["moment_order"], known["moment_bound"], known.get("moment_bound_2")),
    )
    return problem, (), known["order_constant"]


ALGORITHM = Algorithm(
    name=_NAME,
    summary="One proximal pass over disjoint batches for losses with the proximal PL inequality, convex or not, and "
    "with heavy-tailed gradients: clip, average, add Gaussian noise, step, take the penalty's prox.",
    source=f"{PAPER}, Algorithms 8 and 9, Theorem 20, Proposition 46",
    update=r"w_{t+1} = \mathrm{prox}_{\eta f^1}\left(w_t - \eta\left(\tfrac1s \sum_{i \in B_t} \min(1, C/\|g_i\|) g_i"
    r" + \tfrac{zC}{s} Z_t\right)\right),\; \eta = \tfrac{1}{2\beta}",
    samplings=(DisjointBatches,),
    relations=RELATIONS,
    gradient_bounds=(Clip,),
    gradient_bound_required=False,
    assumptions=ASSUMPTIONS,
    guarantee="The privacy of one Gaussian mechanism for all points together, hence for the last one.",
    gradient_complexity=r"s T \le n",
    verdict=(
        "Sound where T divides n. Elsewhere its batches of n/T records are no numbers of records, and on those of "
        "floor(n/T) the printed noise lacks the factor n/(s T), which Proposition 3's slack outweighs in (epsilon, "
        "delta). The verdict is computed for each request."
    ),
    errata=(
        "Algorithm 8 takes batches of n/T records, whether or not T divides n. Here they have floor(n/T), and the "
        "noise is that of their real size.",
        "Theorem 20's T depends on the bias and the variance, which depend on T. Here r_k^2/n, which is at most the "
        "variance, stands for them.",
        "An equation in the proof of Proposition 46 is not justified as printed. Its result holds, with 1/(2 mu) for "
        "4/mu, by a proof of its own, and for every step size up to 1/beta.",
        "Assumption 2 must hold on all of the domain of f^1 and at the start, not only near a solution: without a "
        "domain that is all of R^d.",
        "Lemma 6 prints E|nu_hat - nu| between the two ends of the bias line. That includes the sampling error, and is "
        "false; the two ends hold.",
        "The listing of Algorithm 8 omits the clip threshold in its calls of the mean oracle; it is one C for a run.",
    ),
    calibrate=calibrate,
    scope=heavy_tailed(Shape.POLYAK_LOJASIEWICZ),
    example=Example(
        Spec(
            100_000,
            EXAMPLE_TARGET,
            dimension=20,
            assumptions={
                "smoothness": 4.0,
                "pl_constant": 0.5,
                "initial_gap": 2.0,
                "moment_order": 4.0,
                "moment_bound": 1.5,
            },
        ),
        variants={
            "sparse": {"penalty": L1Penalty(0.1), "domain": L2Ball(3.0)},
            "own steps": {"gradient_bound": Clip(3.0), "iterations": 60, "step_size": 0.2},
        },
    ),
    requests={
        "clipped_prox_sgd_theorem": ExampleRequest(
            "Clipped proximal SGD under the proximal PL inequality: steps and clip threshold from moments",
            {
                "dataset_size": 50000,
                "dimension": 10,
                "target": {"kind": "zcdp", "rho": 0.5},
                "penalty": {"kind": "l1", "strength": 0.1},
                "assumptions": {
                    "smoothness": 4,
                    "pl_constant": 1,
                    "initial_gap": 8,
                    "moment_order": 3,
                    "moment_bound": 2,
                },
            },
        )
    },
)
