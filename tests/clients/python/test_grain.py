"""Batches of a sampler as a data source, without Grain, which is in the adapters' own tests."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
from epsilond_client.adapters.grain import Batches, stacked
from epsilond_client.samplers import Poisson, RandomAllocation

Pair = namedtuple("Pair", ["x", "names"])
RECORDS = [Pair({"a": np.full(3, index), "b": (index, np.float32(index))}, f"record {index}") for index in range(40)]


def test_each_element_is_the_batch_of_a_step_that_is_left() -> None:
    sampler = RandomAllocation(40, 8, num_bins=4)
    rest = iter(sampler)
    next(rest)
    source = Batches(RECORDS, sampler)
    assert len(source) == 7
    for index in (6, 0, 3):
        batch = source[index]
        drawn = sampler.batch(1 + index).tolist()
        assert type(batch) is Pair
        assert batch.x["a"][:, 2].tolist() == batch.x["b"][0].tolist() == drawn
        assert batch.names.tolist() == [f"record {place}" for place in drawn]


def test_an_empty_batch_has_the_shapes_of_one_record_and_holds_none() -> None:
    batch = Batches(RECORDS, Poisson(40, 1, sampling_probability=1e-9))[0]
    assert (batch.x["a"].shape, batch.x["b"][1].shape, batch.names.shape) == ((0, 3), (0,), (0,))
    assert batch.x["a"].base is None, "no view of a record"
    assert Batches(range(40), Poisson(40, 1, sampling_probability=1e-9), list)[0] == []


def test_a_collate_of_ones_own() -> None:
    sampler = Poisson(40, 2, sampling_probability=0.5)
    assert Batches(range(40), sampler, tuple)[1] == tuple(sampler.batch(1).tolist())
    assert stacked([1, 2]).tolist() == [1, 2]


def test_steps_are_handed_out_once() -> None:
    source = Batches(range(40), Poisson(40, 2, sampling_probability=0.5))
    source.hand_out()
    with pytest.raises(ValueError, match="handed out before"):
        source.hand_out()
    with pytest.raises(ValueError, match="draws from 40 records, but there are 3"):
        Batches([1, 2, 3], Poisson(40, 2, sampling_probability=0.5))
