"""A small run and a transcription for each algorithm.

A subject registers by being there: `SUBJECTS` is put together from those of every module here. A transcription
translates the plan into the letters of the paper; the steps themselves are in `tests/transcriptions`, or beside it.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tests.conformance.trainers.subjects.a_run import FEATURES, ROWS, Run
from tests.conformance.trainers.subjects.drawn import Drawn
from tests.conformance.trainers.subjects.subject import Subject

__all__ = ["FEATURES", "ROWS", "RUNS", "SUBJECTS", "Drawn", "Run"]

SUBJECTS: dict[str, Subject] = {}
for _module in iter_modules(__path__, f"{__name__}."):
    SUBJECTS |= getattr(import_module(_module.name), "SUBJECTS", {})

RUNS: dict[str, Run] = {name: subject.run for name, subject in SUBJECTS.items()}
