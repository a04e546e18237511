r"""Localised noisy clipped subgradient steps for strongly convex losses that need not be smooth (Theorem 18).

**Setting.** The setting is that of `localized_clipped_subgradient`. In addition, the population loss is $\mu$-strongly
convex. Strong convexity mostly comes from a penalty $\frac\lambda2\|w\|^2$. Give it as `penalty`: its gradient is then
added after clipping. $\mu$ is the constant of loss plus penalty, and the moments are those of the gradients without the
penalty.

**Update.** Algorithm 4 runs M times, one run after the other. Run j uses $N_j = 2^{j-2} n/\log_2 n$ records (rounded
down to a power of two) that no other run reads. It starts from the point where the run before it ended. The last point
of the last run is released.

**Privacy.** The analysis is the same as for one run: all blocks of all runs are disjoint, and each is a Gaussian
mechanism with the same mu.

**Guarantee.** The module `planned_reduction` contains the bound. It applies the bound of `localization` to one run
after the other. By strong convexity, the bound for a run also bounds the distance from which the next run starts. At
most half of the records are in the last run, and only this run counts in the end. So the bound is mostly vacuous below
about $10^6$ records.
"""

from __future__ import annotations

from accounting.errors import InvalidValue
from accounting.events import DisjointBatches
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Assumption, Example, ExampleRequest
from calibrators.geometry import L2Penalty
from calibrators.lowy_razaviyayn.localization import LocalizedProblem, block_sizes
from calibrators.lowy_razaviyayn.localized_clipped_subgradient import ERRATA, calibration_of_runs
from calibrators.lowy_razaviyayn.localized_setting import (
    ASSUMPTIONS,
    EXAMPLE_CONSTANTS,
    RELATIONS,
    LocalizedRun,
    read_setting,
    solve_noise,
    thresholds,
)
from calibrators.lowy_razaviyayn.moments import LARGEST, PAPER, SMALLEST
from calibrators.lowy_razaviyayn.planned_reduction import PlannedReduction, default_power, localized_chain, run_sizes
from calibrators.plan import Clip
from calibrators.provenance import SMOOTHNESS, Provenance, ProvenanceKind
from calibrators.scopes import Shape, heavy_tailed
from calibrators.spec import Calibration, Spec

