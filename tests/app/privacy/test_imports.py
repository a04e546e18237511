"""`POST /v1/import`: histories of other libraries over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from app.privacy.imports import IMPORT_EXAMPLES


def ask(reader: Any, source: dict[str, Any], **more: Any) -> Any:
    return reader.post("/v1/import", json={"source": source, "delta": 1e-5} | more)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", IMPORT_EXAMPLES)
def test_every_example_runs_as_it_stands(reader: Any, name: str) -> None:
    answer = reader.post("/v1/import", json=IMPORT_EXAMPLES[name]["value"])
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["differences"]
    question = {
        "events": body["events"],
        "delta": body["delta"],
        "neighboring_relation": body["convention"]["neighboring_relation"],
    }
    assert reader.post("/v1/account", json=question).json()["epsilon"] == body["epsilon"]


def test_the_library_is_placed_beside_the_interval(reader: Any) -> None:
    history = {"kind": "opacus", "history": [[1.1, 0.1, 50]]}
    renyi = ask(reader, history | {"mechanism": "rdp"}).json()
    limit = ask(reader, history | {"mechanism": "gdp"}).json()
    assert renyi["reported"]["position"] == "above"
    assert renyi["reported"]["epsilon"] == pytest.approx(4.89909894882855, rel=1e-7)
    assert limit["reported"]["position"] == "below"
    assert any(difference["unsound"] for difference in limit["differences"])


def test_dp_accounting_answers_for_its_own_event(reader: Any) -> None:
    source = {"kind": "dp_event", "event": {"class_name": "GaussianDpEvent", "noise_multiplier": 1.0}}
    body = ask(reader, source, neighboring_relation="replace_one").json()
    assert body["reported"]["epsilon"] == pytest.approx(4.7285, abs=1e-3)
    assert body["reported"]["position"] == "below"
    assert body["epsilon"]["upper"] == pytest.approx(9.997256146434301)
    over = ask(reader, source | {"noise_over": "sensitivity"}, neighboring_relation="replace_one").json()
    assert over["epsilon"]["upper"] == pytest.approx(4.3771780956812246)


@pytest.mark.parametrize(
    ("source", "pointer"),
    [
        ({"kind": "opacus", "mechanism": "rdp", "history": [[1.1, 2.0, 50]]}, "/source"),
        ({"kind": "dp_event", "event": {"class_name": "GaussianDpEvent"}}, "/source/event/noise_multiplier"),
        ({"kind": "dp_event", "event": {"class_name": "NonPrivateDpEvent"}}, "/source/event"),
        ({"kind": "dp_event", "event": {"class_name": "NoOpDpEvent"}}, "/source/event"),
        (
            {"kind": "opacus", "mechanism": "rdp", "history": [[1.1, 0.01, 50]], "batches": "shuffled"},
            "/source",
        ),
    ],
)
def test_what_cannot_be_read_is_pointed_at(reader: Any, source: dict[str, Any], pointer: str) -> None:
    answer = ask(reader, source)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"].startswith(pointer)


SHUFFLED = "make_private(noise_multiplier=1.1, poisson_sampling=False)"
SIZES = {"dataset_size": 60_000, "batch_size": 600, "epochs": 10}


def paste(reader: Any, code: str, **known: Any) -> Any:
    beside = {name: known.pop(name) for name in ("delta", "neighboring_relation") if name in known}
    return reader.post("/v1/import", json={"source": {"kind": "call", "code": code} | known} | beside)


def test_a_pasted_call_is_told_what_it_truly_costs(reader: Any) -> None:
    body = paste(reader, SHUFFLED, delta=1e-5, **SIZES).json()
    # Ten full batches, as shuffled epochs are: mu = sqrt(10) / 1.1.
    assert body["epsilon"]["upper"] == pytest.approx(15.782719506735267)
    # What Opacus 1.6.0 answers for this history is in the tests of its accountants.
    assert body["reported"] | {"note": ""} == {
        "library": "Opacus",
        "accountant": "prv",
        "neighboring_relation": "add_or_remove_one",
        "epsilon": pytest.approx(1.5255, abs=1e-3),
        "position": "below",
        "note": "",
    }
    assert body["call"]["said"] == {"noise_multiplier": "1.1", "poisson_sampling": "False"}
    assert {each["name"] for each in body["call"]["assumed"]} >= {"accountant", "batches", "neighboring_relation"}
    assert body["convention"]["neighboring_relation"] == "replace_special"
    assert [each["code"] for each in body["differences"] if each["unsound"]] == ["shuffled_charged_as_poisson"]


def test_what_a_call_does_not_say_is_asked_for_at_each_field(reader: Any) -> None:
    answer = paste(reader, SHUFFLED)
    assert (answer.status_code, answer.json()["code"]) == (422, "missing")
    said = {each["pointer"]: each["detail"] for each in answer.json()["errors"]}
    assert set(said) == {"/source/dataset_size", "/source/batch_size", "/source/epochs", "/delta"}
    assert said["/source/dataset_size"] == "The call does not say how many records there are: fill it in."


@pytest.mark.parametrize(
    ("code", "known", "pointer", "problem"),
    [
        ("make_private(", {}, "/source/code", "invalid_value"),
        ("x" * 4001, {}, "/source/code", "too_long"),
        ("NonPrivateDpEvent()", {"delta": 1e-5}, "/source/code", "unsupported"),
        ("NoOpDpEvent()", {"delta": 1e-5}, "/source/code", "invalid_value"),
        ("GaussianDpEvent(-1.0)", {"delta": 1e-5}, "/source/code", "invalid_value"),
        ("compute_dp_sgd_privacy(600, 6, 1.1, 10, 1e-5)", {"epochs": 3}, "/source/epochs", "invalid_value"),
        ("compute_dp_sgd_privacy(600, 6, 1.1, 10, 1e-5)", {"delta": 1e-6}, "/delta", "invalid_value"),
        (SHUFFLED, SIZES | {"delta": 1e-5, "neighboring_relation": "add_or_remove_one"}, "/neighboring_relation", ""),
        ("SelfComposedDpEvent(PoissonSampledDpEvent(0.013, GaussianDpEvent(1.0)), 3)",
         {"delta": 1e-5, "batches": "shuffled"}, "/source/batches", "invalid_value"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_call_is_told_at_its_place(
    reader: Any, code: str, known: dict[str, Any], pointer: str, problem: str
) -> None:
    answer = paste(reader, code, **known)
    assert answer.status_code == 422, answer.text
    [fault] = answer.json()["errors"]
    assert fault["pointer"] == pointer, fault
    assert problem in fault["code"]


def test_a_history_needs_its_delta(reader: Any) -> None:
    source = {"kind": "opacus", "mechanism": "rdp", "history": [[1.1, 0.1, 50]]}
    answer = reader.post("/v1/import", json={"source": source})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/delta")


def test_a_library_that_charges_another_event_is_asked_for_that_one(reader: Any) -> None:
    """JAX Privacy charges batches of a fixed size as Poisson samples with half the noise."""
    code = (
        "DpParams(noise_multipliers=4.0, num_samples=600, delta=1e-5, batch_size=60, "
        "sampling_method=SamplingMethod.FIXED_BATCH_SIZE)"
    )
    body = paste(reader, code, steps=20).json()
    gaussian = {"class_name": "GaussianDpEvent", "noise_multiplier": 2.0}
    sampled = {"class_name": "PoissonSampledDpEvent", "sampling_probability": 0.1, "event": gaussian}
    event = {"class_name": "SelfComposedDpEvent", "event": sampled, "count": 20}
    charged = ask(reader, {"kind": "dp_event", "event": event, "accountant": "pld"}).json()
    assert body["reported"]["epsilon"] == charged["reported"]["epsilon"]
    assert body["reported"]["library"] == "JAX Privacy"
    assert body["events"][0]["sampling"]["kind"] == "without_replacement"
    assert body["convention"]["neighboring_relation"] == "replace_one"
