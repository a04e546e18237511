"""Docstrings and descriptions begin with a sentence, or with a noun phrase that says what they are about."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.contract.documents import ROOT

PACKAGES = ("app", "accounting", "calibrators", "trainer", "clients")

#: Words that lean on a subject which only the code names. An infinitive of purpose ("To ...") is refused with the rest,
#: so that the rule needs no judgement.
OPENINGS = (
    "After", "Also", "Among", "And", "As", "At", "Because", "Before", "Behind", "Beside", "Between", "But", "By", "For",
    "From", "Here", "In", "Next", "Not", "Nothing but", "Of", "On", "Only", "Or", "Out", "Over", "Per", "So", "Then",
    "To", "Under", "Until", "Where", "With",
)  # fmt: skip

#: Arguments whose texts readers see in the contract and in the help of commands.
SHOWN = frozenset({"description", "help"})

_FRAGMENT = re.compile(rf"(?:{'|'.join(OPENINGS)})\b")


def fragments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the beginning of each text that opens with a fragment.

    The texts are docstrings, those of attributes included, and what fields and options say of themselves.
    """
    for node in ast.walk(ast.parse(source)):
        for line, text in _texts(node):
            if _FRAGMENT.match(text):
                yield line, text.partition("\n")[0]


def _texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""
    if isinstance(node, ast.ClassDef):
        for statement in node.body[1:]:
            if isinstance(statement, ast.Expr):
                yield statement.lineno, _string(statement.value)
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg in SHOWN:
                yield keyword.value.lineno, _string(keyword.value)


def _string(node: ast.expr) -> str:
    """Return a literal's text; of a literal with values in it, the text before the first of them."""
    if isinstance(node, ast.JoinedStr):
        return _string(node.values[0]) if node.values else ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_text_opens_with_a_fragment(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    found = [f"{path.relative_to(ROOT)}:{line}: {text}" for path in files for line, text in fragments(path.read_text())]
    assert not found, "begin these with a verb or with a subject, such as 'Return the ...':\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("source", "line", "text"),
    [
        ('"""Of a page."""', 1, "Of a page."),
        ('class A:\n    """To be."""', 1, "To be."),
        ('class A:\n    async def b(self):\n        """\n        By id."""', 2, "By id."),
        ('class A:\n    B = "b"\n    """In secret."""', 3, "In secret."),
        ('Field(\n    None, description="Where"\n    " it is.")', 2, "Where it is."),
        ('Option(help=f"Only {A}.")', 1, "Only "),
    ],
)
def test_fragments_are_found_wherever_they_stand(source: str, line: int, text: str) -> None:
    assert list(fragments(source)) == [(line, text)]


def test_whole_sentences_are_not_refused() -> None:
    source = '"""Offices."""\nclass A:\n    """Return the id of a page."""\n    def b(self):\n        f(other="Of")\n'
    assert not list(fragments(source))
