"""Shared code of DP-SVRG and DP-SVRG++: refusals, the batch size, the noise, the phase and the printed noise."""

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
    "inner_iterations", "m", PURE, "a whole number of steps; left out, the theorem's", lower=1.0, upper=1e8,
    required=False,
)  # fmt: skip
ORDER_CONSTANT = Assumption(
    "order_constant",
    "c",
    PURE,
    "stands for the constant that the paper leaves open, in its printed noise and rates",
    open_lower=True,
    required=False,
    default=1.0,
)
RELATIONS = (NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL)
GUARANTEE = (
    "(epsilon, delta)-differential privacy of all iterates of all epochs together, hence of the released one, by Renyi "
    "divergences at 64 orders. A null record costs less than another one. Not under "
    "add_or_remove_one: batches of a fixed size make the number of records public, and a record that comes or goes "
    "takes another one's place in them."
)
ERRATA = (
    "The privacy theorems ask for epsilon <= c_1 N/n^2 with N inner steps, which amplification of one-record steps "
    "needs. With the paper's own numbers of steps that is far below any epsilon at which its bounds say anything.",
    "The remark that advanced composition removes this constraint at a logarithm's cost does not repair it: it needs "
    "every step to be private before amplification, which the printed noise is not.",
    "The full gradient at the snapshot has no noise of its own. It enters every inner step, so that it is hidden by "
    "each step's noise, and must be charged in each: here together with the batch, with which it shares a record.",
    "An analyst who sees the iterates of the printed algorithm (1e4 records, 1000 parameters, c = 8, epsilon 1) and "
    "projects each direction on one record's change of gradient finds that record in half of the runs, at a false "
    "positive rate of 1e-9.",
)
#: The statement of a rate, and the constants that the paper hides in it.
HIDDEN = "order_constant stands for the constant that the paper leaves open"
OF_THE_PRINTED = "of the printed noise, which is not private: for comparison"
#: The assumptions of all bounds besides convexity.
HOLDS = (
    "every record's gradient is at most max_grad_norm long at every iterate, so that no gradient is clipped",
    "every record's loss is convex and L-smooth wherever the iterates go",
    "F^r(x_0) - min F^r <= D_0",
)
_STEP_SOURCE = f"{PAPER}, section 4; a step's divergence derived"


