r"""Noisy Frank-Wolfe over an l_p ball, 1 < p <= 2, in one pass with momentum. Losses are smooth and need not be convex.

**Setting.** Find a point of $\{\|x\|_p \le D\}$, diameter $M = 2D$, of small
$\mathrm{Gap}(x) = \max_y \langle \nabla F(x), x - y\rangle$, $F(x) = E f(x, z)$; $\|\nabla f\|_q \le L_0$ and
$\|\nabla f(x) - \nabla f(y)\|_q \le L_1 \|x - y\|_p$.

**Update.** With $n_0 = \lfloor n/2\rfloor$, $m = \lfloor (n-n_0)/T\rfloor$, $\eta = 1/\sqrt T$ and $x_0 = 0$,

    d_0     = mean gradient of n0 records + noise of scale sigma_0
    d_t     = (1 - eta)(d_{t-1} + mean change) + eta (mean gradient) + noise of scale sigma, over m fresh records
    x_{t+1} = (1 - eta) x_t + eta (least point of the ball along d_t)

for t = 0..T-1. One of $x_0..x_{T-1}$ is released, drawn in secret and without looking at data.

**Privacy.** Gradients are clipped to $L_0$ in l_q, and changes to $\min(2 L_0, L_1 \|x_t - x_{t-1}\|_p)$. So a record
contributes at most $c = (1-\eta)\min(2 L_0, L_1\eta M) + \eta L_0$ to the mean of its step. If gradients change slowly,
$c = \eta G$ with $G = (1-\eta) L_1 M + L_0$. A secret order gives each slot to one step. Let z be the noise multiplier,
$\sigma_0 = z \sqrt\kappa\,L_0/n_0$ and $\sigma = z \sqrt\kappa\,c/m$. Then all steps together cost $\rho = s^2/(2 z^2)$
(`generalized_gaussian`). Here s = 2 if a record is replaced, and s = 1 if it becomes null.

**Utility.** `estimate_risk.mean_gap_bound` gives the bound.
"""

from __future__ import annotations

import math

from accounting.errors import InvalidValue
from accounting.events import DisjointBatches
from accounting.relations import NeighboringRelation
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest
from calibrators.bassily_guzman import lp_rates
from calibrators.bassily_guzman.estimate_risk import fresh_bound, mean_gap_bound
from calibrators.bassily_guzman.generalized_gaussian import Releases, noise_scale, refuse_pure_dp
from calibrators.bassily_guzman.lp_setting import (
    SMOOTH_ASSUMPTIONS,
    LpSetting,
    read_lp_setting,
    refuse_what_has_no_part,
)
from calibrators.bassily_guzman.printed_lp_noise import unknown_as_published
from calibrators.geometry import LpBall
from calibrators.noise import Steps, calibration_of, solve_steps
from calibrators.phases.gradient_estimates import MAX_ESTIMATES, EstimatePhase
from calibrators.provenance import GRADIENT, LOSS, Provenance, ProvenanceKind
from calibrators.refusals import refuse, unread
from calibrators.release import RandomIterate
from calibrators.scopes import Measure, Shape, in_lp_ball
from calibrators.spec import Calibration, Spec

