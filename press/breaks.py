"""Where a line of code may end on a phone, in a block as in a sentence.

It ends at a space, before an operator rather than behind it; where that leaves too much, before the
dot that follows a call, behind an opening bracket or a comma. What brackets hold is not torn
apart if it is short, a string not if it fits a line. Within a name a line ends only where nothing
else fits, which is the browser's to see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

SHORT = 20  # characters in brackets that stay together
STRING = re.compile(r"""(?<!\w)[bfr]*(["'])(?:\\.|(?!\1).)+\1""")
REMARK = re.compile(r"(?<!\S)#.*")
HELD = re.compile(r"\{[^{}]*\}|(?<=[\"']) | (?=[\"']$)")  # of a string: what it is filled with
BRACKETS = re.compile(r"[(\[{]|[)\]}]")
# A line does not end behind these.
TIES = re.compile(
    r"(?<!\S)(?:->|\*\*|//|[<>!=]=|[-+*/@%<>|&]|and|else|for|if|in|is|lambda|not|or|return) "
)
BEHIND = re.compile(r"(?<=[(\[])(?![)\]])|(?<=,)")
CALL = re.compile(r"(?<=[)\]])(?=\.[A-Za-z_])")
# Where a browser would end a line.
BREAKS = re.compile(r" |[-–?/|](?=\w)|[})\]](?=[\w({\[])|[\"'](?=\{)")
# What is printed ends with a number and what it is read with.
LAST = re.compile(r"(?:\d+ of|\S{1,12}) [\d.,%)\]]+$")
TAG = re.compile("<[^>]+>")
PIECE = re.compile(r"<[^>]+>|&#?\w+;|.|\n")


def pieces(text: str, room: int, *, is_code: bool = True) -> list[tuple[int, int]]:
    """Find what a line may be broken into, told by places in its text.

    >>> line = 'count = (said != pocket.ANSWERS.index(one.answer)).long()'
    >>> [line[start:stop] for start, stop in pieces(line, 30)]
    ['count', '=', '(said', '!= pocket.ANSWERS.index(', 'one.answer))', '.long()']
    >>> line = 'for name, answer in (("mia", 0), ("ben", 1)):'
    >>> [line[start:stop] for start, stop in pieces(line, 30)]
    ['for name,', 'answer', 'in (("mia", 0),', '("ben", 1)):']
    """
    told = whole(text, room, is_code=is_code)
    parts = [match.span() for match in re.finditer(r"\S+", told)]
    for end in (CALL, BEHIND):
        parts = [piece for part in parts for piece in cut(told, part, end, room)]
    return parts


def whole(text: str, room: int, *, is_code: bool) -> str:
    """Write a line without the spaces and signs at which it does not end."""
    short = min(SHORT, room) if is_code else room
    if is_code:
        text = STRING.sub(lambda found: string(found[0], room), text)
        text = REMARK.sub(lambda found: re.sub(r"\S", "_", found[0]), text)
        text = TIES.sub(lambda found: found[0][:-1] + "_", text)
    else:
        text = LAST.sub(lambda found: "_" * len(found[0]), text)
    opened = list[int]()
    for bracket in BRACKETS.finditer(text):
        if bracket[0] in "([{":
            opened.append(bracket.start())
        elif opened and bracket.end() - (start := opened.pop()) <= short:
            inner = "_" * (bracket.start() - start - 1)
            text = text[: start + 1] + inner + text[bracket.start() :]
    return text


def string(text: str, room: int) -> str:
    """Mark what a string has, but for the spaces at which one that is too long may end.

    >>> string('"a b"', 30), string('f" {a + b}, too long"', 10)
    ('_____', '___________ ___ _____')
    """
    if len(text) > room:
        text = HELD.sub(lambda found: "_" * len(found[0]), text)
    return re.sub(r"\S" if len(text) > room else ".", "_", text)


def cut(
    text: str, part: tuple[int, int], end: re.Pattern[str], room: int
) -> Iterable[tuple[int, int]]:
    start, stop = part
    if stop - start <= room:
        return [part]
    inside = [at.start() for at in end.finditer(text, *part) if start < at.start() < stop]
    return pairwise([start, *inside, stop])


def marked(line: str, text: str, room: int, *, is_code: bool = True, name: str = "joined") -> str:
    """Write a line's HTML so that it breaks into its pieces and nowhere else.

    >>> marked("s.<b>sum</b>(a, -1)", "s.sum(a, -1)", 26)
    '<span class="joined">s.<b>sum</b>(a, -1)</span>'
    """
    html = PIECE.findall(line)
    at = [i for i, piece in enumerate(html) if not piece.startswith("<")]
    found = pieces(text, room, is_code=is_code)
    behind = {stop for _, stop in found}
    for start, stop in reversed(found):
        first, last = at[start], at[stop - 1] + 1
        if BREAKS.search(text, start, stop) and stop - start <= room:
            first, last = with_tags(html, first, last)
            inner = "".join(html[first:last])
            if is_whole(inner):
                html[first:last] = [f'<span class="{name}">{inner}</span>']
        if start in behind:
            html.insert(first, "<wbr>")
    return "".join(html)


def with_tags(html: list[str], first: int, last: int) -> tuple[int, int]:
    """Take in the tags beside a part that close or open what the part does not."""
    depth = least = 0
    for piece in html[first:last]:
        depth += -1 if piece == "</span>" else piece.startswith("<span")
        least = min(least, depth)
    while least and first and html[first - 1].startswith("<span"):
        first, least, depth = first - 1, least + 1, depth + 1
    while depth and last < len(html) and html[last] == "</span>":
        last, depth = last + 1, depth - 1
    while first and html[first - 1].startswith("<span") and html[last : last + 1] == ["</span>"]:
        first, last = first - 1, last + 1
    return first, last


def is_whole(html: str) -> bool:
    """Say whether a piece of HTML closes what it opens, and nothing else.

    >>> is_whole("<b>a</b>b"), is_whole("a</b><b>b"), is_whole("<b>a")
    (True, False, False)
    """
    depth = 0
    for tag in TAG.findall(html):
        depth += -1 if tag.startswith("</") else 1
        if depth < 0:
            return False
    return depth == 0
