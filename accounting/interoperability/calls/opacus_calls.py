"""Calls of Opacus: those that make a training private, that search for its noise, and that fill its accountants.

Source: Opacus 1.6, `privacy_engine.py`, `accountants/utils.py`, `data_loader.py`, `utils/uniform_sampler.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from accounting.errors import InvalidValue
from accounting.interoperability.batches import Batches
from accounting.interoperability.calls.facts import Facts, Signature
from accounting.interoperability.calls.pasted import PastedCall, Surroundings
from accounting.interoperability.calls.snippet import Call, Unread, Value, is_number
from accounting.interoperability.opacus import MECHANISMS, OpacusHistory
from accounting.interoperability.opacus_noise import noise_that_opacus_finds
from accounting.numbers import MAX_COUNT
from accounting.relations import NeighboringRelation

_ENGINE = Signature("* accountant secure_mode")
_LOADER = Signature("dataset batch_size shuffle sampler batch_sampler num_workers collate_fn pin_memory drop_last ...")
_OF_BOTH = (
    "max_grad_norm batch_first loss_reduction poisson_sampling clipping noise_generator grad_sample_mode wrap_model"
)
_MAKE_PRIVATE = Signature(f"* module optimizer criterion data_loader noise_multiplier {_OF_BOTH} rand_on_empty ...")
_MAKE_PRIVATE_WITH_EPSILON = Signature(
    f"* module optimizer criterion data_loader target_epsilon target_delta epochs {_OF_BOTH} epsilon_tolerance ..."
)
_GET_NOISE_MULTIPLIER = Signature(
    "* target_epsilon target_delta sample_rate epochs steps accountant epsilon_tolerance ..."
)
_STEP = Signature("* noise_multiplier sample_rate")
_GET_EPSILON = Signature("delta ...")
_CLIPPING = {each: each for each in ("flat", "per_layer", "adaptive")}
_WORDS = {each: each for each in MECHANISMS}
#: Opacus' accountants, by the names of their classes.
_CLASSES = {"RDPAccountant": "rdp", "PRVAccountant": "prv", "GaussianAccountant": "gdp"}
_RELATION = NeighboringRelation.ADD_OR_REMOVE_ONE


def make_private(call: Call, facts: Facts, around: Surroundings) -> PastedCall:
    """Read `PrivacyEngine.make_private` or `make_private_with_epsilon`."""
    with_epsilon = call.name == "make_private_with_epsilon"
    given = (_MAKE_PRIVATE_WITH_EPSILON if with_epsilon else _MAKE_PRIVATE).bind(call)
    accountant = _engine(call, facts, around)
    if facts.word("clipping", given, _CLIPPING, "flat") == "adaptive":
        raise InvalidValue(
            f"clipping: with adaptive clipping a step also releases how many gradients were clipped ({call.place}); "
            "state what its steps release as events"
        )
    per_epoch = _batches_of_an_epoch(given, facts, around)
    sought = given.get("noise_multiplier")
    if not with_epsilon and isinstance(sought, Call) and sought.name == "get_noise_multiplier":
        # The result of `get_noise_multiplier` is an argument here, so the noise is searched by that call, for this
        # loader.
        inner = _GET_NOISE_MULTIPLIER.bind(sought)
        accountant = facts.word("accountant", inner, _WORDS, "rdp")
        given = {
            **given,
            **{name: inner[name] for name in ("target_epsilon", "target_delta", "epochs") if name in inner},
        }
        with_epsilon = True
    delta = facts.delta("target_delta", given) if with_epsilon else _delta(facts, around)
    needs_epochs = with_epsilon or around.known.steps is None
    epochs = facts.amount("epochs", "epochs", given, 0.0, MAX_COUNT) if needs_epochs else 0.0
    noise = (around.known.noise_multiplier or 0.0) if with_epsilon else facts.noise("noise_multiplier", given)
    batches = _batches(given, facts, around)
    facts.settle()
    # By its own arithmetic, a loader of Poisson samples makes a certain number of steps an epoch; its rate is 1 over
    # that number.
    taken = int(1.0 / (1.0 / per_epoch)) if batches is Batches.POISSON else per_epoch
    steps = around.known.steps or math.ceil(epochs * taken)
    target = facts.number("target_epsilon", given, 0.0) if with_epsilon else None
    if target is not None and not noise:
        tolerance = facts.number("epsilon_tolerance", given, 1e-6, default=0.01)
        sought_steps = int(epochs / (1.0 / per_epoch))
        noise = _noise(facts, accountant, target, delta, 1.0 / per_epoch, sought_steps, tolerance)
    history = ((noise, 1.0 / taken, steps),)
    return _pasted(call, facts, around, accountant, history, batches, delta, target)


def get_noise_multiplier(call: Call, facts: Facts, around: Surroundings) -> PastedCall:
    """Read `opacus.accountants.utils.get_noise_multiplier`."""
    given = _GET_NOISE_MULTIPLIER.bind(call)
    accountant = facts.word("accountant", given, _WORDS, "rdp")
    rate = _rate(given, facts)
    delta = facts.delta("target_delta", given)
    steps = facts.count("steps", "steps", given) if given.get("steps") is not None else around.known.steps
    epochs = 0.0 if steps else facts.amount("epochs", "epochs", given, 0.0, MAX_COUNT)
    batches = around.batches(
        facts, Batches.POISSON, ("The noise multiplier that this call finds is valid for Poisson samples only.")
    )
    facts.settle()
    steps = steps or int(epochs / rate)
    target = facts.number("target_epsilon", given, 0.0)
    tolerance = facts.number("epsilon_tolerance", given, 1e-6, default=0.01)
    noise = around.known.noise_multiplier or _noise(facts, accountant, target, delta, rate, steps, tolerance)
    return _pasted(call, facts, around, accountant, ((noise, rate, steps),), batches, delta, target)


def step(call: Call, facts: Facts, around: Surroundings) -> PastedCall:
    """Read `accountant.step(...)` of one of Opacus' accountants."""
    given = _STEP.bind(call)
    noise, rate, delta = facts.noise("noise_multiplier", given), _rate(given, facts), _delta(facts, around)
    steps = facts.count("steps", "steps", {})
    batches = around.batches(facts, Batches.POISSON, "Opacus' accountants treat every step as a Poisson sample.")
    facts.settle()
    return _pasted(call, facts, around, _accountant(facts, around), ((noise, rate, steps),), batches, delta, None)


