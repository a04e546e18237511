r"""The clipped noisy mean of heavy-tailed records, which is MeanOracle1 on all records (Algorithm 1, Lemma 6).

**Setting.** n i.i.d. records x in $\mathbb{R}^d$ with mean $\nu$ and k bounded moments,
$\mathbb{E}\|x\|^k \le r_k^k$. The release is

$$\tilde\nu = \frac1n \sum_{i=1}^n \Pi_C(x_i) + \frac{z C}{n} Z, \qquad Z \sim N(0, I_d).$$

**Update.** The release is one step of size 1 from 0 for the loss $\frac12\|w - x\|^2$, whose gradient at 0 is $-x$. So
a plan has one phase with one full batch, and a run trains the model `mean`, whose features are the records.

**Privacy.** The release is one Gaussian mechanism: a record moves the sum by at most C, or 2 C if it is replaced.

**Preset.** $C = r_k (\varepsilon_p n/\sqrt d)^{1/k}$ with $\varepsilon_p = 2/z$. This is the threshold of Theorems 9
and 11 for one round. With it, noise and squared bias contribute about equally to the error.

**Guarantee.** $\mathbb{E}\|\tilde\nu - \nu\|^2$ is the squared bias plus the variance, so it is at most $B^2 +
\Sigma^2$ (proved in `mean_oracle`). `lower_bound` is a lower bound on the error of every algorithm with the same zCDP,
for some distribution of such records. All of these assume that gradients are clipped at exactly C. The trainer leaves a
margin for rounding ($10^{-5}$ of C in float64, $2^{-7}$ in float32), which B does not include. The unit of the records
is called loss / parameter here, like the unit of gradients. The step size has no unit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from accounting.events import FullBatch
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest, read_assumptions
from calibrators.lowy_razaviyayn.lower_bounds import mean_lower_bound
from calibrators.lowy_razaviyayn.mean_oracle import MeanOracle
from calibrators.lowy_razaviyayn.moments import MOMENT_BOUND as GRADIENT_MOMENT_BOUND
from calibrators.lowy_razaviyayn.moments import MOMENT_BOUND_2 as GRADIENT_MOMENT_BOUND_2
from calibrators.lowy_razaviyayn.moments import MOMENT_ORDER as GRADIENT_MOMENT_ORDER
from calibrators.lowy_razaviyayn.moments import PAPER, Moments
from calibrators.lowy_razaviyayn.one_pass import RELATIONS, clip_of
from calibrators.lowy_razaviyayn.one_release import balanced_threshold, check_one_step
from calibrators.lowy_razaviyayn.printed_noise import printed_noise
from calibrators.lowy_razaviyayn.zcdp import paper_rho
from calibrators.noise import calibration_of, solve_gaussian_steps
from calibrators.plan import Clip, Phase
from calibrators.provenance import GRADIENT, Provenance, ProvenanceKind, Units
from calibrators.scopes import Measure, of_the_mean
from calibrators.spec import Calibration, Spec

_NAME = "clipped_mean"
#: The units of a squared distance between means.
_SQUARED = Units(loss=2, parameter=-2)

MOMENT_ORDER = replace(
    GRADIENT_MOMENT_ORDER, meaning=("the order k of the bounded moment of a record's norm; a real number")
)
MOMENT_BOUND = replace(
    GRADIENT_MOMENT_BOUND, meaning=("the bound r_k on the moment of the records: E[|x|^k]^(1/k) <= r_k")
)
MOMENT_BOUND_2 = replace(
    GRADIENT_MOMENT_BOUND_2, meaning=("the same bound for the second moment; if left out, r_k is used")
)
ASSUMPTIONS = (MOMENT_ORDER, MOMENT_BOUND, MOMENT_BOUND_2)

HOLDS = (
    "the records are independent and identically distributed, and dataset_size is their number",
    "the records' norms have a k-th moment of at most r_k^k, and a second moment of at most r_2^2",
)


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise, and C is chosen so that noise and squared bias contribute
    about equally to the error.

    Raises:
        InvalidValue: If a number is outside its range; if the threshold is missing and no preset can choose it; or if
            the spec asks for more than one step, a batch that is not all records, or a step size other than 1.
        Unsupported: If the number of steps or the batch size is solved for, or if a domain or a penalty is given.
        Unreachable: If no noise multiplier meets the target.
    """
    check_one_step(spec, _NAME)
    known = read_assumptions(ASSUMPTIONS, spec.assumptions, needed=[("dimension", spec.dimension)])
    steps = solve_gaussian_steps(replace(spec, iterations=1, batch_size=spec.dataset_size))
    moments = None
    if not known.missing:
        moments = Moments(known["moment_order"], known["moment_bound"], known.get("moment_bound_2"))
    preset = None
    if moments is not None:
        preset = balanced_threshold(moments, steps.noise_multiplier, spec.dataset_size, spec.need("dimension"))
    phase = Phase(steps.event, clip_of(spec, preset, "the moments and dimension"), spec.dataset_size, 1.0)
    hyperparameters: tuple[Provenance, ...] = ()
    evaluations = float(spec.dataset_size)
    utility: tuple[Provenance, ...] = (
        Provenance("gradient_evaluations", evaluations, "n", f"{PAPER}, Algorithm 1", ProvenanceKind.EXACT),
    )
    if moments is not None and preset is not None:
        oracle = MeanOracle(
            phase.gradient_bound.contribution_bound,
            spec.dataset_size,
            steps.noise_multiplier,
            spec.need("dimension"),
            moments,
        )
        hyperparameters = _recommended(preset)
        utility += _PlannedMean(oracle).utility()
    return calibration_of(
        _NAME,
        spec,
        steps,
        phase,
        hyperparameters=hyperparameters,
        utility=utility,
        missing=known.missing,
        as_published=printed_noise(spec, phase, algorithm=1, rounds=1),
    )


