"""The HTTP form of the models that a run can train."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from app.kit.fields import INTEGRAL, Schema

MAX_HIDDEN_LAYERS = 4
MAX_WIDTH = 4096


class _OfClasses(Schema):
    class_priors: dict[Annotated[str, Field(max_length=200)], Annotated[float, Field(gt=0, lt=1)]] | None = Field(
        None,
        max_length=1000,
        exclude_if=lambda priors: priors is None,
        description="The public share of each category of the label; the shares add up to 1. Each record's loss is "
        "weighted by the smallest share divided by that of its class, so that all classes have the same total weight. "
        "The shares are declared, and never counted in the rows.",
    )


class _Linear(Schema):
    """Features are scaled by their declared bounds to [-1, 1]."""

    fit_intercept: bool = Field(True, description="Whether a constant feature 1 is added.")


class LogisticRegressionChoice(_Linear, _OfClasses):
    """The label has two categories."""

    kind: Literal["logistic_regression"]


class SoftmaxRegressionChoice(_Linear, _OfClasses):
    """The label may have any number of categories."""

    kind: Literal["softmax_regression"]


class LinearRegressionChoice(_Linear):
    """Least squares: a label that is a number, scaled by its declared bounds to [-1, 1]."""

    kind: Literal["linear_regression"]


class HuberRegressionChoice(_Linear):
    """Squared error up to `threshold`, absolute error above it."""

    kind: Literal["huber_regression"]
    threshold: float = Field(
        1.0, gt=0, le=1e6, description="The error, in units of the scaled label, beyond which the loss is linear."
    )


class QuantileRegressionChoice(_Linear):
    """The label's quantile, given the features."""

    kind: Literal["quantile_regression"]
    quantile: float = Field(0.5, gt=0, lt=1)


class QNormRegressionChoice(_Linear):
    """The error's q-th power, which is (q - 1)-Hoelder smooth."""

    kind: Literal["q_norm_regression"]
    q: float = Field(1.5, ge=1, le=2)


class QNormHingeChoice(_Linear, _OfClasses):
    """A support vector machine with the hinge's q-th power; a label of two categories."""

    kind: Literal["q_norm_hinge"]
    q: float = Field(1.5, ge=1, le=2)


class MultilayerPerceptronChoice(_OfClasses):
    """A neural network on the scaled features; a label of any number of categories. Its loss is not convex."""

    kind: Literal["mlp"]
    hidden: list[Annotated[int, Field(ge=1, le=MAX_WIDTH), INTEGRAL]] = Field(
        [64], min_length=1, max_length=MAX_HIDDEN_LAYERS, description="Widths of the hidden layers."
    )
    activation: Literal["relu", "tanh"] = Field(
        "relu",
        description="Activation of the hidden layers. `relu`: The positive part. `tanh`: The hyperbolic tangent, which "
        "is smooth.",
    )


class MeanChoice(Schema):
    """The mean of the scaled features; any label is accepted. Only for algorithms that estimate a mean."""

    kind: Literal["mean"]


ModelChoice = Annotated[
    LogisticRegressionChoice
    | SoftmaxRegressionChoice
    | LinearRegressionChoice
    | HuberRegressionChoice
    | QuantileRegressionChoice
    | QNormRegressionChoice
    | QNormHingeChoice
    | MultilayerPerceptronChoice
    | MeanChoice,
    Field(discriminator="kind", title="Model"),
]

#: Reads a stored choice.
MODEL_CHOICE: TypeAdapter[ModelChoice] = TypeAdapter(ModelChoice)
