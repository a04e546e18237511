"""Where each number comes from is said: formula, paper and place in it, how well it is known."""

from __future__ import annotations

import re

import pytest

from calibrators.provenance import Provenance, ProvenanceKind
from calibrators.spec import Spec
from tests.conformance.latex import faults, page_faults
from tests.conformance.subjects import algorithm_of, bounds_of, calibrated, every_algorithm, every_case, number

#: A year is a paper; these are places in one, or say that it was read through another.
_PAPER = re.compile(r"\b(19|20)\d\d\b")
_PLACE = re.compile(
    r"\b(Theorems?|Lemmas?|Propositions?|Corollary|Algorithms?|Tables?|section|equation|Remark|proof|abstract|secondary)\b"
)


def numbers(name: str, spec: Spec) -> tuple[Provenance, ...]:
    found = calibrated(name, spec)
    return (*found.hyperparameters, *found.utility)


@every_case
def test_every_number_has_a_formula_and_a_source_that_names_a_paper_and_a_place(name: str, spec: Spec) -> None:
    for item in numbers(name, spec):
        assert faults(item.formula) == [], item.name
        if item.kind is ProvenanceKind.EXACT:
            assert _PLACE.search(item.source) or item.name == "gradient_evaluations", (item.name, item.source)
        # Else it may have been proved or balanced here, in place of what a paper leaves out.
        here = item.kind is not ProvenanceKind.EXACT and "derived" in item.source
        assert _PAPER.search(item.source) or here, (item.name, item.source)


@every_case
def test_what_must_hold_for_a_number_is_said_in_sentences(name: str, spec: Spec) -> None:
    for item in numbers(name, spec):
        assert all(sentence == sentence.strip() != "" for sentence in item.assumptions)
        if item.name in bounds_of(calibrated(name, spec)):
            assert item.assumptions, item.name


@every_case
def test_names_are_unique_and_names_of_the_wire(name: str, spec: Spec) -> None:
    found = calibrated(name, spec)
    for items in (found.hyperparameters, found.utility):
        names = [item.name for item in items]
        assert len(set(names)) == len(names)
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", each) for each in names)


@every_case
def test_the_number_of_gradients_is_said_and_is_that_of_the_plan(name: str, spec: Spec) -> None:
    """Of the steps as planned: records of the nominal batch, every step. Trees count their own."""
    found = calibrated(name, spec)
    evaluations = number(found.utility, "gradient_evaluations")
    assert evaluations is not None
    assert evaluations >= 1.0
    phases = [(phase.steps, getattr(phase, "divisor", None)) for phase in found.plan.phases]
    if all(divisor is not None for _, divisor in phases):
        assert evaluations == sum(steps * (divisor or 0) for steps, divisor in phases)


@every_case
def test_what_is_known_up_to_a_constant_has_the_constant_among_the_inputs(name: str, spec: Spec) -> None:
    assumptions = {assumption.name: assumption for assumption in algorithm_of(name).assumptions}
    if any(item.kind is ProvenanceKind.ORDER for item in numbers(name, spec)):
        constant = assumptions["order_constant"]
        assert (constant.default, constant.required) == (1.0, False)


@every_case
def test_rates_are_known_up_to_a_constant(name: str, spec: Spec) -> None:
    for item in calibrated(name, spec).utility:
        if item.name.endswith("_rate"):
            assert item.kind is ProvenanceKind.ORDER, item.name


@every_case
def test_every_upper_bound_says_whether_it_is_vacuous(name: str, spec: Spec) -> None:
    found = calibrated(name, spec)
    for item in found.utility:
        if item.name in bounds_of(found):
            assert isinstance(item.vacuous, bool), item.name


@every_case
def test_the_recommended_step_size_is_the_plans_where_the_caller_has_none(name: str, spec: Spec) -> None:
    found = calibrated(name, spec)
    first = found.plan.phases[0]
    recommended = [item.value for item in found.hyperparameters if item.name == "step_size"]
    if recommended and spec.step_size is None:
        assert getattr(first, "step_size", None) == recommended[0]
    elif spec.step_size is not None:
        assert getattr(first, "step_size", None) == spec.step_size


@every_case
def test_the_papers_own_calibration_has_a_formula_a_source_and_a_reason(name: str, spec: Spec) -> None:
    published = calibrated(name, spec).as_published
    assert published is not None, "an example's target is one that the paper speaks of"
    assert faults(published.formula) == []
    assert _PAPER.search(published.source)
    assert _PLACE.search(published.source)
    assert published.why.endswith(".")


@every_algorithm
def test_an_algorithms_own_formulas_render(name: str) -> None:
    algorithm = algorithm_of(name)
    assert faults(algorithm.update) == []
    assert faults(algorithm.gradient_complexity) == []
    for assumption in algorithm.assumptions:
        assert faults(assumption.symbol) == [], assumption.name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", assumption.name)
        assert assumption.meaning.strip()


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        (r"\frac{1}{2", "braces"),
        ("}{", "braces"),
        (r"\left(x)", "do not match"),
        (r"\nonsense x", "unknown"),
        ("a $ b", "dollar"),
        (" ", "nothing"),
    ],
)
def test_a_formula_that_does_not_render_is_seen(formula: str, words: str) -> None:
    assert any(words in fault for fault in faults(formula))


@pytest.mark.parametrize(
    "text",
    [
        "costs $ 5",
        "$x $",
        "$$x",
        "$x$ and $y",
        "$\\nonsense$",
        "$$\\frac{1$$",
        "```math\n}\n```",
        "$`\\no`$",
        "$a\\,b$",
    ],
)
def test_a_page_whose_formulas_do_not_render_is_seen(text: str) -> None:
    assert page_faults(text)


def test_a_page_whose_formulas_render_has_no_fault() -> None:
    assert (
        page_faults("A $x_0$, $`\\|x\\|`$ and `$HOME`:\n\n$$\\frac{1}{2}\n\\le 1$$\n\n```\n$ ls\n```\n\n    $ 5\n")
        == []
    )
