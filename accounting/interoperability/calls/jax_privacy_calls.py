"""Calls of JAX Privacy: its training accountants, its calibration, its execution plans and its Keras configuration.

Source: JAX Privacy 2.0, `accounting/{analysis,calibrate}.py`, `experimental/execution_plan.py`, `keras_api.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from accounting.errors import InvalidValue
from accounting.interoperability.batches import Batches
from accounting.interoperability.calls.dp_event_calls import accountant_of, repeated, truncated
from accounting.interoperability.calls.facts import Facts, Signature
from accounting.interoperability.calls.pasted import (
    DpEventJson,
    PastedCall,
    Surroundings,
    least_noise,
    sampled_gaussian,
)
from accounting.interoperability.calls.snippet import Call, Value
from accounting.numbers import MAX_COUNT
from accounting.relations import NeighboringRelation

_LIBRARY = "JAX Privacy"
_OF_BOTH = "num_samples examples_per_user cycle_length truncated_batch_size"
_DP_PARAMS = Signature(
    f"* noise_multipliers delta batch_size batch_size_scale_schedule is_finite_guarantee sampling_method {_OF_BOTH}"
)
_CALIBRATE = Signature(
    f"* target_epsilon accountant batch_sizes num_updates target_delta {_OF_BOTH} initial_max_noise initial_min_noise "
    "tol"
)
_COMPUTE_EPSILON = Signature("num_updates dp_params allow_approximate_cache")
_PLAN = (
    "epsilon delta noise_multiplier l2_clip_norm rescale_to_unit_norm normalize_by sampling_prob truncated_batch_size "
    "num_examples partition_type dtype column_normalize accountant noise_seed"
)
_DEFAULT_PLAN = Signature(f"num_bands iterations strategy_optimization_steps * {_PLAN}")
_PLAN_CONFIG = Signature(f"* iterations strategy {_PLAN}")
_KERAS = Signature(
    "epsilon delta clipping_norm batch_size gradient_accumulation_steps train_steps train_size poisson_sampling_in_fit "
    "noise_multiplier rescale_to_unit_norm microbatch_size seed"
)
_METHODS = {"POISSON": "poisson", "FIXED_BATCH_SIZE": "fixed"}
_ADD_OR_REMOVE_ONE = NeighboringRelation.ADD_OR_REMOVE_ONE


def dp_params(call: Call, facts: Facts, around: Surroundings) -> PastedCall:
    """Read `DpParams(...)`, for `DpsgdTrainingAccountant.compute_epsilon(num_updates, dp_params)`."""
    given = _DP_PARAMS.bind(call)
    facts.refuse("batch_size_scale_schedule", given, "batches that grow are stated as events, one for each size")
    facts.refuse("is_finite_guarantee", given, "without a clipping norm there is no guarantee", True)
    asked = around.last("compute_epsilon")
    updates = {} if asked is None else _COMPUTE_EPSILON.bind(asked)
    steps = facts.count("steps", "num_updates", updates)
    noise = facts.noise("noise_multipliers", given)
    delta = facts.delta("delta", given)
    method = facts.word("sampling_method", given, _METHODS, "POISSON")
    return _trained(call, facts, around, given, steps=steps, noise=noise, delta=delta, method=method, size="batch_size")


def calibrate_noise_multiplier(call: Call, facts: Facts, around: Surroundings) -> PastedCall:
    """Read `calibrate_noise_multiplier(...)`."""
    given = _CALIBRATE.bind(call)
    steps, delta = facts.count("steps", "num_updates", given), facts.delta("target_delta", given)
    target = facts.number("target_epsilon", given, 0.0)
    noise = around.known.noise_multiplier or 0.0
    return _trained(
        call, facts, around, given, steps=steps, noise=noise, delta=delta, target=target, size="batch_sizes"
    )


def _trained(
    call: Call,
    facts: Facts,
    around: Surroundings,
    given: Mapping[str, Value],
    *,
    steps: int,
    noise: float,
    delta: float,
    size: str,
    target: float | None = None,
    method: str = "poisson",
) -> PastedCall:
    """Return a training as `DpsgdTrainingAccountant` accounts it, by that class's arithmetic."""
    facts.refuse("examples_per_user", given, "several records of one user are accounted with group_size", 1)
    records = facts.count("dataset_size", "num_samples", given)
    expected = facts.count("batch_size", size, given)
    cycle = int(facts.number("cycle_length", given, 1, MAX_COUNT, default=1.0))
    most = int(facts.number("truncated_batch_size", given, 1, 1e13))
    facts.settle()
    group = records // cycle
    if not 0 < expected <= group:
        raise InvalidValue(f"a batch of {expected} does not fit a group of {group} records ({call.place})")
    rounds = math.ceil(steps / cycle)
    if method == "fixed":
        return _fixed_size(call, facts, around, records, expected, rounds, noise, delta)
    accountant = _accountant(facts, around)
    if most:
        return _pasted(
            call,
            facts,
            around,
            lambda value: repeated(truncated(value, expected / group, group, most), rounds),
            accountant=accountant,
            noise=noise,
            delta=delta,
            target=target,
        )
    batches = around.batches(
        facts, Batches.POISSON, "JAX Privacy's accountant assumes Poisson samples; the loader must draw them."
    )
    per_epoch = -(-group // expected)
    return _pasted(
        call,
        facts,
        around,
        lambda value: sampled_gaussian(value, expected / group, rounds),
        shuffled=(lambda value: sampled_gaussian(value, 1.0 / per_epoch, rounds)),
        batches=batches,
        accountant=accountant,
        noise=noise,
        delta=delta,
        target=target,
    )


def _fixed_size(
    call: Call,
    facts: Facts,
    around: Surroundings,
    records: int,
    size: int,
    rounds: int,
    noise: float,
    delta: float,
) -> PastedCall:
    """Return batches of a fixed size, which the library charges as Poisson samples with twice the sensitivity."""
    taken = {
        "class_name": "SampledWithoutReplacementDpEvent",
        "source_dataset_size": records,
        "sample_size": size,
        "event": {"class_name": "GaussianDpEvent", "noise_multiplier": float(noise)},
    }
    facts.suppose("batches", "without_replacement", "SamplingMethod.FIXED_BATCH_SIZE.")
    relation = around.known.relation or NeighboringRelation.REPLACE_ONE
    return PastedCall(
        library=_LIBRARY,
        function=call.name,
        said=facts.said,
        record=repeated(taken, rounds),
        charged=sampled_gaussian(noise / 2.0, size / records, rounds),
        charged_relation=_ADD_OR_REMOVE_ONE,
        accountant=_accountant(facts, around),
        batches=Batches.POISSON,
        relation=relation,
        assumed=tuple(facts.assumed),
        delta=delta,
        target_epsilon=None,
    )


def execution_plan(call: Call, facts: Facts, around: Surroundings) -> PastedCall:
    """Read `BandMFExecutionPlanConfig(...)` or `BandMFExecutionPlanConfig.default(...)`."""
    is_default = call.name == "default"
    given = (_DEFAULT_PLAN if is_default else _PLAN_CONFIG).bind(call)
    strategy = given.get("strategy")
    if not is_default and not (isinstance(strategy, tuple) and strategy):
        raise InvalidValue(f"strategy must be written out, as a list of its coefficients ({call.place})")
    bands = len(strategy) if isinstance(strategy, tuple) else int(facts.number("num_bands", given, 1, MAX_COUNT))
    steps = facts.count("steps", "iterations", given)
    probability = facts.number("sampling_prob", given, 0.0, 1.0, default=1.0)
    most = int(facts.number("truncated_batch_size", given, 1, 1e13))
    records = facts.count("dataset_size", "num_examples", given) if most else 0
    delta = facts.delta("delta", given)
    seeks = given.get("epsilon") is not None
    target = facts.number("epsilon", given, 0.0) if seeks else None
    noise = (around.known.noise_multiplier or 0.0) if seeks else facts.noise("noise_multiplier", given)
    if given.get("accountant") is None:
        accountant, theirs = "pld", NeighboringRelation.REPLACE_SPECIAL
        facts.suppose(
            "accountant", "pld", ("The plan uses this accountant, under replace_special, unless another one is given.")
        )
    else:
        accountant, theirs = accountant_of(facts, around)
    facts.settle()
    rounds = math.ceil(steps / max(1, bands))

    def charged(value: float) -> DpEventJson:
        if not most:
            return sampled_gaussian(value, probability, rounds)
        return repeated(truncated(value, probability, records // max(1, bands), most), rounds)

    facts.suppose(
        "batches", "cyclic_poisson", f"Each step samples one of {bands} groups of records; a record is in one group."
    )
    return _pasted(
        call, facts, around, charged, accountant=accountant, noise=noise, delta=delta, target=target, theirs=theirs
    )


def keras_config(call: Call, facts: Facts, around: Surroundings) -> PastedCall:
    """Read `DPKerasConfig(...)`."""
    given = _KERAS.bind(call)
    records, steps = facts.count("dataset_size", "train_size", given), facts.count("steps", "train_steps", given)
    size, delta = facts.count("batch_size", "batch_size", given), facts.delta("delta", given)
    accumulated = int(facts.number("gradient_accumulation_steps", given, 1, MAX_COUNT, default=1.0))
    seeks = given.get("noise_multiplier") is None
    target = facts.number("epsilon", given, 0.0) if seeks else None
    noise = (around.known.noise_multiplier or 0.0) if seeks else facts.noise("noise_multiplier", given)
    if facts.flag("poisson_sampling_in_fit", given, False):
        batches = around.batches(facts, Batches.POISSON, "poisson_sampling_in_fit=True.")
    else:
        reason = "poisson_sampling_in_fit is not True: fit() takes the batches of a shuffled pass."
        batches = around.batches(facts, Batches.SHUFFLED, reason)
    facts.settle()
    expected = size * accumulated
    if expected > records:
        raise InvalidValue(f"a batch of {expected} is larger than the {records} records ({call.place})")
    per_epoch = -(-records // expected)
    return _pasted(
        call,
        facts,
        around,
        lambda value: sampled_gaussian(value, expected / records, steps),
        shuffled=(lambda value: sampled_gaussian(value, 1.0 / per_epoch, steps)),
        batches=batches,
        accountant="pld",
        noise=noise,
        delta=delta,
        target=target,
    )


def _pasted(
    call: Call,
    facts: Facts,
    around: Surroundings,
    charged: Callable[[float], DpEventJson],
    *,
    accountant: str,
    noise: float,
    delta: float,
    target: float | None,
    batches: Batches = Batches.POISSON,
    shuffled: Callable[[float], DpEventJson] | None = None,
    theirs: NeighboringRelation = _ADD_OR_REMOVE_ONE,
) -> PastedCall:
    """Return the charge, with the least noise if the call searches for it, and with the batches of a shuffled pass."""
    if target is not None and not noise:
        noise = least_noise(facts, charged, theirs, target, delta, _LIBRARY)
    taken = shuffled if shuffled is not None and batches is Batches.SHUFFLED else charged
    return PastedCall(
        library=_LIBRARY,
        function=call.path.rpartition(".")[0].rpartition(".")[2] if call.name == "default" else call.name,
        said=facts.said,
        record=taken(noise),
        charged=charged(noise),
        charged_relation=theirs,
        accountant=accountant,
        batches=batches,
        relation=around.relation(facts, batches, theirs),
        assumed=tuple(facts.assumed),
        delta=delta,
        target_epsilon=target,
    )


def _accountant(facts: Facts, around: Surroundings) -> str:
    """Return the accountant that a training accountant is configured with."""
    found = around.last("RdpAccountantConfig", "PldAccountantConfig")
    if found is None:
        facts.suppose("accountant", "pld", "No configuration of an accountant was pasted.")
        return "pld"
    return "rdp" if found.name == "RdpAccountantConfig" else "pld"
