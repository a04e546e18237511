r"""Localised noisy clipped subgradient steps for convex losses that need not be smooth (Algorithms 3 and 4).

**Setting.** There are n i.i.d. records. Losses are convex on a ball W of diameter D and need not be differentiable
everywhere. The largest subgradient of a record's loss has 2k bounded moments; there need not be a common Lipschitz
constant.

**Update.** Block $i = 1..l$ takes $n_i = 2^{-i} n$ records that no other block reads, starts at $w_{i-1}$ and makes
$T_i$ steps over all of them,

$$w \leftarrow \Pi_{W_i}\Big(w - \eta_i \Big(\frac{1}{n_i} \sum_{j \in B_i} \Pi_{C_i}(\nabla f(w, x_j)) + \sigma_i Z
  + \lambda_i (w - w_{i-1})\Big)\Big), \qquad W_i = \{w \in W : \|w - w_{i-1}\| \le D_i\},$$

with $\eta_i = 4^{-i} \eta$, $\lambda_i = 1/(\eta_i n_i^p)$. The last point of the last block is released. By default, n
is the largest power of two up to `dataset_size`, and there is a block for each halving of n. With fewer blocks
(`iterations`), the last block is larger and fewer records are left over. A penalty's gradient is added after clipping.

**Privacy.** A secret order of the slots, drawn without looking at data, assigns a record to one block. The $T_i$ steps
of this block are Gaussian mechanisms whose means differ by at most $s C_i/n_i$ between neighbours. Here s = 2 if a
record is replaced, and s = 1 if it becomes a null record. Together, the steps are a Gaussian mechanism with $\mu = s
\sqrt{T_i} C_i / (n_i \sigma_i)$, exactly, even if later steps depend on earlier ones. With $\sigma_i = z C_i
\sqrt{T_i}/n_i$, $\mu$ is $s/z$ for every block. All blocks together have the same $\mu$, because given the past, the
other blocks have the same law for both neighbours. The engine solves for z as for one full-batch step.
`add_or_remove_one` is not accounted, because adding or removing a record would shift the records of later blocks.

**Guarantee.** The module `localization` contains the bound, its constants and its proof; `excess_risk_bound` in an
answer evaluates it. The bound is conservative. Below about $10^5$ records it is mostly vacuous, and
`trivial_excess_risk` is smaller. The work is about $n^{p+1} \ln n$ gradients, so runs are practical for at most about
ten thousand records.
"""

from __future__ import annotations

from collections.abc import Sequence

from accounting.errors import InvalidValue
from accounting.events import DisjointBatches
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest
from calibrators.lowy_razaviyayn.localization import Blocks, Localization, LocalizedProblem, block_sizes
from calibrators.lowy_razaviyayn.localized_setting import (
    ASSUMPTIONS,
    EXAMPLE_CONSTANTS,
    RELATIONS,
    LocalizedRun,
    LocalizedSetting,
    phase_of,
    printed_noise,
    read_setting,
    solve_noise,
    thresholds,
)
from calibrators.lowy_razaviyayn.moments import PAPER
from calibrators.lowy_razaviyayn.one_pass import ball
from calibrators.lowy_razaviyayn.planned_localization import PlannedLocalization
from calibrators.noise import Steps, calibration_of
from calibrators.plan import Clip
from calibrators.provenance import Provenance, ProvenanceKind
from calibrators.scopes import Shape, heavy_tailed
from calibrators.spec import Calibration, Spec

