"""What an audit is made of: its runs, its pilot, what it tells, refuses and repeats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from accounting.accountant import epsilon_for_delta
from accounting.errors import InvalidValue, Unsupported
from accounting.events import CyclicPoisson, Event, Gaussian, WithoutReplacement, ZcDp
from accounting.relations import NeighboringRelation
from calibrators.geometry import Box, Domain, L1Ball, L2Ball, LpBall
from calibrators.phases.gradient_estimates import EstimatePhase
from calibrators.phases.mirror_steps import MirrorPhase
from calibrators.phases.recursive_selections import RecursiveSelections
from calibrators.phases.structured import StructuredPhase
from calibrators.phases.vertex_steps import VertexSteps
from calibrators.phases.vertex_trees import TreePhase
from calibrators.plan import Clip, CorrelatedSteps, Normalize, Phase, Plan
from calibrators.spec import default_capacity
from tests.conformance.trainers.examples import plan_of as conformance_plan
from tests.trainer.plans import correlated_of, phase_of, plan_of
from tests.transcriptions.dp_bandmf import correlated
from trainer.algorithms import EXECUTIONS
from trainer.audit.audit import AuditCancelled, audit, schedule
from trainer.audit.canaries import DESIGNS, OPPOSED, ORTHOGONAL, model
from trainer.audit.methods import Method, best_rule
from trainer.audit.observation import observe
from trainer.audit.result import CONSISTENT
from trainer.audit.scores import Observation
from trainer.audit.trials import Rule, Trials
from trainer.execution import Coordinates
from trainer.grid import grid_for
from trainer.loop import grid_of
from trainer.streams import random_streams

SUBTRACTING = [
    name for name, each in EXECUTIONS.items() if each.coordinates is Coordinates.SUBTRACTED and each.phase_type is Phase
]
PLAN = plan_of("dp_sgd", phase_of(Clip(2.5), noise_multiplier=1.0, steps=2))
TIED = Plan(
    "dp_sgd",
    64,
    NeighboringRelation.REPLACE_ONE,
    (Phase(Event(Gaussian(2.0), WithoutReplacement(16, 64)), Clip(1.0), 16, 0.5),),
)


@pytest.mark.parametrize("name", SUBTRACTING)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_attacker_sees_the_contribution_and_the_runs_own_noise(name: str, dtype: str) -> None:
    """Of every step, whatever its phase's step size and divisor are: 1 where the canary is, and sigma Z."""
    bound = Normalize(0.5) if name == "dp_nsgd" else Clip(2.5)
    phases = (
        phase_of(bound, noise_multiplier=0.3, steps=2, divisor=9, step_size=0.7),
        phase_of(bound, noise_multiplier=2.0, steps=1, divisor=2, step_size=0.01),
    )
    plan = replace(plan_of(name, *phases), dtype=dtype)
    seen = observe(plan, np.array([True, False, True]), ORTHOGONAL, 5)
    noise = random_streams(5).gaussian_noise()
    grids = [grid_for(sigma, 3, dtype, default_capacity(plan.dataset_size)) for sigma in (0.3, 0.3, 2.0)]
    drawn = np.array([grid.step * noise.rounded(3, grid.scale) for grid in grids])
    noise.close()
    expected = np.array([1.0, 0.0, 1.0]) + drawn
    assert seen.noisy_sums is not None
    np.testing.assert_allclose(seen.noisy_sums, expected, atol=0.01 if dtype == "float32" else 0.002)
    lengths = np.array([[0.7 / 9], [0.7 / 9], [0.01 / 2]]) * bound.contribution_bound
    np.testing.assert_allclose(seen.displacement, np.sum(lengths * seen.noisy_sums, axis=0), rtol=1e-9)


def test_the_attacker_sees_correlated_noise_and_whose_turn_it_is() -> None:
    """Whatever the momentum and the step sizes are: 1 where a canary that takes part has its turn, and C^-1 s Z."""
    sampling = CyclicPoisson(1.0, 3, "independent")
    phase = correlated_of(
        0.75, 0.5, 0.25, noise_multiplier=0.3, sampling=sampling, step_size=tuple(0.1 + 0.01 * t for t in range(7))
    )
    plan = plan_of("dp_bandmf", phase)
    members = np.array([True, False, True, True])
    seen = observe(plan, members, ORTHOGONAL, 5)
    assert seen.turns is not None
    assert seen.noisy_sums is not None
    assert np.all(seen.turns[:3].sum(axis=0) == 1)
    np.testing.assert_array_equal(seen.turns[3:], seen.turns[:4])
    noise = random_streams(5).gaussian_noise()
    grid = grid_of(plan, phase, model(4), default_capacity(plan.dataset_size))
    scale = grid.scale * 4.0
    drawn = [0.3 * noise.rounded(4, scale) / scale for _ in range(7)]
    noise.close()
    expected = np.where(seen.turns & members, 1.0, 0.0) + np.stack(correlated(phase.coefficients, drawn))
    np.testing.assert_allclose(seen.noisy_sums, expected, atol=1e-4)