@dataclass(frozen=True, slots=True)
class _PlannedMean:
    """The planned mean and the moments of the records, from which bounds on the error follow.

    Attributes:
        oracle: The single call of the mean oracle.
    """

    oracle: MeanOracle

    def utility(self) -> tuple[Provenance, ...]:
        oracle, exact, derived = self.oracle, ProvenanceKind.EXACT, ProvenanceKind.DERIVED
        lemma = f"{PAPER}, Lemma 6"
        error = oracle.sharp_bias**2 + oracle.sharp_variance
        closed_form = oracle.bias**2 + oracle.variance
        return (
            Provenance(
                "mean_squared_error_bound",
                error,
                r"B^2 + \Sigma^2,\; B = \tfrac{(k-1)^{k-1}}{k^k} \tfrac{r_k^k}{C^{k-1}},\;"
                r" \Sigma^2 = d\sigma^2 + \tfrac{\min(r_2, C)^2}{n},\; \sigma = \tfrac{z C}{n}",
                f"{lemma} (constants derived)",
                derived,
                HOLDS,
                vacuous=error >= self._trivial,
                units=_SQUARED,
            ),
            Provenance(
                "mean_squared_error_bound_closed_form",
                closed_form,
                r"B^2 + \Sigma^2,\; B = \tfrac{r_k^k}{(k-1) C^{k-1}},\; \Sigma^2 = d\sigma^2 + \tfrac{r_2^2}{n}",
                f"{lemma}, the first and last terms of its two lines",
                exact,
                HOLDS,
                vacuous=closed_form >= self._trivial,
                units=_SQUARED,
            ),
            Provenance("bias", oracle.bias, r"\tfrac{r_k^k}{(k-1) C^{k-1}}", lemma, exact, HOLDS, units=GRADIENT),
            Provenance(
                "variance", oracle.variance, r"d\sigma^2 + \tfrac{r_2^2}{n}", lemma, exact, HOLDS, units=_SQUARED
            ),
            Provenance(
                "lower_bound",
                mean_lower_bound(
                    oracle.moments.order, oracle.moments.bound, oracle.batch_size, paper_rho(oracle.noise_multiplier)
                ),
                r"r_k^2 \max\left\{\tfrac{1}{12 n},\, \tfrac12 q^{(2k-2)/k}\right\},\;"
                r" q = \min\{1, 1/(n\sqrt{2\rho})\},\; \rho = 2/z^2",
                f"{PAPER}, Theorem 8 (its mean estimation, constants derived)",
                derived,
                (
                    "a lower bound for the worst distribution of records with these k and r_k, for every "
                    "algorithm that is as private as this plan in zCDP when a record is replaced",
                ),
                units=_SQUARED,
            ),
        )

    @property
    def _trivial(self) -> float:
        """The bound on the squared error of the answer 0, which reads no record."""
        return self.oracle.moments.second**2


