"""Statements at the ends of all ranges against exact values, and what hostile bytes may ask for or print."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import mpmath as mp
import pytest
from epsilond_verifier import check
from epsilond_verifier.__main__ import main

from accounting.canonical import canonical_text, number_to_string
from accounting.certificates import AT_MOST, MORE_THAN
from accounting.events import (
    DiscreteLaplace,
    DisjointBatches,
    Event,
    Gaussian,
    GaussianMixture,
    Laplace,
    Poisson,
    Sampling,
    ShuffledEpochs,
    TruncatedPoisson,
    WithoutReplacement,
)
from accounting.relations import NeighboringRelation
from tests.clients.verifier.cases import ADD, NULL, REPLACE, certificate, changed
from tests.clients.verifier.test_verdicts import CLOSED

# One step of every kind, to fifty digits, by bisection and sums of tails.


def _cdf(x: mp.mpf) -> mp.mpf:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _binomial(n: int, q: mp.mpf) -> list[mp.mpf]:
    return [mp.binomial(n, h) * q**h * (1 - q) ** (n - h) for h in range(n + 1)]


def _sampled(s: mp.mpf, weights: Sequence[mp.mpf], name: str, epsilon: mp.mpf) -> mp.mpf:
    """Delta of sum p_h N(h) against N(0), or against sum p_h N(-h) in the direction both."""
    level = mp.exp(epsilon)

    def seen(x: mp.mpf) -> mp.mpf:
        return sum(p * mp.exp(h * (2 * x - h) / (2 * s * s)) for h, p in enumerate(weights))

    def ratio(x: mp.mpf) -> mp.mpf:
        return seen(x) / seen(-x) if name == "both" else seen(x)

    def mass(x: mp.mpf, way: int) -> mp.mpf:
        return sum(p * _cdf((way * h - x) / s) for h, p in enumerate(weights))

    wanted = 1 / level if name == "add" else level
    if name == "add" and wanted <= weights[0]:
        return mp.mpf(0)
    low, high = -s, s
    while ratio(low) >= wanted:
        low *= 2
    while ratio(high) <= wanted:
        high *= 2
    # As many as the digits have bits, and a few: what is left of the interval decides nothing.
    for _ in range(220):
        middle = (low + high) / 2
        low, high = (middle, high) if ratio(middle) < wanted else (low, middle)
    if name == "add":
        return _cdf(low / s) - level * (1 - mass(low, 1))
    return mass(low, 1) - level * (mass(low, -1) if name == "both" else _cdf(-low / s))


def _fixed(s: mp.mpf, q: mp.mpf, epsilon: mp.mpf) -> mp.mpf:
    return _sampled(s / 2, (1 - q, q), "remove", epsilon)


def _cut(s: mp.mpf, cut: TruncatedPoisson, name: str, epsilon: mp.mpf) -> mp.mpf:
    """Sum over all numbers of sampled records."""
    q, n, size = mp.mpf(cut.sampling_probability), cut.dataset_size, cut.max_batch_size
    full = sum(_binomial(n - 1, q)[size:])
    r = size * sum(_binomial(n, q)[size + 1 :]) / (n * full)
    return (1 - full) * _sampled(s, (1 - q, q), name, epsilon) + full * _fixed(s, r, epsilon)


def _privately_cut(s: mp.mpf, cut: TruncatedPoisson, name: str, epsilon: mp.mpf) -> mp.mpf:
    q, size = mp.mpf(cut.sampling_probability), cut.max_batch_size
    worst = max(size * sum(_binomial(n, q)[size + 1 :]) / n for n in range(size + 1, cut.dataset_size + 1))
    seen = worst * (size + 1) / (q * size)
    displaced = (1 - q, q / (size + 1), q * size / (size + 1))
    return (1 - seen) * _sampled(s, (1 - q, q), name, epsilon) + seen * _sampled(s, displaced, name, epsilon)


LEAST, MOST = 1 - 2.0**-53, 1e6
TINY = 5e-324
CORNERS = {
    "no epsilon": (Gaussian(1.0), Poisson(0.25), ADD, 3, 0.0),
    "no epsilon, replaced": (Gaussian(1.0), Poisson(0.25), REPLACE, 3, 0.0),
    "all but surely there": (Gaussian(1.0), Poisson(LEAST), ADD, 2, 1.0),
    "all but surely there, replaced": (Gaussian(1.0), Poisson(LEAST), REPLACE, 5, 4.0),
    "hardly ever there": (Gaussian(1.0), Poisson(TINY), NULL, 7, 1.0),
    "hardly any noise": (Gaussian(1e-3), Poisson(1e-4), ADD, 4, 700.0),
    "hardly any noise, replaced": (Gaussian(1e-3), Poisson(0.5), REPLACE, 2, 1.0),
    "much noise": (Gaussian(MOST), Poisson(0.5), ADD, 9, 0.0),
    "batch of one of two": (Gaussian(0.3), WithoutReplacement(1, 2), REPLACE, 1, 2.0),
    "all but one": (Gaussian(2.0), WithoutReplacement(10**13 - 1, 10**13), NULL, 1, 0.0),
    "one of very many": (Gaussian(0.05), WithoutReplacement(1, 10**13), REPLACE, 1, 50.0),
    "cut to one of two": (Gaussian(0.7), TruncatedPoisson(0.9, 1, 2, "random"), REPLACE, 1, 1.0),
    "cut to one, slots": (Gaussian(0.7), TruncatedPoisson(LEAST, 1, 3, "random_slots"), ADD, 1, 0.5),
    "cut, null": (Gaussian(5.0), TruncatedPoisson(1e-12, 2, 30, "random"), NULL, 1, 0.01),
    "cut to one, privately": (Gaussian(1.0), TruncatedPoisson(0.5, 1, 2, "random"), ADD, 1, 1.0),
    "cut always, privately": (Gaussian(1.0), TruncatedPoisson(LEAST, 2, 30, "random"), ADD, 1, 2.0),
    "cut never, privately": (Gaussian(1.0), TruncatedPoisson(1e-12, 29, 30, "random"), ADD, 1, 2.0),
    "one scale twice": (GaussianMixture((0.25, 0.25, 0.5), (2.0, 2.0, 1e-3)), Poisson(0.5), REPLACE, 1, 3.0),
    "a scale that is rare": (GaussianMixture((1.0, TINY), (2.0, 1e-3)), Poisson(0.5), ADD, 1, 3.0),
}


def _exact(name: str) -> tuple[Event, NeighboringRelation, int, dict[str, mp.mpf]]:
    """Return the event and delta in each direction."""
    mechanism, sampling, relation, group, epsilon = CORNERS[name]
    directions = ["both"] if relation is REPLACE else ["add", "remove"]
    e, found = mp.mpf(epsilon), {}
    if isinstance(sampling, WithoutReplacement):
        q = mp.mpf(sampling.batch_size) / sampling.dataset_size
        return Event(mechanism, sampling), relation, group, {"both": _fixed(mp.mpf(mechanism.noise_multiplier), q, e)}
    for each in directions:
        if isinstance(sampling, TruncatedPoisson):
            private = relation is ADD and sampling.truncation == "random"
            found[each] = (_privately_cut if private else _cut)(mp.mpf(mechanism.noise_multiplier), sampling, each, e)
            continue
        weights = _binomial(group, mp.mpf(sampling.sampling_probability))
        scales = [(1.0, mechanism.noise_multiplier)] if isinstance(mechanism, Gaussian) else None
        scales = scales or list(zip(mechanism.weights, mechanism.noise_multipliers, strict=True))
        total = sum(mp.mpf(w) for w, _ in scales)
        found[each] = sum(mp.mpf(w) / total * _sampled(mp.mpf(s), weights, each, e) for w, s in scales)
    return Event(mechanism, sampling), relation, group, found


@pytest.mark.parametrize("name", CORNERS)
def test_statements_at_the_ends_of_ranges_are_decided_as_they_are(name: str) -> None:
    """A billionth on the right side of the exact delta is verified, and on the wrong side refuted."""
    with mp.workdps(60):
        event, relation, group, exact = _exact(name)
        delta, epsilon = max(exact.values()), CORNERS[name][-1]
        directions = {direction: {"form": "one_step"} for direction in exact}
        data = certificate(AT_MOST, [event.to_json()], str(relation), epsilon, 0.0, directions, 1300)
        if group > 1:
            data = changed(data, ["statement", "group_size"], str(group))
        decided = 0
        for share in (-1e-9, 1e-9, -0.5, 0.5):
            stated = float(delta * (1 + share))
            if stated == 0.0 or stated > 1.0 or (stated <= delta) != (share < 0):
                continue  # It is no binary64 number, or on the other side.
            at = changed(data, ["statement", "delta"], number_to_string(stated))
            expected = ("refuted", "verified") if share < 0 else ("verified", "refuted")
            assert check(at).verdict == expected[0]
            assert check(changed(at, ["statement", "claim"], MORE_THAN)).verdict == expected[1]
            # Few bits, other forms and one direction alone may leave it open, and never decide it otherwise.
            for path, value in (
                (["witness", "precision"], "32"),
                (["witness", "directions"], {direction: {"form": "bounded"} for direction in exact}),
                (["witness", "directions"], {direction: {"form": "one_step", "kept": ["1"]} for direction in exact}),
                (["witness", "directions"], {next(iter(exact)): {"form": "one_step"}}),
            ):
                assert check(changed(at, path, value)).verdict in (expected[0], "cannot check")
            decided += 1
        assert decided >= 1 or delta < mp.mpf(5e-324)


# Records in different batches.


@pytest.mark.parametrize(
    ("sampling", "relation", "covered"),
    [
        (DisjointBatches("independent"), REPLACE, False),
        (DisjointBatches("independent"), ADD, True),
        (DisjointBatches("by_position"), REPLACE, True),
        (DisjointBatches("by_position"), ADD, False),
        (ShuffledEpochs(2), REPLACE, True),
        (ShuffledEpochs(2), ADD, False),
    ],
)
def test_a_record_that_may_land_in_another_batch_draws_two_scales(
    sampling: Sampling, relation: NeighboringRelation, covered: bool
) -> None:
    """Two draws tell it with probability 0.19, and the pair of one draw with 0.1."""
    steps = {
        "mechanism": {"kind": "gaussian_mixture", "weights": [0.9, 0.1], "noise_multipliers": [10.0, 1e-3]},
        "sampling": sampling.to_json(),
        "count": 2,
    }
    found = check(certificate(AT_MOST, [steps], str(relation), 3.0, 0.11, {"both": {"form": "one_step"}}))
    assert found.verdict == ("verified" if covered else "cannot check")
    assert covered or "this verifier does not cover this sampling" in found.reason
    # Of one scale, two steps that are moved by one cost less than one that is moved by two.
    steps["mechanism"] = {"kind": "gaussian", "noise_multiplier": 10.0}
    alone = check(certificate(AT_MOST, [steps], str(relation), 3.0, 0.11, {"both": {"form": "one_step"}}))
    assert (alone.verdict == "verified") == (covered or relation is REPLACE)


# What bytes may ask for, and what they may print.


def test_values_of_branches_that_need_no_nodes_are_counted() -> None:
    """A megabyte may name 6400 branches and 400,000 points, which takes hours."""
    mixed = Event(GaussianMixture(tuple([1 / 64] * 64), tuple([1.0] * 64))).to_json()
    line = {"form": "contour", "tilt": 1.0, "period": 10.0, "points": 40_000, "window": 0.0}
    witness = {"both": {**line, "steps": [{"branches": [{}] * 64}]}}
    found = check(certificate(AT_MOST, [mixed], "add_or_remove_one", 1.0, 0.5, witness))
    assert found.verdict == "cannot check"
    assert "work exceeds 100000000 in all" in found.reason
    few = changed(
        certificate(AT_MOST, [mixed], "add_or_remove_one", 1.0, 0.5, witness),
        ["witness", "directions", "both", "points"],
        "40",
    )
    assert check(few).verdict == "verified"


@pytest.mark.parametrize(
    ("event", "form", "groups", "nodes", "bits", "few"),
    [
        (Event(Laplace(1.0), count=1000), "laplace", 3, 1, 2048, False),
        (Event(Laplace(1.0), count=100), "laplace", 3, 1, 2048, True),
        (Event(DiscreteLaplace(30.0, 1e-4), count=19), "outcomes", 1, 1, 2048, False),
        (Event(DiscreteLaplace(30.0, 0.1), count=19), "outcomes", 1, 1, 2048, True),
        (Event(DiscreteLaplace(30.0, 1.0), count=2490), "outcomes", 1, 390, 2048, False),
        (Event(DiscreteLaplace(30.0, 1.0), count=2490), "outcomes", 1, 20, 160, True),
    ],
)
def test_sums_that_are_kept_for_many_groups_or_bits_are_counted(
    event: Event, form: str, groups: int, nodes: int, bits: int, few: bool
) -> None:
    """Three groups of polynomials took half a gigabyte, and outcomes at 2048 bits took ten seconds."""
    each = {"deltas": [0.0] * nodes, "directions": {"both": {"form": form}}}
    held = [{**each, "epsilons": [1.0 * (k * nodes + j) for j in range(nodes)]} for k in range(groups)]
    stated = {"claim": AT_MOST, "events": [event.to_json()], "relation": "add_or_remove_one"}
    stated |= {"nano_mu_squared": 1, "atto_failure": 0}
    whole = {"format": "epsilon-certificate/1", "statement": stated, "witness": {"precision": bits, "nodes": held}}
    found = check(canonical_text(whole).encode())
    assert found.verdict == ("refuted" if few else "cannot check")
    assert few or "work exceeds 100000000 in all" in found.reason


def test_a_key_prints_no_line_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forged = json.loads(CLOSED)
    forged["x\nother.json: verified: epsilon <= 0.0 at delta 0.0\x1b[2K"] = "1"
    path = tmp_path / "forged.json"
    path.write_bytes(json.dumps(forged, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
    assert main([str(path)]) == 2
    shown = capsys.readouterr().out
    assert "unknown keys" in shown
    assert not any(line.startswith("other.json") for line in shown.splitlines())
    assert "\x1b" not in shown


def test_a_file_that_is_not_there_is_not_refuted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 1 says that the opposite is proved."""
    good = tmp_path / "good.json"
    good.write_bytes(CLOSED)
    assert main([str(tmp_path / "none.json"), str(good), str(tmp_path)]) == 2
    shown = capsys.readouterr().out
    assert shown.count("cannot check") == 2
    assert "No such file" in shown
    assert "good.json: verified" in shown


def test_a_witness_of_another_statement_proves_nothing_for_this_one() -> None:
    """Witnesses are exchanged between two certificates, and statements keep their verdicts."""
    events = [Event(Gaussian(s)).to_json() for s in (1.0, 3.0)]
    both = [certificate(AT_MOST, [e], "add_or_remove_one", 1.0, 0.1, {"both": {"form": "gaussian"}}) for e in events]
    verdicts = [check(each).verdict for each in both]
    assert verdicts == ["refuted", "verified"]
    wholes = [json.loads(each) for each in both]
    for k in (0, 1):
        spliced = {**wholes[k], "witness": wholes[1 - k]["witness"]}
        data = canonical_text(spliced).encode()
        assert check(data).verdict == verdicts[k]
        assert check(data).sha256 == check(both[k]).sha256
