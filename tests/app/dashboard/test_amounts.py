"""Amounts of a budget in words."""

from __future__ import annotations

from typing import Any

import pytest

from app.dashboard.amounts import left_in_words, of_limit, used_in_words

BOTH = {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-6}


def test_both_amounts_of_a_filter_are_rounded_to_their_side() -> None:
    amount = {"epsilon": 1.00000049, "delta": 7.00000049e-7}
    assert left_in_words(BOTH, amount) == "epsilon 1, delta 7e-7"
    assert used_in_words(BOTH, amount) == "epsilon 1.00001, delta 7.00001e-7"


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("limit", "epsilon 4, delta 1e-6"),
        ("spent", "epsilon 1.00001, delta 7.00001e-7"),
        ("left", "epsilon 2.99999, delta 2.99999e-7"),
    ],
)
def test_of_a_limit_of_two_amounts_both_are_told(part: str, words: str) -> None:
    budget: dict[str, Any] = {
        "filter": BOTH,
        "epsilon": {"delta": 1e-6, "limit": 4.0, "spent": 1.00000049, "left": 2.99999951},
        "amounts": {
            "limit": {"epsilon": 4.0, "delta": 1e-6},
            "spent": {"epsilon": 1.00000049, "delta": 7.00000049e-7},
            "remaining": {"epsilon": 2.99999951, "delta": 2.99999951e-7},
        },
    }
    assert of_limit(budget, part) == words


def test_an_epsilon_is_told_with_its_delta() -> None:
    budget = {
        "filter": {"kind": "approximate_gaussian_dp", "epsilon": 2.0, "delta": 1e-5},
        "epsilon": {"delta": 1e-5, "left": 0.8},
    }
    assert of_limit(budget, "left") == "epsilon 0.8 at delta 1e-5"