@dataclass(frozen=True, slots=True)
class Solved:
    """Epochs in which nothing is left open.

    Attributes:
        steps: The noise, the batch size and their cost.
        noise_stddev_on_mean: The standard deviation sigma of the noise on the mean, in gradient units.
        inner_iterations: The inner iterations of each epoch.
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
        """Inner steps of all epochs."""
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
    """Return the calibration of solved epochs, with the recommendations and warnings of all such epochs."""
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
    """Refuse requests that these algorithms cannot answer.

    Raises:
        Unsupported: If the number of epochs is solved for.
        NoCostInFilter: If the target does not follow from Renyi divergences.
    """
    if spec.unknown is Unknown.ITERATIONS:
        raise Unsupported(
            "the number of epochs is not solved for: each lowers the risk by a known factor. Solve for "
            "noise_multiplier at the number of epochs that the bound asks for",
            pointer=("solve_for",),
        )
    target = spec.target
    no_bound = isinstance(target, ZcdpTarget | GaussianDpTarget | PureDpTarget) or (
        isinstance(target, ApproximateDpTarget) and target.delta == 0.0
    )
    if no_bound or (isinstance(target, BudgetTarget) and target.filter.kind not in ("approximate_dp", "renyi_dp")):
        raise NoCostInFilter(
            "inner steps are charged by their Renyi divergences at some orders, which imply no rho of zCDP, no mu of "
            "gaussian DP and no epsilon at delta 0: use an approximate_dp target with a positive delta",
            pointer=("target", "kind"),
        )


def epochs_of(spec: Spec) -> int:
    """Return T, the number of epochs.

    Raises:
        InvalidValue: If the number of epochs is missing, or is more than a plan can hold.
    """
    epochs = spec.need("iterations", "T, the number of epochs")
    if epochs > MAX_EPOCHS:
        raise InvalidValue(
            f"iterations is the number of epochs, at most {MAX_EPOCHS}, each of many steps; got {epochs}",
            pointer=("iterations",),
        )
    return epochs


def inner_iterations_of(given: Given, theorems: int | None, needs: str) -> int:
    """Return m: the request's, or else the theorem's.

    Raises:
        InvalidValue: If m is not given and does not follow from the theorem, or is no integer or too large.
    """
    stated = given.get("inner_iterations")
    if stated is None and theorems is None:
        raise InvalidValue(
            f"inner_iterations is needed, or the constants from which the theorem computes it: {needs}",
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
            f"these epochs have {count} inner steps, and no plan has more than {MAX_COUNT}: give fewer iterations, "
            "which are epochs, or fewer inner_iterations",
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

    A batch has to hide a difference of up to 4 G behind sigma b. The noise sigma that large batches need grows like G
    sqrt(N)/n. So with this b, the noise on the sum over G depends only on the target, not on n and N. Larger batches
    save a few per cent of noise, but cost gradients in proportion.

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
            ("s is the noise multiplier: on the sum of a batch's changes of gradients, over their bound 2 G",),
            units=GRADIENT,
        ),
        Provenance("noise_multiplier", solved.steps.noise_multiplier, r"s = \sigma b / (2 G)", _STEP_SOURCE, derived),
        Provenance(
            "batch_size",
            float(solved.steps.batch_size),
            r"b = \lceil 4 n / \sqrt{N} \rceil" if own else "b",
            _STEP_SOURCE,
            derived,
            ("N inner steps; the noise then hides the batch whatever n and N are, and larger ones save little",)
            if own
            else (),
        ),
        Provenance("iterations", float(len(solved.inner_iterations)), "T", f"{PAPER}, section 4", ProvenanceKind.EXACT),
    )  # fmt: skip


def _warnings_of(spec: Spec, solved: Solved) -> list[str]:
    """Return the warnings that belong beside the numbers."""
    found = []
    if solved.steps.batch_size == spec.dataset_size:
        found.append(
            "Batches of all records are gradient descent, in which the snapshot's gradient has no part: use dp_gd, "
            "which takes it without, and is charged exactly."
        )
    return found


def printed_noise(
    spec: Spec, solved: Solved, bound: Clip, order_constant: float, *, steps: float, numerator: float, formula: str
) -> AsPublished | None:
    """Return the paper's noise at this spec; None for targets that the paper does not treat.

    Args:
        steps: The number N of steps, as the paper counts inner steps in its noise and in its condition.
        numerator: The k of its ln(k/delta).
        formula: The formula, in LaTeX.
    """
    target, n = spec.target, spec.dataset_size
    if not isinstance(target, ApproximateDpTarget) or not 0.0 < target.delta < 1.0:
        return None
    root = math.sqrt(order_constant * steps * math.log(numerator / target.delta))
    printed = bound.max_grad_norm * root / (n * target.epsilon)
    why = (
        f"The theorem holds for epsilon up to c_1 N/n^2 = c_1 {steps / n**2:.6g} with an open c_1, and gives noise up "
        f"to an open c: here epsilon is {target.epsilon:.6g}, and c = {order_constant:g} is a guess. "
        f"{_certified(spec, target, solved.count, root / (2.0 * n * target.epsilon))}"
    )
    source = f"{PAPER}, equation ({3 if numerator == 1.0 else 6}) (c is order_constant)"
    return AsPublished(Verdict.UNSOUND, why, source, formula, noise_stddev_on_mean=printed)


def _certified(spec: Spec, target: ApproximateDpTarget, count: int, noise_multiplier: float) -> str:
    """Return the known facts about the printed noise, for the paper's steps of one record each."""
    try:
        event = InnerSteps(spec.dataset_size, count, NeighboringRelation.REPLACE_ONE)(noise_multiplier, 1, 1)
        upper = target.assess([event], NeighboringRelation.REPLACE_ONE).value.upper
    except AccountingError as error:
        return f"With one record a step, as printed, the engine has no certificate for that noise: {error.detail}."
    where = "above" if upper > target.epsilon else "below"
    return (
        f"With one record a step, as printed, the engine certifies an epsilon of {upper:.6g} for that noise, {where} "
        f"the target of {target.epsilon:.6g}."
    )
