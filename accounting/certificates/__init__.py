"""Certificates are statements about a composition that others can check, with `clients/verifier`.

A certificate states that delta at some epsilon is at most some number, or that it is more than some number. The
certificate also says where a verifier should integrate to check the statement. docs/concepts/certificates.md explains
what is stated and how it is proved.
"""

from accounting.certificates.answers import CertifiedEnd, certify_delta, certify_epsilon, certify_upper
from accounting.certificates.certificate import AT_MOST, MORE_THAN, Certificate, NoCertificate
from accounting.certificates.prices import certified_price, certify_price
from accounting.certificates.prover import Verdict, certify, check_again, verifier

__all__ = [
    "AT_MOST",
    "MORE_THAN",
    "Certificate",
    "CertifiedEnd",
    "NoCertificate",
    "Verdict",
    "certified_price",
    "certify",
    "certify_delta",
    "certify_epsilon",
    "certify_price",
    "certify_upper",
    "check_again",
    "verifier",
]
