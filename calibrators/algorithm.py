"""This module defines the record of an algorithm, which is ``ALGORITHM`` in the algorithm's file, and the constants
that a theorem needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Any

from accounting.errors import InvalidValue
from accounting.events import Sampling
from accounting.numbers import read_real
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.geometry import Domain, LpBall
from calibrators.plan import GradientBound
from calibrators.provenance import Units
from calibrators.scopes import Scope
from calibrators.spec import Calibration, Spec


@dataclass(frozen=True, slots=True)
class Assumption:
    """A constant of the problem that a theorem needs or can use.

    Attributes:
        name: The member's name in ``assumptions`` in the HTTP contract.
        symbol: The paper's letter, LaTeX.
        units: Its unit, in terms of the units of losses and parameters.
        meaning: The meaning of the constant, in words.
        lower, upper: Its range; ``open_lower`` excludes the lower end.
        required: Whether the theorem needs the constant. A constant that is not required and has no default is used
            only if it is given.
        default: The value that is used if the request gives none.
    """

    name: str
    symbol: str
    units: Units
    meaning: str
    lower: float = 0.0
    upper: float = 1e30
    open_lower: bool = False
    required: bool = True
    default: float | None = None


class StepRule(Enum):
    """The quantity by which a step size is multiplied."""

    BOUNDED_MEAN = "bounded mean"
    """A step moves along the noisy mean of bounded gradients. Without noise, it is no longer than the step size times
    the bound.
    """
    COORDINATES = "coordinates"
    """A step moves along Adam's quotient. A coordinate moves by about the step size, whatever the units of the loss."""


class StepCount(StrEnum):
    """A number of steps that a theorem chooses and a request may give."""

    ITERATIONS = "iterations"
    INNER_ITERATIONS = "inner_iterations"
    """The number of steps of an epoch or a round. A request gives it as one of its assumptions."""


#: The usual target of an example.
EXAMPLE_TARGET = ApproximateDpTarget(2.0, 1e-6)


@dataclass(frozen=True, slots=True)
class Example:
    """A spec that the algorithm answers in full. The algorithm's page shows the answer, and the conformance suite
    varies the spec.

    The spec leaves out the values that the paper chooses itself: always the sampling and the relation, and the sizes if
    the algorithm can choose them. The spec gives every constant that the theorem needs. Each constant is well inside
    the theorem's conditions, so that it can be changed by a factor of ten.

    Attributes:
        spec: A spec with everything that the theorem needs.
        variants: Changes of the spec that show other forms of the theorem, each named by a word.
        bounded: Whether a theorem bounds the algorithm's error. If not, there are no constants and no bounds, and a
            warning says so.
    """

    spec: Spec
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    bounded: bool = True

    def specs(self) -> dict[str, Spec]:
        """Return the spec and its variants by name."""
        return {"": self.spec} | {word: replace(self.spec, **changes) for word, changes in self.variants.items()}


