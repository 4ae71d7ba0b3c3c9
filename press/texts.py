"""What the nodes of a page say as plain text, and the section they stand in."""

from __future__ import annotations

import re
from collections.abc import Iterator

from docutils import nodes
from sphinx import addnodes

# What TeX writes by name. A name that is not here stays as a word.
SIGNS = {
    "sqrt": "√", "infty": "∞", "cdot": "·", "times": "×", "top": "T", "sum": "Σ", "partial": "∂",
    "approx": "≈", "le": "≤", "ge": "≥", "ne": "≠", "neq": "≠", "to": "→", "in": "∈", "circ": "∘",
    "lVert": "‖", "rVert": "‖", "dots": "…", "ldots": "…", "cdots": "…", "propto": "∝",
    "Longrightarrow": "⟹", "lceil": "⌈", "rceil": "⌉", "emptyset": "∅", "bmod": "mod", "alpha": "α",
    "beta": "β", "theta": "θ", "sigma": "σ", "phi": "φ",
}  # fmt: skip
TYPESETTING = r"\\(?:text|operatorname|math[a-z]+|[bB]igg?[lr]?|left|right|overline|bar|q?quad)\b"
BRACED = r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
FRACTION = re.compile(rf"\\[td]?frac\s*(?:{BRACED}|(\d))\s*(?:{BRACED}|(\d))")
ROOT = re.compile(rf"\\sqrt\s*{BRACED}")
# What takes more than a line to set, nobody reads in one.
DRAWN = re.compile(r"\\(?:begin|underbrace|overbrace)\b")
LONG = 80  # characters of a formula that an excerpt still gives

SKIPPED = (nodes.raw, nodes.comment, nodes.Invisible, nodes.image, addnodes.toctree, addnodes.index)


def text_of(node: nodes.Node) -> str:
    """Write what a node says, with its formulas as one types them."""
    return " ".join("".join(pieces(node)).split())


def pieces(node: nodes.Node) -> Iterator[str]:
    if isinstance(node, (nodes.math, nodes.math_block)):
        yield formula_text(node.astext())
    elif isinstance(node, nodes.Text):
        yield node.astext()
    elif not isinstance(node, SKIPPED):
        for child in node.children:
            yield from pieces(child)


def formula_text(tex: str) -> str:
    r"""Write a formula as one types it, and what takes more than a line as an ellipsis.

    >>> formula_text(r"\frac{QK^\top}{\sqrt{d_k + d_r}}"), formula_text(r"\tfrac1{15}")
    ('QK^T/√(d_k + d_r)', '1/15')
    >>> formula_text(r"-\infty"), formula_text(r"\sqrt 2"), formula_text(r"d_\text{kv-lora}")
    ('−∞', '√2', 'd_(kv-lora)')
    """
    if DRAWN.search(tex):
        return "…"
    tex = re.sub(r"\\[,;:! ]|\\\\(?:\[\w+\])?", " ", re.sub(TYPESETTING, "", tex))
    tex = ROOT.sub(lambda match: f"√{whole(match[1])}", tex)
    while tex != (tex := FRACTION.sub(fraction, tex)):
        pass
    tex = re.sub(r"\\([A-Za-z]+)", lambda match: SIGNS.get(match[1], match[0]), tex)
    tex = re.sub(r"√\s+(?=\w)", "√", tex)
    tex = re.sub(r"-(?!\w)|(?<!\w)-|-(?=\d)", "−", tex)
    tex = re.sub(r"([_^√])\{(\w+)\}", r"\1\2", tex)
    tex = re.sub(r"([_^])\{\(?([^{}()]*)\)?\}", r"\1(\2)", tex)
    text = re.sub(r"[\\{}]", "", tex)
    return text if len(text) <= LONG else "…"


def fraction(match: re.Match[str]) -> str:
    above, below = (part.strip() for part in match.groups() if part is not None)
    return f"{whole(above)}/{whole(below)}"


def whole(part: str) -> str:
    return f"({part})" if re.search(r"\S\s", re.sub(r"\([^()]*\)", "", part)) else part


def section_of(node: nodes.Node) -> nodes.section | None:
    """Find the section that a node stands in."""
    around = node.parent
    while around and not isinstance(around, nodes.section):
        around = around.parent
    return around


def numberless(title: str) -> str:
    """Leave out a number that stands before a title: a result shows it beside."""
    return re.sub(r"^\d+\.\s+", "", title)
