r"""Clipped noisy proximal SGD under the proximal PL inequality, in one pass over disjoint batches (Algorithm 8).

**Setting.** There are n i.i.d. records. The population loss is $F = F^0 + f^1$, where $F^0$ is $\beta$-smooth and need
not be convex. Gradients have k bounded moments, but no Lipschitz constant. $f^1$ is public and is not clipped: it is
the `penalty`, the indicator of the `domain`, or both. F satisfies the proximal Polyak-Lojasiewicz inequality with $\mu$
(defined in `proximal_pl`). Strongly convex losses satisfy it, and so do some losses that are not convex.

**Update.** For $t = 0..T-1$, with disjoint batches of $s = \lfloor n/T \rfloor$ records and $\eta = \frac{1}{2\beta}$,

$$w_{t+1} = \mathrm{prox}_{\eta f^1}\Big(w_t - \eta \Big(\frac1s \sum_{i \in B_t} \Pi_C(\nabla f^0(w_t, x_i))
  + \frac{z C}{s} Z_t\Big)\Big),$$

and $w_T$ is released. With a penalty and a domain, the prox is the penalty's prox followed by the projection.

**Privacy.** Each record is read in one step, so a pass costs one Gaussian mechanism, whatever T is. Positions are cut
into batches by a permutation that no record decides, which is sound if neighbours have the same positions (replace_one,
replace_special). If records may be added or removed, every record draws its own batch independently, and s stays the
public divisor.

**Preset.** $T = 2 \lceil \kappa \ln \max(e, \Delta \mu n / r_k^2) \rceil$ and
$C = r_k (\varepsilon_p^2 n^2/(d T^2))^{1/(2k)}$ with $\varepsilon_p = 2/z$.

**Guarantee.** The module `proximal_pl` contains the bound and its proof. In an answer, `excess_risk_bound` evaluates
the bound round by round, `excess_risk_bound_closed_form` is the closed formula, and `excess_risk_bound_printed` is the
paper's bound. The rate of Theorem 20 is known only up to a constant. The lower bounds are those of strongly convex
losses, which are a part of this class. All of these assume that gradients are clipped at exactly C. The trainer leaves
a margin for rounding ($10^{-5}$ of C in float64, $2^{-7}$ in float32), which B does not include.
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
        "the Lipschitz constant of the gradient of the population loss without the penalty; the losses of "
        "single records need not be smooth",
        lower=SMALLEST,
        upper=LARGEST,
    ),
    Assumption(
        "pl_constant",
        r"\mu",
        SMOOTHNESS,
        "the constant in the proximal Polyak-Lojasiewicz inequality of the population loss, with the penalty "
        "and on the domain; at most the smoothness",
        lower=SMALLEST,
        upper=LARGEST,
    ),
    Assumption(
        "initial_gap",
        r"\Delta",
        LOSS,
        "upper bound on F(w_0) - min F, including the penalty",
        lower=SMALLEST,
        upper=LARGEST,
    ),
    MOMENT_ORDER,
    MOMENT_BOUND,
    MOMENT_BOUND_2,
    ORDER_CONSTANT,
)


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise, Theorem 20 gives T and C, and the step size is the paper's.

    Raises:
        InvalidValue: If a number is outside its range; if a number is missing and no preset can choose it; if the PL
            constant is above the smoothness; or if there are not enough records for the rounds.
        Unsupported: If the number of steps or the batch size is solved for, because the privacy of one pass does not
            depend on them.
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
    """Return three values: the constants, or None if some are missing; the names of the missing constants; and the
    constant of the rates.
    """
    known = read_assumptions(ASSUMPTIONS, spec.assumptions, needed=[("dimension", spec.dimension)])
    if known.missing:
        return None, known.missing, known["order_constant"]
    smoothness, mu = known["smoothness"], known["pl_constant"]
    if mu > smoothness:
        raise InvalidValue(
            f"pl_constant must be at most the smoothness, {smoothness:g}, because no loss satisfies the "
            f"proximal PL inequality with a larger constant; got {mu!r}",
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
    summary=(
        "One proximal pass over disjoint batches, for losses with the proximal PL inequality, convex or not, and "
        "heavy-tailed gradients. Each step clips, averages, adds Gaussian noise, moves, and applies the penalty's "
        "prox."
    ),
    source=f"{PAPER}, Algorithms 8 and 9, Theorem 20, Proposition 46",
    update=r"w_{t+1} = \mathrm{prox}_{\eta f^1}\left(w_t - \eta\left(\tfrac1s \sum_{i \in B_t} \min(1, C/\|g_i\|) g_i"
    r" + \tfrac{zC}{s} Z_t\right)\right),\; \eta = \tfrac{1}{2\beta}",
    samplings=(DisjointBatches,),
    relations=RELATIONS,
    gradient_bounds=(Clip,),
    gradient_bound_required=False,
    assumptions=ASSUMPTIONS,
    guarantee="All points together have the privacy of one Gaussian mechanism, and so does the last one.",
    gradient_complexity=r"s T \le n",
    verdict=(
        "Sound if T divides n. Otherwise n/T is not a whole number of records, and on batches of s = "
        "floor(n/T) records the printed noise is too small by the factor n/(s T). For targets in (epsilon, "
        "delta), the slack of Proposition 3 makes up for this factor. The verdict is computed for each "
        "request."
    ),
    errata=(
        "Algorithm 8 takes batches of n/T records, whether or not T divides n. Here a batch has floor(n/T) "
        "records, and the noise is computed for this size.",
        (
            "In Theorem 20, T depends on the bias and the variance, which in turn depend on T. Here r_k^2/n, which "
            "is at most the variance, replaces them."
        ),
        (
            "An equation in the proof of Proposition 46 is not justified as printed. By another proof, the result "
            "holds with 1/(2 mu) in place of 4/mu, and for every step size up to 1/beta."
        ),
        (
            "Assumption 2 must hold on the whole domain of f^1 and at the start, not only near a solution. If no "
            "domain is given, it must hold on all of R^d."
        ),
        (
            "In Lemma 6, the chain of inequalities for the bias has the middle term E|nu_hat - nu|. This term "
            "includes the sampling error, so its printed bound is false. The bound on the bias itself holds."
        ),
        (
            "The listing of Algorithm 8 omits the clip threshold from its calls to the mean oracle. Here one C is "
            "used for the whole run."
        ),
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
