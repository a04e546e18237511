"""Choices made for what a request left out."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.canonical import Json


@dataclass(frozen=True, slots=True)
class Choice:
    """A value that the request left out.

    Attributes:
        name: The member of a request that holds it, such as ``"hyperparameters.step_size"``.
        value: As the request would give it.
        reason: Why this value, in sentences.
        source: Paper, or where it was tuned.
        theorem: What the paper's theorem would have chosen; None if it chooses nothing, or its constants are not known.
        theorem_reason: Where the theorem's value comes from, or why there is none, in a sentence.
    """

    name: str
    value: Json
    reason: str
    source: str
    theorem: Json = None
    theorem_reason: str = ""
