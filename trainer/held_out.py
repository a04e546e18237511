r"""This module makes one noisy vector of sums over held-out rows. Nothing else about these rows is ever released.

A row adds a vector to the sums. The vector has parts, none longer than 1 in the l2 norm, so the vector is no longer
than C = sqrt(number of parts). For a model that predicts classes, the parts are

| part | what a row adds | length |
|---|---|---|
| outcome | 1 to the cell right or wrong | 1 |
| confusion | 1 to the cell of its class and of the predicted one | 1 |
| log_loss | -log of its class's probability over `log_loss_cap`, capped at 1 | at most 1 |
| calibration | right less the predicted class's probability, in the bin of that probability | at most 1 |
| ranking | for each of k classes, 1 / sqrt(k) to the bin of its probability, of the class's rows or of others | 1 |

For many classes, the confusion has one cell for right and one for wrong predictions of each class, and there is no
ranking. For two classes, only the second one is ranked. A model without probabilities has only the first two parts. For
a number, scaled to [-1, 1] as its prediction is clipped to it, the parts are 1, |error| / 2, error^2 / 4, label,
label^2.

What a row adds is rounded towards zero to whole multiples of `GRAIN`, which makes it no longer. Sums of such numbers
are exact in float64 in whatever order, and so is the noise. So one row moves the sums by at most C in the l2 norm if it
comes or goes, and by at most 2 C if it is replaced. The page docs/concepts/held_out_rows.md has the whole argument.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrators.held_out import HeldOutEvaluation
from trainer.arrays import silent
from trainer.exact.gaussian import RoundedGaussian
from trainer.models import Model, Parameters
from trainer.records import rows_of_slots
from trainer.scores import CALIBRATION_BINS, MAX_CONFUSED_CLASSES, row_blocks
from trainer.streams import RandomStreams

FloatArray = npt.NDArray[np.float64]

#: The unit of the sums: each row adds a whole number of these.
GRAIN = 2.0**-20
#: Bins by which rows are ranked: equal ones of arcsin(sqrt(probability)), which are finer near 0 and 1.
RANKING_BINS = 12
#: A log loss is capped at this many nats beyond that of equal probabilities.
_BEYOND_CHANCE = 3.0

#: Cells that rows add to, and the amount that each row adds to its cell, in grains.
_Entries = tuple[npt.NDArray[np.intp], FloatArray]


@dataclass(frozen=True)
class Layout:
    """The order of the parts in the vector. It is public, since it depends only on the model.

    Attributes:
        num_classes: The number of classes; 0 if the model predicts numbers.
        has_probabilities: Whether the model predicts probabilities.
    """

    num_classes: int
    has_probabilities: bool

    @property
    def sizes(self) -> dict[str, int]:
        """The numbers of coordinates of the parts, in their order."""
        if not self.num_classes:
            return dict.fromkeys(("records", "absolute_error", "squared_error", "label", "squared_label"), 1)
        per_class = self.num_classes if self.is_confused else 2
        sizes = {"outcome": 2, "confusion": self.num_classes * per_class}
        if self.has_probabilities:
            sizes |= {"log_loss": 1, "calibration": CALIBRATION_BINS}
            sizes |= {"ranking": self.ranked_classes * 2 * RANKING_BINS} if self.ranked_classes else {}
        return sizes

    @property
    def size(self) -> int:
        """The size d, the length of the vector."""
        return sum(self.sizes.values())

    @property
    def bound(self) -> float:
        """The bound C: no row adds a vector that is longer in the l2 norm."""
        return math.nextafter(math.sqrt(len(self.sizes)), math.inf)

    @property
    def is_confused(self) -> bool:
        """Return whether the confusion matrix has a cell for each pair of a class and a predicted class."""
        return self.num_classes <= MAX_CONFUSED_CLASSES

    @property
    def ranked_classes(self) -> int:
        """Return how many classes are ranked against the rest: one if there are two classes, none if there are more
        than 20."""
        return 1 if self.num_classes == 2 else self.num_classes if self.is_confused else 0

    @property
    def ranking_grains(self) -> int:
        """Return what a row adds to a bin of the ranking, in grains: 1 / sqrt(ranked classes), rounded down."""
        return math.isqrt(int(GRAIN**-2) // self.ranked_classes)

    @property
    def log_loss_cap(self) -> float:
        """The cap on the log loss, in nats: a larger loss counts as this one."""
        return math.log(self.num_classes) + _BEYOND_CHANCE

    def part(self, vector: FloatArray, name: str) -> FloatArray:
        """Return a part of a vector."""
        start = self.start(name)
        return vector[start : start + self.sizes[name]]

    def start(self, name: str) -> int:
        """Return the place of a part's first coordinate."""
        names = list(self.sizes)
        return sum(self.sizes[before] for before in names[: names.index(name)])


