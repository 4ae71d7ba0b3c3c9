"""Links that report a mistake, at each page and at each claim, where the book has an address."""

from __future__ import annotations

from html import escape
from typing import Any
from urllib.parse import quote, urlencode

from sphinx.application import Sphinx

from labkit.ledger import Claim
from press.extension.social import without_tex
from press.project import Address, read_address

QUESTIONS = ("What it says", "What you find instead", "The shortest computation that shows it")


def of_claim(address: Address, claim: Claim) -> str:
    """Write the link that reports a mistake in what is said of a claim."""
    return link(address, claim.key, [f"Claim: {claim.key}", f"Where: {claim.where}"])


def of_page(address: Address, name: str, title: str) -> str:
    """Write the link that reports a mistake on a page."""
    return link(address, title, [f"Page: {name}"])


def link(address: Address, title: str, about: list[str]) -> str:
    """Write a link to a new issue; GitHub lets it be filled in. No address, no link."""
    if not address.repository:
        return ""
    target = address.repository
    if address.path:
        questions = (f"\n{question}:\n" for question in QUESTIONS)
        lines = [*about, f"Version: {address.version}", *questions]
        fields = {"title": f"Mistake: {title}", "body": "\n".join(lines)}
        target = (
            f"https://github.com/{address.path}/issues/new?{urlencode(fields, quote_via=quote)}"
        )
    return f'<a class="report" href="{escape(target)}">Report a mistake</a>'


def add_link(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Write the link below the text of a page."""
    if doctree is not None:
        title = without_tex(app.env.titles[pagename].astext())
        reported = of_page(app.config.lives_at, pagename, title)
        context["body"] += f"<p>{reported}</p>" if reported else ""


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("lives_at", read_address(), "env")
    app.connect("html-page-context", add_link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
