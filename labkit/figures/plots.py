"""Plotly figures in the book's style: colour-blind safe, light or dark, told in words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from labkit.figures.palette import GREY, HEADS, PAGES, ROLES

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["SEQUENTIAL", "animation", "boxes", "dots", "figure", "heatmap", "lines"]

# In capitals, as the notebooks store them.
BLUE, ORANGE, GREEN, PINK = (light.upper() for light, _ in HEADS.values())
COLOURS = (ORANGE, BLUE, PINK, GREEN)
NONE, WEIGHT = PAGES["panel"][0].upper(), ROLES["weight"][0].upper()
SEQUENTIAL = [[0.0, NONE], [1.0, WEIGHT]]  # of weights, from none to all
SIGNS = (("x-thin", GREEN), ("diamond-open", PINK))  # of single values
DOTS = ("circle", "diamond", "square", "triangle-up")
# As many as there are lines in one figure, so that no two share a colour or a dash.
LINES = (*COLOURS, WEIGHT, GREY)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
PLACES = 3


def figure(
    traces: Sequence[dict[str, Any]], *, title: str, alt: str, height: int = 380, **layout: Any
) -> Figure:
    """Draw plotly traces in the book's style.

    Args:
        traces: plotly traces as dictionaries; their numbers are rounded to three places.
        title: what stands above the figure.
        alt: the text that says what the figure shows; it is also its caption.
        height: in pixels.
        layout: further plotly layout, such as ``xaxis_title="d_k"``.

    Raises:
        ValueError: the text alternative is empty.
    """
    import plotly.graph_objects as go

    if not alt.strip():
        raise ValueError("a figure needs a text alternative: say in `alt` what it shows")
    drawn = go.Figure([{key: tidy(part) for key, part in trace.items()} for trace in traces])
    drawn.update_layout(
        template="none",
        title={"text": title, "x": 0, "xref": "paper", "font_size": 16},
        meta={"alt": alt},
        height=height,
        margin={"l": 60, "r": 20, "t": 60, "b": 60},
        colorway=COLOURS,
        legend={"orientation": "h", "y": -0.15, "yanchor": "top", "x": 0},
        hovermode="closest",
    )
    drawn.update_xaxes(automargin=True)
    drawn.update_yaxes(automargin=True)
    return drawn.update_layout(**layout)


def heatmap(
    matrix: Any,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    alt: str,
    **layout: Any,
) -> Figure:
    """Draw a matrix as coloured cells with their values, the first row on top.

    Args:
        matrix: (rows, columns).
        rows: a label for each row.
        columns: a label for each column.
        title: what stands above the figure.
        alt: the text that says what the figure shows; it is also its caption.
        layout: further plotly layout.

    Raises:
        ValueError: the labels do not fit the matrix.
    """
    size, labels = (len(matrix), len(matrix[0])), (len(rows), len(columns))
    if size != labels:
        raise ValueError(f"the matrix is {size}, its labels are for {labels}")
    cells = {
        "type": "heatmap",
        "z": matrix,
        "x": list(columns),
        "y": list(rows),
        "texttemplate": "%{z:.3f}",
        "colorscale": SEQUENTIAL,
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
    }
    defaults = {"yaxis_autorange": "reversed", "xaxis_side": "bottom"}
    return figure([cells], title=title, alt=alt, **(defaults | layout))


def boxes(
    samples: dict[str, Sequence[Any]],
    *,
    categories: Sequence[str],
    title: str,
    alt: str,
    marks: dict[str, Any] | None = None,
    **layout: Any,
) -> Figure:
    """Draw how samples spread: boxes over the middle half, whiskers from 5 to 95 percent.

    Args:
        samples: for each series, one sample (draws,) a category.
        categories: a label for each category.
        marks: for each name, single values (categories, series) placed on the boxes.
        title: what stands above the figure.
        alt: the text that says what the figure shows; it is also its caption.
        layout: further plotly layout.

    Raises:
        ValueError: a series has not one sample a category, or there are more series than colours
            or more marks than symbols.
    """
    import torch

    if len(samples) > len(COLOURS) or len(marks or {}) > len(SIGNS):
        raise ValueError(
            f"boxes tells {len(COLOURS)} series and {len(SIGNS)} marks apart; got {len(samples)} "
            f"and {len(marks or {})}. Draw several figures."
        )

    traces: list[dict[str, Any]] = []
    step = 0.8 / len(samples)
    offsets = [step * (side - (len(samples) - 1) / 2) for side in range(len(samples))]
    for (name, parts), offset, colour in zip(samples.items(), offsets, COLOURS, strict=False):
        if len(parts) != len(categories):
            raise ValueError(f"{name!r} has {len(parts)} samples for {len(categories)} categories")
        levels = torch.tensor(QUANTILES)
        quantiles = torch.stack([part.quantile(levels) for part in parts], dim=1)
        box = dict(zip(("lowerfence", "q1", "median", "q3", "upperfence"), quantiles, strict=True))
        place = {"x": [i + offset for i in range(len(parts))], "width": 0.8 * step}
        traces.append({"type": "box", "name": name, "marker_color": colour, **place, **box})
    for (name, values), (symbol, colour) in zip((marks or {}).items(), SIGNS, strict=False):
        spots = [
            (i + offsets[side], y) for i, row in enumerate(values) for side, y in enumerate(row)
        ]
        x, y = zip(*spots, strict=True)
        line = {"width": 3, "color": colour}
        marker = {"symbol": symbol, "size": 11, "color": colour, "line": line}
        points = {"type": "scatter", "mode": "markers", "marker": marker}
        traces.append({**points, "name": name, "x": list(x), "y": list(y)})
    axis = {"tickvals": list(range(len(categories))), "ticktext": list(categories)}
    return figure(traces, title=title, alt=alt, xaxis=axis, **layout)


def dots(
    runs: dict[str, dict[str, Sequence[float]]], *, title: str, alt: str, **layout: Any
) -> Figure:
    """Draw each run as a dot, a row for each kind of run, the first one on top.

    Args:
        runs: for each kind of run, which may be broken by ``<br>``, and each quantity the values of
            all its runs. Quantities are told apart by colour, by symbol and by their height in the
            row.
        title: what stands above the figure.
        alt: the text that says what the figure shows; it is also its caption.
        layout: further plotly layout.

    Raises:
        ValueError: kinds with different quantities, or more quantities than symbols.
    """
    quantities = list(next(iter(runs.values()), {}))
    if len(quantities) > len(DOTS) or any(list(kind) != quantities for kind in runs.values()):
        raise ValueError(
            f"each kind of run needs the same quantities, at most {len(DOTS)} of them; got "
            f"{[list(kind) for kind in runs.values()]}."
        )
    traces = []
    for side, quantity in enumerate(quantities):
        height = 0.4 * ((len(quantities) - 1) / 2 - side) / max(1, len(quantities) - 1)
        spots = [
            (value, -row + height, name.replace("<br>", " "))
            for row, (name, kind) in enumerate(runs.items())
            for value in kind[quantity]
        ]
        x, y, names = zip(*spots, strict=True)
        look = {"symbol": DOTS[side], "size": 11, "color": COLOURS[side], "opacity": 0.75}
        points = {"type": "scatter", "mode": "markers", "marker": look}
        # A dot's height is a place of the drawing, and no reader wants it told.
        told = f"%{{hovertext}}: {quantity} %{{x:.2f}}<extra></extra>"
        points |= {"hovertext": list(names), "hovertemplate": told}
        traces.append({**points, "name": quantity, "x": list(x), "y": list(y)})
    rows = {"tickvals": [-row for row in range(len(runs))], "ticktext": list(runs)}
    plot = 30 + 70 * len(runs)
    room: dict[str, Any] = {"height": plot + 150, "margin": {"l": 60, "r": 20, "t": 60, "b": 90}}
    # The legend stands below the title of the axis.
    room |= {"legend": {"y": -60 / plot}, "yaxis": {**rows, "zeroline": False}}
    return figure(traces, title=title, alt=alt, **(room | layout))


def lines(
    curves: dict[str, Any],
    *,
    x: Sequence[float],
    title: str,
    alt: str,
    marks: dict[str, tuple[float, float]] | None = None,
    **layout: Any,
) -> Figure:
    """Draw curves over common places, told apart by colour and by dash.

    Args:
        curves: for each name, one value (points,) for each place in x.
        x: the places.
        title: what stands above the figure.
        alt: the text that says what the figure shows; it is also its caption.
        marks: for each label, a point (x, y) to which it is written.
        layout: further plotly layout.

    Raises:
        ValueError: a curve has not one value for each place.
    """
    traces: list[dict[str, Any]] = []
    for i, (name, y) in enumerate(curves.items()):
        if len(y) != len(x):
            raise ValueError(f"{name!r} has {len(y)} values for {len(x)} places in x")
        line = {"color": LINES[i % len(LINES)], "dash": DASHES[i % len(DASHES)], "width": 3}
        curve = {"type": "scatter", "mode": "lines", "line": line}
        traces.append({**curve, "name": name, "x": list(x), "y": y})
    if marks:
        places, heights = zip(*marks.values(), strict=True)
        points = {"type": "scatter", "mode": "markers+text", "x": list(places), "y": list(heights)}
        look = {"marker": {"size": 10, "color": GREY}, "textposition": "bottom right"}
        traces.append({**points, **look, "text": list(marks), "showlegend": False})
    # Room for the title of the axis above the legend, on a phone too.
    defaults: dict[str, Any] = {"height": 460, "legend": {"y": -0.25}}
    return figure(traces, title=title, alt=alt, **(defaults | layout))


def animation(
    frames: dict[str, Sequence[Any]],
    *,
    panels: Sequence[str],
    title: str,
    alt: str,
    **layout: Any,
) -> Figure:
    """Draw the weights of heads, two beside each other, that change from frame to frame.

    The last frame shows at rest, and nothing moves unasked. Plotly draws a slider; the page has
    one that takes the keyboard, and a button to play.

    Args:
        frames: for each name, one matrix (n, n) a panel, of numbers from 0 to 1.
        panels: the titles of the panels, one a head; each has its head's colour.
        title: what stands above the figure.
        alt: the text that says what the figure shows; it is also its caption.
        layout: further plotly layout.

    Raises:
        ValueError: a frame has not one matrix a panel.
    """
    for name, matrices in frames.items():
        if len(matrices) != len(panels):
            raise ValueError(f"{name!r} has {len(matrices)} matrices for {len(panels)} panels")
    axes = ["", *range(2, len(panels) + 1)]
    look = {"type": "heatmap", "zmin": 0, "zmax": 1, "showscale": False}
    last = zip(list(frames.values())[-1], axes, cycle((BLUE, ORANGE, GREEN, PINK)), strict=False)
    at_rest = [
        {
            **look,
            "z": z,
            "xaxis": f"x{axis}",
            "yaxis": f"y{axis}",
            "colorscale": [[0.0, NONE], [1.0, colour]],
        }
        for z, axis, colour in last
    ]
    grid = {"rows": -(-len(panels) // 2), "columns": 2, "pattern": "independent", "ygap": 0.25}
    for axis, panel in zip(axes, panels, strict=True):
        square = {"scaleanchor": f"x{axis}", "constrain": "domain", "autorange": "reversed"}
        square["title"] = "query"
        above = {"title": f"{panel}: key", "side": "top", "constrain": "domain"}
        layout |= {f"xaxis{axis}": above, f"yaxis{axis}": square}
    key = f"{title} (no colour: weight 0, full colour: 1)"
    drawn = figure(at_rest, title=key, alt=alt, grid=grid, **({"height": 620} | layout))
    drawn.frames = [
        {"name": name, "data": [{"type": "heatmap", "z": tidy(z, 2)} for z in matrices]}
        for name, matrices in frames.items()
    ]
    show = {"mode": "immediate", "frame": {"duration": 0}, "transition": {"duration": 0}}
    steps = [{"label": name, "method": "animate", "args": [[name], show]} for name in frames]
    return drawn.update_layout(sliders=[{"steps": steps, "active": len(steps) - 1}])


def tidy(part: Any, places: int = PLACES) -> Any:
    """Make lists of tensors and arrays, rounded so that every machine stores the same figure."""
    if hasattr(part, "tolist"):
        part = part.tolist()
    if isinstance(part, (list, tuple)):
        return [tidy(inner, places) for inner in part]
    return round(part, places) + 0.0 if isinstance(part, float) else part  # and no -0.0
