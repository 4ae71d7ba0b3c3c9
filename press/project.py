"""What pyproject.toml says of the project: its version, and where it lives."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from press import ROOT

PROJECT = ROOT / "pyproject.toml"
GITHUB = "github.com"


@dataclass(frozen=True)
class Address:
    """Where the book lives: a repository, or nowhere yet."""

    repository: str | None
    version: str

    @property
    def path(self) -> str | None:
        """Give owner/name on GitHub: Colab and Binder open repositories from there."""
        parts = urlsplit(self.repository or "")
        return parts.path.strip("/").removesuffix(".git") if parts.hostname == GITHUB else None

    @property
    def tag(self) -> str:
        """Name the tag of the stamped version, which publishing makes."""
        return f"published-v{self.version}"

    @property
    def requirement(self) -> str | None:
        """Say what pip installs: the repository at this version."""
        if not self.repository:
            return None
        return f"attention-executed @ git+{self.repository}@{self.tag}"


def settings(root: Path = ROOT) -> dict[str, Any]:
    """Read the project's own table, of this copy of the book or of another."""
    text = (root / PROJECT.name).read_text(encoding="utf-8")
    return tomllib.loads(text)["project"]


def read_address(root: Path = ROOT) -> Address:
    """Read address and version from pyproject.toml."""
    project = settings(root)
    return Address(project.get("urls", {}).get("Repository"), project["version"])


def pages_address(root: Path = ROOT) -> str:
    """Return the address that the built pages are published at, or nothing.

    A workflow that publishes them knows it, in BOOK_ADDRESS; else pyproject.toml may state it.
    """
    return os.environ.get("BOOK_ADDRESS") or settings(root).get("urls", {}).get("Documentation", "")


def wheel_name() -> str:
    """Name labkit's wheel of this version."""
    return f"attention_executed-{settings()['version']}-py3-none-any.whl"
