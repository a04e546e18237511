"""The adapter with the real JAX Privacy: its strategies, its clipping, and an optimizer of optax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
import optax
import pytest
from jax_privacy import batch_selection
from jax_privacy.experimental import execution_plan

from epsilond_client import Budget, Client, StepsExhausted
from epsilond_client.adapters import dp_event
from epsilond_client.adapters.jax_privacy import Batches, guard, sampling_of

RECORDS, STEPS = 100, 12
X = np.linspace(-1.0, 1.0, RECORDS * 2, dtype=np.float32).reshape(RECORDS, 2)


def loss(weights: Any, rows: Any) -> Any:
    return jnp.mean((rows @ weights - 1.0) ** 2)


GRADS = jax_privacy.clipped_grad(loss, l2_clip_norm=0.5)
POISSON = batch_selection.CyclicPoissonSampling(sampling_prob=0.2, iterations=STEPS)


@pytest.fixture
def budget(client: Client) -> Budget:
    return client.budgets.create(
        "jax", neighboring_relation="replace_special", filter={"kind": "renyi_dp", "epsilon": 8, "delta": 1e-5}
    )


def test_a_loop_is_charged_as_its_strategy_draws(client: Client, budget: Budget) -> None:
    batches, optimizer = Batches(POISSON, RECORDS), optax.adam(0.1)
    weights = jnp.zeros(2)
    state, sizes = optimizer.init(weights), []
    with guard(client, budget, batches, GRADS, stddev=2.0) as held:
        for indices in held.steps(batches):
            sizes.append(len(indices))
            total = GRADS(weights, X[indices])
            assert float(jnp.linalg.norm(total)) <= 0.5 * len(indices) * (1 + 1e-6)
            noise = 2.0 * np.random.default_rng().normal(size=2).astype(np.float32)
            updates, state = optimizer.update((total + noise) / 20, state)
            weights = optax.apply_updates(weights, updates)
        with pytest.raises(StepsExhausted):
            held.take()
    assert 100 < sum(sizes) < 400
    [event] = client.reservations.get(held.id)["charged_events"]
    assert event == {
        "mechanism": {"kind": "gaussian", "noise_multiplier": 4.0},
        "sampling": {"kind": "poisson", "sampling_probability": 0.2},
        "count": STEPS,
    }


def test_the_multiplier_is_over_the_bound_that_the_clipping_declares(client: Client, budget: Budget) -> None:
    unit = jax_privacy.clipped_grad(loss, l2_clip_norm=0.5, rescale_to_unit_norm=True, normalize_by=20.0)
    with guard(client, budget, Batches(POISSON, RECORDS), unit, stddev=0.2) as held:
        held.take()
    [event] = client.reservations.get(held.id)["charged_events"]
    assert event["mechanism"]["noise_multiplier"] == pytest.approx(0.2 * 20.0)


@pytest.mark.parametrize(
    ("strategy", "sampling"),
    [
        (POISSON, {"kind": "poisson", "sampling_probability": 0.2}),
        (
            batch_selection.CyclicPoissonSampling(sampling_prob=0.2, iterations=STEPS, truncated_batch_size=30),
            {
                "kind": "truncated_poisson",
                "sampling_probability": 0.2,
                "max_batch_size": 30,
                "dataset_size": RECORDS,
                "truncation": "random",
            },
        ),
        (
            batch_selection.FixedBatchSampling(batch_size=20, iterations=STEPS),
            {"kind": "without_replacement", "batch_size": 20, "dataset_size": RECORDS},
        ),
        (
            batch_selection.FixedBatchSampling(batch_size=20, iterations=STEPS, replace=True),
            {"kind": "with_replacement", "batch_size": 20, "dataset_size": RECORDS},
        ),
        (
            batch_selection.BallsInBinsSampling(iterations=5, cycle_length=5),
            {"kind": "random_allocation", "num_bins": 5, "participations": 1},
        ),
    ],
)
def test_strategies_have_the_account_of_what_they_draw(client: Client, strategy: Any, sampling: dict[str, Any]) -> None:
    assert sampling_of(strategy, RECORDS) == sampling
    event = {
        "mechanism": {"kind": "gaussian", "noise_multiplier": 4.0},
        "sampling": sampling,
        "count": strategy.iterations,
    }
    relation = "replace_one" if "replacement" in sampling["kind"] else "replace_special"
    assert client.account([event], neighboring_relation=relation, delta=1e-5).epsilon.upper > 0
    batches = Batches(strategy, RECORDS)
    drawn = list(batches)
    assert len(drawn) == len(batches) == strategy.iterations
    if sampling["kind"] == "random_allocation":
        assert sorted(np.concatenate(drawn).tolist()) == list(range(RECORDS)), "every record once"
    with pytest.raises(ValueError, match="drawn before"):
        iter(batches)


@pytest.mark.parametrize(
    "strategy",
    [
        batch_selection.CyclicPoissonSampling(sampling_prob=0.2, iterations=STEPS, cycle_length=2),
        batch_selection.BallsInBinsSampling(iterations=10, cycle_length=5),
        batch_selection.BMinSepSampling(sampling_prob=0.2, iterations=STEPS, min_sep=2),
    ],
)
def test_strategies_without_an_account_of_independent_noise_are_refused(strategy: Any) -> None:
    with pytest.raises(ValueError, match="is not guarded, only CyclicPoissonSampling"):
        Batches(strategy, RECORDS)


def test_what_would_not_be_charged_as_it_is_is_refused(client: Client, budget: Budget) -> None:
    batches = Batches(POISSON, RECORDS)
    with pytest.raises(ValueError, match="declares no bound"):
        guard(client, budget, batches, jax.grad(loss), stddev=1.0)
    leaky = jax_privacy.clipped_grad(loss, l2_clip_norm=0.5, return_grad_norms=True)
    with pytest.raises(ValueError, match="norms of single records"):
        guard(client, budget, batches, leaky, stddev=1.0)
    other = Batches(batch_selection.CyclicPoissonSampling(sampling_prob=0.4, iterations=STEPS), RECORDS)
    with guard(client, budget, batches, GRADS, stddev=4.0) as held:
        with pytest.raises(ValueError, match="but the reservation is for"):
            held.steps(other)
        held.void()


def test_the_event_of_an_execution_plan_can_be_reserved(client: Client, budget: Budget) -> None:
    plan = execution_plan.BandMFExecutionPlanConfig(
        iterations=STEPS, strategy=np.ones(1), epsilon=None, delta=None, noise_multiplier=4.0, sampling_prob=0.2
    ).plan
    answer = dp_event.import_event(client, plan.dp_event, delta=1e-5, neighboring_relation="replace_special")
    with client.reserve(budget, answer["events"], purpose="an execution plan"):
        pass
    assert answer.epsilon.upper > 0
