"""The form of a calibration: the fields of an algorithm, the request that they make, and the fields of its faults.

The state of the form is the page's address, one parameter for each field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode

from accounting.relations import NeighboringRelation
from app.algorithms.examples import CALIBRATE_EXAMPLES
from app.dashboard.calibration_fields import (
    CHOICES,
    CONSTANT,
    CORRELATION,
    FIRST_VALUES,
    FOR_GROUPS,
    HINTS,
    RISKS,
    START,
    TARGETS,
    TRUNCATED,
    WITH_BATCH_SIZE,
    label_of,
    pointers_of,
)
from app.dashboard.fields import Field, FilledForm
from app.dashboard.wording import told_apart, words
from calibrators.registry import ALGORITHMS

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?")
_WORDS = ("sampling", "neighboring_relation", "variant", "budget_id", "dtype")
#: The fields that some theorems choose themselves.
_STEPS = ("iterations", "batch_size")
_PAPER = re.compile(r"(?:after )?(.*?\d{4})")


@dataclass(frozen=True, kw_only=True)
class Form(FilledForm):
    """The fields of one algorithm, filled in.

    Attributes:
        algorithm: As `GET /v1/algorithms` describes it.
        is_example: Whether the constants come from the algorithm's example, because none were given.
        values: The values of the fields that are shown, by their names.
        judges_literal: Whether the paper's own calibration is judged. This ends when a field is changed.
        certifies: Whether a certificate is requested. This ends when a field is changed, too.
    """

    algorithm: Mapping[str, Any]
    is_example: bool
    values: Mapping[str, str]
    judges_literal: bool = False
    certifies: bool = False

    @property
    def address(self) -> str:
        """Return the state as parameters of an address."""
        return urlencode({name: value for name, value in self.values.items() if value})

    def body(self) -> dict[str, Any]:
        """Return the request that the fields make. Text that is not a number is sent unchanged, and the service refuses
        it at its field."""
        given = {name: value for name, value in self.values.items() if value}
        numbers = ("dataset_size", "capacity", "dimension", "batch_size", "iterations", "noise_multiplier")
        body: dict[str, Any] = {"algorithm": self.algorithm["name"]}
        body |= {name: number(given[name]) for name in numbers if name in given}
        body |= {name: given[name] for name in _WORDS if name in given}
        if "max_batch_size" in given:
            body["sampling"] = {"kind": given["sampling"], "max_batch_size": number(given["max_batch_size"])}
        if hyperparameters := _hyperparameters(given):
            body["hyperparameters"] = hyperparameters
        if correlation := {name: number(given[name]) for name in CORRELATION if name in given}:
            body["correlation"] = correlation
        if bound := given.get("gradient_bound"):
            amounts = ("max_grad_norm", "regularizer")
            body["gradient_bound"] = {"kind": bound} | {name: number(given[name]) for name in amounts if name in given}
        body["target"] = target_of(given)
        if given["target"] == FOR_GROUPS and "group_size" in given:
            body["target"]["group_size"] = number(given["group_size"])
        if given["solve_for"] != "noise_multiplier":
            body["solve_for"] = given["solve_for"]
        if self.judges_literal:
            body["judge_literal"] = True
        if self.certifies:
            body["certificate"] = True
        constants = {name: value for name, value in given.items() if name.startswith(CONSTANT)}
        if constants:
            body["assumptions"] = {name.removeprefix(CONSTANT): number(value) for name, value in constants.items()}
        return body


def _hyperparameters(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the hyperparameters that the form has: those that the noise of correlated steps depends on."""
    found: dict[str, Any] = {"momentum": number(given["momentum"])} if "momentum" in given else {}
    if given.get("step_size_schedule", "constant") != "constant":
        fall = {"cooldown": number(given["cooldown"])} if "cooldown" in given else {}
        found["step_size_schedule"] = {"kind": given["step_size_schedule"]} | fall
    return found


def number(text: str) -> float | int | str:
    """Read a typed number; text that is not a number stays text.

    >>> number("5000"), number("1e-5"), number("1e999"), number("many")
    (5000, 1e-05, '1e999', 'many')
    """
    if _NUMBER.fullmatch(text) is None or len(text) > 40:
        return text
    return int(text) if text.isdigit() else float(text)


