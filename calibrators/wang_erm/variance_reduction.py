"""This module is shared by DP-SVRG and DP-SVRG++. It contains their refusals, batch size, noise, phase and printed
noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from accounting.errors import AccountingError, InvalidValue, NoCostInFilter, Unsupported
from accounting.numbers import MAX_COUNT
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, BudgetTarget, GaussianDpTarget, PureDpTarget, ZcdpTarget
from calibrators.algorithm import Assumption, Given
from calibrators.as_published import AsPublished, Verdict
from calibrators.noise import Steps, calibration_of, solve_steps
from calibrators.phases.variance_reduced_epochs import MAX_EPOCHS, VarianceReducedEpochs
from calibrators.plan import Clip
from calibrators.provenance import GRADIENT, PURE, SMOOTHNESS, Provenance, ProvenanceKind
from calibrators.spec import Calibration, Spec, Unknown
from calibrators.wang_erm.full_gradient import PAPER
from calibrators.wang_erm.inner_steps import InnerSteps

SMOOTH = Assumption(
    "smoothness", "L", SMOOTHNESS, "|grad f(x, z) - grad f(y, z)| <= L |x - y| for every record", open_lower=True
)
INNER_ITERATIONS = Assumption(
    "inner_iterations", "m", PURE, "the number of inner steps, a whole number; if "
        "left out, the theorem's number", lower=1.0, upper=1e8,
    required=False,
)  # fmt: skip
ORDER_CONSTANT = Assumption(
    "order_constant",
    "c",
    PURE,
    "the constant that the paper leaves open in its printed noise and rates",
    open_lower=True,
    required=False,
    default=1.0,
)
RELATIONS = (NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL)
GUARANTEE = (
    "All iterates of all epochs together are (epsilon, delta)-differentially private, by Renyi divergences at "
    "64 orders, and so is the released one. Replacement by a null record costs less than replacement by "
    "another record. add_or_remove_one is not accounted: batches of a fixed size make the number of records "
    "public, and an added record takes the place of another one in them."
)
ERRATA = (
    "The privacy theorems ask for epsilon <= c_1 N/n^2 with N inner steps, because amplification of one-record "
    "steps needs this. With the paper's own numbers of steps, this is far below every epsilon for which its "
    "bounds are useful.",
    (
        "The paper remarks that advanced composition removes this constraint at the cost of a logarithm. This does "
        "not repair the proof, because every step must be private before amplification, and with the printed noise "
        "it is not."
    ),
    (
        "The full gradient at the snapshot has no noise of its own. It enters every inner step and only the noise "
        "of that step hides it, so it must be charged in every step. Here it is charged together with the batch, "
        "because both can contain the same record."
    ),
    (
        "The printed algorithm can be attacked: with 1e4 records, 1000 parameters, c = 8 and epsilon 1, an analyst "
        "who sees the iterates projects each direction on one record's change of gradient. This detects the record "
        "in half of the runs, at a false positive rate of 1e-9."
    ),
)
#: The assumptions of the paper's rates.
HIDDEN = "order_constant stands for the constant that the paper leaves open"
OF_THE_PRINTED = "for comparison: this is the rate with the printed noise, which is not private"
#: The assumptions of all bounds, other than strong convexity.
HOLDS = (
    "every record's gradient is at most max_grad_norm long at every iterate, so that no gradient is clipped",
    "every record's loss is convex and L-smooth at all points that the iterates reach",
    "F^r(x_0) - min F^r <= D_0",
)
_STEP_SOURCE = f"{PAPER}, section 4 (divergence of a step derived)"


@dataclass(frozen=True, slots=True)
class Solved:
    """Epochs with nothing left open.

    Attributes:
        steps: The noise, the batch size and their cost.
        noise_stddev_on_mean: The standard deviation sigma of the noise on the mean, in gradient units.
        inner_iterations: The number of inner steps of each epoch.
    """

    steps: Steps
    noise_stddev_on_mean: float
    inner_iterations: tuple[int, ...]

    def phase(self, bound: Clip, step_size: float | None) -> VarianceReducedEpochs:
        return VarianceReducedEpochs(
            self.steps.event,
            self.inner_iterations,
            self.steps.batch_size,
            bound.max_grad_norm,
            self.noise_stddev_on_mean,
            step_size,
        )

    @property
    def count(self) -> int:
        """The number of inner steps of all epochs."""
        return sum(self.inner_iterations)


def answer(
    algorithm: str,
    spec: Spec,
    solved: Solved,
    step_size: float | None,
    *,
    hyperparameters: Sequence[Provenance],
    utility: Sequence[Provenance],
    missing: tuple[str, ...],
    warnings: Sequence[str],
    as_published: AsPublished | None,
) -> Calibration:
    """Return the calibration of solved epochs. It includes the recommended numbers and the warnings that both
    algorithms share.
    """
    bound = spec.clip
    phase = solved.phase(bound, step_size)
    return calibration_of(
        algorithm,
        spec,
        solved.steps,
        phase,
        domain=spec.domain,
        penalty=spec.penalty,
        hyperparameters=(*hyperparameters, *_hyperparameters(spec, solved)),
        utility=tuple(utility),
        missing=missing,
        warnings=(*_warnings_of(spec, solved), *warnings),
        as_published=as_published,
    )


def refuse_what_has_no_part(spec: Spec) -> None:
    """Refuse specs that these algorithms cannot calibrate.

    Raises:
        Unsupported: If the number of epochs is solved for.
        NoCostInFilter: If no cost under the target follows from Renyi divergences.
    """
    if spec.unknown is Unknown.ITERATIONS:
        raise Unsupported(
            "the number of epochs cannot be solved for, because the bound determines how many epochs are "
            "useful. Give iterations and solve for noise_multiplier",
            pointer=("solve_for",),
        )
    target = spec.target
    no_bound = isinstance(target, ZcdpTarget | GaussianDpTarget | PureDpTarget) or (
        isinstance(target, ApproximateDpTarget) and target.delta == 0.0
    )
    if no_bound or (isinstance(target, BudgetTarget) and target.filter.kind not in ("approximate_dp", "renyi_dp")):
        raise NoCostInFilter(
            "the target must be approximate_dp with a positive delta: inner steps are charged by their Renyi "
            "divergences at some orders, which do not imply a rho of zCDP, a mu of Gaussian DP or an epsilon "
            "at delta 0",
            pointer=("target", "kind"),
        )


def epochs_of(spec: Spec) -> int:
    """Return the number T of epochs.

    Raises:
        InvalidValue: If the number of epochs is missing, or is more than a plan can hold.
    """
    epochs = spec.need("iterations", "this is the number T of epochs")
    if epochs > MAX_EPOCHS:
        raise InvalidValue(
            f"iterations, the number of epochs, must be at most {MAX_EPOCHS}; got {epochs}",
            pointer=("iterations",),
        )
    return epochs


def inner_iterations_of(given: Given, theorems: int | None, needs: str) -> int:
    """Return the number m of inner steps: the request's number, or else the theorem's.

    Raises:
        InvalidValue: If m is neither given nor computed by the theorem, or if m is not an integer or too large.
    """
    stated = given.get("inner_iterations")
    if stated is None and theorems is None:
        raise InvalidValue(
            "inner_iterations is needed; instead, you can give the constants from which the theorem computes "
            f"it: {needs}",
            code="missing",
            pointer=("assumptions", "inner_iterations"),
        )
    if stated is not None and not stated.is_integer():
        raise InvalidValue(
            f"inner_iterations must be an integer, got {stated!r}", pointer=("assumptions", "inner_iterations")
        )
    return int(stated) if stated is not None else theorems or 1


def solve_epochs(spec: Spec, bound: Clip, inner_iterations: tuple[int, ...]) -> Solved:
    """Solve for the noise of all inner steps, or for another open quantity of the spec.

    Raises:
        InvalidValue: If there are too many inner steps.
        Unreachable: If nothing meets the target.
    """
    count = sum(inner_iterations)
    if count > MAX_COUNT:
        raise InvalidValue(
            f"these epochs have {count} inner steps, but a plan can have at most {MAX_COUNT}: give a smaller "
            "number of epochs (iterations), or smaller inner_iterations",
            pointer=("iterations",),
        )
    size = spec.batch_size
    if size is None and spec.unknown is not Unknown.BATCH_SIZE:
        size = own_batch_size(spec.dataset_size, count)
    event = InnerSteps(spec.dataset_size, count, spec.relation)
    steps = solve_steps(spec, event, iterations=len(inner_iterations), batch_size=size)
    return Solved(steps, 2.0 * bound.max_grad_norm * steps.noise_multiplier / steps.batch_size, inner_iterations)


def own_batch_size(dataset_size: int, count: int) -> int:
    """Return b = 4 n / sqrt(N), rounded up, at most n.

    The noise sigma b on a batch's sum must hide a difference of up to 4 G. The noise sigma that large batches need
    grows like G sqrt(N)/n. So with this b, the noise on the sum divided by G depends only on the target, not on n and
    N. Larger batches save a few per cent of noise, but need proportionally more gradients.

    >>> own_batch_size(10_000, 32_657)
    222
    """
    return min(dataset_size, math.ceil(4.0 * dataset_size / math.sqrt(count)))


def _hyperparameters(spec: Spec, solved: Solved) -> tuple[Provenance, ...]:
    """Return the noise, the batch size and the epochs."""
    derived = ProvenanceKind.DERIVED
    own = spec.batch_size is None and spec.unknown is not Unknown.BATCH_SIZE
    return (
        Provenance(
            "noise_stddev_on_mean", solved.noise_stddev_on_mean, r"\sigma = 2 G s / b", _STEP_SOURCE, derived,
            ("s is the noise multiplier: the noise on the sum of a batch's gradient changes, divided by their "
                "bound 2 G",),
            units=GRADIENT,
        ),
        Provenance("noise_multiplier", solved.steps.noise_multiplier, r"s = \sigma b / (2 G)", _STEP_SOURCE, derived),
        Provenance(
            "batch_size",
            float(solved.steps.batch_size),
            r"b = \lceil 4 n / \sqrt{N} \rceil" if own else "b",
            _STEP_SOURCE,
            derived,
            ("N is the number of inner steps; with this batch size, the noise multiplier does not depend on n "
                "and N, and larger batches save little noise",)
            if own
            else (),
        ),
        Provenance("iterations", float(len(solved.inner_iterations)), "T", f"{PAPER}, section 4", ProvenanceKind.EXACT),
    )  # fmt: skip


def _warnings_of(spec: Spec, solved: Solved) -> list[str]:
    """Return the warnings that must be shown together with the numbers."""
    found = []
    if solved.steps.batch_size == spec.dataset_size:
        found.append(
            "Batches of all records make this gradient descent, and the gradient at the snapshot has no "
            "effect. Use dp_gd instead: it does not compute that gradient, and is charged exactly."
        )
    return found


def printed_noise(
    spec: Spec, solved: Solved, bound: Clip, order_constant: float, *, steps: float, numerator: float, formula: str
) -> AsPublished | None:
    """Return the paper's noise at this spec; None for targets that the paper does not treat.

    Args:
        steps: The number N of inner steps, as the paper counts them in its noise and in its condition.
        numerator: The number k in the paper's factor ln(k/delta).
        formula: The formula, in LaTeX.
    """
    target, n = spec.target, spec.dataset_size
    if not isinstance(target, ApproximateDpTarget) or not 0.0 < target.delta < 1.0:
        return None
    root = math.sqrt(order_constant * steps * math.log(numerator / target.delta))
    printed = bound.max_grad_norm * root / (n * target.epsilon)
    why = (
        f"The theorem holds for epsilon up to c_1 N/n^2 = c_1 {steps / n**2:.6g} with an open constant c_1, "
        f"and its noise has an open constant c. Here epsilon is {target.epsilon:.6g}, and c = "
        f"{order_constant:g} is a guess. "
        f"{_certified(spec, target, solved.count, root / (2.0 * n * target.epsilon))}"
    )
    source = f"{PAPER}, equation ({3 if numerator == 1.0 else 6}) (c is order_constant)"
    return AsPublished(Verdict.UNSOUND, why, source, formula, noise_stddev_on_mean=printed)


def _certified(spec: Spec, target: ApproximateDpTarget, count: int, noise_multiplier: float) -> str:
    """Return a sentence about the certified cost of the printed noise, for the paper's steps of one record each."""
    try:
        event = InnerSteps(spec.dataset_size, count, NeighboringRelation.REPLACE_ONE)(noise_multiplier, 1, 1)
        upper = target.assess([event], NeighboringRelation.REPLACE_ONE).value.upper
    except AccountingError as error:
        return f"With one record per step, as printed, the accounting engine cannot certify this noise: {error.detail}."
    where = "above" if upper > target.epsilon else "below"
    return (
        f"With one record per step, as printed, the accounting engine certifies an epsilon of {upper:.6g} for "
        f"this noise, {where} the target of {target.epsilon:.6g}."
    )