NAME = "localized_clipped_subgradient"
_HALVES = "every block is half as large as the one before; with fewer blocks (iterations), fewer records are left over"
ERRATA = (
    "The printed T_i = (1/(lambda_i eta_i)) ln(...) depends on sigma_i, which depends on T_i. It also lacks a "
    "factor 2, because the distance shrinks by e^(-lambda eta T / 2). Here T_i = ceil(2 n_i^p ln(e + n_i^p)).",
    (
        "The paper gives C_l twice, once with ln n and once without. Here every C_i balances the noise and the "
        "squared bias in the bound."
    ),
    (
        "If L_f is not known, D_i and p cannot be recovered from the paper. Here they follow from Markov's "
        "inequality for the 2k-th moment, and the bound includes the case that a block fails."
    ),
    (
        "The proof conditions on good events, and given these events the records are not independent. Here "
        "indicators track the failures, and expectations are unconditional."
    ),
    (
        "In Lemma 6, the chain of inequalities for the bias has the middle term E|nu_hat - nu|. This term includes "
        "the sampling error, so its printed bound is false. The bound on the bias itself holds."
    ),
)


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise, and the theorem with explicit constants gives all other
    numbers.

    Raises:
        InvalidValue: If a number is outside its range; if a number is missing and no preset can choose it; if there are
            not enough records for the blocks; or if a block would have too many steps.
        Unsupported: If the number of steps or the batch size is solved for, because the privacy does not depend on
            them; if the domain is not an l2 ball; or if the penalty is not l2.
        Unreachable: If no noise multiplier meets the target.
    """
    steps = solve_noise(spec)
    setting = read_setting(spec, NAME, ASSUMPTIONS)
    sizes = block_sizes(spec.dataset_size, _blocks(spec))
    power = setting.power
    if power is None:
        power = 1.0 if setting.problem is None else setting.problem.moments.power(2 * sizes[0])
    blocks = thresholds(spec, setting.problem, sizes, power, steps.noise_multiplier)
    run = LocalizedRun(blocks, spec.step_size)
    if setting.problem is not None:
        run = _localized(setting.problem, blocks, steps.noise_multiplier, spec.step_size)
    return calibration_of_runs(NAME, spec, setting, steps, (run,), PlannedLocalization, _iterations(sizes), why=_HALVES)


def _blocks(spec: Spec) -> int:
    """Return the number l of blocks: the number of halvings, or the caller's own number."""
    most = spec.dataset_size.bit_length() - 1
    if most < 1:
        raise InvalidValue(
            "dataset_size must be at least 2, because the first block takes half of the records",
            code="too_few_records",
            pointer=("dataset_size",),
        )
    if spec.iterations is None:
        return most
    if spec.iterations > most:
        raise InvalidValue(
            f"iterations, the number of blocks, must be at most {most} for {spec.dataset_size} records, because "
            f"each block is half as large as the one before; got {spec.iterations}",
            code="too_few_records",
            pointer=("iterations",),
        )
    return spec.iterations


def _localized(
    problem: LocalizedProblem, blocks: Blocks, noise_multiplier: float, step_size: float | None
) -> LocalizedRun:
    """Return the single run of Algorithm 4. It may start anywhere in the domain, and zeta = n^(-1/2) if L_f is not
    known.
    """
    failure = 0.0 if problem.moments.lipschitz is not None else (2 * blocks.sizes[0]) ** -0.5
    reach = problem.reach(len(blocks.sizes), failure)
    localization = Localization(problem, blocks, reach, failure, noise_multiplier)
    start = problem.diameter
    own = localization.best_step_size(start) if step_size is None else step_size
    return LocalizedRun(blocks, own, localization, start)


def _iterations(sizes: tuple[int, ...]) -> Provenance:
    return Provenance(
        "iterations",
        float(len(sizes)),
        r"l = \lfloor \log_2 n \rfloor",
        f"{PAPER}, Algorithm 4",
        ProvenanceKind.EXACT,
        ("the number of blocks; inner_iterations lists the steps of each block",),
    )


