"""A paper's printed noise through the engine: sound, loose or unsound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accounting.events import Event, FullBatch, Gaussian, Poisson, ShuffledEpochs, WithoutReplacement
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.as_published import Verdict, judge
from calibrators.noise import solve_gaussian_steps
from calibrators.spec import Spec

ADD, ONE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
TARGET = ApproximateDpTarget(1.0, 1e-5)
SPEC = Spec(1000, TARGET, iterations=50, sampling="full_batch", neighboring_relation=ONE)
NEEDED = solve_gaussian_steps(SPEC).noise_multiplier


def judged(printed: float, needed: float | None = NEEDED) -> tuple[Verdict, str]:
    events = [Event(Gaussian(printed), FullBatch(), 50)]
    return judge(events, ONE, TARGET, printed=printed, needed=needed, setting="full batches, replace_one")


def test_noise_that_just_meets_the_target_is_sound() -> None:
    for factor in (1.0, 1.005):
        verdict, why = judged(factor * NEEDED)
        assert verdict is Verdict.SOUND
        assert "meets the target of 1" in why
        assert "full batches, replace_one" in why


def test_noise_with_room_to_spare_is_loose_and_by_how_much_is_said() -> None:
    verdict, why = judged(3.0 * NEEDED)
    assert verdict is Verdict.LOOSE
    assert "3 times the noise that is needed" in why
    # Where what is needed is not known, nothing is said of it.
    assert judged(3.0 * NEEDED, needed=None)[0] is Verdict.SOUND


def test_too_little_noise_is_unsound_with_the_cost_that_is_certain() -> None:
    verdict, why = judged(0.99 * NEEDED)
    assert verdict is Verdict.UNSOUND
    assert "above the target of 1" in why
    # The paper's half: the sensitivity of one record under replace_one taken as 1.
    assert judged(NEEDED / 2.0)[0] is Verdict.UNSOUND


def test_the_relation_is_the_papers_own() -> None:
    """The same noise that is half of what replace_one needs is what add_or_remove_one does."""
    events = [Event(Gaussian(NEEDED / 2.0 * 1.0001), FullBatch(), 50)]
    assert judge(events, ADD, TARGET, printed=1.0, needed=None, setting="x")[0] is Verdict.SOUND
    assert judge(events, ONE, TARGET, printed=1.0, needed=None, setting="x")[0] is Verdict.UNSOUND


def test_where_the_interval_holds_the_target_nothing_is_called_sound() -> None:
    """A fixed-size sample's interval has a width: a target inside it cannot be decided."""
    events = [Event(Gaussian(1.0), WithoutReplacement(100, 1000), 50)]
    cost = TARGET.assess(events, ONE).value
    assert cost.lower < cost.upper
    inside = replace(TARGET, epsilon=(cost.lower + cost.upper) / 2.0)
    verdict, why = judge(events, ONE, inside, printed=1.0, needed=0.9, setting="x")
    assert verdict is Verdict.UNSOUND
    assert "could not be decided" in why


def test_what_the_engine_does_not_account_is_unsound_and_says_so() -> None:
    events = [Event(Gaussian(5.0), ShuffledEpochs(10), 50)]
    verdict, why = judge(events, ADD, TARGET, printed=5.0, needed=None, setting="shuffled")
    assert verdict is Verdict.UNSOUND
    assert "cannot certify the printed noise" in why


@pytest.mark.parametrize("size", [100, 200])
def test_sampling_counts(size: int) -> None:
    """Noise that is far too little for every record is enough for a Poisson sample."""
    events = [Event(Gaussian(3.0), Poisson(size / 1000), 50)]
    full = [Event(Gaussian(3.0), FullBatch(), 50)]
    target = replace(TARGET, epsilon=4.0)
    assert judge(events, ADD, target, printed=3.0, needed=None, setting="x")[0] is Verdict.SOUND
    assert judge(full, ADD, target, printed=3.0, needed=None, setting="x")[0] is Verdict.UNSOUND
