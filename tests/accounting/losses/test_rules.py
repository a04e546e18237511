"""Every mechanism and sampling of the vocabulary is accounted, and what nobody registered is refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest

from accounting.composition.composition import compose
from accounting.described import Real, Reals, Whole, Word
from accounting.errors import AccountingError
from accounting.events import (
    MECHANISMS,
    SAMPLINGS,
    ApproximateDp,
    DisjointBatches,
    Event,
    Gaussian,
    Mechanism,
    PureDp,
    Sampling,
    WithReplacement,
)
from accounting.events.mechanism import mechanism
from accounting.losses.rules import loss_of, rules_of
from accounting.relations import NeighboringRelation
from tests.accounting.filters.costs.cells import ONE_OF_EACH

SAMPLES = {
    "full_batch": {},
    "poisson": {"sampling_probability": 0.1},
    "without_replacement": {"batch_size": 5, "dataset_size": 50},
    "with_replacement": {"batch_size": 5, "dataset_size": 50},
    "truncated_poisson": {"sampling_probability": 0.1, "max_batch_size": 40, "dataset_size": 50},
    "shuffled_epochs": {"steps_per_epoch": 4},
    "disjoint_batches": {"assignment": "independent"},
    "blocks": {"num_bins": 4, "participations": 2},
    "random_allocation": {"num_bins": 4, "participations": 1},
    "cyclic_poisson": {"sampling_probability": 0.1, "cycle_length": 4, "assignment": "independent"},
    "fixed_order_epochs": {"steps_per_epoch": 4},
}


def one_of(cls: type[Mechanism]) -> Mechanism:
    """A mechanism of the kind: as other tests have it, or with a number from the middle of each range."""
    if cls.kind in ONE_OF_EACH:
        return ONE_OF_EACH[cls.kind].mechanism
    values: dict[str, object] = {}
    for name, within in cls.ranges.items():
        match within:
            case Real():
                values[name] = _middle(within)
            case Whole():
                values[name] = within.lower + min(2, within.upper - within.lower)
            case Word():
                values[name] = next(iter(within.meanings))
            case Reals():
                values[name] = (_middle(within.each),)
    return cls(**values)


def _middle(within: Real) -> float:
    return 0.5 * (within.lower + min(within.upper, abs(within.lower) + 4.0))


def test_every_pair_of_the_vocabulary_has_a_loss() -> None:
    """Under every relation that both sides name, each mechanism composes with each sampling that it names."""
    assert {*SAMPLES, "shuffle_model"} == {*SAMPLINGS}
    for cls in MECHANISMS.values():
        noise = one_of(cls)
        for each in cls.samplings:
            values = SAMPLES.get(each.kind)
            if values is None:
                assert isinstance(noise, PureDp | ApproximateDp)
                values = {"num_users": 9, "local_epsilon": noise.epsilon, "local_delta": getattr(noise, "delta", 0.0)}
            sampling = each(**values)
            possible = {*sampling.relations} & {*cls.relations}
            if isinstance(sampling, DisjointBatches) and not cls.parts_cost_less:
                possible -= {NeighboringRelation.REPLACE_ONE}
            for relation in possible:
                composition = compose([Event(noise, sampling, 3)], relation)
                assert composition.count >= 1 or composition.gaussian_only is not None


def test_every_cost_that_a_mechanism_names_exists() -> None:
    for kind, cls in MECHANISMS.items():
        rules = rules_of(one_of(cls))
        assert not (rules.linear_in_order and "renyi_dp" not in cls.filters), kind
        assert not (rules.sums_epsilons and "approximate_dp" not in cls.filters), kind


def test_a_mechanism_without_rules_is_named() -> None:
    @dataclass(frozen=True)
    class Unknown(Mechanism):
        kind: ClassVar[str] = "unknown"
        filters = ()

    with pytest.raises(LookupError, match="unknown has no rules"):
        loss_of(Event(Unknown()), NeighboringRelation.REPLACE_ONE)


def test_a_pair_without_a_loss_is_named() -> None:
    @dataclass(frozen=True)
    class Drawn(Sampling):
        kind: ClassVar[str] = "drawn"
        is_amplified = True

    class Wide(Gaussian):
        samplings = (Drawn,)

    with pytest.raises(LookupError, match="gaussian steps with drawn batches have no privacy-loss rule"):
        loss_of(Event(Wide(1.0), Drawn()), NeighboringRelation.REPLACE_ONE)


def test_a_kind_is_given_once() -> None:
    with pytest.raises(ValueError, match="Gaussian has the kind 'gaussian'"):
        mechanism(Gaussian)


def test_refusals_come_before_the_loss() -> None:
    with pytest.raises(AccountingError, match="with_replacement is not accounted under add_or_remove_one"):
        loss_of(Event(Gaussian(1.0), WithReplacement(5, 50)), NeighboringRelation.ADD_OR_REMOVE_ONE)


def test_the_vocabulary_stands_alone() -> None:
    """Nothing of accounting is loaded with it but what it is made of, and no numerics."""
    code = "import accounting.events, sys, json; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)
    assert "numpy" not in loaded
    assert {name for name in loaded if name.startswith("accounting.") and "events" not in name} == {
        "accounting.canonical",
        "accounting.described",
        "accounting.errors",
        "accounting.numbers",
        "accounting.relations",
    }
