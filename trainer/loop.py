"""Trainers carry out a plan step by step. `GradientSteps` is the trainer of all algorithms with noisy gradient sums."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from accounting.errors import InvalidValue
from calibrators.geometry import Domain, L1Penalty, Penalty, Simplex
from calibrators.plan import BoundedSteps, Clip, CorrelatedSteps, Normalize, Phase, Plan
from trainer import domains, penalties
from trainer.arrays import Array, namespace_of, silent
from trainer.clipping import SMALLEST_MAX_GRAD_NORMS
from trainer.domains import project
from trainer.exact.correlated import CorrelatedNoise, Recursion, check_kept
from trainer.grid import Grid, grid_for
from trainer.keystream import Keystream
from trainer.models import Model
from trainer.noise import Noise
from trainer.records import Records
from trainer.release import rule_for
from trainer.samplers import Sampler, check_sampling
from trainer.streams import RandomStreams
from trainer.sums import BoundedSum


@dataclass(frozen=True)
class Step:
    """One step of a plan.

    Attributes:
        noisy_sum: The sum of bounded gradients with its noise, shape (d,), float64. The array belongs to the update,
            which may write to it.
        divisor: The public constant by which the sum is divided.
        step_size: The step size of this step.
        domain: The set that contains every point.
        penalty: The penalty that is added to the mean loss.
    """

    noisy_sum: Array
    divisor: int
    step_size: float
    domain: Domain | None = None
    penalty: Penalty | None = None

    @property
    def noisy_mean(self) -> Array:
        """The noisy sum divided by the divisor, in a new array."""
        return self.noisy_sum / self.divisor

    def project(self, point: Array) -> Array:
        """Return the nearest point of the domain."""
        return domains.project(self.domain, namespace_of(point), point)

    def prox(self, point: Array) -> Array:
        """Take the proximal step of the penalty, of this step's size.

        Guarantees:
            - projected_prox_is_the_constrained_prox: ``project(prox(y))`` minimises |x - y|^2 / (2 step_size) plus the
              penalty over the domain. For an l2 penalty that holds in any domain; for an l1 penalty since boxes are
              separable and the balls are centred at 0 (Yu 2013, arXiv 1311.1640); on a simplex an l1 penalty is
              constant, so it is left out.
        """
        if isinstance(self.penalty, L1Penalty) and isinstance(self.domain, Simplex):
            return point
        return penalties.prox(self.penalty, namespace_of(point), point, self.step_size)


State = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A plan to carry out, and everything that it needs.

    Attributes:
        plan: An executable plan.
        model: The trained model.
        records: The records on which the model is trained.
        streams: The streams of all randomness.
    """

    plan: Plan
    model: Model
    records: Records
    streams: RandomStreams

    def grid(self, noise_multiplier: float) -> Grid:
        """Return the grid of sums over any of the slots, in the l2 norm.

        Args:
            noise_multiplier: The noise's standard deviation over the contribution bound, as it was charged.
        """
        return grid_for(noise_multiplier, self.model.num_parameters, self.plan.dtype, self.records.capacity)


class Trainer(Protocol):
    """Carries out the steps of a plan, one at a time."""

    @property
    def steps_done(self) -> int: ...

    def step(self) -> None:
        """Carry out the next step; there are ``plan.iterations`` of them."""
        ...

    def released(self) -> Array:
        """Return what is released after the last step, shape (d,)."""
        ...

    def state(self) -> State:
        """Return everything that is needed to go on from here: arrays, numbers, strings and dictionaries of them."""
        ...

    def restore(self, state: State) -> None:
        """Go on from the point at which `state` was taken, on the same task."""
        ...

    def close(self) -> None:
        """Release what the trainer holds; no further step follows."""
        ...


class Resumable(ABC):
    """A trainer that can go on from a checkpoint.

    Attributes:
        kept: The names of the attributes that are carried from step to step: arrays, whole numbers, and parts with a
            state of their own. A checkpoint has each of them under its name, without the underscore.
    """

    kept: ClassVar[tuple[str, ...]]

    def state(self) -> State:
        """Return everything that is needed to go on from here."""
        found = {name.removeprefix("_"): getattr(self, name) for name in self.kept}
        return {name: value.state() if hasattr(value, "state") else value for name, value in found.items()}

    def restore(self, state: State) -> None:
        """Go on from the point at which `state` was taken."""
        for name in self.kept:
            now, then = getattr(self, name), state[name.removeprefix("_")]
            if hasattr(now, "restore"):
                now.restore(then)
            else:
                setattr(self, name, int(then) if isinstance(now, int) else namespace_of(now).asarray(then))


