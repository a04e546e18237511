r"""This module writes Markdown for GitHub: tables, and formulas that GitHub renders as they are meant.

Between plain dollars, GitHub's Markdown reads ``\,`` and ``\{`` as escapes and changes the formula. It does not change
a formula between dollars with backticks, or in a block of the kind ``math``. So formulas are written in these two ways.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_DISPLAY = re.compile(r"\$\$(.+?)\$\$([.,;:]?)", re.DOTALL)
_INLINE = re.compile(r"(`[^`\n]*`)|\$([^$]+?)\$")


def inline(formula: str) -> str:
    r"""Return a formula within text.

    >>> print(inline(r"\|x\|_2"))
    $`\|x\|_2`$
    """
    return f"$`{' '.join(formula.split())}`$"


def display(formula: str) -> str:
    """Return a formula on lines of its own."""
    return f"```math\n{formula.strip()}\n```"


def cell(text: str) -> str:
    r"""Escape the bars in the text of a table's cell.

    >>> print(cell("|g| <= 1"))
    \|g\| <= 1
    """
    return text.replace("|", r"\|")


def formula_cell(formula: str) -> str:
    r"""Return a formula for a table's cell, in which each bar is written as a command, since a bar would end the cell.

    >>> print(formula_cell(r"\|x\| |y|"))
    $`\Vert x\Vert  \vert y\vert `$
    """
    return inline_raw(formula.replace(r"\|", r"\Vert ").replace("|", r"\vert "))


def inline_raw(formula: str) -> str:
    """Return a formula within text. Its blanks are kept, since a blank ends the name of a command."""
    return f"$`{formula}`$"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells, none of which may contain an unescaped bar."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def from_docstring(text: str) -> str:
    r"""Turn a docstring with formulas in dollars into Markdown, and leave code as it is.

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
