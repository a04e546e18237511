"""Train with Opacus on scikit-learn's digits under a budget of a running server.

    epsilond serve --migrate                      # the server; or make serve
    python clients/python/examples/opacus_digits.py    # this; it needs epsilond-client, opacus and scikit-learn

`EPSILOND_URL` is the address of the server, and `EPSILOND_API_KEY` the key. The digits are public; with private rows,
the accuracy on rows that the budget covers would be a release of its own, and would have to be charged.
"""

from __future__ import annotations

import argparse
import sys
import warnings

import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from epsilond_client import Budget, BudgetExceeded, Client
from epsilond_client.adapters import opacus as adapter

TRAIN_ROWS, BATCH = 1400, 70
DELTA = 1e-5


def main() -> int:
    """Ask for noise, reserve, train, and say what was charged."""
    options = argparse.ArgumentParser(description="Opacus on digits under a budget")
    options.add_argument("--epsilon", type=float, default=3.0, help="epsilon of the budget that is opened")
    options.add_argument("--epochs", type=int, default=20)
    given = options.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # warnings of torch and Opacus about hooks and random numbers
    with Client() as client:
        budget = open_budget(client, given.epsilon)
        print(f"budget      {budget.id}: epsilon {budget.epsilon.limit} at delta {DELTA}")
        try:
            train(client, budget.id, given.epochs)
        except BudgetExceeded as denial:
            print(f"denied      {denial}", file=sys.stderr)
            return 1
    return 0


def open_budget(client: Client, epsilon: float) -> Budget:
    """Open a budget of its own, so that the script can be tried again."""
    return client.budgets.create(
        "digits",
        neighboring_relation="add_or_remove_one",
        filter={"kind": "renyi_dp", "epsilon": epsilon, "delta": DELTA},
    )


def train(client: Client, budget_id: str, epochs: int) -> None:
    """Train for this many epochs, with the noise that the budget allows."""
    steps = epochs * (TRAIN_ROWS // BATCH)
    plan = client.calibrate(
        algorithm="dp_sgd",
        dataset_size=TRAIN_ROWS,
        batch_size=BATCH,
        iterations=steps,
        sampling="poisson",
        neighboring_relation="add_or_remove_one",
        gradient_bound={"kind": "clip", "max_grad_norm": 1.0},
        target={"kind": "budget", "budget_id": budget_id},
    )
    noise = plan.solution.noise_multiplier
    print(f"calibrated  noise multiplier {noise:.4f} for {steps} steps with all that the budget has left")

    (features, labels), test = rows()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    engine = PrivacyEngine(accountant="rdp")  # use secure_mode=True where the rows are private
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=DataLoader(TensorDataset(features, labels), batch_size=BATCH),
        noise_multiplier=noise,
        max_grad_norm=1.0,
    )

    with adapter.guard(client, budget_id, optimizer=optimizer, data_loader=loader, epochs=epochs) as guard:
        print(f"reserved    {guard.steps_reserved} steps as {guard.id}, before anything was drawn")
        for _ in range(epochs):
            for batch, target in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(batch), target).backward()
                optimizer.step()

    accuracy = (model(test[0]).argmax(dim=1) == test[1]).float().mean().item()
    print(f"trained     {guard.steps_taken} steps; accuracy {accuracy:.3f} on {len(test[1])} held-out rows")
    charged = client.reservations.get(guard.id)
    print(f"charged     epsilon {charged.charged.epsilon:.4f} of the budget ({charged.state})")
    history = adapter.import_engine(client, engine, loader, delta=DELTA)
    print(f"certified   epsilon in [{history.epsilon.lower:.6f}, {history.epsilon.upper:.6f}] at delta {DELTA}")
    print(f"Opacus      says {engine.get_epsilon(DELTA):.4f} ({engine.accountant.mechanism()})")
    try:
        with adapter.guard(client, budget_id, optimizer=optimizer, data_loader=loader, epochs=1):
            raise AssertionError("the budget has no room for another epoch")
    except BudgetExceeded as denial:
        print(f"denied      another epoch, before its first noise: {denial}")


def rows() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Return rows to train on and rows to score, scaled by the pixels' declared range, never by the rows themselves."""
    digits = load_digits()
    features = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    return (features[:TRAIN_ROWS], labels[:TRAIN_ROWS]), (features[TRAIN_ROWS:], labels[TRAIN_ROWS:])


if __name__ == "__main__":
    raise SystemExit(main())
