"""Reads a page of the dashboard as strictly as no browser does, and says what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

#: Elements without an end; within SVG others close themselves.
VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})
_REFERENCES = ("for", "aria-describedby", "aria-labelledby")
#: Elements that a reader fills in.
_CONTROLS = ("input", "select", "textarea")


@dataclass
class Element:
    """One element, with the text directly and indirectly in it."""

    name: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Document(HTMLParser):
    """A page, or a part of one, with everything that is wrong with it in `faults`."""

    source: str
    is_part: bool = False
    elements: list[Element] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    _open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.source)
        self.close()
        self.faults += [f"<{each.name}> is never closed" for each in self._open]
        self._check_references()
        if not self.is_part:
            self._check_whole()

    def all(self, name: str, **attributes: str) -> list[Element]:
        """The elements of a name that have these attributes; `_` in a name stands for `-`."""
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        return [
            each
            for each in self.elements
            if each.name == name and all(each.attributes.get(key) == value for key, value in wanted.items())
        ]

    def text_of(self, identifier: str) -> str:
        """What stands in the element with this id."""
        [found] = [each for each in self.elements if each.attributes.get("id") == identifier]
        return " ".join(found.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) < len(names):
            self.faults.append(f"<{tag}> has an attribute twice")
        if any(name == "style" or name.startswith("on") for name in names):
            self.faults.append(f"<{tag}> has a style or a script in it")
        if tag == "style" or (tag == "script" and "src" not in names):
            self.faults.append(f"<{tag}> stands in the page")
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1].name != tag:
            self.faults.append(f"</{tag}> closes nothing, or another one: {[each.name for each in self._open]}")
            return
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for each in self._open:
            each.text += data

    def _check_references(self) -> None:
        identifiers = [each.attributes["id"] for each in self.elements if "id" in each.attributes]
        self.faults += [f"id {each} twice" for each in sorted(set(identifiers)) if identifiers.count(each) > 1]
        for element in self.elements:
            for name in _REFERENCES:
                for identifier in element.attributes.get(name, "").split():
                    if identifier not in identifiers:
                        self.faults.append(f"<{element.name} {name}> names {identifier}, which is not there")

    def _check_whole(self) -> None:
        if not self.source.startswith("<!DOCTYPE html>"):
            self.faults.append("no doctype")
        for name in ("html", "head", "main", "h1"):
            if len(self.all(name)) != 1:
                self.faults.append(f"{len(self.all(name))} elements <{name}>")
        labelled = {each.attributes.get("for") for each in self.all("label")}
        for element in self.elements:
            is_filled_in = element.name in _CONTROLS and element.attributes.get("type") not in ("hidden", "submit")
            if is_filled_in and element.attributes.get("id") not in labelled and "aria-label" not in element.attributes:
                self.faults.append(f"<{element.name} name={element.attributes.get('name')}> has no label")
