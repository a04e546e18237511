"""This module states what a paper's theorem chooses, for comparison with the choices of the preset `practical`.

Everything is read from the algorithm's record and from calibrations, so this module names no algorithm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from accounting.canonical import Json
from calibrators.algorithm import Algorithm
from calibrators.choices import Choice
from calibrators.spec import Calibration, Spec

#: Sentences about the theorem's value for a member of a request, or about the reason why there is no value.
LEFT_OPEN = "The theorem leaves this value open."
ITS_OWN = "The theorem computes this value from its constants."
ANY_VALUE = "The theorem holds for every value and chooses none."
ONE_ALGORITHM = "A theorem is about one algorithm and does not choose among several."
LONGEST = "The theorem requires that no gradient is longer than this value. The declared bounds ensure this."
NO_LONGEST = (
    "The theorem requires that no gradient is longer than this value. Neither the request nor the declared "
    "bounds give lipschitz, the length of the longest gradient."
)
_NOT_ITS_OWN = ("order_constant",)
_SIZES = ("iterations", "batch_size", "step_size", "max_grad_norm", "regularizer")


@dataclass(frozen=True)
class Beside:
    """The theorem's values for members of a request for which a preset chose values.

    Attributes:
        values: The theorem's values by the member's name, as in `Choice.name`.
        reason: The reason for the values, or the reason why a value is missing.
    """

    values: Mapping[str, Json] = field(default_factory=dict)
    reason: str = ""


def missing_constants(names: Iterable[str]) -> str:
    """Return the sentence that names the constants that a theorem needs and that are not known.

    >>> missing_constants(["radius", "initial_gap"])
    'The theorem computes this value from radius and initial_gap, but not all of these constants are known.'
    """
    return f"The theorem computes this value from {_all_of(list(names))}, but not all of these constants are known."


def with_theorem(algorithm: Algorithm, choices: Iterable[Choice], beside: Beside) -> tuple[Choice, ...]:
    """Return the choices, each with the theorem's value for the same member and a sentence about this value.

    Args:
        algorithm: The algorithm, whose record says whether a theorem bounds its result.
        choices: The choices. A choice that already has a sentence about the theorem keeps it.
        beside: The values from a calibration by the theorem. Its reason applies to the members that the theorem may
            choose.
    """
    return tuple(_with_theorem(algorithm, choice, beside) for choice in choices)


def _with_theorem(algorithm: Algorithm, choice: Choice, beside: Beside) -> Choice:
    if choice.theorem_reason:
        return choice
    if choice.name == "algorithm":
        return replace(choice, theorem_reason=ONE_ALGORITHM)
    if not algorithm.example.bounded:
        return replace(choice, theorem_reason=_no_theorem(algorithm))
    if choice.name in beside.values:
        value = beside.values[choice.name]
        return replace(choice, theorem=value, theorem_reason=ITS_OWN if value is not None else beside.reason)
    return replace(choice, theorem_reason=LEFT_OPEN)


def note(algorithm: Algorithm, asked: Spec, calibration: Calibration, choices: Iterable[Choice]) -> str:
    """Return sentences about the theorem's choices in a plan: where they differ from a preset's choices, and where the
    theorem chose the plan's numbers.

    Args:
        algorithm: The algorithm's record.
        asked: The request, before anything was chosen for it.
        calibration: The calibration of the whole request. Its recommended numbers are the theorem's own unless they
            were given.
        choices: The choices, each with the theorem's value.
    """
    if not algorithm.example.bounded:
        return _no_theorem(algorithm)
    choices = tuple(choices)
    other = [choice for choice in choices if choice.theorem is not None and choice.theorem != choice.value]
    unknown = [choice.name for choice in choices if choice.theorem is None and choice.theorem_reason not in _SILENT]
    kept = _kept(algorithm, asked, calibration, choices)
    found = []
    if other:
        names = _all_of([choice.name for choice in other])
        found.append(f"The theorem would have chosen other values for {names}; each choice states the theorem's value.")
    if unknown:
        found.append(f"The theorem's values for {_all_of(unknown)} are not known; each choice states the reason.")
    if kept:
        found.append(f"The theorem itself chose {_all_of(kept)}.")
    found = found or ["The theorem chooses none of the numbers of this plan."]
    return f"{' '.join(found).removesuffix('.')} ({algorithm.source})."


_SILENT = ("", LEFT_OPEN, ANY_VALUE, ONE_ALGORITHM)


def _no_theorem(algorithm: Algorithm) -> str:
    return f"No theorem bounds the error of {algorithm.name}, so no theorem chooses its numbers."


def _kept(algorithm: Algorithm, asked: Spec, calibration: Calibration, choices: Iterable[Choice]) -> list[str]:
    """Return the names of the numbers that the theorem chose in this plan and that a request could give."""
    taken = {choice.name.rpartition(".")[2] for choice in choices} | set(asked.assumptions)
    taken |= {name for name in ("iterations", "batch_size", "step_size") if getattr(asked, name) is not None}
    if "gradient_bound" in taken or asked.gradient_bound is not None:
        taken |= {"max_grad_norm", "regularizer"}
    able = {*_SIZES, *(each.name for each in algorithm.assumptions)} - {*_NOT_ITS_OWN} - taken
    return [each.name for each in calibration.hyperparameters if each.name in able and each.value is not None]


def _all_of(names: list[str]) -> str:
    """Return the names as a list in words, such as ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
