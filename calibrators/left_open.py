"""This module chooses values that a theorem leaves open or needs: sizes, free constants and the length of the longest
gradient.
"""

from __future__ import annotations

from calibrators.free_constants import FREE_CONSTANTS
from calibrators.partial_spec import BOUND, PartialSpec
from calibrators.plan import Clip
from calibrators.practical import CLIP, TUNED, choose_batch_size
from calibrators.theorem_choices import ANY_VALUE, LONGEST, NO_LONGEST
from calibrators.work import FEWEST_STEPS

#: The default number of epochs of algorithms with variance-reduced steps.
USUAL_EPOCHS = 5

_CHOICE = "This value is a choice, not a fact about the records: give your own value if you know a better one."


def choose_missing(partial: PartialSpec, pointer: tuple[str | int, ...]) -> bool:
    """Choose the value that an algorithm reports as missing. Return False if no rule chooses it, or if it has been
    chosen before.
    """
    if len(pointer) == 2 and pointer[0] == "assumptions":
        return _choose_constant(partial, str(pointer[1]))
    # Once the theorem has all its constants, it may choose the rest itself.
    if _choose_any_constant(partial):
        return True
    if pointer == ("gradient_bound",) and partial.spec.gradient_bound is None:
        return _choose_longest_gradient(partial)
    return _choose_size(partial, pointer)


def _choose_size(partial: PartialSpec, pointer: tuple[str | int, ...]) -> bool:
    """Choose the size that an algorithm reports as missing.

    Return False if the missing value is not a size, or if it has been chosen before.
    """
    if pointer == ("iterations",) and partial.spec.iterations is None:
        _choose_length(partial)
        return True
    if pointer == ("batch_size",) and partial.spec.batch_size is None:
        choose_batch_size(partial)
        return True
    return False


def choose_form(partial: PartialSpec, pointer: tuple[str | int, ...]) -> bool:
    """Choose the value that an algorithm reports as missing, if it is a size or the failure probability of the
    algorithm's bound.
    """
    if pointer == ("assumptions", "failure_probability"):
        return _choose_constant(partial, "failure_probability")
    return _choose_size(partial, pointer)


def _choose_length(partial: PartialSpec) -> None:
    """Choose the number of steps, or of epochs, that a theorem leaves open."""
    in_epochs = any(assumption.name == "inner_iterations" for assumption in partial.algorithm.assumptions)
    # In some algorithms every step reads records that no other step reads, and the first step reads half of all
    # records.
    most = max(1, partial.spec.dataset_size // 2)
    steps = USUAL_EPOCHS if in_epochs else min(FEWEST_STEPS, most)
    reason = f"The theorem leaves the number of {'epochs' if in_epochs else 'steps'} open. {_CHOICE}"
    partial.take("iterations", steps, reason, TUNED, iterations=steps)


def _choose_any_constant(partial: PartialSpec) -> bool:
    """Choose a missing constant that the theorem needs, if there is one that the user may choose freely."""
    return any(_choose_constant(partial, name) for name in partial.missing())


def _choose_longest_gradient(partial: PartialSpec) -> bool:
    """Set the clip threshold to the length of the longest gradient, if it is known. Then clipping does not change the
    theorem's steps.
    """
    longest = partial.objective.derive(2.0, partial.spec.assumptions).get("lipschitz")
    value = CLIP if longest is None else longest
    reason = (
        "The theorem has no rule for this value. It is small compared with the gradients of features in [-1, 1]."
        if longest is None
        else (
            "By the declared bounds, no gradient is longer than this. Clipping therefore changes no gradient, as "
            "the theorem requires."
        )
    )
    bound, said = Clip(value), NO_LONGEST if longest is None else LONGEST
    theorem = None if longest is None else bound.to_json()
    partial.take(
        BOUND,
        bound.to_json(),
        reason,
        partial.algorithm.source,
        theorem=theorem,
        theorem_reason=said,
        gradient_bound=bound,
    )
    return True


def _choose_constant(partial: PartialSpec, name: str) -> bool:
    """Choose a value for a constant. Return False if no rule chooses one, or if the request gives the constant."""
    if name in partial.spec.assumptions or name not in FREE_CONSTANTS:
        return False
    constant = FREE_CONSTANTS[name]
    if constant.of_convex_losses and not partial.objective.is_convex:
        return False
    own = {**partial.spec.assumptions, name: constant.value}
    partial.take(
        f"assumptions.{name}",
        constant.value,
        f"{constant.reason} {_CHOICE}",
        TUNED,
        theorem_reason=ANY_VALUE,
        assumptions=own,
    )
    return True
