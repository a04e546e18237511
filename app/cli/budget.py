"""`epsilond budget`: manage the budgets of a server."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from app.cli import webhooks
from app.cli.choices import Relation
from app.cli.output import (
    AsJson,
    amounts,
    example,
    interval,
    percent,
    print_facts,
    print_page,
    print_warnings,
    who,
)
from app.cli.requests import RequestFile, asked, words
from app.cli.server import DEFAULT_URL, Budget, Cursor, IdempotencyKey, Limit, Server, Url, segment

commands = typer.Typer(
    name="budget",
    help="Budgets of a server, and what was charged to them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
commands.add_typer(webhooks.commands)

LimitRequest = Annotated[str, typer.Argument(metavar="REQUEST", help="The id; `budget requests` shows it.")]
DecisionReason = Annotated[
    str, typer.Option("--reason", help="The reason, for the person who asked and for the ledger.")
]
After = Annotated[
    str | None, typer.Option(help="List only what happened at this moment or later, such as 2026-01-31T00:00:00Z.")
]
Before = Annotated[str | None, typer.Option(help="List only what happened before this moment.")]


class SpentBy(StrEnum):
    """The property by which charges are grouped."""

    DAY = "day"
    MONTH = "month"
    PURPOSE = "purpose"
    PRINCIPAL = "principal"
    MECHANISM = "mechanism"


@commands.command(
    epilog=example(
        "epsilond budget create survey --relation add-or-remove-one --epsilon 1.6 --delta 1e-5 --unit person"
    )
)
def create(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A name for people.")] = None,
    relation: Relation = None,
    epsilon: Annotated[
        str | None, typer.Option(help="epsilon of a Renyi filter, with --delta; without it, of pure DP.")
    ] = None,
    delta: Annotated[str | None, typer.Option(help="delta of the Renyi filter.")] = None,
    rho: Annotated[str | None, typer.Option(help="rho of a filter in zCDP.")] = None,
    mu: Annotated[str | None, typer.Option(help="mu of a filter in Gaussian DP.")] = None,
    kind: Annotated[
        str | None, typer.Option("--filter", help="Its kind, if the amounts leave it open: approximate-dp.")
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="What one record stands for, such as person: it cannot change.")
    ] = None,
    parent: Annotated[str | None, typer.Option(help="Id or name of the budget above it.")] = None,
    report_delta: Annotated[float | None, typer.Option(help="The delta at which reports state epsilon.")] = None,
    request: RequestFile = None,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Open a budget.

    Opens a limit on privacy loss under one neighbouring relation, in the currency of one filter. Relation and currency
    never change.
    """
    server = Server(url)
    question = asked(
        request,
        [
            ("NAME", "/name", name),
            ("--relation", "/neighboring_relation", words(relation)),
            *_limit_fields(epsilon, delta, rho, mu, kind),
            ("--unit", "/privacy_unit", unit),
            ("--parent", "/parent_id", parent and server.budget_id(parent)),
            ("--report-delta", "/report_delta", report_delta),
        ],
    )
    against = _doubts(server, question.body)
    is_asked = bool(against) and sys.stdin.isatty()
    if is_asked:
        print_warnings(against)
        typer.confirm("Open the budget anyway? It cannot be closed later.", abort=True, err=True)
    text = server.post("/v1/budgets", question, idempotency_key)
    if not is_asked:
        print_warnings(against)
    server.tell(text, as_json, _print_budget)


def _doubts(server: Server, asked_for: Any) -> list[str]:
    """Return doubts about a requested budget. The request may be any JSON."""
    from app.budgets.doubts import doubts, same_name  # Imported here, since no other command needs it.

    if not isinstance(asked_for, Mapping):
        return []
    name, limit = asked_for.get("name"), asked_for.get("filter")
    found = doubts(limit) if isinstance(limit, Mapping) else []
    if isinstance(name, str) and server.ids_of("/v1/budgets", name):
        found.append(same_name(name))
    return found


