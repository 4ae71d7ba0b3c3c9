"""Judge a test by a zoo: sound implementations that it must accept, and unsound ones to reject.

The docstring of a sound implementation says how it goes about its task, that of an unsound one what
an observer could notice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from labkit.labs.guard import Answer, Outcome, right

Implementation = Callable[..., Any]
Test = Callable[[Implementation], bool]
Zoo = tuple[Implementation, ...]
TIMES = 3  # that a test is asked about each implementation


def judge(answer: Answer, argument: str, sound: Zoo, unsound: Zoo, times: int = TIMES) -> None:
    """Hand over every implementation several times; demand True for sound ones, False for others.

    They come in an order of chance, numbered as they come, so that neither tells which is sound.
    What the test itself draws depends on the implementation and the time, not on that order; and of
    several complaints the first is made, in the order of the list. So the same test is told the
    same. Prints that the answer is right, or raises Wrong.
    """
    listed = (*sound, *unsound)
    turns = [(place, time) for place in range(len(listed)) for time in range(times)]
    random.SystemRandom().shuffle(turns)
    mistaken: dict[tuple[int, int], Outcome] = {}
    for number, (place, time) in enumerate(turns, start=1):
        answer.seed[0] = times * place + time
        outcome = answer(**{argument: numbered(listed[place], number)})
        if outcome.truth() != (place < len(sound)):
            mistaken[place, time] = outcome
    for (place, _), outcome in sorted(mistaken.items(), key=lambda item: item[0]):
        seen = listed[place].__doc__
        outcome.demand(
            place >= len(sound),
            f"True: it is sound, {seen}",
            "came False, a false alarm; print what it compares, and how closely",
        )
        outcome.demand(False, f"False: {seen}", "came True: the bug went unnoticed")
    remark = f"It accepts {len(sound)} sound implementations and tells {len(unsound)} bugs."
    right(answer.name, remark)


def numbered(implementation: Implementation, number: int) -> Implementation:
    """Wrap a function so that its name, which a message shows, gives nothing away."""

    def anonymous(*arguments: Any, **named: Any) -> Any:
        return implementation(*arguments, **named)

    anonymous.__name__ = f"implementation {number}"
    return anonymous
