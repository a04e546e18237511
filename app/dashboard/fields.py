"""The fields of forms, as they are shown, and marked with what the service found wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from app.dashboard.asking import Answer, is_within


@dataclass(frozen=True)
class Field:
    """A field as it is shown.

    Attributes:
        name: The name under which the field is sent.
        label, hint: Texts beside the field.
        value: The current value.
        choices: Values and their labels, in groups with names; empty if the reader types a value.
        pointers: The JSON pointers at which the field's faults appear.
        faults: What the service says is wrong with the value.
        is_text: Whether the value is text and not a number.
        lines: The number of lines of a text field.
    """

    name: str
    label: str
    value: str
    hint: str = ""
    choices: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    pointers: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    is_text: bool = False
    lines: int = 1

    @property
    def id(self) -> str:
        return f"field-{self.name.replace('.', '-')}"


#: Fields under their headings.
Sections = tuple[tuple[str, tuple[Field, ...]], ...]


@dataclass(frozen=True, kw_only=True)
class FilledForm:
    """Fields with what was typed, and its faults.

    Attributes:
        sections: Fields under their headings.
        other_faults: Faults that belong to no field.
    """

    sections: Sections
    other_faults: tuple[str, ...] = ()

    @property
    def fields(self) -> list[Field]:
        return [each for _, fields in self.sections for each in fields]

    def refusal(self, answer: Answer) -> str:
        """Return what a problem says, in a sentence. If a single field is at fault, the sentence names it."""
        if self.other_faults:
            return self.other_faults[0]
        faults = [(each.label, fault) for each in self.fields for fault in each.faults]
        return f"{faults[0][0]}: {faults[0][1]}" if len(faults) == 1 else answer.refusal

    def judged(self, answer: Answer) -> Self:
        """Return the same form with each fault that the service found at its field."""
        sections, others = _marked(self.sections, answer)
        return replace(self, sections=sections, other_faults=others)


def _marked(sections: Sections, answer: Answer) -> tuple[Sections, tuple[str, ...]]:
    """Return the fields with their own faults, and the faults that belong to no field."""
    if answer.is_good:
        return sections, ()
    if answer.was_given_up:
        detail = str(answer.body["detail"])
        return sections, (f"{detail[:1].upper()}{detail[1:]}.",)
    places = [(pointer, each.name) for _, fields in sections for each in fields for pointer in each.pointers]
    at: dict[str, list[str]] = {}
    others = []
    for fault in answer.body.get("errors") or []:
        pointer, detail = fault["pointer"], fault["detail"]
        # The longest match is taken, since the place of one field may lie inside that of another.
        found_at = max(((len(each), name) for each, name in places if is_within(pointer, each)), default=None)
        if found_at is not None:
            at.setdefault(found_at[1], []).append(detail)
        else:
            others.append(f"{pointer}: {detail}" if pointer else detail)
    if not at and not others:
        others.append(answer.body["detail"])
    found = tuple(
        (legend, tuple(replace(each, faults=tuple(at.get(each.name, ()))) for each in fields))
        for legend, fields in sections
    )
    return found, tuple(others)
