"""Requests and the answers they must get: over HTTP, and by the engine in process."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mpmath as mp
import pytest
from starlette.testclient import TestClient

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.conversions import convert
from accounting.errors import Unsupported
from accounting.events import Gaussian, event_from_json
from accounting.guarantees import guarantee_from_json
from accounting.intervals import Interval
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.plan import Clip
from calibrators.registry import find_algorithm
from calibrators.spec import Spec

GIVEN = json.loads((Path(__file__).parent / "accounting.json").read_text())["vectors"]

#: The file's truth for this entry belongs to epsilon 1.0, and its request asks at 0.5: see
#: `test_the_given_truth_of_one_entry_belongs_to_another_epsilon`.
CORRECTED = {"poisson-one-step-b": 0.0857986475694092}
VECTORS = [vector | {"truth": CORRECTED[vector["id"]]} if vector["id"] in CORRECTED else vector for vector in GIVEN]
NAMES = [vector["id"] for vector in VECTORS]


def test_every_entry_says_what_is_expected() -> None:
    assert len(set(NAMES)) == len(NAMES) == 24
    for vector in VECTORS:
        expectations = {"truth", "at_most", "at_least", "status"} & set(vector)
        assert expectations or vector["id"] == "poisson-integer-noise"


@pytest.mark.parametrize("vector", VECTORS, ids=NAMES)
def test_over_http(reader: TestClient, vector: dict[str, Any]) -> None:
    response = reader.post(vector["endpoint"], json=vector["body"])
    assert response.status_code == vector.get("status", 200), response.text
    if "status" in vector:
        assert response.json()["errors"], "a refusal points at what it refuses"
        return
    value: Any = response.json()
    for part in vector["quantity"].split("."):
        value = value[part]
    check(vector, Interval(**value) if isinstance(value, Mapping) else Interval(value, value, value))


@pytest.mark.parametrize("vector", VECTORS, ids=NAMES)
def test_in_process(vector: dict[str, Any]) -> None:
    if "status" in vector:
        with pytest.raises(Unsupported):
            IN_PROCESS[vector["endpoint"]](vector["body"])
        return
    check(vector, IN_PROCESS[vector["endpoint"]](vector["body"]))


def test_an_integer_noise_gets_the_bits_of_the_float(reader: TestClient) -> None:
    [vector] = [vector for vector in VECTORS if vector["id"] == "poisson-integer-noise"]
    as_float = copy.deepcopy(vector["body"])
    as_float["events"][0]["mechanism"]["noise_multiplier"] = 1.0
    assert account(vector["body"]) == account(as_float)
    # Python's JSON keeps the two apart: "1" and "1.0".
    assert json.dumps(vector["body"]) != json.dumps(as_float)
    headers = {"content-type": "application/json"}
    answers = [
        reader.post(vector["endpoint"], content=json.dumps(body), headers=headers)
        for body in (vector["body"], as_float)
    ]
    assert answers[0].status_code == 200
    assert answers[0].content == answers[1].content


@pytest.mark.parametrize(("epsilon", "truth"), [(0.5, CORRECTED["poisson-one-step-b"]), (1.0, 0.0578404059975115)])
def test_the_given_truth_of_one_entry_belongs_to_another_epsilon(epsilon: float, truth: float) -> None:
    """The hockey stick of the pair by quadrature, both directions: no closed form, and none of the engine's code."""
    [given] = [vector for vector in GIVEN if vector["id"] == "poisson-one-step-b"]
    assert given["body"]["epsilon"] == 0.5
    assert given["truth"] == 0.0578404059975115
    s, q = mp.mpf(given["body"]["events"][0]["mechanism"]["noise_multiplier"]), mp.mpf("0.2")

    def without(x: mp.mpf) -> mp.mpf:
        return mp.npdf(x, 0, s)

    def sampled(x: mp.mpf) -> mp.mpf:
        return (1 - q) * mp.npdf(x, 0, s) + q * mp.npdf(x, 1, s)

    with mp.workdps(30):
        alpha = mp.exp(mp.mpf(epsilon))
        sticks = []
        for p, r, odds in ((sampled, without, alpha), (without, sampled, 1 / alpha)):
            # Where the sampled density is `odds` times the other one: a corner of the integrand.
            ratio = (odds - (1 - q)) / q
            corner = [s**2 * mp.log(ratio) + mp.mpf(1) / 2] if ratio > 0 else []
            pieces = sorted([mp.mpf(x) for x in range(-8, 10)] + corner)
            sticks.append(mp.quad(lambda x, p=p, r=r: max(p(x) - alpha * r(x), 0), pieces))
    assert abs(max(sticks) - truth) < 1e-14


def check(vector: dict[str, Any], value: Interval) -> None:
    assert value.lower <= value.estimate <= value.upper
    if "truth" in vector:
        truth, tolerance = vector["truth"], vector["tolerance"]
        assert value.lower - tolerance <= truth <= value.upper + tolerance
        assert value.upper - truth <= tolerance
    assert value.upper <= vector.get("at_most", float("inf"))
    assert value.upper >= vector.get("at_least", 0.0)


def account(body: dict[str, Any]) -> Interval:
    events = [event_from_json({"sampling": {"kind": "full_batch"}} | event) for event in body["events"]]
    relation = NeighboringRelation(body["neighboring_relation"])
    if "delta" in body:
        return epsilon_for_delta(events, relation, body["delta"]).value
    return delta_for_epsilon(events, relation, body["epsilon"]).value


def converted(body: dict[str, Any]) -> Interval:
    target = dict(body["to"])
    [(_, value)] = [
        (name, value)
        for name, value in convert(guarantee_from_json(body["from"]), target.pop("kind"), **target)
        .guarantee.to_json()
        .items()
        if name in ("epsilon", "advantage")
    ]
    assert isinstance(value, float)
    return Interval(value, value, value)


def calibrated(body: dict[str, Any]) -> Interval:
    spec = Spec(
        dataset_size=body["dataset_size"],
        batch_size=body["batch_size"],
        iterations=body["iterations"],
        sampling=body["sampling"],
        neighboring_relation=NeighboringRelation(body["neighboring_relation"]),
        gradient_bound=Clip(body["gradient_bound"]["max_grad_norm"]),
        target=ApproximateDpTarget(body["target"]["epsilon"], body["target"]["delta"]),
    )
    plan = find_algorithm(body["algorithm"]).calibrate(spec).plan
    [noise] = {event.mechanism.noise_multiplier for event in plan.events if isinstance(event.mechanism, Gaussian)}
    return Interval(noise, noise, noise)


IN_PROCESS = {"/v1/account": account, "/v1/convert": converted, "/v1/calibrate": calibrated}
