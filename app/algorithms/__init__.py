"""Calibrations over HTTP. The answer to a target is a plan with its noise and its step sizes."""
