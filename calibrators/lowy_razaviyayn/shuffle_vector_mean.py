r"""The clipped mean from shuffled single-bit messages, which is P_vec (Algorithms 10, 11 and 14; Lemmas 49, 50 and 56).

**Setting.** There are n i.i.d. records x in $\mathbb{R}^d$ with mean $\nu$ and k bounded moments, $\mathbb{E}\|x\|^k
\le r_k^k$. Each record belongs to a user who trusts only a shuffler.

**Protocol.** A user clips the record to length C and shifts its coordinates to $[0, 2C]$. Each becomes an integer from
0 to g by unbiased random rounding of $(\Pi_C(x)_j + C) \tfrac{g}{2C}$, and is sent as this many ones, filled up with
zeros to g bits, and b fair coins. With $Y_j$ the number of ones among all users' bits of coordinate j,

$$\tilde\nu_j = \frac{2C}{g n} \Big(Y_j - \frac{b n}{2}\Big) - C.$$

All users send messages. A user without a record sends the messages for a record of zeros. The number of messages is
visible, so n is public.

**Privacy.** An observer of the shuffler's output sees only $Y$, which is $(\epsilon, \delta)$-DP for the replacement of
a record. The module `shuffled_sums` contains the lemma, its conditions and the composition of the coordinates. Two
records are at most 2 C apart in the l2 norm, or C if one of them is null: $K = 1 + 2\sqrt d/g$ or $\tfrac12 + 2\sqrt
d/g$. With $\hat\delta = \delta/(2d)$,

$$\hat\epsilon = \frac{\sqrt2}{K} \Big(\sqrt{\ln\tfrac2\delta + \epsilon} - \sqrt{\ln\tfrac2\delta}\Big), \qquad
  b = \Big\lfloor \frac{180 g^2 \ln(2/\hat\delta)}{\hat\epsilon^2 n} \Big\rfloor + 1, \qquad
  g = \lceil \max(6, \sqrt n, 2\sqrt d) \rceil.$$

The paper says that suitable g, b and p exist, but prints none. The constants of Lemma 56 are far from sharp: by exact
evaluation, the probability of a larger likelihood ratio is smaller than delta by many orders of magnitude.

**Preset.** $C = r_k (2 n/(z \sqrt d))^{1/k}$ with $z = \sqrt{n b}/g$, the standard deviation of the noise divided by C.
As with a trusted curator, noise and squared bias then contribute about equally to the error.

**Guarantee.** Rounding and coins are unbiased, so the mean squared error is the squared bias of clipping, the sampling
variance, and at most $d C^2 (1 + b)/(g^2 n)$. At epsilon 1, delta 1e-6, d = 10 and n = 400 that noise has 38 times the
standard deviation of the Gaussian noise with which a trusted curator (`clipped_mean`, Proposition 3) would do. The
bound assumes that records are clipped at exactly C; the bias does not include the trainer's margin for rounding. The
noise multiplier is z. A request can give it and solve for epsilon or delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.events import FullBatch
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest, read_assumptions
from calibrators.as_published import AsPublished
from calibrators.lowy_razaviyayn.clipped_mean import ASSUMPTIONS as CLIPPED_MEAN_ASSUMPTIONS
from calibrators.lowy_razaviyayn.clipped_mean import HOLDS
from calibrators.lowy_razaviyayn.mean_oracle import MeanOracle
from calibrators.lowy_razaviyayn.moments import ORDER_CONSTANT, PAPER, Moments
from calibrators.lowy_razaviyayn.one_pass import clip_of
from calibrators.lowy_razaviyayn.one_release import balanced_threshold, check_one_step
from calibrators.lowy_razaviyayn.printed_noise import judge_counts
from calibrators.lowy_razaviyayn.shuffled_noise import Solved, check_target, solve_counts
from calibrators.lowy_razaviyayn.shuffled_sums import (
    composed_epsilon,
    levels_for,
    noise_bits,
    reach_in_l2,
    share_of_delta,
)
from calibrators.noise import calibration_of
from calibrators.phases.shuffled_counts import ShuffledCounts
from calibrators.plan import Clip
from calibrators.provenance import GRADIENT, Provenance, ProvenanceKind, Units
from calibrators.scopes import Measure, of_the_mean
from calibrators.spec import Calibration, Spec

_NAME = "shuffle_vector_mean"
_SQUARED = Units(loss=2, parameter=-2)
#: Half of the largest distance between a replaced record's two vectors, divided by C.
_REPLACED = 1.0
ASSUMPTIONS = (*CLIPPED_MEAN_ASSUMPTIONS, ORDER_CONSTANT)
_DERIVED = f"{PAPER}, Algorithms 11 and 14, Lemma 56 (composition as approximate zCDP derived)"


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the number of noise bits has a closed form, and C is chosen so that noise and squared bias
    contribute about equally to the error.

    Raises:
        InvalidValue: If a number is outside its range; if the dimension is missing, because the privacy depends on it;
            or if the threshold is missing and no preset can choose it.
        Unsupported: If the target is not (epsilon, delta); if the target is outside the range of Lemma 56; or if sizes,
            a domain or a penalty are given.
        Unreachable: If no number of noise bits meets the target.
    """
    check_target(spec)
    check_one_step(spec, _NAME)
    dimension = spec.need("dimension", "each coordinate is a separate sum, and all coordinates share the privacy loss")
    known = read_assumptions(ASSUMPTIONS, spec.assumptions, needed=[])
    n = spec.dataset_size
    levels = _levels(n, dimension)
    change = float(spec.relation.sensitivity)
    reach = reach_in_l2(0.5 * change, dimension, levels)
    solved = solve_counts(spec, n, dimension, levels, reach)
    noise_multiplier = solved.counts.noise_multiplier
    moments = preset = None
    if not known.missing:
        moments = Moments(known["moment_order"], known["moment_bound"], known.get("moment_bound_2"))
        preset = balanced_threshold(moments, noise_multiplier, n, dimension)
    phase = ShuffledCounts(
        event=solved.steps.event,
        users=n,
        dimension=dimension,
        max_grad_norm=clip_of(spec, preset, "the moments").max_grad_norm,
        change=change,
        levels=levels,
        noise_bits=solved.counts.noise_bits,
        flip_probability=0.5,
        coordinate_epsilon=solved.coordinate_epsilon,
        coordinate_delta=solved.coordinate_delta,
    )
    exact = ProvenanceKind.EXACT
    planned = None if moments is None else _PlannedMean(phase, moments, known["order_constant"])
    return calibration_of(
        _NAME,
        spec,
        solved.steps,
        phase,
        hyperparameters=_hyperparameters(phase, solved, preset),
        utility=(
            Provenance("gradient_evaluations", float(n), "n", f"{PAPER}, Algorithm 10", exact),
            Provenance("message_bits", float(phase.message_bits), r"n d (g + b)", f"{PAPER}, Algorithm 14", exact),
            *(planned.utility() if planned else ()),
        ),
        missing=known.missing,
        as_published=_earlier_preset(spec, phase),
    )