def _recommended(threshold: float) -> tuple[Provenance, ...]:
    derived = ProvenanceKind.DERIVED
    return (
        Provenance("iterations", 1.0, "1", f"{PAPER}, Algorithm 1 (written as one step: derived)", derived),
        Provenance("step_size", 1.0, "1", f"{PAPER}, Algorithm 1 (written as one step: derived)", derived),
        Provenance(
            "max_grad_norm",
            threshold,
            r"C = r_k \left(\varepsilon_p n/\sqrt d\right)^{1/k},\; \varepsilon_p = 2/z",
            f"{PAPER}, Theorems 9 and 11 for one round (derived)",
            derived,
            units=GRADIENT,
        ),
    )


ALGORITHM = Algorithm(
    name=_NAME,
    summary="The mean of heavy-tailed records. Each record is clipped, all are averaged, and Gaussian noise is added.",
    source=f"{PAPER}, Algorithm 1, Lemma 6",
    update=r"\tilde\nu = \tfrac1n \sum_{i=1}^n \min(1, C/\|x_i\|) x_i + \tfrac{zC}{n} Z",
    samplings=(FullBatch,),
    relations=RELATIONS,
    gradient_bounds=(Clip,),
    gradient_bound_required=False,
    assumptions=ASSUMPTIONS,
    guarantee="The release is one Gaussian mechanism on all records.",
    gradient_complexity="n",
    verdict=(
        "Sound. For zCDP, the printed noise is the least that meets the target. For targets in (epsilon, "
        "delta), Proposition 3 asks for more than is needed. The verdict is computed for each request."
    ),
    errata=(
        "In Lemma 6, the chain of inequalities for the bias has the middle term E|nu_hat - nu|. This term "
        "includes the sampling error, so its printed bound is false. The bound on the bias itself holds.",
        (
            "The bias in Lemma 6 has the factor 1/(k-1). The smallest valid factor is (k-1)^(k-1)/k^k, which a "
            "two-point distribution attains."
        ),
        (
            "The paper gives no threshold for estimating a mean. Here the threshold is that of its theorems for "
            "one round."
        ),
    ),
    calibrate=calibrate,
    scope=of_the_mean(Measure.MEAN_SQUARED_ERROR),
    one_step=True,
    example=Example(
        Spec(100_000, EXAMPLE_TARGET, dimension=50, assumptions={"moment_order": 4.0, "moment_bound": 2.0}),
        variants={"own threshold": {"gradient_bound": Clip(8.0)}},
    ),
    requests={
        "clipped_mean": ExampleRequest(
            "The clipped noisy mean of records with three moments: threshold, noise, error",
            {
                "dataset_size": 10000,
                "dimension": 10,
                "target": {"kind": "zcdp", "rho": 0.5},
                "assumptions": {"moment_order": 3, "moment_bound": 2, "moment_bound_2": 1.5},
            },
        )
    },
)
