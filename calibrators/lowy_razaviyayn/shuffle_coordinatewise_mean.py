r"""Coordinate-wise medians of means from shuffled single-bit messages: ShuffleMeanOracle2 (Algorithm 13, Prop. 53).

**Setting.** There are n i.i.d. records x in $\mathbb{R}^d$ with mean $\nu$, $\|\nu\| \le L$, and k bounded central
moments in each coordinate, $\mathbb{E}|x_j - \nu_j|^k \le \gamma$. Users trust only a shuffler.

**Protocol.** A secret permutation cuts the users into m groups of $b = \lfloor n/m \rfloor$. Each clamps the record's
coordinates to $[-\tau, \tau]$, rounds $(\Pi(x_j) + \tau) \tfrac{g}{2\tau}$ to a neighbouring integer at random without
bias, and sends this many ones, filled up with zeros to g bits, and B fair coins. With $Y_j^i$ the number of ones of
group i,

$$\tilde\nu_j = \mathrm{median}_{i \le m}\Big(\frac{2\tau}{g b} \Big(Y_j^i - \frac{b B}{2}\Big) - \tau\Big),$$

with the lower median for an even m. All users of a group send messages. A user without a record sends the messages for
a record of zeros.

**Privacy.** A record takes part in one count of each coordinate and moves this count by at most g. This costs at most
$\hat\epsilon$ at $\hat\delta$ (Lemma 56; its conditions and the composition are in `shuffled_sums`). The clamp bounds
each coordinate alone, so all d coordinates may move by g: $K = \sqrt d$, or $\sqrt d \lceil g/2 \rceil/g$ if the record
becomes null. With $\hat\delta = \delta/(2d)$,

$$\hat\epsilon = \frac{\sqrt2}{K} \Big(\sqrt{\ln\tfrac2\delta + \epsilon} - \sqrt{\ln\tfrac2\delta}\Big), \qquad
  B = \Big\lfloor \frac{180 g^2 \ln(2/\hat\delta)}{\hat\epsilon^2 b} \Big\rfloor + 1, \qquad
  g = \lceil \max(6, \sqrt b) \rceil.$$

**Preset.** m is the number of groups of `coordinatewise_mean`, and $\tau$ is the radius that minimises the sum of bias
and noise.

**Guarantee.** `error_bound` holds with probability at least $1 - \zeta$. The proof of `median_of_means` uses only the
variance of a group's mean, to which rounding and coins add at most $\tau^2 (1 + B)/(g^2 b)$, without bias. The bound
assumes that coordinates are clamped at exactly $\tau$; it does not include the trainer's margin for rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.events import FullBatch
from accounting.relations import NeighboringRelation
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest, Given, read_assumptions
from calibrators.lowy_razaviyayn.median_of_means import groups_needed
from calibrators.lowy_razaviyayn.medians_at_plan import HOLDS
from calibrators.lowy_razaviyayn.medians_setting import (
    ASSUMPTIONS,
    best_radius,
    medians_of,
    read_groups,
    read_radius,
    warnings_of,
)
from calibrators.lowy_razaviyayn.moments import PAPER
from calibrators.lowy_razaviyayn.one_release import check_one_step
from calibrators.lowy_razaviyayn.printed_noise import printed_calibration
from calibrators.lowy_razaviyayn.shuffled_noise import check_target, solve_counts
from calibrators.lowy_razaviyayn.shuffled_sums import (
    levels_for,
    reach_of_coordinates,
)
from calibrators.noise import calibration_of
from calibrators.phases.shuffled_medians import ShuffledMedians
from calibrators.provenance import GRADIENT, Provenance, ProvenanceKind, Units
from calibrators.scopes import Measure, of_the_mean
from calibrators.spec import Calibration, Spec

_NAME = "shuffle_coordinatewise_mean"
_SQUARED = Units(loss=2, parameter=-2)
_DERIVED = f"{PAPER}, Algorithms 13 and 14, Lemma 56 (composition as approximate zCDP derived)"
_TOO_SMALL = "tau >= 2 L; this does not hold here"


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the number of noise bits has a closed form, m suffices for the error bound, and tau minimises
    the sum of bias and noise.

    Raises:
        InvalidValue: If a number is outside its range; if the dimension is missing, because the privacy depends on it;
            if tau is missing and no preset can choose it; or if there are more groups than records.
        Unsupported: If the target is not (epsilon, delta); if the target is outside the range of Lemma 56; or if sizes,
            a domain or a penalty are given.
        Unreachable: If no number of noise bits meets the target.
    """
    check_target(spec)
    check_one_step(spec, _NAME)
    known = read_assumptions(ASSUMPTIONS, spec.assumptions)
    dimension = spec.need("dimension", "each coordinate is a separate sum, and all coordinates share the privacy loss")
    recommended_groups = groups_needed(dimension, known["failure_probability"])
    groups = read_groups(spec, known, recommended_groups)
    size = spec.dataset_size // groups
    levels = levels_for(size)
    change = float(spec.relation.sensitivity)
    solved = solve_counts(spec, size, dimension, levels, reach_of_coordinates(change, dimension, levels))
    preset = None
    if not known.missing:
        p = medians_of(known, dimension, groups, size, 1.0).bad_group_probability
        deviation = solved.counts.multiplier_with_rounding / size / math.sqrt(p)
        preset = best_radius(known, dimension, math.sqrt(dimension) * deviation)
    radius = read_radius(known, preset)
    phase = ShuffledMedians(
        event=solved.steps.event,
        groups=groups,
        users=size,
        dimension=dimension,
        truncation_radius=radius,
        change=change,
        levels=levels,
        noise_bits=solved.counts.noise_bits,
        flip_probability=0.5,
        coordinate_epsilon=solved.coordinate_epsilon,
        coordinate_delta=solved.coordinate_delta,
    )
    exact = ProvenanceKind.EXACT
    planned = None if known.missing else _PlannedMedians(phase, spec.dataset_size, known)
    return calibration_of(
        _NAME,
        spec,
        solved.steps,
        phase,
        hyperparameters=_hyperparameters(phase, recommended_groups, preset),
        utility=(
            Provenance("gradient_evaluations", float(phase.batch_size), r"m b \le n", f"{PAPER}, Algorithm 13", exact),
            Provenance("message_bits", float(phase.message_bits), r"m b d (g + B)", f"{PAPER}, Algorithm 14", exact),
            *(planned.utility() if planned else ()),
        ),
        missing=known.missing,
        warnings=warnings_of(radius, known["mean_bound"]) if planned else (),
        as_published=printed_calibration(spec, phase),
    )


