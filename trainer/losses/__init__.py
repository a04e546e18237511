"""This package has losses of logits: residuals (the derivative by the logits), values, and the constants that theorems
need."""

from __future__ import annotations

from trainer.losses.huber import Huber
from trainer.losses.logistic import Logistic
from trainer.losses.loss import Loss
from trainer.losses.q_norm_hinge import QNormHinge
from trainer.losses.q_norm_regression import QNormRegression
from trainer.losses.quantile import Quantile
from trainer.losses.softmax import Softmax
from trainer.losses.squared import Squared
from trainer.losses.weighted import Weighted

__all__ = ["Huber", "Logistic", "Loss", "QNormHinge", "QNormRegression", "Quantile", "Softmax", "Squared", "Weighted"]
