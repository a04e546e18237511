"""Noise that is exactly what was accounted: whole numbers, drawn from random bits without any rounding of their law."""
