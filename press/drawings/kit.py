"""Boxes, grids, arrows and words, put together to an SVG that reads in both themes.

A drawing is at most 420 units wide, so that its words can be read on a phone. What is written in
the elements is the light theme; by their names the page's style sheet turns the colours dark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape

from labkit.figures import palette
from labkit.figures.palette import DRAWINGS as COLOURS

WIDTH = 420
SIZE = 14  # of words; nothing is written smaller than SMALL
SMALL = 12

QUERY, KEY, VALUE = "blue", "green", "orange"
HEADS = tuple(palette.HEADS)

# Letters that stand for a number or a matrix wherever they stand alone, and a list of letters.
VARIABLE = re.compile(
    r"(?<![A-Za-z])(?:[BCKOQRUVWXdhikmnqx]|(?<=m, )l|(?<=l, )a|(?<=[·:] )c)(?![A-Za-z])"
)
SINGLE = re.compile(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
LETTERS = re.compile("A|c|[A-Zkmlv](, [A-Za-z])+")
FORMULA = 'font-family="KaTeX_Math, serif" font-style="italic" font-weight="400"'
UPRIGHT = ' font-family="KaTeX_Main, serif" font-weight="400"'  # numbers and words beside a letter


class Drawing:
    """A drawing of a height, WIDTH wide, with the origin at its top left.

    told : what is read out in its place, unless the page that shows it says so
    """

    def __init__(self, height: float, width: float = WIDTH, told: str = "") -> None:
        if width > WIDTH:
            raise ValueError(
                f"a drawing is at most {WIDTH} wide, to be read on a phone; got {width}"
            )
        self.width, self.height, self.told = width, height, told
        self.parts: list[str] = []
        self.heads: set[str] = set()

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        colour: str = "ink",
        size: float = SIZE,
        anchor: str = "middle",
        bold: bool = False,
        italic: bool = False,
        is_word: bool = False,
    ) -> None:
        """Write words on the baseline y; ``a_b`` and ``a_{bc}`` set a subscript, ``a^b`` raises.

        anchor : "start", "middle" or "end", what of the words stands at x
        is_word : a letter alone stands for a word, and not for a number or a matrix
        """
        if size < SMALL:
            raise ValueError(f"words are at least {SMALL} high, to be read on a phone; got {size}")
        inked = f"{colour}-ink" if f"{colour}-ink" in COLOURS else colour
        told = escape(words) if is_word else scripts(words, size)
        weight = ' font-weight="600"' if bold else ""
        style = ' font-style="italic"' if italic else ""
        self.parts.append(
            f'<text x="{n(x)}" y="{n(y)}" font-size="{n(size)}" text-anchor="{anchor}"'
            f"{weight}{style} {fill(inked)}>{told}</text>"
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        words: str = "",
        *,
        colour: str = "ink",
        shade: float = 0.12,
        dashed: bool = False,
        size: float = SIZE,
        round_by: float = 5,
    ) -> None:
        """Draw a tinted box with an outline, and words in its middle.

        shade : from 0, empty, to 1, full; words need at most 0.35
        """
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<rect x="{n(x)}" y="{n(y)}" width="{n(width)}" height="{n(height)}"'
            f' rx="{n(round_by)}" {fill(colour)} fill-opacity="{n(shade)}"'
            f' {stroke(colour)} stroke-width="1.5"{dash}/>'
        )
        if words:
            self.text(x + width / 2, y + height / 2 + size * 0.35, words, size=size)

    def grid(
        self,
        x: float,
        y: float,
        rows: int,
        columns: int,
        *,
        cell: float = 18,
        cell_height: float | None = None,
        colour: str | Callable[[int, int], str] = "ink",
        shade: float | Callable[[int, int], float] = 0.15,
        words: Callable[[int, int], str] | None = None,
        size: float = SMALL,
    ) -> tuple[float, float]:
        """Draw a matrix cell by cell, its top left at x, y; return its width and height.

        colour, shade, words : one for all cells, or a function of row and column, counted from 0
        """
        high = cell if cell_height is None else cell_height
        for i in range(rows):
            for j in range(columns):
                c = colour(i, j) if callable(colour) else colour
                s = shade(i, j) if callable(shade) else shade
                self.parts.append(
                    f'<rect x="{n(x + j * cell)}" y="{n(y + i * high)}" width="{n(cell)}"'
                    f' height="{n(high)}" {fill(c)} fill-opacity="{n(s)}" {stroke(c)}/>'
                )
                if words and (told := words(i, j)):
                    middle = y + (i + 0.5) * high + size * 0.35
                    self.text(x + (j + 0.5) * cell, middle, told, size=size)
        return columns * cell, rows * high

    def line(
        self,
        *points: tuple[float, float],
        colour: str = "faint",
        width: float = 1.5,
        dashed: bool = False,
    ) -> None:
        """Draw a line through points."""
        self.path("M" + "L".join(f"{n(x)} {n(y)}" for x, y in points), colour, width, dashed)

    def arrow(
        self,
        *points: tuple[float, float],
        colour: str = "faint",
        width: float = 1.5,
        curved: bool = False,
        dashed: bool = False,
    ) -> None:
        """Draw a line through points that ends in a head.

        curved : True bends it between the first and the last point, leaving and arriving level
        """
        if curved:
            (x1, y1), (x2, y2) = points[0], points[-1]
            half = (x1 + x2) / 2
            way = f"M{n(x1)} {n(y1)}C{n(half)} {n(y1)} {n(half)} {n(y2)} {n(x2)} {n(y2)}"
        else:
            way = "M" + "L".join(f"{n(x)} {n(y)}" for x, y in points)
        self.heads.add(colour)
        self.path(way, colour, width, dashed, f' marker-end="url(#head-{colour})"')

    def path(
        self,
        way: str,
        colour: str = "faint",
        width: float = 1.5,
        dashed: bool = False,
        more: str = "",
    ) -> None:
        """Draw an SVG path."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<path d="{way}" fill="none" {stroke(colour)} stroke-width="{n(width)}"{dash}{more}/>'
        )

    def svg(self) -> str:
        """Write the drawing."""
        heads = "".join(
            f'<marker id="head-{colour}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
            f' markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" {fill(colour)}/></marker>'
            for colour in sorted(self.heads)
        )
        size = f"{n(self.width)} {n(self.height)}"
        body = "\n".join(self.parts)
        label = f' role="img" aria-label="{escape(self.told)}"' if self.told else ""
        return (
            f'<svg{label} xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}"'
            ' font-family="system-ui, sans-serif">\n'
            f'<rect width="{n(self.width)}" height="{n(self.height)}" rx="8" {fill("paper")}/>\n'
            f"<defs>{heads}</defs>\n{body}\n</svg>\n"
        )


