"""The documentation site: `make docs` makes `build/site` of these pages.

It opens from a disk and loads nothing from elsewhere.
"""

from dpsql import __version__

project, author, copyright = "dpsql", "the dpsql authors", "the dpsql authors, Apache-2.0"
version = release = __version__

extensions = ["myst_parser"]
exclude_patterns = ["make_*.py"]
myst_heading_anchors = 4
nitpicky = True
suppress_warnings = ["myst.header"]  # measured pages give each table a small heading right below the title

html_theme = "furo"
html_title = f"dpsql {__version__}"
html_copy_source = html_show_sourcelink = html_show_sphinx = False
html_extra_path = ["catalog.schema.json"]
