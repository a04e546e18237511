r"""Proximally guided private gradient descent for weakly convex losses that need not be smooth, in the l2 norm.

**Setting.** Losses over an l2 ball of diameter M, or $R^d$, that are $L_0$-Lipschitz and $\omega$-weakly convex:
$f + \tfrac\omega2\|\cdot\|^2$ is convex. n independent records, $F = E f$. The algorithm looks for a point near one
that is nearly stationary. A convex loss is $\omega$-weakly convex for every $\omega > 0$, a smooth loss for $\omega =
L_1$.

**Update.** $\beta = 2\omega$, R rounds on $m = \lfloor n/R \rfloor$ records each. Round t = 0..R-1 takes T steps
k = 1..T from $x^1 = x_t$ over all its records,

$$x^{k+1} = \Pi_{X_t}\Big(x^k - \tfrac{2}{\omega(k+1)} \Big(\frac1m \sum_j \Pi_C(\nabla f(x^k, z_j)) + \sigma Z
  + \beta (x^k - x_t)\Big)\Big), \qquad X_t = \{x \in X : \|x - x_t\| \le \tfrac{2 L_0}{\omega + \beta}\},$$

and ends at $x_{t+1} = \sum_k \tfrac{2k}{T(T+1)} x^k$. One of $x_0..x_{R-1}$ is released, drawn uniformly, in secret and
without looking at data. By default, T is m, and R is the order of magnitude that balances statistical error and noise.

**Privacy.** A secret order of the slots, drawn without looking at data, gives a record to one round, or to none. Its T
steps are Gaussian mechanisms of distance $s C/m$ between neighbours, s = 2 if a record is replaced and s = 1 if it
becomes a null record; together they are a Gaussian mechanism with $\mu = s\sqrt T\,C/(m\sigma)$, however later steps
depend on earlier ones. With $\sigma = z C\sqrt T/m$ that is $s/z$ for every round, and so for all rounds together:
given the past, the other rounds have the same law for both neighbours. The engine solves for z as for one full-batch
step. Gradients are clipped to C, so that privacy needs no property of the losses. If a record comes or goes, the rounds
after it would shift: `add_or_remove_one` is not accounted.

**Utility.** `proximal_point` has the bounds and their proofs. The proved bound for the population is crude and mostly
vacuous. The rate that follows from the empirical gap of a round alone is given as an order of magnitude.
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
    "The solver of a round is that of Asi, Feldman, Koren & Talwar 2021, whose noise (quoted from a secondary source) "
    "rests on amplification by subsampling, of draws with replacement. Here every step takes all records of its round, "
    "and the engine charges it as it is.",
    "The published number of rounds and its constants are not known here. The order that balances the two parts of the "
    "bound is the default.",
    "The guarantee is printed as max(1, beta M) theta, which adds a length to a loss. Here the two are apart: how far "
    "the released point is from the proximal one, and how stationary that one is.",
    "Only p = 2 is served. In other norms the ball near a round's start and the domain have no common projection in "
    "closed form, and near p = 1 weak convexity must be measured in the norm of the mirror map: with omega as it "
    "stands, 2 omega kappa_+ leaves a round's objective non-convex, and omega kappa/kappa_+ is needed.",
    "Lower bounds on stationarity under differential privacy are open: none is served.",
)


def calibrate(spec: Spec) -> Calibration:
    """Calibrate: the noise is from the engine; step sizes, regulariser and radius follow from the losses' constants.

    Raises:
        InvalidValue: If a number is outside its range, or is missing and nothing can fill it in; if there are not
            enough records for the rounds; if the losses are convex (omega is 0); or if the domain is no l2 ball.
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
            *unread(spec, phase.rounds * phase.records, "rounds are of one size"),
            *setting.warnings,
        ),
        as_published=_as_published(spec),
    )


def _refuse_what_has_no_part(spec: Spec) -> None:
    refuse(
        spec,
        sizes=f"rounds cost the same whatever their number and steps: {spec.unknown} cannot be solved for; solve for "
        "noise_multiplier, or for epsilon or delta at given noise",
        penalty="the only penalty is that of a round: leave penalty out",
    )
    if spec.batch_size not in (None, spec.dataset_size):  # a request for full batches has the batch size of all records
        raise Unsupported(
            "a step takes all records of its round, whose number follows from dataset_size and iterations: leave "
            "batch_size out",
            pointer=("batch_size",),
        )
    refuse(
        spec,
        step_size="step sizes are 2/(omega (k+1)), which is what the average over a round's points is right for: leave "
        "step_size out, and give weak_convexity",
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
    """Return the caller's R, or the balanced number."""
    n = spec.dataset_size
    if n < 2:
        raise InvalidValue(
            "two rounds need one record each: dataset_size must be at least 2", pointer=("dataset_size",)
        )
    if spec.iterations is not None:
        if not 2 <= spec.iterations <= n:
            raise InvalidValue(
                f"iterations is the number of rounds, from 2 (a single one would release its start, to which no noise "
                f"was added) to {n}, with one record in each; got {spec.iterations}",
                pointer=("iterations",),
            )
        return spec.iterations
    if spec.dimension is None:
        raise InvalidValue(
            "iterations, the number of rounds, is needed if the dimension is left out: the default depends on it",
            code="missing",
            pointer=("iterations",),
        )
    asked = epsilon_and_delta(spec, steps)
    # If the target has no epsilon, mu takes its place: they agree up to the square root of a logarithm.
    epsilon = spec.relation.sensitivity / steps.noise_multiplier if asked is None else asked[0]
    return balanced_rounds(n, spec.dimension, epsilon)


def _as_published(spec: Spec) -> AsPublished | None:
    """Explain why nothing that the paper prints can be certified."""
    if not isinstance(spec.target, ApproximateDpTarget) or not 0.0 < spec.target.delta < 1.0:
        return None
    why = (
        "The solver's noise is known from a secondary source, for minibatches whose size and number are not known "
        "here, and it rests on amplification by sampling them: there is nothing to certify."
    )
    return AsPublished(Verdict.UNSOUND, why, f"Asi, Feldman, Koren & Talwar 2021 ({SECONDARY})", PRINTED_FORMULA)


ALGORITHM = Algorithm(
    name="proximal_weakly_convex",
    summary="Proximal point steps by noisy gradients, round after round on fresh records, for weakly convex losses that"
    " need not be smooth; the start of a random round is released.",
    source=SOURCE,
    update=r"x \leftarrow \Pi_{X_t}\left(x - \tfrac{2}{\omega(k+1)}\left(\tfrac1m \sum_j \min(1, C/\|g_j\|) g_j"
    r" + \sigma Z + 2\omega (x - x_t)\right)\right),\; X_t = \{x \in X : \|x - x_t\| \le \tfrac{2 L_0}{3\omega}\}",
    samplings=(FullBatch,),
    relations=(NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL),
    gradient_bounds=(Clip,),
    gradient_bound_required=False,
    assumptions=ASSUMPTIONS,
    guarantee="The privacy of one Gaussian mechanism for all points of all rounds together, so for the released one.",
    gradient_complexity=r"R\,m\,T",
    verdict="The published constants are not known, and the solver's noise rests on amplification by sampling: nothing "
    "to certify, which is unsound.",
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
            "Proximal rounds for weakly convex losses: regulariser, sizes, and how near to stationary they come",
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
