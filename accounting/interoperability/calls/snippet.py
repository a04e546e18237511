"""A reader of pasted Python text: it finds calls and the literals in them. Nothing of the text is ever run.

It reads calls, the names to which literals and calls were assigned before, numbers, words, lists, and quotients and
products of numbers (``sample_rate=256 / 60_000``). Everything else keeps its place and its text as `Unread`, so that
``module=model`` does no harm, and ``epochs=EPOCHS`` shows which number is not known.
"""

from __future__ import annotations

import ast
import io
import tokenize
import unicodedata
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import dedent
from typing import TypeGuard

from accounting.errors import InvalidValue

#: The most characters, tokens and nested brackets that are read. A typical call has a few hundred characters, a few
#: dozen tokens and a few brackets.
MAX_LENGTH = 4_000
MAX_TOKENS = 1_200
MAX_BRACKETS = 32
#: The largest depth of nested expressions, and the most values in all. A name counts as many as the values it stands
#: for.
MAX_DEPTH = 64
MAX_VALUES = 10_000
#: The largest absolute value that is accepted for a number. No real call needs a larger one.
MAX_NUMBER = 1e15
#: The most characters of unread text that an error shows.
_SHOWN = 40
_VISIBLE_CONTROLS = "\n\r\t"


@dataclass(frozen=True)
class Unread:
    """Something whose value the text does not say.

    Attributes:
        text: The text as it was written, shortened if it is long.
    """

    text: str

    @property
    def last(self) -> str:
        """The last part of a dotted name: ``REPLACE_ONE`` of ``NeighboringRelation.REPLACE_ONE``."""
        return self.text.rpartition(".")[2]


@dataclass(frozen=True)
class Call:
    """One call, with its arguments resolved.

    Attributes:
        name: The last part of the name of the called function: ``make_private`` of ``engine.make_private``.
        receiver: The object on which the function is called, if that is a call or a name to which a call was assigned.
        path: The whole dotted name, as it is written in the text.
        arguments, keywords: The positional arguments and the keyword arguments.
        line, column: The place where it begins, from 1.
    """

    name: str
    receiver: Value
    path: str
    arguments: tuple[Value, ...]
    keywords: Mapping[str, Value] = field(hash=False)
    line: int
    column: int

    @property
    def place(self) -> str:
        """The line and the column, for a sentence."""
        return f"line {self.line}, column {self.column}"

    def inner(self) -> Iterator[Call]:
        """Return the call itself, the object on which it is called, and all calls among its arguments."""
        yield self
        for each in (self.receiver, *self.arguments, *self.keywords.values()):
            yield from _calls_of(each)


#: A value that the text shows.
Value = bool | int | float | str | None | tuple["Value", ...] | Unread | Call


