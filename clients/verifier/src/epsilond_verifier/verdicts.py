"""The verdict on a certificate's statement, from the bounds of all directions.

A statement is about the composed dominating pair of its events. ``at_most``: delta_d(e) <= delta for every direction d.
``more_than``: delta_d(e) > delta for some direction d. One is the other's opposite, so that whatever proves one refutes
the other. Directions: "both" if all steps are their own mirror images, else "remove" and "add".
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import flint
from flint import arb, ctx

from epsilond_verifier.bounds import CannotCheck, Enclosure, refuse_unless
from epsilond_verifier.forms import Asked, Proof, read_form
from epsilond_verifier.laws import COMPOSED, RELATIONS, is_symmetric, read_step
from epsilond_verifier.reading import Reader, parse

FORMAT = "epsilon-certificate/1"
_MOST_EVENTS, _MOST_BITS = 1000, 2048


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of a certificate's statement.

    Attributes:
        verdict: "verified"; "refuted", where the opposite is proved; or "cannot check", with the reason.
        statement: What the certificate states, in words; empty where it could not be read.
        assumed: The theorems by which the pairs dominate the mechanisms. They are not checked here.
        reason: Why it cannot be checked.
        sha256: Of the certificate's bytes.
        checked_with: The versions of this program and of its arithmetic.
    """

    verdict: str
    statement: str
    assumed: tuple[str, ...]
    reason: str
    sha256: str
    checked_with: str = f"epsilond-verifier 1 (FLINT {flint.__FLINT_VERSION__})"


def check(data: bytes) -> Verdict:
    """Check one certificate. It raises nothing: where anything is in doubt the verdict is "cannot check"."""
    digest, before = hashlib.sha256(data).hexdigest(), ctx.prec
    read = None
    try:
        read = _read(parse(data))
        verdict, reason = _decide(read)
    except (CannotCheck, ZeroDivisionError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        verdict, reason = "cannot check", str(error) or type(error).__name__
    finally:
        ctx.prec = before
    return Verdict(verdict, read.statement if read else "", read.assumed if read else (), reason, digest)


@dataclass(frozen=True, slots=True)
class _Read:
    claim: str
    delta: arb
    statement: str
    assumed: tuple[str, ...]
    complete: bool
    proofs: list[Proof]


def _read(certificate: Reader) -> _Read:
    """Read all of a certificate, and set the precision that it asks for."""
    certificate.word("format", FORMAT)
    stated, witness = certificate.inside("statement"), certificate.inside("witness")
    ctx.prec = witness.whole("precision", 32, _MOST_BITS)
    claim, relation = stated.word("claim", "at_most", "more_than"), stated.word("relation", *RELATIONS)
    epsilon, delta = stated.real("epsilon", 0.0, 1e15), stated.real("delta", 0.0, 1.0)
    steps = [read_step(event, relation) for event in stated.objects("events", _MOST_EVENTS)]
    directions = witness.inside("directions")
    for reader in (certificate, stated, witness):
        reader.close()
    needed = ["both"] if all(is_symmetric(step.law) for step in steps) else ["add", "remove"]
    given = sorted(directions.keys())
    among = given and set(given) <= set(needed)
    refuse_unless(among, f"the directions of these events are {' and '.join(needed)}; the witness has {given}")
    proofs = [read_form(directions.inside(name), Asked(steps, name, arb(epsilon))) for name in given]
    bound = "<=" if claim == "at_most" else ">"
    pairs = f"the dominating pairs of these events under {relation}"
    several = [COMPOSED] if sum(step.count for step in steps) > 1 else []
    assumed = tuple(dict.fromkeys([step.assumed for step in steps] + several))
    return _Read(
        claim,
        arb(delta),
        f"epsilon {bound} {epsilon!r} at delta {delta!r} for {pairs}",
        assumed,
        given == needed,
        proofs,
    )


def _decide(read: _Read) -> tuple[str, str]:
    found, reasons = [], [] if read.complete else ["a direction is missing"]
    for proof in read.proofs:
        try:
            found.append(proof())
        except CannotCheck as error:
            found.append(Enclosure())
            reasons.append(str(error))
    at_most = read.complete and all(each.above is not None and each.above.is_at_most(read.delta) for each in found)
    more_than = any(each.below is not None and each.below.is_more_than(read.delta) for each in found)
    if at_most and more_than:
        raise CannotCheck("both the statement and its opposite are proved: please report this certificate")
    if at_most or more_than:
        return ("verified" if at_most == (read.claim == "at_most") else "refuted"), ""
    return "cannot check", "; ".join([*reasons, "the bounds of delta do not decide"])
