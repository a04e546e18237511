"""This module runs algorithms on synthetic rows of a problem's declared shape, and ranks their results.

The request of each run names only the algorithm and the penalty. So its steps come from the preset `practical` if the
algorithm takes a step size, and otherwise from the theorem. It is calibrated for the target, and its noise is drawn.
All algorithms train on the same rows, drawn anew for each repetition, and are judged on the same fresh rows, by the
loss without the penalty, as in the evaluation of a model.

Nothing is proved about the figures, and no private row affects them: they follow from declared numbers and a public
seed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from accounting.errors import AccountingError, InvalidValue, one_of
from calibrators.advice import Facts, Reason
from calibrators.draft import Draft
from calibrators.geometry import L2Penalty, Penalty
from calibrators.plan import Plan
from calibrators.presets import Objective, Preset, nothing_derived
from calibrators.registry import find_algorithm
from calibrators.scopes import Problem, Shape
from calibrators.spec import Calibration, Spec
from trainer.algorithms import EXECUTIONS
from trainer.execution import Proposal
from trainer.models import LinearModel, MeanModel, Model, MultilayerPerceptron
from trainer.numeric_types import carried_out
from trainer.run import RunCancelled, rows_per_step, run, usual_capacity
from trainer.simulation.populations import (
    FloatArray,
    LabelledRows,
    RecordsAboutAMean,
    labelled_rows,
    radius_of,
    records_about_a_mean,
)
from trainer.simulation.sizes import MOST_PARAMETERS, simulated_records, target_for_fewer
from trainer.simulation.taught import TaughtRows, taught_rows

Population = LabelledRows | TaughtRows | RecordsAboutAMean

MAX_REPETITIONS = 20
#: The most multiplications in all steps of one run, and the most steps: they take seconds of one core.
MOST_WORK, MOST_STEPS = 4e9, 20_000
#: The most fresh rows times parameters, and the most fresh rows.
_FRESH_NUMBERS, _MOST_FRESH = 4_000_000, 20_000


@dataclass(frozen=True)
class Simulation:
    """A simulation that is to be carried out.

    Attributes:
        problem, facts: The problem and the facts, as in a request for advice.
        kind: The kind of the model; "mean" for the mean of records.
        classes: The number of classes of a softmax regression, or of a perceptron.
        fit_intercept: Whether a linear model has an intercept. Perceptrons have their biases.
        hidden, activation: The width and the activation of a perceptron.
        penalty: The penalty that is added to the loss in training.
        repetitions: Runs of each algorithm.
        seed: A public seed, which decides rows, coins and noise.

    Raises:
        InvalidValue: If numbers do not fit each other, or are out of range.
        Unsupported: If no law of such rows is available whose best point is known.
    """

    problem: Problem
    facts: Facts
    kind: str
    classes: int = 0
    fit_intercept: bool = False
    hidden: tuple[int, ...] = ()
    activation: str = "relu"
    penalty: Penalty | None = None
    repetitions: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.facts.dimension > MOST_PARAMETERS:
            detail = f"a simulation has at most {MOST_PARAMETERS} parameters, not {self.facts.dimension}"
            raise InvalidValue(f"{detail}; leave it out, or ask for fewer", pointer=("dimension",))
        if (self.kind == MeanModel.kind) is not (self.problem.shape is Shape.MEAN):
            detail = "the model mean fits only a problem whose shape is mean"
            raise InvalidValue(detail, pointer=("simulation", "model"))
        if self.kind == MultilayerPerceptron.kind and (
            self.problem.shape is not Shape.NONCONVEX or self.problem.is_heavy_tailed
        ):
            shape = "heavy-tailed" if self.problem.is_heavy_tailed else self.problem.shape
            detail = (
                "a perceptron is simulated only for a nonconvex problem without heavy tails, and this problem is "
                f"{shape}"
            )
            raise InvalidValue(f"{detail}; take a linear model", pointer=("simulation", "model"))
        target_for_fewer(self.facts.target, self.factor)
        self.population()

    @property
    def records(self) -> int:
        """Return how many rows a run trains on."""
        return simulated_records(self.facts.dataset_size, self.facts.dimension)

    @property
    def factor(self) -> float:
        """Return the declared size over the number of simulated rows."""
        return self.facts.dataset_size / self.records

    def population(self) -> Population:
        """Return the law of the rows, which is the same at every call."""
        random, heavy = self._random(0), self.problem.is_heavy_tailed
        constants, order = self.facts.assumptions, self.problem.norm_order
        if self.kind == MultilayerPerceptron.kind:
            radius = radius_of(constants)
            return taught_rows(self.facts.dimension, self.classes, self.hidden, self.activation, radius, order, random)
        if heavy and not {"moment_order", "moment_bound"} <= constants.keys():
            detail = "rows with heavy tails are drawn with moment_order and moment_bound: give both"
            raise InvalidValue(detail, code="missing", pointer=("assumptions", "moment_bound"))
        if self.kind == MeanModel.kind:
            return records_about_a_mean(self.facts.dimension, constants, random=random, is_heavy_tailed=heavy)
        return labelled_rows(
            self.kind,
            self.facts.dimension,
            order,
            constants,
            random=random,
            classes=self.classes,
            fit_intercept=self.fit_intercept,
            strength=self.penalty.strength if isinstance(self.penalty, L2Penalty) else 0.0,
            is_heavy_tailed=heavy,
        )

    @property
    def objective(self) -> Objective:
        """Return the public facts about the loss. Only the loss of a perceptron is not convex."""
        model = self.population().model
        is_of_numbers = isinstance(model, LinearModel) and not model.num_classes
        return Objective(nothing_derived, not isinstance(model, MultilayerPerceptron), is_of_numbers)

    def fresh(self, population: Population) -> tuple[FloatArray, npt.NDArray[np.generic]]:
        """Draw the rows on which released points are judged."""
        return population.draw(min(_MOST_FRESH, max(1000, _FRESH_NUMBERS // self.facts.dimension)), self._random(1))

    def rows(self, population: Population, repetition: int) -> tuple[FloatArray, npt.NDArray[np.generic]]:
        """Draw the rows on which every algorithm trains in this repetition."""
        return population.draw(self.records, self._random(2 + repetition))

    def _random(self, stream: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, stream])))


@dataclass(frozen=True)
class Attained:
    """The result of one algorithm, or why it was not simulated.

    Attributes:
        algorithm: The name of the algorithm.
        excess: The loss of the released point above that of the best point, as a mean over the repetitions; infinite if
            a run diverged. None if the algorithm was not simulated.
        standard_error: The standard error of that mean; None for a single repetition.
        steps: The number of steps of the algorithm's plan.
        choices: The preset's choices, by the member of a request.
        reason: Why the algorithm was not simulated.
        is_final: Whether the same question has the same answer on every machine: false where time ran out.
    """

    algorithm: str
    excess: float | None = None
    standard_error: float | None = None
    steps: int | None = None
    choices: Mapping[str, object] = field(default_factory=dict)
    reason: Reason | None = None
    is_final: bool = True


def before_training(asked: Simulation) -> tuple[float, str]:
    """Return the excess of the point from which training starts, and the unit of the excess in words."""
    population = asked.population()
    return population.before_training(*asked.fresh(population)), population.unit


def simulate(asked: Simulation, name: str, advised: Spec, seconds: float = math.inf) -> Attained:
    """Run one algorithm on the synthetic rows, as often as the simulation asks for.

    The function also runs in another process, so its arguments and its result can be pickled.

    Args:
        asked: The simulation.
        name: The algorithm's.
        advised: The advice, calibrated at the declared size.
        seconds: The time in seconds after which the run is given up.

    Guarantees:
        - the_seed_decides: equal simulations have equal results, unless time ran out.
    """
    deadline = time.monotonic() + seconds
    try:
        population = asked.population()
        calibration = calibrated(asked, name, advised)
        plan = carried_out(calibration.plan, None)[0]
        _check(plan, population.model, calibration, asked)
        fresh = asked.fresh(population)
        found = []
        for repetition in range(asked.repetitions):
            rows, labels = asked.rows(population, repetition)
            released = run(
                plan,
                population.model,
                rows,
                labels,
                seed=asked.seed + repetition,
                is_cancelled=lambda: time.monotonic() > deadline,
            )
            excess = population.excess(released.parameters, *fresh)
            found.append(excess if math.isfinite(excess) else math.inf)
    except AccountingError as error:
        is_of_simulation = error.pointer[:1] == ("penalty",)
        pointer = ("simulation", *error.pointer) if is_of_simulation else tuple(error.pointer)
        return Attained(name, reason=Reason(error.detail, pointer))
    except RunCancelled as error:
        detail = f"the run was given up after {seconds:.0f} s, at step {error.steps} of {plan.iterations}"
        return Attained(name, reason=Reason(detail), is_final=False)
    mean = float(np.mean(found))
    error_of_mean = (
        float(np.std(found, ddof=1) / math.sqrt(len(found))) if math.isfinite(mean) and len(found) > 1 else None
    )
    chosen = {choice.name: choice.value for choice in calibration.choices}
    return Attained(name, mean, error_of_mean, plan.iterations, chosen)


def calibrated(asked: Simulation, name: str, advised: Spec) -> Calibration:
    """Calibrate a run that names only the algorithm, for the number of simulated rows.

    If a theorem's own iterations are too many to be simulated, a given number of iterations is used.

    Args:
        asked: The simulation.
        name: The algorithm's.
        advised: The advice, calibrated at the declared size.

    Raises:
        AccountingError: If the target cannot be met, or a member is missing that no preset chooses.
    """
    algorithm, given = find_algorithm(name), asked.facts.gradient_bound
    spec = replace(
        advised,
        dataset_size=asked.records,
        target=target_for_fewer(asked.facts.target, asked.factor),
        batch_size=None if advised.batch_size is None else max(1, round(advised.batch_size / asked.factor)),
        penalty=asked.penalty,
        judge_published=False,
    )
    if algorithm.step_rule is not None:
        # A theorem's threshold belongs to the theorem's step size, and no theorem chooses these step sizes.
        spec = replace(spec, gradient_bound=given if isinstance(given, algorithm.gradient_bounds) else None)
    found = Draft(name, spec, Preset.PRACTICAL, asked.objective).calibrate()
    fewer = asked.facts.iterations
    if found.plan.iterations > MOST_STEPS and spec.iterations is None and fewer is not None:
        found = Draft(name, replace(spec, iterations=fewer), Preset.PRACTICAL, asked.objective).calibrate()
    return found


def ranked(found: list[Attained]) -> list[Attained]:
    """Return the algorithms that were simulated, in increasing order of excess."""
    return sorted((each for each in found if each.excess is not None), key=lambda each: each.excess or 0.0)


def _check(plan: Plan, model: Model, calibration: Calibration, asked: Simulation) -> None:
    execution = EXECUTIONS[plan.algorithm]
    if model.kind not in execution.models:
        raise InvalidValue(f"{plan.algorithm} trains {one_of(execution.models)}, not {model.kind}")
    if not plan.is_executable:
        missing = [f"the algorithm's theorem gives no step size without {', '.join(calibration.missing_assumptions)}"]
        detail = " ".join(missing if calibration.missing_assumptions else calibration.warnings)
        raise InvalidValue(detail, pointer=("assumptions",) if calibration.missing_assumptions else ("penalty",))
    if plan.iterations > MOST_STEPS:
        raise InvalidValue(
            f"the run takes {plan.iterations} steps on {asked.records} rows, but a simulated run may take at most "
            f"{MOST_STEPS}. A shorter run has another distribution of results and cannot replace it. To simulate a "
            "shorter run all the same, give iterations, if the algorithm takes them",
            pointer=("iterations",),
        )
    execution.check(Proposal(plan, model, usual_capacity(plan)))
    work = _gradients(plan, calibration) * asked.facts.dimension
    if work > MOST_WORK:
        raise InvalidValue(
            f"its {plan.iterations} steps on {asked.records} rows need about {work:.2g} multiplications, but a "
            f"simulated run may have at most {MOST_WORK:.2g}",
            pointer=("dimension",),
        )


def _gradients(plan: Plan, calibration: Calibration) -> float:
    """Return how many gradients of records a run takes: the algorithm's own number, or else that of the largest step
    times the steps."""
    stated = [each.value for each in calibration.utility if each.name == "gradient_evaluations"]
    [value] = stated or [None]
    return value if isinstance(value, float) else rows_per_step(plan) * plan.iterations