@dataclass(frozen=True, slots=True)
class _PlannedMedians:
    """The planned medians and the known constants, from which bounds on the error follow.

    Attributes:
        phase: The plan's single phase.
        records: The number n of records.
        known: The known constants.
    """

    phase: ShuffledMedians
    records: int
    known: Given

    @property
    def _is_covered(self) -> bool:
        return self.phase.truncation_radius >= 2.0 * self.known["mean_bound"]

    def utility(self) -> tuple[Provenance, ...]:
        phase, known, derived = self.phase, self.known, ProvenanceKind.DERIVED
        medians = medians_of(known, phase.dimension, phase.groups, phase.users, phase.truncation_radius)
        variance = (phase.truncation_radius * phase.counts.multiplier_with_rounding / phase.users) ** 2
        outside = () if self._is_covered else (_TOO_SMALL,)
        error = medians.error(variance) if self._is_covered else None
        c = known["order_constant"]
        return (
            Provenance(
                "error_bound",
                error,
                r"\sqrt d \left(\beta + \sqrt{\tfrac{\min(\gamma^{1/k}, \tau)^2/b + V}{p}}\right),\;"
                r" \beta = \tfrac{(k-1)^{k-1}}{k^k} \gamma (2/\tau)^{k-1},\; V = \tfrac{\tau^2 (1 + B)}{g^2 b},\;"
                r" p = \tfrac12 \left(1 - \sqrt{1 - (\zeta/(2d))^{2/m}}\right)",
                f"{PAPER}, Proposition 53 (proof and constants derived)",
                derived,
                (*HOLDS, f"with probability at least 1 - zeta = {1.0 - known['failure_probability']:g}", *outside),
                vacuous=None if error is None else error >= known["mean_bound"],
                units=GRADIENT,
            ),
            Provenance(
                "group_variance",
                variance,
                r"V = \tfrac{\tau^2 (1 + B)}{g^2 b}",
                f"{PAPER}, Lemma 56 (its variance, derived)",
                derived,
                (
                    "an upper bound on the variance of rounding and coins in a coordinate of a group's mean, for "
                    "all records",
                ),
                units=_SQUARED,
            ),
            Provenance(
                "bias",
                medians.bias if self._is_covered else None,
                r"\beta = \tfrac{(k-1)^{k-1}}{k^k} \gamma (2/\tau)^{k-1}",
                f"{PAPER}, Proposition 53 (constants derived)",
                derived,
                (*HOLDS, "of each coordinate", *outside),
                units=GRADIENT,
            ),
            Provenance(
                "variance_rate",
                c * self._rate() if self._is_covered else None,
                r"c \left(\tfrac{d^2 \tau^2 \ln^2(d/\delta)}{n^2 \varepsilon^2} + d \left(\tfrac{\gamma^{2/k}}{n} +"
                r" \gamma^2 (2/\tau)^{2k-2}\right)\right)",
                f"{PAPER}, Proposition 53 (with its first term times d, as in the proof)",
                ProvenanceKind.ORDER,
                (*HOLDS, f"order_constant c = {c:g}", "the rate is without other logarithms", *outside),
                units=_SQUARED,
            ),
        )

    def _rate(self) -> float:
        phase, known, d = self.phase, self.known, self.phase.dimension
        noise = d * phase.truncation_radius * math.log(d / phase.charged.delta)
        k, g = known["moment_order"], known["coordinate_moment_bound"]
        cut = g * math.pow(2.0 * g / phase.truncation_radius, k - 1.0)
        return (noise / (self.records * phase.charged.epsilon)) ** 2 + d * (g**2 / self.records + cut**2)