def target_of(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the target that a form's fields state, as the service reads it."""
    kind = given["target"]
    amounts = {name: number(given[name]) for name in TARGETS[kind] if name in given}
    return {"kind": "attack_risk" if kind in RISKS else kind} | amounts


def example_of(name: str) -> dict[str, Any]:
    """Return the algorithm's first example request in Swagger UI."""
    bodies = (cast(dict[str, Any], example["value"]) for example in CALIBRATE_EXAMPLES.values())
    return next(body for body in bodies if body["algorithm"] == name)


def example_address(name: str) -> str:
    """Return the address of the form with that request filled in."""
    return address_of(example_of(name))


def address_of(body: Mapping[str, Any]) -> str:
    """Return the address of the form with a request filled in."""
    return "/?" + urlencode({name: value for name, value in values_of(body).items() if value})


def values_of(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields that make a request, as far as the form has them."""
    plain = (
        "algorithm",
        "dataset_size",
        "capacity",
        "dimension",
        "batch_size",
        "iterations",
        "noise_multiplier",
        "variant",
        "dtype",
    )
    values = {name: f"{body[name]}" for name in plain if name in body}
    values["solve_for"] = body.get("solve_for", "noise_multiplier")
    values["neighboring_relation"] = body.get("neighboring_relation", "")
    sampling = body.get("sampling", "")
    values["sampling"] = sampling["kind"] if isinstance(sampling, Mapping) else sampling
    if isinstance(sampling, Mapping) and "max_batch_size" in sampling:
        values["max_batch_size"] = f"{sampling['max_batch_size']}"
    correlation = body.get("correlation", {})
    values |= {name: f"{correlation[name]}" for name in CORRELATION if name in correlation}
    hyperparameters = body.get("hyperparameters", {})
    if "momentum" in hyperparameters:
        values["momentum"] = f"{hyperparameters['momentum']}"
    if "step_size_schedule" in hyperparameters:
        schedule = hyperparameters["step_size_schedule"]
        fall = {"kind": schedule} if isinstance(schedule, str) else schedule
        values["step_size_schedule"] = fall["kind"]
        values |= {name: f"{fall[name]}" for name in ("cooldown",) if name in fall}
    bound = dict(body.get("gradient_bound", {"kind": ""}))
    values["gradient_bound"] = bound.pop("kind")
    target = dict(body["target"])
    kind = target.pop("kind")
    values["target"] = next(name for name in RISKS if set(TARGETS[name]) == set(target)) if "risk" in kind else kind
    constants = {f"{CONSTANT}{name}": value for name, value in body.get("assumptions", {}).items()}
    return values | {name: f"{value:.12g}".replace("e-0", "e-") for name, value in (bound | target | constants).items()}


def read(
    query: Mapping[str, str], algorithms: Sequence[Mapping[str, Any]], budgets: Sequence[Mapping[str, Any]] = ()
) -> Form:
    """Read the form from an address.

    Args:
        query: The address's parameters. `shown` is the algorithm whose form was filled in. If `algorithm` differs from
            it, the reader has just chosen another algorithm.
        algorithms: The algorithms, from `GET /v1/algorithms`.
        budgets: The budgets, from `GET /v1/budgets`. The plan's cost can be shown in one of them.
    """
    given = {name: value.strip()[:100] for name, value in query.items()} if "algorithm" in query else dict(START)
    names = {each["name"]: each for each in algorithms}
    algorithm = names.get(given["algorithm"], names[START["algorithm"]])
    is_new = "shown" in given and given["shown"] != algorithm["name"]
    is_example = is_new and _fill_in(given, algorithm)
    shown = _Shown(given, algorithm, budgets, is_live="shown" in given or "algorithm" not in query)
    sections = tuple((legend, tuple(fields)) for legend, fields in shown.sections(algorithms) if fields)
    values = {each.name: each.value for _, fields in sections for each in fields}
    return Form(
        algorithm=algorithm,
        sections=sections,
        is_example=is_example,
        values=values,
        judges_literal=query.get("judge_literal") == "yes",
        certifies=query.get("certificate") == "yes",
    )


def _fill_in(given: dict[str, str], algorithm: Mapping[str, Any]) -> bool:
    """Fill empty fields from the example of a newly chosen algorithm. Return whether constants were filled in."""
    example = values_of(example_of(algorithm["name"]))
    if "batch_size" not in example:
        # The steps of these algorithms are not those of SGD: the example gives their numbers, or the theorem chooses
        # them.
        given |= {name: example.get(name, "") for name in _STEPS}
    missing = {name: value for name, value in example.items() if not given.get(name)}
    given |= missing
    return any(name.startswith(CONSTANT) for name in missing)


@dataclass
class _Shown:
    """The fields that an algorithm takes, with what is given for them.

    Attributes:
        given: The address's parameters.
        algorithm: As the service describes it.
        budgets: The budgets in which the plan's cost can be shown.
        is_live: Whether the address comes from a form. In other addresses, as in requests, the theorem chooses a
            missing number of steps. In a form it is missing because its field has just appeared.
    """

    given: Mapping[str, str]
    algorithm: Mapping[str, Any]
    budgets: Sequence[Mapping[str, Any]]
    is_live: bool

    def sections(self, algorithms: Sequence[Mapping[str, Any]]) -> Iterable[tuple[str, list[Field]]]:
        algorithm = self.algorithm
        chosen = Field("algorithm", "Algorithm", algorithm["name"], choices=_choices_by_paper(algorithms))
        variants = algorithm["variants"]
        yield "Algorithm", [chosen, *([self._choice("variant", variants)] if variants else [])]
        solve_for = self._choice("solve_for", CHOICES["solve_for"])
        targets = ["approximate_dp"] if solve_for.value in ("epsilon", "delta") else list(TARGETS)
        target = self._choice("target", targets)
        amounts = [self._number(name) for name in TARGETS[target.value] if name != solve_for.value]
        if target.value == FOR_GROUPS and solve_for.value not in ("epsilon", "delta"):
            amounts.append(self._number("group_size"))
        relation = self._choice("neighboring_relation", algorithm["neighboring_relations"])
        yield "Privacy", [solve_for, target, *amounts, relation, *self._budget()]
        yield "Data and steps", self._steps(solve_for.value, relation.value)
        yield "Gradients", self._gradients()
        yield "Noise over steps", self._correlation()
        yield "Constants of the problem", [self._constant(each) for each in algorithm["assumptions"]]

    def _budget(self) -> list[Field]:
        if not self.budgets:
            return []
        options = (("", "none"), *told_apart(self.budgets).items())
        given = self.given.get("budget_id", "")
        value = given if any(given == option for option, _ in options) else ""
        return [Field("budget_id", label_of("budget_id"), value, "", (("", options),), pointers_of("budget_id"))]

    def _steps(self, solve_for: str, relation: str) -> list[Field]:
        sampling = self._choice("sampling", self.algorithm["samplings"])
        fields = [self._number("dataset_size"), self._number("dimension"), sampling]
        if sampling.value in WITH_BATCH_SIZE and solve_for != "batch_size":
            fields.append(self._number("batch_size"))
        if sampling.value == TRUNCATED:
            fields.append(self._number("max_batch_size"))
            if relation == NeighboringRelation.ADD_OR_REMOVE_ONE:
                fields.append(self._number("capacity"))
        if not ALGORITHMS[self.algorithm["name"]].one_step and solve_for != "iterations":
            fields.append(self._number("iterations"))
        if solve_for != "noise_multiplier":
            fields.append(self._number("noise_multiplier"))
        return [*fields, self._choice("dtype", CHOICES["dtype"])]

    def _gradients(self) -> list[Field]:
        bounds = list(self.algorithm["gradient_bounds"])
        if not bounds:
            return []
        if not self.algorithm["gradient_bound_required"]:
            bounds.insert(0, "")
        bound = self._choice("gradient_bound", bounds)
        amount = {"clip": ["max_grad_norm"], "normalize": ["regularizer"]}.get(bound.value, [])
        return [bound, *(self._number(name) for name in amount)]

    def _correlation(self) -> list[Field]:
        if not self.algorithm["correlates"]:
            return []
        bands, most, momentum = (self._number(name) for name in ("bands", "max_bands", "momentum"))
        sizes = self._choice("step_size_schedule", CHOICES["step_size_schedule"])
        falling = [] if sizes.value == "constant" else [self._number("cooldown")]
        return [bands, self._choice("objective", CHOICES["objective"]), most, momentum, sizes, *falling]

    def _choice(self, name: str, values: Iterable[str]) -> Field:
        """Return the given value if it is one of the choices, else the first choice."""
        texts = CHOICES.get(name, {})
        options = [(value, texts.get(value, words(value))) for value in values]
        value = self.given.get(name, "")
        if all(value != option for option, _ in options):
            value = options[0][0]
        return Field(name, label_of(name), value, "", (("", tuple(options)),), pointers_of(name))

    def _number(self, name: str) -> Field:
        may_be_chosen = name in _STEPS and (not self.is_live or name not in example_of(self.algorithm["name"]))
        value = self.given.get(name, "" if may_be_chosen else FIRST_VALUES.get(name, START.get(name, "")))
        hint = HINTS.get(name, "")
        if name == "dimension":
            hint = "Utility needs it." if value else "If left out, there is no utility bound."
        elif may_be_chosen and not value:
            hint = "If left out, the theorem chooses."
        return Field(name, label_of(name), value, hint, (), pointers_of(name))

    def _constant(self, item: Mapping[str, Any]) -> Field:
        name = f"{CONSTANT}{item['name']}"
        unit = "" if item["unit"] == "pure number" else f" In {item['unit']}."
        default = "" if item["default"] is None else f" Left out: {item['default']:g}."
        needed = " The theorem needs it." if item["required"] and item["default"] is None else ""
        hint = f"{item['meaning'][:1].upper()}{item['meaning'][1:].rstrip('.')}.{unit}{default}{needed}"
        return Field(name, words(item["name"]), self.given.get(name, ""), hint, (), (f"/assumptions/{item['name']}",))


def by_paper(algorithms: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return algorithms, as the service describes them, by the papers that they come from."""
    papers: dict[str, list[Mapping[str, Any]]] = {}
    for each in algorithms:
        found = _PAPER.match(each["source"])
        papers.setdefault(found[1] if found else each["source"], []).append(each)
    return papers


def _choices_by_paper(algorithms: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    return tuple(
        (paper, tuple((each["name"], each["name"]) for each in found)) for paper, found in by_paper(algorithms).items()
    )
