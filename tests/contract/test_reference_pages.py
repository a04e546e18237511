"""The generated pages say what the code does, and every code that an answer can carry has a meaning there."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.kit.validation import CODES
from app.problem_catalogue import FAULTS, PROBLEMS, RUN_PROBLEMS
from app.settings import Settings
from docs.reference import generate

ROOT = Path(__file__).parents[2]
PACKAGES = ("accounting", "calibrators", "trainer", "app")
CODE = re.compile(r"[a-z]+(_[a-z]+)*")

# Where a call takes its code among the positional arguments.
POSITION = {"Unfenced": 1, "Problem": 1, "unprocessable": 0}


@pytest.mark.parametrize("page", generate.PAGES)
def test_a_generated_page_is_the_committed_one(page: str) -> None:
    committed = (generate.HERE / page).read_text()
    assert committed == generate.PAGES[page](), "run: python -m docs.reference.generate"


def test_every_setting_is_documented() -> None:
    page = (generate.HERE / "settings.md").read_text()
    for name, field in Settings.model_fields.items():
        assert f"`EPSILOND_{name.upper()}`" in page
        assert field.description
        assert field.description.endswith(".")


def test_every_code_in_the_source_is_documented_and_every_documented_code_is_used() -> None:
    used = {code for package in PACKAGES for path in (ROOT / package).rglob("*.py") for code in codes_in(path)}
    used |= set(CODES.values())
    documented = {*PROBLEMS, *FAULTS, *RUN_PROBLEMS}
    assert used - documented == set(), "give these a meaning in app/problem_catalogue.py"
    assert documented - used == set(), "no source uses these: remove them from app/problem_catalogue.py"


def test_every_meaning_is_a_sentence() -> None:
    for meaning in (*(meaning for _, meaning in PROBLEMS.values()), *FAULTS.values(), *RUN_PROBLEMS.values()):
        assert meaning[0].isupper()
        assert meaning.endswith(".")


def test_the_search_for_codes_finds_each_way_to_name_one(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text(
        'raise Problem(409, "aa", "x")\n'
        'raise unprocessable("bb", "x")\n'
        'raise InvalidValue("x", code="cc")\n'
        'code = "dd" if x else "ee"\n'
        'class E:\n    code: str = "ff"\n'
        'class DenialCode(StrEnum):\n    G = "gg"\n'
        'TABLE: Mapping[int, tuple[str, str]] = {400: ("hh", "Two words.")}\n'
        'refuse("ii", f"{x} and words")\n'
        'code, detail = "jj", "Two words."\n'
        '{"code": "kk"}\n'
        'raise Problem(409, stored["ll"], "x")\n'
    )
    assert set(codes_in(source)) == {"aa", "bb", "cc", "dd", "ee", "ff", "gg", "hh", "ii", "jj", "kk"}


def codes_in(path: Path) -> Iterator[str]:
    """String literals that stand where an error code stands."""
    if path.name == "problem_catalogue.py":
        return
    # Elsewhere a word before a sentence is the name of an assumption, of a hyperparameter, of a metric, of a command,
    # of a setting or of a field of a form, or a table's heading.
    others = {
        "accounting",
        "calibrators",
        "trainer",
        "algorithms",
        "monitoring",
        "observability",
        "cli",
        "dashboard",
        "card.py",
        "card_summary.py",
        "guarantee.py",
        "setting_types.py",
        "configuration.py",
    }
    has_tables = not others & set(path.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        for expression in itertools.chain(code_expressions(node), before_a_sentence(node) if has_tables else ()):
            yield from words(expression)


def words(expression: ast.expr) -> Iterator[str]:
    match expression:
        case ast.Constant(value=str(text)) if CODE.fullmatch(text):
            yield text
        case ast.IfExp(body=body, orelse=orelse):
            yield from words(body)
            yield from words(orelse)
        case ast.BoolOp(values=values):
            for value in values:
                yield from words(value)


def code_expressions(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Call(func=function, args=args, keywords=keywords):
            position = POSITION.get(ast.unparse(function))
            yield from args[position : position + 1] if position is not None else ()
            yield from (keyword.value for keyword in keywords if keyword.arg == "code")
        case ast.Assign(targets=[ast.Name(id="code")], value=value):
            yield value
        case ast.AnnAssign(target=ast.Name(id="code"), value=ast.expr() as value):
            yield value
        case ast.ClassDef(name="DenialCode", body=body):
            yield from (item.value for item in body if isinstance(item, ast.Assign))
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "code":
                    yield value


def before_a_sentence(node: ast.AST) -> Iterator[ast.expr]:
    """A word followed by a text of several: a code and its detail, in a table or in a call that makes a problem."""
    expressions = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.Tuple) else []
    for first, second in itertools.pairwise(expressions):
        texts = second.values if isinstance(second, ast.JoinedStr) else [second]
        if any(isinstance(text, ast.Constant) and isinstance(text.value, str) and " " in text.value for text in texts):
            yield first
