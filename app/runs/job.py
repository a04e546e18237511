"""A claimed run in memory, with everything that its training needs, so that nothing can be missing later."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from app.algorithms.binding import DataDescription
from app.datasets.service import LoadedDataset
from app.datasets.table import LabelArray
from app.tables.runs import Run
from calibrators.plan import Plan
from trainer.models import Model


@dataclass(frozen=True)
class Job:
    """A training job: what is trained, and on which data.

    Attributes:
        run: The run's row when it was claimed.
        plan: The run's plan, whose hash was checked.
        model: What is trained, from its initial parameters.
        description: What the rows' columns mean.
        training: The rows.
        test: Public rows to score the model on.
    """

    run: Run
    plan: Plan
    model: Model
    description: DataDescription
    training: LoadedDataset
    test: LoadedDataset | None

    def scaled_rows(self) -> tuple[npt.NDArray[np.float64], LabelArray]:
        """Return features and labels as the trainer takes them, scaled by the declared bounds."""
        return self._scaled

    @cached_property
    def held_out_rows(self) -> tuple[npt.NDArray[np.float64], LabelArray]:
        """Return features and labels of the held-out rows, also scaled by the declared bounds."""
        assert self.training.held_out is not None, "what is evaluated on held-out rows has some"
        features, labels = self.training.held_out
        return self.description.scale(features), self.description.scale_labels(labels)

    @property
    def needs_key(self) -> bool:
        """Return whether noise is drawn after the last step, with a key of its own (`app.runs.score_keys`)."""
        return self.run.score_noise_multiplier is not None or self.plan.evaluation is not None

    def make_ready(self) -> None:
        """Do the work that takes longer for more rows. A private run does it within its loading time."""
        _ = self.rows_digest, self._scaled
        if self.plan.evaluation is not None:
            _ = self.held_out_rows

    @cached_property
    def _scaled(self) -> tuple[npt.NDArray[np.float64], LabelArray]:
        features = self.description.scale(self.training.features)
        return features, self.description.scale_labels(self.training.labels)

    @cached_property
    def rows_digest(self) -> bytes:
        """Return the SHA-256 of the rows and of the meaning of their columns. It depends on private data, so only a
        keyed hash of it is ever shown."""
        digest = hashlib.sha256(json.dumps(self.run.description, sort_keys=True).encode())
        for array in (self.training.features, self.training.labels, *(self.training.held_out or ())):
            digest.update(f"\n{array.dtype.str} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return digest.digest()
