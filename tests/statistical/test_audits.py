"""Audits of honest and of broken trainers. Every audit has a seed, so that a test always ends the same way.

With other seeds: of 2025 honest audits of five plans by the methods guesses, clopper_pearson and one_run none was
called violated; of 360 by gaussian_dp, which is nearly tight, 3 were (the confidence allows 5 %). The faults below were
caught with each of 20 other seeds (8 for the clip of the sum), by bounds that are four standard deviations or more
above their claims. The tight claim is proved to six tenths with 15 seeds of 16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from accounting.events import CyclicPoisson, Event, Gaussian, Poisson, RandomAllocation, Sampling
from accounting.relations import NeighboringRelation
from calibrators.plan import Clip, GradientBound, Normalize, Phase, Plan
from tests.trainer.plans import correlated_of, phase_of, plan_of
from trainer.arrays import Array
from trainer.audit.audit import audit
from trainer.audit.canaries import OPPOSED, ORTHOGONAL
from trainer.audit.observation import observe
from trainer.audit.result import CONSISTENT, VIOLATED
from trainer.exact.correlated import CorrelatedNoise
from trainer.exact.gaussian import RoundedGaussian
from trainer.grid import Grid
from trainer.records import Indices, Records, Selection
from trainer.samplers import AllocationSampler, FullBatchSampler, Sampler, TurnsSampler
from trainer.streams import RandomStreams
from trainer.sums import BoundedSum

BOUNDS: dict[str, Clip | Normalize] = {"dp_sgd": Clip(2.5), "dp_nsgd": Normalize(0.2)}
every_algorithm = pytest.mark.parametrize("algorithm", BOUNDS)


def tight(algorithm: str) -> Plan:
    """One full-batch step of mu = 1: epsilon is 4.377 at delta 1e-5."""
    return plan_of(algorithm, phase_of(BOUNDS[algorithm], noise_multiplier=1.0, steps=1))


def sampled(algorithm: str) -> Plan:
    """Twenty epochs of Poisson batches that hold a tenth of the records each."""
    return plan_of(algorithm, phase_of(BOUNDS[algorithm], noise_multiplier=2.0, probability=0.1, steps=200))


@pytest.mark.thorough
@pytest.mark.one_in(3)
@every_algorithm
def test_a_tight_claim_is_proved_to_six_tenths(algorithm: str) -> None:
    result = audit(tight(algorithm), trials=100_000, seed=1)
    assert result.verdict == CONSISTENT
    assert result.claim.upper == pytest.approx(4.377, abs=1e-3)
    assert 0.6 * result.claim.upper <= result.epsilon_lower <= result.claim.upper


@pytest.mark.thorough
def test_a_tight_claim_of_gaussian_dp_is_proved_nearly_in_full() -> None:
    result = audit(tight("dp_sgd"), trials=100_000, method="gaussian_dp", seed=1)
    assert result.verdict == CONSISTENT
    assert 0.95 * result.claim.upper <= result.epsilon_lower <= result.claim.upper


@pytest.mark.parametrize(
    ("method", "trials", "share"),
    [pytest.param("clopper_pearson", 100_000, 0.5, marks=pytest.mark.thorough), ("one_run", 4000, 0.3)],
)
def test_the_other_methods_stay_under_the_claim_and_have_power(method: str, trials: int, share: float) -> None:
    result = audit(tight("dp_sgd"), trials=trials, method=method, seed=1)
    assert result.verdict == CONSISTENT
    assert share * result.claim.upper <= result.epsilon_lower <= result.claim.upper


@pytest.mark.parametrize("relation", list(NeighboringRelation))
@every_algorithm
@pytest.mark.one_in(8)
def test_sampled_steps_stay_under_the_claim_under_every_relation(algorithm: str, relation: NeighboringRelation) -> None:
    phases = (phase_of(BOUNDS[algorithm], noise_multiplier=1.5, probability=0.3, steps=12),)
    result = audit(Plan(algorithm, 8, relation, phases), trials=20_000, seed=2)
    assert result.verdict == CONSISTENT
    assert 0.3 * result.claim.upper <= result.epsilon_lower <= result.claim.upper


@pytest.fixture
def halved_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    scale_noise(monkeypatch, 0.5)


def scale_noise(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    honest = RoundedGaussian.rounded
    monkeypatch.setattr(RoundedGaussian, "rounded", lambda noise, size, scale: honest(noise, size, factor * scale))


@pytest.mark.usefixtures("halved_noise")
@pytest.mark.parametrize("method", ["guesses", "clopper_pearson", "gaussian_dp"])
@every_algorithm
@pytest.mark.one_in(3)
def test_halved_noise_is_caught(algorithm: str, method: str) -> None:
    result = audit(tight(algorithm), trials=20_000, method=method, seed=3)
    assert result.verdict == VIOLATED


@pytest.mark.thorough
@pytest.mark.usefixtures("halved_noise")
def test_halved_noise_is_caught_at_the_delta_that_was_asked_about() -> None:
    """Without the comparison at larger deltas: epsilon is 9.99 instead of 4.377."""
    result = audit(tight("dp_sgd"), trials=100_000, seed=3)
    assert result.finding.delta == 1e-5
    assert result.finding.contradicts_the_claim


@pytest.mark.usefixtures("halved_noise")
def test_halved_noise_is_caught_where_steps_are_sampled() -> None:
    assert audit(sampled("dp_sgd"), trials=3000, seed=3).verdict == VIOLATED


def test_forgotten_noise_is_caught_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RoundedGaussian, "rounded", lambda _, size, scale: np.zeros(size))
    assert audit(tight("dp_sgd"), trials=1000, method="one_run", seed=4).verdict == VIOLATED


def bound_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what must not be done: bound the sum of raw gradients as a whole."""
    honest = BoundedSum.at

    def raw(bound: GradientBound, norms: Array, margin: float) -> Array:
        return np.ones_like(norms) / bound.contribution_bound

    def at(sums: BoundedSum, point: Array, slots: Selection, bound: GradientBound, grid: Grid) -> Array:
        total = honest(sums, point, slots, bound, grid)
        length = max(float(np.linalg.norm(grid.decoded(total, bound.contribution_bound))), 1e-300)
        if isinstance(bound, Clip):
            return np.rint(total * min(1.0, bound.max_grad_norm / length))
        return np.rint(total / (bound.regularizer + length))

    monkeypatch.setattr("trainer.sums.contribution_factors", raw)
    monkeypatch.setattr(BoundedSum, "at", at)


