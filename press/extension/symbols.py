"""What the ledger writes as plain text, set as a page sets it: symbols, code, emphasis."""

from __future__ import annotations

import re

TAG = re.compile(r"(<[^>]+>)")
CODE = re.compile(r"`([^`]+)`")
EMPHASIS = re.compile(r"(?<![\w*])\*(\w[^*]*?)\*(?![\w*])")
MARK = r"(?:model|ff|key|keys|queries|dec|enc|all|[A-Za-z0-9])"
# A letter, a name or a number, with what stands below and above it.
SYMBOL = re.compile(
    rf"(?<![\w./`^])([A-Za-z]|QK|head|seq|\d+)((?:_{MARK})*)((?:\^[A-Za-z0-9])?)(?![\w(^]|\.\w)"
)

# A letter that stands alone is a variable, unless it is a word, a sign, or the end of one.
WORD = re.compile(r"a|I|A(?= [a-z])|x(?= (?:n\b|\d))|(?<=[-;’'])\w")


def typeset(html: str) -> str:
    """Set the symbols, the code and the emphasis of a text that is HTML already.

    >>> typeset("d_model^2 of W^O, *some* of `x`")
    '<i>d</i><sub>model</sub><sup>2</sup> of <i>W<sup>O</sup></i>, <em>some</em> of <code>x</code>'
    >>> typeset("a head of n tokens")
    'a head of <i>n</i> tokens'
    """
    pieces = TAG.split(html)
    pieces[::2] = map(set_text, pieces[::2])
    return "".join(pieces)


def set_text(text: str) -> str:
    parts = CODE.split(text)
    parts[::2] = [EMPHASIS.sub(r"<em>\1</em>", SYMBOL.sub(symbol, part)) for part in parts[::2]]
    parts[1::2] = [f"<code>{part}</code>" for part in parts[1::2]]
    return "".join(parts)


def symbol(match: re.Match[str]) -> str:
    base, below, above = match.groups()
    if not below and not above:
        is_letter = base.isalpha() and len(base) == 1
        is_word = WORD.match(match.string, match.start())
        return f"<i>{base}</i>" if is_letter and not is_word else base
    marks = [f"<sub>{mark}</sub>" for mark in below.split("_")[1:]]
    marks += [f"<sup>{above[1:]}</sup>"] if above else []
    if len(base) > 1 or base.isdigit():
        return base + "".join(marks)
    # What is a letter too leans with its letter; a word or a number stands.
    leaning = all(len(re.sub("<[^>]+>", "", mark)) == 1 and mark[5].isalpha() for mark in marks)
    inside, outside = ("".join(marks), "") if leaning else ("", "".join(marks))
    return f"<i>{base}{inside}</i>{outside}"


def setup(app: object) -> dict[str, bool]:
    return {"parallel_read_safe": True, "parallel_write_safe": True}
