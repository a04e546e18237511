"""Losses of linear predictors: residuals (the derivative by the logits) and the constants that theory asks for."""
