from __future__ import annotations

from dataclasses import replace as replaced

from accounting.convention import convention
from accounting.events import (
    DisjointBatches,
    Event,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    Poisson,
    ShuffledEpochs,
    TreeAggregation,
    TruncatedPoisson,
    WithoutReplacement,
)
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


def test_every_scheme_says_what_was_charged() -> None:
    replace, special = NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL
    fixed = Event(Gaussian(1.0), WithoutReplacement(10, 1000))
    # A null record in a batch of a fixed size has a pair of its own with Gaussian noise, and no other proof.
    assert [convention(relation, [fixed])["sensitivity"] for relation in (replace, special)] == [2.0, 1.0]
    laplace = replaced(fixed, mechanism=Laplace(1.0))
    assert [convention(relation, [laplace])["sensitivity"] for relation in (replace, special)] == [2.0, 2.0]
    assert convention(special, [fixed])["neighboring_relation"] == "replace_special"
    assert convention(special, [laplace, fixed, Event(Gaussian(1.0))])["sensitivity"] == 2.0
    assert convention(special, [fixed])["sampling_probability"] == 0.01
    assert convention(special, [fixed, Event(Gaussian(2.0), Poisson(0.01))])["sampling_probability"] == 0.01
    assert "sampling_probability" not in convention(special, [fixed, Event(Gaussian(2.0))])
    # A record that comes takes another one's place where batches are cut at random.
    cut = TruncatedPoisson(0.1, 100, 1000, "random")
    charged = [convention(relation, [Event(Gaussian(1.0), cut)])["sensitivity"] for relation in NeighboringRelation]
    assert charged == [2.0, 2.0, 1.0]
    assert convention(NeighboringRelation.ADD_OR_REMOVE_ONE, [Event(Laplace(1.0), cut)])["sensitivity"] == 1.0
    everything = Event(Gaussian(1.0), WithoutReplacement(10, 10))
    assert convention(special, [everything])["sensitivity"] == 1.0
    for sampling in (ShuffledEpochs(10), DisjointBatches("by_position"), DisjointBatches("independent")):
        for relation, sensitivity in ((replace, 2.0), (special, 1.0)):
            answer = convention(relation, [Event(Laplace(1.0), sampling, 20)])
            assert (answer["sensitivity"], answer["norm"]) == (sensitivity, "l1")
            assert "sampling_probability" not in answer


def test_norms_of_mechanisms_with_noise_of_their_own() -> None:
    dual, tree = GeneralizedGaussian(1.5, 10, 2.0, 1.0), TreeAggregation(1.0, 8, 0)
    relation = NeighboringRelation.REPLACE_ONE
    assert "dual of l_p" in str(convention(relation, [Event(dual)])["norm"])
    assert "every node" in str(convention(relation, [Event(tree)])["noise_multiplier_is"])
    both = convention(relation, [Event(tree), Event(dual)])
    assert "for generalized_gaussian, l2 for tree_aggregation" in str(both["norm"])
    assert both["sensitivity"] == 2.0
