"""The form of a problem: what is known about the data and the loss, and what is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from app.dashboard.calibration_fields import CONSTANT, FIRST_VALUES, RISKS, TARGETS
from app.dashboard.calibration_form import number, target_of
from app.dashboard.fields import Field, FilledForm
from app.dashboard.wording import words

#: The form's values when it first appears.
START: Mapping[str, str] = {
    "shape": "convex",
    "norm_order": "2",
    "smooth": "yes",
    "heavy_tailed": "no",
    "dataset_size": "50000",
    "dimension": "20",
    "target": "approximate_dp",
    "epsilon": "2",
    "delta": "1e-6",
    "rho": "0.1",
    "mu": "1",
    **{name: FIRST_VALUES[name] for risk in RISKS for name in TARGETS[risk]},
    "max_grad_norm": "",
    "batch_size": "",
    "iterations": "",
    "loader": "",
    "simulated": "",
    "classes": "2",
    "hidden": "16",
    "fit_intercept": "no",
    "penalty": "",
    "strength": "0.1",
    "table": "convex_population",
    **{
        f"{CONSTANT}{name}": value
        for name, value in {
            "lipschitz": "1",
            "smoothness": "0.5",
            "radius": "1",
            "diameter": "2",
            "initial_gap": "1",
            "strong_convexity": "0.1",
            "pl_constant": "0.1",
            "weak_convexity": "0.5",
            "moment_order": "4",
            "moment_bound": "1",
        }.items()
    },
}
_CHOICES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "shape": (
        ("strongly_convex", "strongly convex"),
        ("convex", "convex"),
        ("polyak_lojasiewicz", "Polyak-Łojasiewicz"),
        ("weakly_convex", "weakly convex"),
        ("nonconvex", "not convex"),
        ("mean", "none: the mean is estimated"),
    ),
    "smooth": (("yes", "Lipschitz gradient"), ("no", "not smooth")),
    "heavy_tailed": (("no", "bounded"), ("yes", "heavy-tailed: only moments are bounded")),
    "target": tuple((name, words(name)) for name in TARGETS),
    "loader": (
        ("", "as each algorithm asks for"),
        ("poisson", "drawn by Poisson"),
        ("shuffled", "another order in every epoch"),
        ("fixed_order", "the same order in every epoch"),
    ),
    "simulated": (
        ("", "nothing"),
        ("logistic_regression", "logistic regression"),
        ("softmax_regression", "softmax regression"),
        ("linear_regression", "linear regression"),
        ("huber_regression", "Huber regression"),
        ("quantile_regression", "quantile regression"),
        ("q_norm_regression", "q-norm regression"),
        ("q_norm_hinge", "q-norm hinge"),
        ("mlp", "a perceptron"),
        ("mean", "the mean"),
    ),
    "fit_intercept": (("no", "none"), ("yes", "one for each logit")),
    "penalty": (("", "none"), ("l2", "l2"), ("l1", "l1")),
}
_LABELS: Mapping[str, str] = {
    "shape": "Shape of the objective",
    "norm_order": "p of the norm of parameters",
    "smooth": "Smoothness",
    "heavy_tailed": "Gradients are",
    "dataset_size": "Records",
    "dimension": "Parameters",
    "target": "Guarantee",
    "max_grad_norm": "Clip norm C",
    "batch_size": "Batch size",
    "iterations": "Steps",
    "loader": "Batches come",
    "simulated": "Simulate on synthetic rows",
    "classes": "Classes",
    "hidden": "Width of the hidden layer",
    "fit_intercept": "Intercept",
    "penalty": "Penalty",
    "strength": "Strength of the penalty",
    "table": "Table",
}
_POINTERS: Mapping[str, tuple[str, ...]] = {
    **{name: (f"/problem/{name}",) for name in ("shape", "norm_order", "smooth", "heavy_tailed")},
    **{name: (f"/target/{name}",) for names in TARGETS.values() for name in names},
    "target": ("/target", "/target/kind"),
    "loader": ("/loader",),
    "simulated": ("/simulation/model",),
    **{name: (f"/simulation/{name}",) for name in ("classes", "hidden", "fit_intercept", "penalty")},
    "strength": ("/simulation/penalty/strength",),
    "max_grad_norm": ("/gradient_bound", "/gradient_bound/max_grad_norm"),
}
#: Constants that belong to one shape of objective.
_OF_SHAPES: Mapping[str, str] = {
    "strong_convexity": "strongly_convex",
    "pl_constant": "polyak_lojasiewicz",
    "weak_convexity": "weakly_convex",
}
#: The meanings of the constants in the problem's own norm; for other norms, each algorithm describes its own.
_MEANINGS: Mapping[str, str] = {
    "lipschitz": "longest gradient of a record, in the dual norm",
    "smoothness": "between two points a record's gradient changes by at most this times their distance",
    "radius": "of the ball in which parameters are kept",
    "diameter": "largest distance of two points of the domain",
    "initial_gap": "how far the loss at the start is above its least value, at most",
    "strong_convexity": "the loss curves at least as much as a quadratic of this strength",
    "pl_constant": "the gradient's squared norm is at least twice this times the loss above its least value",
    "weak_convexity": "a quadratic of this strength makes the loss convex",
    "moment_order": "gradients have moments up to this order",
    "moment_bound": "root of the gradients' moment of that order; at most their bound, if they have one",
}
#: Fields by which nobody compares algorithms.
_NOT_ASKED = ("order_constant", "norm_order")


class Form(FilledForm):
    """The fields of a problem, filled in."""

    @property
    def values(self) -> dict[str, str]:
        return {each.name: each.value for each in self.fields}

    @property
    def address(self) -> str:
        """Return the state as parameters of an address."""
        return urlencode(self.values)

    def problem(self) -> dict[str, Any]:
        """Return the body of `POST /v1/advise`."""
        given = {name: value for name, value in self.values.items() if value}
        body: dict[str, Any] = {
            name: number(given[name])
            for name in ("dataset_size", "dimension", "batch_size", "iterations")
            if name in given
        }
        body["problem"] = {
            "shape": given["shape"],
            "smooth": given["smooth"] == "yes",
            "heavy_tailed": given["heavy_tailed"] == "yes",
        } | ({"norm_order": number(given["norm_order"])} if "norm_order" in given else {})
        body["target"] = target_of(given)
        if "loader" in given:
            body["loader"] = given["loader"]
        if "max_grad_norm" in given:
            body["gradient_bound"] = {"kind": "clip", "max_grad_norm": number(given["max_grad_norm"])}
        body["assumptions"] = {
            name.removeprefix(CONSTANT): number(value) for name, value in given.items() if name.startswith(CONSTANT)
        }
        return body

    def simulation(self, algorithms: Sequence[str]) -> dict[str, Any] | None:
        """Return the body of a `POST /v1/advise` that simulates only these algorithms; None if nothing is simulated."""
        if not self.values["simulated"]:
            return None
        given = {name: value for name, value in self.values.items() if value}
        asked: dict[str, Any] = {"model": given["simulated"]}
        if "classes" in given:
            asked["classes"] = number(given["classes"])
        if "hidden" in given:
            asked["hidden"] = [number(given["hidden"])]
        if given.get("fit_intercept") == "yes":
            asked["fit_intercept"] = True
        if "penalty" in given:
            strength = {"strength": number(given["strength"])} if "strength" in given else {}
            asked["penalty"] = {"kind": given["penalty"]} | strength
        return self.problem() | {"algorithms": list(algorithms), "simulation": asked}

    def setting(self) -> dict[str, str]:
        """Return the parameters of `GET /v1/algorithms/compare`, as far as the form has them."""
        given = {name: value for name, value in self.values.items() if value}
        found: dict[str, str] = {
            name: given[name] for name in ("dataset_size", "dimension", "epsilon", "delta") if name in given
        }
        if given.get("norm_order", "1") not in ("1", "1.0"):
            found["norm_order"] = given["norm_order"]
        if f"{CONSTANT}moment_order" in given:
            found["moment_order"] = given[f"{CONSTANT}moment_order"]
        return found


def read(query: Mapping[str, str], algorithms: Sequence[Mapping[str, Any]], tables: Mapping[str, str]) -> Form:
    """Read the form from an address.

    Args:
        query: The address's parameters.
        algorithms: The algorithms, from `GET /v1/algorithms`.
        tables: The titles of the papers' tables, by the tables' names.
    """
    given = {name: value.strip()[:100] for name, value in query.items()}
    shape, target = _choice(given, "shape"), _choice(given, "target")
    amounts = [_number(given, name) for name in TARGETS[target.value]]
    meanings = {item["name"]: item for each in reversed(algorithms) for item in each["assumptions"]}
    constants = [
        _constant(given, item)
        for name, item in meanings.items()
        if name not in _NOT_ASKED and _OF_SHAPES.get(name, shape.value) == shape.value
    ]
    filled = [each for each in constants if each.value or each.name in START]
    others = [each for each in constants if each not in filled]
    objective = [shape, _number(given, "norm_order"), _choice(given, "smooth"), _choice(given, "heavy_tailed")]
    sizes = [_number(given, name) for name in ("dataset_size", "dimension")]
    own = [*(_number(given, name) for name in ("max_grad_norm", "batch_size", "iterations")), _choice(given, "loader")]
    return Form(
        sections=(
            ("Objective", tuple(objective)),
            ("Data", tuple(sizes)),
            ("Privacy", (target, *amounts)),
            ("Constants of the problem", tuple(filled)),
            ("Where no theorem chooses", tuple(own)),
            ("Simulation", _simulated(given)),
            ("Further constants", tuple(others)),
            ("The papers' tables", (_choice(given, "table", tuple(tables.items())),)),
        )
    )


def _simulated(given: Mapping[str, str]) -> tuple[Field, ...]:
    """Return the fields of the simulation, as far as the model has them."""
    model = _choice(given, "simulated")
    found = [model]
    if model.value in ("softmax_regression", "mlp"):
        found.append(_number(given, "classes"))
    if model.value == "mlp":
        found.append(_number(given, "hidden"))
    if model.value in ("", "mean"):
        return tuple(found)
    if model.value != "mlp":
        found.append(_choice(given, "fit_intercept"))
    penalty = _choice(given, "penalty")
    return (*found, penalty, *([_number(given, "strength")] if penalty.value else []))


def _choice(given: Mapping[str, str], name: str, options: tuple[tuple[str, str], ...] = ()) -> Field:
    options = options or _CHOICES[name]
    value = given.get(name, START[name])
    if all(value != option for option, _ in options):
        value = START[name]
    return Field(name, _LABELS[name], value, "", (("", options),), _POINTERS.get(name, ()))


def _number(given: Mapping[str, str], name: str) -> Field:
    label = _LABELS.get(name, words(name).capitalize())
    return Field(name, label, given.get(name, START[name]), "", (), _POINTERS.get(name, (f"/{name}",)))


def _constant(given: Mapping[str, str], item: Mapping[str, Any]) -> Field:
    name = f"{CONSTANT}{item['name']}"
    unit = "" if item["unit"] == "pure number" else f" In {item['unit']}."
    meaning = _MEANINGS.get(item["name"], item["meaning"])
    hint = f"{meaning[:1].upper()}{meaning[1:].rstrip('.')}.{unit}"
    value = given.get(name, START.get(name, ""))
    return Field(name, words(item["name"]), value, hint, (), (f"/assumptions/{item['name']}",))
