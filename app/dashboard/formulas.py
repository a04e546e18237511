"""Formulas as browsers draw them: the LaTeX that theorems are written in, as MathML and as a line of plain text.

It understands all the LaTeX in the records of this service, as a test verifies. A formula that it does not understand
is shown as its full source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from markupsafe import Markup, escape

_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\s+|\d+(?:\.\d+)?|.", re.DOTALL)
_MAX_DEPTH = 40
_LETTERS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "varepsilon": "ε", "zeta": "ζ", "eta": "η",
    "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ",
    "tau": "τ", "phi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω", "ell": "ℓ", "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ",
    "Lambda": "Λ", "Pi": "Π", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω", "infty": "∞",
    "square": "□", "top": "⊤",
}  # fmt: skip
_SIGNS = {
    "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "approx": "≈", "asymp": "≍", "propto": "∝", "sim": "∼", "in": "∈",
    "ni": "∋", "ne": "≠", "pm": "±", "cdot": "·", "times": "×", "leftarrow": "←", "to": "→", "mid": "∣", "ldots": "…",
    "cdots": "⋯", "partial": "∂", "nabla": "∇", "cup": "∪", "cap": "∩", "setminus": "∖",
}  # fmt: skip
#: Signs that stand between two operands; all others stand before one.
_BETWEEN = frozenset("=<>+−±·×≤≥≈≍∝∼∈∋≠←→∣∪∩∖")
_FUNCTIONS = ("ln", "log", "exp", "tanh")
#: Functions and signs that have their range written below them.
_WITH_RANGE = ("min", "max", "sup", "inf", "arg")
_BEFORE_PARENTHESIS = re.compile(rf"\b({'|'.join((*_FUNCTIONS, *_WITH_RANGE))}) (?=\()")
_LARGE = {"sum": "∑", "prod": "∏", "int": "∫"}
_ACCENTS = {"hat": ("^", "\u0302"), "tilde": ("~", "\u0303"), "bar": ("¯", "\u0304")}
_FENCES = {
    "(": "(", ")": ")", "[": "[", "]": "]", "|": "|", "/": "/", "\\{": "{", "\\}": "}", "\\|": "‖", "\\lfloor": "⌊",
    "\\rfloor": "⌋", "\\lceil": "⌈", "\\rceil": "⌉", "\\langle": "⟨", "\\rangle": "⟩", ".": "",
}  # fmt: skip
_SPACES = {"\\,": "0.17em", "\\;": "0.28em", "\\:": "0.22em", "\\ ": "0.33em", "\\quad": "1em", "\\qquad": "2em"}
_DOUBLE = {"E": "𝔼", "R": "ℝ", "P": "ℙ"}
_PLAIN = {"-": "−", "*": "∗"} | {each: each for each in "+=<>,;:.!?"}
_POWERS = {"2": " squared", "3": " cubed"}


class _NotUnderstood(Exception):
    """The formula contains something that this module cannot read."""


@dataclass(frozen=True)
class _Piece:
    """A part of a formula.

    Attributes:
        markup: MathML: one element, or several in a row.
        text: The same as a line of plain text.
        has_range: Whether scripts stand above and below the piece.
        is_one: Whether the text needs no parentheses.
    """

    markup: str
    text: str
    has_range: bool = False
    is_one: bool = True

    @property
    def enclosed(self) -> str:
        """Return the text for places where something else follows or precedes it directly."""
        return self.text if self.is_one else f"({self.text})"


def formula(source: str) -> Markup:
    """Return a formula as HTML. A narrow page can put each of its parts on a separate line.

    Args:
        source: LaTeX without the delimiters around it.

    Guarantees: nothing_is_left_out: a source that is not understood completely is shown unchanged.

    >>> print(formula(r"\\sigma^2"))  # doctest: +ELLIPSIS
    <span class="math"><math display="inline" aria-label="σ squared"><msup><mi>σ</mi><mn>2</mn></msup></math></span>
    >>> print(formula(r"\\unknown{x}"))
    <code>\\unknown{x}</code>
    """
    parts = _parts(source)
    if not parts:
        return Markup("<code>{}</code>").format(source)
    drawn = " ".join(f'<math display="inline" aria-label="{escape(each.text)}">{each.markup}</math>' for each in parts)
    return Markup(f'<span class="math">{drawn}</span>')  # noqa: S704  # every text in it was escaped where it was read


@cache
def _parts(source: str) -> tuple[_Piece, ...]:
    """Return the pieces of a formula between its wide spaces; none if the formula is not understood."""
    try:
        return tuple(_Reader(source).parts())
    except _NotUnderstood:
        return ()


class _Reader:
    """Reads a formula from left to right."""

    def __init__(self, source: str) -> None:
        self._words = _TOKEN.findall(source)
        self._at = self._depth = 0

    def parts(self) -> Iterator[_Piece]:
        """Yield the parts, which wide spaces or commas with a space separate."""
        while self._next is not None:
            row: list[_Piece] = []
            while (word := self._next) is not None:
                if word in ("\\quad", "\\qquad") or (
                    word in ("\\;", "\\,") and row and row[-1].text in (",", ";", ".")
                ):
                    self._take()
                    break
                row.append(self._scripted())
            if row:
                yield _row(row)

    @property
    def _next(self) -> str | None:
        while self._at < len(self._words) and self._words[self._at].isspace():
            self._at += 1
        return self._words[self._at] if self._at < len(self._words) else None

    def _take(self) -> str:
        word = self._next
        if word is None:
            raise _NotUnderstood
        self._at += 1
        return word

    def _until(self, end: str) -> _Piece:
        """Return the tokens before an end token, and consume the end token, too."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _NotUnderstood
        row = []
        while self._next != end:
            row.append(self._scripted())
        self._take()
        self._depth -= 1
        return _row(row)

    def _argument(self) -> _Piece:
        """Read a group, or the single sign that TeX takes instead: for a number, its first digit."""
        word = self._take()
        if word[0].isdigit() and len(word) > 1:
            self._at -= 1
            self._words[self._at] = word[1:]
            word = word[0]
        return self._atom(word)

    def _scripted(self) -> _Piece:
        """Read one piece with its superscript and subscript."""
        base = self._atom(self._take())
        below: _Piece | None = None
        above: _Piece | None = None
        while self._next in ("_", "^", "'"):
            sign = self._take()
            script = _Piece("<mo>′</mo>", "′") if sign == "'" else self._argument()
            if sign == "_" and below is None:
                below = script
            elif sign != "_" and above is None:
                above = script
            else:
                raise _NotUnderstood
        return base if below is None and above is None else _with_scripts(base, below, above)

    def _atom(self, word: str) -> _Piece:
        known = _FIXED.get(word)
        if known is not None:
            return known
        if word == "{":
            return self._until("}")
        if word.startswith("\\"):
            return self._command(word)
        if word[0].isdigit():
            return _Piece(f"<mn>{word}</mn>", word)
        if word.isascii() and word.isalpha():
            return _Piece(f"<mi>{word}</mi>", word)
        raise _NotUnderstood

    def _command(self, word: str) -> _Piece:
        name = word[1:]
        if name in ("frac", "tfrac"):
            found = self._fraction()
        elif name == "sqrt":
            inner = self._argument()
            found = _Piece(f"<msqrt>{inner.markup}</msqrt>", f"√{inner.enclosed}")
        elif name in _ACCENTS:
            inner, (drawn, combined) = self._argument(), _ACCENTS[name]
            markup = f'<mover accent="true"><mrow>{inner.markup}</mrow><mo stretchy="false">{drawn}</mo></mover>'
            found = _Piece(markup, f"{inner.enclosed}{combined}")
        elif name in ("text", "mathrm"):
            inside = self._in_braces()
            kind = ("<mtext>", "</mtext>") if name == "text" else ('<mi mathvariant="normal">', "</mi>")
            found = _Piece(f"{kind[0]}{escape(inside)}{kind[1]}", inside)
        elif name == "mathbb":
            letter = _DOUBLE.get(self._in_braces(), "")
            found = _Piece(f"<mi>{letter}</mi>", letter)
        elif name == "left":
            found = self._fenced()
        elif name.rstrip("lr") in ("big", "Big"):
            fence = self._fence()
            found = _Piece(f'<mo stretchy="true" minsize="1.5em" maxsize="1.5em">{fence}</mo>', fence)
        else:
            raise _NotUnderstood
        if not found.text:
            raise _NotUnderstood
        return found

    def _fraction(self) -> _Piece:
        above, below = self._argument(), self._argument()
        markup = f"<mfrac><mrow>{above.markup}</mrow><mrow>{below.markup}</mrow></mfrac>"
        return _Piece(markup, f"{above.enclosed}/{below.enclosed}", is_one=False)

    def _fence(self) -> str:
        fence = _FENCES.get(self._take())
        if fence is None:
            raise _NotUnderstood
        return fence

    def _fenced(self) -> _Piece:
        """Read fences that are as high as the content between them."""
        opening = self._fence()
        inner = self._until("\\right")
        closing = self._fence()
        before, after = (f'<mo fence="true" stretchy="true">{each}</mo>' if each else "" for each in (opening, closing))
        return _Piece(f"<mrow>{before}{inner.markup}{after}</mrow>", f"{opening}{inner.text}{closing}")

    def _in_braces(self) -> str:
        """Read the words of a group unchanged, with their spaces."""
        if self._take() != "{":
            raise _NotUnderstood
        found = []
        while self._at < len(self._words) and self._words[self._at] != "}":
            found.append(self._words[self._at])
            self._at += 1
        self._take()
        if any("\\" in each or each in "{$" for each in found):
            raise _NotUnderstood
        return "".join(found)


