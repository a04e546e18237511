"""Noise that has exactly the accounted distribution: whole numbers, drawn from random bits without any rounding."""
