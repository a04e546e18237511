"""JAX Privacy: counted and charged batches of its strategies, for a loop with its clipping and any optimizer of optax.

    grads = jax_privacy.clipped_grad(loss, l2_clip_norm=1.0)
    batches = adapter.Batches(CyclicPoissonSampling(sampling_prob=0.01, iterations=500), num_examples=60_000)
    with adapter.guard(client, "my project", batches, grads, stddev=1.1) as guard:
        for indices in guard.steps(batches):
            ...  # grads(params, rows[indices]), add noise of `stddev` once, divide by a constant, update

The noise multiplier is `stddev` over the bound on one record's gradient that `grads` itself declares. A strategy is
charged for its way of drawing batches; if there is no account of this way, it is refused. The strategy's random numbers
come from the operating system, since anybody who knows a seed knows the batches.

An execution plan of JAX Privacy carries its `dp_event`: ``dp_event.import_event(client, plan.dp_event, delta=...)``
answers with the `events` to reserve.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from epsilond_client.client import Client
from epsilond_client.holding import HeldReservation
from epsilond_client.naming import BudgetId


class Batches:
    """The batches of a strategy: arrays of indices, one for each step, drawn once.

    Args:
        strategy: A strategy of `jax_privacy.batch_selection`.
        num_examples: The number of records.

    Attributes:
        sampling: How batches are drawn, in the form of an event.

    Raises:
        ValueError: no accounted scheme draws like this strategy.
    """

    def __init__(self, strategy: Any, num_examples: int) -> None:
        self.sampling = sampling_of(strategy, num_examples)
        self._strategy, self._num_examples = strategy, num_examples
        self._is_handed_out = False

    def __len__(self) -> int:
        return int(self._strategy.iterations)

    def __iter__(self) -> Iterator[Any]:
        if self._is_handed_out:
            raise ValueError("all batches of this strategy were drawn before: one loop over it is the whole training")
        self._is_handed_out = True
        return iter(self._strategy.batch_iterator(self._num_examples, rng=secrets.randbits(128)))


def guard(
    client: Client,
    budget: BudgetId,
    batches: Batches,
    clipped: Any,
    *,
    stddev: float,
    purpose: str = "training with JAX Privacy",
    **options: Any,
) -> HeldReservation:
    """Return a reservation of all steps, which counts each one before its batch is handed out.

    Args:
        client: A client of the server that keeps the budget.
        budget: The budget that pays: its name, its id, or the budget itself.
        batches: The batches of a strategy, whose `iterations` are reserved.
        clipped: The result of `jax_privacy.clipped_grad` or `clipped_fun`, which knows the bound on a contribution.
        stddev: The standard deviation of the noise that the loop adds to what `clipped` returns.
        purpose: Shown with every entry.
        options: `expires_in`, `charge_delta`, `idempotency_key`, as in `Client.guard`.

    Raises:
        ValueError: the training would differ from what is charged; the text says why.
    """
    bound = getattr(clipped, "l2_norm_bound", None)
    if bound is None:
        raise ValueError(
            f"{type(clipped).__name__} declares no bound on a contribution: give what jax_privacy.clipped_grad returns"
        )
    if clipped.has_aux:
        raise ValueError(
            "this clipped function returns values or norms of single records beside the sum, and no noise is "
            "added to them: make it without has_aux, return_values and return_grad_norms"
        )
    return client.guard(
        budget,
        noise_multiplier=float(stddev) / float(bound),
        sampling=batches.sampling,
        steps=len(batches),
        purpose=purpose,
        **options,
    )


def sampling_of(strategy: Any, num_examples: int) -> Mapping[str, Any]:
    """Return how a strategy draws its batches, in the form of an event.

    Raises:
        ValueError: no accounted scheme draws like this strategy; the text says which strategies can be used.
    """
    module: Any = import_module("jax_privacy.batch_selection")
    kind = type(strategy)
    if kind is module.CyclicPoissonSampling and strategy.cycle_length == 1:
        probability = float(strategy.sampling_prob)
        if strategy.truncated_batch_size is None:
            return {"kind": "poisson", "sampling_probability": probability}
        return {
            "kind": "truncated_poisson",
            "sampling_probability": probability,
            "max_batch_size": int(strategy.truncated_batch_size),
            "dataset_size": num_examples,
            "truncation": "random",
        }
    if kind is module.FixedBatchSampling:
        name = "with_replacement" if strategy.replace else "without_replacement"
        return {"kind": name, "batch_size": int(strategy.batch_size), "dataset_size": num_examples}
    if kind is module.BallsInBinsSampling and strategy.iterations <= strategy.cycle_length:
        return {"kind": "random_allocation", "num_bins": int(strategy.cycle_length), "participations": 1}
    raise ValueError(
        f"{strategy} cannot be guarded. CyclicPoissonSampling with cycle_length=1, FixedBatchSampling, and "
        "BallsInBinsSampling of one cycle can. Over several cycles a record keeps its bin, and no sampling scheme "
        "that can be charged does this; epsilond_client.samplers.RandomAllocation draws the bin again in every "
        "cycle"
    )
