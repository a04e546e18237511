r"""Markdown as GitHub renders it: tables, and formulas that its escapes leave alone.

Between plain dollars GitHub's Markdown takes ``\,`` and ``\{`` for escapes before the formula is read; between dollars
with backticks, and in blocks of the kind ``math``, it reads nothing. So formulas are written in these two ways.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_DISPLAY = re.compile(r"\$\$(.+?)\$\$([.,;:]?)", re.DOTALL)
_INLINE = re.compile(r"(`[^`\n]*`)|\$([^$]+?)\$")


def inline(formula: str) -> str:
    r"""A formula within text.

    >>> print(inline(r"\|x\|_2"))
    $`\|x\|_2`$
    """
    return f"$`{' '.join(formula.split())}`$"


def display(formula: str) -> str:
    """A formula on lines of its own."""
    return f"```math\n{formula.strip()}\n```"


def cell(text: str) -> str:
    r"""Text of a table's cell, in which no bar may stand.

    >>> print(cell("|g| <= 1"))
    \|g\| <= 1
    """
    return text.replace("|", r"\|")


def formula_cell(formula: str) -> str:
    r"""A formula in a table's cell, its bars by their names.

    >>> print(formula_cell(r"\|x\| |y|"))
    $`\Vert x\Vert  \vert y\vert `$
    """
    return inline_raw(formula.replace(r"\|", r"\Vert ").replace("|", r"\vert "))


def inline_raw(formula: str) -> str:
    """A formula within text, blanks kept: after a name they end it."""
    return f"$`{formula}`$"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that hold no bare bar."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def from_docstring(text: str) -> str:
    r"""A docstring with its formulas in dollars, as Markdown; code, indented or in backticks, is left as it is.

    >>> print(from_docstring("Let $x$ be `$y$`:\n\n    $z"))
    Let $`x`$ be `$y$`:
    <BLANKLINE>
        $z
    """
    paragraphs = re.split(r"\n\n+", text.strip())
    return "\n\n".join(paragraph if paragraph.startswith("    ") else _paragraph(paragraph) for paragraph in paragraphs)


def _paragraph(text: str) -> str:
    pieces, at = [], 0
    for found in _DISPLAY.finditer(text):
        pieces += [_inlines(text[at : found.start()]), display(found[1] + found[2])]
        at = found.end()
    pieces.append(_inlines(text[at:]))
    return "\n\n".join(piece.strip("\n ") for piece in pieces if piece.strip())


def _inlines(text: str) -> str:
    return _INLINE.sub(lambda found: found[1] or inline(found[2]), text)
