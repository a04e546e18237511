"""Calls of TensorFlow Privacy that say what a training cost.

Source: TensorFlow Privacy 0.9, `analysis/compute_dp_sgd_privacy_lib.py`.
"""

from __future__ import annotations

import math

from accounting.errors import InvalidValue
from accounting.interoperability.batches import Batches
from accounting.interoperability.calls.facts import Facts, Signature
from accounting.interoperability.calls.pasted import PastedCall, Surroundings, sampled_gaussian
from accounting.interoperability.calls.snippet import Call
from accounting.numbers import MAX_COUNT
from accounting.relations import NeighboringRelation

_STATEMENT = Signature(
    "number_of_examples batch_size num_epochs noise_multiplier delta used_microbatching max_examples_per_user "
    "accountant_type"
)
_PRIVACY = Signature("n batch_size noise_multiplier epochs delta")
_TYPES = {"RDP": "rdp", "PLD": "pld"}


def privacy_statement(call: Call, facts: Facts, around: Surroundings) -> PastedCall:
    """Read `compute_dp_sgd_privacy_statement(...)`, or the older `compute_dp_sgd_privacy(...)`."""
    is_statement = call.name == "compute_dp_sgd_privacy_statement"
    given = (_STATEMENT if is_statement else _PRIVACY).bind(call)
    facts.refuse("max_examples_per_user", given, "several records of one user are accounted with group_size", 1)
    records = facts.count("dataset_size", "number_of_examples" if is_statement else "n", given)
    size = facts.count("batch_size", "batch_size", given)
    epochs = facts.amount("epochs", "num_epochs" if is_statement else "epochs", given, 0.0, MAX_COUNT)
    noise, delta = facts.noise("noise_multiplier", given), facts.delta("delta", given)
    accountant = facts.word("accountant_type", given, _TYPES, "RDP")
    halves = facts.flag("used_microbatching", given, True) if is_statement else False
    batches = around.batches(
        facts,
        Batches.POISSON,
        "The library's number for Poisson samples is compared. If a tf.data pipeline shuffles the records, state "
        "shuffled batches.",
    )
    facts.settle()
    if size > records:
        raise InvalidValue(f"a batch of {size} is larger than the {records} records ({call.place})")
    if halves is not False:
        noise /= 2.0
        facts.suppose(
            "used_microbatching",
            "True",
            "The gradients of several records are clipped together, so that one record moves the sum by twice the "
            "clipping norm; the same holds if the argument is left out.",
        )
    elif not is_statement:
        facts.suppose(
            "used_microbatching", "False", ("This function assumes that each record's gradient is clipped alone.")
        )
    rate, per_epoch = size / records, -(-records // size)
    steps = math.ceil(epochs / rate)
    shuffled = batches is Batches.SHUFFLED
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    passes = math.ceil(epochs * per_epoch)
    return PastedCall(
        library="TensorFlow Privacy",
        function=call.name,
        said=facts.said,
        record=sampled_gaussian(noise, 1.0 / per_epoch if shuffled else rate, passes if shuffled else steps),
        charged=sampled_gaussian(noise, rate, steps),
        charged_relation=relation,
        accountant=accountant,
        batches=batches,
        relation=around.relation(facts, batches, relation),
        assumed=tuple(facts.assumed),
        delta=delta,
        target_epsilon=None,
    )
