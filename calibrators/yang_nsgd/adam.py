r"""This module is shared by DP-Adam and DP-NAdam, which apply Adam to noisy means of bounded gradients (Yang et al.
2022, Appendix D).

Let $\tilde g$ be the noisy mean of step $t$. Squares and quotients are taken coordinate by coordinate:

$$m \leftarrow b_1 m + (1 - b_1)\, \tilde g,\quad v \leftarrow b_2 v + (1 - b_2)\, \tilde g^2,\quad
x \leftarrow x - \eta\, \frac{m / (1 - b_1^t)}{\sqrt{v / (1 - b_2^t)} + \xi}$$

The moments $m$ and $v$ are functions of noisy means, so they do not change the privacy of the steps. No theorem of the
paper covers Adam, so there is no bound and no recommended step size.

Penalties and domains are handled in Adam's own metric: the next point minimises $\sum_i (z_i - y_i)^2 / (2 a_i)$ plus
the penalty over the domain, where $y$ is the point above and $a_i = \eta / (\sqrt{v_i / (1 - b_2^t)} + \xi)$. Only then
is a fixed point of the steps a stationary point. For l1 and l2 penalties and a box the minimiser is found coordinate by
coordinate; In other domains, steps with a Euclidean projection would converge to another point, so these domains are
refused.
"""

from __future__ import annotations

from accounting.errors import Unsupported
from calibrators.algorithm import Algorithm, read_assumptions
from calibrators.geometry import Box
from calibrators.noise import calibration_of, solve_gaussian_steps
from calibrators.plan import Phase
from calibrators.provenance import Provenance, ProvenanceKind
from calibrators.spec import Calibration, Spec
from calibrators.staged import calibrate_stages
from calibrators.yang_nsgd.lemma_3_1 import lemma_3_1
from calibrators.yang_nsgd.nonconvex import ERRATA as SHARED_ERRATA

#: The constants b_1, b_2 and xi of Adam. The paper does not state which values it uses.
FIRST_DECAY, SECOND_DECAY, STABILIZER = 0.9, 0.999, 1e-8

_ADAM = "Kingma & Ba 2015, Algorithm 1"
_NOT_THE_PAPERS = "the value recommended by Adam's authors, because Yang et al. do not state theirs"

ERRATA = (
    *SHARED_ERRATA,
    (
        "Appendix D does not state the constants of Adam. Here they are the values recommended by Adam's authors: "
        "decay rates 0.9 and 0.999, and 1e-8 added to the root."
    ),
    (
        "In this paper, NAdam means normalised Adam. It is not Adam with Nesterov's momentum, for which this name "
        "is better known."
    ),
)
NO_THEOREM = (
    "No theorem of the paper covers Adam, so there is no bound on the error of the run. The privacy needs no "
    "such bound."
)
_NO_STEP_SIZE = (
    "No theorem recommends a step size for Adam. Without hyperparameters.step_size, this plan only states the "
    "privacy and cannot run. In each step, a coordinate moves by about the step size, whatever the units of "
    "the loss."
)


def calibrate_adam(algorithm: Algorithm, spec: Spec) -> Calibration:
    """Calibrate the spec: the engine solves for the open quantity. The caller's step size goes into the plan unchanged.

    Raises:
        InvalidValue: If a number is outside its range, or if an assumption is given, because the algorithm has none.
        Unsupported: If the sampling is not available, or if the domain is not a box.
        Unreachable: If nothing meets the target.
    """
    assert spec.gradient_bound is not None, "the registry has checked the gradient bound"
    read_assumptions(algorithm.assumptions, spec.assumptions)
    if spec.domain is not None and not isinstance(spec.domain, Box):
        raise Unsupported(
            f"the domain of {algorithm.name} must be a box, not {spec.domain.kind}, because only for a box is "
            "the Euclidean projection also the projection in Adam's metric; use a box or no domain, or an "
            "algorithm without moments such as dp_sgd",
            code="unsupported_domain",
            pointer=("domain", "kind"),
        )
    if spec.stages:
        return calibrate_stages(algorithm, spec, _CONSTANTS)
    steps = solve_gaussian_steps(spec)
    event, size = steps.event, steps.batch_size
    phase = Phase(event, spec.gradient_bound, size, spec.step_size)
    return calibration_of(
        algorithm.name,
        spec,
        steps,
        phase,
        domain=spec.domain,
        penalty=spec.penalty,
        release=spec.release_of(event.count),
        hyperparameters=_CONSTANTS,
        utility=(
            Provenance(
                "gradient_evaluations", float(event.count * size), "T B", algorithm.source, ProvenanceKind.EXACT
            ),
        ),
        warnings=(
            NO_THEOREM,
            *(() if spec.step_size else (_NO_STEP_SIZE,)),
        ),
        as_published=lemma_3_1(spec, phase),
    )


def _constant(name: str, value: float, formula: str, *more: str) -> Provenance:
    return Provenance(name, value, formula, _ADAM, ProvenanceKind.EXACT, (_NOT_THE_PAPERS, *more))


_CONSTANTS = (
    _constant("first_moment_decay", FIRST_DECAY, "b_1"),
    _constant("second_moment_decay", SECOND_DECAY, "b_2"),
    _constant("stabilizer", STABILIZER, r"\xi", "a fixed number, independent of the unit of gradients"),
)
