"""Budgets are found by their names, wherever a call takes an id; what is unclear is refused before anything is sent."""

from __future__ import annotations

import secrets

import pytest
from epsilond_client import Budget, Client, NotFound
from epsilond_client.events import gaussian

RHO = {"kind": "zcdp", "rho": 1.0}


@pytest.fixture
def named(client: Client) -> Budget:
    return client.budgets.create(f"ward {secrets.token_hex(4)}", neighboring_relation="add_or_remove_one", filter=RHO)


def test_a_name_stands_wherever_an_id_does(client: Client, named: Budget) -> None:
    name = named.name
    assert client.budgets.get(name) == named
    held = client.reservations.create(name, [gaussian(50.0)], purpose="p")
    assert held.budget_id == named.id
    assert [found.id for found in client.reservations.list(name)] == [held.id]
    assert client.reservations.quote(name, [gaussian(50.0)])["budget_id"] == named.id
    assert list(client.budgets.spending(name)) == []
    assert [entry.budget_id for entry in client.budgets.entries(name)] == [named.id] * 2
    child = client.budgets.create("below", neighboring_relation="add_or_remove_one", filter=RHO, parent_id=name)
    assert [found.id for found in client.budgets.list(parent=name)] == [child.id]
    plan = client.calibrate(
        algorithm="dp_sgd",
        dataset_size=1000,
        batch_size=50,
        iterations=20,
        sampling="poisson",
        gradient_bound={"kind": "clip", "max_grad_norm": 1.0},
        target={"kind": "budget", "budget_id": name},
    )
    assert plan.solution.noise_multiplier > 0
    with client.guard(name, noise_multiplier=50.0, sampling={"kind": "full_batch"}, steps=2) as guard:
        guard.take()
    assert client.reservations.get(guard.id).budget_id == named.id


def test_a_name_that_nobody_has_is_refused_with_the_closest_ones(client: Client, named: Budget) -> None:
    with pytest.raises(ValueError, match=f"this key reaches no budget .* did you mean {named.name!r}"):
        client.budgets.get(f"{named.name}x")
    with pytest.raises(ValueError, match=r"client\.budgets\.list\(\) lists all that this key reaches"):
        client.reservations.create("\N{SNOWMAN}" * 30, [gaussian(1.0)], purpose="p")
    with pytest.raises(NotFound):
        client.budgets.get("bud_doesnotexist")


def test_a_name_of_several_budgets_is_refused_with_their_ids(client: Client, named: Budget) -> None:
    child = client.budgets.create(named.name, neighboring_relation="add_or_remove_one", filter=RHO, parent_id=named.id)
    with pytest.raises(ValueError, match="2 budgets that this key reaches have the name") as refused:
        client.guard(named.name, noise_multiplier=9.0, sampling={"kind": "full_batch"}, steps=1).__enter__()
    assert f"{named.id} (a root)" in str(refused.value)
    assert f"{child.id} (below {named.id})" in str(refused.value)
    assert list(client.reservations.list(named.id)) == []


def test_a_data_set_is_named_as_a_budget_is(client: Client) -> None:
    name = f"rows {secrets.token_hex(4)}"
    made = client.datasets.generate(name=name, features=2, rows=20, seed=1)
    assert client.datasets.get(name) == client.datasets.get(made.id) == client.datasets.get(made)
    assert [each.version for each in client.datasets.versions(name)] == [1]
    with pytest.raises(ValueError, match=f"this key reaches no data set .* did you mean {name!r}"):
        client.datasets.get(f"{name}x")
    twin = client.datasets.generate(name=name, features=2, rows=20, seed=2)
    with pytest.raises(ValueError, match="2 data sets that this key reaches have the name") as refused:
        client.runs.create(model={"kind": "linear_regression"}, target={"kind": "zcdp", "rho": 1}, dataset_id=name)
    assert all(each.id in str(refused.value) for each in (made, twin))
