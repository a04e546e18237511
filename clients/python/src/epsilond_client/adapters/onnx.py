"""ONNX: a released model as a graph for any runtime, with its scaling inside (needs the package `onnx`).

    onnx.save(to_onnx(client.runs.load(run)), "model.onnx")

Inputs are `numbers`, of shape (n, number columns) and type double, and `categories`, of shape (n, category columns) and
type string; a model without columns of a kind lacks that input. Columns are in the declared order, and their names are
in the metadata. Outputs are `label` (the name of the class, or the number in the label's unit) and, where the model has
them, `probabilities`. Numbers beyond their bounds are clipped, as in training; an undeclared category is read as none
of the declared ones.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import numpy as np

from epsilond_client.models import FloatArray, Model

#: The first version in which `Equal` accepts texts.
_OPSET = 19
#: An old version is used, because more runtimes can read it.
_IR_VERSION = 10


def to_onnx(model: Model) -> Any:
    """Return the model as an `onnx.ModelProto`, checked.

    Args:
        model: A released model that predicts.

    Raises:
        TypeError: the model is a mean, which predicts nothing.
        ModuleNotFoundError: there is no package `onnx`.
    """
    if model.kind == "mean":
        raise TypeError("a mean makes no predictions, so it has no graph")
    onnx: Any = import_module("onnx")
    graph = _Graph(onnx.helper, onnx.TensorProto)
    logits = _logits(graph, model)
    _answers(graph, model, logits)
    features = model.document["features"]
    made = onnx.helper.make_model(
        graph.made(f"epsilond {model.kind}"),
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        producer_name="epsilond",
        ir_version=_IR_VERSION,
    )
    told = {name: value for name, value in model.document.items() if name != "features"}
    names = {kind: [each["name"] for each in features if each["type"] == kind] for kind in ("number", "category")}
    onnx.helper.set_model_props(
        made,
        {
            "epsilond": json.dumps(told),
            "numbers": json.dumps(names["number"]),
            "categories": json.dumps(names["category"]),
        },
    )
    onnx.checker.check_model(made, full_check=True)
    return made


class _Graph:
    """Collects nodes and constants, each named by its number."""

    def __init__(self, helper: Any, types: Any) -> None:
        self.types = types
        self._helper = helper
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, kind: int, width: int) -> str:
        self._inputs.append(self._helper.make_tensor_value_info(name, kind, ["rows", width]))
        return name

    def constant(self, values: FloatArray | list[int] | list[str] | list[float]) -> str:
        """Add a constant of doubles, integers or texts. Lists become vectors, and arrays keep their shape."""
        name = f"constant_{len(self._constants)}"
        array = np.asarray(values)
        kind = {"f": self.types.DOUBLE, "i": self.types.INT64, "U": self.types.STRING}[array.dtype.kind]
        flat = (
            [each.encode() for each in array.ravel().tolist()] if kind == self.types.STRING else array.ravel().tolist()
        )
        self._constants.append(self._helper.make_tensor(name, kind, array.shape, flat))
        return name

    def node(self, operation: str, *inputs: str, **attributes: Any) -> str:
        name = f"value_{len(self._nodes)}"
        self._nodes.append(self._helper.make_node(operation, list(inputs), [name], **attributes))
        return name

    def output(self, name: str, value: str, kind: int, *shape: str | int) -> None:
        self._nodes.append(self._helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._helper.make_tensor_value_info(name, kind, list(shape)))

    def made(self, name: str) -> Any:
        return self._helper.make_graph(self._nodes, name, self._inputs, self._outputs, self._constants)


def _logits(graph: _Graph, model: Model) -> str:
    """Add the logits, shape (n, K)."""
    features, order = _features(graph, model)
    if model.kind != "mlp":
        weights = model.parameters["weights"]
        matrix = weights.reshape(len(weights), -1)[order]
        logits = graph.node("MatMul", features, graph.constant(matrix))
        if "bias" not in model.parameters:
            return logits
        return graph.node("Add", logits, graph.constant(model.parameters["bias"].reshape(-1)))
    layers = sum(name.startswith("weights_") for name in model.parameters)
    activation = {"relu": "Relu", "tanh": "Tanh"}[model.document["model"]["activation"]]
    values = features
    for number in range(1, layers + 1):
        matrix = model.parameters[f"weights_{number}"]
        values = graph.node("MatMul", values, graph.constant(matrix[order] if number == 1 else matrix))
        values = graph.node("Add", values, graph.constant(model.parameters[f"bias_{number}"]))
        if number < layers:
            values = graph.node(activation, values)
    return values


def _features(graph: _Graph, model: Model) -> tuple[str, list[int]]:
    """Add the scaled features, numbers first, and return the row of the weights for each of them."""
    numbers: list[tuple[int, Any]] = []
    categories: list[tuple[int, Any]] = []
    place = 0
    for column in model.document["features"]:
        (numbers if column["type"] == "number" else categories).append((place, column))
        place += 1 if column["type"] == "number" else len(column["categories"])
    parts, order = [], [place for place, _ in numbers]
    if numbers:
        given = graph.input("numbers", graph.types.DOUBLE, len(numbers))
        lower, upper = (np.array([float(column[end]) for _, column in numbers]) for end in ("lower", "upper"))
        # A value of a constant column is clipped to its bound; the difference is 0, whatever it is divided by.
        half_width = np.where(lower == upper, 1.0, upper / 2.0 - lower / 2.0)
        clipped = graph.node("Min", graph.node("Max", given, graph.constant(lower)), graph.constant(upper))
        shifted = graph.node("Sub", clipped, graph.constant(upper / 2.0 + lower / 2.0))
        scaled = graph.node("Div", shifted, graph.constant(half_width))
        one = np.ones(len(numbers))
        parts.append(graph.node("Min", graph.node("Max", scaled, graph.constant(-one)), graph.constant(one)))
    if categories:
        given = graph.input("categories", graph.types.STRING, len(categories))
        for number, (start, column) in enumerate(categories):
            cells = graph.node("Gather", given, graph.constant([number]), axis=1)
            equal = graph.node("Equal", cells, graph.constant(column["categories"]))
            parts.append(graph.node("Cast", equal, to=graph.types.DOUBLE))
            order += range(start, start + len(column["categories"]))
    return graph.node("Concat", *parts, axis=1) if len(parts) > 1 else parts[0], order


def _answers(graph: _Graph, model: Model, logits: str) -> None:
    """Add the label of each row, and the probabilities of classes if there are any."""
    width = max(len(model.classes), 1)
    has_one = model.kind not in ("softmax_regression", "mlp")
    if not model.classes:
        label = model.document["label"]
        half_width, middle = label["upper"] / 2.0 - label["lower"] / 2.0, label["upper"] / 2.0 + label["lower"] / 2.0
        flat = graph.node("Squeeze", logits, graph.constant([1]))
        scaled = graph.node("Add", graph.node("Mul", flat, graph.constant([half_width])), graph.constant([middle]))
        graph.output("label", scaled, graph.types.DOUBLE, "rows")
        return
    if has_one:
        flat = graph.node("Squeeze", logits, graph.constant([1]))
        codes = graph.node("Cast", graph.node("Greater", flat, graph.constant([0.0])), to=graph.types.INT64)
    else:
        codes = graph.node("ArgMax", logits, axis=1, keepdims=0)
    graph.output("label", graph.node("Gather", graph.constant(list(model.classes)), codes), graph.types.STRING, "rows")
    if not model.has_probabilities:
        return
    if has_one:
        both = graph.node("Concat", graph.node("Neg", logits), logits, axis=1)
        shares = graph.node("Sigmoid", both)
    else:
        shares = graph.node("Softmax", logits, axis=1)
    graph.output("probabilities", shares, graph.types.DOUBLE, "rows", width)
