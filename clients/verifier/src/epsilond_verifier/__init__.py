"""Checks certificates of differential privacy in ball arithmetic (FLINT), and trusts nothing that made them."""

from epsilond_verifier.verdicts import Verdict, check

__all__ = ["Verdict", "check"]
