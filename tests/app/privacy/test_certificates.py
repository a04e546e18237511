"""`"certificate": true` in `POST /v1/account`: both ends, verified, in the answer."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from epsilond_verifier import check

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.events import Event, Gaussian
from accounting.intervals import Interval
from accounting.relations import NeighboringRelation
from app.kit.process_pool import JobFailed
from app.privacy.certificates import certificates
from tests.app.problem_assertions import assert_problem

POISSON = {
    "mechanism": {"kind": "gaussian", "noise_multiplier": 1.0},
    "sampling": {"kind": "poisson", "sampling_probability": 0.01},
    "count": 1000,
}


def account(reader: Any, event: dict[str, Any], **question: Any) -> Any:
    return reader.post("/v1/account", json={"events": [event], "certificate": True} | question)


@pytest.mark.parametrize("question", [{"delta": 1e-5}, {"epsilon": 1.5}])
def test_both_ends_are_certified(reader: Any, question: dict[str, float]) -> None:
    body = account(reader, POISSON, **question).json()
    found = body["certificates"]
    wanted = "epsilon" if "delta" in question else "delta"
    assert found["notes"] == []
    for end, claim, words in (("upper", "at_most", "epsilon <= "), ("lower", "more_than", "epsilon > ")):
        certificate = found[end]
        assert certificate["claim"] == claim
        assert certificate[wanted] == body[wanted][end]
        data = certificate["certificate"].encode()
        assert certificate["sha256"] == hashlib.sha256(data).hexdigest()
        verdict = check(data)
        assert verdict.verdict == certificate["verdict"] == "verified"
        assert verdict.statement.startswith(words)
        assert certificate["assumed"] == list(verdict.assumed)
    plain = reader.post("/v1/account", json={"events": [POISSON]} | question).json()
    assert plain[wanted] == body[wanted]
    assert "certificates" not in plain


def test_an_end_without_a_certificate_says_why(reader: Any) -> None:
    body = account(reader, {"mechanism": {"kind": "zcdp", "rho": 0.1}}, delta=1e-5).json()
    assert body["epsilon"]["upper"] > 0
    assert body["certificates"]["upper"] is None
    assert "no certificate covers zcdp" in body["certificates"]["notes"][0]


def test_an_end_at_zero_is_not_stated(reader: Any) -> None:
    body = account(reader, {"mechanism": {"kind": "gaussian", "noise_multiplier": 1000.0}}, delta=0.4).json()
    assert body["epsilon"]["lower"] == 0
    assert body["certificates"]["lower"] is None
    assert "this end is 0" in body["certificates"]["notes"][-1]
    assert body["certificates"]["upper"]["verdict"] == "verified"


@pytest.mark.parametrize("relation", ["replace_one", "replace_special"])
def test_draws_with_replacement_are_certified_from_above(reader: Any, relation: str) -> None:
    batches = {"kind": "with_replacement", "batch_size": 20, "dataset_size": 1000}
    event = {"mechanism": {"kind": "gaussian", "noise_multiplier": 12.0}, "sampling": batches, "count": 600}
    body = account(reader, event, delta=1e-5, neighboring_relation=relation).json()
    found = body["certificates"]
    assert found["upper"]["epsilon"] == body["epsilon"]["upper"], found["notes"]
    assert check(found["upper"]["certificate"].encode()).verdict == "verified"
    assert any(assumed.startswith("draws are dominated by a mixture") for assumed in found["upper"]["assumed"])
    assert found["lower"] is None
    assert "is not attained" in found["notes"][-1]


@pytest.mark.parametrize("question", [{"delta": 1e-5}, {"epsilon": 4.0}])
def test_groups_are_certified(reader: Any, question: dict[str, float]) -> None:
    body = account(reader, POISSON, group_size=3, **question).json()
    found = body["certificates"]
    wanted = "epsilon" if "delta" in question else "delta"
    for end in ("upper", "lower"):
        assert found[end][wanted] == body[wanted][end], found["notes"]
        verdict = check(found[end]["certificate"].encode())
        assert verdict.verdict == "verified"
        assert verdict.statement.endswith("and groups of 3 records")


@pytest.mark.parametrize("question", [{"delta": [1e-5, 1e-6]}, {"epsilon": [1.0]}])
def test_lists_are_refused(reader: Any, question: dict[str, Any]) -> None:
    assert_problem(account(reader, POISSON, **question), 422, "unsupported", "/certificate")


def test_a_failure_leaves_the_answer(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise JobFailed("it took longer than 20 s")

    monkeypatch.setattr(reader.app.state.context.processes, "run", fail)
    body = account(reader, {"mechanism": {"kind": "gaussian", "noise_multiplier": 3.0}}, delta=1e-5).json()
    assert body["epsilon"]["upper"] > 1
    assert body["certificates"]["upper"] is None
    assert "it took longer than 20 s" in body["certificates"]["notes"][0]
    monkeypatch.undo()
    again = account(reader, {"mechanism": {"kind": "gaussian", "noise_multiplier": 3.0}}, delta=1e-5).json()
    assert again["certificates"]["upper"]["verdict"] == "verified", "an answer without certificates is not kept"


@pytest.mark.parametrize(("field", "asked"), [("delta", 1e-5), ("epsilon", 1.0)])
def test_an_end_that_is_not_proved_as_it_is_is_certified_a_little_wider_and_a_note_says_so(
    reader: Any, field: str, asked: float
) -> None:
    """An upper end that is a billionth too low, and a lower one that is too high: true once they are widened."""
    events, relation = (Event(Gaussian(2.0)),), NeighboringRelation.ADD_OR_REMOVE_ONE
    answer = epsilon_for_delta if field == "delta" else delta_for_epsilon
    true = answer(events, relation, asked).value
    too_high, too_low = true.upper * (1.0 + 1e-9), true.lower * (1.0 - 1e-9)
    above = Interval(too_high, too_high, too_high)
    below = Interval(0.0, too_low, too_low)
    for value, end, claim in ((below, "upper", "at_most"), (above, "lower", "more_than")):
        found = certificates(reader.app.state.context, events, relation, field, asked, value)
        certificate = getattr(found, end)
        assert (certificate.claim, certificate.verdict) == (claim, "verified")
        stated = getattr(certificate, "epsilon" if field == "delta" else "delta")
        wider = 1.0 + 1e-6 if end == "upper" else 1.0 - 1e-6
        assert stated == getattr(value, end) * wider
        assert check(certificate.certificate.encode()).verdict == "verified"
        assert f"The {end} end is certified a millionth of itself wider than the interval is." in found.notes
