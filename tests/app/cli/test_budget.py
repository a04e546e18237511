"""`epsilond budget`, against a server on a socket."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.app.cli.calls import call, done, problem, refused
from tests.app.cli.conftest import Live
from tests.app.cli.test_run import OPTIONS, facts


def opened(live: Live, *options: str) -> dict[str, Any]:
    arguments = ("budget", "create", "survey", "--relation", "add-or-remove-one", *options, "--json")
    budget: dict[str, Any] = json.loads(done(*arguments, env=live.env))
    return budget


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        (("--epsilon", "1.6", "--delta", "1e-5", "--unit", "person"), {"kind": "renyi_dp", "epsilon": 1.6}),
        (("--rho", "0.25"), {"kind": "zcdp", "rho": 0.25}),
        (("--mu", "0.5"), {"kind": "gaussian_dp", "mu": 0.5}),
        (("--epsilon", "2"), {"kind": "pure_dp", "epsilon": 2.0}),
        (
            ("--epsilon", "4", "--delta", "1e-5", "--filter", "approximate-dp"),
            {"kind": "approximate_dp", "epsilon": 4.0, "delta": 1e-5},
        ),
    ],
)
def test_the_amounts_say_which_filter(live: Live, options: tuple[str, ...], limit: dict[str, Any]) -> None:
    budget = opened(live, *options)
    assert limit.items() <= budget["filter"].items()
    assert budget["privacy_unit"] == ("person" if "--unit" in options else "record")


def test_a_budget_is_shown_with_what_a_run_took_from_it(live: Live) -> None:
    parent = opened(live, "--rho", "10")
    budget = opened(live, "--rho", "1", "--parent", parent["id"])
    run = json.loads(done(*OPTIONS, "--budget", budget["id"], "--json", env=live.env))
    held = facts(done("budget", "show", budget["id"], "--delta", "1e-6", env=live.env))
    assert held["reserved"].strip() == f"rho {run['charge']['rho']}"
    live.work()
    shown = facts(done("budget", "show", budget["id"], "--delta", "1e-6", env=live.env))
    assert shown["spent"].strip() == held["reserved"].strip()
    assert re.fullmatch(r" *epsilon 1\.\d{9} to 1\.\d{9} at delta 1e-06", shown["report"])
    header, line = done("budget", "list", "--parent", parent["id"], env=live.env).splitlines()
    assert header.split() == ["id", "name", "relation", "limit", "spent", "reserved", "remaining"]
    assert line.split("  ")[:2] == [budget["id"], "survey"]
    entries = done("budget", "entries", budget["id"], env=live.env).splitlines()
    assert [each.split()[2] for each in entries[1:]] == ["create", "reserve", "start", "commit"]
    (commit,) = done("budget", "entries", budget["id"], "--kind", "commit", env=live.env).splitlines()[1:]
    assert commit.split() == entries[4].split()
    spent = done("budget", "spending", budget["id"], "--by", "purpose", env=live.env).splitlines()
    assert spent[0].split() == ["purpose", "amount", "charges", "cumulative"]
    assert spent[1].startswith(f"dp_sgd run {run['id']}")


def test_a_run_that_does_not_fit_ends_with_status_3(live: Live) -> None:
    budget = opened(live, "--rho", "0.0001")
    line = refused(*OPTIONS, "--budget", budget["id"], status=3, env=live.env)
    assert "budget" in line
    document = problem(*OPTIONS, "--budget", budget["id"], status=3, env=live.env)
    assert document["code"] == "budget_exceeded"
    assert document["remaining"] == {"rho": 0.0001}


def test_what_is_wrong_is_told_of_the_option(live: Live) -> None:
    arguments = ("budget", "create", "survey", "--relation")
    assert "epsilond: --relation: " in refused(*arguments, "other", "--rho", "1", env=live.env)
    assert "epsilond: --rho: " in refused(*arguments, "replace-one", "--rho", "much", env=live.env)
    assert "epsilond: --epsilon: " in refused(*arguments, "replace-one", env=live.env)
    assert "unit" in problem("budget", "create", "--rho", "1", "--unit", "", env=live.env)["errors"][-1]["pointer"]


def test_a_name_cannot_write_on_the_terminal(live: Live) -> None:
    request = {
        "name": "quarter\u202e\u009b2J",
        "neighboring_relation": "replace_one",
        "filter": {"kind": "zcdp", "rho": "1"},
    }
    result = call("budget", "create", "--request", "-", env=live.env, given=json.dumps(request))
    assert "quarter\\u202e\\x9b2J" in result.stdout
    assert "\u202e" not in done("budget", "list", env=live.env)
