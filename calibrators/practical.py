"""Choices for what a request leaves out, from public numbers alone: the presets `practical` and `theorem`.

A choice depends on declared sizes, declared bounds and the target. No row is looked at, so that nothing is charged for
it; noise and charge are those of the plan that the choices lead to. `docs/concepts/practical_defaults.md` says where
the rules come from and what they attain.

The preset `practical` takes DP-Adam where no algorithm is named. Its noise is divided out of its steps, coordinate by
coordinate, so that one step size serves losses and features in any unit. Algorithms with a `step_rule` get a step size
in the same way; all others keep the steps of their theorems, and only what these leave open is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from accounting.canonical import Json
from accounting.errors import AccountingError, InvalidValue, NoCostInFilter, one_of
from accounting.events import DisjointBatches, FullBatch, TruncatedPoisson
from accounting.targets import BudgetTarget, PureDpTarget
from calibrators.algorithm import StepRule
from calibrators.choices import Choice
from calibrators.fewer_steps import within_work
from calibrators.free_constants import FREE_CONSTANTS
from calibrators.plan import MAX_SCHEDULE, BoundedSteps, Clip, GradientBound, Normalize
from calibrators.registry import ALGORITHMS, default_sampling, find_algorithm
from calibrators.registry import calibrate as calibrate_as_asked
from calibrators.spec import Calibration, Spec, Unknown
from calibrators.theorem_choices import (
    ANY_VALUE,
    ITS_OWN,
    LONGEST,
    NO_LONGEST,
    Beside,
    missing_constants,
    note,
    with_theorem,
)
from calibrators.work import FEWEST_STEPS, WORK, affordable_steps


class Preset(StrEnum):
    """A way to choose what a request leaves out."""

    PRACTICAL = "practical"
    """Rules that are known to train well choose. Nothing is proved of what the run attains."""
    THEOREM = "theorem"
    """The paper's theorem chooses, as far as the declared bounds give its constants."""


(USUAL,) = (name for name, each in ALGORITHMS.items() if each.is_usual)
MOST_STEPS = 400
#: Epochs of variance-reduced steps.
USUAL_EPOCHS = 5
#: A batch that is sampled is no smaller than this share of the records.
SMALLEST_SHARE = 1 / 64
#: And no larger than this share where all records at once are more work than a worker has time for.
LARGEST_SHARE = 1 / 8
#: Batches of algorithms that cannot take all records at once.
USUAL_SHARE = 1 / 16
CLIP, REGULARIZER = 0.5, 0.3
#: Adam's step size times the root of the number of steps and the sixth root of the number of parameters; and how many
#: parameters are supposed if their number is not given.
ADAM_STEP, USUAL_DIMENSION = 1.8, 100
#: Adam's step size for models of numbers over that for models of classes.
NUMBERS = 0.25
#: The length of all steps of bounded mean gradients together, without noise.
PATH = 250.0
AVERAGED_SHARE = 0.5

#: Members of a request that the theorem of an algorithm with a bound of its own chooses, too.
_BOUND, _STEP_SIZE = "gradient_bound", "hyperparameters.step_size"

_DE = "De et al. 2022 (arXiv 2204.13650)"
_PONOMAREVA = "Ponomareva et al. 2023 (arXiv 2303.00654), section 5"
_TUNED = "tuned on the public data sets of benchmarks/defaults"
_CHOICE = "A choice, and not a fact about the records: give your own where you know better."


@dataclass(frozen=True)
class Objective:
    """The public facts about the objective.

    Attributes:
        derive: Takes p of the norm of parameters, and the constants that are given. Returns, by their names, those
            that follow from these and from the declared bounds.
        is_convex: Whether the loss is convex in the parameters.
        predicts_numbers: Whether labels are numbers, which lie in [-1, 1], and no classes.
        trained_by: The algorithms that train the model; None if no model is known.
    """

    derive: Callable[[float, Mapping[str, float]], Mapping[str, float]]
    is_convex: bool
    predicts_numbers: bool = False
    trained_by: tuple[str, ...] | None = None


def nothing_derived(_norm_order: float, _given: Mapping[str, float]) -> Mapping[str, float]:
    """Return no constants, as where no declared bounds are known."""
    return {}


#: For plans of an objective that nothing is known of.
UNKNOWN_OBJECTIVE = Objective(nothing_derived, is_convex=False)