def layout_of(model: Model, parameters: Parameters) -> Layout:
    """Return the layout of a model's evaluation.

    >>> from trainer.models import logistic_regression
    >>> weights = {"weights": np.zeros(3), "bias": np.array(0.0)}
    >>> layout_of(logistic_regression(3), weights).sizes
    {'outcome': 2, 'confusion': 4, 'log_loss': 1, 'calibration': 15, 'ranking': 24}
    """
    none = np.zeros((1, model.num_features))
    has_probabilities = bool(model.num_classes) and model.probabilities(parameters, none) is not None
    return Layout(model.num_classes, has_probabilities)


def noise_stddev(evaluation: HeldOutEvaluation, layout: Layout) -> float:
    """Return the standard deviation of the noise on each coordinate."""
    return evaluation.noise_multiplier * layout.bound * (1.0 + 2.0**-50)


def noisy_sums(
    evaluation: HeldOutEvaluation,
    model: Model,
    parameters: Parameters,
    features: FloatArray,
    labels: npt.NDArray[np.generic],
    capacity: int,
    streams: RandomStreams,
) -> FloatArray:
    """Return the sums over held-out rows, with noise: a Gaussian mechanism, charged as the evaluation's event.

    Args:
        evaluation: The charged evaluation.
        model: The model that predicts.
        parameters: Its released parameters.
        features: shape (n, p), scaled by declared bounds; n is private, and may be 0.
        labels: shape (n,), codes of classes or numbers in [-1, 1].
        capacity: The number of slots, a public number; n is at most the capacity.
        streams: Fresh streams, which are used for this vector alone.

    Guarantees:
        - a_row_moves_the_sums_within_the_bound: by `Layout.bound` in the l2 norm if it comes or goes, and by twice
          that if it is replaced, for every row and all of the others.
        - noise_is_that_of_the_event: `noise_stddev`, exact on the grid of the sums.
        - the_work_is_that_of_the_slots: the number of rows changes no shape, and no branch depends on a row.
    """
    layout = layout_of(model, parameters)
    sums = sums_in_grains(layout, model, parameters, features, labels, capacity, streams)
    noise = RoundedGaussian(streams.noise).rounded(layout.size, noise_stddev(evaluation, layout) / GRAIN)
    # Minus zero would reveal the sign of a sum.
    return (sums + noise + 0.0) * GRAIN


