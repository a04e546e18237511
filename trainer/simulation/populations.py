r"""This module draws synthetic rows within declared constants, from a law whose best point is known.

**Labelled rows.** Features are $x = B \ell\, v/\|v\|_q$ with $v = g/\|g\|_q \pm u$: $g$ is uniform, $u$ is the
direction of unit dual norm in which the best point's logits are largest, and its sign, or the class to which the
direction belongs, is drawn with equal probabilities. So records are as long as the constants allow, and half of their
direction matters. A label is drawn, given the logit $z$ of the best point $w_*$, by a law under which the mean loss is
least at $z$. Then $w_*$ has the least risk of all points, and the excess loss of a run over it is an excess population
risk. With an intercept a row has a constant 1 beside its features, which counts in its length.

**Records about a mean.** A record is $\nu + b \ell\, s/\sqrt d$ with random signs $s$: symmetric about the mean.

The length $\ell$ is 1, or where tails are heavy that of a Pareto law with moments up to the order $k$ and few beyond,
$\mathbb{E} \ell^k = 1$.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue, Unsupported
from trainer.losses import Logistic, QNormHinge, Quantile, Softmax
from trainer.losses.loss import Loss
from trainer.models import LinearModel, MeanModel, Parameters, build

FloatArray = npt.NDArray[np.float64]

#: The largest logit z of the best point where labels lie in [-1, 1], or where odds are a power of (1 + z) / (1 - z).
_LARGEST_LOGIT = 0.5
#: The largest logit of the best point for classes, if no constant bounds the best point.
_USUAL_LOGIT = 3.0
#: The largest distance of a regression's label from the logit.
_LABEL_NOISE = 0.25
#: The number of entries of the best point that are not zero, for each logit, in the l1 norm.
_SPARSE = 5
_HALVINGS = 100
#: The shortest features beside an intercept. With shorter ones only the intercept would matter.
_SHORTEST = 1e-3


@dataclass(frozen=True)
class LabelledRows:
    """Rows for a linear model.

    Attributes:
        model: The trained model.
        norm_order: The order p of the norm of parameters; q is the order of the dual norm.
        feature_bound: The bound B: features have this norm of order q, in the k-th moment where tails are heavy.
        best: The best point w*, shape (p, K). With an intercept the shape is (p + 1, K), and the last row is b*.
        moment_order: The order k of the moments of heavy tails; None if all rows are equally long.
        unit: The unit of `excess`, in words.
    """

    model: LinearModel
    norm_order: float
    feature_bound: float
    best: FloatArray
    moment_order: float | None = None
    unit: ClassVar[str] = "excess population risk, in units of the loss"

    def draw(self, records: int, random: np.random.Generator) -> tuple[FloatArray, npt.NDArray[np.generic]]:
        """Draw features of shape (records, p), and labels of shape (records,): classes, or numbers in [-1, 1]."""
        rows = _normalized(2.0 * random.random((records, self.model.features)) - 1.0, self._dual)
        rows += self._directions()[random.integers(0, max(2, self.best.shape[1]), records)]
        rows = self.feature_bound * _normalized(rows, self._dual)
        rows *= _lengths(records, self.moment_order, random)[:, None]
        return rows, drawn_labels(self.model.loss, self._logits(self.best, rows), random)

    def excess(self, parameters: Parameters, features: FloatArray, labels: npt.NDArray[np.generic]) -> float:
        """Return the mean loss of fresh rows at the point, less their mean loss at the best point."""
        point = np.reshape(parameters["weights"], (self.model.features, -1))
        if self.model.fit_intercept:
            point = np.concatenate([point, np.reshape(parameters["bias"], (1, -1))])
        return float(np.mean(self._losses(point, features, labels) - self._losses(self.best, features, labels)))

    def before_training(self, features: FloatArray, labels: npt.NDArray[np.generic]) -> float:
        """Return the excess of zero parameters."""
        return self.excess(self.model.parameters(np.zeros(self.best.size)), features, labels)

    def _losses(self, point: FloatArray, features: FloatArray, labels: npt.NDArray[np.generic]) -> FloatArray:
        return np.asarray(self.model.loss.values(np, self._logits(point, features), labels))

    def _logits(self, point: FloatArray, features: FloatArray) -> FloatArray:
        logits = features @ point[: self.model.features]
        return logits + point[-1] if self.model.fit_intercept else logits

    @property
    def _dual(self) -> float:
        return dual_order(self.norm_order)

    def _directions(self) -> FloatArray:
        """Return, for each logit, the direction of unit dual norm in which it grows most; for a single logit, also the
        opposite one. The shape is (max(2, K), p)."""
        columns = self.best[: self.model.features].T
        steepest = np.sign(columns) * np.abs(columns) ** (self.norm_order - 1.0)
        steepest = _normalized(np.where(columns == 0.0, 0.0, steepest), self._dual)
        return np.concatenate([steepest, -steepest]) if len(steepest) == 1 else steepest


@dataclass(frozen=True)
class RecordsAboutAMean:
    """Records whose mean is estimated.

    Attributes:
        mean: The mean nu, shape (d,).
        spread: The spread b, the root of the k-th moment of a record's distance from the mean.
        moment_order: The order k of the moments of heavy tails; None if all records are equally far from the mean.
        unit: The unit of `excess`, in words.
    """

    mean: FloatArray
    spread: float
    moment_order: float | None = None
    unit: ClassVar[str] = "squared distance from the mean"

    @property
    def model(self) -> MeanModel:
        """Return the model of a mean of this many features."""
        return MeanModel(len(self.mean))

    def draw(self, records: int, random: np.random.Generator) -> tuple[FloatArray, npt.NDArray[np.generic]]:
        """Draw records of shape (records, d), and labels that are not used."""
        d = len(self.mean)
        signs = 2.0 * random.integers(0, 2, (records, d)) - 1.0
        lengths = self.spread / math.sqrt(d) * _lengths(records, self.moment_order, random)
        return self.mean + lengths[:, None] * signs, np.zeros(records)

    def excess(self, parameters: Parameters, features: FloatArray, labels: npt.NDArray[np.generic]) -> float:
        """Return the squared distance from the true mean; no fresh rows are needed."""
        return float(np.sum((parameters["mean"] - self.mean) ** 2))

    def before_training(self, features: FloatArray, labels: npt.NDArray[np.generic]) -> float:
        """Return the squared distance of 0 from the true mean."""
        return float(np.sum(self.mean**2))


def labelled_rows(
    kind: str,
    dimension: int,
    norm_order: float,
    constants: Mapping[str, float],
    *,
    random: np.random.Generator,
    classes: int = 0,
    fit_intercept: bool = False,
    strength: float = 0.0,
    is_heavy_tailed: bool = False,
) -> LabelledRows:
    """Return the law of rows for a linear model that has this many parameters.

    Args:
        kind: The kind of the model.
        dimension: Number of parameters.
        norm_order: The order p, in [1, 2].
        constants: `lipschitz`, `smoothness` and `moment_bound` bound the features, and `radius` or `diameter` bounds
            the best point. Without any of them, features lie in [-1, 1].
        random: The generator that draws the best point.
        classes: The number of classes of a softmax regression.
        fit_intercept: Whether the model has an intercept, whose parameters are included in ``dimension``.
        strength: The strength of an l2 penalty, which uses up its share of `smoothness`.
        is_heavy_tailed: Whether only `moment_bound` bounds the features, with the order `moment_order`.

    Guarantees:
        - constants_hold: gradients and their changes are within the given constants at every point of the domain; where
          tails are heavy, their moments are.

    Raises:
        InvalidValue: If no number of features has this many parameters, or if the constants leave no room for features
            beside the intercept and the penalty.
        Unsupported: If tails are heavy and labels have bounds.
    """
    outputs = classes if kind == Softmax.kind else 1
    if dimension % max(outputs, 1):
        raise InvalidValue(
            f"a softmax regression of {classes} classes has a multiple of {classes} parameters, not {dimension}",
            pointer=("dimension",),
        )
    features = dimension // max(outputs, 1) - fit_intercept
    if features < 1:
        detail = f"with an intercept there are at least {2 * outputs} parameters, not {dimension}"
        raise InvalidValue(detail, pointer=("dimension",))
    model = build(features, kind=kind, num_classes=classes, fit_intercept=fit_intercept)
    assert isinstance(model, LinearModel), "the other kinds have no loss of logits, or no labels"
    loss = model.loss
    has_bounds = not isinstance(loss, Logistic | Softmax)
    if is_heavy_tailed and has_bounds:
        detail = (
            "rows with heavy tails have logits of any size, but the labels of this loss are bounded: use a loss "
            "of classes"
        )
        raise Unsupported(detail)
    radius = radius_of(constants)
    length = _Length(dual_order(norm_order), fit_intercept, is_heavy_tailed)
    bound = _feature_bound(model, length, constants, radius, strength)
    largest = _LARGEST_LOGIT if has_bounds else _USUAL_LOGIT if radius is None else math.inf
    size = min(largest / length(bound), math.inf if radius is None else radius)
    best = size * _unit_point((features + fit_intercept, model.num_outputs), norm_order, random)
    return LabelledRows(model, norm_order, bound, best, constants["moment_order"] if is_heavy_tailed else None)


def records_about_a_mean(
    dimension: int, constants: Mapping[str, float], *, random: np.random.Generator, is_heavy_tailed: bool = False
) -> RecordsAboutAMean:
    """Return the law of records whose moments and mean are within the given constants; within 1 if none is given.

    Args:
        dimension: The dimension d.
        constants: `moment_bound` (of a record's norm), `coordinate_moment_bound` (about the mean), `mean_bound`.
        random: The generator that draws the mean.
        is_heavy_tailed: Whether records have moments only up to `moment_order`.
    """
    longest = constants.get("moment_bound", math.inf)
    about = math.sqrt(dimension) * constants.get("coordinate_moment_bound", math.inf)
    if math.isinf(longest) and math.isinf(about):
        longest = 1.0
    size = min(constants.get("mean_bound", math.inf), 0.5 * longest, about)
    mean = size * _unit_point((dimension, 1), 2.0, random)[:, 0]
    order = constants.get("moment_order") if is_heavy_tailed else None
    return RecordsAboutAMean(mean, min(longest - size, about), order)


def dual_order(norm_order: float) -> float:
    """Return q with 1/p + 1/q = 1.

    >>> dual_order(1.0), dual_order(2.0), dual_order(1.5)
    (inf, 2.0, 3.0)
    """
    return math.inf if norm_order == 1.0 else norm_order / (norm_order - 1.0)


def radius_of(constants: Mapping[str, float]) -> float | None:
    """Return the largest distance of the best point from zero; None if no constant bounds it."""
    given = [constants[name] / width for name, width in (("radius", 1.0), ("diameter", 2.0)) if name in constants]
    return min(given, default=None)


@dataclass(frozen=True)
class _Length:
    """Turns a bound on features into a bound on rows, which include the constant 1 of an intercept.

    Attributes:
        dual: The order q of the norm.
        has_constant: Whether there is an intercept.
        is_of_moments: Whether the bound is on a moment; the constant then adds at most 1 to it (Minkowski).
    """

    dual: float
    has_constant: bool
    is_of_moments: bool

    def __call__(self, bound: float) -> float:
        if not self.has_constant:
            return bound
        if self.is_of_moments:
            return bound + 1.0
        return max(bound, 1.0) if math.isinf(self.dual) else (bound**self.dual + 1.0) ** (1.0 / self.dual)


def _feature_bound(
    model: LinearModel, length: _Length, constants: Mapping[str, float], radius: float | None, strength: float
) -> float:
    """Return the largest B that the constants allow, where rows are no longer than R(B).

    R slope(R) must be within the bound of gradients, and R^2 c within the smoothness less the penalty's share.
    """
    loss = model.loss
    names = ("moment_bound",) if length.is_of_moments else ("lipschitz", "moment_bound")
    limits = [constants[name] for name in names if name in constants]
    longest, smoothness = min(limits, default=math.inf), constants.get("smoothness", math.inf) - strength
    if math.isinf(longest) and math.isinf(smoothness):
        return float(model.features ** (0.0 if math.isinf(length.dual) else 1.0 / length.dual))

    def is_within(bound: float) -> bool:
        row = length(bound)
        slope = math.inf if loss.lipschitz is None else loss.lipschitz
        if radius is not None:
            grown = loss.holder_constant * math.pow(row * radius, loss.holder_exponent)
            slope = min(slope, loss.slope_at_zero + grown)
        elif loss.lipschitz is None:
            slope = loss.slope_at_zero + loss.holder_constant
        return row * slope <= longest and row**2 * (loss.curvature or 0.0) <= smoothness

    low, high = 0.0, 1.0
    while is_within(high) and high < 1e12:
        high *= 2.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_within(middle) else (low, middle)
    if low <= (_SHORTEST if length.has_constant else 0.0):
        beside = [*(["the intercept"] if length.has_constant else []), *(["the penalty"] if strength else [])]
        raise InvalidValue(
            f"with these constants there is no room for features{' beside ' if beside else ''}{' and '.join(beside)}: "
            "give larger bounds of gradients and of their changes",
            pointer=("assumptions",),
        )
    return low


def _unit_point(shape: tuple[int, int], norm_order: float, random: np.random.Generator) -> FloatArray:
    """Draw a point of norm 1 with entries of random sign and about equal size. In the l1 norm only few entries are not
    zero."""
    point = (0.5 + random.random(shape)) * (2.0 * random.integers(0, 2, shape) - 1.0)
    if norm_order == 1.0:
        places = random.permuted(np.tile(np.arange(shape[0])[:, None], (1, shape[1])), axis=0)
        point[places >= _SPARSE] = 0.0
    scaled: FloatArray = point / float(np.sum(np.abs(point) ** norm_order) ** (1.0 / norm_order))
    return scaled


def _normalized(rows: FloatArray, order: float) -> FloatArray:
    """Return the rows divided by their norm of the given order."""
    sizes = np.abs(rows)
    largest = np.maximum(sizes.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    if math.isinf(order):
        return np.asarray(rows / largest)
    norms: FloatArray = largest * np.sum((sizes / largest) ** order, axis=1, keepdims=True) ** (1.0 / order)
    return rows / norms


def _lengths(records: int, moment_order: float | None, random: np.random.Generator) -> FloatArray:
    """Draw lengths whose k-th moment is 1: either all are 1, or they have a Pareto law with the exponent k + 1."""
    if moment_order is None:
        return np.ones(records)
    least = (1.0 / (moment_order + 1.0)) ** (1.0 / moment_order)
    lengths: FloatArray = least * (1.0 - random.random(records)) ** (-1.0 / (moment_order + 1.0))
    return lengths


def drawn_labels(loss: Loss, logits: FloatArray, random: np.random.Generator) -> npt.NDArray[np.generic]:
    """Draw labels, given the logits (n, K) at which their mean loss is to be least."""
    uniform = random.random(len(logits))
    if isinstance(loss, Logistic | QNormHinge):
        odds = logits[:, 0]
        if isinstance(loss, QNormHinge):
            odds = (loss.q - 1.0) * np.log((1.0 + odds) / (1.0 - odds))
        return (uniform < 1.0 / (1.0 + np.exp(-odds))).astype(np.int64)
    if isinstance(loss, Softmax):
        shares = np.cumsum(loss.probabilities(logits), axis=1)
        return np.asarray(np.minimum(np.sum(uniform[:, None] > shares, axis=1), loss.classes - 1))
    # Uniform noise, symmetric or with the wanted quantile at zero.
    centre = loss.quantile if isinstance(loss, Quantile) else 0.5
    return np.asarray(logits[:, 0] + 2.0 * _LABEL_NOISE * (uniform - centre))
