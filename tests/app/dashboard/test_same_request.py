"""The request that a page has made, for a shell: with the user's key where the server asks for one, and never shown."""

from __future__ import annotations

import shlex

import pytest

from app.auth.principal import ANYBODY, LOOPBACK, Principal
from app.dashboard.same_request import as_curl
from tests.app.dashboard.requests import a_request


@pytest.mark.parametrize(
    ("principal", "header"),
    [
        (ANYBODY, []),
        (LOOPBACK, ["-H", "@${EPSILOND_DATA_DIR:-var}/local-token"]),
        (Principal("key_a", frozenset()), ["-H", "Authorization: Bearer $EPSILOND_API_KEY"]),
    ],
)
def test_a_key_comes_from_the_environment_and_the_local_token_from_its_file(
    principal: Principal, header: list[str]
) -> None:
    request = a_request()
    request.state.principal = principal
    command = as_curl(request, "/v1/calibrate", {"epsilon": 1})
    assert shlex.split(command.replace("\\\n", " ")) == [
        "curl", "-s", "http://127.0.0.1:8000/v1/calibrate", *header, "--json", '{"epsilon": 1}'
    ]  # fmt: skip
    assert ('-H "' in command) == bool(header), "in quotes in which a shell puts the variable's value"
