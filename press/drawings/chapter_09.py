"""Chapter 9: what one picture shows, and how a head is tested."""

from __future__ import annotations

from press.drawings.kit import HEADS, Drawing


def one_fine_picture() -> Drawing:
    """A head that gives most of its weight from "it" to "animal", and three things it may like."""
    d = Drawing(218)
    words = {"the animal": 42, "didn't cross": 126, "the street": 207, "because": 277, "it": 318}
    for word, x in (words | {"was too tired": 373}).items():
        d.text(x, 116, word, bold=word in ("the animal", "the street", "it"))
    asks, animal, street = words["it"], words["the animal"], words["the street"]
    d.arrow((asks, 98), (asks, 40), (animal, 40), (animal, 98), colour=HEADS[0], width=3)
    d.arrow((asks - 8, 98), (asks - 8, 72), (street, 72), (street, 98), colour=HEADS[0], width=1)
    d.text((asks + animal) / 2, 32, "most of its weight", colour=HEADS[0], size=13)
    d.text((asks - 8 + street) / 2, 66, "a little", colour=HEADS[0], size=13)
    for i, question in enumerate(("takes the subject?", "the first noun?", "the living thing?")):
        d.box(12 + 134 * i, 140, 128, 30, question, shade=0.06, size=13)
    d.text(210, 200, "or does it understand?", bold=True)
    return d


def choose_then_count() -> Drawing:
    """Some sentences to choose a head on, others to count on."""
    d = Drawing(232)
    for k, (title, x) in enumerate((("choose on these", 14), ("count on these", 276))):
        d.text(x + 65, 22, title, bold=True)
        for i in range(6):
            d.box(x, 36 + 26 * i, 130, 20, shade=0.25 if k else 0.06)
            d.line((x + 10, 46 + 26 * i), (x + 84 + 7 * ((5 * i + 3 * k) % 6), 46 + 26 * i))
    d.text(210, 92, "72 heads")
    d.arrow((150, 112), (270, 112), colour=HEADS[0], width=3)
    d.text(210, 134, "the best one", colour=HEADS[0], size=13)
    d.text(79, 216, "60 of 60: no proof", colour="faint")
    d.text(341, 216, "how many of 60?", colour="faint")
    return d


DRAWINGS = {"one-fine-picture": one_fine_picture, "choose-then-count": choose_then_count}
