"""Loaders of the real PyTorch: they yield what a sampler draws, even empty batches, and other loaders are refused."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch
from conftest import BATCH, NOISE, RECORDS, MakeTraining
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch.utils.data import DataLoader, TensorDataset

from epsilond_client import Budget, Client
from epsilond_client.adapters import opacus, pytorch
from epsilond_client.samplers import Poisson, RandomAllocation

BINS = RECORDS // BATCH
DATA = TensorDataset(torch.arange(RECORDS, dtype=torch.float32)[:, None].repeat(1, 5), torch.arange(RECORDS) % 2)


@pytest.fixture
def budget(client: Client) -> Budget:
    return client.budgets.create(
        "pytorch", neighboring_relation="add_or_remove_one", filter={"kind": "renyi_dp", "epsilon": 8, "delta": 1e-5}
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_hands_out_what_the_sampler_draws(workers: int) -> None:
    sampler = RandomAllocation(RECORDS, 2 * BINS, num_bins=BINS)
    expected = [sampler.batch(step).tolist() for step in range(2 * BINS)]
    loader = pytorch.data_loader(DATA, sampler, num_workers=workers)
    assert len(loader) == 2 * BINS
    batches = [features[:, 0].int().tolist() for features, _ in loader]
    assert batches == expected
    assert sorted(index for batch in batches[:BINS] for index in batch) == list(range(RECORDS)), (
        "every record once in an epoch"
    )
    if not workers:  # with workers, PyTorch's own unfinished iterator complains, too
        with pytest.raises(ValueError, match="one loop over the sampler is the whole training"):
            next(iter(loader))


def test_empty_batches_arrive_with_the_shapes_of_others() -> None:
    rare = Poisson(RECORDS, 3, sampling_probability=1e-9)
    for features, labels in pytorch.data_loader(DATA, rare):
        assert (tuple(features.shape), features.dtype) == ((0, 5), torch.float32)
        assert (tuple(labels.shape), labels.dtype) == ((0,), torch.int64)

    Pair = namedtuple("Pair", ["x", "names"])
    records = [Pair({"a": torch.ones(2), "b": [torch.ones(3), torch.ones(())]}, "name")] * 4
    [batch] = pytorch.data_loader(records, Poisson(4, 1, sampling_probability=1e-9))
    assert type(batch) is Pair
    assert (batch.x["a"].shape, batch.x["b"][0].shape, batch.x["b"][1].shape) == ((0, 2), (0, 3), (0,))
    assert list(batch.names) == []


def test_a_template_of_empty_batches_keeps_no_record() -> None:
    sampler = Poisson(RECORDS, 1, sampling_probability=1e-9)
    [(features, _)] = pytorch.data_loader(DATA, sampler)
    assert features.untyped_storage().nbytes() == 0


@pytest.mark.parametrize("option", [{"batch_size": 3}, {"shuffle": True}, {"drop_last": True}, {"batch_sampler": None}])
def test_options_that_would_draw_otherwise_are_refused(option: dict[str, Any]) -> None:
    sampler = Poisson(RECORDS, 1, sampling_probability=0.5)
    with pytest.raises(ValueError, match=f"leave {next(iter(option))} out"):
        pytorch.data_loader(DATA, sampler, **option)
    with pytest.raises(ValueError, match=f"draws from 7 records, but the dataset has {RECORDS}"):
        pytorch.data_loader(DATA, Poisson(7, 1, sampling_probability=0.5))


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(DATA, batch_size=BATCH, shuffle=True),
        DataLoader(DATA, batch_size=BATCH),
        DataLoader(DATA, batch_size=None),
    ],
    ids=["shuffled", "in order", "no batches"],
)
def test_a_loop_over_a_loader_that_shuffles_is_refused(client: Client, budget: Budget, loader: Any) -> None:
    for sampling in (
        {"kind": "poisson", "sampling_probability": 0.2},
        RandomAllocation(RECORDS, 5, num_bins=5).sampling,
    ):
        held = client.guard(budget, noise_multiplier=NOISE, sampling=sampling, steps=5)
        with pytest.raises(ValueError, match=r"shuffled_epochs.*steps_per_epoch"), held:
            list(held.steps(loader))
    assert {found.state for found in client.reservations.list(budget)} == {"voided"}


def test_a_loop_over_a_sampler_is_charged_as_it_draws(client: Client, budget: Budget) -> None:
    sampler = RandomAllocation(RECORDS, 2 * BINS, num_bins=BINS)
    loader = pytorch.data_loader(DATA, sampler)
    with client.guard(budget, noise_multiplier=NOISE, sampler=sampler) as guard:
        for _, _batch in zip(range(BINS), guard.steps(loader), strict=False):
            pass
    [event] = client.reservations.get(guard.id).charged_events
    assert (event["sampling"], event["count"]) == (sampler.sampling, BINS)
    # The rest is charged to another reservation, and continues where the first one ended.
    rest = RandomAllocation(RECORDS, 2 * BINS, num_bins=BINS)
    rest.load_state_dict(sampler.state_dict(steps_taken=guard.steps_taken))
    with client.guard(budget, noise_multiplier=NOISE, sampler=rest) as guard:
        assert guard.steps_reserved == BINS
        assert sum(len(labels) for _, labels in guard.steps(pytorch.data_loader(DATA, rest))) == RECORDS


def test_a_loader_of_opacus_is_known(client: Client, budget: Budget, make_training: MakeTraining) -> None:
    training = make_training()
    with client.guard(budget, noise_multiplier=NOISE, sampling_probability=BATCH / RECORDS, steps=BINS) as guard:
        assert len(list(guard.steps(training.loader))) == BINS
    held = client.guard(budget, noise_multiplier=NOISE, sampling_probability=0.1, steps=BINS)
    with pytest.raises(ValueError, match="the reservation is for"), held:
        list(held.steps(training.loader))


@pytest.mark.parametrize(
    "sampler",
    [
        RandomAllocation(RECORDS, 10, num_bins=BINS),
        Poisson(RECORDS, 10, sampling_probability=0.01),
    ],
    ids=lambda sampler: sampler.kind,
)
def test_opacus_trains_on_a_sampler_of_ours_and_is_charged_as_it_draws(
    client: Client, budget: Budget, sampler: Any
) -> None:
    torch.manual_seed(7)
    model = GradSampleModule(torch.nn.Linear(5, 2), loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
        expected_batch_size=sampler.divisor,
        loss_reduction="sum",
    )
    loader = pytorch.data_loader(DATA, sampler)
    with opacus.guard(client, budget, optimizer=optimizer, data_loader=loader) as held:
        for features, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(features / RECORDS), labels, reduction="sum").backward()
            optimizer.step()
    assert held.steps_taken == 10
    [event] = client.reservations.get(held.id).charged_events
    assert (event["sampling"], event["count"]) == (sampler.sampling, 10)
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    with (
        pytest.raises(ValueError, match="leave epochs out"),
        opacus.guard(client, budget, optimizer=optimizer, data_loader=loader, epochs=1),
    ):
        raise AssertionError("the block has run")
