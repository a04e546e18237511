"""What the conformance suite of trainers has of an algorithm."""

from __future__ import annotations

from dataclasses import dataclass

from tests.app.runs.promises.promise import Promise
from tests.conformance.trainers.subjects.a_run import Run
from tests.conformance.trainers.subjects.drawn import Transcription


@dataclass(frozen=True, slots=True)
class Subject:
    """An algorithm as the suite sees it.

    Attributes:
        run: A small run.
        transcription: From what the run drew to what the paper's lines release.
        promise: A private run whose bounds are compared with what it attains; None where it is in
            `tests/app/runs/promises`.
    """

    run: Run
    transcription: Transcription
    promise: Promise | None = None
