"""The page of published epsilons says what its certificates prove, and each of them is verified."""

from __future__ import annotations

import json

import pytest
from epsilond_verifier import check

from accounting.canonical import canonical_text
from docs.reference.published import CERTIFICATES, CLAIMS, PAGE, RELATION, Claim, published_page, stated


def test_the_generated_page_is_the_committed_one() -> None:
    assert PAGE.read_text() == published_page(), "run: make docs"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_each_certificate_proves_an_end_of_its_claim(claim: Claim) -> None:
    for end, word in (("upper", "at_most"), ("lower", "more_than")):
        data = claim.file(end).read_bytes()
        assert check(data).verdict == "verified"
        assert json.loads(data)["statement"] == {
            "claim": word,
            "delta": canonical_text(claim.delta).strip('"'),
            "epsilon": canonical_text(stated(claim, end)).strip('"'),
            "events": json.loads(canonical_text([event.to_json() for event in claim.events])),
            "relation": str(RELATION),
        }
    assert stated(claim, "upper") <= stated(claim, "lower") * (1 + 3e-6)


def test_there_is_no_certificate_of_nothing() -> None:
    assert {path.name for path in CERTIFICATES.iterdir()} == {
        claim.file(end).name for claim in CLAIMS for end in ("upper", "lower")
    }


def test_what_the_page_calls_refuted_is_beyond_any_rounding() -> None:
    refuted = [claim for claim in CLAIMS if stated(claim, "lower") >= claim.epsilon]
    assert [claim.name for claim in refuted] == ["bu_106", "bu_0638"]
    assert all(stated(claim, "lower") > claim.epsilon * 1.05 for claim in refuted)
    assert published_page().count("**refuted**") == len(refuted)
    assert "undecided" not in published_page()
