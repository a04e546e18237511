"""Small runs and transcriptions of the algorithms of Lowy & Razaviyayn."""

from __future__ import annotations

import numpy as np

from calibrators.geometry import Box, L1Penalty, L2Ball, L2Penalty
from calibrators.phases.localized_phases import LocalizedPhase
from calibrators.phases.median_of_means import MedianPhase
from calibrators.phases.shuffled_counts import ShuffledCounts
from calibrators.phases.shuffled_medians import ShuffledMedians
from calibrators.plan import Clip
from calibrators.release import WeightedAverage
from tests.conformance.trainers.subjects.a_run import FEATURES, ROWS, Run, spec
from tests.conformance.trainers.subjects.drawn import Drawn, Vector
from tests.conformance.trainers.subjects.subject import Subject
from tests.transcriptions import (
    clipped_acsa,
    clipped_mean,
    clipped_prox_sgd,
    clipped_sgd_strongly_convex,
    coordinatewise_mean,
    localized_clipped_strongly_convex,
    localized_clipped_subgradient,
    shuffle_coordinatewise_mean,
    shuffle_vector_mean,
)
from trainer.clipping import margin


def lowy_one_pass(drawn: Drawn) -> Vector:
    phase, domain, penalty, release = drawn.phase, drawn.plan.domain, drawn.plan.penalty, drawn.plan.release
    assert isinstance(domain, L2Ball)
    assert isinstance(release, WeightedAverage)
    _, average = clipped_sgd_strongly_convex.trajectory(
        drawn.start,
        drawn.gradient,
        drawn.batches,
        drawn.noises,
        etas=[phase.step_size_at(index) for index in range(phase.steps)],
        zetas=release.weights,
        C=drawn.clip,
        s=phase.divisor,
        sigma=phase.noise_stddev_on_mean,
        radius=domain.radius,
        penalty=penalty.strength if isinstance(penalty, L2Penalty) else 0.0,
    )
    return average


def lowy_accelerated(drawn: Drawn) -> Vector:
    phase, domain, penalty = drawn.phase, drawn.plan.domain, drawn.plan.penalty
    path = clipped_acsa.trajectory(
        drawn.start,
        drawn.gradient,
        drawn.batches,
        drawn.noises,
        eta=0.5 / drawn.step_size,
        C=drawn.clip,
        s=phase.divisor,
        sigma=phase.noise_stddev_on_mean,
        radius=domain.radius if isinstance(domain, L2Ball) else float("inf"),
        penalty=penalty.strength if isinstance(penalty, L2Penalty) else 0.0,
    )
    return path[-1][-1]


def lowy_mean(drawn: Drawn) -> Vector:
    """Of minus the gradients at the start; Z is added there, and so subtracted here."""
    [batch], [noise] = drawn.batches, drawn.noises
    records = [-drawn.gradient(drawn.start, i) for i in batch]
    sigma = drawn.phase.noise_stddev_on_mean
    return drawn.start + clipped_mean.mean_oracle_1(records, -noise, C=drawn.clip, sigma=sigma)


def lowy_medians(drawn: Drawn) -> Vector:
    [phase], [noise] = drawn.plan.phases, drawn.noises
    assert isinstance(phase, MedianPhase)
    records, size = [-drawn.gradient(drawn.start, i) for i in drawn.order], phase.group_size
    groups = [records[i * size : (i + 1) * size] for i in range(phase.groups)]
    tau = phase.truncation_radius * (1.0 - margin("float64"))
    return drawn.start + coordinatewise_mean.mean_oracle_2(groups, noise, tau=tau, sigma=phase.noise_stddev)


def lowy_proximal(drawn: Drawn) -> Vector:
    phase, domain, penalty = drawn.phase, drawn.plan.domain, drawn.plan.penalty

    def prox(v: float, eta: float) -> float:
        if isinstance(penalty, L1Penalty):
            v = clipped_prox_sgd.soft_threshold(v, eta, penalty.strength)
        if isinstance(penalty, L2Penalty):
            v = clipped_prox_sgd.shrink(v, eta, penalty.strength)
        return min(max(v, domain.lower), domain.upper) if isinstance(domain, Box) else v

    return clipped_prox_sgd.trajectory(
        drawn.start,
        drawn.gradient,
        drawn.batches,
        drawn.noises,
        prox=prox,
        eta=drawn.step_size,
        C=drawn.clip,
        s=phase.divisor,
        sigma=phase.noise_stddev_on_mean,
    )[-1]


def lowy_localized(drawn: Drawn) -> Vector:
    [phase], domain, penalty = drawn.plan.phases, drawn.plan.domain, drawn.plan.penalty
    assert isinstance(phase, LocalizedPhase)
    assert isinstance(domain, L2Ball)
    return localized_clipped_subgradient.algorithm_4(
        drawn.start,
        drawn.gradient,
        drawn.order,
        drawn.noises,
        n=phase.records,
        T=phase.inner_iterations,
        eta=phase.step_size,
        lam=phase.regularizer,
        C=[bound * (1.0 - drawn.margin) for bound in phase.max_grad_norm],
        sigma=phase.noise_stddev_on_mean,
        D=phase.radius or [float("inf")] * len(phase.records),
        W=localized_clipped_subgradient.ball(domain.radius),
        penalty=penalty.strength if isinstance(penalty, L2Penalty) else 0.0,
    )