PAPER = "Bassily, Guzman & Menart 2021"
SOURCE = f"{PAPER}, smooth losses over a ball (secondary: abstract and talk); derived: noise and bound"
SECONDARY = f"{PAPER}, abstract (secondary); derived"
SCALE_FORMULA = (
    r"(\sqrt\kappa\,(L_0/n_0)\,\sigma,\; \sqrt\kappa\,([(1-\eta)\min(2 L_0, L_1 \eta M) + \eta L_0]/m)\,\sigma)"
)
BOUND_FORMULA = (
    r"\tfrac{\Gamma_0}{\eta T} + \tfrac1T \sum_t M \sqrt{r_t} + \tfrac12 L_1 M^2 \eta,\;"
    r" r_t = (1-\eta)^2 r_{t-1} + 4\kappa c^2/m + \kappa_+ d \sigma^2"
)
PRINTED_FORMULA = r"\sigma \propto \eta L_0 \sqrt{\ln(1/\delta)} / (m \varepsilon)"
ERRATA = (
    "The published schedule restarts the estimate in rounds, with constants that were not available. Here the "
    "schedule has a single phase, with the same rate.",
    (
        "For p near 1 the paper takes kappa = 2 ln d, which is not a regularity constant. Here kappa is the "
        "minimum over r of (r - 1) d^(2/r - 2/q), and the noise uses the minimising r."
    ),
    "No lower bound on stationarity under differential privacy is known, so none is given.",
)


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise. The batch sizes and the step size follow from the number of
    steps.

    Raises:
        InvalidValue: If an assumption, the dimension or the number of steps is missing or outside its range, or there
            are too few records for the steps.
        NoCostInFilter: If the target is of pure or Gaussian DP.
        Unsupported: If a size is solved for, or if a penalty or a batch size is given.
        Unreachable: If no noise meets the target.
    """
    refuse_what_has_no_part(spec)
    refuse_pure_dp(spec)
    setting = read_lp_setting(spec, SMOOTH_ASSUMPTIONS)
    steps = solve_steps(spec, Releases(spec.relation, each=False), iterations=1, batch_size=1)
    phase = _phase(spec, setting, steps)
    return calibration_of(
        ALGORITHM.name,
        spec,
        steps,
        phase,
        noise_scales=phase.noise_scale,
        domain=setting.domain,
        release=RandomIterate(),
        hyperparameters=_hyperparameters(spec, phase, steps.noise_multiplier),
        utility=_utility(spec, setting, phase, steps),
        warnings=unread(
            spec, phase.first_batch + (phase.estimates - 1) * phase.batch, "all batches have the same size"
        ),
        as_published=unknown_as_published(spec, SECONDARY, PRINTED_FORMULA),
    )


def _phase(spec: Spec, setting: LpSetting, steps: Steps) -> EstimatePhase:
    n, iterations = spec.dataset_size, spec.need("iterations", "the number of steps, at least 2")
    refuse(spec, batch_size="the batch sizes follow from dataset_size and iterations: leave batch_size out")
    first = n // 2
    largest = min(n - first, MAX_ESTIMATES)
    if not 1 <= iterations <= largest or first == 0:
        raise InvalidValue(
            f"every step needs at least one record that no other step reads: at most {largest} iterations fit",
            pointer=("iterations",),
        )
    step_size = 1.0 / math.sqrt(iterations) if spec.step_size is None else spec.step_size
    if step_size > 1.0:
        raise InvalidValue(
            "step_size must be at most 1, because it is the share of the way to a point of the ball; got "
            f"{step_size:g}",
            pointer=("step_size",),
        )
    batch, pair, multiplier = (n - first) // iterations, setting.regularity, steps.noise_multiplier
    return EstimatePhase(
        event=steps.event,
        estimator="momentum",
        norm_order=setting.norm_order,
        noise_order=pair.r,
        estimates=iterations,
        first_batch=first,
        batch=batch,
        first_scale=noise_scale(pair, setting.problem.lipschitz, first, multiplier),
        scale=noise_scale(pair, fresh_bound(setting, step_size), batch, multiplier),
        lipschitz=setting.problem.lipschitz,
        smoothness=setting.problem.smoothness,
        step_size=step_size,
    )


def _hyperparameters(spec: Spec, phase: EstimatePhase, noise_multiplier: float) -> tuple[Provenance, ...]:
    derived = ProvenanceKind.DERIVED
    found = [
        Provenance("noise_scale", phase.noise_scale, SCALE_FORMULA, SECONDARY, derived, units=GRADIENT),
        Provenance(
            "noise_multiplier",
            noise_multiplier,
            r"\rho = s^2/(2\sigma^2)",
            "derived",
            derived,
            ("s is 2 under replace_one and 1 under replace_special",),
        ),
        Provenance("iterations", float(phase.estimates), "T", SECONDARY, derived),
        Provenance(
            "batch_size",
            (float(phase.first_batch), float(phase.batch)),
            r"n_0 = \lfloor n/2 \rfloor,\; m = \lfloor (n - n_0)/T \rfloor",
            SECONDARY,
            derived,
        ),
    ]
    if spec.step_size is None:
        found.append(Provenance("step_size", phase.step_size, r"\eta = 1/\sqrt T", SECONDARY, derived))
    return tuple(found)


def _utility(spec: Spec, setting: LpSetting, phase: EstimatePhase, steps: Steps) -> tuple[Provenance, ...]:
    problem, n = setting.problem, spec.dataset_size
    bound = mean_gap_bound(setting, phase)
    found = [
        Provenance(
            "gradient_norm_bound",
            bound,
            BOUND_FORMULA,
            "derived",
            ProvenanceKind.DERIVED,
            (
                "the bound is on the gap max_y <grad F(x), x - y>, averaged over the random choice of the "
                "released point",
                "every loss is L_0-Lipschitz and L_1-smooth in the l_p norm",
                "records are independent draws from one distribution, and F is the expected loss under it",
            ),
            vacuous=bound >= problem.lipschitz * problem.diameter,
            units=LOSS,
        )
    ]
    asked = lp_rates.epsilon_and_delta(spec, steps)
    if asked is not None:
        amplitude = (problem.lipschitz + problem.smoothness * problem.diameter) * problem.diameter
        found.append(
            lp_rates.order(
                setting,
                "gradient_norm_rate",
                amplitude * lp_rates.nonconvex_rate(setting.dimension, n, asked[0]),
                r"(L_0 + L_1 M) M [n^{-1/3} + (\sqrt d/(n\varepsilon))^{2/5}]",
                f"{PAPER}, abstract (secondary)",
                "the rate of the gap with the number of steps that balances its parts, without logarithms",
            )
        )
    evaluations = phase.first_batch + 2 * (phase.estimates - 1) * phase.batch
    found.append(
        Provenance("gradient_evaluations", float(evaluations), "n_0 + 2 (T - 1) m", SECONDARY, ProvenanceKind.EXACT)
    )
    return tuple(found)


ALGORITHM = Algorithm(
    name="noisy_sfw_nonconvex_lp",
    summary="Frank-Wolfe over an l_p ball for smooth losses that need not be convex, in one pass with momentum.",
    source=SOURCE,
    update=r"x \leftarrow (1-\eta) x + \eta \arg\min_{\|v\|_p \le D} \langle v, d_t \rangle",
    samplings=(DisjointBatches,),
    relations=(NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL),
    gradient_bounds=(),
    gradient_bound_required=False,
    assumptions=SMOOTH_ASSUMPTIONS,
    guarantee=(
        "All noisy estimates together are rho-zCDP. The released point is a function of them, so it has the same "
        "guarantee. There is no pure epsilon."
    ),
    gradient_complexity=r"n_0 + 2 (T-1) m",
    verdict="The constants of the published noise are not known, so there is nothing to certify.",
    errata=ERRATA,
    calibrate=calibrate,
    scope=in_lp_ball(Shape.NONCONVEX, Measure.STATIONARITY),
    example=Example(
        Spec(
            100_000,
            EXAMPLE_TARGET,
            dimension=100,
            iterations=64,
            assumptions={"norm_order": 1.5, "lipschitz": 1.0, "smoothness": 1.0, "radius": 1.0},
        ),
        variants={
            "given ball": {
                "domain": LpBall(1.8, 1.0),
                "assumptions": {"lipschitz": 1.0, "smoothness": 1.0, "initial_gap": 0.7},
            },
        },
    ),
    requests={
        "noisy_sfw_nonconvex_lp_theorem": ExampleRequest(
            "Noisy Frank-Wolfe for smooth losses that are not convex: a bound on the stationarity gap",
            {
                "dataset_size": 100000,
                "dimension": 100,
                "iterations": 64,
                "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
                "assumptions": {"norm_order": 1.5, "lipschitz": 1, "smoothness": 1, "radius": 1},
            },
        )
    },
)
