"""Checks certificates of differential privacy in ball arithmetic (FLINT), without trusting the program that made
them."""

from epsilond_verifier.verdicts import Verdict, check

__all__ = ["Verdict", "check"]
