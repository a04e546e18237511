"""A released model, in answers and in its file."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import Field

from app.algorithms.model_choice import ModelChoice
from app.kit.fields import Identifier, Schema
from app.runs.report_schemas import ModelCard
from app.runs.schemas import GuaranteeBody


class ModelBody(Schema):
    """A trained model with all that a prediction needs: `docs/concepts/models.md`.

    Each value v of a number column enters x as `2 (v - lower) / (upper - lower) - 1`, clipped to [-1, 1]; a category as
    one 0 or 1 per declared category. A linear model's logits are `x @ weights + bias`; a multilayer perceptron applies
    its activation between the layers `weights_1, bias_1`, `weights_2, bias_2`, and so on. A single positive logit means
    the second class; of several, the largest decides. In a regression, the logit is the label, scaled as a feature is.
    """

    format_version: Literal[1] = Field(1, description="Raised when a field changes its meaning or is removed.")
    run_id: Identifier
    algorithm: str
    kind: str
    model: ModelChoice = Field(description="The model with its options, such as the activation.")
    plan_hash: str
    features: list[dict[str, Any]] = Field(description="The declared feature columns, in the order of the weights.")
    classes: list[str] = Field(description="Empty for regression.")
    label: dict[str, Any] = Field(description="The declared label column.")
    guarantee: GuaranteeBody | None = Field(description="null where the stored plan no longer has its hash.")
    card: ModelCard | None = Field(
        None,
        description="What the privacy card says that stays as it is; null where the stored plan no longer has its "
        "hash, and absent from files of earlier versions.",
    )
    card_hash: str | None = Field(
        None, description="SHA-256 of `card` as JSON with sorted keys, without spaces, and only in ASCII."
    )
    parameters: dict[str, Any]


def hash_of_card(card: ModelCard) -> str:
    """Return SHA-256 of the card as `ModelBody.card_hash` describes it, in hexadecimal."""
    text = json.dumps(card.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