def read_snippet(text: str) -> tuple[Call, ...]:
    """Return the calls in a piece of Python in their order, including those on the right side of an assignment.

    An assignment to an attribute, such as ``accountant.history = [...]``, is read as a call of that name.

    Args:
        text: A text of at most `MAX_LENGTH` characters.

    Guarantees: nothing_is_run: the text is parsed, and only literals become values.

    Raises:
        InvalidValue: If the text is not Python, is too long or too deeply nested, or has a statement that is not read.
            The sentence says the line and the column.

    >>> [call] = read_snippet("RATE = 256 / 60_000\\nf(RATE, epochs=EPOCHS)")
    >>> call.arguments, call.keywords
    ((0.004266666666666667,), {'epochs': Unread(text='EPOCHS')})
    """
    _check_characters(text)
    shown, indent = _dedented(text)
    _check_size(shown, indent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(shown, mode="exec")
    except SyntaxError as error:
        column = indent + (error.offset or 1)
        raise InvalidValue(f"this is not Python: {_clause(error.msg)}{_at(error.lineno, column)}") from None
    except (RecursionError, MemoryError, ValueError):
        raise InvalidValue("this is not a call: it is nested too deeply to be read") from None
    reader = _Reader(shown, indent)
    for statement in tree.body:
        reader.take(statement)
    return tuple(reader.calls)


def _dedented(text: str) -> tuple[str, int]:
    """Return the text without the indentation that all its lines share, and the width of that indentation."""
    shown = dedent(text)
    lengths = ((len(old), len(new)) for old, new in zip(text.splitlines(), shown.splitlines(), strict=True))
    return shown, next((old - new for old, new in lengths if new), 0)


def _check_characters(text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        for column, each in enumerate(line, 1):
            if unicodedata.category(each) in ("Cc", "Cf", "Cs") and each not in _VISIBLE_CONTROLS:
                raise InvalidValue(f"there is an invisible character, U+{ord(each):04X}{_at(number, column)}")


def _check_size(text: str, indent: int) -> None:
    """Refuse text that is too long or nested too deeply, before the parser sees it."""
    if len(text) > MAX_LENGTH:
        raise InvalidValue(
            f"the text has {len(text)} characters, and at most {MAX_LENGTH} are read: paste only the call"
        )
    depth = 0
    try:
        for count, token in enumerate(tokenize.generate_tokens(io.StringIO(text).readline)):
            depth += (token.string in "([{") - (token.string in ")]}") if token.type == tokenize.OP else 0
            if depth > MAX_BRACKETS:
                where = _at(token.start[0], indent + token.start[1] + 1)
                raise InvalidValue(f"brackets are nested more than {MAX_BRACKETS} deep{where}")
            if count > MAX_TOKENS:
                raise InvalidValue(f"the text has more than {MAX_TOKENS} words and signs: paste only the call")
    except (tokenize.TokenError, SyntaxError):
        return  # The parser's error says what is wrong, and where.


class _Reader:
    """Walks over statements and keeps the values of names."""

    def __init__(self, text: str, indent: int) -> None:
        self.calls: list[Call] = []
        self._text, self._indent = text, indent
        self._names: dict[str, tuple[Value, int]] = {}
        self._values = self._depth = 0

    def take(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Expr(value=value):
                found = self._value(value)
                if isinstance(found, Call):
                    self.calls.append(found)
            case ast.Assign(targets=targets, value=value):
                self._assign(targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign([target], value)
            case ast.AnnAssign() | ast.Import() | ast.ImportFrom() | ast.Pass():
                pass
            case _:
                kind = type(statement).__name__.removesuffix("Def").lower()
                raise InvalidValue(
                    f"a statement of the kind `{kind}` is not read{self._place(statement)}: paste the call, and the "
                    "assignments of its numbers"
                )

    def _assign(self, targets: list[ast.expr], node: ast.expr) -> None:
        before = self._values
        value = self._value(node)
        size = self._values - before
        if isinstance(value, Call):
            self.calls.append(value)
        for target in targets:
            if isinstance(target, ast.Name):
                self._names[target.id] = (value, size)
            elif isinstance(target, ast.Attribute):
                place = (target.lineno, self._indent + target.col_offset + 1)
                receiver = self._value(target.value)
                self.calls.append(Call(target.attr, receiver, self._text_of(target), (value,), {}, *place))
            else:
                # With several names at once, the value of each is not known.
                for inner in ast.walk(target):
                    if isinstance(inner, ast.Name):
                        self._names[inner.id] = (Unread(inner.id), 1)

    def _value(self, node: ast.expr) -> Value:
        self._depth += 1
        self._count(1, node)
        if self._depth > MAX_DEPTH:
            raise InvalidValue(f"expressions are nested more than {MAX_DEPTH} deep{self._place(node)}")
        found = self._read(node)
        self._depth -= 1
        return found

    def _count(self, values: int, node: ast.expr) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise InvalidValue(f"the names in the text stand for more than {MAX_VALUES} values{self._place(node)}")

    def _read(self, node: ast.expr) -> Value:
        found: Value = Unread(self._shown(node))
        match node:
            case ast.Constant(value=bool() | str() | None as value):
                found = value
            case ast.Constant(value=int() | float() as value):
                found = self._number(value, node)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                if is_number(inner := self._value(operand)):
                    found = -inner if isinstance(sign, ast.USub) else inner
            case ast.BinOp(left=left, op=ast.Div() | ast.Mult() as sign, right=right):
                found = self._combined(node, self._value(left), sign, self._value(right))
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                found = tuple(self._value(each) for each in elements)
            case ast.Name(id=name):
                found, size = self._names.get(name, (found, 1))
                self._count(size, node)
            case ast.Call():
                found = self._call(node)
        return found

    def _combined(self, node: ast.expr, left: Value, sign: ast.operator, right: Value) -> Value:
        if not (is_number(left) and is_number(right)):
            return Unread(self._shown(node))
        if isinstance(sign, ast.Mult):
            return self._number(left * right, node)
        if right == 0:
            raise InvalidValue(f"an expression divides by zero{self._place(node)}")
        return self._number(left / right, node)

    def _call(self, node: ast.Call) -> Value:
        called = node.func
        if not isinstance(called, ast.Name | ast.Attribute):
            return Unread(self._shown(node))
        if hidden := [each for each in node.args if isinstance(each, ast.Starred)]:
            raise InvalidValue(f"a `*` hides which arguments are given{self._place(hidden[0])}: write them out")
        if any(each.arg is None for each in node.keywords):
            raise InvalidValue(f"a `**` hides which arguments are given{self._place(node)}: write them out")
        names = [each.arg for each in node.keywords]
        if twice := next((each for each in names if names.count(each) > 1), None):
            raise InvalidValue(f"{twice} is given twice{self._place(node)}")
        name = called.id if isinstance(called, ast.Name) else called.attr
        return Call(
            name,
            self._value(called.value) if isinstance(called, ast.Attribute) else None,
            self._text_of(called),
            tuple(self._value(each) for each in node.args),
            {each.arg: self._value(each.value) for each in node.keywords if each.arg is not None},
            node.lineno,
            self._indent + node.col_offset + 1,
        )

    def _number(self, value: float, node: ast.expr) -> float:
        # The number is compared as it is, since an integer of thousands of digits cannot be a float.
        if not -MAX_NUMBER <= value <= MAX_NUMBER:
            raise InvalidValue(f"this number is beyond {MAX_NUMBER:.0e}{self._place(node)}")
        return value

    def _place(self, node: ast.stmt | ast.expr) -> str:
        return _at(node.lineno, self._indent + node.col_offset + 1)

    def _shown(self, node: ast.expr) -> str:
        found = self._text_of(node)
        return found if len(found) <= _SHOWN else f"{found[: _SHOWN - 3]}..."

    def _text_of(self, node: ast.expr) -> str:
        return " ".join((ast.get_source_segment(self._text, node) or "...").split())


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number. True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _calls_of(value: Value) -> Iterator[Call]:
    if isinstance(value, Call):
        yield from value.inner()
    elif isinstance(value, tuple):
        for each in value:
            yield from _calls_of(each)


def _at(line: int | None, column: int | None) -> str:
    return f" (line {line or 1}, column {max(column or 1, 1)})"


def _clause(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")
