"""Make the commit that a version is published from: ``press.publish URL``.

A badge opens a lab at a tag, and the lab installs labkit from there. So the tag is made first, from
the repository that publishes, and the pages are built from it.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from press import ROOT
from press.git import git
from press.project import GITHUB, Address, read_address
from press.stamp import write

BOOK = ("-c", "user.name=Attention, Executed", "-c", "user.email=book@users.noreply.github.com")
BUNDLES = "labkit/figures/bundles"
URLS = re.compile(r"\n\[project\.urls\]\n(?:\w.*\n)*")


def addressed(settings: str, url: str) -> str:
    """Give pyproject.toml's text with this address of the repository."""
    return f'{URLS.sub("", settings)}\n[project.urls]\nRepository = "{url}"\n'


def publish(root: Path, url: str) -> str:
    """Write the address into a clean checkout of the book, commit, and return the commit's tag.

    The commit has the live figures' bundles too, which no other has: what installs labkit from it
    needs no Node.

    Raises SystemExit if there is no address that Colab opens, if something is not committed, if the
    checkout is not the tag of its version, or if the live figures have not been bundled.
    """
    address = Address(url, read_address(root).version)
    if not address.path:
        raise SystemExit(
            f"{url or 'An empty address'} is no repository on {GITHUB}, from where Colab and "
            f"Binder open the labs. Name it: python -m press.publish https://{GITHUB}/OWNER/NAME"
        )
    if git(root, "status", "--porcelain"):
        raise SystemExit("Something here is not committed. Commit it, or take it back.")
    if f"v{address.version}" not in git(root, "tag", "--points-at", "HEAD").split():
        raise SystemExit(
            f"What is checked out is not tagged v{address.version}, its version in pyproject.toml."
        )
    if not any((root / BUNDLES).glob("*.js")):
        raise SystemExit(
            f"{BUNDLES} must hold the live figures' bundles, which Colab and Binder cannot make; "
            "it holds none. Make them: make setup"
        )
    settings = root / "pyproject.toml"
    settings.write_text(addressed(settings.read_text(encoding="utf-8"), url), encoding="utf-8")
    write(root)
    git(root, "add", "--force", BUNDLES)
    git(root, *BOOK, "commit", "--all", "--message", f"Version {address.version} at {url}")
    git(root, "tag", "--force", address.tag)
    return address.tag


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="of the repository that publishes")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout of the book")
    options = parser.parse_args()
    print(publish(options.root, options.url))


if __name__ == "__main__":
    main()
