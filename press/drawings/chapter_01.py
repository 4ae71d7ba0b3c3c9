"""Chapter 1: three roles of a token, and one row of attention."""

from __future__ import annotations

from press.drawings.kit import KEY, QUERY, VALUE, Drawing


def three_roles() -> Drawing:
    """Three tokens make keys and values, and the third asks: its query weighs the values."""
    d = Drawing(286)
    tokens, weights = ("the", "river", "bank"), (0.1, 0.6, 0.3)
    for i, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
        x = 90 + 110 * i
        d.text(x + 45, 22, token, italic=True)
        d.arrow((x + 45, 30), (x + 45, 50))
        d.box(x, 52, 40, 28, f"k_{i + 1}", colour=KEY)
        d.box(x + 50, 52, 40, 28, f"v_{i + 1}", colour=VALUE)
        d.arrow((355, 140), (355, 118), (x + 20, 118), (x + 20, 84), width=1 + 5 * weight)
        d.text(x + 20, 172, f"{weight:.1f}", bold=True)
        d.arrow((x + 70, 84), (x + 70, 196), colour=VALUE, width=1 + 6 * weight)
    d.box(334, 140, 42, 28, "q_3", colour=QUERY)
    d.text(12, 70, "roles", anchor="start", colour="faint")
    d.text(12, 122, "match", anchor="start", colour="faint")
    d.text(12, 172, "weights", anchor="start", colour="faint")
    d.box(90, 200, 310, 30, "0.1 v_1 + 0.6 v_2 + 0.3 v_3", colour=VALUE, shade=0.08)
    d.arrow((245, 232), (245, 254))
    d.text(245, 274, "what “bank” takes from its neighbours")
    return d


DRAWINGS = {"three-roles": three_roles}