class StreamPlace:
    """How far a stream has been drawn from."""

    def __init__(self, stream: Keystream) -> None:
        self._stream = stream

    def state(self) -> State:
        state: State = self._stream.state
        return state

    def restore(self, state: State) -> None:
        self._stream.state = state


class Update(Protocol):
    """One step of an algorithm: from a point, shape (d,), and the step's noisy sum to the next point."""

    def __call__(self, point: Array, step: Step) -> Array: ...


class Iteration(Protocol):
    """The steps of an algorithm that carries more than a point from one step to the next.

    Its state is computed from noisy sums and public numbers alone, so it costs no privacy.
    """

    @property
    def query(self) -> Array:
        """The point at which the next step's gradients are taken: shape (d,), float64."""
        ...

    @property
    def point(self) -> Array:
        """Return the point after the steps so far, shape (d,), float64; the release rule chooses among these."""
        ...

    def advance(self, step: Step) -> None:
        """Take the next step, with the noisy sum of gradients at `query`."""
        ...

    def state(self) -> State:
        """Return its whole state by name; one name is "point"."""
        ...

    def restore(self, state: State) -> None:
        """Go on from the point at which `state` was taken."""
        ...


class _Updates(Resumable):
    """The steps of an `Update`, whose only state is the point."""

    kept = ("point",)

    def __init__(self, update: Update, point: Array) -> None:
        self._update, self.point = update, point

    @property
    def query(self) -> Array:
        return self.point

    def advance(self, step: Step) -> None:
        self.point = self._update(self.point, step)


class GradientSteps(Resumable):
    """The trainer that draws slots, sums their bounded gradients, adds noise and updates the point, at every step.

    The sum is a vector of whole numbers, and so is the noise: only their sum reaches the update. Every step draws its
    slots and then its noise, even if the batch is empty, so each step is one charged event.

    Args:
        task: The task of a plan whose phases are all of one type, with step sizes and the algorithm's kind of gradient
            bound.
        start: The function that makes the algorithm's iteration from the first point.
        gradient_bound: The kind of gradient bound.
        phase_type: The type of the phases.

    Guarantees:
        - as_many_steps_as_charged: each phase has as many steps as its event counts.
        - empty_batches_are_noised: the noise is added whatever the batch is.
        - points_are_in_the_domain: this includes the first point.

    Raises:
        InvalidValue: If the plan is not executable, or its parts do not fit the algorithm.
        Unsupported: If there is no sampler for the sampling that was charged.
    """

    kept = ("_phase", "_within", "_steps_done", "_release")

    def __init__(
        self,
        task: Task,
        start: Callable[[Array], Iteration],
        gradient_bound: type[Clip] | type[Normalize],
        phase_type: type[BoundedSteps] = Phase,
    ) -> None:
        self._phases = check_phases(task, gradient_bound, phase_type)
        self._task = task
        xp = task.records.xp
        initial = xp.asarray(task.model.initial(task.streams.initialisation), dtype=xp.float64)
        self._iteration = start(project(task.plan.domain, xp, initial))
        self._sums = BoundedSum(task.model, task.records, task.plan.dtype)
        model, capacity = task.model, task.records.capacity
        self._grids = [grid_of(task.plan, phase, model, capacity) for phase in self._phases]
        self._normals = task.streams.gaussian_noise()
        self._release = rule_for(task.plan.release, task.plan.iterations, self.point, task.streams.release)
        self._steps_done = 0
        self._phase, self._within = 0, 0
        self._start_phase()

    @property
    def steps_done(self) -> int:
        return self._steps_done

    @property
    def point(self) -> Array:
        """Return the point after the steps so far."""
        return self._iteration.point

    @property
    def sampler(self) -> Sampler:
        """The sampler of the phase that the last step belongs to."""
        return self._sampler

    def step(self) -> None:
        if self._within == self._phases[self._phase].steps:
            self._phase, self._within = self._phase + 1, 0
            self._start_phase()
        task, phase, xp = self._task, self._phases[self._phase], self._task.records.xp
        with silent():
            before, bound, grid = self._iteration.point, phase.gradient_bound, self._grids[self._phase]
            total = self._sums.at(self._iteration.query, self._sampler.draw(), bound, grid)
            noise = xp.asarray(self._noise.rounded(total.shape[0], grid.scale))
            step = Step(
                noisy_sum=grid.noised(total, noise, bound.contribution_bound),
                divisor=phase.divisor,
                step_size=phase.step_size_at(self._within),
                domain=task.plan.domain,
                penalty=task.plan.penalty,
            )
            self._iteration.advance(step)
            self._release.see(self._steps_done, before, self._iteration.point)
        self._within += 1
        self._steps_done += 1

    def released(self) -> Array:
        return self._release.released()

    def state(self) -> State:
        drawn = {"sampler": self._sampler.state(), "sampling": self._task.streams.sampling.state}
        return self._iteration.state() | super().state() | drawn | {"noise": self._noise.state()}

    def restore(self, state: State) -> None:
        self._iteration.restore(state)
        super().restore(state)
        self._start_phase()
        self._noise.restore(state["noise"])
        self._sampler.restore(state["sampler"])
        self._task.streams.sampling.state = state["sampling"]

    def close(self) -> None:
        self._noise.close()

    def _start_phase(self) -> None:
        task, phase = self._task, self._phases[self._phase]
        self._noise: Noise = self._normals
        if isinstance(phase, CorrelatedSteps):
            self._noise = CorrelatedNoise(self._normals, recursion_of(phase), task.model.num_parameters)
        self._sampler: Sampler = task.streams.sampler(
            phase.event.sampling, phase.steps, phase.divisor, task.plan.dataset_size, task.records
        )


