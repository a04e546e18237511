"""This module has the record of a reproduction, and functions that most reproductions use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, Protocol, TypedDict

import numpy as np

from calibrators.plan import Phase, Plan

#: A cell of a table.
Cell = float | int | str | bool | None


class Lines(TypedDict):
    """Several curves over the same values of x. A value of a curve is None if it has no point there."""

    kind: Literal["lines"]
    title: str
    x: Sequence[float]
    series: Mapping[str, Sequence[float | None]]
    x_label: str
    y_label: str
    log_x: NotRequired[bool]
    log_y: NotRequired[bool]


class HeatMap(TypedDict):
    """A heat map with ``values[j][i]`` at ``x[i]`` and ``y[j]``."""

    kind: Literal["heat_map"]
    title: str
    x: Sequence[float]
    y: Sequence[float]
    values: Sequence[Sequence[float]]
    x_label: str
    y_label: str


Plot = Lines | HeatMap


class Reproduction(TypedDict):
    """The record of a reproduction, which is plain JSON.

    Attributes:
        inputs: The fixed inputs: sizes, target, constants of the problem.
        rows: The rows of a table. Each is a mapping from column to cell, and all have the same columns.
        sentences: The findings, including bad ones. Each sentence follows from the rows.
        plots: The plots to draw.
    """

    inputs: Mapping[str, Cell]
    rows: Sequence[Mapping[str, Cell]]
    sentences: Sequence[str]
    plots: NotRequired[Sequence[Plot]]


class Module(Protocol):
    """The interface of a module with a reproduction."""

    NAME: str
    TITLE: str

    def reproduce(self, quick: bool) -> Mapping[str, Any]:
        """Train and measure, and return a `Reproduction`. With ``quick`` it measures less, and the figures are not
        committed."""
        ...


def only_phase(plan: Plan) -> Phase:
    """Return the only phase of a plan of equal gradient steps.

    Raises:
        ValueError: If the plan is of another kind.
    """
    [phase] = plan.phases
    if not isinstance(phase, Phase):
        raise ValueError(f"{plan.algorithm} is no plan of equal gradient steps")
    return phase


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the exponent a of the power law y = c x^a that fits best in logarithms.

    >>> round(slope([1.0, 10.0, 100.0], [5.0, 0.5, 0.05]), 12)
    -1.0
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of independent runs and its standard error.

    >>> mean_and_error([1.0, 3.0])
    (2.0, 1.0)
    """
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