def sums_in_grains(
    layout: Layout,
    model: Model,
    parameters: Parameters,
    features: FloatArray,
    labels: npt.NDArray[np.generic],
    capacity: int,
    streams: RandomStreams,
) -> FloatArray:
    """Return the sums without noise, shape (d,), in whole grains: a secret. The arguments are those of `noisy_sums`.

    Rows are in slots of a secret order, so that neighbours differ in one slot. All slots are predicted, in blocks of
    public sizes, so that what a row adds depends on the row and its slot alone.
    """
    positions = streams.slots.generator().permutation(capacity).astype(np.intp)
    rows = rows_of_slots(positions, len(labels))[:capacity]
    features = features if len(labels) else np.zeros((1, model.num_features))
    labels = labels if len(labels) else np.zeros(1)
    sums = np.zeros(layout.size)
    with silent():
        for block in row_blocks(model, capacity):
            taken = np.maximum(rows[block], 0)
            is_row = (rows[block] >= 0).astype(np.float64)
            entries = _entries(layout, model, parameters, features[taken], labels[taken].astype(np.float64))
            for cells, grains in entries:
                sums += np.bincount(cells, weights=grains * is_row, minlength=layout.size)
    return sums


def _entries(
    layout: Layout, model: Model, parameters: Parameters, rows: FloatArray, labels: FloatArray
) -> list[_Entries]:
    """Return a list of pairs of cells and amounts. In each pair, every row has one cell and the amount that it adds
    there."""
    predicted = model.predict(parameters, rows)
    if not layout.num_classes:
        return _entries_of_numbers(layout, predicted.astype(np.float64), labels)
    most = layout.num_classes - 1
    true = np.clip(np.nan_to_num(labels), 0, most).astype(np.intp)
    chosen = np.clip(predicted.astype(np.intp), 0, most)
    is_right = (true == chosen).astype(np.float64)
    is_wrong = (true != chosen).astype(np.intp)
    one = np.full(len(true), 1.0 / GRAIN)
    within = true * layout.num_classes + chosen if layout.is_confused else 2 * true + is_wrong
    found = [(layout.start("outcome") + is_wrong, one), (layout.start("confusion") + within, one)]
    shown = model.probabilities(parameters, rows) if layout.has_probabilities else None
    if shown is None:
        return found
    shown = np.clip(np.nan_to_num(shown), 0.0, 1.0)
    cap = layout.log_loss_cap
    of_true, of_chosen = _of_class(shown, true), _of_class(shown, chosen)
    loss = np.minimum(-np.log(np.maximum(of_true, math.exp(-cap))) / cap, 1.0)
    found.append((np.full(len(true), layout.start("log_loss")), _whole(loss)))
    bins = _bins(of_chosen, CALIBRATION_BINS)
    found.append((layout.start("calibration") + bins, _whole(is_right - of_chosen)))
    each = np.full(len(true), float(layout.ranking_grains)) if layout.ranked_classes else one
    for place in range(layout.ranked_classes):
        ranked = 1 if layout.num_classes == 2 else place
        among_others = (true != ranked).astype(np.intp)
        first = layout.start("ranking") + (2 * place + among_others) * RANKING_BINS
        found.append((first + _bins(2.0 / math.pi * np.arcsin(np.sqrt(shown[:, ranked])), RANKING_BINS), each))
    return found


def _entries_of_numbers(layout: Layout, predicted: FloatArray, labels: FloatArray) -> list[_Entries]:
    true = np.clip(np.nan_to_num(labels), -1.0, 1.0)
    error = np.clip(np.nan_to_num(predicted), -1.0, 1.0) - true
    added = np.ones(len(true)), np.abs(error) / 2.0, error**2 / 4.0, true, true**2
    return [
        (np.full(len(true), layout.start(name)), _whole(values))
        for name, values in zip(layout.sizes, added, strict=True)
    ]


def _of_class(shown: FloatArray, classes: npt.NDArray[np.intp]) -> FloatArray:
    taken: FloatArray = np.take_along_axis(shown, classes[:, np.newaxis], axis=1)[:, 0]
    return taken


def _bins(probabilities: FloatArray, count: int) -> npt.NDArray[np.intp]:
    return np.minimum((probabilities * count).astype(np.intp), count - 1)


def _whole(values: FloatArray) -> FloatArray:
    """Return numbers in [-1, 1] in whole grains, rounded towards zero."""
    return np.trunc(values / GRAIN)
