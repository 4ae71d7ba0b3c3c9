"""Chapter 8: four heads with a job each."""

from __future__ import annotations

from press.drawings.kit import HEADS, SMALL, Drawing

OFFSETS = (3, 1, 2, 5)  # of heads 1 to 4, in start 0


def jobs_of_heads() -> Drawing:
    """Four heads of one position, each looking another number of places back."""
    d = Drawing(236)
    for i in range(6):
        x = 24 + 66 * i
        d.box(x, 176, 42, 28, f"t_{i + 1}", colour="ink", shade=0.25 if i == 5 else 0.06)
    here = 24 + 66 * 5 + 21
    for head, offset in enumerate(OFFSETS):
        further = sorted(OFFSETS).index(offset)  # the further, the higher
        there, high = here - 66 * offset, 150 - 34 * further
        start = here - 12 + 8 * further
        d.arrow(
            (start, 174), (start, high), (there, high), (there, 174), colour=HEADS[head], width=2
        )
        d.text((there + start) / 2, high - 5, f"head {head + 1}", size=SMALL, colour=HEADS[head])
    d.text(here, 224, "reports", colour="faint", size=SMALL)
    return d


DRAWINGS = {"jobs-of-heads": jobs_of_heads}
