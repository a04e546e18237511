"""Every code of a warning has a line on its page, and no line is about a code that nothing gives."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from accounting.filters import costs
from tests.contract.documents import DOCS, ROOT

PAGE = DOCS / "reference" / "warnings.md"
#: What is made with a code, as its first argument or by its name.
MADE = frozenset({"CostWarning", "DatasetWarning", "Difference"})


def codes_in(source: str) -> Iterator[str]:
    """The codes of warnings that a source makes; a name stands for a constant of the table of costs."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MADE:
            [code, *_] = [each.value for each in node.keywords if each.arg == "code"] or node.args
            match code:
                case ast.Constant(value=str(text)):
                    yield text
                case ast.Name(id=name):
                    yield getattr(costs, name)
                case other:
                    raise AssertionError(f"a code that cannot be read: {ast.unparse(other)}")


@cache
def sources() -> list[str]:
    """The text of each source that makes warnings with codes."""
    paths = [path for package in ("accounting", "app", "calibrators") for path in (ROOT / package).rglob("*.py")]
    texts = [path.read_text() for path in paths]
    return [text for text in texts if any(f"{name}(" in text for name in MADE)]


def test_every_code_is_documented_and_every_documented_code_is_given() -> None:
    given = {code for source in sources() for code in codes_in(source)}
    documented = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))
    scheme_names = {"shuffled_epochs"}
    assert given == documented - scheme_names


def test_what_is_unsound_is_marked_as_the_code_does() -> None:
    marked = dict(re.findall(r"^\| `(\w+)` \| (yes|) ?\|", PAGE.read_text(), re.MULTILINE))
    for source in sources():
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Call(
                    func=ast.Name(id="Difference"), args=[ast.Constant(value=str(code)), *_], keywords=keywords
                ):
                    [unsound] = [each.value for each in keywords if each.arg == "unsound"] or node.args[2:3]
                    assert (marked[code] == "yes") == ast.literal_eval(unsound), code


def test_the_search_finds_each_way_to_name_a_code() -> None:
    source = 'CostWarning(NO_AMPLIFICATION, "x")\nDifference("aa", "x", unsound=True)\nOther("bb")\n'
    assert list(codes_in(source)) == [costs.NO_AMPLIFICATION, "aa"]
    assert list(codes_in('DatasetWarning(detail="x", code="cc")')) == ["cc"]
