"""The fields of forms: as they are shown, and marked with what the service found wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from app.dashboard.asking import Answer, is_within


@dataclass(frozen=True)
class Field:
    """A field as it is shown.

    Attributes:
        name: As it is sent.
        label, hint: Beside it.
        value: What stands in it.
        choices: Values and their words, in groups with a name; none if something is typed.
        pointers: Where its faults lie in a request.
        faults: What the service says is wrong with it.
        is_text: Whether what is typed is not a number.
        lines: The number of lines of the text; a field of one line unless there are more.
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
    """Fields with what was typed, and what is wrong with it.

    Attributes:
        sections: Fields under their headings.
        other_faults: What is wrong and lies in no field.
    """

    sections: Sections
    other_faults: tuple[str, ...] = ()

    @property
    def fields(self) -> list[Field]:
        return [each for _, fields in self.sections for each in fields]

    def refusal(self, answer: Answer) -> str:
        """Return what a problem says, in a sentence: of a fault at one field, which field."""
        if self.other_faults:
            return self.other_faults[0]
        faults = [(each.label, fault) for each in self.fields for fault in each.faults]
        return f"{faults[0][0]}: {faults[0][1]}" if len(faults) == 1 else answer.refusal

    def judged(self, answer: Answer) -> Self:
        """Return the same form with what the service found wrong, each at its field."""
        sections, others = _marked(self.sections, answer)
        return replace(self, sections=sections, other_faults=others)


def _marked(sections: Sections, answer: Answer) -> tuple[Sections, tuple[str, ...]]:
    """The fields with what the service found wrong, each with its own; and what lies in none of them."""
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
        # The longest: a field may be a part of what another one stands for.
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
