"""This module has the requests of the benchmark: calibrations of two kinds, which the documentation shows, too."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from app.algorithms.examples import CALIBRATE_EXAMPLES
from benchmarks.http_load import Connection, Turn

CALIBRATE = "/v1/calibrate"
#: The kinds of calibrations, and the names of their examples in the documentation. Poisson batches need contour
#: integrals, which the server computes in a separate process. Full batches have closed forms.
KINDS: Mapping[str, str] = {"Poisson batches": "dp_sgd_poisson", "full batches": "full_batch_replace_one"}
#: The relative size of the random changes to the target's epsilon. A changed request is in no cache, and is the same
#: amount of work.
SPREAD = 1e-6


def request(kind: str) -> dict[str, Any]:
    """Return the body of a request of this kind."""
    body: dict[str, Any] = json.loads(json.dumps(CALIBRATE_EXAMPLES[KINDS[kind]]["value"]))
    return body


def with_another_target(body: Mapping[str, Any], draw: random.Random) -> dict[str, Any]:
    """Return the same request with an epsilon that no earlier request had."""
    target = body["target"]
    return {**body, "target": {**target, "epsilon": target["epsilon"] * (1.0 + SPREAD * draw.random())}}


def new_each_time(kind: str) -> Turn:
    """Return a turn that requests one calibration whose answer is in no cache."""
    body = request(kind)

    async def turn(connection: Connection, draw: random.Random, _key: str) -> int:
        await connection.post(CALIBRATE, json.dumps(with_another_target(body, draw)).encode(), None, 200)
        return 1

    return turn


def same_each_time(path_and_kind: tuple[str, str]) -> Turn:
    """Return a turn that sends the same request every time, to the service or to a bare endpoint."""
    path, kind = path_and_kind
    content = json.dumps(request(kind)).encode()

    async def turn(connection: Connection, _draw: random.Random, _key: str) -> int:
        await connection.post(path, content, None, 200)
        return 1

    return turn
