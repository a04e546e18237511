"""This module computes metrics of a model on held-out rows, with intervals, from the noisy sums of `trainer.held_out`
alone.

Each interval by itself contains the metric on the held-out rows with probability `CONFIDENCE`. It accounts for the
noise, which is all that is random in the release. It does not account for the choice of the held-out rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainer.confidence import Estimate, FloatArray, bilinear_noise, linear, ratio, sum_of_absolute_values, two_sided
from trainer.held_out import GRAIN, RANKING_BINS, Layout

#: The probability with which each interval is right.
CONFIDENCE = 0.95
_RISK = 1.0 - CONFIDENCE
#: The rounding of a row to a grain, in units of a row's contribution; the noise is rounded likewise.
_ROUNDED = 4.0 * GRAIN
_NOTHING = Estimate(None, 0.0, 1.0)


@dataclass(frozen=True)
class HeldOutMetrics:
    """Metrics on held-out rows. A metric is None if it does not suit the task, or if it needs probabilities and the
    model has none.

    Attributes:
        records: The number of held-out rows.
        noise_stddev: Standard deviation of the noise on each count.
        accuracy: Share of rows whose class is predicted.
        balanced_accuracy: Mean of that share over all declared classes. The share of a class without rows may be any
            number in [0, 1].
        log_loss: Mean of -log of the true class's probability in nats, each at most `log_loss_cap`.
        log_loss_cap: The cap on each row's log loss, in nats.
        auc: Area under the ROC curve; for more than two classes, the mean of the areas of each class against the rest.
        calibration_error: Expected calibration error of 15 bins.
        confusion_matrix: Noisy counts: rows by true class, columns by predicted class.
        confusion_half_width: Half the width of the interval of one count: each interval by itself contains the true
            count.
        mean_absolute_error, root_mean_squared_error: Errors in the unit of the scaled label; a prediction beyond the
            label's bounds counts as the bound.
        r_squared: 1 - (sum of squared errors) / (sum of squared distances of labels from their mean), likewise.
    """

    records: Estimate
    noise_stddev: float
    accuracy: Estimate | None = None
    balanced_accuracy: Estimate | None = None
    log_loss: Estimate | None = None
    log_loss_cap: float | None = None
    auc: Estimate | None = None
    calibration_error: Estimate | None = None
    confusion_matrix: list[list[float]] | None = None
    confusion_half_width: float | None = None
    mean_absolute_error: Estimate | None = None
    root_mean_squared_error: Estimate | None = None
    r_squared: Estimate | None = None

    def with_errors_in(self, unit: float) -> HeldOutMetrics:
        """Return the metrics with errors in the unit of the label: a scaled error of 1 becomes ``unit``."""
        absolute, root = self.mean_absolute_error, self.root_mean_squared_error
        return replace(
            self,
            mean_absolute_error=None if absolute is None else absolute.times(unit),
            root_mean_squared_error=None if root is None else root.times(unit),
        )


def metrics_of(layout: Layout, sums: FloatArray, noise_stddev: float) -> HeldOutMetrics:
    """Return every metric that can be computed from the noisy sums.

    Args:
        layout: The layout of the sums.
        sums: shape (d,), as `trainer.held_out.noisy_sums` gives them.
        noise_stddev: The standard deviation of the noise on each sum.

    Guarantees:
        - intervals_hold: each interval contains the metric on the rows with probability `CONFIDENCE` at least.
        - post_processing_alone: the result is a function of the arguments.
    """
    return _Reading(layout, sums, noise_stddev).metrics()


class _Reading:
    """Reads one vector."""

    def __init__(self, layout: Layout, sums: FloatArray, noise_stddev: float) -> None:
        self._layout, self._sums, self._stddev = layout, sums, noise_stddev

    def metrics(self) -> HeldOutMetrics:
        if not self._layout.num_classes:
            return self._of_numbers()
        rows = self._weights("outcome", [1.0, 1.0])
        table = self._part("confusion").reshape(self._layout.num_classes, -1)
        shows, confused = self._layout.has_probabilities, self._layout.is_confused
        return HeldOutMetrics(
            records=linear(rows, self._sums, self._stddev, _RISK),
            noise_stddev=self._stddev,
            accuracy=self._ratio(self._weights("outcome", [1.0, 0.0]), rows, (0.0, 1.0)),
            balanced_accuracy=self._balanced_accuracy(),
            log_loss=self._log_loss(rows) if shows else None,
            log_loss_cap=self._layout.log_loss_cap if shows else None,
            auc=self._auc() if shows and self._layout.ranked_classes else None,
            calibration_error=self._calibration_error(rows) if shows else None,
            confusion_matrix=table.tolist() if confused else None,
            confusion_half_width=two_sided(_RISK) * self._stddev + GRAIN if confused else None,
        )

    def _part(self, name: str) -> FloatArray:
        return self._layout.part(self._sums, name)

    def _weights(self, name: str, values: list[float]) -> FloatArray:
        """Return weights of the sums: the given weights for the first coordinates of a part, and 0 for all others."""
        weights, start = np.zeros(self._layout.size), self._layout.start(name)
        weights[start : start + len(values)] = values
        return weights

    def _ratio(
        self, above: FloatArray, below: FloatArray, within: tuple[float, float], risk: float = _RISK
    ) -> Estimate:
        found = ratio(above, below, self._sums, self._stddev, risk, within)
        lower, upper = _ends(found)
        return Estimate(found.estimate, max(lower - _ROUNDED, within[0]), min(upper + _ROUNDED, within[1]))

    def _balanced_accuracy(self) -> Estimate:
        """Return the mean of the classes' shares. All of their intervals hold at once with the probability of one
        interval.
        """
        count = self._layout.num_classes
        per_class = count if self._layout.is_confused else 2
        found = []
        for each in range(count):
            of_class = np.zeros((count, per_class))
            of_class[each] = 1.0
            right = np.zeros((count, per_class))
            right[each, each if self._layout.is_confused else 0] = 1.0
            above, below = (self._weights("confusion", part.ravel().tolist()) for part in (right, of_class))
            found.append(self._ratio(above, below, (0.0, 1.0), _RISK / count))
        return _mean(found)

    def _log_loss(self, rows: FloatArray) -> Estimate:
        return self._ratio(self._weights("log_loss", [1.0]), rows, (0.0, 1.0)).times(self._layout.log_loss_cap)

    def _calibration_error(self, rows: FloatArray) -> Estimate:
        """Return |sums of the bins|_1 divided by the number of rows. Noise changes the norm by its own l1 norm at
        most."""
        bins = self._part("calibration")
        noisy = float(np.abs(bins).sum())
        likely = float(np.sqrt(np.maximum(bins**2 - self._stddev**2, 0.0)).sum())
        most = self._stddev * sum_of_absolute_values(len(bins), _RISK / 2.0)
        count = linear(rows, self._sums, self._stddev, _RISK / 2.0)
        if not count.estimate or not count.lower or not count.upper:
            return _NOTHING
        return Estimate(
            min(likely / count.estimate, 1.0),
            max((noisy - most) / count.upper - _ROUNDED, 0.0),
            min((noisy + most) / count.lower + _ROUNDED, 1.0),
        )

    def _auc(self) -> Estimate:
        classes, grains = self._layout.ranked_classes, self._layout.ranking_grains
        counts = self._part("ranking").reshape(classes, 2, RANKING_BINS) / (grains * GRAIN)
        stddev = self._stddev / (grains * GRAIN)
        return _mean([_area(positive, negative, stddev, _RISK / classes) for positive, negative in counts])

    def _of_numbers(self) -> HeldOutMetrics:
        rows = self._weights("records", [1.0])
        absolute = self._ratio(self._weights("absolute_error", [1.0]), rows, (0.0, 1.0))
        squared = self._ratio(self._weights("squared_error", [1.0]), rows, (0.0, 1.0))
        return HeldOutMetrics(
            records=linear(rows, self._sums, self._stddev, _RISK),
            noise_stddev=self._stddev,
            mean_absolute_error=absolute.times(2.0),
            root_mean_squared_error=_root(squared).times(2.0),
            r_squared=self._r_squared(rows),
        )

    def _r_squared(self, rows: FloatArray) -> Estimate:
        """Return 1 - m / v, with the mean squared error m and the variance v of the labels, from three intervals at
        once.
        """
        third = _RISK / 3.0
        error = self._ratio(self._weights("squared_error", [1.0]), rows, (0.0, 1.0), third).times(4.0)
        mean = self._ratio(self._weights("label", [1.0]), rows, (-1.0, 1.0), third)
        square = self._ratio(self._weights("squared_label", [1.0]), rows, (0.0, 1.0), third)
        if error.estimate is None or mean.estimate is None or square.estimate is None:
            return Estimate(None, None, 1.0)
        (least_error, most_error), (low, high), squares = _ends(error), _ends(mean), _ends(square)
        least = squares[0] - max(low**2, high**2)
        most = squares[1] - (0.0 if low <= 0.0 <= high else min(low**2, high**2))
        variance = square.estimate - mean.estimate**2
        return Estimate(
            1.0 - error.estimate / variance if variance > 0.0 else None,
            1.0 - most_error / least if least > 0.0 else None,
            1.0 - least_error / most if most > 0.0 else 1.0,
        )


def _area(positive: FloatArray, negative: FloatArray, stddev: float, risk: float) -> Estimate:
    """Return the probability that a positive row is in a higher bin than a negative row; the same bin counts as one
    half.

    If rows share a bin, the true order is unknown: the area a of their probabilities has p (L - a J) n <= 0 <= p (L +
    I - a J) n for the true histograms, with L below the diagonal and J all ones. The interval holds the a at which the
    noisy histograms do not contradict that. If the numbers of rows are large against the noise, both sides fall as a
    rises, so that the ends are found by bisection.
    """
    bins, ones = len(positive), np.ones((len(positive), len(positive)))
    below, same = np.tri(bins, k=-1), np.eye(bins)

    def beyond(matrix: FloatArray) -> float:
        return bilinear_noise(matrix, positive, negative, stddev, risk / 2.0)

    pairs = float(positive.sum() * negative.sum())
    if positive.sum() <= 0.0 or negative.sum() <= 0.0 or pairs <= beyond(ones):
        return _NOTHING
    lower = _first(lambda area: _form(positive, below - area * ones, negative) <= beyond(below - area * ones))
    upper = _first(
        lambda area: _form(positive, below + same - area * ones, negative) < -beyond(below + same - area * ones)
    )
    estimate = _form(positive, below + same / 2.0, negative) / pairs
    return Estimate(min(max(estimate, 0.0), 1.0), max(lower - _ROUNDED, 0.0), min(upper + _ROUNDED, 1.0))


def _form(left: FloatArray, matrix: FloatArray, right: FloatArray) -> float:
    return float(left @ matrix @ right)


def _first(holds: Callable[[float], bool]) -> float:
    """Return the point of [0, 1] from which on a condition holds; 1 if it never does."""
    low, high = 0.0, 1.0
    if holds(low):
        return low
    for _ in range(24):
        middle = (low + high) / 2.0
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _ends(found: Estimate) -> tuple[float, float]:
    """Return the ends of an interval, neither of which is missing."""
    assert found.lower is not None, "a ratio has bounds"
    assert found.upper is not None, "a ratio has bounds"
    return found.lower, found.upper


def _mean(found: Sequence[Estimate]) -> Estimate:
    """Return the mean of numbers whose intervals all hold at once."""
    known = [each.estimate for each in found if each.estimate is not None]
    lower, upper = (sum(ends) / len(found) for ends in zip(*(_ends(each) for each in found), strict=True))
    return Estimate(sum(known) / len(known) if known else None, lower, upper)


def _root(found: Estimate) -> Estimate:
    return Estimate(
        *(None if value is None else math.sqrt(value) for value in (found.estimate, found.lower, found.upper))
    )