@dataclass(frozen=True, slots=True)
class _PlannedMean:
    """The planned mean and the moments of the records, from which bounds on the error follow.

    Attributes:
        phase: The plan's single phase.
        moments: The moments of the records.
        order_constant: The order constant of the rate.
    """

    phase: ShuffledCounts
    moments: Moments
    order_constant: float

    @property
    def oracle(self) -> MeanOracle:
        """A mean oracle with Gaussian noise. Its variance is that of the coins plus the largest variance of the
        rounding.
        """
        phase = self.phase
        multiplier = phase.counts.multiplier_with_rounding
        return MeanOracle(phase.max_grad_norm, phase.users, multiplier, phase.dimension, self.moments)

    def utility(self) -> tuple[Provenance, ...]:
        phase, oracle = self.phase, self.oracle
        exact, derived = ProvenanceKind.EXACT, ProvenanceKind.DERIVED
        error = oracle.sharp_bias**2 + oracle.sharp_variance
        return (
            Provenance(
                "mean_squared_error_bound",
                error,
                r"B^2 + V + \tfrac{\min(r_2, C)^2}{n},\; B = \tfrac{(k-1)^{k-1}}{k^k} \tfrac{r_k^k}{C^{k-1}},\;"
                r" V = \tfrac{d C^2 (1 + b)}{g^2 n}",
                f"{PAPER}, Lemma 49 (constants derived)",
                derived,
                HOLDS,
                vacuous=error >= self.moments.second**2,
                units=_SQUARED,
            ),
            Provenance(
                "protocol_variance",
                phase.dimension * oracle.noise_variance,
                r"V = \tfrac{4 d C^2}{n^2 g^2} \left(\tfrac n4 + \tfrac{n b}{4}\right)",
                f"{PAPER}, Lemma 56 (its variance, derived)",
                derived,
                ("an upper bound on the variance of rounding and coins together, for all records",),
                units=_SQUARED,
            ),
            Provenance(
                "bias",
                oracle.bias,
                r"\tfrac{r_k^k}{(k-1) C^{k-1}}",
                f"{PAPER}, Lemma 49",
                exact,
                HOLDS,
                units=GRADIENT,
            ),
            Provenance(
                "variance_rate",
                self._rate(),
                r"c \left(\tfrac{d C^2 \ln^2(d/\delta)}{\varepsilon^2 n^2} + \tfrac{r_2^2}{n}\right)",
                f"{PAPER}, Lemma 49",
                ProvenanceKind.ORDER,
                (*HOLDS, f"constant c = {self.order_constant:g} (order_constant)"),
                units=_SQUARED,
            ),
        )

    def _rate(self) -> float:
        phase, charged = self.phase, self.phase.charged
        noise = phase.max_grad_norm * math.log(phase.dimension / charged.delta) / (charged.epsilon * phase.users)
        return self.order_constant * (phase.dimension * noise**2 + self.moments.second**2 / phase.users)


