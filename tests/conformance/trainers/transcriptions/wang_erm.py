"""From what a run drew to what the transcriptions of the algorithms of Wang, Ye & Xu release."""

from __future__ import annotations

from calibrators.geometry import L1Ball, L2Ball, L2Penalty
from calibrators.phases import VarianceReducedEpochs
from calibrators.release import RandomIterate
from tests.conformance.trainers.transcriptions.drawn import Drawn, Transcription, Vector
from tests.reference import dp_accmd, dp_gd, dp_svrg


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


TRANSCRIPTIONS: dict[str, Transcription] = {
    "dp_gd": wang_full,
    "dp_svrg": wang_variance_reduced,
    "dp_svrg_pp": wang_variance_reduced,
    "dp_accmd": wang_accelerated,
}
