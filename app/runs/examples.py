"""Runs that work as they stand on a fresh server, for Swagger UI: those of each algorithm's record."""

from __future__ import annotations

from fastapi.openapi.models import Example

from app.algorithms.examples import examples_of
from trainer.algorithms import EXECUTIONS

RUN_EXAMPLES: dict[str, Example] = examples_of(EXECUTIONS, "digits")
