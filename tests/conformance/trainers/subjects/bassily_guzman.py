"""Small runs and transcriptions of the algorithms of Bassily, Guzmán, Menart & Nandi."""

from __future__ import annotations

import numpy as np

from calibrators.geometry import L1Ball, L2Ball, LpBall
from calibrators.phases.gradient_estimates import EstimatePhase
from calibrators.phases.gradient_trees import GradientTreePhase
from calibrators.phases.mirror_steps import MirrorPhase
from calibrators.phases.proximal_phases import ProximalPhase
from calibrators.phases.recursive_selections import RecursiveSelections
from calibrators.phases.smoothed_vertex_steps import SmoothedVertexSteps
from calibrators.phases.vertex_steps import VertexSteps
from calibrators.phases.vertex_trees import TreePhase
from calibrators.plan import Clip
from calibrators.release import RandomIterate
from tests.conformance.trainers.subjects.a_run import FEATURES, Run, spec
from tests.conformance.trainers.subjects.drawn import Drawn, Vector
from tests.conformance.trainers.subjects.subject import Subject
from tests.transcriptions import (
    dp_fw,
    noisy_mirror_descent,
    noisy_sfw_lp,
    proximal_weakly_convex,
    recursive_sfw,
    tree_sfw_l1,
)
from tests.transcriptions.localized_clipped_subgradient import ball
from trainer.clipping import margin


def full_batch_frank_wolfe(drawn: Drawn) -> Vector:
    [phase], domain = drawn.plan.phases, drawn.plan.domain
    assert isinstance(phase, VertexSteps)
    assert isinstance(domain, L1Ball)
    noises = iter(drawn.noises)
    path = dp_fw.trajectory(
        drawn.start,
        drawn.gradient,
        lambda scores: int(np.argmin(scores - phase.gumbel_scale * next(noises))),
        n=drawn.plan.dataset_size,
        T=phase.steps,
        D=domain.radius,
        L0=phase.lipschitz * (1.0 - margin("float64")),
    )
    return path[-1][1]


def smoothed_frank_wolfe(drawn: Drawn) -> Vector:
    """The envelope of least squares is beta/(1 + beta) times it."""
    [phase], domain = drawn.plan.phases, drawn.plan.domain
    assert isinstance(phase, SmoothedVertexSteps)
    assert isinstance(domain, L1Ball)
    noises = iter(drawn.noises)
    path = dp_fw.trajectory(
        drawn.start,
        lambda x, i: phase.smoothing / (1.0 + phase.smoothing) * drawn.gradient(x, i),
        lambda scores: int(np.argmin(scores - phase.gumbel_scale * next(noises))),
        n=drawn.plan.dataset_size,
        T=phase.steps,
        D=domain.radius,
        L0=phase.lipschitz * (1.0 - margin("float64")),
    )
    return path[-1][1]


def recursive(drawn: Drawn) -> Vector:
    [phase], domain = drawn.plan.phases, drawn.plan.domain
    assert isinstance(phase, RecursiveSelections)
    assert isinstance(domain, L1Ball)
    noises = iter(drawn.noises)
    room = margin("float64")
    path = recursive_sfw.trajectory(
        drawn.start,
        drawn.gradient,
        drawn.order,
        lambda scores: int(np.argmin(scores - phase.gumbel_scale * next(noises))),
        T=phase.selections,
        n0=phase.first_batch,
        m=phase.batch,
        eta=phase.step_size,
        D=domain.radius,
        L0=phase.lipschitz * (1.0 - room),
        L1=phase.smoothness * (1.0 - room),
    )
    if isinstance(drawn.plan.release, RandomIterate):
        return drawn.start if drawn.chosen == 0 else path[drawn.chosen - 1][1]
    return path[-1][1]


def trees(drawn: Drawn) -> Vector:
    [phase], domain = drawn.plan.phases, drawn.plan.domain
    assert isinstance(phase, TreePhase)
    assert isinstance(domain, L1Ball)
    noises = iter(drawn.noises)
    room = margin("float64")  # trees sum in it whatever the dtype of the records
    path = tree_sfw_l1.trajectory(
        drawn.start,
        drawn.gradient,
        drawn.order,
        lambda scores, tree: int(np.argmin(scores - phase.noise_scales[tree - 1] * next(noises))),
        T=phase.num_trees,
        b=phase.records_per_tree,
        D=domain.radius,
        L0=phase.lipschitz * (1.0 - room),
        L1=phase.smoothness * (1.0 - room),
    )
    return path[-1][1]


def mirror_steps(drawn: Drawn) -> Vector:
    [phase], domain = drawn.plan.phases, drawn.plan.domain
    assert isinstance(phase, MirrorPhase)
    assert isinstance(domain, LpBall)
    path = noisy_mirror_descent.trajectory(
        drawn.start,
        drawn.gradient,
        drawn.noises,
        n=drawn.plan.dataset_size,
        p=domain.norm_order,
        D=domain.radius,
        L0=phase.lipschitz * (1.0 - margin("float64")),
        sigma=phase.scale,
        eta=phase.step_size,
    )
    return np.mean(path[:-1], axis=0)


