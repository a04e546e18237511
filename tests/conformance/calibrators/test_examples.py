"""Every algorithm has an example that it answers in full."""

from __future__ import annotations

from accounting.targets import ApproximateDpTarget
from calibrators.spec import Spec
from tests.conformance.subjects import EXAMPLES, algorithm_of, bounds_of, calibrated, every_algorithm, every_case


@every_case
def test_an_example_leaves_the_papers_own_choices_to_the_algorithm(name: str, spec: Spec) -> None:
    assert spec.sampling is None
    assert spec.neighboring_relation is None
    assert isinstance(spec.target, ApproximateDpTarget), "which a paper's own calibration speaks of"


@every_case
def test_an_example_is_answered_with_a_plan_that_runs_and_a_bound(name: str, spec: Spec) -> None:
    found = calibrated(name, spec)
    assert found.plan.algorithm == name
    assert found.plan.dataset_size == spec.dataset_size
    assert found.plan.is_executable
    assert bool(bounds_of(found)) == EXAMPLES[name].bounded, "an example gives all that some upper bound needs"


@every_algorithm
def test_where_no_theorem_speaks_of_an_algorithm_it_says_so_and_asks_for_no_constants(name: str) -> None:
    bounded, found = EXAMPLES[name].bounded, calibrated(name, EXAMPLES[name].spec)
    assert bounded or not algorithm_of(name).assumptions
    assert bounded or any("no bound" in warning for warning in found.warnings)


@every_algorithm
def test_the_first_example_leaves_nothing_to_be_missed(name: str) -> None:
    assert calibrated(name, EXAMPLES[name].spec).missing_assumptions == ()


@every_algorithm
def test_the_first_example_is_not_vacuous(name: str) -> None:
    """Else it would show little, and a broken bound would not be seen."""
    found = calibrated(name, EXAMPLES[name].spec)
    assert not EXAMPLES[name].bounded or any(
        item.vacuous is False for item in found.utility if item.name in bounds_of(found)
    )


@every_algorithm
def test_an_algorithm_is_described_in_full(name: str) -> None:
    algorithm = algorithm_of(name)
    assert algorithm.name == name
    assert algorithm.samplings
    assert algorithm.relations
    assert len({assumption.name for assumption in algorithm.assumptions}) == len(algorithm.assumptions)
    for sentence in (algorithm.summary, algorithm.guarantee, algorithm.verdict, *algorithm.errata):
        assert sentence == sentence.strip()
        assert sentence.endswith(".")
    for text in (algorithm.source, algorithm.update, algorithm.gradient_complexity):
        assert text.strip()
    assert algorithm.errata, "where the paper is wrong or ambiguous"