def _hyperparameters(phase: ShuffledMedians, groups: int, preset: float | None) -> tuple[Provenance, ...]:
    derived = ProvenanceKind.DERIVED
    change = "K is sqrt(d) under replace_one and sqrt(d) ceil(g/2)/g under replace_special"
    found = [
        Provenance("iterations", 1.0, "1", f"{PAPER}, Algorithm 13 (written as one step: derived)", derived),
        Provenance(
            "num_groups",
            float(groups),
            r"m = \lceil \ln(2d/\zeta)/0.4802 \rceil",
            f"{PAPER}, Lemma 52 (with a smaller constant: derived)",
            derived,
        ),
        Provenance(
            "noise_multiplier", phase.counts.noise_multiplier, r"z = \sqrt{b B}/g", _DERIVED, derived, (change,)
        ),
        Provenance("levels", float(phase.levels), r"g = \lceil \max(6, \sqrt b) \rceil", _DERIVED, derived),
        Provenance(
            "noise_bits",
            float(phase.noise_bits),
            r"B = \left\lfloor \tfrac{180 g^2 \ln(2/\hat\delta)}{\hat\varepsilon^2 b} \right\rfloor + 1",
            _DERIVED,
            derived,
            ("the number of fair coins for each record and coordinate",),
        ),
        Provenance(
            "coordinate_epsilon",
            phase.coordinate_epsilon,
            r"\hat\varepsilon = \tfrac{\sqrt 2}{K} \left(\sqrt{\ln(2/\delta) + \varepsilon} - \sqrt{\ln(2/\delta)}"
            r"\right),\; K = \sqrt d",
            _DERIVED,
            derived,
            (change,),
        ),
        Provenance("coordinate_delta", phase.coordinate_delta, r"\hat\delta = \delta/(2d)", _DERIVED, derived),
    ]
    if preset is not None:
        found.append(
            Provenance(
                "truncation_radius",
                preset,
                r"\tau = \max\left\{2L,\; 2 \gamma^{1/k} \left(\tfrac{(k-1)^k}{k^k} \tfrac{\sqrt d}{2N}\right)^{1/k}"
                r"\right\},\; N = \sqrt{\tfrac{d (1 + B)}{p g^2 b}}",
                f"{PAPER}, Proposition 53 (bias and noise balanced: derived)",
                derived,
                units=GRADIENT,
            )
        )
    return tuple(found)


