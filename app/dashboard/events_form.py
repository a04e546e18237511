"""The form of a list of events: the kinds of steps, the fields that can be solved for, and the target.

Mechanisms and samplings have the fields of their records, so that a new one needs no change here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from accounting.described import Described, Range, Reals, Word
from accounting.events import MECHANISMS, SAMPLINGS
from accounting.relations import NeighboringRelation
from accounting.solve.open_events import OpenField
from app.dashboard.calibration_fields import CHOICES, FIRST_VALUES, TARGETS, label_of, pointers_of
from app.dashboard.calibration_form import number, target_of
from app.dashboard.fields import Field, FilledForm
from app.dashboard.wording import words

#: The number of kinds of steps that the form has room for; a request may have more.
MOST_PARTS = 4
#: The values of fields when the form first appears: the common case. Other fields begin empty.
_START: Mapping[str, str] = {
    **FIRST_VALUES,
    "parts": "1",
    "solve_for": "noise_multiplier",
    "target": "approximate_dp",
    "neighboring_relation": "add_or_remove_one",
    "mechanism": "gaussian",
    "sampling": "poisson",
    "count": "5000",
    "sampling_probability": "0.01",
    "dataset_size": "100000",
    "batch_size": "1000",
    "num_bins": "100",
    "participations": "1",
    "steps_per_epoch": "100",
    "cycle_length": "10",
}
_SOLVE_FOR: Mapping[OpenField, str] = {
    OpenField.NOISE_MULTIPLIER: "the least noise",
    OpenField.COUNT: "the most steps",
    OpenField.SAMPLING_PROBABILITY: "the largest sampling probability",
    OpenField.BATCH_SIZE: "the largest batch",
}


class Form(FilledForm):
    """The fields of a list of events and of a target, filled in."""

    @property
    def values(self) -> dict[str, str]:
        return {each.name: each.value for each in self.fields}

    @property
    def address(self) -> str:
        """Return the state as parameters of an address."""
        return urlencode(self.values)

    def body(self) -> dict[str, Any]:
        """Return the body of `POST /v1/calibrate/events`. Text that is not a number is sent unchanged, and the service
        refuses it at its field.

        Empty fields are left out: the field that is solved for, and fields with a default.
        """
        given = {name: value for name, value in self.values.items() if value}
        return {
            "events": [self._event(given, str(part)) for part in range(1, int(given["parts"]) + 1)],
            "neighboring_relation": given["neighboring_relation"],
            "target": target_of(given),
            "solve_for": given["solve_for"],
        }

    def _event(self, given: Mapping[str, str], part: str) -> dict[str, Any]:
        event: dict[str, Any] = {}
        for name, known in (("mechanism", MECHANISMS), ("sampling", SAMPLINGS)):
            cls: type[Described] = known[given[f"{part}.{name}"]]
            amounts = {field: given.get(f"{part}.{name}.{field}", "") for field in cls.ranges}
            event[name] = {"kind": cls.kind} | {
                field: _sent(value, cls.ranges[field]) for field, value in amounts.items() if value
            }
        return event | ({"count": number(given[f"{part}.count"])} if f"{part}.count" in given else {})


def query_for(events: Sequence[Mapping[str, Any]], relation: str, epsilon: str, delta: float) -> str | None:
    """Return the address's parameters for the least noise of these steps at a target; None if the form cannot ask for
    it.

    Args:
        events: One list of equal steps, as in an answer.
        relation, epsilon, delta: The target.
    """
    if len(events) != 1 or "noise_multiplier" not in events[0]["mechanism"]:
        return None
    values = {
        "solve_for": "noise_multiplier",
        "neighboring_relation": relation,
        "epsilon": epsilon,
        "delta": f"{delta:g}",
    }
    for name in ("mechanism", "sampling"):
        for field, value in events[0][name].items():
            values[f"1.{name}" if field == "kind" else f"1.{name}.{field}"] = f"{value}"
    values |= {"1.count": f"{events[0]['count']}", "1.mechanism.noise_multiplier": ""}
    return urlencode(values)


def _sent(value: str, within: Range) -> Any:
    if isinstance(within, Reals):
        return [number(each.strip()) for each in value.split(",")]
    return value if isinstance(within, Word) else number(value)


def read(query: Mapping[str, str]) -> Form:
    """Read the form from an address.

    Args:
        query: The address's parameters.
    """
    # Nothing is cut off, since a list of coefficients without its end would describe another mechanism.
    given = {name: value.strip() for name, value in query.items()}
    parts = _choice(given, "parts", [(f"{count}", f"{count}") for count in range(1, MOST_PARTS + 1)], "Kinds of steps")
    solve_for = _choice(given, "solve_for", [(field.value, text) for field, text in _SOLVE_FOR.items()])
    target = _choice(given, "target", [(name, CHOICES["target"][name]) for name in TARGETS])
    relations = [(each.value, CHOICES["neighboring_relation"][each]) for each in NeighboringRelation]
    relation = _choice(given, "neighboring_relation", relations)
    amounts = [_typed(given, name, label_of(name), pointers_of(name)) for name in TARGETS[target.value]]
    asked = ("Privacy", (solve_for, target, *amounts, relation))
    steps = [
        (f"Steps {part}" if parts.value != "1" else "Steps", tuple(_part(given, part, solve_for.value)))
        for part in range(1, int(parts.value) + 1)
    ]
    return Form(sections=(asked, ("List", (parts,)), *steps))


def _part(given: Mapping[str, str], part: int, solve_for: str) -> Iterable[Field]:
    """Return the fields of one event."""
    for name, known in (("mechanism", MECHANISMS), ("sampling", SAMPLINGS)):
        texts = CHOICES.get(name, {})
        at = f"/events/{part - 1}/{name}"
        options = [(kind, texts.get(kind, words(kind))) for kind in known]
        kind = _choice(given, name, options, words(name).capitalize(), f"{part}.{name}", (at, f"{at}/kind"))
        yield kind
        for field, within in known[kind.value].ranges.items():
            yield _of_range(given, f"{part}.{name}.{field}", within, f"{at}/{field}", is_open=field == solve_for)
    is_open = solve_for == OpenField.COUNT
    yield _typed(
        given,
        "count",
        "Count",
        (f"/events/{part - 1}/count",),
        f"{part}.count",
        "Left empty: it is solved for." if is_open else "How many steps. Left empty: one.",
        is_open=is_open,
    )


def _of_range(given: Mapping[str, str], name: str, within: Range, pointer: str, *, is_open: bool) -> Field:
    """Return the field of a record according to its range. A value that was typed is kept, even in the field that is
    solved for."""
    short = name.rpartition(".")[2]
    label = words(short).capitalize()
    if isinstance(within, Word):
        texts = [(word, f"{word}: {meaning.rstrip('.')}") for word, meaning in within.meanings.items()]
        return _choice(given, short, texts, label, name, (pointer,))
    hint = f"{within.meaning.replace('`', '')}{' Separated by commas.' if isinstance(within, Reals) else ''}"
    hint = "Left empty: it is solved for." if is_open else hint
    return _typed(given, short, label, (pointer,), name, hint, is_open=is_open)


def _choice(
    given: Mapping[str, str],
    name: str,
    options: list[tuple[str, str]],
    label: str = "",
    full_name: str = "",
    pointers: tuple[str, ...] = (),
) -> Field:
    """Return a choice that shows the given value if it is one of the choices, else the usual default."""
    value = given.get(full_name or name, "")
    known = [option for option, _ in options]
    if value not in known:
        value = _START[name] if _START.get(name) in known else known[0]
    return Field(
        full_name or name, label or label_of(name), value, "", (("", tuple(options)),), pointers or pointers_of(name)
    )


def _typed(
    given: Mapping[str, str],
    name: str,
    label: str,
    pointers: tuple[str, ...],
    full_name: str = "",
    hint: str = "",
    *,
    is_open: bool = False,
) -> Field:
    """Return a field to type in. It begins with the common value; it is empty if it is solved for."""
    first = "" if is_open else _START.get(name, "")
    return Field(full_name or name, label, given.get(full_name or name, first), hint, (), pointers)