@commands.command("list", epilog=example("epsilond budget list"))
def list_budgets(
    parent: Annotated[str | None, typer.Option(help="List only the children of this budget: id or name.")] = None,
    limit: Limit = None,
    cursor: Cursor = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List the budgets, newest first, with their limits and what is left."""
    server = Server(url)
    parent_id = parent and server.budget_id(parent)
    text = server.get("/v1/budgets", {"parent_id": parent_id, "limit": limit, "cursor": cursor})
    server.tell(text, as_json, _print_budgets)


@commands.command(epilog=example("epsilond budget show BUDGET"))
def show(
    budget: Budget,
    delta: Annotated[float | None, typer.Option(help="The delta at which the report states epsilon.")] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show one budget: limit, spent, reserved, left.

    The output has a tight report of everything that was charged to it and to the budgets below it.
    """
    server = Server(url)
    text = server.get(f"/v1/budgets/{segment(server.budget_id(budget))}", {"delta": delta})
    server.tell(text, as_json, _print_budget)


@commands.command(epilog=example("epsilond budget entries BUDGET --limit 20"))
def entries(
    budget: Budget,
    kind: Annotated[str | None, typer.Option(help="List only this kind, such as commit.")] = None,
    after: After = None,
    before: Before = None,
    purpose: Annotated[str | None, typer.Option(help="List only reservations of exactly this purpose.")] = None,
    made_by: Annotated[
        str | None, typer.Option(help="List only entries made by the key with this name, or with this id.")
    ] = None,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="List the newest entry first.")] = False,
    limit: Limit = None,
    cursor: Cursor = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show a budget's history in the ledger, oldest first."""
    query = {"kind": kind, "after": after, "before": before, "purpose": purpose, "made_by": made_by}
    if newest_first:
        query["newest_first"] = "true"
    server = Server(url)
    path = f"/v1/budgets/{segment(server.budget_id(budget))}/entries"
    text = server.get(path, {**query, "limit": limit, "cursor": cursor})
    server.tell(text, as_json, _print_entries)


