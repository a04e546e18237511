"""A run's evaluation on held-out rows. It is one release, which is charged before the run's first step."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from app.algorithms.binding import DataDescription, build_model
from app.algorithms.model_choice import MODEL_CHOICE
from app.runs.job import Job
from app.runs.schemas import HeldOutBody
from app.tables.runs import Run
from trainer.held_out import Layout, layout_of, noise_stddev, noisy_sums
from trainer.held_out_metrics import CONFIDENCE, metrics_of
from trainer.models import Parameters
from trainer.streams import random_streams


def held_out_body(job: Job, parameters: Parameters, key: int) -> HeldOutBody:
    """Draw the noisy sums over the held-out rows, and return all metrics that follow from them.

    Args:
        job: The run.
        parameters: The parameters of its model.
        key: The key from which the slots and the noise are drawn (`app.runs.score_keys`). A run that continues after
            its worker was lost still has this key, so it releases the same sums again.

    Guarantees:
        - one_key_is_one_vector: the same key gives the same noise, and different keys give different noise.
    """
    evaluation = job.plan.evaluation
    assert evaluation is not None, "the caller has seen to it"
    features, labels = job.held_out_rows
    streams = random_streams(key)
    sums = noisy_sums(evaluation, job.model, parameters, features, labels, job.training.capacity, streams)
    layout = layout_of(job.model, parameters)
    found = metrics_of(layout, sums, noise_stddev(evaluation, layout))
    if not job.description.classes:
        found = found.with_errors_in(job.description.label_half_width)
    return HeldOutBody.model_validate({"confidence": CONFIDENCE, **asdict(found)})


def layout_of_run(run: Run) -> Layout:
    """Return the layout of the vector that a run's evaluation releases, from public facts about the run."""
    model = build_model(MODEL_CHOICE.validate_python(run.model), DataDescription.model_validate(run.description))
    return layout_of(model, model.parameters(np.zeros(model.num_parameters)))
