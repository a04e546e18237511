"""Calibrations over HTTP: a target in, a plan with its noise and its step sizes out."""
