"""Opacus: read what a `PrivacyEngine` did, and let an Opacus loop take only the steps that were reserved.

    with opacus.guard(client, budget, optimizer=optimizer, data_loader=loader, epochs=5):
        ...  # the loop as it is

A loader with a sampler of `epsilond_client.samplers` is charged as the sampler draws, for the steps that the sampler
has left.

The following are refused: other loaders that are no Poisson samplers (with `poisson_sampling=False`, batches are cut
from a shuffled data set, for which no amplification is proved, although the history looks the same), optimizers with
other noise than one Gaussian per step (adaptive clipping) or with noise from several processes, and steps of several
accumulated batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Literal

from epsilond_client.answers import Answer
from epsilond_client.client import Client
from epsilond_client.holding import HeldReservation
from epsilond_client.loaders import declared_by
from epsilond_client.naming import BudgetId

Batches = Literal["poisson", "shuffled"]
#: The optimizers that run in one process, add one Gaussian over all parameters, and know how many batches they
#: accumulate.
_GUARDED = ("DPOptimizer", "DPPerLayerOptimizer")


def source_of(engine: Any, data_loader: Any = None, *, batches: Batches | None = None) -> dict[str, Any]:
    """Return the source of an import: the history of a `PrivacyEngine`, or of an accountant.

    Args:
        engine: A `PrivacyEngine`, or its `accountant`.
        data_loader: The loader that `make_private` returned. It shows whether batches are Poisson samples.
        batches: How the loader drew batches, if it is not at hand or is no Poisson sampler: ``shuffled`` if it cuts a
            shuffled data set into batches.

    Raises:
        ValueError: neither argument says how batches were drawn, or they contradict each other.
    """
    accountant = getattr(engine, "accountant", engine)
    state = accountant.state_dict()
    if data_loader is not None:
        if is_poisson(data_loader):
            if batches == "shuffled":
                raise ValueError(
                    'the loader draws Poisson samples, but batches="shuffled" was given: leave batches out'
                )
            batches = "poisson"
        elif batches != "shuffled":
            raise ValueError(
                _not_poisson(
                    data_loader, ("give batches='shuffled' if the loader cuts a shuffled data set into batches")
                )
            )
    if batches is None:
        raise ValueError("the history does not say how batches were drawn: give the data_loader, or batches='poisson'")
    history = [[float(noise), float(rate), int(steps)] for noise, rate, steps in state["history"]]
    return {"kind": "opacus", "mechanism": state["mechanism"], "history": history, "batches": batches}


def import_engine(
    client: Client,
    engine: Any,
    data_loader: Any = None,
    *,
    delta: float,
    batches: Batches | None = None,
    neighboring_relation: str | None = None,
) -> Answer:
    """Return what an engine has spent: `epsilon` as an interval, Opacus' own number, and each reason why they differ.

    Args:
        client: A client of the server that accounts the history.
        engine, data_loader, batches: As in `source_of`.
        delta: The delta at which the history is accounted.
        neighboring_relation: The relation; if left out, the service's default.
    """
    source = source_of(engine, data_loader, batches=batches)
    return client.import_history(source, delta=delta, neighboring_relation=neighboring_relation)


def is_poisson(data_loader: Any) -> bool:
    """Return whether a loader draws each record independently of all others, as the accounts of sampled steps
    assume."""
    sampler: Any = import_module("opacus.utils.uniform_sampler").UniformWithReplacementSampler
    return isinstance(getattr(data_loader, "batch_sampler", None), sampler)


def noise_multiplier(client: Client, budget: BudgetId, *, data_loader: Any, epochs: int) -> float:
    """Return the noise with which a training spends the rest of a budget, for `make_private(noise_multiplier=...)`.

    It is for the Poisson samples that `make_private` draws by default: each record is in a batch with probability
    ``1 / len(data_loader)``, and an epoch has ``len(data_loader)`` steps. Nothing is charged or held.

    Args:
        client: A client of the server that keeps the budget.
        budget: The budget; its neighbouring relation is used.
        data_loader: Your own loader, before `make_private`.
        epochs: The number of planned passes.

    Raises:
        ValueError: the loader does not know its length, or the number of epochs is not positive.
        InvalidRequest: no noise is enough.
    """
    try:
        batches = len(data_loader)
    except TypeError:
        raise ValueError("this data_loader has no length, which Opacus needs for its sample rate") from None
    if epochs < 1 or batches < 1:
        raise ValueError(f"there is no step in {epochs} epochs of {batches} batches")
    paid_by = client.budgets.get(budget)
    plan = client.calibrate(
        algorithm="dp_sgd",
        # Only the ratio matters: one of that many batches has the sampling probability that Opacus uses.
        dataset_size=batches,
        batch_size=1,
        iterations=epochs * batches,
        sampling="poisson",
        neighboring_relation=paid_by.neighboring_relation,
        gradient_bound={"kind": "clip", "max_grad_norm": 1.0},
        target={"kind": "budget", "budget_id": paid_by.id},
    )
    return float(plan.solution.noise_multiplier)


@contextmanager
def guard(
    client: Client,
    budget: BudgetId,
    *,
    optimizer: Any,
    data_loader: Any,
    epochs: int | None = None,
    steps: int | None = None,
    purpose: str = "training with Opacus",
    **options: Any,
) -> Iterator[HeldReservation]:
    """Reserve the steps of a training, and count each one before its noise is drawn.

    The loop needs no change, even with virtual steps of a `BatchMemoryManager`, because only noise is counted. The
    first step beyond the reserved ones raises `StepsExhausted`: its noise is not drawn, and the parameters do not
    change.

    Args:
        client: A client of the server that keeps the budget.
        budget: The budget that pays. To get the numbers that Opacus itself would report, its neighbouring relation must
            be ``add_or_remove_one``.
        optimizer, data_loader: The objects that `make_private` returned.
        epochs: The number of reserved passes, each of ``len(data_loader)`` steps; alternatively give `steps`.
        steps: The number of reserved steps. If neither is given, a sampler of `epsilond_client.samplers` decides by its
            remaining steps.
        purpose: Shown with every entry.
        options: `expires_in`, `charge_delta`, `idempotency_key`, as in `Client.guard`.

    Raises:
        ValueError: the training would differ from what is charged; the text says why.
        BudgetExceeded: the steps do not fit.
    """
    sampler: Any = getattr(data_loader, "batch_sampler", None)
    is_ours = not is_poisson(data_loader) and declared_by(sampler) is not None
    if is_ours:
        if epochs is not None:
            raise ValueError("one loop over this sampler is the whole training: give steps, or leave epochs out")
    elif (epochs is None) == (steps is None):
        raise ValueError("give either the number of epochs or the number of steps to reserve")
    _check_optimizer(optimizer)
    if not is_ours and not is_poisson(data_loader):
        shuffled = f'{{"kind": "shuffled_epochs", "steps_per_epoch": {_length(data_loader)}}}'
        raise ValueError(
            _not_poisson(
                data_loader, f"a loop over shuffled batches is charged by client.guard(..., sampling={shuffled})"
            )
        )
    noise = float(optimizer.noise_multiplier)
    held = client.guard(
        budget,
        noise_multiplier=noise,
        sampler=sampler if is_ours else None,
        sampling=None if is_ours else declared_by(sampler),
        steps=steps if epochs is None else epochs * len(data_loader),
        purpose=purpose,
        **options,
    )
    with held:
        draw = optimizer.add_noise

        def add_noise() -> None:
            _check_step(optimizer, noise)
            held.take()
            draw()

        optimizer.add_noise = add_noise
        try:
            yield held
        finally:
            del optimizer.add_noise


def _check_optimizer(optimizer: Any) -> None:
    module: Any = import_module("opacus.optimizers")
    if type(optimizer) not in {getattr(module, name) for name in _GUARDED}:
        raise ValueError(
            f"{type(optimizer).__name__} cannot be guarded, only {' and '.join(_GUARDED)}, as make_private "
            'makes them for clipping "flat" and "per_layer" in one process'
        )
    if "add_noise" in vars(optimizer):
        raise ValueError("this optimizer is guarded already, or something else has replaced its add_noise")


def _check_step(optimizer: Any, noise: float) -> None:
    """Check that the next step is one of the reserved ones.

    Raises:
        ValueError: the step costs more than was reserved; its noise is not drawn.
    """
    if optimizer.noise_multiplier < noise:
        raise ValueError(
            f"the noise multiplier is {optimizer.noise_multiplier}, below the {noise} that is reserved: if a "
            "schedule lowers the noise, reserve its phases one after the other"
        )
    if optimizer.accumulated_iterations != 1:
        raise ValueError(
            f"this step would release {optimizer.accumulated_iterations} batches at once, and a record may be in "
            "each: call zero_grad() after each step, and use BatchMemoryManager for batches that do not fit into "
            "memory"
        )


def _not_poisson(data_loader: Any, otherwise: str) -> str:
    sampler = type(getattr(data_loader, "batch_sampler", None)).__name__
    return (
        f"the batches of this loader are not Poisson samples (its sampler is {sampler}: was it made with "
        "poisson_sampling=False, or not by make_private?), and would be charged as if they were. Use the loader that "
        f"make_private(poisson_sampling=True) returns; {otherwise}"
    )


def _length(data_loader: Any) -> str:
    try:
        return str(len(data_loader))
    except TypeError:
        return "..."
