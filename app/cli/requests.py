"""Reads requests from options or from a JSON file, and keeps the user's names of fields for messages about faults."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.refusals import fail

RequestFile = Annotated[
    Path | None,
    typer.Option(
        "--request",
        metavar="FILE",
        help="The request as the HTTP interface takes it, JSON, in place of the options; - reads standard input.",
    ),
]

#: The option for requests that no other options can describe.
NeededFile = Annotated[
    Path,
    typer.Option(
        "--request", metavar="FILE", help="The request as the HTTP interface takes it, JSON; - reads standard input."
    ),
]

#: One byte more than a body may have, so that a longer one is noticed.
_MOST_BYTES = 2**20


class Asked:
    """A request.

    Attributes:
        body: The request, as parsed JSON.
        places: The user's name for each field, by its JSON pointer.
    """

    def __init__(self) -> None:
        self.body: Any = {}
        self.places: dict[str, str] = {}

    def put(self, option: str, path: str, value: object) -> None:
        """Note that an option gives a field, and put its value into the request if it was given.

        Args:
            option: The option's name.
            path: The path of the field: a JSON pointer; 0 is the only element of an array.
            value: The option's value; None or an empty list if the option was not given.
        """
        self.places[path] = option
        if value is None or value == []:
            return
        steps, inside = path[1:].split("/"), self.body
        for step, following in pairwise(steps):
            inside = _element(inside, step, [] if following == "0" else {})
        inside[steps[-1]] = value

    def replace(self, file: Path) -> None:
        """Read the request from a file; no option may give a field.

        Raises:
            typer.BadParameter: an option gives a field.
        """
        if self.body:
            raise typer.BadParameter(
                ("the file replaces all other options of the request: give either the file or the options"),
                param_hint="--request",
            )
        self.body, self.places = read_request(file), {"": _name(file)}


def asked(file: Path | None, fields: Sequence[tuple[str, str, object]]) -> Asked:
    """Return the request of a command.

    Args:
        file: The command's `RequestFile`.
        fields: As `Asked.put` takes them.

    Raises:
        typer.BadParameter: both a file and options are given.
    """
    request = Asked()
    for option, path, value in fields:
        request.put(option, path, value)
    if file is not None:
        request.replace(file)
    return request


def read_request(file: Path) -> Any:
    """Read the JSON in a file as strictly as a request's body is read."""
    # Imported here, because `--help` does not need it.
    from app.kit.json_body import read_json
    from app.problems import Problem

    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        fail(f"Cannot read {file}: {error.strerror}.")
    if len(data) > _MOST_BYTES:
        fail(f"{_name(file)} is larger than {_MOST_BYTES} bytes.")
    try:
        return read_json(data)
    except Problem as problem:
        where = problem.errors[0].pointer
        fail(f"{_name(file)}{where and f', {where}'}: {problem.detail.replace('The body', 'It')}")


def words(text: str | None) -> str | None:
    """Return a name as the interface writes it. On a command line, hyphens may replace underscores.

    >>> words("add-or-remove-one")
    'add_or_remove_one'
    """
    return None if text is None else text.replace("-", "_")


def _element(inside: Any, step: str, empty: Any) -> Any:
    if step != "0":
        return inside.setdefault(step, empty)
    if not inside:
        inside.append(empty)
    return inside[0]


def _name(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)
