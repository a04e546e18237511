r"""Proximally guided private gradient descent for weakly convex losses that need not be smooth, in the l2 norm.

**Setting.** Losses are defined over an l2 ball of diameter M, or over $R^d$. They are $L_0$-Lipschitz and
$\omega$-weakly convex, which means that $f + \tfrac\omega2\|\cdot\|^2$ is convex. There are n independent records, and
$F = E f$. The algorithm looks for a point that is near a nearly stationary point. A convex loss is $\omega$-weakly
convex for every $\omega > 0$, and a smooth loss is for $\omega = L_1$.

**Update.** $\beta = 2\omega$, R rounds on $m = \lfloor n/R \rfloor$ records each. Round t = 0..R-1 takes T steps
k = 1..T from $x^1 = x_t$ over all its records,

$$x^{k+1} = \Pi_{X_t}\Big(x^k - \tfrac{2}{\omega(k+1)} \Big(\frac1m \sum_j \Pi_C(\nabla f(x^k, z_j)) + \sigma Z
  + \beta (x^k - x_t)\Big)\Big), \qquad X_t = \{x \in X : \|x - x_t\| \le \tfrac{2 L_0}{\omega + \beta}\},$$

and ends at $x_{t+1} = \sum_k \tfrac{2k}{T(T+1)} x^k$. One of $x_0..x_{R-1}$ is released, drawn uniformly, in secret and
without looking at data. By default, T is m, and R is chosen, up to a constant, to balance statistical error and noise.

**Privacy.** A secret order of the slots, drawn without looking at data, assigns a record to one round or to none. The T
steps of this round are Gaussian mechanisms whose means differ by at most $s C/m$ between neighbours. Here s = 2 if a
record is replaced, and s = 1 if it becomes a null record. Together, the T steps are a Gaussian mechanism with $\mu =
s\sqrt T\,C/(m\sigma)$, even if later steps depend on earlier ones. With $\sigma = z C\sqrt T/m$, $\mu$ is $s/z$ for
every round. All rounds together have the same $\mu$, because given the past, the other rounds have the same law for
both neighbours. The engine solves for z as for one full-batch step. Gradients are clipped to C, so privacy needs no
property of the losses. `add_or_remove_one` is not accounted, because adding or removing a record would shift the
records of later rounds.

**Utility.** The module `proximal_point` contains the bounds and their proofs. The proved bound for the population is
crude and mostly vacuous. The rate that follows if only the empirical gap of a round counts is given as an order of
magnitude.
"""

from __future__ import annotations

import math

from accounting.errors import InvalidValue, Unsupported
from accounting.events import FullBatch
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest, StepCount
from calibrators.as_published import AsPublished, Verdict
from calibrators.bassily_guzman.lp_rates import epsilon_and_delta
from calibrators.bassily_guzman.proximal_point import balanced_rounds
from calibrators.bassily_guzman.proximal_setting import ASSUMPTIONS, ProximalSetting, read_proximal_setting
from calibrators.bassily_guzman.proximal_utility import PAPER, SECONDARY, recommended, utility
from calibrators.geometry import L2Ball
from calibrators.noise import Steps, calibration_of, one_mechanism, solve_steps
from calibrators.phases.proximal_phases import ProximalPhase
from calibrators.plan import Clip
from calibrators.refusals import refuse, unread
from calibrators.release import RandomIterate
from calibrators.scopes import Measure, Scope, Shape
from calibrators.spec import Calibration, Spec