def _levels(users: int, dimension: int) -> int:
    """Return a number of levels for which rounding adds little to the variance and at most 1 to K."""
    return levels_for(users, least=2.0 * math.sqrt(dimension))


def _hyperparameters(phase: ShuffledCounts, solved: Solved, preset: float | None) -> tuple[Provenance, ...]:
    derived, counts = ProvenanceKind.DERIVED, solved.counts
    change = "the first term of K is 1 under replace_one and 1/2 under replace_special"
    found = [
        Provenance("iterations", 1.0, "1", f"{PAPER}, Algorithm 11 (written as one step: derived)", derived),
        Provenance("noise_multiplier", counts.noise_multiplier, r"z = \sqrt{n b}/g", _DERIVED, derived, (change,)),
        Provenance("levels", float(phase.levels), r"g = \lceil \max(6, \sqrt n, 2 \sqrt d) \rceil", _DERIVED, derived),
        Provenance(
            "noise_bits",
            float(phase.noise_bits),
            r"b = \left\lfloor \tfrac{180 g^2 \ln(2/\hat\delta)}{\hat\varepsilon^2 n} \right\rfloor + 1",
            _DERIVED,
            derived,
            ("the number of fair coins for each record and coordinate",),
        ),
        Provenance(
            "coordinate_epsilon",
            phase.coordinate_epsilon,
            r"\hat\varepsilon = \tfrac{\sqrt 2}{K} \left(\sqrt{\ln(2/\delta) + \varepsilon} - \sqrt{\ln(2/\delta)}"
            r"\right),\; K = 1 + 2\sqrt d/g",
            _DERIVED,
            derived,
            (change,),
        ),
        Provenance("coordinate_delta", phase.coordinate_delta, r"\hat\delta = \delta/(2d)", _DERIVED, derived),
    ]
    if preset is not None:
        found.append(
            Provenance(
                "max_grad_norm",
                preset,
                r"C = r_k \left(\varepsilon_p n/\sqrt d\right)^{1/k},\; \varepsilon_p = 2/z",
                f"{PAPER}, Theorems 9 and 11 for one round (derived)",
                derived,
                units=GRADIENT,
            )
        )
    return tuple(found)


