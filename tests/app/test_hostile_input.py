"""Bodies that no honest client sends. Every one gets an answer of the contract's shape, and none is echoed."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.kit import limits
from tests.app.problem_assertions import assert_problem

JSON = {"content-type": "application/json"}
GAUSSIAN: dict[str, Any] = {"mechanism": {"kind": "gaussian", "noise_multiplier": 2.0}, "count": 3}
REQUEST: dict[str, Any] = {"events": [GAUSSIAN], "neighboring_relation": "add_or_remove_one", "delta": 1e-5}


def changed(**fields: Any) -> dict[str, Any]:
    return {**REQUEST, **fields}


def changed_event(**fields: Any) -> dict[str, Any]:
    return changed(events=[{**copy.deepcopy(GAUSSIAN), **fields}])


def changed_mechanism(**fields: Any) -> dict[str, Any]:
    return changed_event(mechanism={**GAUSSIAN["mechanism"], **fields})


def test_the_unchanged_request_is_answered(reader: TestClient) -> None:
    response = reader.post("/v1/account", json=REQUEST)
    assert response.status_code == 200, response.text


NOISE = "/events/0/mechanism/noise_multiplier"


@pytest.mark.parametrize(
    ("literal", "code"),
    [
        ("NaN", "not_finite"),
        ("Infinity", "not_finite"),
        ("-Infinity", "not_finite"),
        ("1e400", "not_finite"),
        ("-1e400", "not_finite"),
        ("1e-400", "not_finite"),
        ("-0.001E-999", "not_finite"),
        ("9" * 400, "not_finite"),
        ("9" * 5000, "not_finite"),
    ],
)
def test_a_number_that_is_not_finite_is_refused_where_it_stands(reader: TestClient, literal: str, code: str) -> None:
    text = json.dumps(changed_mechanism(noise_multiplier=7777)).replace("7777", literal)
    assert_problem(reader.post("/v1/account", content=text, headers=JSON), 422, code, NOISE, code)


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        (changed_mechanism(noise_multiplier=True), NOISE, "wrong_type"),
        (changed_mechanism(noise_multiplier="2.0"), NOISE, "wrong_type"),
        (changed_mechanism(noise_multiplier=None), NOISE, "wrong_type"),
        (changed_mechanism(noise_multiplier=[2.0]), NOISE, "wrong_type"),
        (changed_event(count=True), "/events/0/count", "wrong_type"),
        (changed_event(count="3"), "/events/0/count", "wrong_type"),
        (changed_event(count=2.5), "/events/0/count", "wrong_type"),
        (changed_event(count=0), "/events/0/count", "out_of_range"),
        (changed_event(count=10**9), "/events/0/count", "out_of_range"),
        (changed(delta=True), "/delta", "wrong_type"),
        (changed(delta="1e-5"), "/delta", "wrong_type"),
        (changed(delta=0.9), "/delta", "out_of_range"),
        (changed(delta=[1e-5, 0.9]), "/delta/1", "out_of_range"),
        (changed(delta=[1e-5, True]), "/delta/1", "wrong_type"),
        (changed(neighboring_relation="both"), "/neighboring_relation", "unknown_value"),
        (changed(neighboring_relation=7), "/neighboring_relation", "unknown_value"),
        (changed(detla=1), "/detla", "unknown_field"),
        (changed_event(sampled=1), "/events/0/sampled", "unknown_field"),
        (changed_mechanism(sigma=1), "/events/0/mechanism/sigma", "unknown_field"),
        (changed_mechanism(kind="gausian"), "/events/0/mechanism/kind", "unknown_value"),
        (changed_event(mechanism={"noise_multiplier": 2.0}), "/events/0/mechanism/kind", "missing"),
        (changed_event(mechanism={"kind": "gaussian"}), NOISE, "missing"),
        (changed_event(mechanism=5), "/events/0/mechanism", "wrong_type"),
        (changed(events={}), "/events", "wrong_type"),
        (changed(events=[]), "/events", "too_short"),
        (changed(events=[GAUSSIAN] * 1001), "/events", "too_long"),
        ([REQUEST], "", "wrong_type"),
        ("text", "", "wrong_type"),
        (None, "", "missing"),
    ],
)
def test_wrong_types_and_unknown_fields_are_refused_where_they_stand(
    reader: TestClient, body: Any, pointer: str, code: str
) -> None:
    problem = assert_problem(reader.post("/v1/account", json=body), 422, "invalid_request", pointer, code)
    assert {item["pointer"] for item in problem["errors"]} == {pointer}


def test_an_integral_float_is_an_integer(reader: TestClient) -> None:
    as_float = reader.post("/v1/account", json=changed_event(count=3.0))
    as_integer = reader.post("/v1/account", json=changed_event(count=3))
    assert as_float.status_code == 200
    assert as_float.json() == as_integer.json()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_request"),
        (b"{", "malformed_json"),
        (b"{'delta': 1}", "malformed_json"),
        (b'{"delta": 1,}', "malformed_json"),
        (b'{"delta": 01}', "malformed_json"),
        (b"\xff\xfe{}", "malformed_json"),
        (b'{"\xc3\x28": 1}', "malformed_json"),
        (b"\xef\xbb\xbf{}", "malformed_json"),
        ('{"delta": 1}'.encode("utf-16"), "malformed_json"),
        (b'{"delta": 1, "delta": 2}', "repeated_key"),
        (b'{"neighboring_relation": "\\ud800"}', "malformed_text"),
        (b'{"neighboring_relation": "a\\u0000b"}', "malformed_text"),
        (b'{"a\\u0000b": 1}', "malformed_text"),
        (b"[" * (limits.JSON_DEPTH + 1) + b"]" * (limits.JSON_DEPTH + 1), "nested_too_deeply"),
        (b"[" * 100_000, "nested_too_deeply"),
        (b'{"a":' * 100_000, "nested_too_deeply"),
    ],
)
def test_what_is_not_json_is_refused(reader: TestClient, body: bytes, code: str) -> None:
    assert_problem(reader.post("/v1/account", content=body, headers=JSON), 422, code)


def test_a_repeated_key_is_named(reader: TestClient) -> None:
    body = b'{"events": [{"count": 1, "count": 2}]}'
    assert_problem(reader.post("/v1/account", content=body, headers=JSON), 422, "repeated_key", "/events/0/count")


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
        "application/xml",
        "json",
        "",
    ],
)
def test_another_content_type_is_415(reader: TestClient, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    response = reader.post("/v1/account", content=json.dumps(REQUEST).encode(), headers=headers)
    assert_problem(response, 415, "unsupported_media_type")


def test_a_compressed_body_is_415(reader: TestClient) -> None:
    response = reader.post("/v1/account", content=b"x", headers={**JSON, "content-encoding": "gzip"})
    assert_problem(response, 415, "unsupported_media_type")


def padded(size: int) -> bytes:
    text = json.dumps(REQUEST).encode()
    return text + b" " * (size - len(text))


def test_a_body_of_exactly_the_limit_is_read_and_one_byte_more_is_413(reader: TestClient) -> None:
    assert reader.post("/v1/account", content=padded(limits.JSON_BODY_BYTES), headers=JSON).status_code == 200
    response = reader.post("/v1/account", content=padded(limits.JSON_BODY_BYTES + 1), headers=JSON)
    assert_problem(response, 413, "body_too_large")


def test_a_body_without_a_length_is_counted(reader: TestClient) -> None:
    whole = padded(limits.JSON_BODY_BYTES + 1)
    chunks = (whole[i : i + 65536] for i in range(0, len(whole), 65536))
    assert_problem(reader.post("/v1/account", content=chunks, headers=JSON), 413, "body_too_large")


@pytest.mark.parametrize("declared", ["5", "99999999999", "9" * 30, "-1", "x"])
def test_a_length_that_lies_changes_nothing(reader: TestClient, declared: str) -> None:
    headers = {**JSON, "content-length": declared}
    response = reader.post("/v1/account", content=padded(limits.JSON_BODY_BYTES + 1), headers=headers)
    assert_problem(response, 413, "body_too_large")


def test_an_upload_is_counted_while_it_streams(reader: TestClient) -> None:
    upload = {"file": ("rows.csv", b"1,2\n" * 4096, "text/csv")}
    key = {"idempotency-key": "upload"}
    assert_problem(reader.post("/v1/datasets", files=upload, headers=key), 413, "body_too_large")
    request = reader.build_request("POST", "/v1/datasets", files=upload)
    content = request.read()
    chunks = (content[i : i + 1000] for i in range(0, len(content), 1000))
    headers = {"content-type": request.headers["content-type"], **key}
    assert_problem(reader.post("/v1/datasets", content=chunks, headers=headers), 413, "body_too_large")


def test_an_upload_elsewhere_is_415(reader: TestClient) -> None:
    response = reader.post("/v1/account", files={"file": ("rows.csv", b"1,2\n", "text/csv")})
    assert_problem(response, 415, "unsupported_media_type")


SECRET = "QXZ9317"


@pytest.mark.parametrize(
    "body",
    [
        changed(delta=SECRET),
        changed(neighboring_relation=SECRET),
        changed_mechanism(kind=SECRET),
        changed_mechanism(noise_multiplier=SECRET),
        changed_mechanism(noise_multiplier=-9317.5),
        changed_event(sampling=SECRET),
        changed_event(sampling={"kind": SECRET}),
        changed_event(count=SECRET),
        SECRET,
        [SECRET],
    ],
)
def test_the_body_is_never_echoed(reader: TestClient, body: Any) -> None:
    response = reader.post("/v1/account", json=body)
    assert response.status_code == 422
    assert "9317" not in response.text


def test_malformed_bodies_are_never_echoed(reader: TestClient) -> None:
    for body in (b"{QXZ9317", b'"QXZ9317', b'{"delta": QXZ9317}', b"\xff QXZ9317"):
        response = reader.post("/v1/account", content=body, headers=JSON)
        assert_problem(response, 422, "malformed_json")
        assert "QXZ9317" not in response.text


def test_a_long_field_name_is_cut_and_many_faults_are_too(reader: TestClient) -> None:
    body = assert_problem(reader.post("/v1/account", json=changed(**{"x" * 10_000: 1})), 422, "invalid_request")
    assert len(body["errors"][0]["pointer"]) == limits.POINTER_LENGTH
    body = assert_problem(
        reader.post("/v1/account", json=changed(**{f"x{i}": 1 for i in range(1000)})), 422, "invalid_request"
    )
    assert len(body["errors"]) == limits.LISTED_FAULTS


@pytest.mark.parametrize("path", ["/v1/algorithms/%00", "/v1/algorithms/%ff%fe", "/v1/algorithms?cursor=%00"])
def test_an_address_that_is_not_text_is_400(reader: TestClient, path: str) -> None:
    assert_problem(reader.get(path), 400, "malformed_url")
