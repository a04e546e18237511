"""Train a tiny BERT with the Trainer of Hugging Face under a budget; nothing is downloaded.

    epsilond serve --migrate                      # the server; or make serve
    python clients/python/examples/huggingface_bert.py    # this; it needs epsilond-client, transformers and accelerate

`EPSILOND_URL` is the address of the server, and `EPSILOND_API_KEY` the key. The sentences are made up: those with the
word 7 are of class 1. The noise here is ordinary floating-point noise: its last bits may reveal more than is accounted
for. Runs that the service trains avoid this.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from epsilond_client import Budget, BudgetExceeded, Client
from epsilond_client.adapters import huggingface

RECORDS, BATCH, WORDS, LENGTH, CLIP, DELTA = 400, 20, 30, 12, 1.0, 1e-5


def main() -> int:
    """Ask for noise, reserve, train, and say what was charged."""
    options = argparse.ArgumentParser(description="The Trainer under a budget")
    options.add_argument("--epsilon", type=float, default=3.0, help="epsilon of the budget that is opened")
    options.add_argument("--epochs", type=int, default=5)
    given = options.parse_args()
    with Client() as client:
        budget = client.budgets.create(
            "sentences",
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
        dataset_size=RECORDS,
        batch_size=BATCH,
        epochs=epochs,
        sampling="poisson",
        neighboring_relation="add_or_remove_one",
        gradient_bound={"kind": "clip", "max_grad_norm": CLIP},
        target={"kind": "budget", "budget_id": budget.id},
    )
    noise = plan.solution.noise_multiplier
    print(f"calibrated  noise multiplier {noise:.4f} with all that the budget has left")
    torch.manual_seed(0)  # sets the initial weights only, which depend on no record
    config = BertConfig(vocab_size=WORDS, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=BertForSequenceClassification(config),
            args=TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=BATCH,
                num_train_epochs=epochs,
                max_grad_norm=CLIP,
                learning_rate=0.01,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
            ),
            train_dataset=sentences(RECORDS, seed=1),
            data_collator=collate,
        )
        with huggingface.guard(client, budget, trainer, noise_multiplier=noise) as guard:
            print(f"reserved    {guard.steps_reserved} steps as {guard.id}, before anything was drawn")
            trainer.train()
        test = collate(sentences(200, seed=2))
        with torch.no_grad():
            predicted = trainer.model.eval()(test["input_ids"]).logits.argmax(dim=1)
    accuracy = (predicted == test["labels"]).float().mean().item()
    print(f"trained     {guard.steps_taken} steps; accuracy {accuracy:.3f} on 200 held-out sentences")
    charged = client.reservations.get(guard.id)
    print(f"charged     epsilon {charged.charged.epsilon:.4f} of the budget ({charged.state})")
    certified = client.account(charged.charged_events, neighboring_relation="add_or_remove_one", delta=DELTA).epsilon
    print(f"certified   epsilon in [{certified.lower:.6f}, {certified.upper:.6f}] at delta {DELTA}")


def sentences(count: int, seed: int) -> list[dict[str, Any]]:
    """Return made-up sentences of words that are numbers."""
    words = random.Random(seed)
    rows = [[words.randrange(1, WORDS) for _ in range(words.randrange(4, LENGTH))] for _ in range(count)]
    return [{"input_ids": row, "labels": int(7 in row)} for row in rows]


def collate(records: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Return sentences of one length, filled up with 0."""
    rows = [record["input_ids"] + [0] * (LENGTH - len(record["input_ids"])) for record in records]
    return {"input_ids": torch.tensor(rows), "labels": torch.tensor([record["labels"] for record in records])}


if __name__ == "__main__":
    raise SystemExit(main())