def _row(pieces: list[_Piece]) -> _Piece:
    said = []
    for before, piece, behind in zip([None, *pieces], pieces, [*pieces[1:], None], strict=False):
        stands_free = all(each is None or each.text.strip() in _BETWEEN for each in (before, behind))
        said.append(piece.text if stands_free else piece.enclosed)
    text = _BEFORE_PARENTHESIS.sub(r"\1", re.sub(" +", " ", "".join(said))).strip()
    return _Piece("".join(each.markup for each in pieces), text, is_one=len(pieces) == 1 and pieces[0].is_one)


def _sign(character: str) -> _Piece:
    return _Piece(f"<mo>{escape(character)}</mo>", f" {character} " if character in _BETWEEN else character)


def _with_scripts(base: _Piece, below: _Piece | None, above: _Piece | None) -> _Piece:
    kind = ("munder", "mover", "munderover") if base.has_range else ("msub", "msup", "msubsup")
    scripts = [each for each in (below, above) if each is not None]
    name = kind[2] if len(scripts) == 2 else kind[0] if below is not None else kind[1]
    inner = "".join(_single(each) for each in (base, *scripts))
    text = base.enclosed
    if below is not None:
        text += f"_{below.enclosed}"
    if above is not None:
        text += _POWERS.get(above.text) or ("′" if above.text == "′" else f"^{above.enclosed}")
    return _Piece(f"<{name}>{inner}</{name}>", text)


