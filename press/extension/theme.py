"""The theme's code where it makes a page wait: each page is styled once and measured once."""

from __future__ import annotations

from sphinx.errors import ExtensionError

# The theme colours a page anew when its scripts run, if nobody has chosen light or dark: all its
# elements are styled a second time. The head can ask the system as well.
UNDECIDED = 'localStorage.getItem("theme") || "auto";'
DECIDED = (
    '({ light: "light", dark: "dark" })[document.documentElement.dataset.mode]'
    ' || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");'
)
# What scrolls by itself is given a place in the order of the keyboard. Written at once, each asks
# for a new layout before the next is measured.
IN_TURN = "e.tabIndex=e.scrollWidth>e.clientWidth||e.scrollHeight>e.clientHeight?0:-1"
AT_LAST = (
    "const scrolls=e.scrollWidth>e.clientWidth||e.scrollHeight>e.clientHeight;"
    "queueMicrotask(()=>{e.tabIndex=scrolls?0:-1})"
)


def decided(page: str) -> str:
    """Let a page know before it is drawn whether it is light or dark."""
    return put(page, UNDECIDED, DECIDED)


def measured_once(script: str) -> str:
    """Let the theme's script measure all that scrolls before it writes."""
    return put(script, IN_TURN, AT_LAST)


def put(text: str, old: str, new: str) -> str:
    if old not in text:
        raise ExtensionError(f"the theme no longer holds {old!r}: see press/extension/theme.py")
    return text.replace(old, new)


def setup(app: object) -> dict[str, bool]:
    return {"parallel_read_safe": True, "parallel_write_safe": True}