SOURCE = f"{PAPER}, weakly convex losses (secondary: abstract and talk); derived: noise and bounds"
PRINTED_FORMULA = r"\sigma = 100 L_0 \sqrt{d \ln(1/\delta)}/(b\,\varepsilon)"
ERRATA = (
    "Each round uses the solver of Asi, Feldman, Koren & Talwar 2021. Its noise (quoted from a secondary "
    "source) relies on amplification by subsampling with replacement. Here every step takes all records of its "
    "round, and the accounting engine charges these steps without amplification.",
    (
        "The published number of rounds and its constants are not known here. By default, the number of rounds "
        "balances the two parts of the bound, up to a constant."
    ),
    (
        "The printed guarantee, max(1, beta M) theta, mixes a length with a loss. Here there are two separate "
        "numbers: the distance from the released point to the proximal point, and how far the proximal point is "
        "from stationary."
    ),
    (
        "Only p = 2 is available. In other norms, the projection on the intersection of the domain and the ball "
        "around a round's start has no closed form. Near p = 1, weak convexity must also be measured in the norm "
        "of the mirror map: the paper's regulariser 2 omega kappa_+ leaves a round's objective non-convex, unless "
        "omega kappa/kappa_+ replaces omega."
    ),
    "No lower bound on stationarity under differential privacy is known, so none is given.",
)


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise. The step sizes, the regulariser and the radius follow from the
    losses' constants.

    Raises:
        InvalidValue: If a number is outside its range, or is missing and nothing can fill it in; if there are not
            enough records for the rounds; if the losses are convex (omega is 0); or if the domain is not an l2 ball.
        Unsupported: If a size is solved for, or if a penalty, a step size or a batch size is given.
        Unreachable: If no noise multiplier meets the target.
    """
    _refuse_what_has_no_part(spec)
    steps = solve_steps(spec, one_mechanism, iterations=1, batch_size=1)
    setting = read_proximal_setting(spec)
    phase = _phase(spec, setting, steps)
    asked = epsilon_and_delta(spec, steps)
    return calibration_of(
        ALGORITHM.name,
        spec,
        steps,
        phase,
        domain=setting.domain,
        release=RandomIterate(),
        hyperparameters=recommended(spec, phase),
        utility=utility(setting, phase, spec.dataset_size, None if asked is None else asked[0]),
        missing=setting.missing,
        warnings=(
            *unread(spec, phase.rounds * phase.records, "all rounds have the same size"),
            *setting.warnings,
        ),
        as_published=_as_published(spec),
    )


def _refuse_what_has_no_part(spec: Spec) -> None:
    refuse(
        spec,
        sizes=(
            f"{spec.unknown} cannot be solved for, because the cost depends neither on the number of rounds nor on "
            "their steps; solve for noise_multiplier, or for epsilon or delta with given noise"
        ),
        penalty="this algorithm adds only the regulariser of a round: leave penalty out",
    )
    if spec.batch_size not in (None, spec.dataset_size):  # full batches have the batch size dataset_size
        raise Unsupported(
            "batch_size cannot be chosen: every step takes all records of its round, and their number follows "
            "from dataset_size and iterations. Leave batch_size out",
            pointer=("batch_size",),
        )
    refuse(
        spec,
        step_size=(
            "step_size cannot be chosen: the step sizes are 2/(omega (k+1)), because the weighted average over a "
            "round's points is proved only for them. Leave step_size out, and give weak_convexity"
        ),
    )


def _phase(spec: Spec, setting: ProximalSetting, steps: Steps) -> ProximalPhase:
    n, rounds = spec.dataset_size, _rounds(spec, steps)
    records = n // rounds
    inner = setting.inner_iterations or max(2, records)
    problem = setting.problem
    return ProximalPhase(
        event=steps.event,
        rounds=rounds,
        records=records,
        inner_iterations=inner,
        max_grad_norm=setting.max_grad_norm,
        noise_stddev_on_mean=steps.noise_multiplier * setting.max_grad_norm * math.sqrt(inner) / records,
        weak_convexity=None if problem is None else problem.weak_convexity,
        regularizer=None if problem is None else problem.regularizer,
        radius=None if problem is None else problem.radius,
    )


def _rounds(spec: Spec, steps: Steps) -> int:
    """Return the number R of rounds: the caller's number, or the number that balances statistical error and noise."""
    n = spec.dataset_size
    if n < 2:
        raise InvalidValue(
            "dataset_size must be at least 2, because each of two rounds needs a record", pointer=("dataset_size",)
        )
    if spec.iterations is not None:
        if not 2 <= spec.iterations <= n:
            raise InvalidValue(
                f"iterations, the number of rounds, must be from 2 to {n}, got {spec.iterations}. A single "
                "round would release its start, which has no noise, and every round needs a record",
                pointer=("iterations",),
            )
        return spec.iterations
    if spec.dimension is None:
        raise InvalidValue(
            "iterations, the number of rounds, is needed if dimension is left out, because its default depends "
            "on the dimension",
            code="missing",
            pointer=("iterations",),
        )
    asked = epsilon_and_delta(spec, steps)
    # If the target has no epsilon, mu takes the place of epsilon. The two agree up to the square root of a logarithm.
    epsilon = spec.relation.sensitivity / steps.noise_multiplier if asked is None else asked[0]
    return balanced_rounds(n, spec.dimension, epsilon)


