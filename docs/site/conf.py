"""The site that `make docs` builds of README, ARCHITECTURE, CONTRIBUTING and docs/: the same pages, with a search.

GitHub shows the same pages, so they have no directives: the navigation is made of the index, docs/README.md.
"""

import re

from sphinx.application import Sphinx

project = "Sandfleet"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
include_patterns = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "charts/sandfleet/README.md", "docs/**"]
# Folders without pages are not walked through.
exclude_patterns = [".*", "[!cd]*/**", "dist", "docs/site"]
root_doc = "docs/README"
html_theme = "furo"
html_title = "Sandfleet"
myst_heading_anchors = 4
# Decisions are reached from the pages that name them.
suppress_warnings = ["toc.not_included", "misc.highlighting_failure"]
TREE = "\n```{{toctree}}\n:hidden:\n:caption: {}\n\n{}\n```\n"


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Give the index a hidden tree for each of its headings."""
    del app
    if page != root_doc:
        return
    seen: set[str] = set()
    for heading, text in re.findall(r"(?ms)^## (.*?)\n(.*?)(?=^## |\Z)", source[0]):
        pages = [name for name in re.findall(r"\]\(([\w/.-]+)\.md\)", text) if name not in seen]
        seen.update(pages)
        source[0] += TREE.format(heading, "\n".join(pages))


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)
