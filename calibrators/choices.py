"""This module records the choices that were made for values that a request left out."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.canonical import Json


@dataclass(frozen=True, slots=True)
class Choice:
    """A value that was chosen because the request left it out.

    Attributes:
        name: The member of a request that holds the value, such as ``"hyperparameters.step_size"``.
        value: The value, as a request would give it.
        reason: The reason for this value, in sentences.
        source: The paper, or the experiment in which it was tuned.
        theorem: The value that the paper's theorem chooses; None if the theorem chooses none, or its constants are not
            known.
        theorem_reason: The source of the theorem's value, or the reason why there is none, in a sentence.
    """

    name: str
    value: Json
    reason: str
    source: str
    theorem: Json = None
    theorem_reason: str = ""
