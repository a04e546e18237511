"""Hugging Face: a `Trainer` that trains privately under a budget.

    with huggingface.guard(client, "my project", trainer, noise_multiplier=1.1) as guard:
        trainer.train()

Inside the block the trainer draws Poisson batches (or those of a sampler of `epsilond_client.samplers`), clips the
gradient of each record to ``TrainingArguments.max_grad_norm``, adds the noise once, and divides by a public constant.
Each step is counted before its noise is drawn. Outside the block the trainer is as it was.

* Each record is collated and differentiated alone, so that its gradient depends on no other record, neither by padding
  nor by a loss that counts the tokens of a batch. So each record takes a backward pass.
* The loss that the trainer logs is 0, since the true loss is a statistic of the records for which nothing is charged.
* The noise comes from the operating system's cryptographic generator. The trainer's `seed` decides dropout, but nothing
  secret.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from epsilond_client.client import Client
from epsilond_client.holding import HeldReservation
from epsilond_client.naming import BudgetId
from epsilond_client.noise import fresh_normals
from epsilond_client.samplers import Poisson, Sampler

#: The methods that are replaced while the block lasts. A trainer that overrides one would do something else than what
#: is charged.
_REPLACED = ("training_step", "get_train_dataloader")
#: Keeps a contribution below its bound by more than the rounding of float32.
_MARGIN = 1.0 - 1e-6


@contextmanager
def guard(
    client: Client,
    budget: BudgetId,
    trainer: Any,
    *,
    noise_multiplier: float,
    max_grad_norm: float | None = None,
    sampler: Sampler | None = None,
    dataset_size: int | None = None,
    purpose: str = "training with the Trainer",
    **options: Any,
) -> Iterator[HeldReservation]:
    """Reserve the steps of a training, and let `trainer.train()` take them privately.

    Args:
        client: A client of the server that keeps the budget.
        budget: The budget that pays: its name, its id, or the budget itself.
        trainer: A `transformers.Trainer` in one process, with a `train_dataset` that has a length.
        noise_multiplier: Standard deviation of the noise on the sum, divided by `max_grad_norm`.
        max_grad_norm: The bound on each record's gradient; if left out, that of the `TrainingArguments`.
        sampler: Draws the batches. If left out, they are Poisson samples: their expected size is
            `per_device_train_batch_size`, and their number that of `num_train_epochs` or `max_steps`.
        dataset_size: The public number of records, if the true one is not public.
        purpose: Shown with every entry.
        options: `expires_in`, `charge_delta`, `idempotency_key`, as in `Client.guard`.

    Raises:
        ValueError: the training would differ from what is charged; the text says why.
        BudgetExceeded: the steps do not fit.
    """
    args = trainer.args
    _check(trainer)
    bound = args.max_grad_norm if max_grad_norm is None else max_grad_norm
    if not 0.0 < (bound or 0.0) < math.inf:
        raise ValueError(f"max_grad_norm bounds the gradient of each record, and must be above 0; got {bound!r}")
    if sampler is None:
        sampler = _sampler_of(args, len(trainer.train_dataset), dataset_size)
    elif dataset_size is not None:
        raise ValueError("a sampler has its own dataset_size: leave dataset_size out")
    if sampler.records != len(trainer.train_dataset):
        raise ValueError(
            f"the sampler draws from {sampler.records} records, but the train_dataset has {len(trainer.train_dataset)}"
        )
    held = client.guard(budget, noise_multiplier=noise_multiplier, sampler=sampler, purpose=purpose, **options)
    before = {"max_grad_norm": args.max_grad_norm, "max_steps": args.max_steps}
    with held:
        step = _PrivateStep(trainer, held, bound, noise_multiplier * bound, sampler.divisor)
        trainer.training_step = step
        trainer.get_train_dataloader = lambda: _loader(trainer, sampler)
        # The trainer would otherwise clip the noisy sum once more, and count epochs that are not the sampler's.
        args.max_grad_norm, args.max_steps = 0.0, sampler.steps_left
        try:
            yield held
        finally:
            for name in _REPLACED:
                delattr(trainer, name)
            for name, value in before.items():
                setattr(args, name, value)


class _PrivateStep:
    """Replaces `Trainer.training_step`, and puts the noisy mean gradient where the optimizer looks for it."""

    def __init__(self, trainer: Any, held: HeldReservation, bound: float, noise: float, divisor: float) -> None:
        self._trainer, self._held = trainer, held
        self._bound, self._noise, self._divisor = bound, noise, divisor
        self._torch: Any = import_module("torch")

    def __call__(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        torch = self._torch
        model.train()
        if callable(getattr(self._trainer.optimizer, "train", None)):
            self._trainer.optimizer.train()
        parameters = [each for each in model.parameters() if each.requires_grad]
        total = [torch.zeros_like(each, dtype=torch.float32) for each in parameters]
        for record in inputs["records"]:
            self._add(model, parameters, record, total)
        self._held.take()  # from here on noise may have been drawn, and the charge stands
        for parameter, part in zip(parameters, total, strict=True):
            noisy = part + self._noise * self._normal(part)
            parameter.grad = (noisy / self._divisor).to(parameter.dtype)
        return torch.zeros((), device=self._trainer.args.device)

    def _add(self, model: Any, parameters: Sequence[Any], record: Any, total: Sequence[Any]) -> None:
        """Add a record's gradient, clipped to the bound. A gradient that is not finite adds nothing."""
        trainer = self._trainer
        model.zero_grad(set_to_none=True)
        inputs = trainer._prepare_inputs(_collator(trainer)([record]))
        with trainer.compute_loss_context_manager():
            loss = trainer.compute_loss(model, inputs)
        loss.backward()
        gradients = [None if each.grad is None else each.grad.detach().float() for each in parameters]
        norm = math.sqrt(sum(float(each.double().square().sum()) for each in gradients if each is not None))
        if math.isfinite(norm):
            factor = min(1.0, self._bound * _MARGIN / norm if norm else 1.0)
            for part, gradient in zip(total, gradients, strict=True):
                if gradient is not None:
                    part.add_(gradient, alpha=factor)

    def _normal(self, like: Any) -> Any:
        """Return standard normal numbers from a cryptographic generator. The state of torch's generator could be found
        from its numbers."""
        found = self._torch.from_numpy(fresh_normals(like.numel()))
        return found.to(like.device, like.dtype).reshape(like.shape)


