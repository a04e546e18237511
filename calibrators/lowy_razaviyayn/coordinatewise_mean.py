r"""The coordinate-wise median of means of heavy-tailed records, which is MeanOracle2 on all records (Algorithm 12,
Lemma 52).

**Setting.** n i.i.d. records x in $\mathbb{R}^d$ with mean $\nu$, $\|\nu\| \le L$, and k bounded central moments in
each coordinate: $\mathbb{E}|x_j - \nu_j|^k \le \gamma$. $\Pi$ clamps a coordinate to $[-\tau, \tau]$. A secret
permutation cuts the records into m groups of $b = \lfloor n/m \rfloor$. The release is

$$\tilde\nu_j = \mathrm{median}_{i \le m}\Big(\frac1b \sum_{x \in G_i} \Pi(x_j)\Big) + \sigma Z_j, \qquad
  Z \sim N(0, I_d), \quad \sigma = \frac{z \sqrt d\, \tau}{b}.$$

**Privacy.** The release is one Gaussian mechanism. A record is in one group. It moves this group's mean by at most
$\tau/b$ in each coordinate, or by $2\tau/b$ if the record is replaced. A median (the lower one for an even m) moves by
no more than the number that moves most. So the medians move by at most $\sqrt d\,\tau/b$, or twice that, in the l2
norm. This is the sensitivity of a mean of b vectors of length $\sqrt d\,\tau$. The relation of adding or removing a
record is refused, because the other records would change groups.

**Preset.** $m = \lceil \ln(2d/\zeta)/0.4802 \rceil$, with which the medians are nearly as accurate as with the best m,
and the $\tau$ that minimises the sum of bias and noise.

**Guarantee.** `error_bound` holds with probability at least $1 - \zeta$ (proved in `median_of_means`). It assumes that
coordinates are clamped at exactly $\tau$. The trainer leaves a margin for rounding ($10^{-5}$ of $\tau$), which the
bias does not include. The unit of the records is called loss / parameter here, like the unit of gradients. As in
`clipped_mean`, a run is one step of size 1 from 0 for the model `mean`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from accounting.events import FullBatch
from accounting.relations import NeighboringRelation
from calibrators.algorithm import (
    EXAMPLE_TARGET,
    Algorithm,
    Example,
    ExampleRequest,
    read_assumptions,
)
from calibrators.as_published import AsPublished
from calibrators.lowy_razaviyayn.median_of_means import (
    groups_needed,
    noise_stddev_on_medians,
    normal_length,
)
from calibrators.lowy_razaviyayn.medians_at_plan import PlannedMedians, recommended
from calibrators.lowy_razaviyayn.medians_setting import (
    ASSUMPTIONS,
    best_radius,
    medians_of,
    read_groups,
    read_radius,
)
from calibrators.lowy_razaviyayn.moments import PAPER
from calibrators.lowy_razaviyayn.one_release import check_one_step
from calibrators.lowy_razaviyayn.printed_noise import judged, printed_noise_multiplier, rho_of
from calibrators.noise import calibration_of, solve_gaussian_steps
from calibrators.phases.median_of_means import MedianPhase
from calibrators.provenance import Provenance, ProvenanceKind
from calibrators.scopes import Measure, of_the_mean
from calibrators.spec import Calibration, Spec

_NAME = "coordinatewise_mean"
#: The relation of adding or removing a record is left out, because later records might then change groups.
RELATIONS = (NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL)


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise, m is large enough for the error bound, and tau minimises the
    sum of bias and noise.

    Raises:
        InvalidValue: If a number is outside its range; if the number of parameters is missing; if tau is missing and no
            preset can choose it; or if there are more groups than records, or the spec asks for more than one step, a
            batch that is not all records, or a step size other than 1.
        Unsupported: If the number of steps or the batch size is solved for, or if a domain or a penalty is given.
        Unreachable: If no noise multiplier meets the target.
    """
    check_one_step(spec, _NAME)
    known = read_assumptions(ASSUMPTIONS, spec.assumptions)
    dimension = spec.need("dimension", "the noise on the medians grows with the square root of the dimension")
    steps = solve_gaussian_steps(replace(spec, iterations=1, batch_size=spec.dataset_size))
    recommended_groups = groups_needed(dimension, known["failure_probability"])
    groups = read_groups(spec, known, recommended_groups)
    size = spec.dataset_size // groups
    noise_per_radius = noise_stddev_on_medians(steps.noise_multiplier, 1.0, dimension, size)
    preset = None
    if not known.missing:
        length = noise_per_radius * normal_length(dimension, known["failure_probability"])
        preset = best_radius(known, dimension, length)
    radius = read_radius(known, preset)
    noise = noise_stddev_on_medians(steps.noise_multiplier, radius, dimension, size)
    phase = MedianPhase(steps.event, groups, size, dimension, radius, noise)
    planned = None
    if not known.missing:
        medians = medians_of(known, dimension, groups, size, radius)
        planned = PlannedMedians(
            phase, steps.noise_multiplier, spec.dataset_size, medians, known["mean_bound"], known["order_constant"]
        )
    evaluations = Provenance(
        "gradient_evaluations", float(phase.batch_size), r"m b \le n", f"{PAPER}, Algorithm 12", ProvenanceKind.EXACT
    )
    return calibration_of(
        _NAME,
        spec,
        steps,
        phase,
        hyperparameters=recommended(recommended_groups, preset),
        utility=(evaluations, *(planned.utility() if planned else ())),
        missing=known.missing,
        warnings=planned.warnings() if planned else (),
        as_published=_printed(spec, phase),
    )