def calibration_of_runs(
    algorithm: str,
    spec: Spec,
    setting: LocalizedSetting,
    steps: Steps,
    runs: Sequence[LocalizedRun],
    planned_type: type[PlannedLocalization],
    iterations: Provenance,
    *,
    why: str,
) -> Calibration:
    """Return the calibration of localised runs. If the theorem's constants are given, it includes the theorem's
    numbers.

    Args:
        algorithm, spec, steps: As in `calibration_of`.
        setting: The setting that the spec describes.
        runs: The runs of Algorithm 4, one after the other.
        planned_type: The class that computes the theorem's numbers.
        iterations: The recommended number of blocks or runs.
        why: The reason why records are left over, in words.
    """
    phase = phase_of(steps.event, steps.noise_multiplier, runs)
    evaluations = Provenance(
        "gradient_evaluations",
        float(phase.gradient_evaluations),
        r"\sum_i n_i T_i",
        f"{PAPER}, Algorithms 3 and 4",
        ProvenanceKind.EXACT,
    )
    planned = None
    if setting.problem is not None:
        planned = planned_type(
            problem=setting.problem,
            runs=runs,
            phase=phase,
            noise_multiplier=steps.noise_multiplier,
            dataset_size=spec.dataset_size,
            order_constant=setting.order_constant,
            own_numbers=spec.step_size is not None or spec.gradient_bound is not None,
        )
    left = spec.dataset_size - sum(phase.records)
    # Halving a power of two down to 1 always leaves one record, so a single unread record needs no warning.
    unread = (
        [(f"{left} of {spec.dataset_size} records are not read, because they are in no block: {why}.")]
        if left > 1
        else []
    )
    return calibration_of(
        algorithm,
        spec,
        steps,
        phase,
        domain=ball(spec, spec.assumptions.get("diameter")),
        penalty=spec.penalty,
        hyperparameters=(iterations, *planned.recommended()) if planned else (),
        utility=(evaluations, *(planned.utility() if planned else ())),
        missing=setting.missing,
        warnings=unread,
        as_published=printed_noise(spec),
    )


ALGORITHM = Algorithm(
    name=NAME,
    summary=(
        "Noisy clipped subgradient steps on blocks of records, for convex losses that need not be smooth and have "
        "heavy-tailed subgradients. Each step uses all records of a block, and each block stays near the point "
        "where the last one ended."
    ),
    source=f"{PAPER}, Algorithms 3 and 4, Theorem 12",
    update=r"w \leftarrow \Pi_{W_i}\left(w - \eta_i\left(\tfrac{1}{n_i} \sum_{j \in B_i} \min(1, C_i/\|g_j\|) g_j"
    r" + \sigma_i Z + \lambda_i (w - w_{i-1})\right)\right),\; W_i = \{w \in W : \|w - w_{i-1}\| \le D_i\}",
    samplings=(DisjointBatches,),
    relations=RELATIONS,
    gradient_bounds=(Clip,),
    gradient_bound_required=False,
    assumptions=ASSUMPTIONS,
    guarantee="All points of all blocks together have the privacy of one Gaussian mechanism, and so does the last one.",
    gradient_complexity=r"\sum_i n_i T_i \approx \tfrac{2 p \ln n}{2^{p+1} - 1} n^{p+1}",
    verdict=(
        "For zCDP, the printed noise is exactly the noise that is needed. For targets in (epsilon, delta) it "
        "is loose, by the slack of Proposition 3. The verdict is computed for each request."
    ),
    errata=ERRATA,
    calibrate=calibrate,
    scope=heavy_tailed(Shape.CONVEX, needs_smoothness=False),
    example=Example(
        Spec(1_000_000, EXAMPLE_TARGET, dimension=20, assumptions=EXAMPLE_CONSTANTS),
        variants={
            "heavy tails": {
                "assumptions": {name: value for name, value in EXAMPLE_CONSTANTS.items() if name != "lipschitz"}
                | {"localization_power": 1.0}
            },
            "own threshold": {"gradient_bound": Clip(2.0), "iterations": 12},
        },
    ),
    requests={
        "localized_clipped_subgradient_theorem": ExampleRequest(
            "Localised clipped subgradients, convex losses without smoothness: blocks, steps, clip thresholds",
            {
                "dataset_size": 1000000,
                "dimension": 20,
                "target": {"kind": "zcdp", "rho": 0.5},
                "assumptions": {
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