@pytest.mark.thorough
@every_algorithm
@pytest.mark.one_in(1000)
def test_a_bound_on_the_sum_is_caught(monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    assert audit(tight(algorithm), trials=1500, design=OPPOSED, seed=5).verdict == CONSISTENT
    bound_the_sum(monkeypatch)
    assert audit(tight(algorithm), trials=1500, design=OPPOSED, seed=5).verdict == VIOLATED


def test_noise_scaled_by_the_regularizer_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A normalised gradient is as long as 1 for every r; whoever takes r for its bound adds too little noise."""
    bound = BOUNDS["dp_nsgd"]
    assert isinstance(bound, Normalize)
    scale_noise(monkeypatch, bound.regularizer)
    assert audit(tight("dp_nsgd"), trials=3000, seed=6).verdict == VIOLATED
    assert audit(sampled("dp_nsgd"), trials=3000, seed=6).verdict == VIOLATED


class Shuffled:
    """One secret permutation, cut into batches, gone through in the same order in every epoch; or a new one in each."""

    def __init__(self, positions: Indices, epoch: int, generator: np.random.Generator, *, anew: bool) -> None:
        self._positions, self._epoch, self._generator, self._anew = positions, epoch, generator, anew
        self._batches = self._cut()

    def _cut(self) -> Iterator[Indices]:
        kept = np.array_split(self._generator.permutation(self._positions), self._epoch)
        while True:
            yield from kept
            if self._anew:
                kept = np.array_split(self._generator.permutation(self._positions), self._epoch)

    def draw(self) -> Indices:
        return np.sort(next(self._batches))

    def state(self) -> dict[str, object]:
        return {}

    def restore(self, state: dict[str, object]) -> None:
        """No run here is resumed."""


def shuffle(monkeypatch: pytest.MonkeyPatch, *, anew: bool) -> None:
    def sampler(
        streams: RandomStreams, sampling: Sampling, steps: int, divisor: int, dataset_size: int, records: Records
    ) -> Sampler:
        assert isinstance(sampling, Poisson)
        epoch = round(1.0 / sampling.sampling_probability)
        return Shuffled(records.positions, epoch, streams.sampling.generator(), anew=anew)

    monkeypatch.setattr(RandomStreams, "sampler", sampler)


@pytest.mark.one_in(3)
@every_algorithm
def test_shuffling_where_poisson_was_claimed_is_caught(monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    assert audit(sampled(algorithm), trials=4000, seed=7).verdict == CONSISTENT
    shuffle(monkeypatch, anew=False)
    assert audit(sampled(algorithm), trials=4000, seed=7).verdict == VIOLATED


def test_a_new_permutation_in_every_epoch_is_caught_where_noise_is_low(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Poisson batch may never hold a record; a shuffled epoch always does."""
    plan = plan_of("dp_sgd", phase_of(Clip(1.0), noise_multiplier=0.2, probability=0.25, steps=4))
    assert audit(plan, trials=4000, seed=8).verdict == CONSISTENT
    shuffle(monkeypatch, anew=True)
    assert audit(plan, trials=4000, seed=8).verdict == VIOLATED


def test_batches_of_everyone_where_poisson_was_claimed_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RandomStreams, "sampler", lambda *arguments: FullBatchSampler(arguments[-1].capacity))
    assert audit(sampled("dp_sgd"), trials=2000, seed=9).verdict == VIOLATED