def _printed(spec: Spec, phase: MedianPhase) -> AsPublished | None:
    """Return verdicts on the noise of Algorithm 12 and of Lemma 52 at this spec; None for targets that the paper does
    not treat.
    """
    rho = rho_of(spec.target)
    if rho is None:
        return None
    printed = printed_noise_multiplier(rho, phase.groups, phase.group_size, spec.dataset_size)
    verdict, why = judged(spec, printed, 1, spec.dataset_size)
    other, other_why = judged(spec, math.sqrt(18.0) * printed, 1, spec.dataset_size)
    cut = ""
    if phase.batch_size != spec.dataset_size:
        cut = (
            f"The group size n/m = {spec.dataset_size}/{phase.groups} is not a whole number, so the noise is "
            f"judged for groups of {phase.group_size} records. "
        )
    return AsPublished(
        verdict,
        f"{cut}{why} Lemma 52 has the factor 72 where Algorithm 12 has 4; this noise is {other}: {other_why}",
        f"{PAPER}, Algorithm 12 (Proposition 3 for targets in epsilon and delta)",
        r"\sigma^2 = \frac{4 d \tau^2 m^2}{\varepsilon_p^2 n^2},\; \varepsilon_p = \sqrt{2 \rho},\;"
        r" \rho = (\sqrt{\ln(1/\delta) + \varepsilon} - \sqrt{\ln(1/\delta)})^2",
        noise_multiplier=printed,
        noise_stddev_on_mean=noise_stddev_on_medians(
            printed, phase.truncation_radius, phase.dimension, phase.group_size
        ),
    )


ALGORITHM = Algorithm(
    name=_NAME,
    summary=(
        "The mean of records with heavy-tailed coordinates. Each coordinate is clamped, groups are averaged, and "
        "Gaussian noise is added to the medians of the groups' means."
    ),
    source=f"{PAPER}, Algorithm 12, Lemma 52",
    update=r"\tilde\nu_j = \mathrm{median}_{i \le m}\left(\tfrac1b \sum_{x \in G_i} \max(-\tau, \min(\tau, x_j))\right)"
    r" + \tfrac{z \sqrt d\, \tau}{b} Z_j",
    samplings=(FullBatch,),
    relations=RELATIONS,
    gradient_bounds=(),
    gradient_bound_required=False,
    assumptions=ASSUMPTIONS,
    guarantee="The release is one Gaussian mechanism on all records.",
    gradient_complexity=r"m b \le n",
    verdict=(
        "The noise of Algorithm 12 is sound. For zCDP it is the least that meets the target, if m divides n. "
        "Lemma 52 prints 18 times its variance, which is loose. The verdict is computed for each request."
    ),
    errata=(
        "In the variance of the noise, Lemma 52 has the factor 72 where Algorithm 12 has 4. Both are private, "
        "and 4 is enough.",
        (
            "As written, Algorithm 12 draws a whole noise vector for each coordinate, inside its loop. Here a "
            "single vector is drawn."
        ),
        (
            "The listing needs m to divide n. Here a group has floor(n/m) records, and up to m - 1 records are in "
            "no group."
        ),
        "The paper does not say which median is meant for an even m. Here it is the lower median.",
        (
            "The paper's groups are consecutive records. Here a secret permutation cuts the groups, so the order "
            "of the records does not matter."
        ),
        (
            "The paper's constants are larger than needed: 10 for the bias and the deviation, and 20 ln(4 d / "
            "zeta) groups. The bounds here have the constants of our own proof, for every number of groups."
        ),
        "The paper gives no threshold and no number of groups for estimating a mean. The preset is ours.",
    ),
    calibrate=calibrate,
    scope=of_the_mean(Measure.MEAN_ERROR),
    one_step=True,
    example=Example(
        Spec(
            100_000,
            EXAMPLE_TARGET,
            dimension=50,
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
        "coordinatewise_mean": ExampleRequest(
            "The coordinate-wise median of means with noise: groups, truncation radius, error",
            {
                "dataset_size": 100000,
                "dimension": 50,
                "target": {"kind": "zcdp", "rho": 0.5},
                "assumptions": {"moment_order": 4, "coordinate_moment_bound": 1, "mean_bound": 2},
            },
        )
    },
)
