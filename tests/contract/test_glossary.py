"""The glossary has the words that answers are made of, in the order of the alphabet."""

from __future__ import annotations

import re

import pytest

from accounting.relations import NeighboringRelation
from app.auth.principal import Scope
from app.wire.answers import ConventionBody, IntervalBody
from tests.contract.documents import DOCS

TEXT = (DOCS / "glossary.md").read_text()
TERMS = re.findall(r"^\| (.+?) \|", TEXT, re.MULTILINE)[1:]


@pytest.mark.parametrize("name", ConventionBody.model_fields)
def test_every_field_of_a_convention_is_a_term(name: str) -> None:
    assert f"`{name}`" in TERMS


def test_relations_scopes_and_the_ends_of_an_interval_are_named() -> None:
    for name in (*NeighboringRelation, *Scope, *IntervalBody.model_fields):
        assert f"`{name}`" in TEXT, name


def test_terms_are_in_order_and_occur_once() -> None:
    letters = [re.sub(r"[^a-z]", "", term.lower()) for term in TERMS[1:]]
    assert letters == sorted(set(letters))