ALGORITHM = Algorithm(
    name=_NAME,
    summary=(
        "The mean of records with heavy-tailed coordinates, without a trusted curator. Medians of groups' means "
        "are computed from shuffled bits."
    ),
    source=f"{PAPER}, Algorithms 13 and 14, Proposition 53, Lemma 56",
    update=r"\tilde\nu_j = \mathrm{median}_{i \le m}\left(\tfrac{2\tau}{g b} \left(Y_j^i - \tfrac{b B}{2}\right) - \tau"
    r"\right),\; Y_j^i = \sum_{x \in G_i} \hat z_j + \mathrm{Bin}(b B, \tfrac12)",
    samplings=(FullBatch,),
    relations=(NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL),
    gradient_bounds=(),
    gradient_bound_required=False,
    assumptions=ASSUMPTIONS,
    guarantee=(
        "The output of the shuffler, which is the number of ones in each group and coordinate, is (epsilon, "
        "delta)-differentially private. So are the released medians."
    ),
    gradient_complexity=r"m b \le n",
    verdict=(
        "The printed epsilon_j is sound where the paper's composition is sound. This holds only for smaller "
        "epsilon than the paper says. The noise is larger than needed. The verdict is computed for each "
        "request."
    ),
    errata=(
        "Proposition 53 asks for epsilon <= 8 ln(2 d / delta). But its inequality eps^2/(4 ln(1/delta_1)) + "
        "eps/2 <= eps needs epsilon <= 2 ln(2 d / delta), and also a small epsilon_1. epsilon' is computed for "
        "each request.",
        (
            "The proof composes calls of 2 epsilon_j each. By Lemma 56, counts that differ by at most g cost only "
            "epsilon_j. Here d such costs are composed as approximate zCDP."
        ),
        "The first term of the variance in Proposition 53 lacks a factor d from the sum over d coordinates.",
        "The paper's text names Algorithm 8 where Algorithm 13 is meant.",
        (
            "The listing needs m to divide n. Here a group has floor(n/m) records, and up to m - 1 records are in "
            "no group."
        ),
        (
            "Here noise bits are fair coins, which is the limit of p below 1/2 in Lemma 56. At least 6 levels are "
            "used, because the lemma is false for one level and large epsilon."
        ),
        "The paper does not say which median is meant for an even m. Here it is the lower median.",
    ),
    calibrate=calibrate,
    scope=of_the_mean(Measure.MEAN_ERROR),
    one_step=True,
    example=Example(
        Spec(
            1_000_000,
            EXAMPLE_TARGET,
            dimension=10,
            assumptions={"moment_order": 4.0, "coordinate_moment_bound": 1.0, "mean_bound": 2.0},
        ),
        variants={
            "given radius and groups": {
                "assumptions": {
                    "moment_order": 4.0,
                    "coordinate_moment_bound": 1.0,
                    "mean_bound": 2.0,
                    "truncation_radius": 6.0,
                    "num_groups": 32.0,
                }
            }
        },
    ),
    requests={
        "shuffle_coordinatewise_mean": ExampleRequest(
            "Coordinate-wise medians of means without a trusted curator: shuffled bits in each group",
            {
                "dataset_size": 1000000,
                "dimension": 10,
                "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-6},
                "assumptions": {"moment_order": 4, "coordinate_moment_bound": 1, "mean_bound": 2},
            },
        )
    },
)