def _earlier_preset(spec: Spec, phase: ShuffledCounts) -> AsPublished | None:
    """Judge the parameters of the earlier paper that introduced P_vec. The cost is computed as for the plan, if a
    record is replaced.
    """
    target = spec.target
    if not isinstance(target, ApproximateDpTarget):
        return None
    dimension, users = phase.dimension, phase.users
    epsilon = target.epsilon / (18.0 * math.sqrt(math.log(2.0 / target.delta)))
    levels = math.ceil(max(2.0 * math.sqrt(users), dimension, 4.0))
    bits = noise_bits(users, levels, epsilon, share_of_delta(target.delta, dimension))
    printed = math.sqrt(users * bits) / levels
    cost = composed_epsilon(epsilon, 0.5 * target.delta, reach_in_l2(_REPLACED, dimension, levels))
    why = (
        "The paper says that suitable g, b and p exist, but prints none. The parameters of the earlier paper cost "
        f"{cost:.6g}"
    )
    verdict, why = judge_counts(spec, why, cost, printed, phase, reach_in_l2(_REPLACED, dimension, phase.levels))
    return AsPublished(
        verdict,
        why,
        f"{PAPER}, Algorithm 11 (prints no parameters; secondary: Cheu, Joseph, Mao & Peng 2021, as recalled)",
        r"\hat\varepsilon = \tfrac{\varepsilon}{18 \sqrt{\ln(2/\delta)}},\; \hat\delta = \tfrac{\delta}{2d},\;"
        r" g = \lceil \max(2\sqrt n, d, 4) \rceil",
        noise_multiplier=printed,
        noise_stddev_on_mean=printed * phase.max_grad_norm / users,
    )


ALGORITHM = Algorithm(
    name=_NAME,
    summary=(
        "The mean of heavy-tailed records, without a trusted curator. Records are clipped, rounded and sent as "
        "shuffled bits."
    ),
    source=f"{PAPER}, Algorithms 10, 11 and 14, Lemmas 49 and 56",
    update=r"\tilde\nu_j = \tfrac{2C}{g n} \left(Y_j - \tfrac{b n}{2}\right) - C,\;"
    r" Y_j = \sum_i \hat z_{ij} + \mathrm{Bin}(n b, \tfrac12)",
    samplings=(FullBatch,),
    relations=(NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL),
    gradient_bounds=(Clip,),
    gradient_bound_required=False,
    assumptions=ASSUMPTIONS,
    guarantee=(
        "The output of the shuffler, which is the number of ones in each coordinate, is (epsilon, "
        "delta)-differentially private. So is the released mean."
    ),
    gradient_complexity="n",
    verdict=(
        "The paper prints no parameters. The parameters of the earlier paper that it builds on are sound, with "
        "several times the noise that is needed. The verdict is computed for each request."
    ),
    errata=(
        "Algorithm 11 subtracts one clip radius to undo the shift, but for a sum of n shifted numbers, n clip "
        "radii must be subtracted. Algorithm 10 omits the division by the number of records, although its "
        "variance is stated with this division.",
        (
            "Lemma 56 asks for g >= tau sqrt(s), which compares a number of levels with a length. g >= sqrt(s) is "
            "enough."
        ),
        (
            "Lemma 56 is false for one level and epsilon >= 11 (by exact evaluation), because its proof needs g >= "
            "0.389 epsilon. Here at least 6 levels are used."
        ),
        (
            "Lemma 56 has p below 1/2. Here p is the limit 1/2, for which the lemma holds by continuity. So noise "
            "bits are fair coins, which are drawn exactly. The number of bits and the variance agree with those of "
            "the printed p to within 1e-5."
        ),
    ),
    calibrate=calibrate,
    scope=of_the_mean(Measure.MEAN_SQUARED_ERROR),
    one_step=True,
    example=Example(
        Spec(100_000, EXAMPLE_TARGET, dimension=20, assumptions={"moment_order": 4.0, "moment_bound": 2.0}),
        variants={"own threshold": {"gradient_bound": Clip(8.0)}},
    ),
    requests={
        "shuffle_vector_mean": ExampleRequest(
            "The mean of heavy-tailed records without a trusted curator: users send shuffled bits",
            {
                "dataset_size": 10000,
                "dimension": 10,
                "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
                "assumptions": {"moment_order": 3, "moment_bound": 2, "moment_bound_2": 1.5},
            },
        )
    },
)
