"""Python that is read and never run: what becomes a value, what stays unread, and what nobody gets to harm with it."""

from __future__ import annotations

import pytest

from accounting.errors import InvalidValue
from accounting.interoperability.calls.snippet import (
    MAX_BRACKETS,
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_TOKENS,
    MAX_VALUES,
    Call,
    Unread,
    read_snippet,
)


def argument(text: str) -> object:
    """What `f(...)` is given."""
    [call] = read_snippet(f"f({text})")
    [value] = call.arguments
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-1e-5", -1e-5),
        ("60_000", 60_000),
        ("256 / 60_000", 256 / 60_000),
        ("4 * 25", 100),
        ("(1 / 4) * -2", -0.5),
        ("True", True),
        ("None", None),
        ("'rdp'", "rdp"),
        ("[(1.1, 0.01, 3)]", ((1.1, 0.01, 3),)),
        ("model", Unread("model")),
        ("len(data)", Call("len", None, "len", (Unread("data"),), {}, 1, 3)),
        ("SamplingMethod.POISSON", Unread("SamplingMethod.POISSON")),
        # These would have a value if they were run.
        ("1 + 1", Unread("1 + 1")),
        ("2 ** 3", Unread("2 ** 3")),
        ("f'{3}'", Unread("f'{3}'")),
        ("[n for n in (1, 2)]", Unread("[n for n in (1, 2)]")),
        ("lambda: 3", Unread("lambda: 3")),
        ("3 if True else 4", Unread("3 if True else 4")),
        ("{'a': 1}['a']", Unread("{'a': 1}['a']")),
        ("x := 3", Unread("x := 3")),
        ("-True", Unread("-True")),
        ("1j", Unread("1j")),
        ("b'rdp'", Unread("b'rdp'")),
        ("...", Unread("...")),
    ],
)
def test_literals_become_values_and_all_else_stays_as_it_stands(text: str, value: object) -> None:
    assert argument(text) == value
    assert type(argument(text)) is type(value)


def test_names_stand_for_what_was_assigned_to_them_before() -> None:
    calls = read_snippet("EPOCHS: int = 10\nengine = PrivacyEngine()\nm, o = engine.make_private(epochs=EPOCHS)\nf(m)")
    assert [call.name for call in calls] == ["PrivacyEngine", "make_private", "f"]
    assert calls[1].keywords == {"epochs": 10}
    assert calls[1].receiver == calls[0]
    assert calls[2].arguments == (Unread("m"),)
    [call] = read_snippet("f(EPOCHS)\nEPOCHS = 10")
    assert call.arguments == (Unread("EPOCHS"),)


def test_an_assignment_to_an_attribute_is_read_as_a_call() -> None:
    [call] = read_snippet("accountant.history = [(1.1, 0.01, 3)]")
    assert (call.name, call.path, call.arguments) == ("history", "accountant.history", (((1.1, 0.01, 3),),))


def test_nothing_is_run(tmp_path: object) -> None:
    read_snippet(f"__import__('pathlib').Path('{tmp_path}/made').touch()\nexec('raise SystemExit')\nexit()")
    assert list(tmp_path.iterdir()) == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("f(1", r"not Python: '\(' was never closed \(line 1, column 2\)"),
        ("x = 3\n    y = 4", r"not Python: unexpected indent \(line 2, column \d+\)"),
        ("f(a=1, a=2)", r"a is given twice \(line 1, column 1\)"),
        ("    x = 3\n    for a in b: pass", r"`for` is not read \(line 2, column 5\)"),
        ("def f(): pass", r"`function` is not read \(line 1, column 1\)"),
        ("with a: pass", "`with` is not read"),
        ("f(*given)", r"a `\*` hides which arguments are given \(line 1, column 3\)"),
        ("\nf(**given)", r"a `\*\*` hides which arguments are given \(line 2, column 1\)"),
        ("f(1 / 0)", r"divides by zero \(line 1, column 3\)"),
        ("f(1e999)", r"beyond 1e\+15 \(line 1, column 3\)"),
        ("f(-9999999999999999)", r"beyond 1e\+15 \(line 1, column 4\)"),
        ("f(1e10 * 1e10)", r"beyond 1e\+15 \(line 1, column 3\)"),
        ("  f(\n    0x" + "f" * 900 + ")", r"beyond 1e\+15 \(line 2, column 5\)"),
        ("f(\u202e3)", r"an invisible character, U\+202E \(line 1, column 3\)"),
        ("f(3)\x00", r"invisible character, U\+0000 \(line 1, column 5\)"),
        ("f('\ud800')", r"invisible character, U\+D800"),
        ("f(\u200b3)", r"invisible character, U\+200B"),
    ],
)
def test_what_is_not_read_is_told_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        read_snippet(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 200 + "1" + ")" * 200,
        "(" * 1990 + ")" * 1990,
        "[[" * 40,
        "-" * 3990 + "1",
        "-" * (MAX_DEPTH + 1) + "1",
        "1" + " * 1" * 300,
        "1" + " + 1" * 990,
        "f" + "(1)" * 1300,
        "f()" + ".f()" * 200,
        "a" + ".a" * 1990,
        "a" + "[0]" * 1300,
        "x if x else " * 330 + "1",
        "9" * 3990,
        "*" * 3000 + "a",
        "if 1:\n" * 600,
        "f'" + "{" * 1000,
        "'''" + "a" * 3000,
        "f(" + "a, " * MAX_TOKENS + ")",
        "a = f(1, 2)\n" + "a = f(a, a)\n" * 100,
        "a = [1, 2]\n" + "a = [a, a, a]\n" * 100,
    ],
    ids=lambda text: text[:9].replace("\n", ";"),
)
def test_a_hostile_text_is_refused_at_once(text: str) -> None:
    with pytest.raises(InvalidValue):
        read_snippet(text)


@pytest.mark.parametrize(
    "text", ["not " * 900 + "1", "~" * 900 + "1", "lambda:" * 500 + "1", "f" + "(1)" * 250, "a" + ".a" * 500]
)
def test_what_is_deep_but_not_read_does_no_harm(text: str) -> None:
    assert read_snippet(text) == ()


def test_the_limits_are_what_they_say() -> None:
    assert len(read_snippet("f(" + " " * (MAX_LENGTH - 3) + ")")) == 1
    with pytest.raises(InvalidValue, match=f"{MAX_LENGTH + 1} characters, and at most {MAX_LENGTH} are read"):
        read_snippet("f(" + " " * (MAX_LENGTH - 2) + ")")
    assert len(read_snippet("f(" + "[" * (MAX_BRACKETS - 1) + "]" * (MAX_BRACKETS - 1) + ")")) == 1
    with pytest.raises(InvalidValue, match=f"brackets are nested more than {MAX_BRACKETS} deep"):
        read_snippet("f(" + "[" * MAX_BRACKETS + "]" * MAX_BRACKETS + ")")
    with pytest.raises(InvalidValue, match=f"more than {MAX_VALUES} values"):
        read_snippet("a = [1, 2]\n" + "a = [a, a]\n" * 20)


def test_what_an_error_shows_is_short() -> None:
    assert argument("name" * 500) == Unread("name" * 9 + "n...")