def _as_published(spec: Spec) -> AsPublished | None:
    """Explain why nothing that the paper prints can be certified."""
    if not isinstance(spec.target, ApproximateDpTarget) or not 0.0 < spec.target.delta < 1.0:
        return None
    why = (
        "There is nothing to certify. The solver's noise is known only from a secondary source. It relies on "
        "amplification by sampling of minibatches, and their size and number are not known here."
    )
    return AsPublished(Verdict.UNSOUND, why, f"Asi, Feldman, Koren & Talwar 2021 ({SECONDARY})", PRINTED_FORMULA)


ALGORITHM = Algorithm(
    name="proximal_weakly_convex",
    summary=(
        "Proximal point steps with noisy gradients, for weakly convex losses that need not be smooth. Each round "
        "uses fresh records, and the start of a random round is released."
    ),
    source=SOURCE,
    update=r"x \leftarrow \Pi_{X_t}\left(x - \tfrac{2}{\omega(k+1)}\left(\tfrac1m \sum_j \min(1, C/\|g_j\|) g_j"
    r" + \sigma Z + 2\omega (x - x_t)\right)\right),\; X_t = \{x \in X : \|x - x_t\| \le \tfrac{2 L_0}{3\omega}\}",
    samplings=(FullBatch,),
    relations=(NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL),
    gradient_bounds=(Clip,),
    gradient_bound_required=False,
    assumptions=ASSUMPTIONS,
    guarantee=(
        "All points of all rounds together have the privacy of one Gaussian mechanism, and so does the released point."
    ),
    gradient_complexity=r"R\,m\,T",
    verdict=(
        "Counted as unsound: the published constants are not known and the solver's noise relies on amplification "
        "by sampling, so there is nothing to certify."
    ),
    errata=ERRATA,
    fewer_steps=StepCount.INNER_ITERATIONS,
    calibrate=calibrate,
    scope=Scope(Shape.WEAKLY_CONVEX, Measure.STATIONARITY, needs_smoothness=False),
    example=Example(
        Spec(
            1_000_000,
            EXAMPLE_TARGET,
            dimension=50,
            iterations=50,
            assumptions={"lipschitz": 1.0, "weak_convexity": 0.5, "diameter": 2.0},
        ),
        variants={
            "balanced rounds anywhere": {
                "iterations": None,
                "assumptions": {"lipschitz": 1.0, "weak_convexity": 0.5, "initial_gap": 0.7, "inner_iterations": 50.0},
            },
            "given threshold and ball": {
                "domain": L2Ball(1.0),
                "gradient_bound": Clip(1.5),
                "iterations": 30,
                "assumptions": {"lipschitz": 1.0, "weak_convexity": 0.2},
            },
        },
    ),
    requests={
        "proximal_weakly_convex_theorem": ExampleRequest(
            "Proximal rounds for weakly convex losses: regulariser, sizes and distance from stationary",
            {
                "dataset_size": 1000000,
                "dimension": 50,
                "iterations": 50,
                "target": {"kind": "zcdp", "rho": 0.5},
                "assumptions": {"lipschitz": 1, "weak_convexity": 0.5, "diameter": 2},
            },
        )
    },
)
