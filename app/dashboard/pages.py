"""Pages and parts of pages, made from templates and escaped values, and the rules for what a page may do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app import VERSION
from app.auth.principal import Scope
from app.dashboard import amounts, wording
from app.dashboard.asking import Answer, ask
from app.dashboard.formulas import formula
from app.web.forwarding import with_path

_HERE = Path(__file__).parent
#: Style sheets and scripts, which are served under `ASSETS`.
STATIC = _HERE / "static"
ASSETS = "/dashboard/assets"

# All scripts and styles are files of this server: none stands inside a page, and pages load from and send to no other
# host.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

#: The links in the navigation of every page, in groups.
GROUPS = {
    "Books": (
        ("/dashboard/budgets", "Budgets"),
        ("/dashboard/limit-requests", "Requests"),
        ("/dashboard/ledger", "Ledger"),
        ("/dashboard/keys", "Keys"),
    ),
    "Training": (
        ("/dashboard/datasets", "Data sets"),
        ("/dashboard/runs", "Runs"),
        ("/dashboard/run-sweeps", "Sweeps"),
        ("/dashboard/audits", "Audits"),
    ),
    "Numbers": (
        ("/", "Calibrate"),
        ("/dashboard/calibrate/events", "Events"),
        ("/dashboard/import", "Paste a call"),
        ("/dashboard/compare", "Compare"),
        ("/dashboard/algorithms", "Algorithms"),
    ),
    "Reading": (("/dashboard/help", "Help"), ("/docs", "HTTP interface")),
}
#: Links that are useful to administrators only.
_FOR_ADMINS = frozenset({"/dashboard/keys"})


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a whole page, or a part that htmx puts into a page, depending on the template."""
    principal = getattr(request.state, "principal", None)

    def may(*scopes: str) -> bool:
        """Return whether the reader has one of these scopes. Pages do not show what the reader would only be
        refused."""
        return principal is not None and principal.may(*map(Scope, scopes))

    content = (
        _environment()
        .get_template(template)
        .render(
            path=request.url.path,
            navigation={
                group: [each for each in links if may("admin") or each[0] not in _FOR_ADMINS]
                for group, links in GROUPS.items()
            },
            may=may,
            assets=ASSETS,
            version=VERSION,
            principal=principal,
            **values,
        )
    )
    public_path = request.app.state.context.settings.public_path
    return HTMLResponse(with_path(content, public_path), status, {"Content-Security-Policy": CONTENT_SECURITY_POLICY})


def part_of(request: Request, form: str) -> str:
    """Return the requested part of a page with a live form: "page", "form" if a choice changed its fields, or "answer".

    Args:
        request: The request for the page.
        form: The form's id, which htmx names as the element to replace.
    """
    if "hx-request" not in request.headers or "hx-history-restore-request" in request.headers:
        return "page"
    return "form" if request.headers.get("hx-target") == form else "answer"


def problem_page(request: Request, answer: Answer) -> HTMLResponse:
    """Return the page that replaces a page whose request was refused."""
    return page(request, "problem.html", status=answer.status, problem=answer.body)


class Refused(Exception):
    """The service refuses the request of a page; ``response`` is shown instead of the page."""

    def __init__(self, response: HTMLResponse) -> None:
        super().__init__(response.status_code)
        self.response = response


async def need(
    request: Request,
    path: str,
    query: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    body: Mapping[str, Any] | None = None,
    in_part: bool = False,
) -> dict[str, Any]:
    """Return the service's answer, which the page cannot do without.

    Args:
        request: The request for the page.
        path, query, method, body: The parts of the request to the service.
        in_part: Whether a part of a page is made, so that a refusal is shown in place of this part.

    Raises:
        Refused: with the page that is shown instead.
    """
    answer = await ask(request, method, path, query=query, body=body)
    if answer.is_good:
        return answer.body
    raise Refused(page(request, "problem_part.html", problem=answer.body) if in_part else problem_page(request, answer))


class _Environment(Environment):
    """Templates that read the members of JSON objects, even members with the names of a dictionary's methods."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


@cache
def _environment() -> Environment:
    # All templates escape values, whatever their file names are.
    environment = _Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(wording.FILTERS | amounts.FILTERS | {"formula": formula})
    return environment
