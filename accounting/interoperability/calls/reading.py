"""The calls that are read, and the search for the one that makes a training private in a pasted text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from accounting.errors import InvalidValue, one_of
from accounting.interoperability.calls import dp_event_calls, jax_privacy_calls, opacus_calls, tensorflow_privacy_calls
from accounting.interoperability.calls.facts import Facts, Known
from accounting.interoperability.calls.pasted import PastedCall, Surroundings
from accounting.interoperability.calls.snippet import Call, read_snippet
from accounting.near_names import suggestion

Read = Callable[[Call, Facts, Surroundings], PastedCall]

#: The readers by the name of the call, the most informative first: if a text has several calls, the first in this list
#: is read.
READERS: Mapping[str, Read] = {
    "DPKerasConfig": jax_privacy_calls.keras_config,
    "make_private_with_epsilon": opacus_calls.make_private,
    "make_private": opacus_calls.make_private,
    "BandMFExecutionPlanConfig.default": jax_privacy_calls.execution_plan,
    "BandMFExecutionPlanConfig": jax_privacy_calls.execution_plan,
    "calibrate_noise_multiplier": jax_privacy_calls.calibrate_noise_multiplier,
    "DpParams": jax_privacy_calls.dp_params,
    "compute_dp_sgd_privacy_statement": tensorflow_privacy_calls.privacy_statement,
    "compute_dp_sgd_privacy": tensorflow_privacy_calls.privacy_statement,
    "get_noise_multiplier": opacus_calls.get_noise_multiplier,
    "history": opacus_calls.history,
    "step": opacus_calls.step,
    "compose": dp_event_calls.compose,
    **dict.fromkeys(dp_event_calls.EVENTS, dp_event_calls.dp_event),
}
#: Calls that search for a property of a training, and describe no training by themselves.
_SEARCHES = {
    "calibrate_num_updates": "paste DpParams(...) with the number of updates that the search found",
    "calibrate_batch_size": "paste DpParams(...) with the batch size that the search found",
    "calibrate_dp_mechanism": "paste the event with the value that the search found",
}


def read_call(text: str, known: Known | None = None) -> PastedCall:
    """Return the release and the charge of a pasted call of Opacus, JAX Privacy, TensorFlow Privacy or dp-accounting.

    Args:
        text: Python text with the call, of at most `MAX_LENGTH` characters. Assignments before the call are read, too.
        known: The facts that were filled in because the call does not give them.

    Guarantees: nothing_is_run; nothing_is_guessed: a number that is not written there and not filled in is missing.

    Raises:
        InvalidValue: If the text is not Python, has none of these calls, has several that contradict each other, or has
            a number out of range. The pointer is empty, or names what is filled in.
        Incomplete: If the call lacks numbers.
        Unsupported: If the release of the call has no account here.

    >>> read_call("make_private(noise_multiplier=1.1)", Known(60_000, 600, epochs=10, delta=1e-5)).record.history
    ((1.1, 0.01, 1000),)
    """
    known = known or Known()
    calls = tuple(each for call in read_snippet(text) for each in call.inner())
    found = _chosen(calls)
    return READERS[_key(found)](found, Facts(found, known), Surroundings(calls, known))


def _chosen(calls: tuple[Call, ...]) -> Call:
    named: dict[str, list[Call]] = {}
    for each in calls:
        if (key := _key(each)) in READERS and each not in named.setdefault(key, []):
            named[key].append(each)
    if not named:
        raise InvalidValue(_nothing(calls))
    key = next(name for name in READERS if name in named)
    # Among nested events, the outermost comes first.
    several = named[key]
    if len(several) > 1 and key not in dp_event_calls.EVENTS:
        raise InvalidValue(
            f"{key} is called twice, in {several[0].place} and in {several[1].place}: paste one training at a time"
        )
    if key in dp_event_calls.EVENTS:
        return next(each for each in calls if _key(each) in dp_event_calls.EVENTS)
    return several[0]


def _key(call: Call) -> str:
    short = ".".join(call.path.split(".")[-2:])
    return short if short in READERS else call.name


def _nothing(calls: tuple[Call, ...]) -> str:
    for each in calls:
        if each.name in _SEARCHES:
            return f"{each.name} looks for a number ({each.place}): {_SEARCHES[each.name]}"
    common = ["make_private", "make_private_with_epsilon", "get_noise_multiplier", "DpParams", "compose", "DpEvents"]
    if not calls:
        return f"the text contains no call; calls of {one_of(common)} are read, for example"
    near = next((meant for each in calls if (meant := suggestion(each.name, READERS))), "")
    names = ", ".join(dict.fromkeys(each.path[:60] for each in calls[:3]))
    return f"{names} cannot be read here; calls of {one_of(common)} can, for example.{near}".removesuffix(".")
