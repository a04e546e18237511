"""The adapter with the real Trainer, on a tiny model that needs no download."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

from epsilond_client import Budget, BudgetExceeded, Client, StepsExhausted
from epsilond_client.adapters import huggingface
from epsilond_client.samplers import Poisson, RandomAllocation

RECORDS, BATCH, NOISE = 40, 8, 4.0
#: Texts of different lengths, so that padding would show.
DATA = [
    {"input_ids": [2 + (record * token) % 30 for token in range(1, 3 + record % 5)], "labels": record % 2}
    for record in range(RECORDS)
]


def collate(records: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    longest = max(len(record["input_ids"]) for record in records)
    rows = [record["input_ids"] + [0] * (longest - len(record["input_ids"])) for record in records]
    return {"input_ids": torch.tensor(rows), "labels": torch.tensor([record["labels"] for record in records])}


MakeTrainer = Callable[..., Trainer]


@pytest.fixture
def make_trainer(tmp_path: Path) -> MakeTrainer:
    def make(
        data: Any = None, kind: type[Trainer] = Trainer, model: Any = None, callbacks: Any = (), **given: Any
    ) -> Trainer:
        torch.manual_seed(3)
        config = BertConfig(
            vocab_size=40,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=8,
            max_position_embeddings=16,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        options = {"per_device_train_batch_size": BATCH, "num_train_epochs": 2, "learning_rate": 0.1, "optim": "sgd"}
        options |= {"lr_scheduler_type": "constant", "report_to": "none", "use_cpu": True, "disable_tqdm": True}
        options |= {"logging_steps": 1, "save_strategy": "no", "max_grad_norm": 0.5} | given
        return kind(
            model=BertForSequenceClassification(config) if model is None else model,
            args=TrainingArguments(output_dir=str(tmp_path), **options),
            train_dataset=DATA if data is None else data,
            data_collator=collate,
            callbacks=list(callbacks),
        )

    return make


@pytest.fixture
def budget(client: Client) -> Budget:
    return client.budgets.create(
        "transformers",
        neighboring_relation="add_or_remove_one",
        filter={"kind": "renyi_dp", "epsilon": 8, "delta": 1e-5},
    )


def charged(client: Client, budget: Budget) -> dict[str, Any]:
    [found] = client.reservations.list(budget)
    assert found.state == "committed", found
    [event] = found["charged_events"]
    return dict(event)


def weights(trainer: Trainer) -> torch.Tensor:
    return torch.cat([each.detach().flatten().clone() for each in trainer.model.parameters()])


def test_a_training_is_charged_as_its_arguments_say_and_the_trainer_is_as_it_was(
    client: Client, budget: Budget, make_trainer: MakeTrainer
) -> None:
    trainer = make_trainer()
    before = weights(trainer)
    with huggingface.guard(client, budget, trainer, noise_multiplier=NOISE) as guard:
        assert guard.steps_reserved == 2 * RECORDS // BATCH
        trainer.train()
    assert charged(client, budget) == {
        "mechanism": {"kind": "gaussian", "noise_multiplier": NOISE},
        "sampling": {"kind": "poisson", "sampling_probability": BATCH / RECORDS},
        "count": 10,
    }
    assert trainer.state.global_step == 10
    assert not torch.equal(before, weights(trainer))
    assert (trainer.args.max_grad_norm, trainer.args.max_steps) == (0.5, -1)
    assert not {"training_step", "get_train_dataloader"} & vars(trainer).keys()


def test_nothing_that_is_logged_depends_on_a_loss(client: Client, budget: Budget, make_trainer: MakeTrainer) -> None:
    trainer = make_trainer()
    with huggingface.guard(client, budget, trainer, noise_multiplier=NOISE):
        trainer.train()
    assert [entry["loss"] for entry in trainer.state.log_history if "loss" in entry] == [0.0] * 10
    assert trainer.state.total_flos == 0


def stepped(client: Client, budget: Budget, trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """Return the effect of one step over all records, without its noise."""
    monkeypatch.setattr(huggingface._PrivateStep, "_normal", lambda step, like: torch.zeros_like(like))
    before, count = weights(trainer), len(trainer.train_dataset)
    sampler = Poisson(RECORDS, 1, sampling_probability=1.0, records=count)
    with huggingface.guard(client, budget, trainer, noise_multiplier=60.0, sampler=sampler):
        trainer.train()
    return (before - weights(trainer)) / 0.1 * RECORDS  # the sum of the clipped gradients


def test_a_record_changes_the_sum_by_its_own_clipped_gradient_and_no_more(
    client: Client, budget: Budget, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for the longest record, too, although it would change the padding of all others."""
    longest = max(range(RECORDS), key=lambda place: len(DATA[place]["input_ids"]))
    whole = stepped(client, budget, make_trainer(), monkeypatch)
    without = stepped(client, budget, make_trainer(DATA[:longest] + DATA[longest + 1 :]), monkeypatch)
    alone = stepped(client, budget, make_trainer([DATA[longest]]), monkeypatch)
    assert float((whole - without).norm()) <= 0.5 * (1 + 1e-4)
    torch.testing.assert_close(whole - without, alone, rtol=0.0, atol=1e-4)