@commands.command(epilog=example("epsilond budget spending BUDGET --by purpose"))
def spending(
    budget: Budget,
    by: Annotated[SpentBy, typer.Option(help="The property by which charges are added up.")] = SpentBy.DAY,
    after: After = None,
    before: Before = None,
    limit: Limit = None,
    cursor: Cursor = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show who has spent what, and when."""
    query = {"group_by": by, "after": after, "before": before, "limit": limit, "cursor": cursor}
    server = Server(url)
    text = server.get(f"/v1/budgets/{segment(server.budget_id(budget))}/spending", query)
    server.tell(text, as_json, lambda page: _print_spending(page, by))


@commands.command(epilog=example('epsilond budget ask BUDGET --epsilon 2 --delta 1e-5 --reason "a third wave"'))
def ask(
    budget: Budget,
    reason: Annotated[str | None, typer.Option(help="The reason, for the owner who decides.")] = None,
    epsilon: Annotated[str | None, typer.Option(help="epsilon of the wanted limit.")] = None,
    delta: Annotated[str | None, typer.Option(help="delta of the wanted limit.")] = None,
    rho: Annotated[str | None, typer.Option(help="rho of the wanted limit.")] = None,
    mu: Annotated[str | None, typer.Option(help="mu of the wanted limit.")] = None,
    kind: Annotated[
        str | None, typer.Option("--filter", help="The filter's kind, if the amounts leave it open: approximate-dp.")
    ] = None,
    request: RequestFile = None,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Ask for another limit of a budget.

    Owners approve or refuse it; nothing changes until then.
    """
    server = Server(url)
    fields = [*_limit_fields(epsilon, delta, rho, mu, kind), ("--reason", "/reason", reason)]
    path = f"/v1/budgets/{segment(server.budget_id(budget))}/limit-requests"
    server.tell(server.post(path, asked(request, fields), idempotency_key), as_json, _print_limit_request)


@commands.command(epilog=example("epsilond budget requests --state open"))
def requests(
    budget: Annotated[
        str | None, typer.Argument(metavar="[BUDGET]", help="List only the requests of this budget: id or name.")
    ] = None,
    state: Annotated[str | None, typer.Option(help="List only this state: open, approved, refused, withdrawn.")] = None,
    limit: Limit = None,
    cursor: Cursor = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List the requests for another limit, newest first."""
    server = Server(url)
    path = "/v1/limit-requests"
    if budget is not None:
        path = f"/v1/budgets/{segment(server.budget_id(budget))}/limit-requests"
    server.tell(server.get(path, {"state": state, "limit": limit, "cursor": cursor}), as_json, _print_limit_requests)


@commands.command(epilog=example('epsilond budget approve REQUEST --reason "the board agreed"'))
def approve(
    limit_request: LimitRequest,
    reason: DecisionReason,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Approve a request for another limit that somebody else has made.

    The last approval that is needed sets the limit.
    """
    _decide(url, limit_request, "approve", reason, idempotency_key, as_json)


@commands.command(epilog=example('epsilond budget refuse REQUEST --reason "this is enough"'))
def refuse(
    limit_request: LimitRequest,
    reason: DecisionReason,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Refuse a request for another limit."""
    _decide(url, limit_request, "refuse", reason, idempotency_key, as_json)


@commands.command(epilog=example("epsilond budget withdraw REQUEST"))
def withdraw(
    limit_request: LimitRequest,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Withdraw your own request for another limit."""
    _decide(url, limit_request, "withdraw", None, idempotency_key, as_json)


@commands.command(epilog=example("epsilond budget deployment BUDGET --request answers.json"))
def deployment(
    budget: Budget,
    request: RequestFile = None,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show or replace the facts on privacy cards that only the operator knows.

    With a request file, its answers replace the earlier ones. Without one, the answers are shown.
    """
    server = Server(url)
    path = f"/v1/budgets/{segment(server.budget_id(budget))}/deployment"
    text = server.get(path) if request is None else server.post(path, asked(request, []), idempotency_key)
    server.tell(text, as_json, lambda said: print_facts({name: text for name, text in said["answers"].items() if text}))


def _decide(
    url: str, limit_request: str, decision: str, reason: str | None, idempotency_key: str | None, as_json: bool
) -> None:
    server = Server(url)
    question = None if reason is None else asked(None, [("--reason", "/reason", reason)])
    text = server.post(f"/v1/limit-requests/{segment(limit_request)}/{decision}", question, idempotency_key)
    server.tell(text, as_json, _print_limit_request)


def _limit_fields(
    epsilon: str | None, delta: str | None, rho: str | None, mu: str | None, kind: str | None
) -> list[tuple[str, str, object]]:
    """Return the fields of a limit. If its kind is not given, the amounts or the service decide it."""
    given = {"pure_dp": epsilon if delta is None else None, "zcdp": rho, "gaussian_dp": mu}
    found = next((name for name, value in given.items() if value is not None), None)
    return [
        ("--epsilon", "/filter", None),
        ("--filter", "/filter/kind", words(kind) or found),
        ("--epsilon", "/filter/epsilon", epsilon),
        ("--delta", "/filter/delta", delta),
        ("--rho", "/filter/rho", rho),
        ("--mu", "/filter/mu", mu),
    ]


_PARTS = ("limit", "spent", "reserved", "left")


def _print_budgets(page: Mapping[str, Any]) -> None:
    print_page(
        page,
        ("id", "name", "relation", *_PARTS, "used"),
        lambda budget: (
            budget["id"],
            budget["name"],
            budget["neighboring_relation"],
            *(_of_limit(budget, part) for part in _PARTS),
            percent(budget["share"]["used"]),
        ),
    )


def _print_budget(budget: Mapping[str, Any]) -> None:
    report = budget["report"] or {}
    tight = interval(report["epsilon"]) if report.get("epsilon") else None
    print_facts(
        {
            "id": budget["id"],
            "name": budget["name"],
            "relation": budget["neighboring_relation"],
            "unit": budget["privacy_unit"],
            "parent": budget["parent_id"],
            "filter": f"{budget['filter']['kind']}, {amounts(budget['filter'])}",
            **{part: _of_limit(budget, part) for part in _PARTS},
            "used": percent(budget["share"]["used"]),
            "overdue": budget["overdue"] or None,
            "overdrawn": budget["overdrawn"] or None,
            "report": tight and f"epsilon {tight[0]} to {tight[1]} at delta {report['delta']}",
            "filter's own": report.get("filter_epsilon"),
            "caveat": _with_names_of_rows(report["caveat"]) if report else None,
        }
    )
    print_warnings(report.get("warnings", ()))


def _with_names_of_rows(caveat: str) -> str:
    """Return the service's caveat about its numbers, with the table's names for them."""
    return caveat.replace("`filter_epsilon`", "the filter's own").replace("`epsilon`", "the report")


def _of_limit(budget: Mapping[str, Any], part: str) -> str:
    """Return the use of the limit, in the unit that it is stated in."""
    name = next(name for name in ("epsilon", "rho", "mu") if budget[name] is not None)
    said = f"{name} {budget[name][part]}"
    if budget["filter"]["kind"] == "approximate_dp":
        # In this kind of budget, deltas add up as well.
        return f"{said}, delta {budget['amounts']['remaining' if part == 'left' else part]['delta']}"
    return said


def _print_entries(page: Mapping[str, Any]) -> None:
    print_page(
        page,
        ("sequence", "recorded", "kind", "amount", "given back", "purpose", "principal", "reservation"),
        lambda entry: (
            entry["sequence"],
            entry["recorded_at"],
            entry["kind"],
            amounts(entry["amount"]),
            None if entry["given_back"] is None else amounts(entry["given_back"]),
            entry["purpose"] or entry["reason"],
            who(entry["principal_id"], entry["principal_name"]),
            entry["reservation_id"],
        ),
    )


def _print_spending(page: Mapping[str, Any], by: SpentBy) -> None:
    print_page(
        page,
        (str(by), "amount", "charges", "cumulative"),
        lambda spent: (
            who(spent["key"], spent["name"]) if by is SpentBy.PRINCIPAL else spent["key"],
            amounts(spent["amount"]),
            spent["charges"],
            None if spent["cumulative"] is None else amounts(spent["cumulative"]),
        ),
    )


def _print_limit_requests(page: Mapping[str, Any]) -> None:
    print_page(
        page,
        ("id", "budget", "state", "before", "wanted", "asked by", "approvals", "reason"),
        lambda each: (
            each["id"],
            each["budget_id"],
            each["state"],
            amounts(each["before"]),
            amounts(each["wanted"]),
            who(each["principal_id"], each["names"].get(each["principal_id"])),
            f"{len(each['approvals'])} of {each['approvals_needed']}",
            each["reason"],
        ),
    )


def _print_limit_request(request: Mapping[str, Any]) -> None:
    names, decided_by = request["names"], request["decided_by"]
    print_facts(
        {
            "id": request["id"],
            "budget": request["budget_id"],
            "state": request["state"],
            "before": amounts(request["before"]),
            "wanted": amounts(request["wanted"]),
            "asked by": who(request["principal_id"], names.get(request["principal_id"])),
            "reason": request["reason"],
            "approvals": f"{len(request['approvals'])} of {request['approvals_needed']}",
            "decided by": decided_by and who(decided_by, names.get(decided_by)),
            "because": request["decision_reason"],
        }
    )