@dataclass(frozen=True, slots=True)
class ExampleRequest:
    """A request that the documentation shows as an example. The service answers it without changes.

    Attributes:
        summary: The question, in a few words.
        body: The request's members as JSON, without the algorithm's name.
    """

    summary: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A private algorithm of one of the papers.

    Attributes:
        name: The name in the HTTP contract. The algorithm's files in this package and in `trainer.algorithms` have the
            same name.
        summary: A summary in one sentence.
        source: The paper, the algorithm and the theorem.
        update: One step, in LaTeX.
        samplings: The sampling schemes under which the algorithm's events are accounted; the first is the default.
        relations: The neighbouring relations under which the algorithm's events are accounted. The default is the first
            relation under which the chosen sampling is accounted.
        gradient_bounds: The kinds of gradient bound that a request may give; empty if the bound follows from the
            assumptions alone.
        gradient_bound_required: Whether a request must give a gradient bound.
        assumptions: The constants that the algorithm's theorem needs or can use.
        guarantee: The promise about the released model.
        gradient_complexity: The number of per-record gradients, in LaTeX.
        verdict: The verdict on the paper's own calibration, in a sentence.
        errata: The places where the paper is wrong or ambiguous, and the solution used here.
        scope: The scope of its theorem.
        example: The example on its page, from which the conformance suite starts.
        requests: Examples of ``POST /v1/calibrate`` by name. No two examples share a name. The dashboard's form starts
            with the first example.
        one_step: Whether the algorithm releases only once. A request then gives no number of steps.
        in_stages: Whether the batch size, the noise and the step size may change during the run.
        has_pure_dp: Whether the algorithm can meet a target of pure DP. Algorithms with Gaussian noise cannot.
        step_rule: The way in which the algorithm uses a caller's step size; None if its steps need a theorem. If there
            is a rule, the preset `practical` chooses a step size, and the points of the last steps may be averaged.
        is_usual: Whether the preset `practical` takes this algorithm if the request names none. There is exactly one
            such algorithm.
        theorem_bound: A function that computes the theorem's gradient bound from its constants; None if the theorem has
            none, or a constant is missing.
        fewer_steps: The member of a request that sets the number of steps, for requests that want fewer than the
            theorem chooses. None if the theorem chooses no number, or the same number for every request. Presets ask
            for no more steps than a worker has time for.
        correlates: Whether the noise is correlated over steps. A spec then describes the correlation, and may have
            momentum and a schedule of step sizes.
        norm_order: The p of the l_p norm in which parameters are measured. Gradients are measured in the dual norm.
        variants: The names of the algorithm's forms, the default first; empty if there is only one form.
        calibrate: The function that calibrates a spec whose defaults are filled in (`calibrators.registry.calibrate`).
    """

    name: str
    summary: str
    source: str
    update: str
    samplings: tuple[type[Sampling], ...]
    relations: tuple[NeighboringRelation, ...]
    gradient_bounds: tuple[type[GradientBound], ...]
    assumptions: tuple[Assumption, ...]
    guarantee: str
    gradient_complexity: str
    verdict: str
    errata: tuple[str, ...]
    calibrate: Callable[[Spec], Calibration]
    scope: Scope
    example: Example
    requests: Mapping[str, ExampleRequest]
    one_step: bool = False
    in_stages: bool = False
    has_pure_dp: bool = False
    fewer_steps: StepCount | None = None
    correlates: bool = False
    step_rule: StepRule | None = None
    is_usual: bool = False
    theorem_bound: Callable[[Mapping[str, float]], GradientBound | None] | None = None
    gradient_bound_required: bool = True
    norm_order: float = 2.0
    variants: tuple[str, ...] = ()

    def order_of_norm(self, given: Mapping[str, float], domain: Domain | None) -> float:
        """Return the p of the norm in which parameters are measured. It is the request's p if the algorithm supports
        every p.

        Args:
            given: The request's assumptions.
            domain: The domain of the request.
        """
        if all(assumption.name != "norm_order" for assumption in self.assumptions):
            return self.norm_order
        order = domain.norm_order if isinstance(domain, LpBall) else given.get("norm_order", self.norm_order)
        return order if 1.0 <= order <= 2.0 else self.norm_order


@dataclass(frozen=True, slots=True)
class Given:
    """The constants of a spec, each of which is inside its range.

    Attributes:
        values: The values by name. A constant with a default always has one.
        missing: The names of constants that the theorem needs and that have no value.
    """

    values: Mapping[str, float]
    missing: tuple[str, ...]

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def get(self, name: str) -> float | None:
        """Return the constant, or None if it was not given and has no default."""
        return self.values.get(name)


def read_assumptions(
    known: Sequence[Assumption], given: Mapping[str, float], *, needed: Sequence[tuple[str, object]] = ()
) -> Given:
    """Read the constants of a spec.

    Args:
        known: The assumptions of the algorithm.
        given: The constants of the spec, by name.
        needed: Further inputs that the theorem needs, by name, such as the spec's dimension; None marks a missing one.

    Raises:
        InvalidValue: If a constant is outside its range, or the algorithm has no constant of this name.
    """
    names = [assumption.name for assumption in known]
    for name in given:
        if name not in names:
            there_are = f"it has {', '.join(names)}" if names else "it has none, because no theorem covers it"
            raise InvalidValue(
                f"this algorithm has no assumption {name!r}; {there_are}",
                code="unknown_assumption",
                pointer=("assumptions", name),
            )
    values: dict[str, float] = {}
    missing: list[str] = []
    for assumption in known:
        if assumption.name in given:
            values[assumption.name] = _read(assumption, given[assumption.name])
        elif assumption.default is not None:
            values[assumption.name] = assumption.default
        elif assumption.required:
            missing.append(assumption.name)
    missing += [name for name, value in needed if value is None]
    return Given(values, tuple(missing))


def _read(assumption: Assumption, value: object) -> float:
    try:
        return read_real(assumption.name, value, assumption.lower, assumption.upper, open_lower=assumption.open_lower)
    except InvalidValue as error:
        raise error.inside("assumptions") from None