def _single(piece: _Piece) -> str:
    """Return the markup as one element, as a script requires."""
    markup = piece.markup
    is_leaf = re.fullmatch(r"<(m[ino])( [^<>]*)?>[^<>]*</\1>", markup) is not None
    return markup if is_leaf else f"<mrow>{markup}</mrow>"


#: The piece of each sign and name that has a fixed form.
_FIXED: Mapping[str, _Piece] = {
    **{each: _Piece(f'<mo stretchy="false">{drawn}</mo>', drawn) for each, drawn in _FENCES.items() if drawn},
    **{each: _sign(drawn) for each, drawn in _PLAIN.items()},
    **{f"\\{name}": _sign(drawn) for name, drawn in _SIGNS.items()},
    **{f"\\{name}": _Piece(f"<mi>{drawn}</mi>", drawn) for name, drawn in _LETTERS.items()},
    **{f"\\{name}": _Piece(f"<mi>{name}</mi>", f" {name} ") for name in _FUNCTIONS},
    **{f"\\{name}": _Piece(f"<mi>{name}</mi>", f" {name} ", has_range=True) for name in _WITH_RANGE},
    **{
        f"\\{name}": _Piece(f'<mo movablelimits="true">{drawn}</mo>', drawn, has_range=True)
        for name, drawn in _LARGE.items()
    },
    **{name: _Piece(f'<mspace width="{width}"/>', " ") for name, width in _SPACES.items()},
}