def fill(colour: str) -> str:
    return f'data-fill="{colour}" fill="{COLOURS[colour][0]}"'


def stroke(colour: str) -> str:
    return f'data-stroke="{colour}" stroke="{COLOURS[colour][0]}"'


def scripts(words: str, size: float) -> str:
    """Slant variables, and set what follows ``_`` and ``^`` lower and higher."""
    parts = re.split(r"([_^])(?:\{([^}]*)\}|(\w))", words)
    alone = re.compile("[A-Za-z]") if LETTERS.fullmatch(words) else VARIABLE
    told = slanted(parts[0], alone, len(parts) > 1)
    for i in range(1, len(parts), 4):
        sign, braced, single, after = parts[i : i + 4]
        by = size * (0.25 if sign == "_" else -0.35)
        small = max(size * 0.75, 10.8)
        script = braced or single
        script = slanted(script, SINGLE) if sign == "_" else escape(script)
        is_of_letter = not parts[i - 1] or SINGLE.search(parts[i - 1][-2:])
        face = UPRIGHT if is_of_letter and not script.endswith("</tspan>") else ""
        told += f'<tspan dy="{n(by)}" font-size="{n(small)}"{face}>{script}</tspan>'
        rest = slanted(after, alone, i + 4 < len(parts)) or chr(0x200B)
        told += f'<tspan dy="{n(-by)}">{rest}</tspan>'
    return told


def slanted(words: str, letters: re.Pattern[str], scripted: bool = False) -> str:
    """Set variables in the italics of formulas; scripted: the last letter has a script."""
    found = {place.start() for place in letters.finditer(words)}
    if scripted and SINGLE.search(words[-2:]):
        found.add(len(words) - 1)
    return "".join(
        f"<tspan {FORMULA}>{letter}</tspan>" if i in found else escape(letter)
        for i, letter in enumerate(words)
    )


def n(number: float) -> str:
    """Write a number as short as it is."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


def dark(within: str) -> str:
    """Write the style sheet of the dark theme, for drawings within a selector."""
    rules: Sequence[str] = [
        f'{within} [data-{what}="{colour}"] {{ {what}: {shades[1]}; }}'
        for colour, shades in COLOURS.items()
        for what in ("fill", "stroke")
    ]
    return "\n".join(rules)
