"""The laboratories of the labs: controls, and a figure that follows them."""

from __future__ import annotations

import html
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

PLOTLY = "application/vnd.plotly.v1+json"
VIEW = "application/vnd.jupyter.widget-view+json"


class Laboratory:
    """Draw a figure again whenever a control changes.

    A page without a kernel shows the first state as a figure, Jupyter and Colab show the controls.

    Args:
        controls: ipywidgets by name; what they hold is handed to ``draw`` under these names.
        draw: makes a figure of labkit.figures, whose text alternative becomes the line above it.
        arranged: the controls laid out; one below the other unless given.
    """

    def __init__(
        self, controls: Mapping[str, Any], draw: Callable[..., Any], arranged: Any = None
    ) -> None:
        import ipywidgets as widgets

        self.controls, self.draw, self.held = dict(controls), draw, False
        self.told = widgets.HTML()
        self.screen = widgets.Output()
        above = widgets.VBox(list(self.controls.values())) if arranged is None else arranged
        self.box = widgets.VBox([above, self.told, self.screen])
        for control in self.controls.values():
            control.observe(self.follow, names="value")
        self.follow()

    def follow(self, change: Any = None) -> None:
        """Draw what the controls say now."""
        if self.held:
            return
        self.figure = self.draw(**{name: part.value for name, part in self.controls.items()})
        self.told.value = f'<p role="status">{html.escape(self.alt)}</p>'
        # Set as a value, and not printed into: that is how Colab's widgets get their outputs, and
        # what is printed would count as output of the cell where no page listens.
        shown = {"output_type": "display_data", "data": self.figure._repr_mimebundle_()}
        self.screen.outputs = ({**shown, "metadata": {}},)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Change several controls and draw once."""
        self.held = True
        try:
            yield
        finally:
            self.held = False
        self.follow()

    @property
    def alt(self) -> str:
        """Say in words what the figure shows."""
        return self.figure.layout.meta["alt"]

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        view = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        bundle = {"text/plain": repr(self), VIEW: view}
        if "google.colab" not in sys.modules:  # it would show the figure and not the controls
            bundle[PLOTLY] = self.figure.to_plotly_json()
        return bundle
