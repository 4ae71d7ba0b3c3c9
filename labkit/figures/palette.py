"""The colours of plots, live figures, drawings and pages: each in the light and the dark theme."""

from __future__ import annotations

# Okabe and Ito's palette, without the colours that fade on white or on black, and with a pink that
# shows as a thin line. Queries, keys and values have blue, green and orange in chapters 1 to 4,
# where there is one head; from chapter 5 on, colours belong to heads 1 to 4.
HEADS = {
    "blue": ("#0072b2", "#56b4e9"),
    "orange": ("#d55e00", "#ff9350"),
    "green": ("#009e73", "#2cc596"),
    "pink": ("#c872a2", "#e79cc6"),
}
# What one head's drawing tells apart. A word or a sign always stands with the colour.
ROLES = {
    "query": HEADS["blue"],
    "key": HEADS["green"],
    "value": HEADS["orange"],
    "weight": ("#453a9e", "#b5b0f7"),
}
DRAWINGS = {
    "ink": ("#1b1f24", "#e6e8eb"),
    "faint": ("#6b7280", "#a8b1be"),
    "paper": ("#ffffff", "#14181e"),
    "accent": ROLES["weight"],
    **HEADS,
    # Of words: dark enough to be read on paper.
    "orange-ink": ("#b04300", "#ff9350"),
    "green-ink": ("#00704f", "#2cc596"),
    "pink-ink": ("#9b3d77", "#e79cc6"),
}
# Paper, ink, and one accent that no head has. What a colour says, a word or a line says too.
PAGES = {
    "accent": ROLES["weight"],
    "tint": ("#efedf9", "#262540"),  # of what is chosen or expected
    "panel": ("#f5f3ee", "#1f2229"),
    "frame": ("#dcd8ce", "#3a3e48"),
    "string": ("#27684a", "#94cfae"),
    "number": ("#8a4500", "#e8b887"),
    "ground": ("#fdfcfa", "#15171c"),
    "raised": ("#fff", "#1f2229"),
    "text": ("#1d1f25", "#e5e4df"),
    "muted": ("#575b66", "#b4b8c1"),
    "holds": DRAWINGS["green-ink"],
    "near": ("#0062a0", "#6ab7ec"),  # of a verdict: rounded, or drawn at random
    "reading": ("#6b5b00", "#d9c35c"),  # holds in one reading
    "wrong": DRAWINGS["orange-ink"],
    "conflict": DRAWINGS["pink-ink"],
}
GREY = "#888888"


def properties(colours: dict[str, tuple[str, str]], prefix: str, *, dark: bool = False) -> str:
    """Write CSS custom properties, one a colour, in one of the themes.

    >>> properties({"blue": ("#0072b2", "#56b4e9")}, "live")
    '--live-blue: #0072b2;'
    """
    return " ".join(f"--{prefix}-{name}: {shades[dark]};" for name, shades in colours.items())