#: A domain that is never left; where the algorithm takes no l2 ball, another one.
DOMAINS: dict[str, Domain] = {"dp_adam": Box(-1e4, 1e4), "dp_nadam": Box(-1e4, 1e4)}
#: A short phase of some kinds that are not noisy gradient steps; others are audited as the conformance suite runs them.
STRUCTURED: dict[type, StructuredPhase] = {
    type(phase): phase
    for phase in (
        TreePhase(Event(ZcDp(0.5)), 1, 2, (0.01,), lipschitz=1.0, smoothness=1.0),
        VertexSteps(Event(ZcDp(0.5)), 4, 0.01, lipschitz=1.0),
        RecursiveSelections(Event(ZcDp(0.5)), 2, 2, 2, 0.5, 0.01, lipschitz=1.0, smoothness=1.0),
    )
}

#: Those with noise in an l_p norm, by the algorithm: it may have phases of several kinds.
IN_LP_BALLS: dict[str, StructuredPhase] = {
    "noisy_mirror_descent": MirrorPhase(Event(ZcDp(0.5), count=2), 1.5, 2.0, 4, 0.01, lipschitz=1.0, step_size=0.1),
    "noisy_sfw_lp": EstimatePhase(Event(ZcDp(0.5)), "sums", 1.5, 2.0, 2, 2, 2, 0.01, 0.01, 1.0, 1.0, step_size=0.5),
    "noisy_sfw_nonconvex_lp": EstimatePhase(
        Event(ZcDp(0.5)), "momentum", 1.5, 2.0, 2, 2, 2, 0.01, 0.01, 1.0, 1.0, step_size=0.5
    ),
}


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("name", sorted(EXECUTIONS))
@pytest.mark.one_in(6)
def test_every_algorithm_can_be_audited(name: str, design: str) -> None:
    algorithm = EXECUTIONS[name]
    if algorithm.phase_type is Phase:
        bound = Normalize(0.5) if algorithm.gradient_bound is Normalize else Clip(2.5)
        plan = replace(
            plan_of(name, phase_of(bound, noise_multiplier=0.1, steps=1)), domain=DOMAINS.get(name, L2Ball(1e4))
        )
    elif algorithm.phase_type is CorrelatedSteps:
        plan = plan_of(name, correlated_of(0.75, 0.5, noise_multiplier=0.1, steps=3))
    elif name not in IN_LP_BALLS and algorithm.phase_type not in STRUCTURED:
        plan = conformance_plan(name)
    else:
        phase = IN_LP_BALLS.get(name) or STRUCTURED[algorithm.phase_type]
        domain = LpBall(1.5, 1.0) if name in IN_LP_BALLS else L1Ball(1.0)
        plan = Plan(name, 4, NeighboringRelation.REPLACE_ONE, (phase,), domain=domain)
    result = audit(plan, trials=40, delta=1e-3, seed=1, design=design)
    assert result.verdict == CONSISTENT
    assert result.finding.counts.trials == 40


def test_the_claim_is_what_is_certified_for_the_plan() -> None:
    result = audit(PLAN, delta=1e-4, trials=100, seed=1)
    assert result.claim == epsilon_for_delta(PLAN.events, PLAN.neighboring_relation, 1e-4).value
    assert result.finding.delta == 1e-4
    strongest = result.strongest
    assert strongest is not None
    assert strongest.claim == epsilon_for_delta(PLAN.events, PLAN.neighboring_relation, strongest.delta).value


def test_the_two_findings_share_the_error() -> None:
    result = audit(PLAN, trials=100, confidence=0.9, seed=1)
    assert result.strongest is not None
    assert 2.0 - result.finding.confidence - result.strongest.confidence == pytest.approx(0.1, rel=1e-12)
    alone = audit(PLAN, trials=100, confidence=0.9, method="one_run", seed=1)
    assert alone.strongest is None
    assert alone.finding.confidence == pytest.approx(0.9, rel=1e-12)


