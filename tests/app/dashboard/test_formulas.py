"""Formulas as MathML: each that the service has is understood in full, and nothing of it is lost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
from starlette.testclient import TestClient

from app.algorithms.examples import CALIBRATE_EXAMPLES
from app.dashboard.formulas import _ACCENTS, _FIXED, formula
from calibrators.registry import ALGORITHMS
from tests.app.dashboard.documents import Document

#: What groups, and has no sign of its own.
_STRUCTURE = re.compile(
    r"\\(left|right|[bB]ig[lr]?|frac|tfrac|sqrt|mathrm|mathbb|text|quad|qquad)(?![a-zA-Z])|\\[,; ]|[{}^_\s]"
)


def drawn(source: str) -> ElementTree.Element:
    found = ElementTree.fromstring(formula(source))
    assert found.tag == "span", f"not understood: {source}"
    return found


def signs_of(source: str) -> Counter[str]:
    """The signs that a source has, read in another way."""
    text = source.replace(r"\left.", "").replace(r"\right.", "").replace(r"\mathbb{E}", "𝔼").replace(r"\|", "‖")
    found = Counter({"{": text.count(r"\{"), "}": text.count(r"\}")})
    text = _STRUCTURE.sub(" ", text.replace(r"\{", " ").replace(r"\}", " "))
    for each in re.findall(r"\\[a-zA-Z]+|[^\s]", text):
        name = each.removeprefix("\\")
        if name in _ACCENTS:
            found[_ACCENTS[name][0]] += 1
        else:
            found.update(ElementTree.fromstring(_FIXED[each].markup).text or "" if each in _FIXED else each)
    return +found


def signs_in(found: ElementTree.Element) -> Counter[str]:
    """The signs that are drawn; a prime and an apostrophe are one sign in a source."""
    return Counter("".join("".join(each.itertext()).replace(" ", "").replace("′", "'") for each in found))


def formulas() -> Iterator[str]:
    for each in ALGORITHMS.values():
        yield from (each.update, each.gradient_complexity)
        yield from (assumption.symbol for assumption in each.assumptions)


@pytest.mark.parametrize("source", sorted(set(formulas())))
def test_nothing_is_left_out(source: str) -> None:
    assert signs_in(drawn(source)) == signs_of(source)


@pytest.mark.parametrize("name", CALIBRATE_EXAMPLES)
@pytest.mark.one_in(4)
def test_every_formula_of_a_calibration_is_understood(reader: TestClient, name: str) -> None:
    answer = reader.post("/v1/calibrate", json=CALIBRATE_EXAMPLES[name]["value"])
    found = list(_formulas_in(answer.json()))
    assert found or answer.status_code != 200
    for source in found:
        assert signs_in(drawn(source)) == signs_of(source)


def test_every_formula_of_a_comparison_and_of_constants_is_understood(reader: TestClient) -> None:
    compared = reader.get(
        "/v1/algorithms/compare", params={"dataset_size": 1000, "dimension": 10, "epsilon": 1, "delta": 1e-6}
    )
    model = {"kind": "logistic_regression", "input_bound": 2.0, "label_count": 3, "penalty": 0.1}
    derived = reader.post("/v1/assumptions", json={"model": model, "dataset_size": 1000, "dimension": 10})
    for source in {*_formulas_in(compared.json()), *_formulas_in(derived.json())}:
        assert drawn(source).findall("math")


def _formulas_in(body: Any) -> Iterator[str]:
    if isinstance(body, dict):
        for name, value in body.items():
            if name == "formula" and isinstance(value, str) and value:
                yield value
            else:
                yield from _formulas_in(value)
    elif isinstance(body, list):
        for each in body:
            yield from _formulas_in(each)


@pytest.mark.parametrize(
    ("source", "markup", "text"),
    [
        (r"\tfrac12", "<mfrac><mrow><mn>1</mn></mrow><mrow><mn>2</mn></mrow></mfrac>", "1/2"),
        (r"\tfrac{1}{16}", "<mfrac><mrow><mn>1</mn></mrow><mrow><mn>16</mn></mrow></mfrac>", "1/16"),
        (r"\sqrt 24", "<msqrt><mn>2</mn></msqrt><mn>4</mn>", "√24"),
        ("x_t^2", "<msubsup><mi>x</mi><mi>t</mi><mn>2</mn></msubsup>", "x_t squared"),
        ("f'", "<msup><mi>f</mi><mo>′</mo></msup>", "f′"),
        (r"\hat w", '<mover accent="true"><mrow><mi>w</mi></mrow><mo stretchy="false">^</mo></mover>', "w\u0302"),
        (r"\sum_{i}^n", '<munderover><mo movablelimits="true">∑</mo><mi>i</mi><mi>n</mi></munderover>', "∑_i^n"),
        (r"a < b", "<mi>a</mi><mo>&lt;</mo><mi>b</mi>", "a < b"),
        (r"\text{if } x", "<mtext>if </mtext><mi>x</mi>", "if x"),
        (r"\tfrac{a}{b} c", "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac><mi>c</mi>", "(a/b)c"),
    ],
)
def test_a_sign_is_drawn_and_said(source: str, markup: str, text: str) -> None:
    [math] = drawn(source)
    assert str(formula(source)).partition(">")[2].startswith("<math")
    assert markup in formula(source)
    assert math.attrib["aria-label"] == text


def test_parts_may_stand_on_lines_of_their_own() -> None:
    assert len(drawn(r"a = 1,\; b = 2 \qquad c, d")) == 3


@pytest.mark.parametrize(
    "source",
    [
        r"\unknown x", r"\frac{1}", "{x", "x}", "x^", "x^2^3", r"\left( x", r"\left x \right)", "$x$", r"\mathbb{Q}",
        r"\text{a\b}", "é", "<script>", "a & b", "", "{" * 60 + "}" * 60, r"\begin{cases} x \end{cases}", "x\u202e",
    ],
)  # fmt: skip
def test_what_is_not_understood_is_shown_as_it_stands(source: str) -> None:
    found = ElementTree.fromstring(formula(source))
    if source == "<script>":
        assert [each.tag for each in found.iter()] == ["span", "math", "mo", "mi", "mi", "mi", "mi", "mi", "mi", "mo"]
    else:
        assert (found.tag, found.text or "", len(found)) == ("code", source, 0)


def test_pages_draw_their_formulas(reader: TestClient) -> None:
    for path in ("/dashboard/algorithms/dp_sgd", "/", "/dashboard/compare"):
        document = Document(reader.get(path).text)
        assert document.faults == []
        assert all(each.attributes["aria-label"] for each in document.all("math"))
        assert document.all("math"), path