class Draft:
    """A spec, and what it leaves out: chosen as far as public sizes decide it, the rest when it is calibrated.

    Args:
        name: The algorithm's name; None takes DP-Adam, or the first algorithm that trains the model.
        spec: The request.
        preset: None is `theorem` if the spec names an algorithm and gives constants of its theorem, else
            `practical`.
        objective: The public facts about the objective.

    Guarantees:
        - what_is_given_stays: no member that the spec has is changed.
        - public_numbers_alone: the choices are functions of the arguments, which hold no row.

    Raises:
        InvalidValue: there is no such algorithm; the preset `theorem` is asked for without an algorithm; a number is
            outside its range.
        NoCostInFilter: no algorithm is named, and those that are chosen have no pure DP, which is the target.
    """

    def __init__(self, name: str | None, spec: Spec, preset: Preset | None, objective: Objective) -> None:
        if name is None and preset is Preset.THEOREM:
            raise InvalidValue(
                "the preset theorem takes the theorem of an algorithm: name one, or take the preset practical",
                code="missing",
                pointer=("algorithm",),
            )
        self._choices: list[Choice] = []
        self._objective, self._asked, self._spec = objective, spec, spec
        self._algorithm = find_algorithm(self._choose_algorithm() if name is None else name)
        in_theory = Preset.THEOREM if name is not None and spec.assumptions else Preset.PRACTICAL
        self._preset = in_theory if preset is None else preset
        self._asks_for_theorem = preset is Preset.THEOREM
        if spec.unknown in (Unknown.ITERATIONS, Unknown.BATCH_SIZE):
            return
        if self._algorithm.step_rule is not None:
            self._choose_steps()

    @property
    def algorithm(self) -> str:
        """The algorithm's name."""
        return self._algorithm.name

    @property
    def spec(self) -> Spec:
        """The spec with what is chosen so far."""
        return self._spec

    def _choose_algorithm(self) -> str:
        trained_by = self._objective.trained_by
        target = self._spec.target
        if isinstance(target, PureDpTarget) or (isinstance(target, BudgetTarget) and target.filter.kind == "pure_dp"):
            pure = [name for name, each in ALGORITHMS.items() if each.has_pure_dp]
            able = [name for name in pure if trained_by is None or name in trained_by]
            instead = f"name {one_of(able)} as algorithm, with its domain, or " if able else ""
            raise NoCostInFilter(
                "the algorithms that are chosen where none is named add Gaussian noise, which has no pure DP: "
                f"{instead}ask for approximate_dp, zcdp or gaussian_dp",
                code="no_cost_in_filter",
                pointer=("target", "kind"),
            )
        name, source = USUAL, "Li et al. 2022 (arXiv 2110.05679), section 3"
        reason = (
            "Adam divides each coordinate of the noisy mean by its own size, noise included, so that its step size "
            "needs to know neither the loss's unit nor the noise."
        )
        if trained_by is not None and USUAL not in trained_by:
            name = trained_by[0]
            reason, source = "The first algorithm that trains this model.", find_algorithm(name).source
        self._choices.append(Choice("algorithm", name, reason, source))
        return name

    def _choose_steps(self) -> None:
        """Choose sampling, sizes, gradient bound and, in the preset `practical`, step size and averaging."""
        if not self._spec.stages:
            self._choose_batches()
            if self._spec.iterations is None and self._spec.sampling != DisjointBatches.kind:
                self._choose_iterations()
        if self._spec.gradient_bound is None:
            self._choose_gradient_bound()
        given = self._spec.step_size is not None or (
            bool(self._spec.stages) and all(stage.step_size is not None for stage in self._spec.stages)
        )
        if self._preset is Preset.PRACTICAL and not given:
            self._choose_step_size()

    def calibrate(self) -> Calibration:
        """Calibrate, and choose what the algorithm says is missing, one thing after the other.

        Raises:
            As `calibrators.registry.calibrate`; what it finds missing is missing for good: no rule chooses it.
        """
        while True:
            derived = self._derived()
            spec = replace(self._spec, assumptions={**derived, **self._spec.assumptions})
            try:
                calibration = calibrate_as_asked(self._algorithm.name, spec)
            except InvalidValue as error:
                if error.code != "missing" or not self._choose_missing(error.pointer):
                    raise
                continue
            missing = [("assumptions", name) for name in calibration.missing_assumptions]
            if calibration.plan.is_executable or not any(self._choose_missing(each) for each in missing):
                return self._explained(replace(self._within_work(calibration, spec), derived=derived))

    def calibrate_sizes(self) -> tuple[Spec, Calibration]:
        """Calibrate, and choose the sizes that the theorem leaves open, and how surely its bound is to hold.

        No constant of the problem is chosen.

        Raises:
            As `calibrators.registry.calibrate`.
        """
        while True:
            try:
                return self._spec, calibrate_as_asked(self._algorithm.name, self._spec)
            except InvalidValue as error:
                if error.code != "missing" or not self._choose_form(error.pointer):
                    raise

    def _choose_form(self, pointer: tuple[str | int, ...]) -> bool:
        if pointer == ("assumptions", "failure_probability"):
            return self._choose_constant("failure_probability")
        return self._choose_size(pointer)

    def _derived(self) -> Mapping[str, float]:
        """Constants for the theorem; none if the step size needs no theorem, and the privacy no constant."""
        if self._spec.step_size is not None and self._algorithm.gradient_bound_required:
            return {}
        return self._known()

    def _known(self) -> dict[str, float]:
        """Return the constants that the algorithm takes and that follow from the declared bounds."""
        names = {assumption.name for assumption in self._algorithm.assumptions}
        given = self._spec.assumptions
        known = self._objective.derive(self._algorithm.order_of_norm(given, self._spec.domain), given)
        return {name: value for name, value in known.items() if name in names and name not in given}

    def _take(
        self,
        member: str,
        value: Json,
        reason: str,
        source: str,
        *,
        theorem: Json = None,
        theorem_reason: str = "",
        **fields: Any,
    ) -> None:
        self._spec = replace(self._spec, **fields)
        self._choices.append(Choice(member, value, reason, source, theorem, theorem_reason))

    @property
    def _work_of_a_pass(self) -> float:
        return float(self._spec.dataset_size * (self._spec.dimension or 1))

    def _choose_batches(self) -> None:
        spec, schemes = self._spec, self._algorithm.samplings
        if spec.sampling is None:
            fits = self._work_of_a_pass * (spec.iterations or FEWEST_STEPS) <= WORK
            if spec.batch_size is None and FullBatch in schemes and fits:
                reason = (
                    "Every step takes every record: for the same guarantee that is the least noise on a mean, and the "
                    "work fits a worker."
                )
                self._take("sampling", FullBatch.kind, reason, f"{_DE}; {_PONOMAREVA}", sampling=FullBatch.kind)
            else:
                kind = default_sampling(self._algorithm, spec.neighboring_relation)
                reason = "The first of the algorithm's: batches that are drawn anew are amplified by their sampling."
                self._take("sampling", kind, reason, self._algorithm.source, sampling=kind)
        if self._spec.batch_size is None and self._spec.sampling == FullBatch.kind:
            self._spec = replace(self._spec, batch_size=spec.dataset_size)
        elif self._spec.batch_size is None and not (self._spec.sampling == DisjointBatches.kind and spec.iterations):
            self._choose_batch_size()
        if self._spec.sampling == TruncatedPoisson.kind and spec.max_batch_size is None:
            assert self._spec.batch_size is not None, "it was chosen"
            most = min(2 * self._spec.batch_size, spec.dataset_size)
            reason = "Twice the nominal size: a batch is hardly ever cut."
            self._take("sampling.max_batch_size", most, reason, _TUNED, max_batch_size=most)

    def _choose_batch_size(self) -> None:
        records, steps = self._spec.dataset_size, self._spec.iterations or FEWEST_STEPS
        if FullBatch in self._algorithm.samplings and self._spec.sampling != DisjointBatches.kind:
            affordable = WORK / (steps * (self._spec.dimension or 1))
            size = math.ceil(min(max(affordable, SMALLEST_SHARE * records), LARGEST_SHARE * records))
            reason = "The largest batch whose work fits a worker, up to an eighth of the records: more share the noise."
        else:
            size = math.ceil(USUAL_SHARE * records)
            reason = "A sixteenth of the records: large batches share the noise."
        self._take("batch_size", size, reason, f"{_DE}; {_PONOMAREVA}", batch_size=size)

    def _choose_iterations(self) -> None:
        spec = self._spec
        steps = FEWEST_STEPS
        if spec.sampling == FullBatch.kind:
            steps = min(affordable_steps(spec.dataset_size, spec.dimension or 1), MOST_STEPS)
        reason = (
            f"Between {FEWEST_STEPS} and {MOST_STEPS}, as many as fit a worker. Under full batches the noise of the "
            "sum of all steps does not depend on their number, so that more of them cost work alone."
        )
        self._take("iterations", steps, reason, f"Dong, Roth & Su 2022, Corollary 3.3; {_TUNED}", iterations=steps)

    def _choose_gradient_bound(self) -> None:
        bound: GradientBound | None = None
        theorem: Json = None
        if self._preset is Preset.THEOREM and self._algorithm.theorem_bound is not None:
            bound = self._algorithm.theorem_bound({**self._known(), **self._spec.assumptions})
        if bound is not None:
            theorem, reason, source = bound.to_json(), ITS_OWN, self._algorithm.source
        if bound is None:
            bound = Clip(CLIP) if self._algorithm.gradient_bounds == (Clip,) else Normalize(REGULARIZER)
            reason = (
                "Small against gradients of features in [-1, 1], so that most gradients count by their direction: "
                "noise is scaled to the bound, and a small one costs little."
            )
            source = f"Bu et al. 2022 (arXiv 2206.07136); Li et al. 2022 (arXiv 2110.05679); {_TUNED}"
        said = "" if theorem is None else ITS_OWN
        self._take(_BOUND, bound.to_json(), reason, source, theorem=theorem, theorem_reason=said, gradient_bound=bound)

    def _choose_step_size(self) -> None:
        spec = self._spec
        steps = sum(stage.iterations for stage in spec.stages) or spec.iterations
        if steps is None:
            assert spec.batch_size is not None, "one pass over disjoint batches has one of both"
            steps = max(1, spec.dataset_size // spec.batch_size)
        assert spec.gradient_bound is not None, "it was chosen"
        if self._algorithm.step_rule is StepRule.COORDINATES:
            size = ADAM_STEP / math.sqrt(steps) / (spec.dimension or USUAL_DIMENSION) ** (1.0 / 6.0)
            reason = (
                f"{ADAM_STEP:g} over the root of the number of steps and the sixth root of that of parameters. Where "
                "noise dominates, Adam steps of such a size move a coordinate as far whatever their number is, and the "
                "noise in a logit grows with the number of parameters."
            )
            if self._objective.predicts_numbers:
                size *= NUMBERS
                reason += (
                    f" Times {NUMBERS:g} for numbers: they lie in [-1, 1], while a class that is nearly sure has "
                    "log-odds of 4 and more, so that parameters have less far to go."
                )
        else:
            size = PATH / (steps * spec.gradient_bound.contribution_bound) * (1.0 - (spec.momentum or 0.0))
            reason = (
                f"All steps together are at most {PATH:g} long without noise. At a given budget the product of step "
                "size and number of steps decides, and neither of them alone."
            )
        source = f"Panda et al. 2024 (arXiv 2212.04486); {_TUNED}"
        self._take(_STEP_SIZE, size, reason, source, step_size=size)
        if spec.averaged_share is None and steps <= MAX_SCHEDULE:
            reason = "The mean of the last half of the points has less noise than the last one, and costs no privacy."
            source = f"{_DE}; Shamir & Zhang 2013 (arXiv 1212.1824)"
            share = AVERAGED_SHARE
            self._take("hyperparameters.averaged_share", share, reason, source, averaged_share=share)

    def _choose_missing(self, pointer: tuple[str | int, ...]) -> bool:
        """Choose what an algorithm finds missing; False if no rule chooses it, or it has been chosen before."""
        if len(pointer) == 2 and pointer[0] == "assumptions":
            return self._choose_constant(str(pointer[1]))
        # With its constants a theorem may choose the rest itself.
        if self._choose_any_constant():
            return True
        if pointer == ("gradient_bound",) and self._spec.gradient_bound is None:
            return self._choose_longest_gradient()
        return self._choose_size(pointer)

    def _choose_size(self, pointer: tuple[str | int, ...]) -> bool:
        """Choose the size that an algorithm finds missing; False if it is none, or has been chosen before."""
        if pointer == ("iterations",) and self._spec.iterations is None:
            self._choose_length()
            return True
        if pointer == ("batch_size",) and self._spec.batch_size is None:
            self._choose_batch_size()
            return True
        return False

    def _choose_length(self) -> None:
        """Choose the number of steps, or of epochs, that a theorem leaves open."""
        in_epochs = any(assumption.name == "inner_iterations" for assumption in self._algorithm.assumptions)
        # In some algorithms every step reads records of its own, and the first one half of all.
        most = max(1, self._spec.dataset_size // 2)
        steps = USUAL_EPOCHS if in_epochs else min(FEWEST_STEPS, most)
        reason = f"The theorem leaves the number of {'epochs' if in_epochs else 'steps'} open. {_CHOICE}"
        self._take("iterations", steps, reason, _TUNED, iterations=steps)

    def _choose_any_constant(self) -> bool:
        """Choose a constant that the theorem cannot do without, if one is open that is a choice."""
        known = self._known()
        return any(
            self._choose_constant(each.name)
            for each in self._algorithm.assumptions
            if each.required and each.default is None and each.name not in known
        )

    def _choose_longest_gradient(self) -> bool:
        """Clip where no gradient is longer, if that is known: then the theorem's steps are not bent."""
        longest = self._objective.derive(2.0, self._spec.assumptions).get("lipschitz")
        value = CLIP if longest is None else longest
        reason = (
            "No rule of the theorem: small against gradients of features in [-1, 1]."
            if longest is None
            else "The declared bounds make no gradient longer, so that none is changed, as the theorem has it."
        )
        bound, said = Clip(value), NO_LONGEST if longest is None else LONGEST
        theorem = None if longest is None else bound.to_json()
        self._take(
            _BOUND,
            bound.to_json(),
            reason,
            self._algorithm.source,
            theorem=theorem,
            theorem_reason=said,
            gradient_bound=bound,
        )
        return True

    def _choose_constant(self, name: str) -> bool:
        if name in self._spec.assumptions or name not in FREE_CONSTANTS:
            return False
        constant = FREE_CONSTANTS[name]
        if constant.of_convex_losses and not self._objective.is_convex:
            return False
        own = {**self._spec.assumptions, name: constant.value}
        self._take(
            f"assumptions.{name}",
            constant.value,
            f"{constant.reason} {_CHOICE}",
            _TUNED,
            theorem_reason=ANY_VALUE,
            assumptions=own,
        )
        return True

    def _within_work(self, calibration: Calibration, spec: Spec) -> Calibration:
        """Return the calibration, with fewer steps where those of the theorem are more work than a default may be.

        Raises:
            InvalidValue: the theorem's steps are far more work, and cannot be fewer.
        """
        if spec.unknown is Unknown.ITERATIONS or not calibration.plan.is_executable:
            return calibration
        dimension = spec.dimension or USUAL_DIMENSION
        found, choice = within_work(self._algorithm, spec, calibration, dimension, accepts=self._asks_for_theorem)
        if choice is not None:
            self._choices.append(choice)
        return found

    def _explained(self, calibration: Calibration) -> Calibration:
        """Return the calibration with its choices, and with what the theorem chooses beside them."""
        choices = with_theorem(self._algorithm, self._choices, self._of_theorem())
        said = note(self._algorithm, self._asked, calibration, choices)
        return replace(calibration, choices=choices, theorem_note=said)

    def _of_theorem(self) -> Beside:
        """Return what the theorem of an algorithm with a bound of its own chooses where the preset chose otherwise."""
        names = {choice.name for choice in self._choices} & {_BOUND, _STEP_SIZE}
        if self._algorithm.theorem_bound is None or not names:
            return Beside()
        known = {**self._known(), **self._spec.assumptions}
        missing = [
            each.name
            for each in self._algorithm.assumptions
            if each.required and each.default is None and each.name not in known
        ]
        nothing = dict.fromkeys(names)
        if missing:
            return Beside(nothing, missing_constants(missing))
        if self._preset is Preset.THEOREM:
            return Beside()
        asked = replace(
            self._spec,
            gradient_bound=self._asked.gradient_bound,
            step_size=None,
            averaged_share=None,
            judge_published=False,
        )
        try:
            found = Draft(self.algorithm, asked, Preset.THEOREM, self._objective).calibrate()
        except AccountingError as error:
            return Beside(nothing, f"The theorem has no choice here: {error.detail.rstrip('.')}.")
        phase = found.plan.phases[0]
        assert isinstance(phase, BoundedSteps), "whoever bounds gradients by a theorem takes such steps"
        size = phase.step_size
        values = {_BOUND: phase.gradient_bound.to_json(), _STEP_SIZE: list(size) if isinstance(size, tuple) else size}
        return Beside({name: values[name] for name in names}, " ".join(found.warnings))