NAME = "localized_clipped_strongly_convex"
_POWERS = (
    "every run has twice as many records as the one before, a power of two, and the last run has at most half of "
    "all records"
)
STRONG_CONVEXITY = Assumption(
    "strong_convexity",
    r"\mu",
    SMOOTHNESS,
    "the strong convexity of the population loss on the domain, including a penalty",
    lower=SMALLEST,
    upper=LARGEST,
)


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise, and the theorem with explicit constants gives all other
    numbers.

    Raises:
        InvalidValue: If a number is outside its range; if a number is missing and no preset can choose it; if there are
            not enough records for the runs; if the assumptions contradict each other; or if a block would have too many
            steps.
        Unsupported: If the number of steps or the batch size is solved for, because the privacy does not depend on
            them; if the domain is not an l2 ball; or if the penalty is not l2.
        Unreachable: If no noise multiplier meets the target.
    """
    steps = solve_noise(spec)
    setting = read_setting(spec, NAME, ALGORITHM.assumptions)
    problem, z = setting.problem, steps.noise_multiplier
    if problem is not None:
        _check_consistent(problem)
    totals = _totals(spec)
    blocks = []
    for total in totals:
        power = setting.power
        if power is None:
            power = 1.0 if problem is None else default_power(problem, total)
        blocks.append(thresholds(spec, problem, block_sizes(total, total.bit_length() - 1), power, z))
    runs = tuple(LocalizedRun(each, spec.step_size) for each in blocks)
    if problem is not None:
        runs = localized_chain(problem, blocks, z, spec.step_size)
    return calibration_of_runs(NAME, spec, setting, steps, runs, PlannedReduction, _iterations(totals), why=_POWERS)


def _totals(spec: Spec) -> tuple[int, ...]:
    """Return the sizes N_j of all runs, or of the first runs if the caller wants fewer."""
    totals = run_sizes(spec.dataset_size) if spec.dataset_size > 1 else (1,)
    if totals[0] < 2:
        raise InvalidValue(
            "dataset_size must be at least 16, because the first run needs two records",
            code="too_few_records",
            pointer=("dataset_size",),
        )
    if spec.iterations is None:
        return totals
    if spec.iterations > len(totals):
        raise InvalidValue(
            f"iterations, the number of runs, must be at most {len(totals)} for {spec.dataset_size} records, "
            f"because each run has twice as many records as the one before; got {spec.iterations}",
            code="too_few_records",
            pointer=("iterations",),
        )
    return totals[: spec.iterations]


def _check_consistent(problem: LocalizedProblem) -> None:
    mu, strength = problem.strong_convexity, problem.penalty_strength
    if strength > mu:
        raise InvalidValue(
            f"strong_convexity must be at least {strength:g}, the strength of the penalty, because it includes "
            f"the penalty; got {mu!r}",
            pointer=("assumptions", "strong_convexity"),
        )
    least = 0.5 * (mu - strength) * problem.diameter
    if problem.moments.first < least * (1.0 - 1e-12):
        raise InvalidValue(
            "no loss has these constants. Mean gradients at opposite ends of the domain differ by at least "
            "(strong_convexity - the penalty's strength) times diameter, so every moment bound must be at "
            f"least half of that, {least:g}",
            pointer=("assumptions", "strong_convexity"),
        )


def _iterations(totals: tuple[int, ...]) -> Provenance:
    return Provenance(
        "iterations",
        float(len(totals)),
        r"M = \lceil \log_2 \log_2 n \rceil",
        f"{PAPER}, Theorem 18",
        ProvenanceKind.EXACT,
        (
            "the number of runs; batch_size and inner_iterations list the records and the steps of each block of "
            "each run",
        ),
    )


ALGORITHM = Algorithm(
    name=NAME,
    summary=(
        "Localised clipped subgradient steps, for strongly convex losses that need not be smooth and have "
        "heavy-tailed subgradients. Each run uses twice as many records as the one before."
    ),
    source=f"{PAPER}, repeated runs of Algorithm 4, Theorem 18",
    update=r"w \leftarrow \Pi_{W_i}\left(w - \eta_i\left(\tfrac{1}{n_i} \sum_{j \in B_i} \min(1, C_i/\|g_j\|) g_j"
    r" + \sigma_i Z + \lambda_i (w - w_{i-1})\right)\right),\; W_i = \{w \in W : \|w - w_{i-1}\| \le D_i\}",
    samplings=(DisjointBatches,),
    relations=RELATIONS,
    gradient_bounds=(Clip,),
    gradient_bound_required=False,
    assumptions=(STRONG_CONVEXITY, *ASSUMPTIONS),
    guarantee="All points of all runs together have the privacy of one Gaussian mechanism, and so does the last one.",
    gradient_complexity=r"\sum_j \sum_i n_{j,i} T_{j,i} \approx n^{p+1} \ln n",
    verdict=(
        "For zCDP, the printed noise is exactly the noise that is needed. For targets in (epsilon, delta) it "
        "is loose, by the slack of Proposition 3. The verdict is computed for each request."
    ),
    errata=(
        "The proof of Theorem 18 assumes that run j knows the distance E|w_{j-1} - w*|^2, but the algorithm "
        "does not know it. Here a bound on this distance is used, which follows by strong convexity from the "
        "bound for the run before.",
        (
            "The paper prints N_j = 2 N_{j+1}. It should be N_{j+1} = 2 N_j: each run has twice as many records as "
            "the one before."
        ),
        (
            "Without L_f, the power p = 1 + 1/(2k) of Theorem 12 would give an error of order n^(-1 + 1/(2k)). "
            "Here p = 1 + 1/k."
        ),
        *ERRATA,
    ),
    calibrate=calibrate,
    scope=heavy_tailed(Shape.STRONGLY_CONVEX, needs_smoothness=False),
    example=Example(
        Spec(1_000_000, EXAMPLE_TARGET, dimension=20, assumptions=EXAMPLE_CONSTANTS | {"strong_convexity": 0.5}),
        variants={
            "ridge": {
                "penalty": L2Penalty(0.2),
                "assumptions": {name: value for name, value in EXAMPLE_CONSTANTS.items() if name != "lipschitz"}
                | {"localization_power": 1.0, "strong_convexity": 0.5},
            },
        },
    ),
    requests={
        "localized_clipped_strongly_convex_theorem": ExampleRequest(
            "Localised clipped subgradients, strongly convex losses: runs on more and more records",
            {
                "dataset_size": 1000000,
                "dimension": 20,
                "target": {"kind": "zcdp", "rho": 0.5},
                "assumptions": {
                    "strong_convexity": 0.5,
                    "diameter": 2,
                    "moment_order": 4,
                    "moment_bound_2k": 1.5,
                    "moment_bound_2": 1.2,
                    "moment_bound_1": 1,
                    "lipschitz": 3,
                },
            },
        )
    },
)
