"""`epsilond budget tell` and the commands about webhooks."""

from __future__ import annotations

import json

from tests.app.cli.calls import done, refused
from tests.app.cli.conftest import Live
from tests.app.cli.test_budget import opened
from tests.app.cli.test_run import facts


def test_an_address_is_told_of_a_budget(live: Live) -> None:
    budget = opened(live, "--rho", "1", name="to be told of")
    words = ("budget", "tell", budget["id"], "--event", "spending-threshold", "--event", "denied", "--at", "0.5")
    shown = facts(done(*words, "--address", "https://hooks.example/a", env=live.env))
    assert (shown["events"].strip(), shown["at"].strip()) == ("denied, spending_threshold", "0.5")
    assert shown["secret"].strip().startswith("whsec_")
    header, line = done("budget", "webhooks", budget["id"], env=live.env).splitlines()
    assert header.split() == ["id", "state", "waiting", "events", "address"]
    webhook = line.split()[0]
    assert "secret" not in done("budget", "webhooks", budget["id"], "--json", env=live.env)
    assert facts(done("budget", "disable", webhook, env=live.env))["state"].strip() == "disabled"
    assert facts(done("budget", "enable", webhook, env=live.env))["state"].strip() == "active"
    assert json.loads(done("budget", "deliveries", webhook, "--json", env=live.env))["items"] == []
    line = refused(*words, "--address", "https://other.example/", env=live.env)
    assert "epsilond: --address: the operator has allowed no webhook" in line
