"""Verdicts on known answers, on statements that are false, and on bytes that are no certificate."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from epsilond_verifier import check
from flint import ctx

from accounting.canonical import number_to_string
from accounting.certificates import AT_MOST, MORE_THAN
from accounting.certificates.certificate import Statement
from accounting.events import DiscreteGaussian, Event, Gaussian, Laplace, Poisson, PureDp
from accounting.events.event import event_from_json
from accounting.relations import NeighboringRelation
from tests.clients.verifier.cases import (
    ADD,
    KNOWN,
    NULL,
    REPLACE,
    best,
    certificate,
    changed,
    fresh,
    mutated,
    numbers,
    statement,
)

GAUSSIAN = {
    "mechanism": {"kind": "gaussian", "noise_multiplier": 1.0},
    "sampling": {"kind": "full_batch"},
    "count": 1,
}
CLOSED = certificate(AT_MOST, [GAUSSIAN], "add_or_remove_one", 4.377178096, 1e-5, {"both": {"form": "gaussian"}})


@pytest.mark.one_in(12)
@pytest.mark.parametrize("name", KNOWN)
def test_known_answers_are_proved_at_both_ends_and_not_exchanged(name: str) -> None:
    known = KNOWN[name]
    above, below = known.high * (1 + known.slack), known.low * (1 - known.slack)
    high, low = best(statement(AT_MOST, known, above)), best(statement(MORE_THAN, known, below))
    assert high[1].verdict == low[1].verdict == "verified", (high[1].reason, low[1].reason)
    assert fresh(statement(AT_MOST, known, below)) != "verified"
    assert fresh(statement(MORE_THAN, known, above)) != "verified"
    # The witness of one claim proves the other one's falsity as far as its bounds go, and never the other one.
    spelled = ["statement", "delta"]
    assert check(changed(high[0], spelled, number_to_string(below))).verdict != "verified"
    assert check(changed(low[0], spelled, number_to_string(above))).verdict != "verified"
    assert check(changed(high[0], ["statement", "claim"], MORE_THAN)).verdict in ("refuted", "cannot check")


def test_closed_forms_refute_what_is_false() -> None:
    assert check(CLOSED).verdict == "verified"
    assert check(changed(CLOSED, ["statement", "delta"], "9.99999e-06")).verdict == "refuted"
    assert check(changed(CLOSED, ["statement", "claim"], MORE_THAN)).verdict == "refuted"
    assert check(changed(CLOSED, ["statement", "epsilon"], "4.377")).verdict == "refuted"


def test_a_verdict_on_several_steps_names_the_theorem_of_composition() -> None:
    """Full batches are steps, too, although their losses add up to one normal loss."""
    for count, several in (("1", False), ("2", True)):
        verdict = check(changed(CLOSED, ["statement", "events", 0, "count"], count))
        assert any(theorem.startswith("compositions") for theorem in verdict.assumed) == several


def test_a_verdict_on_noise_that_adds_up_names_the_theorem_of_composition() -> None:
    """Steps of discrete Gaussian noise are taken as one step, and are several."""
    form = {"both": {"form": "outcomes"}}
    for count in (1, 2):
        event = Event(DiscreteGaussian(4.0, 1.0), count=count).to_json()
        verdict = check(certificate(AT_MOST, [event], str(ADD), 2.0, 0.5, form))
        assert verdict.verdict == "verified"
        assert any(theorem.startswith("compositions") for theorem in verdict.assumed) == (count > 1)


@pytest.mark.parametrize(
    ("event", "relation", "epsilon", "delta"),
    [
        (Event(PureDp(0.1), count=100), REPLACE, 4.307, 9.99097089303e-06),
        (Event(Gaussian(1.0), Poisson(0.01)), ADD, 0.5, 2.2145190132e-07),
        (Event(Gaussian(0.5), Poisson(0.01)), ADD, 1.0, 0.00027363749225),
        (Event(Laplace(0.5)), ADD, 1.0, 0.3934693402873666),
    ],
)
def test_closed_forms_agree_with_published_digits(
    event: Event, relation: NeighboringRelation, epsilon: float, delta: float
) -> None:
    for claim, factor in ((AT_MOST, 1 + 3e-6), (MORE_THAN, 1 - 3e-6)):
        verdict = best(Statement(claim, (event,), relation, epsilon, delta * factor))[1]
        assert verdict.verdict == "verified", verdict.reason


def _tampered(name: str) -> list[tuple[str, list[str | int], str]]:
    """Return changes of the statement that make it stronger, as far as it has such numbers."""
    known = KNOWN[name]
    first = known.events[0]
    changes: list[tuple[str, list[str | int], str]] = [
        ("epsilon", ["statement", "epsilon"], number_to_string(known.epsilon * (1 - 1e-4))),
        ("epsilon, a little", ["statement", "epsilon"], number_to_string(known.epsilon * (1 - 3e-6))),
        ("delta", ["statement", "delta"], number_to_string(known.high * (1 - 1e-3))),
        ("count", ["statement", "events", 0, "count"], str(first.count + max(1, first.count // 1000))),
    ]
    noise = number_to_string(first.mechanism.noise_multiplier * (1 - 1e-4))
    changes.append(("noise", ["statement", "events", 0, "mechanism", "noise_multiplier"], noise))
    if isinstance(first.sampling, Poisson):
        probability = number_to_string(first.sampling.sampling_probability * (1 + 1e-3))
        changes.append(("probability", ["statement", "events", 0, "sampling", "sampling_probability"], probability))
        if known.relation is ADD:
            changes.append(("relation", ["statement", "relation"], "replace_one"))
    else:
        changes.append(
            ("batch", ["statement", "events", 0, "sampling", "batch_size"], str(first.sampling.batch_size + 1))
        )
    return changes


def _stated(data: bytes) -> Statement:
    """Return the statement that tampered bytes make."""

    read = json.loads(data)["statement"]
    events = tuple(event_from_json(event) for event in read["events"])
    return Statement(
        MORE_THAN, events, NeighboringRelation(read["relation"]), float(read["epsilon"]), float(read["delta"])
    )


@pytest.mark.one_in(1000)
@pytest.mark.parametrize("name", ["P1", "P2", "F2", "D1", "S1", "L1"])
def test_no_false_statement_is_verified_whatever_the_witness(name: str) -> None:
    known = KNOWN[name]
    honest, verdict = best(statement(AT_MOST, known, known.high * (1 + known.slack)))
    assert verdict.verdict == "verified"
    rng = random.Random(name)
    shown = 0
    for what, path, value in _tampered(name):
        false = changed(honest, path, value)
        if fresh(_stated(false)) != "verified":
            continue  # The change is too small to be seen: the statement may be true.
        shown += 1
        assert check(false).verdict != "verified", what
        assert fresh(replace(_stated(false), claim=AT_MOST)) != "verified", what
        places = numbers(false)
        for _ in range(6):
            other = false
            for where, text in rng.sample(places, rng.randint(1, 3)):
                other = changed(other, where, mutated(text, rng))
            assert check(other).verdict != "verified", (what, other)
    assert shown >= 4


def test_a_direction_may_not_be_missing_and_none_may_be_added() -> None:
    known = KNOWN["P1"]
    honest, _ = best(statement(AT_MOST, known, known.high * 1.001))
    for name in ("add", "remove"):
        alone = check(changed(honest, ["witness", "directions", name], None))
        assert alone.verdict == "cannot check"
        assert "lacks a proof for a direction" in alone.reason
    both = json.loads(honest)["witness"]["directions"]["add"]
    assert "unknown keys: ['both']" in check(changed(honest, ["witness", "directions", "both"], both)).reason


def test_a_short_period_proves_nothing_from_below() -> None:
    """The sum has nonnegative aliases: it is above delta, and bounds nothing from below until they are taken off."""
    known = KNOWN["P2"]
    data, verdict = best(statement(MORE_THAN, known, known.low * (1 - 1e-9)))
    assert verdict.verdict == "verified"
    line = ["witness", "directions", "both"]
    period = float(json.loads(data)["witness"]["directions"]["both"]["period"])
    assert check(changed(data, [*line, "far"], None)).verdict == "cannot check"
    too_much = changed(data, ["statement", "delta"], number_to_string(known.high * 1.001))
    seen = set()
    for share in (0.7, 0.5, 0.4, 0.35, 0.3, 0.25, 0.2):
        short = changed(too_much, [*line, "period"], number_to_string(float(f"{share * period:.3g}")))
        seen.add(check(short).verdict)
        # From above it stays sound: the sum is too large, not too small.
        below = changed(
            changed(short, ["statement", "claim"], AT_MOST),
            ["statement", "delta"],
            number_to_string(known.low * (1 - 1e-9)),
        )
        seen.add(check(below).verdict)
    assert "verified" not in seen


def test_a_bound_that_does_not_apply_says_nothing() -> None:
    """A form that bounds from above alone proves nothing from below, also where it does not apply."""
    sampled = {**GAUSSIAN, "sampling": {"kind": "poisson", "sampling_probability": 0.01}, "count": 10}
    for direction in ("add", "remove"):
        for epsilon in (0.01, 1.0):
            witness = {direction: {"form": "bounded"}}
            data = certificate(MORE_THAN, [sampled], "add_or_remove_one", epsilon, 0.0, witness)
            assert check(data).verdict == "cannot check"


@pytest.mark.thorough
def test_verdicts_do_not_depend_on_the_order_of_events() -> None:
    known = KNOWN["L1"]
    for claim, delta in ((AT_MOST, known.high * (1 + 1e-9)), (MORE_THAN, known.low * (1 - 1e-9))):
        data, verdict = best(statement(claim, known, delta))
        whole = json.loads(data)
        for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)):
            moved = json.loads(data)
            moved["statement"]["events"] = [whole["statement"]["events"][k] for k in order]
            for form in moved["witness"]["directions"].values():
                form["steps"] = [form["steps"][k] for k in order]
                if "far" in form:
                    form["far"]["steps"] = [form["far"]["steps"][k] for k in order]
            text = json.dumps(moved, sort_keys=True, separators=(",", ":"))
            assert check(text.encode()).verdict == verdict.verdict == "verified"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b'"4.377178096"', b'"4.3771780960"', "shortest spelling"),
        (b'"4.377178096"', b'" 4.377178096"', "shortest spelling"),
        (b'"4.377178096"', b'"4_3"', "shortest spelling"),
        (b'"4.377178096"', b'"nan"', "shortest spelling"),
        (b'"4.377178096"', b'"inf"', "shortest spelling"),
        (b'"4.377178096"', b'"-1"', "shortest spelling"),
        (b'"4.377178096"', b"4.377178096", "must be written as a string"),
        (b'"4.377178096"', b"NaN", "must be written as a string"),
        (b'"4.377178096"', b"true", "must be a number"),
        (b'"4.377178096"', b'"four"', "must be a number"),
        (b'"1e-05"', b'"1e-5"', "shortest spelling"),
        (b'"1e-05"', b'"1.5"', "from 0.0 to 1.0"),
        (b'"count":"1"', b'"count":"01"', "must be an integer"),
        (b'"count":"1"', b'"count":"1.0"', "must be an integer"),
        (b'"count":"1"', b'"count":"0"', "must be an integer"),
        (b'"count":"1"', b'"count":"\xd9\xa1"', "must be an integer"),
        (b'"count":"1"', b'"count":"1","count":"2"', "an object repeats a key"),
        (b'"precision":"128"', b'"precision":"4096"', "from 32 to 2048"),
        (b'{"form":"gaussian"}', b'{"form":"gaussian","more":"1"}', "unknown keys: ['more']"),
        (b'{"form":"gaussian"}', b'{"form":"believe"}', "must be one of"),
        (b'{"both":', b'{"remove":', "unknown keys: ['remove']"),
        (b'"full_batch"', b'"full_batch","q":"1"', "unknown keys: ['q']"),
        (b'"noise_multiplier":"1"', b'"noise_multiplier":"0"', "shortest spelling"),
        (b"epsilon-certificate/1", b"epsilon-certificate/2", "must be one of"),
        (b'"claim":"at_most"', b'"claim":"about"', "must be one of"),
        (b'"events":[{', b'"events":[null,{', "must be an object"),
        (b'"epsilon"', b'"epsilom"', "lacks epsilon"),
        (b'"128"}}', b'"128"}} ', "the JSON must be canonical"),
        (b'"format"', b' "format"', "the JSON must be canonical"),
        (b'"gaussian"}}', b'"g\\u0061ussian"}}', "the JSON must be canonical"),
        (b'"gaussian"}}', b'"\\ud800"}}', "is not JSON"),
        (b'"both"', b"\xff", "is not JSON"),
    ],
)
def test_bytes_that_are_no_certificate_are_refused_with_the_reason(old: bytes, new: bytes, reason: str) -> None:
    assert old in CLOSED
    found = check(CLOSED.replace(old, new, 1))
    assert found.verdict == "cannot check"
    assert reason in found.reason, found.reason


CORRELATED = {"kind": "correlated_gaussian", "noise_multiplier": 2.0, "coefficients": [1.0, 0.5]}
CYCLES = {"kind": "cyclic_poisson", "sampling_probability": 0.1, "cycle_length": 4}
DISCRETE = {"kind": "discrete_laplace", "noise_multiplier": 2.0, "grid": 0.3}
RESPONSE = {"kind": "randomized_response", "num_categories": 2, "flip_probability": 0.5}


@pytest.mark.parametrize(
    ("mechanism", "sampling", "relation", "reason"),
    [
        (CORRELATED, CYCLES | {"assignment": "by_position"}, "add_or_remove_one", "this verifier does not cover"),
        (CORRELATED, CYCLES | {"assignment": "independent"}, "replace_one", "this verifier does not cover"),
        (
            CORRELATED,
            CYCLES | {"cycle_length": 1, "assignment": "independent"},
            "add_or_remove_one",
            "more coefficients than steps in a cycle",
        ),
        (CORRELATED | {"coefficients": [0.5, 1.0]}, {"kind": "full_batch"}, "replace_one", "none may increase"),
        (CORRELATED | {"coefficients": [0.0]}, {"kind": "full_batch"}, "replace_one", "must be positive"),
        (
            CORRELATED,
            {"kind": "fixed_order_epochs", "steps_per_epoch": 4},
            "add_or_remove_one",
            "this verifier does not cover",
        ),
        (
            GAUSSIAN["mechanism"],
            {"kind": "shuffled_epochs", "steps_per_epoch": 4},
            "add_or_remove_one",
            "this verifier does not cover",
        ),
        (
            GAUSSIAN["mechanism"],
            {"kind": "disjoint_batches", "assignment": "by_position"},
            "add_or_remove_one",
            "this verifier does not cover",
        ),
        (
            GAUSSIAN["mechanism"],
            {"kind": "without_replacement", "batch_size": 5, "dataset_size": 50},
            "add_or_remove_one",
            "this verifier does not cover",
        ),
        (RESPONSE, {"kind": "full_batch"}, "add_or_remove_one", "this verifier does not cover"),
        (DISCRETE, {"kind": "full_batch"}, "replace_one", "the grid must be the inverse of an integer"),
        (DISCRETE | {"grid": 0.5}, {"kind": "full_batch"}, "replace_one", "a closed form needs one step"),
    ],
)
def test_what_no_theorem_covers_is_not_checked(
    mechanism: dict[str, object], sampling: dict[str, object], relation: str, reason: str
) -> None:
    event = {"mechanism": mechanism, "sampling": sampling, "count": 8}
    found = check(certificate(AT_MOST, [event], relation, 1e6, 1.0, {"both": {"form": "gaussian"}}))
    assert found.verdict == "cannot check"
    assert reason in found.reason, found.reason


def test_limits_come_before_arrays() -> None:
    data, _ = best(statement(AT_MOST, KNOWN["P1"], 1.1e-5))
    line = ["witness", "directions", "remove"]
    widest = changed(changed(data, [*line, "steps", 0, "high"], "10000"), [*line, "steps", 0, "low"], "-9999")
    for moved, reason in (
        (changed(data, [*line, "points"], "400001"), "must be an integer"),
        (changed(data, [*line, "steps", 0, "high"], "20001"), "must be an integer"),
        (changed(data, [*line, "steps", 0, "low"], "-20001"), "must be an integer"),
        (changed(widest, [*line, "points"], "20001"), "nodes at 20001 points"),
    ):
        found = check(moved)
        assert found.verdict == "cannot check"
        assert reason in found.reason, found.reason


@pytest.mark.thorough
def test_the_line_of_a_cut_has_limits_too() -> None:
    data, verdict = best(statement(AT_MOST, KNOWN["B1"], 1.1e-6))
    assert verdict.verdict == "verified"
    cut = ["witness", "directions", "remove"]
    wide = changed(changed(data, [*cut, "above", "high"], "18000"), [*cut, "points"], "9000")
    assert "nodes at 9000 points" in check(wide).reason


def test_nesting_and_length_are_refused() -> None:
    assert "it may have" in check(b"1" * (2**20 + 1)).reason
    assert check(b"[" * 1_000_000).verdict == "cannot check"
    data, _ = best(statement(AT_MOST, KNOWN["P1"], 1.1e-5))
    nodes = json.loads(data)["witness"]["directions"]["remove"]["steps"][0]
    plain = {key: value for key, value in nodes.items() if key != "envelope"}
    spelled = {
        key: json.dumps(value, sort_keys=True, separators=(",", ":"))
        for key, value in (("own", nodes), ("plain", plain))
    }
    for depth in (2, 50, 5000):
        start, end = spelled["plain"].split('"high":')
        deep = f'{start}"envelope":' * depth + spelled["plain"] + f',"high":{end}' * depth
        found = check(data.replace(spelled["own"].encode(), deep.encode()))
        assert found.verdict == "cannot check"
        assert depth != 2 or "has unknown keys: ['envelope']" in found.reason


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["P2", "L1"])
def test_no_flipped_byte_makes_a_false_statement_pass(name: str) -> None:
    """Whatever byte is flipped, bytes that are still verified state something that is true."""
    known = KNOWN[name]
    data, _ = best(statement(AT_MOST, known, known.high * (1 + 1e-9)))
    rng = random.Random(7)
    for _ in range(150):
        at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        flipped = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
        if check(flipped).verdict != "verified" or json.loads(flipped)["statement"] == json.loads(data)["statement"]:
            continue
        assert best(replace(_stated(flipped), claim=AT_MOST))[1].verdict == "verified"
        assert fresh(_stated(flipped)) != "verified"


def test_the_same_bytes_get_the_same_verdict_and_leave_the_precision_alone() -> None:
    data, first = best(statement(AT_MOST, KNOWN["M1"], 1e-11))
    before = ctx.prec
    assert check(data) == check(data) == first
    assert ctx.prec == before
    assert len(first.sha256) == 64
    assert "FLINT 3." in first.checked_with
    assert any("Zhu, Dong & Wang 2022" in theorem for theorem in first.assumed)
    assert NULL.value in first.statement