def estimates(drawn: Drawn) -> Vector:
    [phase], domain = drawn.plan.phases, drawn.plan.domain
    assert isinstance(domain, LpBall)
    room = 1.0 - margin("float64")
    if isinstance(phase, GradientTreePhase):
        return noisy_sfw_lp.trees(
            drawn.start,
            drawn.gradient,
            drawn.order,
            drawn.noises,
            sigma=phase.scales,
            T=phase.num_trees,
            b=phase.records_per_tree,
            p=domain.norm_order,
            D=domain.radius,
            L0=phase.lipschitz * room,
            L1=phase.smoothness * room,
        )[-1]
    assert isinstance(phase, EstimatePhase)
    path = noisy_sfw_lp.sums(
        drawn.start,
        drawn.gradient,
        drawn.order,
        [(phase.scale if t else phase.first_scale) * z for t, z in enumerate(drawn.noises)],
        kind=phase.estimator,
        n0=phase.first_batch,
        m=phase.batch,
        eta=phase.step_size,
        p=domain.norm_order,
        D=domain.radius,
        L0=phase.lipschitz * room,
        L1=phase.smoothness * room,
    )
    return path[drawn.chosen if isinstance(drawn.plan.release, RandomIterate) else -1]


def proximal(drawn: Drawn) -> Vector:
    [phase], domain = drawn.plan.phases, drawn.plan.domain
    assert isinstance(phase, ProximalPhase)
    assert isinstance(domain, L2Ball | None)
    assert phase.weak_convexity is not None
    assert phase.radius is not None
    path = proximal_weakly_convex.rounds(
        drawn.start,
        drawn.gradient,
        drawn.order,
        drawn.noises,
        R=phase.rounds,
        m=phase.records,
        T=phase.inner_iterations,
        omega=phase.weak_convexity,
        L0=1.5 * phase.weak_convexity * phase.radius,
        C=phase.max_grad_norm * (1.0 - drawn.margin),
        sigma=phase.noise_stddev_on_mean,
        X=ball(float("inf") if domain is None else domain.radius),
    )
    return path[drawn.chosen // phase.inner_iterations]


SUBJECTS: dict[str, Subject] = {
    "noisy_mirror_descent": Subject(
        Run(
            spec(iterations=6, assumptions={"norm_order": 1.5, "lipschitz": 0.8, "radius": 0.3}),
            variants={"own step": {"step_size": 0.05, "domain": LpBall(1.8, 0.5), "assumptions": {"lipschitz": 0.8}}},
        ),
        mirror_steps,
    ),
    "dp_fw": Subject(
        Run(
            spec(
                iterations=6,
                noise_multiplier=8.0,
                assumptions={"lipschitz": 0.8, "smoothness": 1.5, "radius": 0.5},
            ),
            noise_shapes=lambda phase: [(2 * FEATURES,)] * phase.steps,
        ),
        full_batch_frank_wolfe,
    ),
    "generalized_linear_l1": Subject(
        Run(
            spec(
                iterations=6,
                noise_multiplier=8.0,
                assumptions={"lipschitz": 0.8, "smoothing": 3.0, "radius": 0.5},
            ),
            noise_shapes=lambda phase: [(2 * FEATURES,)] * phase.steps,
        ),
        smoothed_frank_wolfe,
    ),
    "poly_sfw": Subject(
        Run(
            spec(
                iterations=7,
                noise_multiplier=4.0,
                assumptions={"lipschitz": 0.8, "smoothness": 1.5, "radius": 0.5},
            ),
            variants={"own step": {"iterations": None, "step_size": 0.3}},
            noise_shapes=lambda phase: [(2 * FEATURES,)] * phase.steps,
        ),
        recursive,
    ),
    "noisy_sfw_lp": Subject(
        Run(
            spec(assumptions={"norm_order": 1.5, "lipschitz": 0.8, "smoothness": 1.5, "radius": 0.5}),
            variants={
                "naive": {"variant": "naive", "step_size": 0.4},
                "batch trees": {"variant": "batch_tree", "dataset_size": 60, "iterations": 2},
            },
        ),
        estimates,
    ),
    "noisy_sfw_nonconvex_lp": Subject(
        Run(
            spec(iterations=4, assumptions={"norm_order": 1.5, "lipschitz": 0.8, "smoothness": 1.5, "radius": 0.5}),
            variants={"own step": {"step_size": 0.3, "iterations": 6}},
        ),
        estimates,
    ),
    "private_sfw_nonconvex_l1": Subject(
        Run(
            spec(
                iterations=8,
                noise_multiplier=8.0,
                assumptions={"lipschitz": 0.8, "smoothness": 1.5, "radius": 0.5},
            ),
            noise_shapes=lambda phase: [(2 * FEATURES,)] * phase.steps,
        ),
        recursive,
    ),
    "proximal_weakly_convex": Subject(
        Run(
            spec(
                iterations=6,
                assumptions={"lipschitz": 0.8, "weak_convexity": 2.0, "radius": 0.3, "inner_iterations": 2.0},
            ),
            variants={
                "anywhere": {
                    "gradient_bound": Clip(0.5),
                    "iterations": 4,
                    "assumptions": {"weak_convexity": 1.0, "inner_iterations": 3.0},
                },
            },
        ),
        proximal,
    ),
    "tree_sfw_l1": Subject(
        Run(
            spec(
                dataset_size=60,
                iterations=2,
                assumptions={"lipschitz": 0.8, "smoothness": 1.5, "radius": 0.5},
            ),
            noise_shapes=lambda phase: [(2 * FEATURES,)] * phase.steps,
        ),
        trees,
    ),
}
