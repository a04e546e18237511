"""Make ``references.json``: ``python -m tests.high_precision.make_references [id prefix ...]`` (all: some minutes).

Every delta is computed by two line integrals with different tilt, period, node line, node spacing and window, and by a
third method where one exists. Only the digits on which all of them agree are written, rounded in the last place kept.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import mpmath as mp

from tests.high_precision.contour import Problem, integrate, log_chernoff
from tests.high_precision.direct import full_batch, laplace_steps, single_step, two_steps
from tests.high_precision.loss_quadrature import PoissonLaplace
from tests.high_precision.specs import REFERENCES, Reference, problems

FILE = Path(__file__).with_name("references.json")


def main(prefixes: list[str]) -> None:
    kept: dict[str, Any] = {}
    if prefixes and FILE.exists():
        kept = {entry["id"]: entry for entry in json.loads(FILE.read_text())["references"]}
    for reference in REFERENCES:
        if prefixes and not any(reference.id.startswith(prefix) for prefix in prefixes):
            continue
        started = time.process_time()
        try:
            kept[reference.id] = entry = evaluate(reference)
        except RuntimeError as error:
            sys.stdout.write(f"{reference.id:28} LEFT OUT: {error}\n")
            continue
        sys.stdout.write(
            f"{entry['id']:28} {entry['delta']:45} {entry['method']} {time.process_time() - started:.1f} s\n"
        )
        sys.stdout.flush()
        _write([kept[known.id] for known in REFERENCES if known.id in kept])


def evaluate(reference: Reference) -> dict[str, Any]:
    """The larger of the directions, with the digits on which all methods agree."""
    best, method, digits = mp.mpf(-1), "", 0
    for direction, problem in problems(reference).items():
        if best > 0 and _is_surely_smaller(problem, best):
            continue
        values = _values(reference, problem)
        numbers = list(values.values())
        first = numbers[-1]
        spread = max((abs(number / first - 1) for number in numbers), default=mp.mpf(0))
        agreed = reference.digits if spread == 0 else min(reference.digits, int(-mp.log10(spread)) - 1)
        if first > best:
            best, method, digits = first, f"{direction}: {', '.join(values)}", agreed
    if digits < min(12, reference.digits - 3):
        raise RuntimeError(f"{reference.id}: the methods agree on {digits} digits only")
    return {
        "id": reference.id,
        "events": list(reference.events),
        "neighboring_relation": reference.relation,
        "epsilon": reference.epsilon,
        "delta": mp.nstr(best, digits, min_fixed=0, max_fixed=0),
        "digits": digits,
        "method": method,
        "goal": reference.goal,
    }


def _is_surely_smaller(problem: Problem, delta: mp.mpf) -> bool:
    """Whether a direction is below the other one, by Chernoff's bound or by an evaluation with few digits."""
    enough = float(mp.log(delta)) - 1.0
    if log_chernoff(problem, enough) < enough:
        return True
    return bool(integrate(problem, 8, variant=0).delta < delta * (1 - mp.mpf(10) ** -4))


def _values(reference: Reference, problem: Problem) -> dict[str, mp.mpf]:
    """Every method that applies; the most exact one last."""
    mp.mp.dps = 60
    values: dict[str, mp.mpf] = {}
    if not problem.steps:
        values["closed form"] = full_batch(problem.mu_squared, problem.epsilon)
    steps, counts = zip(*problem.steps, strict=True) if problem.steps else ((), ())
    laplace = problem.mu_squared == 0 and len(steps) == 1 and isinstance(steps[0], PoissonLaplace) and steps[0].q == 1.0
    if not (laplace and problem.smooth_within is None):
        for variant in (0, 1):
            values[f"line integral {variant + 1}"] = integrate(problem, reference.digits, variant=variant).delta
    if problem.mu_squared == 0 and len(steps) == 1:
        if laplace:
            values["convolved splines"] = laplace_steps(steps[0].b, counts[0], mp.mpf(problem.epsilon))
        if counts == (1,):
            values["one step in closed form"] = single_step(steps[0], mp.mpf(problem.epsilon))
        elif counts == (2,):
            values["nested quadrature"] = two_steps(steps[0], mp.mpf(problem.epsilon))
    return values


def _write(entries: list[dict[str, Any]]) -> None:
    document = {
        "about": "delta at epsilon to the digits given, made by python -m tests.high_precision.make_references. "
        "goal: whether the accounting goal for interval widths applies.",
        "references": entries,
    }
    FILE.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