def _loader(trainer: Any, sampler: Sampler) -> Any:
    """Return the sampler's batches as lists of records, which are collated one by one later."""
    data: Any = import_module("torch.utils.data")
    return data.DataLoader(
        trainer.train_dataset,
        batch_sampler=sampler,
        collate_fn=_records,
        num_workers=trainer.args.dataloader_num_workers,
    )


def _records(records: list[Any]) -> dict[str, list[Any]]:
    return {"records": records}


def _collator(trainer: Any) -> Any:
    """Return the trainer's collator, which leaves out columns that the model does not take."""
    return trainer._get_collator_with_removed_columns(trainer.data_collator)


def _sampler_of(args: Any, records: int, dataset_size: int | None) -> Sampler:
    """Return the Poisson sampler for the batch size and the epochs in the arguments."""
    size = records if dataset_size is None else dataset_size
    batch = min(args.per_device_train_batch_size, size)
    steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * size / batch)
    return Poisson(size, steps, sampling_probability=batch / size, records=records)


def _check(trainer: Any) -> None:
    """Refuse a training that would differ from what is charged.

    Raises:
        ValueError: the training would differ from what is charged; the text says what to do.
    """
    module: Any = import_module("transformers")
    args = trainer.args
    if not isinstance(trainer, module.Trainer):
        raise ValueError(f"the trainer must be a transformers.Trainer, not a {type(trainer).__name__}")
    for name in _REPLACED:
        if name in vars(trainer):
            raise ValueError(f"this trainer is guarded already, or something else stands in place of its {name}")
        if getattr(type(trainer), name) is not getattr(module.Trainer, name):
            raise ValueError(
                f"{type(trainer).__name__} has a {name} of its own, which the private step would replace: give a "
                "Trainer that has none; a compute_loss of its own is fine, and sees one record at a time"
            )
    if not hasattr(trainer.train_dataset, "__len__"):
        raise ValueError("the train_dataset has no length: records cannot be sampled from a stream")
    refused = {
        "gradient_accumulation_steps": (args.gradient_accumulation_steps != 1, "a step is one noisy sum: set it to 1"),
        "fp16": (args.fp16, "scaled gradients are not clipped as they are charged: use bf16, or neither"),
        "auto_find_batch_size": (args.auto_find_batch_size, "a training that begins anew pays again: set it to False"),
        "include_num_input_tokens_seen": (
            str(args.include_num_input_tokens_seen) not in ("no", "False"),
            "it counts the tokens of private records in the logs: leave it out",
        ),
        "world_size": (args.world_size > 1 or args.n_gpu > 1, "the noise is drawn in one process, on one device"),
        "deepspeed, fsdp": (bool(args.deepspeed or args.fsdp), "gradients that are cut up cannot be clipped here"),
    }
    for name, (is_set, why) in refused.items():
        if is_set:
            raise ValueError(f"TrainingArguments.{name} is not guarded: {why}")
    norms: Any = import_module("torch.nn.modules.batchnorm")
    for name, part in trainer.model.named_modules():
        if isinstance(part, norms._NormBase) and part.track_running_stats:
            raise ValueError(
                f"{name} ({type(part).__name__}) keeps averages of the records, which no noise covers: use GroupNorm "
                "or LayerNorm"
            )
