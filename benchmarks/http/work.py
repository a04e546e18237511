"""This module has the requests: calibrations of two kinds, as in the service's own documentation."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from app.algorithms.examples import CALIBRATE_EXAMPLES
from benchmarks.http_load import Connection, Turn

CALIBRATE = "/v1/calibrate"
#: Poisson batches need contour integrals, in a process with limits; full batches have closed forms.
KINDS: Mapping[str, str] = {"Poisson batches": "dp_sgd_poisson", "full batches": "full_batch_replace_one"}
#: The relative change of the target's epsilon from one request to the next: no cache has the answer, and the work is
#: the same.
SPREAD = 1e-6


def request(kind: str) -> dict[str, Any]:
    """Return the body of a request of this kind."""
    body: dict[str, Any] = json.loads(json.dumps(CALIBRATE_EXAMPLES[KINDS[kind]]["value"]))
    return body


def with_another_target(body: Mapping[str, Any], draw: random.Random) -> dict[str, Any]:
    """Return the same request with an epsilon that was not asked before."""
    target = body["target"]
    return {**body, "target": {**target, "epsilon": target["epsilon"] * (1.0 + SPREAD * draw.random())}}


def new_each_time(kind: str) -> Turn:
    """Return a turn that asks for one calibration that is not in any cache."""
    body = request(kind)

    async def turn(connection: Connection, draw: random.Random, _key: str) -> int:
        await connection.post(CALIBRATE, json.dumps(with_another_target(body, draw)).encode(), None, 200)
        return 1

    return turn


def same_each_time(path_and_kind: tuple[str, str]) -> Turn:
    """Return a turn that sends the same request every time, to the service or to the contender beside it."""
    path, kind = path_and_kind
    content = json.dumps(request(kind)).encode()

    async def turn(connection: Connection, _draw: random.Random, _key: str) -> int:
        await connection.post(path, content, None, 200)
        return 1

    return turn