def lowy_reduction(drawn: Drawn) -> Vector:
    [phase], domain, penalty = drawn.plan.phases, drawn.plan.domain, drawn.plan.penalty
    assert isinstance(phase, LocalizedPhase)
    assert isinstance(domain, L2Ball)
    assert isinstance(penalty, L2Penalty)
    firsts = [block for block, size in enumerate(phase.records) if block == 0 or size >= phase.records[block - 1]]
    ends = [*firsts[1:], len(phase.records)]
    return localized_clipped_strongly_convex.reduction(
        drawn.start,
        drawn.gradient,
        drawn.order,
        drawn.noises,
        [
            {
                "n": phase.records[first:end],
                "T": phase.inner_iterations[first:end],
                "eta": phase.step_size[first:end],
                "lam": phase.regularizer[first:end],
                "C": [bound * (1.0 - drawn.margin) for bound in phase.max_grad_norm[first:end]],
                "sigma": phase.noise_stddev_on_mean[first:end],
                "D": phase.radius[first:end],
            }
            for first, end in zip(firsts, ends, strict=True)
        ],
        W=localized_clipped_subgradient.ball(domain.radius),
        penalty=penalty.strength,
    )


def lowy_shuffled(drawn: Drawn) -> Vector:
    [phase], [uniforms, ones] = drawn.plan.phases, drawn.noises
    assert isinstance(phase, ShuffledCounts)
    records = [-drawn.gradient(drawn.start, i) for i in range(phase.users)]
    C = phase.max_grad_norm
    factors = [min(1.0, C * (1.0 - drawn.margin) / float(np.linalg.norm(z))) for z in records]
    clipped = [factor * z for factor, z in zip(factors, records, strict=True)]
    found = shuffle_vector_mean.p_vec(
        clipped, uniforms, [int(count) for count in ones], C=C, g=phase.levels, b=phase.noise_bits
    )
    return drawn.start + found


def lowy_shuffled_medians(drawn: Drawn) -> Vector:
    [phase] = drawn.plan.phases
    assert isinstance(phase, ShuffledMedians)
    size, tau = phase.users, phase.truncation_radius
    groups = [drawn.order[i * size : (i + 1) * size] for i in range(phase.groups)]
    found = shuffle_coordinatewise_mean.shuffle_mean_oracle_2(
        [[-drawn.gradient(drawn.start, i) for i in group] for group in groups],
        drawn.noises[::2],
        [[int(count) for count in ones] for ones in drawn.noises[1::2]],
        tau=tau,
        kept=tau * (1.0 - margin("float64")),
        g=phase.levels,
        bits=phase.noise_bits,
    )
    return drawn.start + found


_CONVEX = {"smoothness": 2.0, "diameter": 1.0, "moment_order": 4.0, "moment_bound": 1.5}

_LOCALIZED = {"diameter": 1.0, "moment_order": 4.0, "moment_bound_2k": 1.5, "localization_power": 1.0}


SUBJECTS: dict[str, Subject] = {
    "clipped_acsa": Subject(
        Run(
            spec(iterations=5, gradient_bound=Clip(0.8), assumptions=_CONVEX),
            variants={"ridge": {"penalty": L2Penalty(0.3), "step_size": 0.2}},
        ),
        lowy_accelerated,
    ),
    "clipped_mean": Subject(Run(spec(gradient_bound=Clip(0.8))), lowy_mean),
    "coordinatewise_mean": Subject(
        Run(
            spec(assumptions={"truncation_radius": 0.8, "num_groups": 5.0}),
            variants={"an even number of groups": {"assumptions": {"truncation_radius": 0.8, "num_groups": 4.0}}},
        ),
        lowy_medians,
    ),
    "clipped_prox_sgd": Subject(
        Run(
            spec(
                iterations=5,
                gradient_bound=Clip(0.8),
                penalty=L1Penalty(0.01),
                assumptions={
                    "smoothness": 2.0,
                    "pl_constant": 0.5,
                    "initial_gap": 1.0,
                    "moment_order": 4.0,
                    "moment_bound": 1.5,
                },
            ),
            variants={"ridge in a box": {"penalty": L2Penalty(0.3), "domain": Box(-0.1, 0.2)}},
        ),
        lowy_proximal,
    ),
    "clipped_sgd_strongly_convex": Subject(
        Run(
            spec(
                iterations=5,
                gradient_bound=Clip(0.8),
                penalty=L2Penalty(0.3),
                assumptions={
                    "smoothness": 2.0,
                    "strong_convexity": 0.5,
                    "diameter": 1.0,
                    "moment_order": 4.0,
                    "moment_bound": 1.5,
                },
            )
        ),
        lowy_one_pass,
    ),
    "localized_clipped_subgradient": Subject(
        Run(
            spec(dataset_size=7, gradient_bound=Clip(0.8), step_size=2.0, assumptions=_LOCALIZED),
            variants={
                "ridge": {"penalty": L2Penalty(0.3)},
                "one block": {"dataset_size": 8, "iterations": 1},
                "domain alone": {"assumptions": {"diameter": 0.6}},
            },
        ),
        lowy_localized,
    ),
    "shuffle_vector_mean": Subject(
        Run(
            spec(gradient_bound=Clip(0.8), noise_multiplier=6.0),
            noise_shapes=lambda phase: [(ROWS, FEATURES), (FEATURES,)],
        ),
        lowy_shuffled,
    ),
    "shuffle_coordinatewise_mean": Subject(
        Run(
            spec(noise_multiplier=6.0, assumptions={"truncation_radius": 0.8, "num_groups": 3.0}),
            noise_shapes=lambda phase: [(ROWS // 3, FEATURES), (FEATURES,)] * 3,
        ),
        lowy_shuffled_medians,
    ),
    "localized_clipped_strongly_convex": Subject(
        Run(
            spec(
                dataset_size=16,
                gradient_bound=Clip(0.8),
                step_size=2.0,
                penalty=L2Penalty(0.3),
                assumptions=_LOCALIZED | {"strong_convexity": 0.5},
            ),
        ),
        lowy_reduction,
    ),
}
