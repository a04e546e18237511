"""The verdict on a certificate's statement, from the bounds of all directions.

A statement is about the composed dominating pair of its events. ``at_most``: delta_d(e) <= delta for every direction d.
``more_than``: delta_d(e) > delta for some direction d. Each is the negation of the other, so a proof of one refutes the
other. The directions are "both" if all steps are their own mirror images, else "remove" and "add". A statement may also
be a price (prices.py): then at_most is about every e, and more_than about some e.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import flint
from flint import arb, ctx

from epsilond_verifier.bounds import CannotCheck, Enclosure, Node, refuse_unless
from epsilond_verifier.forms import Asked, Proof, Work, read_form
from epsilond_verifier.laws import COMPOSED, RELATIONS, Draws, Mixture, Step, is_symmetric, read_step
from epsilond_verifier.prices import FILTER, MOST_NODES, OWN, Price
from epsilond_verifier.reading import Reader, parse

FORMAT = "epsilon-certificate/1"
_MOST_EVENTS, _MOST_MIXTURES, _MOST_BITS, _MOST_GROUP = 1000, 100, 2048, 1000


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a certificate's statement.

    Attributes:
        verdict: "verified"; "refuted", if the opposite is proved; or "cannot check".
        statement: What the certificate states, in words; empty if it could not be read.
        assumed: The theorems by which the pairs dominate the mechanisms. They are not checked here.
        reason: Why the certificate cannot be checked.
        sha256: The SHA-256 of the certificate's bytes.
        undecided: The nodes of a price, counted from 0, at which a bound is not proved.
        checked_with: The versions of this program and of its arithmetic.
    """

    verdict: str
    statement: str
    assumed: tuple[str, ...]
    reason: str
    sha256: str
    undecided: tuple[int, ...] = ()
    checked_with: str = f"epsilond-verifier 1 (FLINT {flint.__FLINT_VERSION__})"


def check(data: bytes) -> Verdict:
    """Check one certificate. It raises nothing: if there is any doubt, the verdict is "cannot check"."""
    digest, read, undecided = hashlib.sha256(data).hexdigest(), None, tuple[int, ...]()
    with ctx.workprec(ctx.prec):
        try:
            read = _read(parse(data))
            verdict, reason, undecided = _decide(read)
        except (CannotCheck, ZeroDivisionError, ValueError, OverflowError, MemoryError, RecursionError) as error:
            verdict, reason = "cannot check", str(error) or type(error).__name__
    return Verdict(verdict, read.statement if read else "", read.assumed if read else (), reason, digest, undecided)


@dataclass(frozen=True, slots=True)
class _Read:
    claim: str
    statement: str
    assumed: tuple[str, ...]
    nodes: list[Node]
    steps: list[Step]
    price: Price | None


def _read(certificate: Reader) -> _Read:
    """Read all of a certificate, and set the working precision that it asks for."""
    certificate.word("format", FORMAT)
    stated, witness = certificate.inside("statement"), certificate.inside("witness")
    ctx.prec = witness.whole("precision", 32, _MOST_BITS)
    claim, relation = stated.word("claim", "at_most", "more_than"), stated.word("relation", *RELATIONS)
    group = stated.whole("group_size", 2, _MOST_GROUP) if stated.has("group_size") else 1
    steps = list[Step]()
    for event in stated.objects("events", _MOST_EVENTS):
        steps.append(read_step(event, relation, group))
        few = sum(isinstance(step.law, Mixture | Draws) for step in steps) <= _MOST_MIXTURES
        refuse_unless(few, f"only {_MOST_MIXTURES} events may be mixtures or draws with replacement")
    needed = ["both"] if all(is_symmetric(step.law) for step in steps) else ["add", "remove"]
    assumed = [theorem for step in steps for theorem in step.assumed]
    assumed += [COMPOSED] if sum(step.count for step in steps) > 1 else []
    bound, price, ask = "<=" if claim == "at_most" else ">", None, partial(Asked, steps, work=Work())
    if stated.has("nano_mu_squared"):
        refuse_unless(group == 1, "a price must be for single records, not for groups")
        price = Price.read(stated)
        nodes = _read_nodes(witness, price, needed, ask)
        spelled = f"price {bound} {price.spelled}"
        assumed += [FILTER] if nodes else [FILTER, OWN]
    else:
        epsilon, delta = stated.real("epsilon", 0.0, 1e15), stated.real("delta", 0.0, 1.0)
        nodes = [Node(arb(epsilon), arb(delta), arb(delta), _read_proofs(witness, needed, ask))]
        spelled = f"epsilon {bound} {epsilon!r} at delta {delta!r}"
    certificate.close()
    spelled += f" for the dominating pairs of these events under {relation}"
    spelled += f" and groups of {group} records" if group > 1 else ""
    return _Read(claim, spelled, tuple(dict.fromkeys(assumed)), nodes, steps, price)


def _read_proofs(reader: Reader, needed: list[str], ask: Callable[..., Asked]) -> list[Proof]:
    """Read the proofs of all directions. If a direction has none, its proof raises `CannotCheck`."""
    given = reader.inside("directions")
    return [read_form(given.inside(name), ask(name)) if given.has(name) else _missing for name in needed]


def _missing(_e: arb) -> Enclosure:
    raise CannotCheck("the certificate lacks a proof for a direction")


def _read_nodes(witness: Reader, price: Price, needed: list[str], ask: Callable[..., Asked]) -> list[Node]:
    """Read the nodes of a price, if it has any. The nodes of one group share their proofs."""
    nodes = list[Node]()
    for group in witness.objects("nodes", MOST_NODES) if witness.has("nodes") else []:
        deltas = group.reals("deltas", MOST_NODES - len(nodes), 0.0, 1.0)
        epsilons = group.reals("epsilons", len(deltas), 0.0, 1e15, len(deltas))
        proofs = _read_proofs(group, needed, partial(ask, times=len(deltas)))
        places = zip(map(arb, epsilons), map(arb, deltas), strict=True)
        nodes += [Node(e, delta, price.delta(e), proofs) for e, delta in places]
    return nodes


def _decide(read: _Read) -> tuple[str, str, tuple[int, ...]]:
    undecided, more_than, reasons = list[int](), False, list[str]()
    for number, node in enumerate(read.nodes):
        found = list[Enclosure]()
        for proof in node.proofs:
            try:
                found.append(proof(node.e))
            except CannotCheck as error:
                found.append(Enclosure())
                reasons.append(str(error))
        undecided += [] if all(each.is_at_most(node.most) for each in found) else [number]
        more_than = more_than or any(each.is_more_than(node.least) for each in found)
    at_most = not undecided
    if at_most and read.price is not None:
        try:
            read.price.require(read.steps, read.nodes)
        except CannotCheck as error:
            at_most, reasons = False, [str(error)]
    refuse_unless(
        not (at_most and more_than), "the statement and its opposite are proved: please report this certificate"
    )
    if at_most or more_than:
        return ("verified" if at_most == (read.claim == "at_most") else "refuted"), "", ()
    return "cannot check", "; ".join([*dict.fromkeys(reasons), "the bounds of delta are too loose"]), tuple(undecided)
