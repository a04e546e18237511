"""Clipped noisy accelerated SGD, one pass: gradients at a point between two sequences, ever longer steps.

Source: Lowy & Razaviyayn 2023 (arXiv 2209.07403), Algorithms 2 and 5.
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.plan import Clip, Phase
from trainer.arrays import Array
from trainer.execution import PREDICTORS, Coordinates, Execution, check_gradient_steps
from trainer.loop import GradientSteps, Resumable, Step
from trainer.penalties import gradient


class AcceleratedSequences(Resumable):
    """The sequence w_t, which the steps move, and the sequence of its means w_t^ag, which is released. Both lie in the
    domain.

    Both are computed from noisy sums, so they cost no privacy.

    Args:
        start: The start w_0, shape (d,), float64.

    Guarantees:
        - iteration_is_algorithm_2: the iteration is the paper's, up to the margin of clipping, and with a penalty whose
          gradient at w_t^md is added after clipping.
        - one_record_moves_the_sum_by_at_most_the_bound: the bound is C, or 2 C if a record is replaced.
    """

    kept = ("point", "_moved", "_done")

    def __init__(self, start: Array) -> None:
        self._moved, self.point = start, start
        self._done = 0

    @property
    def query(self) -> Array:
        """The point w_t^md = (1 - alpha_t) w_{t-1}^ag + alpha_t w_{t-1}, at which the next step's gradients are
        taken."""
        return self._towards(self._moved)

    def advance(self, step: Step) -> None:
        """Set w_t = Pi_W(w_{t-1} - t gamma g_t) and w_t^ag = (1 - alpha_t) w_{t-1}^ag + alpha_t w_t.

        Args:
            step: The step. Its noisy_mean is that of the records' clipped gradients at w_t^md, its step_size is gamma =
                1 / (2 eta), and its domain is W.
        """
        noisy_gradient = step.noisy_mean + gradient(step.penalty, self.query)
        length = (self._done + 1) * step.step_size
        moved = step.project(self._moved - length * noisy_gradient)
        self.point = self._towards(moved)
        self._moved = moved
        self._done += 1

    def _towards(self, other: Array) -> Array:
        """Go from w_{t-1}^ag the share alpha_t = 2 / (t + 1) of the way to another point."""
        share = 2.0 / (self._done + 2.0)
        return (1.0 - share) * self.point + share * other


EXECUTION = Execution(
    phase_type=Phase,
    gradient_bound=Clip,
    make=lambda task: GradientSteps(task, AcceleratedSequences, Clip),
    check=check_gradient_steps,
    models=PREDICTORS,
    coordinates=Coordinates.SEPARATE,
    requests={
        "accelerated": ExampleRequest(
            "Clipped accelerated SGD in one pass: logistic regression in a ball, all from the declared bounds",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "target": {"kind": "zcdp", "rho": 2},
                "domain": {"kind": "l2_ball", "radius": 10},
            },
        )
    },
)
