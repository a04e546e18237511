"""The privacy card as Markdown and as a page. All text is escaped, because people can type anything as a name or a
purpose."""

from __future__ import annotations

import re

from app.runs.card_parts import Card, Cell, Section, Table
from app.web import pages

PAGE_STYLES = ("colours.css", "page.css")

# Characters that have a meaning in Markdown or HTML anywhere in a line, and the beginnings of web addresses.
_SPECIAL = re.compile(r"[\\`*\[\]<>|~$@]|(?<!\w)_|_(?!\w)|&(?=[#\w])|://|(?<=www)\.", re.IGNORECASE)
# The beginnings that would make a line of Markdown something other than text.
_LINE_START = re.compile(r"^(\d*)([-+#=.)])")
_SPACE = re.compile(r"\s+")


def to_markdown(card: Card) -> str:
    """Return GitHub-flavoured Markdown that has only headings and tables."""
    parts = [f"# {_text(card.title)}", _line(card.statement)]
    for section in card.summary:
        parts += _section(section)
    parts.append("## Appendix: every fact of the card")
    for section in card.appendix:
        parts += _section(section)
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> list[str]:
    parts = [f"## {_text(section.title)}", *map(_line, section.paragraphs)]
    for table in section.tables:
        head = " | ".join(map(_text, table.header))
        rows = [" | ".join(map(_cell, row)) for row in table.rows]
        lines = [head, " | ".join("---" for _ in table.header), *rows]
        parts += [f"### {_text(table.caption)}", "\n".join(f"| {line} |" for line in lines)]
    if section.points:
        parts.append("\n".join(f"- {_line(point)}" for point in section.points))
    return parts


def _cell(cell: Cell) -> str:
    # Formulas may contain bars, and renderers of tables disagree about an escaped bar in a code span.
    return _code(cell.text) if cell.is_code and "|" not in cell.text else _text(cell.text)


def _text(text: str) -> str:
    """Return text escaped for Markdown, on one line.

    >>> print(_text("a|b <i> [x](http://e) dp_sgd"))
    a\\|b \\<i\\> \\[x\\](http\\://e) dp_sgd
    """
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", _SPACE.sub(" ", text).strip())


def _line(text: str) -> str:
    """Return text escaped for a line of its own.

    >>> print(_line("1. a"), _line("# a"), _line("- a"))
    1\\. a \\# a \\- a
    """
    return _LINE_START.sub(r"\1\\\2", _text(text))


def _code(text: str) -> str:
    """Return a code span whose delimiter does not occur in the text."""
    flat = _SPACE.sub(" ", text).strip()
    longest = max(map(len, re.findall("`+", flat)), default=0)
    ticks = "`" * (longest + 1)
    space = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{ticks}{space}{flat}{space}{ticks}"


def to_html(card: Card) -> str:
    """Return a page that loads nothing else, so that it can be kept, sent and printed."""
    return pages.render("privacy_card.html", PAGE_STYLES, title=card.title, card=card, is_facts=_is_facts)


def _is_facts(table: Table) -> bool:
    """Return whether each row of a table has just a name and a value, so that nobody needs its header."""
    return len(table.header) == 2
