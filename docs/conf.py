"""Configuration of Sphinx: `make docs`. `python docs/generate.py` updates the generated parts of the pages."""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from regard._version import __version__

project = "regard"
author = "The regard developers"
copyright = author
version = release = __version__

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
myst_all_links_external = False
suppress_warnings = ["myst.header"]

html_theme = "furo"
html_title = "regard"
html_static_path = ["_static"]
html_show_copyright = False


def add_navigation(app: Any, page: str, source: list[str]) -> None:
    """Make the lists of links of an index page the table of contents, so that the page needs no directive of Sphinx."""
    if page not in ("index", "zh/index"):
        return
    for section in re.split(r"^## ", source[0], flags=re.MULTILINE)[1:]:
        pages = "\n".join(re.findall(r"^- \[.*\]\((.+)\.md\)$", section, re.MULTILINE))
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {section.splitlines()[0]}\n\n{pages}\n```\n"
    if page == "index":
        source[0] += "\n```{toctree}\n:hidden:\n:caption: 中文\n\nzh/index\n```\n"


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)
