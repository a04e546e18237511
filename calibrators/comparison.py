"""The papers' tables of methods, as data. They state the cost and the utility of each method up to a constant, at the
caller's sizes.

All constants of the problem are 1 (Lipschitz constant, smoothness, radius, diameter, moments, initial gap), and so is
every constant that a table leaves open. The numbers of one table show only how methods grow relative to each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from accounting.numbers import MAX_DATASET_SIZE, read_integer, read_real

MAX_COMPARED_DIMENSION = 10**10


@dataclass(frozen=True, slots=True)
class Setting:
    """The values at which the tables' expressions are evaluated.

    Attributes:
        dataset_size: The number n of records.
        dimension: The dimension d.
        epsilon, delta: The parameters of approximate differential privacy, delta in (0, 1).
        holder_exponent: The Hoelder exponent alpha of the losses.
        condition_number: The condition number kappa of strongly convex or Polyak-Lojasiewicz objectives; the strong
            convexity is 1 / kappa.
        moment_order: The order k of the bounded moment of heavy-tailed gradients.
        norm_order: The order p of l_p geometries, in (1, 2].
        gaussian_width: The Gaussian width of a constraint set; None takes the width of the l2 ball, sqrt(d).

    Raises:
        InvalidValue: If a number is outside its range.
    """

    dataset_size: int
    dimension: int
    epsilon: float
    delta: float
    holder_exponent: float = 0.5
    condition_number: float = 10.0
    moment_order: float = 4.0
    norm_order: float = 1.5
    gaussian_width: float | None = None

    def __post_init__(self) -> None:
        read_integer("dataset_size", self.dataset_size, 2, MAX_DATASET_SIZE)
        read_integer("dimension", self.dimension, 1, MAX_COMPARED_DIMENSION)
        read_real("epsilon", self.epsilon, 0.0, 1e6, open_lower=True)
        read_real("delta", self.delta, 0.0, math.nextafter(1.0, 0.0), open_lower=True)
        read_real("holder_exponent", self.holder_exponent, 0.0, 1.0)
        read_real("condition_number", self.condition_number, 1.0, 1e12)
        read_real("moment_order", self.moment_order, 2.0, 1e6)
        read_real("norm_order", self.norm_order, 1.0, 2.0, open_lower=True)
        if self.gaussian_width is not None:
            read_real("gaussian_width", self.gaussian_width, 0.0, 1e12, open_lower=True)

    @property
    def log_delta(self) -> float:
        """The number ln(1/delta)."""
        return -math.log(self.delta)

    @property
    def privacy(self) -> float:
        """The quantity sqrt(d ln(1/delta)) / (n epsilon), which most rates contain."""
        return math.sqrt(self.dimension * self.log_delta) / (self.dataset_size * self.epsilon)

    @property
    def width(self) -> float:
        """The Gaussian width of the constraint set."""
        return math.sqrt(self.dimension) if self.gaussian_width is None else self.gaussian_width


@dataclass(frozen=True, slots=True)
class Expression:
    """A formula of the setting.

    Attributes:
        formula: The formula in LaTeX. Constants that the table leaves open are 1.
        value: A function that evaluates the formula; None if the table has no formula to evaluate.
    """

    formula: str
    value: Callable[[Setting], float] | None = None

    def at(self, setting: Setting) -> float | None:
        """Return the value of the expression. None if there is no formula, or if its value is not finite."""
        if self.value is None:
            return None
        try:
            found = self.value(setting)
        except (ArithmeticError, ValueError):
            return None
        return found if math.isfinite(found) else None


@dataclass(frozen=True, slots=True)
class Row:
    """One method in a table.

    Attributes:
        method: The name of the method or of the work.
        conditions: The conditions on losses, domain and penalty.
        utility: The quantity that the table measures.
        gradients: Number of single-record gradients; None if the table does not say.
        algorithm: The method's name in this service, if it is available.
        remark: Known errors and omissions in the paper's row.
    """

    method: str
    conditions: str
    utility: Expression
    gradients: Expression | None = None
    algorithm: str | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a paper.

    Attributes:
        name: Our name of the table.
        title: The subject of the comparison.
        source: The paper and the table.
        measure: The meaning of ``utility``.
        rows: The rows, in the paper's order.
        lower_bound: A rate that no private method beats, up to a constant; None if the paper states none.
        remark: A remark that holds for all rows.
    """

    name: str
    title: str
    source: str
    measure: str
    rows: tuple[Row, ...]
    lower_bound: Expression | None = None
    remark: str = ""
