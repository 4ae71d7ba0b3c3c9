"""Chapter 8: four heads with a job each, and two heads that make one mechanism."""

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


def two_heads_copy() -> Drawing:
    """A stretch a b c, then a: one head carries a one place on, the other finds it there."""
    d = Drawing(250)
    x = [16 + 84 * i for i in range(4)]
    for i, token in enumerate("abca"):
        d.box(x[i], 20, 50, 28, token, shade=0.06)
        d.box(x[i], 108, 50, 40, "" if i == 1 else token, shade=0.06)
        d.arrow((x[i] + 25, 50), (x[i] + 25, 106))
    d.arrow((x[0] + 42, 50), (x[1] + 10, 106), colour=HEADS[0], width=2)
    d.text(x[1] + 25, 124, "b", size=SMALL)
    d.text(x[1] + 25, 141, "after a", size=SMALL, colour=HEADS[0])
    below = (x[1] + 25, 150), (x[1] + 25, 182), (x[3] + 25, 182), (x[3] + 25, 152)
    d.arrow(*below, colour=HEADS[1], width=2)
    d.text(x[2] + 25, 176, "reads “after a”", size=SMALL, colour=HEADS[1])
    d.arrow((x[3] + 52, 128), (x[3] + 74, 128))
    d.text(x[3] + 108, 133, "next: b", bold=True, size=13)
    head_1, head_2 = "head 1, layer 1: gives each place", "head 2, layer 2: from the second a"
    d.text(12, 212, f"{head_1} the token before it", anchor="start", colour=HEADS[0], size=13)
    d.text(12, 236, f"{head_2}, finds what follows an a", anchor="start", colour=HEADS[1], size=13)
    return d


DRAWINGS = {"jobs-of-heads": jobs_of_heads, "two-heads-copy": two_heads_copy}
