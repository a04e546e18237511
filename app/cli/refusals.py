"""Ends commands that cannot do what they are asked, with a status and one line that says what to do instead."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer._click.globals import get_current_context

from app.cli.output import clean, price_in_words, print_error

if TYPE_CHECKING:
    from app.problems import Problem

#: The most faults of one request that a line names; `--json` names all.
TOLD = 4


class Status(IntEnum):
    """The exit status of a command; `docs/reference/cli.md` is generated from these."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    NOT_ADMITTED = 3
    NO_ANSWER = 4
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Status.DONE: "Done.",
    Status.REFUSED: "Refused or failed: the line on standard error says why. Also books that are not valid, and a run "
    "that did not succeed.",
    Status.USAGE: "The command line itself is wrong: an unknown option, one that is missing, a word for a number.",
    Status.NOT_ADMITTED: "The budget does not admit the charge; nothing was charged.",
    Status.NO_ANSWER: "The server does not answer or is too busy: ask again later.",
    Status.INTERRUPTED: "Ctrl+C. A run that was followed goes on.",
}


class Refusal(typer.TyperException):
    """A command's end without its result.

    Attributes:
        exit_code: Its `Status`.
        document: What `--json` prints on standard error.
    """

    def __init__(self, message: str, status: Status, document: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.exit_code = status
        self.document = document


def fail(message: str, status: Status = Status.REFUSED) -> NoReturn:
    """End the command with one line."""
    raise Refusal(message, status, {"detail": message})


def refuse(document: Mapping[str, Any], places: Mapping[str, str] | None = None) -> NoReturn:
    """End the command with the message of a problem document.

    Args:
        document: The problem document, made by this process or by a server.
        places: Names for places of the request, by their JSON pointers; for example, the name of an option.
    """
    code, status = document.get("code"), document.get("status")
    if code == "budget_exceeded":
        ending = Status.NOT_ADMITTED
    elif status in (429, 503):
        ending = Status.NO_ANSWER
    else:
        ending = Status.REFUSED
    raise Refusal(_in_words(document, places or {}), ending, document)


def refuse_problem(problem: Problem, places: Mapping[str, str] | None = None) -> NoReturn:
    """Call `refuse` with the answer that the service would have given. It has no request id, since there is no
    request."""
    refuse({name: value for name, value in problem.body("").items() if name != "request_id"}, places)


def show(refusal: typer.TyperException, *, as_json: bool) -> int:
    """Tell the user about the refusal in one line, or in one JSON document, on standard error. Return the status to end
    with."""
    document = refusal.document if isinstance(refusal, Refusal) else {"detail": refusal.format_message()}
    if as_json:
        print_error(json.dumps(document, ensure_ascii=False))
    else:
        # Each wrong setting has a line.
        lines = [" ".join(clean(line).split()) for line in refusal.format_message().splitlines()]
        print_error("epsilond: " + "\n".join(line for line in lines if line))
    return refusal.exit_code


def _in_words(document: Mapping[str, Any], places: Mapping[str, str]) -> str:
    faults: Sequence[Mapping[str, Any]] = document.get("errors") or ()
    told = [_fault(fault, places) for fault in faults[:TOLD]]
    if len(faults) > TOLD:
        told.append(f"and {len(faults) - TOLD} more, which --json lists")
    words = "; ".join(told) or str(document.get("detail") or "no reason was given")
    fits = document.get("largest_count_that_fits")
    if fits is not None:
        # The rest of the sentence names fields that only --json shows.
        words = f"{words.partition('; largest_count_that_fits')[0]}; {fits} of their steps would fit"
    if document.get("price"):
        words = f"{words.rstrip('.')}; {price_in_words(document['price'])}"
    words = words if words.endswith("?") else words.rstrip(".") + "."
    context = get_current_context(silent=True)
    if context is None or all(fault.get("code") != "missing" for fault in faults):
        return words
    return f"{words} See `{context.command_path} --help`."


def _fault(fault: Mapping[str, Any], places: Mapping[str, str]) -> str:
    pointer, detail = str(fault.get("pointer", "")), str(fault.get("detail", "")).rstrip(".")
    # A fault inside a field is reported for the option of that field; for a file, its pointer is given.
    inside = [place for place in places if pointer == place or pointer.startswith(f"{place}/")]
    where = [places[max(inside, key=len)]] if inside else []
    if pointer and not any(inside):
        where.append(pointer)
    return f"{', '.join(where)}: {detail}" if where else detail
