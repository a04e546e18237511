"""Sphinx reads this for `make site`: the pages of docs/ and the root, as they are read on a forge, as a site.

Nothing is fetched, when it is built or when it is read: formulas become MathML, and fonts are the reader's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from docs.site.formulas import add_math_renderer
from docs.site.pages import ROOT, ROOT_PAGES, as_myst

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "epsilond"
author = "the authors of epsilond"
extensions = ["myst_parser"]
root_doc = "docs/README"
include_patterns = [*ROOT_PAGES, "docs/**/*.md", "docs/*.md"]
# Not looked into: what has no page would only take time.
exclude_patterns = [f"{path.name}/**" for path in ROOT.iterdir() if path.is_dir() and path.name != "docs"]

myst_heading_anchors = 6
# What a forge makes of a table or a code block, and nothing that only this builder knows.
myst_enable_extensions: list[str] = []
highlight_language = "text"
# What is typed is shown as it is typed.
smartquotes = False

html_theme = "alabaster"
html_theme_options = {
    "page_width": "80rem",
    "body_max_width": "none",
    "sidebar_width": "16rem",
    "font_family": "sans-serif",
}
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html"]}
html_math_renderer = "mathml"
html_extra_path = ["extra"]
html_show_sourcelink = False
html_copy_source = False
html_title = "epsilond"


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx calls this first."""
    add_math_renderer(app)
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _read(_app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = as_myst(Path(f"{name}.md"), source[0])
