"""A draft is a request together with the values that the preset `practical` or `theorem` chooses for it."""

from __future__ import annotations

from dataclasses import replace

from accounting.errors import AccountingError, InvalidValue
from calibrators.fewer_steps import within_work
from calibrators.left_open import choose_form, choose_missing
from calibrators.partial_spec import BOUND, STEP_SIZE, PartialSpec
from calibrators.plan import BoundedSteps
from calibrators.practical import USUAL_DIMENSION, choose_algorithm, choose_steps
from calibrators.presets import Objective, Preset
from calibrators.registry import calibrate as calibrate_as_asked
from calibrators.registry import find_algorithm
from calibrators.spec import Calibration, Spec, Unknown
from calibrators.theorem_choices import Beside, missing_constants, note, with_theorem


class Draft:
    """A spec with choices for the values that it leaves out. Some choices are made at once, from public sizes. The
    others are made when the spec is calibrated.

    Args:
        name: The algorithm's name; None takes DP-Adam, or the first algorithm that trains the model.
        spec: The request.
        preset: The preset. None takes `theorem` if the request names an algorithm and gives constants of its theorem.
            Otherwise, None takes `practical`.
        objective: The public facts about the objective.

    Guarantees:
        - what_is_given_stays: no value that the spec gives is changed.
        - public_numbers_alone: the choices are functions of the arguments, and the arguments contain no rows.

    Raises:
        InvalidValue: If there is no such algorithm, if the preset `theorem` is asked for without an algorithm, or if a
            number is outside its range.
        NoCostInFilter: If no algorithm is named and the target is pure DP. No algorithm that is chosen by default has
            pure DP.
    """

    def __init__(self, name: str | None, spec: Spec, preset: Preset | None, objective: Objective) -> None:
        if name is None and preset is Preset.THEOREM:
            raise InvalidValue(
                "the preset theorem needs an algorithm: name one, or take the preset practical",
                code="missing",
                pointer=("algorithm",),
            )
        self._asked, self._asks_for_theorem = spec, preset is Preset.THEOREM
        if preset is None:
            preset = Preset.THEOREM if name is not None and spec.assumptions else Preset.PRACTICAL
        choices = []
        if name is None:
            choices.append(choose_algorithm(spec, objective))
            name = str(choices[0].value)
        algorithm = find_algorithm(name)
        self._partial = PartialSpec(algorithm, spec, preset, objective, choices)
        if algorithm.step_rule is not None and spec.unknown not in (Unknown.ITERATIONS, Unknown.BATCH_SIZE):
            choose_steps(self._partial)

    @property
    def algorithm(self) -> str:
        """Return the algorithm's name."""
        return self._partial.algorithm.name

    @property
    def spec(self) -> Spec:
        """Return the spec with the choices that were made so far."""
        return self._partial.spec

    def calibrate(self) -> Calibration:
        """Calibrate the spec. Each time the algorithm reports that a value is missing, choose the value and try again.

        Raises:
            As `calibrators.registry.calibrate`, if a value is missing that no rule chooses.
        """
        while True:
            derived = self._partial.derived()
            spec = replace(self._partial.spec, assumptions={**derived, **self._partial.spec.assumptions})
            try:
                calibration = calibrate_as_asked(self._partial.algorithm.name, spec)
            except InvalidValue as error:
                if error.code != "missing" or not choose_missing(self._partial, error.pointer):
                    raise
                continue
            missing = [("assumptions", name) for name in calibration.missing_assumptions]
            if calibration.plan.is_executable or not any(choose_missing(self._partial, each) for each in missing):
                return self._explained(replace(self._within_work(calibration, spec), derived=derived))

    def calibrate_sizes(self) -> tuple[Spec, Calibration]:
        """Calibrate the spec. Choose only the sizes that the theorem leaves open, and the failure probability of its
        bound.

        No constant of the problem is chosen.

        Raises:
            As `calibrators.registry.calibrate`.
        """
        while True:
            try:
                return self._partial.spec, calibrate_as_asked(self._partial.algorithm.name, self._partial.spec)
            except InvalidValue as error:
                if error.code != "missing" or not choose_form(self._partial, error.pointer):
                    raise

    def _within_work(self, calibration: Calibration, spec: Spec) -> Calibration:
        """Return the calibration. It has fewer steps if the theorem's steps are more work than is done by default.

        Raises:
            InvalidValue: If the theorem's steps are far more work, and their number cannot be reduced.
        """
        if spec.unknown is Unknown.ITERATIONS or not calibration.plan.is_executable:
            return calibration
        dimension = spec.dimension or USUAL_DIMENSION
        found, choice = within_work(
            self._partial.algorithm, spec, calibration, dimension, accepts=self._asks_for_theorem
        )
        if choice is not None:
            self._partial.choices.append(choice)
        return found

    def _explained(self, calibration: Calibration) -> Calibration:
        """Return the calibration with its choices, and with what the theorem would have chosen."""
        choices = with_theorem(self._partial.algorithm, self._partial.choices, self._of_theorem())
        said = note(self._partial.algorithm, self._asked, calibration, choices)
        return replace(calibration, choices=choices, theorem_note=said)

    def _of_theorem(self) -> Beside:
        """Return the theorem's gradient bound and step size for members that the preset chose differently. The result
        is empty if the theorem chooses no gradient bound.
        """
        names = {choice.name for choice in self._partial.choices} & {BOUND, STEP_SIZE}
        if self._partial.algorithm.theorem_bound is None or not names:
            return Beside()
        missing = self._partial.missing()
        nothing = dict.fromkeys(names)
        if missing:
            return Beside(nothing, missing_constants(missing))
        if self._partial.preset is Preset.THEOREM:
            return Beside()
        asked = replace(
            self._partial.spec,
            gradient_bound=self._asked.gradient_bound,
            step_size=None,
            averaged_share=None,
            judge_published=False,
        )
        try:
            found = Draft(self.algorithm, asked, Preset.THEOREM, self._partial.objective).calibrate()
        except AccountingError as error:
            return Beside(nothing, f"The theorem chooses no value for this request: {error.detail.rstrip('.')}.")
        phase = found.plan.phases[0]
        assert isinstance(phase, BoundedSteps), (
            "algorithms whose theorem chooses the gradient bound have steps of this type"
        )
        size = phase.step_size
        values = {BOUND: phase.gradient_bound.to_json(), STEP_SIZE: list(size) if isinstance(size, tuple) else size}
        return Beside({name: values[name] for name in names}, " ".join(found.warnings))
