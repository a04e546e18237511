"""`epsilond budget`, against a server on a socket."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.app.cli.calls import call, done, problem, refused
from tests.app.cli.conftest import Live
from tests.app.cli.test_run import OPTIONS, facts
from tests.app.cli.test_server import says, serving


def opened(live: Live, *options: str, name: str = "survey") -> dict[str, Any]:
    arguments = ("budget", "create", name, "--relation", "add-or-remove-one", *options, "--json")
    budget: dict[str, Any] = json.loads(done(*arguments, env=live.env))
    return budget


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("options", "limit"),
    [
        (
            ("--epsilon", "1.6", "--delta", "1e-5", "--unit", "person"),
            {"kind": "approximate_gaussian_dp", "epsilon": 1.6},
        ),
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
    found = re.fullmatch(r" *epsilon (1\.\d{9}) to (1\.\d{9}) at delta 1e-06", shown["report"])
    assert found is not None
    assert found[1] < found[2]
    header, line = done("budget", "list", "--parent", parent["id"], env=live.env).splitlines()
    assert header.split() == ["id", "name", "relation", "limit", "spent", "reserved", "left", "used"]
    assert line.split("  ")[:2] == [budget["id"], "survey"]
    entries = done("budget", "entries", budget["id"], env=live.env).splitlines()
    assert [each.split()[2] for each in entries[1:]] == ["create", "reserve", "start", "commit"]
    (commit,) = done("budget", "entries", budget["id"], "--kind", "commit", env=live.env).splitlines()[1:]
    assert commit.split() == entries[4].split()
    for name, made in (("this machine", entries[1:3]), ("the service", entries[3:])):
        by_name = done("budget", "entries", budget["id"], "--made-by", name, env=live.env).splitlines()
        assert [each.split() for each in by_name[1:]] == [each.split() for each in made]
    spent = done("budget", "spending", budget["id"], "--by", "purpose", env=live.env).splitlines()
    assert spent[0].split() == ["purpose", "amount", "charges", "cumulative"]
    assert spent[1].startswith(f"dp_sgd run {run['id']}")


def test_a_run_that_does_not_fit_ends_with_status_3(live: Live) -> None:
    budget = opened(live, "--rho", "0.0001")
    line = refused(*OPTIONS, "--budget", budget["id"], status=3, env=live.env)
    assert re.search(r"the budget does not admit these events; [0-9]+ of their steps would fit", line)
    assert "largest_count_that_fits" not in line
    document = problem(*OPTIONS, "--budget", budget["id"], status=3, env=live.env)
    assert document["code"] == "budget_exceeded"
    assert document["remaining"] == {"rho": 0.0001}


def test_what_is_wrong_is_told_of_the_option(live: Live) -> None:
    arguments = ("budget", "create", "survey", "--relation")
    assert "epsilond: --relation: " in refused(*arguments, "other", "--rho", "1", env=live.env)
    assert "epsilond: --rho: " in refused(*arguments, "replace-one", "--rho", "much", env=live.env)
    missing = refused(*arguments, "replace-one", env=live.env)
    assert "epsilond: --epsilon: " in missing
    assert missing.endswith(" See `epsilond budget create --help`.\n")
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


def test_a_budget_is_named_by_its_name_wherever_it_is_by_its_id(live: Live) -> None:
    parent = opened(live, "--rho", "10", name="the clinic's, 2026")
    child = opened(live, "--rho", "1", "--parent", "the clinic's, 2026", name="the ward's")
    assert child["parent_id"] == parent["id"]
    listed = json.loads(done("budget", "list", "--parent", "the clinic's, 2026", "--json", env=live.env))
    assert [each["id"] for each in listed["items"]] == [child["id"]]
    run = json.loads(done(*OPTIONS, "--budget", "the ward's", "--json", env=live.env))
    assert run["budget_id"] == child["id"]
    for words in (("show",), ("entries",), ("spending", "--by", "purpose")):
        by_name, by_id = (
            done("budget", words[0], named, *words[1:], "--json", env=live.env) for named in ("the ward's", child["id"])
        )
        assert by_name == by_id


def test_what_speaks_against_a_budget_is_said_before_it_is_opened(live: Live) -> None:
    options = ("budget", "create", "doubtful", "--relation", "replace-one", "--epsilon", "500", "--delta", "0.01")
    first, second = (call(*options, "--json", env=live.env) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0)  # where no terminal can be asked
    said = [each.stderr.count("warning: ") for each in (first, second)]
    assert said == [2, 3]
    assert "With epsilon 500 the limit proves nothing" in first.stderr
    assert "There is a budget with the name doubtful already." in second.stderr
    assert "warning" not in call("budget", "create", "sure", *options[3:5], "--rho", "1", env=live.env).stderr


def test_a_name_that_names_nothing_or_several_is_one_line(live: Live) -> None:
    twins = {opened(live, "--rho", "1", name="twins")["id"] for _ in range(2)}
    line = refused("budget", "show", "twins", env=live.env)
    assert "2 budgets have the name 'twins': " in line
    assert set(re.findall(r"bud_\w+", line)) == twins
    assert set(re.findall(r"bud_\w+", refused(*OPTIONS, "--budget", "twins", env=live.env))) == twins
    # The name as a whole, and as it is written.
    for name in ("twin", "Twins", "tw%", "../keys", "\x1b[2J"):
        assert "There is no budget with the name" in refused("budget", "entries", name, env=live.env)
    assert "There is no budget with the id 'bud_none'." in refused("budget", "show", "bud_none", env=live.env)


def test_an_id_costs_no_request_and_a_name_is_looked_for_on_every_page() -> None:
    def page(cursor: str | None, *ids: str) -> Any:
        items = [{"id": each, "name": "survey"} for each in ids]
        return says(200, json.dumps({"items": items, "next_cursor": cursor}).encode())

    with serving(says(200)) as scripted:
        done("budget", "entries", "bud_a", env=scripted.env)
        assert [request.path for request, _ in scripted.seen] == ["/v1/budgets/bud_a/entries"]
    with serving(page("next"), page(None, "bud_b"), says(200)) as scripted:
        done("budget", "entries", "survey", env=scripted.env)
        assert [request.path for request, _ in scripted.seen] == [
            "/v1/budgets?limit=200",
            "/v1/budgets?limit=200&cursor=next",
            "/v1/budgets/bud_b/entries",
        ]
    with serving(page("next", "bud_a"), page(None, "bud_b")) as scripted:
        line = refused("budget", "entries", "survey", env=scripted.env)
        assert "2 budgets have the name 'survey': bud_a, bud_b. Give the id of the one you mean." in line
    with serving(says(200, b'{"items": [{"id": "bud_a"}]}')) as scripted:
        assert "does not answer as epsilond" in refused("budget", "entries", "survey", env=scripted.env)


def test_another_limit_is_asked_for_refused_and_withdrawn(live: Live) -> None:
    budget = opened(live, "--rho", "1", name="to be asked for")

    def ask(rho: str) -> dict[str, str]:
        return facts(done("budget", "ask", budget["name"], "--rho", rho, "--reason", "more people", env=live.env))

    asked = {name: value.strip() for name, value in ask("2").items()}
    assert asked | {"id": ""} == {
        "id": "",
        "budget": budget["id"],
        "state": "open",
        "before": "rho 1.0",
        "wanted": "rho 2.0",
        "asked by": "this machine",
        "reason": "more people",
        "approvals": "0 of 1",
    }
    header, line = done("budget", "requests", budget["id"], env=live.env).splitlines()
    assert header.split("  ")[0] == "id"
    assert line.startswith(asked["id"])
    line = refused("budget", "approve", asked["id"], "--reason", "mine", status=1, env=live.env)
    assert "you cannot approve your own request" in line
    shown = facts(done("budget", "refuse", asked["id"], "--reason", "enough", env=live.env))
    assert (shown["state"].strip(), shown["because"].strip()) == ("refused", "enough")
    another = ask("3")["id"].strip()
    assert facts(done("budget", "withdraw", another, env=live.env))["state"].strip() == "withdrawn"
    states = json.loads(done("budget", "requests", "--state", "withdrawn", "--json", env=live.env))["items"]
    assert another in {each["id"] for each in states}
    assert "epsilond: --rho: " in refused("budget", "ask", budget["id"], "--rho", "much", "--reason", "r", env=live.env)
