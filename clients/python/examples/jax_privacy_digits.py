"""Train with JAX, optax and JAX Privacy on scikit-learn's digits under a budget.

    epsilond serve --migrate                      # the server; or make serve
    python clients/python/examples/jax_privacy_digits.py    # this; it needs jax-privacy and scikit-learn, too

`EPSILOND_URL` is the address of the server, and `EPSILOND_API_KEY` the key. The digits are public; with private rows,
the accuracy on rows that the budget covers would be a release of its own. The noise here is ordinary floating-point
noise: its last bits may reveal more than is accounted for. Runs that the service trains avoid this.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from typing import Any

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
import optax
from jax_privacy.batch_selection import CyclicPoissonSampling
from sklearn.datasets import load_digits

from epsilond_client import Budget, BudgetExceeded, Client
from epsilond_client.adapters import jax_privacy as adapter

TRAIN_ROWS, BATCH, CLIP, DELTA = 1400, 70, 1.0, 1e-5
#: Batches are padded to a multiple of this, so that few shapes are compiled.
PADDED = 64


def main() -> int:
    """Ask for noise, reserve, train, and say what was charged."""
    options = argparse.ArgumentParser(description="JAX Privacy on digits under a budget")
    options.add_argument("--epsilon", type=float, default=3.0, help="epsilon of the budget that is opened")
    options.add_argument("--epochs", type=int, default=20)
    given = options.parse_args()
    with Client() as client:
        budget = client.budgets.create(
            "digits",
            neighboring_relation="add_or_remove_one",
            filter={"kind": "renyi_dp", "epsilon": given.epsilon, "delta": DELTA},
        )
        print(f"budget      {budget.id}: epsilon {budget.epsilon.limit} at delta {DELTA}")
        try:
            train(client, budget, given.epochs)
        except BudgetExceeded as denial:
            print(f"denied      {denial}", file=sys.stderr)
            return 1
    return 0


def train(client: Client, budget: Budget, epochs: int) -> None:
    """Train for this many epochs, with the noise that the budget allows."""
    steps = epochs * (TRAIN_ROWS // BATCH)
    plan = client.calibrate(
        algorithm="dp_sgd",
        dataset_size=TRAIN_ROWS,
        batch_size=BATCH,
        iterations=steps,
        sampling="poisson",
        neighboring_relation="add_or_remove_one",
        gradient_bound={"kind": "clip", "max_grad_norm": CLIP},
        target={"kind": "budget", "budget_id": budget.id},
    )
    stddev = plan.solution.noise_multiplier * CLIP
    print(f"calibrated  noise of {stddev:.4f} for {steps} steps with all that the budget has left")

    features, labels = load_digits(return_X_y=True)
    features = (features / 16.0).astype(np.float32)
    sums = jax_privacy.clipped_grad(loss, l2_clip_norm=CLIP, batch_argnums=(1, 2))
    batches = adapter.Batches(CyclicPoissonSampling(sampling_prob=BATCH / TRAIN_ROWS, iterations=steps), TRAIN_ROWS)
    optimizer = optax.adam(0.05)

    @jax.jit
    def step(weights: Any, state: Any, key: Any, rows: Any, targets: Any, is_filling: Any) -> Any:
        total = sums(weights, rows, targets, is_padding_example=is_filling)
        noisy = total + stddev * jax.random.normal(key, total.shape)
        updates, state = optimizer.update(noisy / BATCH, state)
        return optax.apply_updates(weights, updates), state

    weights = jnp.zeros((64, 10))
    state = optimizer.init(weights)
    with adapter.guard(client, budget, batches, sums, stddev=stddev) as guard:
        print(f"reserved    {guard.steps_reserved} steps as {guard.id}, before anything was drawn")
        for indices in guard.steps(batches):
            filled = np.zeros(-(-max(len(indices), 1) // PADDED) * PADDED, dtype=np.int64)
            filled[: len(indices)] = indices
            key = jax.random.key(secrets.randbits(63))  # a fresh key for each step, which is not kept
            is_filling = np.arange(len(filled)) >= len(indices)
            weights, state = step(weights, state, key, features[filled], labels[filled], is_filling)

    test = features[TRAIN_ROWS:]
    accuracy = float((jnp.argmax(test @ weights, axis=1) == labels[TRAIN_ROWS:]).mean())
    print(f"trained     {guard.steps_taken} steps; accuracy {accuracy:.3f} on {len(test)} held-out rows")
    charged = client.reservations.get(guard.id)
    print(f"charged     epsilon {charged.charged.epsilon:.4f} of the budget ({charged.state})")
    certified = client.account(charged.charged_events, neighboring_relation="add_or_remove_one", delta=DELTA).epsilon
    print(f"certified   epsilon in [{certified.lower:.6f}, {certified.upper:.6f}] at delta {DELTA}")


def loss(weights: Any, rows: Any, targets: Any) -> Any:
    """Return the cross-entropy of a softmax regression."""
    return optax.softmax_cross_entropy_with_integer_labels(rows @ weights, targets).mean()


if __name__ == "__main__":
    raise SystemExit(main())
