"""The work of a run: all public facts on which the time of the run may depend."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from sqlalchemy.orm import Session

from app.algorithms.binding import DataDescription, build_model
from app.algorithms.model_choice import MODEL_CHOICE
from app.datasets import repository as datasets
from app.datasets import versions
from app.tables.runs import Run
from calibrators.plan import Plan, plan_from_canonical
from trainer.models import Model


@dataclass(frozen=True)
class Work:
    """The public facts on which the time of a private run may depend.

    Attributes:
        plan: The plan that is carried out.
        model: The model that is trained.
        choice: The kind and options of the model, as text.
        description: The declared columns and size.
        capacity: The capacity of the data set.
        test_size: The declared size of the public rows on which the model is scored.
        has_score: Whether each slot is scored.
    """

    plan: Plan
    model: Model
    choice: str
    description: DataDescription
    capacity: int
    test_size: int
    has_score: bool

    @property
    def shape(self) -> str:
        """Return everything that decides how long a step takes; step sizes and noise are not part of it."""
        plan = self.plan
        counts = [event.count for event in plan.events] if len(plan.phases) > 1 else []
        phases = [
            (type(phase).__name__, [getattr(phase, each.name) for each in fields(phase) if each.type == "int"])
            for phase in plan.phases
        ]
        parts = [type(part).__name__ for part in (plan.domain, plan.penalty, plan.release)]
        # The noise of more steps takes longer to draw.
        samplings = [(event.sampling, getattr(event.mechanism, "bands", 1)) for event in plan.events]
        # Measuring more steps of one phase would not be more accurate.
        scheme = (plan.algorithm, plan.dtype, plan.dataset_size, min(plan.iterations, 100), parts, phases, samplings)
        model = (self.choice, self.model.num_features, self.model.num_classes)
        data = (len(self.description.features), self.capacity, self.test_size)
        return repr((scheme, counts, model, data, self.has_score, plan.evaluation is not None))


def work_of(session: Session, run: Run) -> Work:
    """Return the work of a run, from its row and the declarations of its data sets."""
    description = DataDescription.model_validate(run.description)
    stored = None if run.dataset_id is None else datasets.find(session, run.dataset_id)
    assert stored is not None, "private rows are stored"
    version = versions.find(session, stored, run.dataset_version or 1)
    assert version is not None, "versions stay, erased or not"
    test = None if run.test_dataset_id is None else datasets.find(session, run.test_dataset_id)
    return Work(
        plan_from_canonical(run.plan, run.plan_hash),
        build_model(MODEL_CHOICE.validate_python(run.model), description),
        json.dumps(run.model, sort_keys=True),
        description,
        version.capacity,
        0 if test is None else test.declared_size,
        run.score_noise_multiplier is not None,
    )
