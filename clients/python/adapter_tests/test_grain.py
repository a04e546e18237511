"""Datasets of the real Grain: each step's batch arrives, even an empty one; a dataset that cuts an order into batches
is refused."""

from __future__ import annotations

import warnings
from typing import Any

import grain
import numpy as np
import pytest
from conftest import BATCH, NOISE, RECORDS

from epsilond_client import Budget, Client
from epsilond_client.adapters import grain as adapter
from epsilond_client.samplers import Blocks, Poisson, RandomAllocation, Sampler, TruncatedPoisson

BINS = RECORDS // BATCH
DATA = [{"x": np.full(5, index, dtype=np.float32), "y": index % 2} for index in range(RECORDS)]


@pytest.fixture
def budget(client: Client) -> Budget:
    return client.budgets.create(
        "grain", neighboring_relation="add_or_remove_one", filter={"kind": "renyi_dp", "epsilon": 8, "delta": 1e-5}
    )


def drawn(sampler: Sampler) -> list[list[int]]:
    return [sampler.batch(step).tolist() for step in range(sampler.steps)]


def seen(dataset: Any) -> list[list[int]]:
    return [batch["x"][:, 0].astype(int).tolist() for batch in dataset]


@pytest.mark.parametrize(
    "sampler",
    [
        Poisson(RECORDS, 6, sampling_probability=0.05),
        RandomAllocation(RECORDS, 2 * BINS, num_bins=BINS),
        Blocks(RECORDS, 7, num_bins=7, participations=2),
        TruncatedPoisson(RECORDS, 5, sampling_probability=0.2, max_batch_size=12),
    ],
    ids=lambda sampler: sampler.kind,
)
@pytest.mark.parametrize("records", [DATA, grain.MapDataset.source(DATA)], ids=["list", "dataset"])
def test_a_dataset_hands_out_what_the_sampler_draws(sampler: Sampler, records: Any) -> None:
    dataset = adapter.batches(records, sampler)
    assert len(dataset) == sampler.steps
    assert seen(dataset) == drawn(sampler)
    assert seen(dataset.map(lambda batch: batch).to_iter_dataset()) == drawn(sampler)
    assert [batch["y"].tolist() for batch in dataset] == [[i % 2 for i in batch] for batch in drawn(sampler)]


def test_empty_batches_have_the_shapes_of_others() -> None:
    for batch in adapter.batches(DATA, Poisson(RECORDS, 3, sampling_probability=1e-9)):
        assert (batch["x"].shape, batch["x"].dtype) == ((0, 5), np.float32)
        assert (batch["y"].shape, batch["y"].dtype) == ((0,), np.int64)


def test_a_loop_goes_on_from_grains_state_and_from_the_samplers() -> None:
    sampler = RandomAllocation(RECORDS, 2 * BINS, num_bins=BINS)
    expected = drawn(sampler)
    first = iter(adapter.batches(DATA, sampler).to_iter_dataset())
    before = [next(first) for _ in range(3)]
    assert seen(before) == expected[:3]
    other = RandomAllocation(RECORDS, 2 * BINS, num_bins=BINS)
    other.load_state_dict(sampler.state_dict(steps_taken=0))
    second = iter(adapter.batches(DATA, other).to_iter_dataset())
    second.set_state(first.get_state())
    assert seen(second) == expected[3:]
    other.load_state_dict(sampler.state_dict(steps_taken=3))
    assert seen(adapter.batches(DATA, other)) == expected[3:]


def test_shards_draw_what_one_machine_draws() -> None:
    sampler = Poisson(RECORDS, 4, sampling_probability=0.3)
    parts = [seen(adapter.batches(DATA, sampler.shard(number, 2))) for number in range(2)]
    assert [left + right for left, right in zip(*parts, strict=True)] == drawn(sampler)


def test_a_guarded_loop_is_charged_as_it_draws(client: Client, budget: Budget) -> None:
    sampler = RandomAllocation(RECORDS, BINS, num_bins=BINS)
    dataset = adapter.batches(DATA, sampler)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with client.guard(budget, noise_multiplier=NOISE, sampler=sampler) as guard:
            taken = list(guard.steps(dataset.map(lambda batch: batch).to_iter_dataset()))
    assert seen(taken) == drawn(sampler)
    [event] = client.reservations.get(guard.id).charged_events
    assert (event["sampling"], event["count"]) == (sampler.sampling, BINS)
    with (
        pytest.raises(ValueError, match="handed out before"),
        client.guard(budget, noise_multiplier=NOISE, sampler=sampler) as guard,
    ):
        guard.steps(dataset)


def test_another_scheme_is_refused(client: Client, budget: Budget) -> None:
    dataset = adapter.batches(DATA, Poisson(RECORDS, BINS, sampling_probability=0.2))
    reserved = RandomAllocation(RECORDS, BINS, num_bins=BINS)
    with (
        pytest.raises(ValueError, match=r"drawn as .*poisson.* is reserved .*random_allocation"),
        client.guard(budget, noise_multiplier=NOISE, sampler=reserved) as guard,
    ):
        guard.steps(dataset)


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (lambda dataset: dataset.shuffle(seed=1), "ShuffleMapDataset"),
        (lambda dataset: dataset.repeat(2), "RepeatMapDataset"),
        (lambda dataset: dataset[1:], "SliceMapDataset"),
        (lambda dataset: dataset.filter(lambda batch: len(batch["y"])), "FilterMapDataset"),
        (lambda dataset: dataset.to_iter_dataset().batch(2), "BatchIterDataset"),
    ],
    ids=["shuffled", "repeated", "sliced", "filtered", "batched"],
)
def test_what_moves_or_drops_a_step_is_refused(client: Client, budget: Budget, spoil: Any, name: str) -> None:
    sampler = RandomAllocation(RECORDS, BINS, num_bins=BINS)
    with (
        pytest.raises(ValueError, match=f"{name} of Grain may change which batch a step gets"),
        client.guard(budget, noise_multiplier=NOISE, sampler=sampler) as guard,
    ):
        guard.steps(spoil(adapter.batches(DATA, sampler)))


def loader() -> Any:
    """Return Grain's own loader with its own sampler, which shuffles."""
    shuffled = grain.samplers.IndexSampler(
        RECORDS, shard_options=grain.sharding.NoSharding(), shuffle=True, seed=0, num_epochs=1
    )
    return grain.DataLoader(data_source=DATA, sampler=shuffled, operations=[grain.transforms.Batch(BATCH)])


@pytest.mark.parametrize(
    "make",
    [
        loader,
        lambda: grain.MapDataset.source(DATA).shuffle(seed=0).batch(BATCH),
        lambda: grain.MapDataset.source(DATA).shuffle(seed=0).to_iter_dataset().batch(BATCH),
        lambda: grain.MapDataset.source(DATA).batch(BATCH),
    ],
    ids=["loader", "dataset", "iterated", "in order"],
)
def test_an_order_that_is_cut_is_refused(client: Client, budget: Budget, make: Any) -> None:
    sampling = RandomAllocation(RECORDS, BINS, num_bins=BINS).sampling
    with (
        pytest.raises(ValueError, match="this loader cuts them from an order"),
        client.guard(budget, noise_multiplier=NOISE, sampling=sampling, steps=BINS) as guard,
    ):
        guard.steps(make())


def test_another_number_of_records_is_refused() -> None:
    with pytest.raises(ValueError, match=f"draws from 7 records, but there are {RECORDS}"):
        adapter.batches(DATA, Poisson(7, 1, sampling_probability=0.5))
