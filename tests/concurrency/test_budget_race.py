"""Many connections in several processes race for one budget: exactly what fits is admitted, and nothing in the
application holds a lock. The same race with a read-check-write in place of the ledger overspends, so the race is one.
"""

from __future__ import annotations

from typing import Any

import pytest

from accounting.events import Event, Gaussian, Laplace, Poisson, PureDp
from app.budgets import service
from app.budgets.schemas import BudgetRequest
from app.context import Context
from tests.concurrency.spending import (
    Attempt,
    Events,
    Race,
    Spend,
    assert_exactly_what_fits,
    fill,
    limits_of,
    make_naive_table,
    read_check_write,
    run_race,
    spend_alone,
    spend_either_way,
    spend_in_groups,
    units,
)

PROCESSES = 4
CONNECTIONS = 8
#: In hundredths of rho. Each connection's attempts cost 3.5 on average: about a third of them fit.
LIMIT = 200
ATTEMPTS = 6
COSTS = [units(count) for count in range(1, 7)]

#: What fills different orders of a Rényi budget: flat in the order, growing with it, and in between.
MECHANISMS: list[Events] = [
    (Event(PureDp(0.2)),),
    (Event(Gaussian(8.0), count=2),),
    (Event(Laplace(5.0), count=3),),
    (Event(Gaussian(2.0), Poisson(0.01), count=10),),
    (Event(Gaussian(20.0), count=4), Event(Laplace(3.0))),
]


def open_budget(context: Context, budget_filter: dict[str, Any]) -> str:
    request = BudgetRequest.model_validate(
        {"name": "race", "neighboring_relation": "add_or_remove_one", "filter": budget_filter}
    )
    with context.database.write() as session:
        return service.create_budget(session, context, request, "loopback").id


def race_for_a_zcdp_budget(context: Context, spend: Spend, seed: int = 0) -> list[Attempt]:
    budget_id = open_budget(context, {"kind": "zcdp", "rho": LIMIT / 100})
    return fill(context, Race(spend, [budget_id], COSTS, CONNECTIONS, ATTEMPTS, seed), PROCESSES)


def race_for_a_renyi_budget(context: Context, seed: int = 0) -> list[Attempt]:
    budget_id = open_budget(context, {"kind": "renyi_dp", "epsilon": 4, "delta": 1e-5})
    return fill(context, Race(spend_either_way, [budget_id], MECHANISMS, CONNECTIONS, ATTEMPTS, seed), PROCESSES)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("spend", [spend_alone, spend_in_groups, spend_either_way])
def test_exactly_what_fits_is_admitted(context: Context, spend: Spend) -> None:
    race_for_a_zcdp_budget(context, spend)


@pytest.mark.thorough
def test_the_caps_of_a_renyi_budget_hold_and_what_fits_some_order_is_admitted(context: Context) -> None:
    race_for_a_renyi_budget(context)


@pytest.mark.thorough
def test_the_caps_of_an_approximate_gaussian_budget_hold_and_what_is_within_either_is_admitted(
    context: Context,
) -> None:
    budget_id = open_budget(context, {"epsilon": 1, "delta": 1e-5})
    # Two that have a pure price beside the Gaussian one, and two that have none.
    events: list[Events] = [
        (Event(PureDp(0.1)),),
        (Event(PureDp(0.02), count=4),),
        (Event(Gaussian(12.0), count=2),),
        (Event(Gaussian(4.0), Poisson(0.02), count=100),),
    ]
    fill(context, Race(spend_either_way, [budget_id], events, CONNECTIONS, ATTEMPTS, 0), PROCESSES)


@pytest.mark.thorough
def test_the_control_that_reads_checks_and_writes_overspends(context: Context) -> None:
    budget_id = open_budget(context, {"kind": "zcdp", "rho": LIMIT / 100})
    with context.database.write() as session:
        make_naive_table(session)
        limits = limits_of(session, [budget_id])
    race = Race(read_check_write, [budget_id], COSTS, CONNECTIONS, 3 * ATTEMPTS)
    attempts = run_race(context, race, PROCESSES)
    with pytest.raises(AssertionError, match="is overspent"):
        assert_exactly_what_fits(limits, attempts)
