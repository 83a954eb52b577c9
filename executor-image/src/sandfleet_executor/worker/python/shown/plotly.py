"""Figures of Plotly: each is one result of its data and a page that draws it.

By default Plotly publishes its script of 4.8 MB with each figure, and needs the package nbformat only to look at its
version. Here the first page of a context holds the script, and later ones name its address, for readers who open them
alone. Code that sets PLOTLY_RENDERER or `renderers.default` has its own way.
"""

import os
from types import SimpleNamespace
from typing import Any

MODULE = "plotly.io._renderers"
NAME = "sandfleet"


def prepare(module: Any) -> None:
    """Sets the renderer, unless this version of Plotly is not as it has to be."""
    try:
        module.renderers[NAME] = _renderer(module)
        if not os.environ.get("PLOTLY_RENDERER"):
            module.renderers.default = NAME
            module.renderers.render_on_display = True
        module.nbformat = module.nbformat or SimpleNamespace(__version__="5.0")
    except Exception:  # noqa: BLE001  Plotly's own renderers stay
        return


def _renderer(module: Any) -> Any:
    class Renderer(module.MimetypeRenderer):
        def __init__(self) -> None:
            # Plotly copies a renderer for each figure: the copies share the list.
            self.pages: list[str] = []

        def to_mimebundle(self, figure: dict[str, Any]) -> dict[str, Any]:
            data = module.PlotlyRenderer().to_mimebundle(dict(figure))
            page = module.NotebookRenderer()
            page.include_plotlyjs = "cdn" if self.pages else True
            bundle = {**page.to_mimebundle(figure), **data}
            self.pages.append(NAME)
            return bundle

    return Renderer()
