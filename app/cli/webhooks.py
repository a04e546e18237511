"""The webhooks of a budget, on a server: `epsilond budget tell` and the commands beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from app.cli.output import AsJson, example, print_facts, print_page
from app.cli.requests import RequestFile, asked, words
from app.cli.server import DEFAULT_URL, Budget, Cursor, IdempotencyKey, Limit, Server, Url, segment

commands = typer.Typer()

Webhook = Annotated[str, typer.Argument(metavar="WEBHOOK", help="The id; `budget webhooks` shows it.")]


@commands.command(epilog=example("epsilond budget tell BUDGET --address https://hooks.example/a --event denied"))
def tell(
    budget: Budget,
    address: Annotated[str | None, typer.Option(help="The URL, below one that the operator allows.")] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(help="The events that are reported, such as spending-threshold or denied; may be repeated."),
    ] = None,
    at: Annotated[
        list[float] | None, typer.Option(help="A share of the limit, for spending-threshold; may be repeated.")
    ] = None,
    request: RequestFile = None,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Tell an address what happens to a budget.

    The answer has the secret that verifies messages. It is shown only now.
    """
    server = Server(url)
    events = None if event is None else [words(each) for each in event]
    question = asked(
        request, [("--address", "/url", address), ("--event", "/events", events), ("--at", "/fractions", at)]
    )
    path = f"/v1/budgets/{segment(server.budget_id(budget))}/webhooks"
    server.tell(server.post(path, question, idempotency_key), as_json, _print_webhook)


@commands.command(epilog=example("epsilond budget webhooks BUDGET"))
def webhooks(budget: Budget, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List the webhooks of a budget."""
    server = Server(url)
    text = server.get(f"/v1/budgets/{segment(server.budget_id(budget))}/webhooks", {})
    server.tell(text, as_json, _print_webhooks)


@commands.command(epilog=example("epsilond budget deliveries WEBHOOK"))
def deliveries(
    webhook: Webhook,
    limit: Limit = None,
    cursor: Cursor = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List the messages of a webhook, newest first, with their outcomes."""
    server = Server(url)
    text = server.get(f"/v1/webhooks/{segment(webhook)}/deliveries", {"limit": limit, "cursor": cursor})
    server.tell(text, as_json, _print_deliveries)


@commands.command(epilog=example("epsilond budget disable WEBHOOK"))
def disable(
    webhook: Webhook, idempotency_key: IdempotencyKey = None, url: Url = DEFAULT_URL, as_json: AsJson = False
) -> None:
    """Stop a webhook."""
    _switch(url, webhook, "disable", idempotency_key, as_json)


@commands.command(epilog=example("epsilond budget enable WEBHOOK"))
def enable(
    webhook: Webhook, idempotency_key: IdempotencyKey = None, url: Url = DEFAULT_URL, as_json: AsJson = False
) -> None:
    """Start a stopped webhook again."""
    _switch(url, webhook, "enable", idempotency_key, as_json)


def _switch(url: str, webhook: str, position: str, idempotency_key: str | None, as_json: bool) -> None:
    server = Server(url)
    text = server.post(f"/v1/webhooks/{segment(webhook)}/{position}", None, idempotency_key)
    server.tell(text, as_json, _print_webhook)


def _print_webhook(webhook: Mapping[str, Any]) -> None:
    print_facts(
        {
            "id": webhook["id"],
            "budget": webhook["budget_id"],
            "address": webhook["url"],
            "events": ", ".join(webhook["events"]),
            "at": ", ".join(f"{each:g}" for each in webhook["fractions"]) or None,
            "state": webhook["state"],
            "waiting": webhook["waiting"],
            "secret": webhook.get("secret"),
        }
    )


def _print_webhooks(page: Mapping[str, Any]) -> None:
    print_page(
        page,
        ("id", "state", "waiting", "events", "address"),
        lambda each: (each["id"], each["state"], each["waiting"], ", ".join(each["events"]), each["url"]),
    )


def _print_deliveries(page: Mapping[str, Any]) -> None:
    print_page(
        page,
        ("id", "event", "state", "attempts", "created", "last error", "status"),
        lambda each: (
            each["id"],
            each["event"],
            each["state"],
            each["attempts"],
            each["created_at"],
            each["last_error"],
            each["last_status"],
        ),
    )
