"""The worked numbers of docs/sampling are those of the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from accounting.accountant import epsilon_for_delta
from accounting.events import (
    Blocks,
    DisjointBatches,
    Event,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    RandomAllocation,
    ShuffledEpochs,
    ShuffleModel,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
)
from accounting.relations import NeighboringRelation

PAGES = Path(__file__).parents[3] / "docs" / "sampling"
ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL

TRUNCATED = Event(Gaussian(4.0), TruncatedPoisson(0.01, 1250, 100_000), 10_000)
CUTS = {
    900: ("2.08397", "1.08549", "2.27600"),
    1000: ("1.63936", "1.07286", "2.25404"),
    1050: ("1.04841", "0.96336", "2.02709"),
    1100: ("0.94852", "0.94713", "1.99367"),
    1250: ("0.946867", "0.946867", "1.99312"),
}
NUMBERS = [
    ("full_batch", Event(Gaussian(10.0), count=100), ADD_REMOVE, 1e-5, "4.377178"),
    ("full_batch", Event(Gaussian(10.0), count=100), REPLACE, 1e-5, "9.997256"),
    ("poisson", Event(Gaussian(4.0), Poisson(0.01), 10_000), ADD_REMOVE, 1e-5, "0.9469"),
    ("poisson", Event(Gaussian(4.0), Poisson(0.01), 10_000), REPLACE, 1e-5, "1.993"),
    ("poisson", Event(Laplace(5.0), Poisson(0.02), 200), ADD_REMOVE, 1e-5, "0.1780"),
    ("poisson", Event(Laplace(5.0), Poisson(0.02), 200), REPLACE, 1e-5, "0.3622"),
    ("poisson", Event(Laplace(5.0), Poisson(0.02), 200), ADD_REMOVE, 0.0, "0.8837"),
    ("without_replacement", Event(Gaussian(8.0), WithoutReplacement(1024, 50_000), 10_000), REPLACE, 1e-5, "2.29778"),
    ("without_replacement", Event(Gaussian(4.0), Poisson(1024 / 50_000), 10_000), ADD_REMOVE, 1e-5, "2.09238"),
    ("without_replacement", Event(Gaussian(5.0), WithoutReplacement(10, 1000), 50), REPLACE, 1e-5, "0.10670"),
    ("without_replacement", Event(Gaussian(2.5), Poisson(0.01), 50), ADD_REMOVE, 1e-5, "0.09945"),
    ("without_replacement", Event(Gaussian(8.0), WithoutReplacement(1024, 50_000), 10_000), SPECIAL, 1e-5, "1.07337"),
    ("without_replacement", Event(Gaussian(5.0), WithoutReplacement(10, 1000), 50), SPECIAL, 1e-5, "0.05397"),
    ("with_replacement", Event(Gaussian(8.0), WithReplacement(1024, 50_000), 10_000), REPLACE, 1e-5, "2.30459"),
    ("with_replacement", Event(Gaussian(8.0), WithoutReplacement(1024, 50_000), 10_000), REPLACE, 1e-5, "2.29778"),
    ("with_replacement", Event(Gaussian(5.0), WithReplacement(10, 1000), 50), REPLACE, 1e-5, "0.10715"),
    ("with_replacement", Event(Gaussian(5.0), WithoutReplacement(10, 1000), 50), REPLACE, 1e-5, "0.10670"),
    ("shuffle_model", Event(PureDp(0.5), ShuffleModel(1024, 0.5, 0.0)), REPLACE, 1e-6, "0.061895"),
    ("shuffle_model", Event(PureDp(0.5), ShuffleModel(1024, 0.5, 0.0), 10), REPLACE, 1e-6, "0.212376"),
    ("truncated_poisson", TRUNCATED, ADD_REMOVE, 1e-5, "0.946869"),
    ("truncated_poisson", Event(Gaussian(4.0), Poisson(0.01), 10_000), ADD_REMOVE, 1e-5, "0.946867"),
    *(
        ("truncated_poisson", Event(Gaussian(4.0), cut, 10_000), relation, 1e-5, shown)
        for largest, numbers in CUTS.items()
        for cut in [TruncatedPoisson(0.01, largest, 100_000, "random")]
        for relation, shown in zip((ADD_REMOVE, SPECIAL, REPLACE), numbers, strict=True)
    ),
    ("random_allocation", Event(Gaussian(1.0), RandomAllocation(100, 1), 100), ADD_REMOVE, 1e-5, "0.620940"),
    ("random_allocation", Event(Gaussian(1.0), RandomAllocation(100, 1), 1000), ADD_REMOVE, 1e-5, "1.701498"),
    ("random_allocation", Event(Gaussian(1.0), RandomAllocation(100, 1), 50), ADD_REMOVE, 1e-5, "0.534878"),
    ("random_allocation", Event(Gaussian(4.0), Blocks(100, 10), 100), ADD_REMOVE, 1e-5, "0.941661"),
    ("random_allocation", Event(Gaussian(10.0), RandomAllocation(199, 100), 199), ADD_REMOVE, 1e-5, "2.964049"),
    ("random_allocation", Event(Gaussian(1.0), Poisson(0.01), 50), ADD_REMOVE, 1e-5, "0.5829"),
    ("random_allocation", Event(Gaussian(4.0), Poisson(0.1), 100), ADD_REMOVE, 1e-5, "0.9829"),
    ("random_allocation", Event(Gaussian(10.0), Poisson(100 / 199), 199), ADD_REMOVE, 1e-5, "2.9761"),
    ("random_allocation", Event(Gaussian(1.0), Poisson(0.01), 100), ADD_REMOVE, 1e-5, "0.7180"),
    ("random_allocation", Event(Gaussian(1.0), Poisson(0.01), 1000), ADD_REMOVE, 1e-5, "1.8282"),
    ("shuffled_epochs", Event(Gaussian(0.5), ShuffledEpochs(10_000), 10_000), SPECIAL, 1e-6, "10.99715"),
    ("shuffled_epochs", Event(Gaussian(0.5), Poisson(1e-4), 10_000), SPECIAL, 1e-6, "1.95"),
    ("shuffled_epochs", Event(Gaussian(8.0), ShuffledEpochs(100), 2050), SPECIAL, 1e-5, "2.3208"),
    ("shuffled_epochs", Event(Gaussian(8.0), ShuffledEpochs(100), 2050), REPLACE, 1e-5, "5.1274"),
    ("disjoint_batches", Event(Gaussian(4.0), DisjointBatches("independent"), 100), ADD_REMOVE, 1e-5, "0.92634"),
    ("disjoint_batches", Event(Gaussian(4.0), DisjointBatches("independent"), 100), REPLACE, 1e-5, "1.99309"),
]


@pytest.mark.parametrize(("page", "event", "relation", "delta", "shown"), NUMBERS)
@pytest.mark.one_in(8)
def test_worked_numbers(page: str, event: Event, relation: NeighboringRelation, delta: float, shown: str) -> None:
    digits = len(shown.partition(".")[2])
    assert f"{epsilon_for_delta([event], relation, delta).value.upper:.{digits}f}" == shown
    assert shown in (PAGES / f"{page}.md").read_text()


def test_every_scheme_has_a_page_and_says_what_is_refused() -> None:
    readme = (PAGES / "README.md").read_text()
    for name in (
        "full_batch",
        "poisson",
        "without_replacement",
        "with_replacement",
        "truncated_poisson",
        "shuffle_model",
        "random_allocation",
        "shuffled_epochs",
        "disjoint_batches",
    ):
        text = (PAGES / f"{name}.md").read_text()
        assert f"({name}.md)" in readme
        for part in ("**Proved**", "**Numerical**", "**Refused**", "**Worked number"):
            assert part in text, (name, part)
    for sampling in (WithoutReplacement(1, 2), ShuffledEpochs(2), DisjointBatches("by_position")):
        assert ADD_REMOVE not in sampling.relations
