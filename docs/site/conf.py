"""This module configures Sphinx for `make site`, which makes a site from the pages in docs/ and in the root folder.

Nothing is fetched while the site is built or read: formulas become MathML, and the reader's own fonts are used.
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
# Folders without pages are left out to save time.
exclude_patterns = [f"{path.name}/**" for path in ROOT.iterdir() if path.is_dir() and path.name != "docs"]

myst_heading_anchors = 6
# Pages may use only Markdown that code forges render, too, so no extension is enabled.
myst_enable_extensions: list[str] = []
highlight_language = "text"
# Quotes in commands must stay as they are typed.
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
    """Add this project's conversions to Sphinx, which calls this function before it builds."""
    add_math_renderer(app)
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _read(_app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = as_myst(Path(f"{name}.md"), source[0])
