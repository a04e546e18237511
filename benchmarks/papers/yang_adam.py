"""This reproduction compares the accuracies of DP-Adam and DP-NAdam with those of DP-SGD and DP-NSGD, at several step
sizes and the same privacy.

Yang, Zhang, Chen & Liu 2022 compare the four algorithms by experiments, and no theorem covers the two with moments. The
data, model and privacy are those of `yang_digits`. Each algorithm has the clip threshold or regulariser that had good
accuracy there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.papers import yang_digits
from benchmarks.papers.reproduction import Cell, Lines, Reproduction
from calibrators.plan import Clip, GradientBound, Normalize

NAME = "yang_adam"
TITLE = "Digits: Adam's step with clipped and normalised gradients (Yang et al., section 4)"

BOUNDS: Mapping[str, GradientBound] = {
    "dp_sgd": Clip(1.0),
    "dp_nsgd": Normalize(0.1),
    "dp_adam": Clip(1.0),
    "dp_nadam": Normalize(0.1),
}
#: The step sizes of the algorithms without moments and of those with moments, whose steps are about as long as the step
#: size.
STEP_SIZES = {False: tuple(4.0**k for k in range(-2, 3)), True: tuple(4.0**-k for k in range(5, 0, -1))}
#: An accuracy counts as good if it is at most this far below the best of the algorithm.
NEAR = 0.03

Row = dict[str, Cell]


def reproduce(quick: bool) -> Reproduction:
    """Return the accuracy of each algorithm at five step sizes, each four times the last."""
    runs, steps = (1, 60) if quick else (6, 200)
    data = yang_digits.data()
    rows: list[Row] = []
    for algorithm, bound in BOUNDS.items():
        for place, step_size in enumerate(STEP_SIZES[algorithm.endswith("adam")]):
            score = yang_digits.accuracy(algorithm, bound, step_size, steps, data, runs)
            rows.append({"algorithm": algorithm, "place": place + 1, "step size": step_size, "accuracy": score})
    return {
        "inputs": {
            "epsilon": yang_digits.EPSILON,
            "delta": yang_digits.DELTA,
            "clip threshold": 1.0,
            "regulariser": 0.1,
            "model": f"tanh perceptron 64-{yang_digits.HIDDEN}-10",
            "batch": f"{yang_digits.BATCH}, poisson",
            "relation": "add_or_remove_one",
            "steps": steps,
            "runs per cell": runs,
            "dtype": "float32",
        },
        "rows": rows,
        "sentences": [_best(rows), _range(rows)],
        "plots": [_plot(rows)],
    }


def _of(rows: Sequence[Row], algorithm: str) -> list[Row]:
    return [row for row in rows if row["algorithm"] == algorithm]


def _accuracy(row: Row) -> float:
    value = row["accuracy"]
    assert isinstance(value, float)
    return value


def _best(rows: Sequence[Row]) -> str:
    best = {algorithm: max(_of(rows, algorithm), key=_accuracy) for algorithm in BOUNDS}
    words = ", ".join(f"{name} {_accuracy(row):.3f} (step size {row['step size']:g})" for name, row in best.items())
    return f"The best accuracies over the step sizes are: {words}."


def _range(rows: Sequence[Row]) -> str:
    good = {}
    for algorithm in BOUNDS:
        some = [_accuracy(row) for row in _of(rows, algorithm)]
        good[algorithm] = sum(value >= max(some) - NEAR for value in some)
    words = ", ".join(f"{name} {count}" for name, count in good.items())
    places = len(STEP_SIZES[False])
    return (
        f"Of {places} step sizes, each four times the last, so many are within {NEAR:g} of the algorithm's best: "
        f"{words}."
    )


def _plot(rows: Sequence[Row]) -> Lines:
    return {
        "kind": "lines",
        "title": "Accuracy on held-out digits over the step size, a factor of four from place to place",
        "x": [float(place) for place in range(1, len(STEP_SIZES[False]) + 1)],
        "series": {algorithm: [_accuracy(row) for row in _of(rows, algorithm)] for algorithm in BOUNDS},
        "x_label": f"place among the step sizes: {_span(False)} without moments, {_span(True)} with",
        "y_label": "accuracy",
    }


def _span(moments: bool) -> str:
    sizes = STEP_SIZES[moments]
    return f"{sizes[0]:.2g} to {sizes[-1]:.2g}"
