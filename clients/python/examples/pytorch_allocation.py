"""Train with plain PyTorch on scikit-learn's digits under a budget; each record is in one step of every epoch.

    epsilond serve --migrate                      # the server; or make serve
    python clients/python/examples/pytorch_allocation.py    # this; it needs epsilond-client, torch and scikit-learn

`EPSILOND_URL` is the address of the server, and `EPSILOND_API_KEY` the key. The digits are public; with private rows,
the accuracy on rows that the budget covers would be a release of its own. The noise here is ordinary floating-point
noise: its last bits may reveal more than is accounted for. Runs that the service trains avoid this.
"""

from __future__ import annotations

import argparse
import secrets
import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.utils.data import TensorDataset

from epsilond_client import Budget, BudgetExceeded, Client, samplers
from epsilond_client.adapters import pytorch

TRAIN_ROWS, BATCH = 1400, 70
CLIP, STEP_SIZE, DELTA = 1.0, 1.0, 1e-5

Parameters = dict[str, torch.Tensor]


def main() -> int:
    """Ask for noise, reserve, train, and say what was charged."""
    options = argparse.ArgumentParser(description="Random allocation on digits under a budget")
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
    plan = client.calibrate(
        algorithm="dp_sgd",
        dataset_size=TRAIN_ROWS,
        batch_size=BATCH,
        epochs=epochs,
        sampling="random_allocation",
        neighboring_relation="add_or_remove_one",
        gradient_bound={"kind": "clip", "max_grad_norm": CLIP},
        target={"kind": "budget", "budget_id": budget.id},
    )
    noise = plan.solution.noise_multiplier
    [event] = plan.events
    print(f"calibrated  noise multiplier {noise:.4f} for {event['count']} steps with all that the budget has left")

    (features, labels), test = rows()
    torch.manual_seed(0)  # sets the initial weights only, which depend on no record
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    generator = torch.Generator().manual_seed(secrets.randbits(63))

    sampler = samplers.for_event(event, dataset_size=TRAIN_ROWS)
    loader = pytorch.data_loader(TensorDataset(features, labels), sampler)
    with client.guard(budget, noise_multiplier=noise, sampler=sampler) as guard:
        print(f"reserved    {guard.steps_reserved} steps as {guard.id}, before anything was drawn")
        for batch, targets in guard.steps(loader):
            total = clipped_sum(model, weights, batch, targets)
            for name, weight in weights.items():
                drawn = torch.randn(weight.shape, generator=generator)
                weights[name] = weight - STEP_SIZE * (total[name] + noise * CLIP * drawn) / sampler.divisor

    predicted = functional_call(model, weights, (test[0],)).argmax(dim=1)
    accuracy = (predicted == test[1]).float().mean().item()
    print(f"trained     {guard.steps_taken} steps; accuracy {accuracy:.3f} on {len(test[1])} held-out rows")
    charged = client.reservations.get(guard.id)
    print(f"charged     epsilon {charged.charged.epsilon:.4f} of the budget ({charged.state})")
    certified = client.account(charged.charged_events, neighboring_relation="add_or_remove_one", delta=DELTA).epsilon
    print(f"certified   epsilon in [{certified.lower:.6f}, {certified.upper:.6f}] at delta {DELTA}")


def clipped_sum(model: nn.Module, weights: Parameters, features: torch.Tensor, labels: torch.Tensor) -> Parameters:
    """Return the sum of the records' gradients, each no longer than the clip threshold; zeros for an empty batch."""

    def loss(point: Parameters, record: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(functional_call(model, point, (record[None],)), label[None])

    if not len(features):
        return {name: torch.zeros_like(weight) for name, weight in weights.items()}
    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(weights, features, labels)
    norms = torch.sqrt(sum(each.flatten(1).square().sum(dim=1) for each in gradients.values()))
    factors = (CLIP / norms).clamp(max=1.0)
    return {name: torch.tensordot(factors, each, dims=1) for name, each in gradients.items()}


def rows() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Return rows to train on and rows to score, scaled by the pixels' declared range, never by the rows themselves."""
    digits = load_digits()
    features = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    return (features[:TRAIN_ROWS], labels[:TRAIN_ROWS]), (features[TRAIN_ROWS:], labels[TRAIN_ROWS:])


if __name__ == "__main__":
    raise SystemExit(main())