def history(call: Call, facts: Facts, around: Surroundings) -> PastedCall:
    """Read `accountant.history = [(noise multiplier, sample rate, steps), ...]`."""
    entries = call.arguments[0] if call.arguments else None
    if not isinstance(entries, tuple):
        raise InvalidValue(f"history must be a list of (noise multiplier, sample rate, steps) ({call.place})")
    delta = _delta(facts, around)
    batches = around.batches(facts, Batches.POISSON, "Opacus' accountants treat every step as a Poisson sample.")
    facts.settle()
    read = []
    for entry in entries:
        if not (isinstance(entry, tuple) and len(entry) == 3 and all(is_number(each) for each in entry)):
            raise InvalidValue(f"an entry of history must be (noise multiplier, sample rate, steps) ({call.place})")
        read.append(entry)
    accountant = _accountant(facts, around)
    checked = OpacusHistory.from_state({"mechanism": accountant, "history": read}).history
    return _pasted(call, facts, around, accountant, checked, batches, delta, None)


def _pasted(
    call: Call,
    facts: Facts,
    around: Surroundings,
    accountant: str,
    entries: tuple[tuple[float, float, int], ...],
    batches: Batches,
    delta: float,
    target: float | None,
) -> PastedCall:
    if not all(steps for _, _, steps in entries):
        raise InvalidValue(f"the call makes no training step ({call.place})")
    return PastedCall(
        library="Opacus",
        function=call.name,
        said=facts.said,
        record=OpacusHistory.from_state({"mechanism": accountant, "history": entries}),
        charged=None,
        charged_relation=_RELATION,
        accountant=accountant,
        batches=batches,
        relation=around.relation(facts, batches, _RELATION),
        assumed=tuple(facts.assumed),
        delta=delta,
        target_epsilon=target,
    )


