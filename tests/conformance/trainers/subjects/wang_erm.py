"""Small runs and transcriptions of the algorithms of Wang, Ye & Xu."""

from __future__ import annotations

from calibrators.geometry import L1Ball, L2Ball, L2Penalty
from calibrators.phases.variance_reduced_epochs import VarianceReducedEpochs
from calibrators.plan import Clip
from calibrators.release import RandomIterate
from tests.conformance.trainers.subjects.a_run import Run, spec
from tests.conformance.trainers.subjects.drawn import Drawn, Vector
from tests.conformance.trainers.subjects.subject import Subject
from tests.transcriptions import dp_accmd, dp_gd, dp_svrg


def wang_full(drawn: Drawn) -> Vector:
    phase, release = drawn.phase, drawn.plan.release
    path = [drawn.start]
    for noise in drawn.noises:
        _, point = dp_gd.trajectory(
            path[-1],
            drawn.gradient,
            [noise],
            n=drawn.plan.dataset_size,
            eta=drawn.step_size,
            G=drawn.clip,
            sigma=phase.noise_stddev_on_mean,
        )
        path.append(drawn.after_ridge(point))
    return dp_gd.released(path, drawn.chosen if isinstance(release, RandomIterate) else None)


def wang_accelerated(drawn: Drawn) -> Vector:
    phase, domain = drawn.phase, drawn.plan.domain
    assert isinstance(domain, L1Ball | L2Ball)
    return dp_accmd.trajectory(
        drawn.gradient,
        drawn.noises,
        p=len(drawn.start),
        norm_order=1 if isinstance(domain, L1Ball) else 2,
        n=drawn.plan.dataset_size,
        R=domain.radius,
        L=1.0 / drawn.step_size,
        G=drawn.clip,
        sigma=phase.noise_stddev_on_mean,
    )[-1]


def wang_variance_reduced(drawn: Drawn) -> Vector:
    [phase], penalty = drawn.plan.phases, drawn.plan.penalty
    assert isinstance(phase, VarianceReducedEpochs)
    strength = penalty.strength if isinstance(penalty, L2Penalty) else 0.0
    eta = phase.step_size or 0.0
    return dp_svrg.snapshots(
        drawn.start,
        drawn.gradient,
        drawn.batches,
        drawn.noises,
        lambda y: y / (1.0 + eta * strength),
        inner=phase.inner_iterations,
        n=drawn.plan.dataset_size,
        eta=eta,
        G=phase.max_grad_norm * (1.0 - drawn.margin),
        sigma=phase.noise_stddev_on_mean,
        plus_plus=drawn.plan.algorithm == "dp_svrg_pp",
    )[-1]


SUBJECTS: dict[str, Subject] = {
    "dp_gd": Subject(
        Run(
            spec(
                iterations=6,
                gradient_bound=Clip(0.8),
                step_size=0.3,
                assumptions={"smoothness": 2.0, "initial_gap": 1.0, "pl_constant": 0.1},
            ),
            variants={
                "any smooth loss": {"assumptions": {"smoothness": 2.0, "initial_gap": 1.0}},
                "ridge": {"penalty": L2Penalty(0.3)},
            },
        ),
        wang_full,
    ),
    "dp_svrg": Subject(
        Run(
            spec(
                batch_size=6,
                iterations=2,
                gradient_bound=Clip(0.8),
                step_size=0.2,
                assumptions={"inner_iterations": 4.0},
            ),
            variants={"ridge": {"penalty": L2Penalty(0.3)}},
        ),
        wang_variance_reduced,
    ),
    "dp_svrg_pp": Subject(
        Run(
            spec(
                batch_size=6,
                iterations=2,
                gradient_bound=Clip(0.8),
                step_size=0.2,
                assumptions={"inner_iterations": 2.0},
            ),
            variants={"ridge": {"penalty": L2Penalty(0.3)}},
        ),
        wang_variance_reduced,
    ),
    "dp_accmd": Subject(
        Run(
            spec(iterations=6, gradient_bound=Clip(0.8), assumptions={"smoothness": 2.0, "radius": 0.3}),
            variants={"l1 ball": {"domain": L1Ball(0.6), "assumptions": {"smoothness": 2.0}}},
        ),
        wang_accelerated,
    ),
}
