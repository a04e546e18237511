"""The verdict on steps with the noise that a paper prints, beside the least noise that the same steps need."""

from __future__ import annotations

from accounting.errors import AccountingError
from accounting.relations import NeighboringRelation
from accounting.targets import Target
from calibrators.as_published import Verdict, judge
from calibrators.noise import EventOf, solve_steps
from calibrators.spec import OpenDelta, OpenEpsilon, Spec

#: The neighbouring relation of the papers.
RELATION = NeighboringRelation.REPLACE_ONE
#: The statement about printed noise if the spec does not ask for a judgement.
UNJUDGED: tuple[None, str] = (None, "Whether the printed noise meets the target was not asked.")


def judge_steps(
    spec: Spec, event_of: EventOf, printed: float, *, iterations: int, batch_size: int, setting: str
) -> tuple[Verdict | None, str]:
    """Judge equal steps with printed noise, if a record is replaced.

    The verdict is for comparison only: printed noise that the engine cannot judge does not refuse a request. A verdict
    takes a calibration of its own, under the paper's batches, so a spec need not ask for it.

    Args:
        spec: The spec, which has a target and the number of records.
        event_of: A function from the noise, the number of steps and the batch size to the event of the steps.
        printed: The printed noise, in the unit that ``event_of`` takes.
        iterations, batch_size: The sizes of the paper's steps.
        setting: The paper's sampling and relation, in words.

    Returns:
        The verdict and its reason, as `judge` gives them; `UNJUDGED` if the spec does not ask for them.
    """
    if not spec.judge_published:
        return UNJUDGED
    target = target_of(spec)
    try:
        event = event_of(printed, iterations, batch_size)
    except AccountingError as error:
        return Verdict.UNSOUND, f"The engine takes no such noise: {error.detail}"
    try:
        question = Spec(spec.dataset_size, target, neighboring_relation=RELATION)
        needed = solve_steps(question, event_of, iterations=iterations, batch_size=batch_size).noise_multiplier
    except AccountingError:
        needed = None
    return judge([event], RELATION, target, printed=printed, needed=needed, setting=setting)


def target_of(spec: Spec) -> Target:
    """Return the target of a spec that leaves no part of it open."""
    assert not isinstance(spec.target, OpenEpsilon | OpenDelta), "papers print noise for given targets alone"
    return spec.target
