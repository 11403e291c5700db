"""Configuration of Sphinx: `make docs`. The pages are complete; `python docs/generate.py` updates their generated parts."""

import sys
from pathlib import Path

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
