"""Judge a test by a zoo: sound implementations that it must accept, and unsound ones to reject.

The docstring of a sound implementation says how it goes about its task, that of an unsound one what
an observer could notice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from labkit.labs.guard import Answer, complaint, right

Implementation = Callable[..., Any]
Test = Callable[[Implementation], bool]
Zoo = tuple[Implementation, ...]
EXPECTED = "True for what is sound, False for what has a bug"
TIMES = 3  # that a test is asked about each implementation
BUGS_TOLD, ALARMS_TOLD = 4, 2  # in one message; the others are counted


def judge(
    answer: Answer, argument: str, sound: Zoo, unsound: Zoo, times: int | None = None
) -> None:
    """Hand over every implementation several times; demand True for sound ones, False for others.

    How often is TIMES unless given. They come in an order of chance and without their names, so
    that neither tells which is sound. What the test itself draws depends on the implementation and
    the time, not on that order: the same test gets the same score.

    Prints the score of a test that makes no mistake, or raises Wrong with the score and the first
    few mistakes, in the order of the list. A test that has refused every sound implementation once
    is not asked again: that has a cause of its own.
    """
    listed, times = (*sound, *unsound), TIMES if times is None else times
    mistakes = [0] * len(listed)
    for time in range(times):
        places = list(range(len(listed)))
        random.SystemRandom().shuffle(places)
        for place in places:
            answer.seed[0] = times * place + time
            said = answer(**{argument: unnamed(listed[place])}).truth()
            mistakes[place] += said != (place < len(sound))
        if time == 0 and all(mistakes[: len(sound)]):
            judged = zip(unsound, mistakes[len(sound) :], strict=True)
            accepted = tuple(one for one, mistaken in judged if mistaken)
            refuses_all(answer, len(sound), len(unsound), accepted)
    alarms = described(sound, mistakes[: len(sound)], times)
    missed = described(unsound, mistakes[len(sound) :], times)
    found = len(unsound) - len(missed)
    score = f"ound {found} of {len(unsound)} bugs; false alarms: {len(alarms)} of {len(sound)}."
    if not (alarms or missed):
        right(answer.name, f"F{score}")
        return
    told = [f"f{score}"]
    if alarms:
        told.append("Sound, and refused; print what your test compares, and how closely:")
        told += shortened(alarms, ALARMS_TOLD)
    if missed:
        told.append("These bugs got away, and could have been noticed:")
        told += shortened(missed, BUGS_TOLD)
    raise complaint(answer.name, expected=EXPECTED, happened=("\n" + 12 * " ").join(told))


def refuses_all(answer: Answer, sound: int, unsound: int, accepted: Zoo) -> None:
    """Raise Wrong for a test that accepts nothing that is sound, and say what is likely."""
    told = f"Sound, and refused: all {sound}. Of {unsound} bugs, it accepted {len(accepted)}"
    compare = (
        "compare what it trusts with the card, by hand and for one small input; then ask whether "
        "it leaves room for rounding."
    )
    if 2 * len(accepted) > unsound:
        told += ". Is its meaning reversed, True for a bug?"
    elif accepted:
        told += f", such as: {accepted[0].__doc__}. Is that what it trusts? If not, {compare}"
    else:
        told += f". Does it ever return True? If so, {compare}"
    raise complaint(answer.name, expected=EXPECTED, happened=told)


def described(zoo: Zoo, mistakes: Sequence[int], times: int) -> list[str]:
    """Say of each implementation that a test was mistaken about what it is."""
    return [
        f"- {one.__doc__}" + (f" ({count} of {times} times)" if count < times else "")
        for one, count in zip(zoo, mistakes, strict=True)
        if count
    ]


def shortened(lines: list[str], most: int) -> list[str]:
    """Keep the first few lines and count the rest."""
    rest = len(lines) - most
    return lines if rest <= 0 else [*lines[:most], f"- and {rest} more"]


def unnamed(implementation: Implementation) -> Implementation:
    """Wrap a function so that its name, which a message shows, gives nothing away."""
    one = getattr(implementation, "fresh", lambda: implementation)()

    def anonymous(*arguments: Any, **named: Any) -> Any:
        return one(*arguments, **named)

    anonymous.__name__ = "an implementation"
    return anonymous


def with_memory(function: Implementation) -> Implementation:
    """Hand an implementation a dictionary before its arguments, a fresh one in each turn."""

    def fresh() -> Implementation:
        memory: dict[Any, Any] = {}

        @wraps(function)
        def remembering(*arguments: Any, **named: Any) -> Any:
            return function(memory, *arguments, **named)

        return remembering

    implementation = fresh()
    implementation.fresh = fresh  # type: ignore[attr-defined]
    return implementation
