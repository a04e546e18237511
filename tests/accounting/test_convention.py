from __future__ import annotations

from accounting.convention import convention
from accounting.events import Event, Gaussian, Laplace, Poisson
from accounting.relations import NeighboringRelation


def test_multiplier_is_the_same_under_every_relation() -> None:
    events = [Event(Gaussian(1.0), Poisson(0.1))]
    answers = {relation: convention(relation, events) for relation in NeighboringRelation}
    for relation, answer in answers.items():
        assert answer["neighboring_relation"] == relation.value
        assert answer["sampling_probability"] == 0.1
        assert answer["noise_multiplier_is"] == answers[NeighboringRelation.REPLACE_ONE]["noise_multiplier_is"]
        assert "public constant" in str(answer["normalization"])
    assert [answer["sensitivity"] for answer in answers.values()] == [1.0, 2.0, 1.0]


def test_norms_and_probabilities_follow_the_events() -> None:
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    assert convention(relation, [Event(Gaussian(1.0))])["norm"] == "l2"
    assert convention(relation, [Event(Laplace(1.0))])["norm"] == "l1"
    mixed = convention(relation, [Event(Laplace(1.0)), Event(Gaussian(1.0), Poisson(0.2))])
    assert mixed["norm"] == "l2 for gaussian, l1 for laplace"
    assert "sampling_probability" not in mixed
    two = [Event(Gaussian(1.0), Poisson(0.2)), Event(Gaussian(1.0), Poisson(0.3))]
    assert "sampling_probability" not in convention(relation, two)
