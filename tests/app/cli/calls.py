"""How the tests call `epsilond` in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from typer.testing import CliRunner, Result

from app.cli.main import cli


def call(*arguments: object, env: Mapping[str, str] | None = None, given: str | bytes | None = None) -> Result:
    """A command's end; ``given`` is its standard input."""
    return CliRunner().invoke(cli, [str(each) for each in arguments], input=given, env=env, prog_name="epsilond")


def done(*arguments: object, env: Mapping[str, str] | None = None, given: str | bytes | None = None) -> str:
    """What a command prints that succeeds."""
    result = call(*arguments, env=env, given=given)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object, status: int = 1, env: Mapping[str, str] | None = None, given: str = "") -> str:
    """The one line of a command that does not succeed."""
    result = call(*arguments, env=env, given=given)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (status, "", 1), result.output
    assert result.stderr.startswith("epsilond: ")
    return result.stderr


def problem(*arguments: object, status: int = 1, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The one JSON document of such a command."""
    result = call(*arguments, "--json", env=env)
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    document: dict[str, Any] = json.loads(result.stderr)
    return document
