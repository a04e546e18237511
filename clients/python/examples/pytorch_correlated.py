"""Train with plain PyTorch and correlated noise on scikit-learn's digits under a budget.

    epsilond serve --migrate                      # the server; or make serve
    python clients/python/examples/pytorch_correlated.py    # this; it needs epsilond-client, torch and scikit-learn

`dp_bandmf` plans the noise, and this loop draws it step by step: on the device, from a seed for each step. A checkpoint
after each epoch holds the noise of the last steps, so that an interrupted loop can continue with the same stream; this
example does so once, in the middle. The checkpoint is as secret as the records. The digits are public; with private
rows, the accuracy on rows that the budget covers would be a release of its own. The noise here is ordinary
floating-point noise: its last bits may reveal more than is accounted for. Runs that the service trains avoid this.
"""

from __future__ import annotations

import argparse
import io
import sys
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from epsilond_client import Budget, BudgetExceeded, Client, samplers
from epsilond_client.noise import CorrelatedNoise, correlated_noise

TRAIN_ROWS, BATCH = 1400, 70
CLIP, STEP_SIZE, MOMENTUM, DELTA = 1.0, 0.2, 0.9, 1e-5


def main() -> int:
    """Ask for noise, reserve, train, and say what was charged."""
    options = argparse.ArgumentParser(description="Correlated noise on digits under a budget")
    options.add_argument("--epsilon", type=float, default=3.0, help="epsilon of the budget that is opened")
    options.add_argument("--epochs", type=int, default=20)
    options.add_argument("--device", default="cpu", help="where torch computes, and draws the noise")
    given = options.parse_args()
    with Client() as client:
        budget = client.budgets.create(
            "digits",
            neighboring_relation="add_or_remove_one",
            filter={"kind": "renyi_dp", "epsilon": given.epsilon, "delta": DELTA},
        )
        print(f"budget      {budget.id}: epsilon {budget.epsilon.limit} at delta {DELTA}")
        try:
            train(client, budget, given.epochs, torch.device(given.device))
        except BudgetExceeded as denial:
            print(f"denied      {denial}", file=sys.stderr)
            return 1
    return 0


def train(client: Client, budget: Budget, epochs: int, device: torch.device) -> None:
    """Train for this many epochs, with the noise that the budget allows and the bands that suit it."""
    answer = client.calibrate(
        algorithm="dp_bandmf",
        dataset_size=TRAIN_ROWS,
        batch_size=BATCH,
        epochs=epochs,
        neighboring_relation="add_or_remove_one",
        gradient_bound={"kind": "clip", "max_grad_norm": CLIP},
        target={"kind": "budget", "budget_id": budget.id},
        hyperparameters={"step_size": STEP_SIZE, "momentum": MOMENTUM, "step_size_schedule": "linear"},
    )
    plan = answer["plan"]
    [phase] = plan["phases"]
    step_sizes, event = phase["step_size"], phase["event"]
    chosen = next(each for each in answer["alternatives"] if each["is_chosen"])
    print(
        f"calibrated  {chosen['bands']} bands for {event['count']} steps, {chosen['ratio']:.3f} times the error of one"
    )

    torch.manual_seed(0)  # sets the initial weights only, which depend on no record
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(device)
    (features, labels), test = rows(device)
    point = parameters_to_vector(model.parameters()).detach()
    mean = torch.zeros_like(point)
    noise = noise_of(plan, len(point), device)
    print(f"memory      {noise.memory} bytes of earlier noise at most; torch's float32 takes half of them")

    sampler = samplers.for_event(event, dataset_size=TRAIN_ROWS)
    with client.reserve(budget, [event], purpose="correlated noise on digits", start=False) as guard:
        print(f"reserved    {event['count']} steps as {guard.id}, before anything was drawn")
        for step, indices in enumerate(guard.steps(sampler)):
            chosen_rows = torch.as_tensor(indices, dtype=torch.int64, device=device)
            total = clipped_sum(model, point, features[chosen_rows], labels[chosen_rows])
            mean = noise.momentum * mean + (total + noise.draw()) / noise.divisor
            point = point - step_sizes[step] * mean
            if step == event["count"] // 2:
                # As after a checkpoint, the loop continues with noise that remembers the steps before.
                noise = restored(saved(noise), noise_of(plan, len(point), device))
                print(f"went on     after {step + 1} steps, {noise.steps_left} left")

    kept = sum(each.nbytes for each in noise.state_dict()["earlier"])
    print(f"kept        {kept} bytes of earlier noise, beside a model of {point.nbytes}")
    vector_to_parameters(point, model.parameters())
    accuracy = (model(test[0]).argmax(dim=1) == test[1]).float().mean().item()
    print(f"trained     {guard.steps_taken} steps; accuracy {accuracy:.3f} on {len(test[1])} held-out rows")
    charged = client.reservations.get(guard.id)
    print(f"charged     epsilon {charged.charged.epsilon:.4f} of the budget ({charged.state})")
    certified = client.account(charged.charged_events, neighboring_relation="add_or_remove_one", delta=DELTA).epsilon
    print(f"certified   epsilon in [{certified.lower:.6f}, {certified.upper:.6f}] at delta {DELTA}")


def noise_of(plan: Any, size: int, device: torch.device) -> CorrelatedNoise:
    """Return the noise of a plan, drawn by torch on the model's device from a separate seed for each step."""

    def draw(seed: int) -> torch.Tensor:
        return torch.randn(size, generator=torch.Generator(device).manual_seed(seed), device=device)

    return correlated_noise(plan, size, draw=draw)


def saved(noise: CorrelatedNoise) -> bytes:
    """Return a checkpoint of the noise: its key, its step, and the noise of the last steps, as tensors."""
    file = io.BytesIO()
    torch.save(noise.state_dict(), file)
    return file.getvalue()


def restored(checkpoint: bytes, noise: CorrelatedNoise) -> CorrelatedNoise:
    """Return the noise in the state of the checkpoint."""
    noise.load_state_dict(torch.load(io.BytesIO(checkpoint), weights_only=True))
    return noise


def clipped_sum(model: nn.Module, point: torch.Tensor, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the sum of the records' gradients, each no longer than the clip threshold; zeros for an empty batch."""
    if not len(features):
        return torch.zeros_like(point)
    names, shapes = zip(*((name, weight.shape) for name, weight in model.named_parameters()), strict=True)

    def loss(flat: torch.Tensor, record: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        pieces = flat.split([shape.numel() for shape in shapes])
        weights = {name: piece.view(shape) for name, piece, shape in zip(names, pieces, shapes, strict=True)}
        return nn.functional.cross_entropy(functional_call(model, weights, (record[None],)), label[None])

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(point, features, labels)
    factors = (CLIP / gradients.norm(dim=1)).clamp(max=1.0)
    return factors @ gradients


def rows(device: torch.device) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Return rows to train on and rows to score, scaled by the pixels' declared range, never by the rows themselves."""
    digits = load_digits()
    features = torch.tensor(digits.data, dtype=torch.float32, device=device) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64, device=device)
    return (features[:TRAIN_ROWS], labels[:TRAIN_ROWS]), (features[TRAIN_ROWS:], labels[TRAIN_ROWS:])


if __name__ == "__main__":
    raise SystemExit(main())
