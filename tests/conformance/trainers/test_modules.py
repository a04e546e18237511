"""Each algorithm's file is its own: it names its paper's equation or algorithm, as its calibrator does."""

from __future__ import annotations

import importlib
import re

import pytest

from calibrators.registry import ALGORITHMS


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_trainers_file_names_the_same_paper_and_place_as_the_calibrator(name: str) -> None:
    """Two updates may be the same line of arithmetic: swapped files would still claim another paper's theorem."""
    source = ALGORITHMS[name].source
    documentation = importlib.import_module(f"trainer.algorithms.{name}").__doc__ or ""
    authors = re.match(r"[^\d]+", source)
    assert authors is not None
    assert authors.group().strip().split(",")[0] in documentation
    place = re.search(r"[Aa]lgorithms? \d|eq(?:uation|\.) \(\d\)", source)
    if place is not None:
        number = re.search(r"\d", place.group())
        assert number is not None
        assert re.search(rf"(?:[Aa]lgorithms?|eqs?\.) \(?{number.group()}", documentation), documentation
