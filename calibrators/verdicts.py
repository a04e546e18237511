"""This module judges steps with the noise that a paper prints, by comparison with the least noise that the same steps
need.
"""

from __future__ import annotations

from accounting.errors import AccountingError
from accounting.relations import NeighboringRelation
from accounting.targets import Target
from calibrators.as_published import Verdict, judge
from calibrators.noise import EventOf, solve_steps
from calibrators.spec import OpenDelta, OpenEpsilon, Spec

#: The neighbouring relation that the papers use.
RELATION = NeighboringRelation.REPLACE_ONE
#: The result if the spec does not ask for a verdict on the printed noise.
UNJUDGED: tuple[None, str] = (None, "The request did not ask for a verdict on the printed noise.")


def judge_steps(
    spec: Spec, event_of: EventOf, printed: float, *, iterations: int, batch_size: int, setting: str
) -> tuple[Verdict | None, str]:
    """Judge equal steps with printed noise. Neighbouring data sets differ in a replaced record.

    The verdict is for comparison only, so a request is not refused if the engine cannot judge the printed noise. A
    verdict needs another calibration with the paper's batches, so it is computed only if the spec asks for it.

    Args:
        spec: The spec, which has a target and the number of records.
        event_of: A function that makes the event of the steps from the noise, the number of steps and the batch size.
        printed: The printed noise, in the unit of the noise that ``event_of`` takes.
        iterations, batch_size: The sizes of the paper's steps.
        setting: The paper's sampling and relation, in words.

    Returns:
        The verdict and its reason, as `judge` gives them; `UNJUDGED` if the spec does not ask for a verdict.
    """
    if not spec.judge_published:
        return UNJUDGED
    target = target_of(spec)
    try:
        event = event_of(printed, iterations, batch_size)
    except AccountingError as error:
        return Verdict.UNSOUND, f"The accounting engine cannot judge the printed noise: {error.detail}"
    try:
        question = Spec(spec.dataset_size, target, neighboring_relation=RELATION)
        needed = solve_steps(question, event_of, iterations=iterations, batch_size=batch_size).noise_multiplier
    except AccountingError:
        needed = None
    return judge([event], RELATION, target, printed=printed, needed=needed, setting=setting)


def target_of(spec: Spec) -> Target:
    """Return the target of a spec whose epsilon and delta are both given."""
    assert not isinstance(spec.target, OpenEpsilon | OpenDelta), (
        "papers print noise only for targets without an open part"
    )
    return spec.target