def test_one_allocation_for_all_epochs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each epoch draws anew: a record that is in the same step of all of twenty is seen there twenty times."""
    phase = Phase(Event(Gaussian(2.0), RandomAllocation(10, 1), count=200), Clip(2.5), 4, 0.5)
    plan = plan_of("dp_sgd", phase)
    assert audit(plan, trials=4000, seed=10).verdict == CONSISTENT
    draw = AllocationSampler._begin

    def draw_once(sampler: AllocationSampler, generator: np.random.Generator, length: int) -> None:
        if sampler.state()["drawn"] == 0:
            draw(sampler, generator, length)

    monkeypatch.setattr(AllocationSampler, "_begin", draw_once)
    assert audit(plan, trials=4000, seed=10).verdict == VIOLATED


@pytest.mark.parametrize("relation", [NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_SPECIAL])
def test_correlated_noise_stays_under_the_claim_and_audits_of_it_have_power(relation: NeighboringRelation) -> None:
    phase = correlated_of(0.75, 0.625, noise_multiplier=2.0, steps=20)
    result = audit(Plan("dp_bandmf", 8, relation, (phase,)), trials=8000, seed=11)
    assert result.verdict == CONSISTENT
    assert 0.3 * result.claim.upper <= result.epsilon_lower <= result.claim.upper


def test_a_cycle_that_is_shorter_than_the_bands_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise over three steps, and cycles of two."""
    sampling = CyclicPoisson(0.5, 3, "independent")
    plan = plan_of("dp_bandmf", correlated_of(0.625, 0.5, 0.5, sampling=sampling, steps=40, noise_multiplier=1.2))
    assert audit(plan, trials=2000, seed=12).verdict == CONSISTENT
    honest = RandomStreams.sampler

    def shorter(streams: RandomStreams, sampling: CyclicPoisson, *given: Any) -> Sampler:
        return honest(streams, replace(sampling, cycle_length=sampling.cycle_length - 1), *given)

    monkeypatch.setattr(RandomStreams, "sampler", shorter)
    assert audit(plan, trials=2000, seed=12).verdict == VIOLATED


def test_fresh_noise_under_the_charge_of_correlated_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Normal numbers in place of C^-1 Z, which are smaller where |c| is below 1."""
    sampling = CyclicPoisson(1.0, 2, "independent")
    plan = plan_of("dp_bandmf", correlated_of(0.5, 0.5, sampling=sampling, steps=20))
    assert audit(plan, trials=3000, seed=13).verdict == CONSISTENT
    monkeypatch.setattr(CorrelatedNoise, "rounded", lambda noise, size, scale: noise._noise.rounded(size, scale))
    assert audit(plan, trials=3000, seed=13).verdict == VIOLATED


@pytest.mark.parametrize("method", ["guesses", "gaussian_dp"])
@pytest.mark.one_in(2)
def test_groups_that_are_drawn_anew_are_caught(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """The last step of a cycle and the first of the next may both be a record's, and their noise cancels."""
    sampling = CyclicPoisson(1.0, 2, "independent")
    plan = plan_of("dp_bandmf", correlated_of(0.6875, 0.6875, noise_multiplier=4.0, sampling=sampling, steps=60))
    assert audit(plan, trials=12_000, method=method, seed=14).verdict == CONSISTENT
    draw, anew = TurnsSampler.draw, np.random.default_rng(1)

    def redrawn(sampler: TurnsSampler) -> Indices:
        if sampler._drawn % sampler._turns == 0:
            sampler._turn_of = anew.permutation(sampler._turn_of)
            sampler._deal()
        return draw(sampler)

    monkeypatch.setattr(TurnsSampler, "draw", redrawn)
    assert audit(plan, trials=12_000, method=method, seed=14).verdict == VIOLATED


@pytest.mark.one_in(3)
@pytest.mark.parametrize("probability", [None, 0.3])
def test_canaries_of_one_run_are_as_canaries_of_their_own_runs(probability: float | None) -> None:
    """The law of a canary's noisy sums is the same among many in one run as alone, and no two of one run correlate."""
    plan = plan_of("dp_sgd", phase_of(Clip(2.5), noise_multiplier=0.7, probability=probability, steps=2))
    together = observe(plan, np.ones(600, dtype=bool), ORTHOGONAL, 10).noisy_sums
    alone = [observe(plan, np.ones(1, dtype=bool), ORTHOGONAL, 11 + i).noisy_sums for i in range(600)]
    assert together is not None
    apart = np.concatenate([sums for sums in alone if sums is not None], axis=1)
    for step in range(2):
        assert stats.ks_2samp(together[step], apart[step]).pvalue > 1e-3
    many = [observe(plan, np.ones(4, dtype=bool), ORTHOGONAL, 900 + i).noisy_sums for i in range(500)]
    pairs = np.array([sums.ravel() for sums in many if sums is not None])
    correlations = np.corrcoef(pairs.T) - np.eye(pairs.shape[1])
    assert np.max(np.abs(correlations)) < 4.5 / np.sqrt(500)
