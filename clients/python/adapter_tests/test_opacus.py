"""The adapter with the real Opacus: what is read, what is refused, and that a guarded loop takes no unreserved step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import BATCH, NOISE, RECORDS, MakeTraining, Training
from opacus.optimizers import AdaClipDPOptimizer
from opacus.schedulers import StepNoise
from opacus.utils.batch_memory_manager import BatchMemoryManager

from epsilond_client import Budget, BudgetExceeded, Client, StepsExhausted
from epsilond_client.adapters import dp_event, opacus
from epsilond_client.adapters.opacus import guard, import_engine, source_of

PER_EPOCH = RECORDS // BATCH


@pytest.fixture
def budget(client: Client) -> Budget:
    return client.budgets.create(
        "opacus", neighboring_relation="add_or_remove_one", filter={"kind": "renyi_dp", "epsilon": 3, "delta": 1e-5}
    )


def charged(client: Client, budget: Budget) -> list[dict[str, Any]]:
    [found] = client.reservations.list(budget)
    assert found.state == "committed", found
    return [dict(event) for event in found["charged_events"]]


@pytest.mark.parametrize("accountant", ["rdp", "prv", "gdp"])
def test_what_an_engine_did_is_read(client: Client, make_training: MakeTraining, accountant: str) -> None:
    training = make_training(accountant)
    for _ in range(4):
        training.epoch()
    answer = import_engine(client, training.engine, training.loader, delta=1e-5)
    assert [(event["count"], event["sampling"]) for event in answer["events"]] == [
        (4 * PER_EPOCH, {"kind": "poisson", "sampling_probability": BATCH / RECORDS})
    ]
    theirs = training.engine.get_epsilon(1e-5)
    if accountant == "gdp":
        assert theirs < answer.epsilon.lower, "a limit theorem is no bound"
    else:
        assert answer.epsilon.upper <= theirs + 1e-9
    if accountant != "prv":
        assert answer.reported.epsilon == pytest.approx(theirs)


def test_the_accountant_alone_needs_a_word_about_the_batches(make_training: MakeTraining) -> None:
    training = make_training()
    training.epoch()
    with pytest.raises(ValueError, match="does not say how batches were drawn"):
        source_of(training.engine)
    assert source_of(training.engine.accountant, batches="poisson") == source_of(training.engine, training.loader)


def test_shuffled_batches_are_never_taken_for_poisson_samples(client: Client, make_training: MakeTraining) -> None:
    training = make_training(poisson_sampling=False)
    training.epoch()
    with pytest.raises(ValueError, match="not Poisson samples"):
        source_of(training.engine, training.loader)
    with pytest.raises(ValueError, match="not Poisson samples"):
        source_of(training.engine, training.loader, batches="poisson")
    answer = import_engine(
        client, training.engine, training.loader, delta=1e-5, batches="shuffled", neighboring_relation="replace_special"
    )
    assert answer.epsilon.lower > training.engine.get_epsilon(1e-5), "what Opacus reports is too little"
    with pytest.raises(ValueError, match="leave batches out"):
        source_of(training.engine, make_training().loader, batches="shuffled")


def test_a_loop_is_guarded_and_charged_what_opacus_recorded(
    client: Client, budget: Budget, make_training: MakeTraining
) -> None:
    training = make_training()
    with guard(client, budget, optimizer=training.optimizer, data_loader=training.loader, epochs=2) as held:
        assert client.reservations.get(held.id).state == "pending"
        assert held.steps_reserved == 2 * PER_EPOCH
        for _ in range(2):
            training.epoch()
    assert charged(client, budget) == [
        {
            "mechanism": {"kind": "gaussian", "noise_multiplier": NOISE},
            "sampling": {"kind": "poisson", "sampling_probability": BATCH / RECORDS},
            "count": 2 * PER_EPOCH,
        }
    ]
    assert training.history == [(NOISE, BATCH / RECORDS, 2 * PER_EPOCH)]
    assert "add_noise" not in vars(training.optimizer), "the optimizer is as it was"


def test_the_step_beyond_draws_no_noise_and_moves_nothing(
    client: Client, budget: Budget, make_training: MakeTraining
) -> None:
    training = make_training()
    batch = next(iter(training.loader))
    with guard(client, budget, optimizer=training.optimizer, data_loader=training.loader, steps=3):
        for _ in range(3):
            training.step(batch)
        before, generator = training.parameters(), torch.get_rng_state()
        with pytest.raises(StepsExhausted):
            training.step(batch)
        assert all(map(torch.equal, before, training.parameters()))
        assert torch.equal(generator, torch.get_rng_state()), "no random number was drawn"
    assert training.history == [(NOISE, BATCH / RECORDS, 3)]
    assert charged(client, budget)[0]["count"] == 3


def test_what_does_not_fit_begins_no_training(client: Client, budget: Budget, make_training: MakeTraining) -> None:
    training = make_training()
    held = guard(client, budget, optimizer=training.optimizer, data_loader=training.loader, epochs=10_000)
    with pytest.raises(BudgetExceeded), held:
        raise AssertionError("the block has run")
    assert "add_noise" not in vars(training.optimizer)


def fail_after_an_epoch(training: Training) -> None:
    training.epoch()
    raise ZeroDivisionError


def test_a_loop_that_fails_is_charged_for_the_steps_that_began(
    client: Client, budget: Budget, make_training: MakeTraining
) -> None:
    training = make_training()
    held = guard(client, budget, optimizer=training.optimizer, data_loader=training.loader, epochs=2)
    with pytest.raises(ZeroDivisionError), held:
        fail_after_an_epoch(training)
    assert charged(client, budget)[0]["count"] == PER_EPOCH


def test_virtual_steps_of_the_memory_manager_are_none(
    client: Client, budget: Budget, make_training: MakeTraining
) -> None:
    training = make_training()
    with (
        guard(client, budget, optimizer=training.optimizer, data_loader=training.loader, epochs=1) as held,
        BatchMemoryManager(
            data_loader=training.loader, max_physical_batch_size=4, optimizer=training.optimizer
        ) as physical,
    ):
        batches = 0
        for batch in physical:
            training.step(batch)
            batches += 1
    assert batches > held.steps_taken == PER_EPOCH == training.history[0][2]


def test_the_loader_of_the_memory_manager_is_not_taken_for_the_sampler(
    client: Client, budget: Budget, make_training: MakeTraining
) -> None:
    training = make_training()
    with (
        BatchMemoryManager(
            data_loader=training.loader, max_physical_batch_size=4, optimizer=training.optimizer
        ) as physical,
        pytest.raises(ValueError, match="BatchSplittingSampler"),
        guard(client, budget, optimizer=training.optimizer, data_loader=physical, epochs=1),
    ):
        raise AssertionError("the block has run")


def refused(client: Client, budget: Budget, training: Any, match: str, **change: Any) -> None:
    options = {"optimizer": training.optimizer, "data_loader": training.loader, "epochs": 1} | change
    with pytest.raises(ValueError, match=match), guard(client, budget, **options):
        raise AssertionError("the block has run")
    assert list(client.reservations.list(budget)) == []


def test_what_cannot_be_charged_as_it_is_is_refused(
    client: Client, budget: Budget, make_training: MakeTraining
) -> None:
    refused(client, budget, make_training(poisson_sampling=False), "not Poisson samples")
    plain = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
    refused(client, budget, make_training(), "SGD is not guarded", optimizer=plain)
    adaptive = make_training(
        noise=0.5,
        clipping="adaptive",
        target_unclipped_quantile=0.5,
        clipbound_learning_rate=0.1,
        max_clipbound=10.0,
        min_clipbound=0.1,
        unclipped_num_std=1.0,
    )
    assert type(adaptive.optimizer) is AdaClipDPOptimizer
    refused(client, budget, adaptive, "AdaClipDPOptimizer is not guarded")
    refused(client, budget, make_training(grad_sample_mode="ghost"), "FastGradientClipping is not guarded")
    refused(client, budget, make_training(), "the number of epochs", steps=3)


def test_per_layer_clipping_is_guarded(client: Client, budget: Budget, make_training: MakeTraining) -> None:
    training = make_training(clipping="per_layer", max_grad_norm=[1.0, 1.0])
    with guard(client, budget, optimizer=training.optimizer, data_loader=training.loader, epochs=1):
        training.epoch()
    assert charged(client, budget)[0]["count"] == PER_EPOCH


def test_accumulated_batches_are_refused_before_their_noise(
    client: Client, budget: Budget, make_training: MakeTraining
) -> None:
    """A record may be in each of the accumulated batches, so the step would cost more than one Poisson sample."""
    training = make_training()
    training.model.allow_grad_accumulation()  # Opacus forbids this for Poisson samples unless it is allowed
    batch = next(iter(training.loader))
    torch.nn.functional.cross_entropy(training.model(batch[0]), batch[1]).backward()
    held = guard(client, budget, optimizer=training.optimizer, data_loader=training.loader, steps=3)
    with pytest.raises(ValueError, match="release 2 batches at once"), held:
        training.step(batch, zero_grad=False)
    assert training.history == []
    assert [found.state for found in client.reservations.list(budget)] == ["voided"], "nothing was drawn"


def test_less_noise_than_reserved_is_refused_before_it_is_drawn(
    client: Client, budget: Budget, make_training: MakeTraining
) -> None:
    training = make_training()
    schedule = StepNoise(training.optimizer, step_size=1, gamma=0.5)
    batch = next(iter(training.loader))
    with guard(client, budget, optimizer=training.optimizer, data_loader=training.loader, steps=3):
        training.step(batch)
        schedule.step()
        with pytest.raises(ValueError, match=r"below the 4\.0 that is reserved"):
            training.step(batch)
    assert training.history == [(NOISE, BATCH / RECORDS, 1)]
    assert charged(client, budget)[0]["count"] == 1


def test_an_optimizer_has_one_guard(client: Client, budget: Budget, make_training: MakeTraining) -> None:
    training = make_training()
    options = {"optimizer": training.optimizer, "data_loader": training.loader, "epochs": 1}
    with guard(client, budget, **options) as held:
        with pytest.raises(ValueError, match="guarded already"), guard(client, budget, **options):
            raise AssertionError("the block has run")
        held.void()
    assert len(list(client.reservations.list(budget))) == 1


def test_a_dp_event_of_the_same_steps_costs_the_same(client: Client, make_training: MakeTraining) -> None:
    import dp_accounting as dp

    training = make_training()
    training.epoch()
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(BATCH / RECORDS, dp.GaussianDpEvent(NOISE)), PER_EPOCH)
    ours = import_engine(client, training.engine, training.loader, delta=1e-5)
    assert dp_event.import_event(client, event, delta=1e-5).epsilon == ours.epsilon
    assert opacus.is_poisson(training.loader)