def test_clipping_is_that_of_each_record(
    client: Client, budget: Budget, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer()
    expected = torch.zeros_like(weights(trainer))
    for record in DATA:
        trainer.model.zero_grad()
        trainer.model(**collate([record])).loss.backward()
        parts = [torch.zeros_like(each) if each.grad is None else each.grad for each in trainer.model.parameters()]
        gradient = torch.cat([part.flatten() for part in parts])
        expected += gradient * min(1.0, 0.5 / float(gradient.norm()))
    torch.testing.assert_close(stepped(client, budget, trainer, monkeypatch), expected, rtol=0.0, atol=2e-4)


def test_a_record_whose_gradient_is_no_number_contributes_nothing(
    client: Client, budget: Budget, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaks(Trainer):
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
            loss = super().compute_loss(model, inputs, *args, **options)
            return loss * torch.tensor(float("inf")) if len(inputs["input_ids"][0]) == 6 else loss

    moved = stepped(client, budget, make_trainer(kind=Breaks), monkeypatch)
    short = [record for record in DATA if len(record["input_ids"]) != 6]
    torch.testing.assert_close(moved, stepped(client, budget, make_trainer(short), monkeypatch), rtol=0.0, atol=1e-4)


def test_the_noise_is_what_is_charged_and_no_seed_decides_it(
    client: Client, budget: Budget, make_trainer: MakeTrainer
) -> None:
    """The batches are empty, so a step consists of noise only."""
    steps = []
    for _ in range(2):
        trainer = make_trainer(max_grad_norm=2.0)
        before = weights(trainer)
        sampler = Poisson(RECORDS, 1, sampling_probability=1e-9)
        with huggingface.guard(client, budget, trainer, noise_multiplier=NOISE, sampler=sampler):
            trainer.train()
        steps.append((before - weights(trainer)) / 0.1 * sampler.divisor)
    assert float(steps[0].std()) == pytest.approx(NOISE * 2.0, rel=0.1)
    assert abs(float(torch.corrcoef(torch.stack(steps))[0, 1])) < 0.2, "one seed of the trainer, two noises"


def test_each_record_once_an_epoch(client: Client, budget: Budget, make_trainer: MakeTrainer) -> None:
    sampler = RandomAllocation(RECORDS, 10, num_bins=5)
    trainer = make_trainer(num_train_epochs=77)
    with huggingface.guard(client, budget, trainer, noise_multiplier=NOISE, sampler=sampler):
        trainer.train()
    assert charged(client, budget)["sampling"] == sampler.sampling
    assert trainer.state.global_step == 10


def test_the_step_beyond_is_refused_before_its_noise(client: Client, budget: Budget, make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(max_steps=2)
    with huggingface.guard(client, budget, trainer, noise_multiplier=NOISE):
        trainer.train()
        with pytest.raises(StepsExhausted):
            trainer.training_step(trainer.model, {"records": DATA[:2]})
        with pytest.raises(ValueError, match="all 2 steps are drawn"):
            trainer.train()
    assert charged(client, budget)["count"] == 2


class Fails(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 3:
            raise ZeroDivisionError


def test_a_training_that_fails_is_charged_for_the_steps_that_began(
    client: Client, budget: Budget, make_trainer: MakeTrainer
) -> None:
    trainer = make_trainer(callbacks=[Fails()])
    with (
        pytest.raises(ZeroDivisionError),
        huggingface.guard(client, budget, trainer, noise_multiplier=NOISE),
    ):
        trainer.train()
    assert charged(client, budget)["count"] == 3
    assert trainer.args.max_grad_norm == 0.5


def test_what_does_not_fit_begins_no_training(client: Client, budget: Budget, make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(num_train_epochs=100_000)
    with pytest.raises(BudgetExceeded), huggingface.guard(client, budget, trainer, noise_multiplier=NOISE):
        raise AssertionError("the block has run")
    assert "training_step" not in vars(trainer)


class OwnStep(Trainer):
    def training_step(self, *args: Any, **options: Any) -> Any:
        return super().training_step(*args, **options)


class Batched(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.averages = torch.nn.BatchNorm1d(3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps is not guarded: a step is one noisy sum"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size is not guarded"),
        ({"include_num_input_tokens_seen": True}, "include_num_input_tokens_seen is not guarded"),
        ({"max_grad_norm": 0.0}, "max_grad_norm bounds the gradient of each record"),
        ({"kind": OwnStep}, "OwnStep has a training_step of its own"),
        ({"model": Batched()}, r"averages \(BatchNorm1d\) keeps averages of the records"),
    ],
)
def test_what_would_not_be_charged_as_it_is_is_refused(
    client: Client, budget: Budget, make_trainer: MakeTrainer, given: dict[str, Any], said: str
) -> None:
    trainer = make_trainer(**given)
    with pytest.raises(ValueError, match=said), huggingface.guard(client, budget, trainer, noise_multiplier=NOISE):
        raise AssertionError("the block has run")
    assert list(client.reservations.list(budget)) == []


def test_a_trainer_has_one_guard_and_a_sampler_its_own_records(
    client: Client, budget: Budget, make_trainer: MakeTrainer
) -> None:
    trainer = make_trainer()
    with huggingface.guard(client, budget, trainer, noise_multiplier=NOISE) as held:
        with (
            pytest.raises(ValueError, match="guarded already"),
            huggingface.guard(client, budget, trainer, noise_multiplier=NOISE),
        ):
            raise AssertionError("the block has run")
        held.void()
    other = Poisson(RECORDS + 1, 2, sampling_probability=0.1)
    with (
        pytest.raises(ValueError, match=f"draws from {RECORDS + 1} records, but the train_dataset has {RECORDS}"),
        huggingface.guard(client, budget, trainer, noise_multiplier=NOISE, sampler=other),
    ):
        raise AssertionError("the block has run")