def gradient_steps(update: Update, gradient_bound: type[Clip] | type[Normalize]) -> Callable[[Task], Trainer]:
    """Return a function that makes a trainer for an algorithm that is an update."""
    return lambda task: GradientSteps(task, lambda point: _Updates(update, point), gradient_bound)


def check_phases(
    task: Task, gradient_bound: type[Clip] | type[Normalize], phase_type: type[BoundedSteps] = Phase
) -> tuple[BoundedSteps, ...]:
    """Return the plan's phases. Steps of this type and kind of bound must be able to carry them out."""
    phases: list[BoundedSteps] = []
    name, smallest = task.plan.algorithm, SMALLEST_MAX_GRAD_NORMS[task.plan.dtype]
    for index, phase in enumerate(task.plan.phases):
        if not isinstance(phase, phase_type):
            kind = "noisy gradient steps" + (" with correlated noise" if phase_type is CorrelatedSteps else "")
            raise InvalidValue(f"{name} takes only plans whose phases are {kind}", pointer=("phases", index))
        if not phase.is_executable:
            raise InvalidValue(
                "this plan only states a privacy cost: every phase of a run needs a step_size",
                pointer=("phases", index, "step_size"),
            )
        bound, where = phase.gradient_bound, ("phases", index, "gradient_bound")
        if type(bound) is not gradient_bound:
            raise InvalidValue(
                f"{name} bounds gradients by {gradient_bound.kind}, not by {bound.kind}", pointer=(*where, "kind")
            )
        if isinstance(bound, Clip) and bound.max_grad_norm < smallest:
            raise InvalidValue(
                f"max_grad_norm must be at least {smallest:g} to be kept in {task.plan.dtype}, got "
                f"{bound.max_grad_norm!r}; rescale the features",
                pointer=(*where, "max_grad_norm"),
            )
        check_sampling_of(task.plan, phase, task.records.capacity)
        phases.append(phase)
    return tuple(phases)


def check_sampling_of(plan: Plan, phase: BoundedSteps, capacity: int) -> None:
    """Refuse a phase whose batches cannot be drawn as they are charged; see `check_sampling`."""
    sampling, relation = phase.event.sampling, plan.neighboring_relation
    check_sampling(sampling, phase.steps, phase.divisor, plan.dataset_size, capacity, relation)


def grid_of(plan: Plan, phase: BoundedSteps, model: Model, capacity: int) -> Grid:
    """Return the grid of a phase's sums.

    Args:
        capacity: Slots of the data set, of which a batch may hold all.

    Raises:
        InvalidValue: If there is so much noise, or there are so many contributions, that no grid keeps the bound; or if
            correlated noise would need too many numbers to be kept.
    """
    spread = 1.0
    if isinstance(phase, CorrelatedSteps):
        recursion = recursion_of(phase)
        check_kept(recursion, model.num_parameters)
        spread = recursion.spread(phase.steps)
    return grid_for(phase.noise_multiplier, model.num_parameters, plan.dtype, capacity, spread=spread)


def recursion_of(phase: CorrelatedSteps) -> Recursion:
    """Return the matrix C by which the phase's noise is correlated."""
    return Recursion(phase.whole_coefficients, phase.coefficient_bits)