@pytest.mark.parametrize("method", ["guesses", "one_run"])
def test_rules_are_chosen_on_trials_that_are_not_counted(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    pilots: list[Trials] = []

    def watched(
        way: Method, pilot: Trials, goals: Sequence[tuple[float, float]], confidence: float
    ) -> tuple[Rule, float]:
        pilots.append(pilot)
        return best_rule(way, pilot, goals, confidence)

    runs: list[np.ndarray] = []

    def seen(*arguments: Any) -> Observation:
        observation = observe(*arguments)
        runs.append(observation.displacement)
        return observation

    monkeypatch.setattr("trainer.audit.audit.best_rule", watched)
    monkeypatch.setattr("trainer.audit.audit.observe", seen)
    result = audit(PLAN, trials=600, method=method, seed=1)
    everything = np.concatenate(runs)
    for pilot in pilots:
        np.testing.assert_array_equal(pilot.scores["released_model"], everything[: pilot.count])
        assert pilot.count + result.trials == everything.size
    assert result.finding.counts.trials == result.trials == 600


@pytest.mark.parametrize(
    ("plan", "method", "design", "pilot", "counted", "told"),
    [
        (PLAN, "guesses", ORTHOGONAL, (240,), (512, 512, 176), ""),
        (PLAN, "clopper_pearson", OPPOSED, (1,) * 240, (1,) * 1200, "one canary"),
        (PLAN, "one_run", ORTHOGONAL, (1200,), (1200,), ""),
        (TIED, "guesses", ORTHOGONAL, (1,) * 240, (1,) * 1200, "without_replacement"),
        (replace(PLAN, domain=L2Ball(1.0)), "guesses", ORTHOGONAL, (1,) * 240, (1,) * 1200, "projection"),
    ],
)
def test_runs_have_many_canaries_only_where_they_are_independent(
    plan: Plan, method: str, design: str, pilot: tuple[int, ...], counted: tuple[int, ...], told: str
) -> None:
    runs = schedule(plan, 1200, method, design)
    assert (runs.pilot, runs.counted) == (pilot, counted)
    assert told in runs.note
    assert bool(told) == bool(runs.note)


def test_long_runs_have_fewer_canaries_at_a_time() -> None:
    long = plan_of("dp_sgd", phase_of(Clip(1.0), steps=200_000))
    runs = schedule(long, 1000, "guesses", ORTHOGONAL)
    assert max(runs.counted) * 200_000 <= 2 * 10**7
    assert sum(runs.counted) == 1000


def test_whatever_ties_canaries_is_audited_one_by_one_and_said() -> None:
    result = audit(TIED, trials=60, seed=1)
    assert result.verdict == CONSISTENT
    assert result.canaries_per_run == 1
    assert result.runs == 72
    assert any("without_replacement" in note for note in result.notes)


def test_a_domain_hides_the_steps_and_the_answer_says_so() -> None:
    result = audit(replace(PLAN, domain=L2Ball(100.0)), trials=60, seed=1)
    assert any("only the released model" in note for note in result.notes)


def test_too_few_trials_to_contradict_are_said_to_be() -> None:
    """A hundred right guesses prove 3.5 at 95 %; the claim is 6.6."""
    result = audit(PLAN, trials=100, seed=1)
    assert result.largest_provable_epsilon < result.claim.upper
    assert any("This number of trials can prove" in note for note in result.notes)
    enough = audit(PLAN, trials=20_000, seed=1)
    assert enough.largest_provable_epsilon > enough.claim.upper
    assert enough.notes == ()


def test_seeded_audits_repeat_and_others_differ() -> None:
    results = [audit(PLAN, trials=600, seed=seed).to_json() for seed in (1, 1, 2, None, None)]
    assert results[0] == results[1]
    assert len({json.dumps(result, allow_nan=False) for result in results}) == 4


def test_progress_counts_runs() -> None:
    told: list[tuple[int, int]] = []
    result = audit(PLAN, trials=1200, seed=1, on_progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 4) for done in range(5)]
    assert result.runs == 4


def test_a_cancelled_audit_finds_nothing() -> None:
    """Asked before each of a run's two steps: here in the middle of the third run."""
    answers = iter([False] * 5 + [True])
    with pytest.raises(AuditCancelled) as stopped:
        audit(PLAN, trials=1200, seed=1, is_cancelled=lambda: next(answers))
    assert stopped.value.runs == 2
    assert next(answers, None) is None


@pytest.mark.parametrize(
    ("arguments", "pointer"),
    [
        ({"method": "magic"}, ("method",)),
        ({"design": "magic"}, ("design",)),
        ({"delta": 0.0}, ("delta",)),
        ({"confidence": 1.0}, ("confidence",)),
        ({"trials": 9}, ("trials",)),
        ({"trials": 10**8}, ("trials",)),
        ({"method": "one_run", "trials": 4097}, ("trials",)),
        ({"method": "one_run", "trials": 100, "design": OPPOSED}, ("design",)),
    ],
)
def test_what_cannot_be_audited_is_refused(arguments: dict[str, object], pointer: tuple[str, ...]) -> None:
    with pytest.raises(InvalidValue) as refusal:
        audit(PLAN, **arguments)  # type: ignore[arg-type]
    assert refusal.value.pointer == pointer


def test_one_run_has_room_for_the_declared_size_where_batches_have_a_fixed_one() -> None:
    with pytest.raises(InvalidValue, match="room for 64"):
        audit(TIED, trials=65, method="one_run")
    assert audit(TIED, trials=64, method="one_run", seed=1).verdict == CONSISTENT


def test_gaussian_dp_is_refused_where_it_is_not_claimed() -> None:
    with pytest.raises(Unsupported, match="only plans of full-batch Gaussian steps"):
        audit(plan_of("dp_sgd", phase_of(Clip(1.0), probability=0.5)), trials=100, method="gaussian_dp")


def test_a_plan_without_a_trainer_is_refused() -> None:
    with pytest.raises(Unsupported):
        audit(replace(PLAN, algorithm="magic"), trials=100)