def _engine(call: Call, facts: Facts, around: Surroundings) -> str:
    """Return the accountant of the engine on which the call is made."""
    receiver = call.receiver if isinstance(call.receiver, Call) else around.last("PrivacyEngine")
    if receiver is None or receiver.name != "PrivacyEngine":
        facts.suppose(
            "accountant",
            "prv",
            "PrivacyEngine(...) was not pasted. It uses this accountant unless another one is given.",
        )
        given: Mapping[str, Value] = {}
    else:
        given = _ENGINE.bind(receiver)
        if "accountant" not in given:
            facts.suppose("accountant", "prv", "PrivacyEngine() uses this accountant unless another one is given.")
    if facts.flag("secure_mode", given, False) is not True:
        facts.suppose(
            "secure_mode",
            "False",
            "PyTorch's own generator draws the noise, in floating point. The numbers are those of exact noise.",
        )
    return facts.word("accountant", given, _WORDS, "prv")


def _accountant(facts: Facts, around: Surroundings) -> str:
    """Return the accountant that was pasted, by its class or by its name."""
    found = around.last(*_CLASSES, "create_accountant")
    if found is None:
        facts.suppose("accountant", "rdp", "No accountant was pasted.")
        return "rdp"
    if found.name == "create_accountant":
        return facts.word("mechanism", Signature("mechanism").bind(found), _WORDS, "rdp")
    return _CLASSES[found.name]


def _delta(facts: Facts, around: Surroundings) -> float:
    found = around.last("get_epsilon", "get_privacy_spent")
    return facts.delta("delta", {} if found is None else _GET_EPSILON.bind(found))


def _rate(given: Mapping[str, Value], facts: Facts) -> float:
    """Return the sample rate, or the quotient of the numbers that are filled in for it; 0 if these are missing."""
    if is_number(given.get("sample_rate")):
        return facts.number("sample_rate", given, 1e-12, 1.0)
    records = facts.count("dataset_size", "sample_rate", given)
    size = facts.count("batch_size", "sample_rate", given)
    return min(1.0, size / records) if records else 0.0


def _batches_of_an_epoch(given: Mapping[str, Value], facts: Facts, around: Surroundings) -> int:
    """Return the length of the loader that the call is given; 0 if the numbers from which it follows are missing."""
    loader = given.get("data_loader")
    if not isinstance(loader, Call):
        loader = around.last("DataLoader")
    bound: dict[str, Value] = {} if loader is None else _LOADER.bind(loader)
    if loader is not None and not any(name in bound for name in ("batch_size", "batch_sampler")):
        bound["batch_size"] = 1
        facts.suppose("batch_size", 1, "PyTorch's DataLoader uses this batch size if none is given.")
    records = facts.count("dataset_size", "dataset_size", {})
    size = facts.count("batch_size", "batch_size", bound)
    drops = facts.flag("drop_last", bound, False)
    if loader is None:
        facts.suppose(
            "drop_last",
            "False",
            "The loader was not pasted; its last batch is assumed to be kept, even if it is short.",
        )
    if not size:
        return 0
    return max(1, records // size if drops else -(-records // size))


def _batches(given: Mapping[str, Value], facts: Facts, around: Surroundings) -> Batches:
    samples = facts.flag("poisson_sampling", given, True)
    if samples is None:
        if around.known.batches is None:
            value = given["poisson_sampling"]
            facts.miss("batches", f"poisson_sampling={value.text}" if isinstance(value, Unread) else "")
        return around.known.batches or Batches.POISSON
    if samples:
        reason = (
            "poisson_sampling is True, by argument or by default. Only the loader that the call returns draws "
            "Poisson samples."
        )
        return around.batches(facts, Batches.POISSON, reason)
    reason = (
        "poisson_sampling=False keeps the given loader, which cuts batches from a shuffled pass or from a pass in "
        "a fixed order."
    )
    return around.batches(facts, Batches.SHUFFLED, reason)


def _noise(
    facts: Facts, accountant: str, target: float, delta: float, rate: float, steps: int, tolerance: float
) -> float:
    found = noise_that_opacus_finds(accountant, target, delta, rate, steps, tolerance)
    facts.suppose(
        "noise_multiplier",
        f"{found:.6g}",
        "Opacus searches for the noise multiplier itself, and that search is repeated here. If "
        "`optimizer.noise_multiplier` has another value, fill that value in.",
    )
    return found
