"""Write the repository's address and version where a reader meets them: ``press.stamp [--check]``.

Both stand in pyproject.toml: ``[project] version`` and ``[project.urls] Repository``. From there
they go into each lab's badges and setup cell, into the book's links and into CITATION.cff. Without
an address there are no badges and no links, rather than dead ones.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
from ruamel.yaml import YAML

from press import ROOT
from press.notebooks import find
from press.project import settings

GITHUB = "github.com"
NO_ADDRESS = """\
    raise RuntimeError(
        "This copy of the book does not say where labkit can be installed from. "
        "Make its wheel with `make wheel`, upload it here, and run in a cell of "
        "its own: %pip install --no-deps {wheel}"
    )"""


@dataclass(frozen=True)
class Address:
    """Where the book lives: a repository, or a wheel, or nowhere yet."""

    url: str | None
    version: str

    @property
    def path(self) -> str | None:
        """Give owner/name on GitHub: Colab and Binder open repositories from there."""
        parts = urlsplit(self.url or "")
        return parts.path.strip("/").removesuffix(".git") if parts.hostname == GITHUB else None

    @property
    def is_wheel(self) -> bool:
        return (self.url or "").endswith(".whl")

    @property
    def repository(self) -> str | None:
        """Give the repository's address, if that is what the address is."""
        return None if self.is_wheel else self.url

    @property
    def requirement(self) -> str:
        """Say what pip installs: the wheel, or the repository at this version."""
        source = self.url if self.is_wheel else f"git+{self.url}@v{self.version}"
        return f"attention-executed @ {source}"

    def setup(self) -> str:
        """Write the setup cell, the same in all labs."""
        install = f'    %pip install --quiet --no-deps "{self.requirement}"'
        if not self.url:
            install = NO_ADDRESS.format(wheel=f"attention_executed-{self.version}-py3-none-any.whl")
        # Only labkit: Colab keeps its own torch, numpy and ipywidgets.
        return f'import sys\n\nif "google.colab" in sys.modules:\n{install}'

    def badges(self, lab: str) -> str | None:
        """Write the links that open a lab in Colab and in Binder."""
        if not self.path:
            return None
        at, images = f"{self.path}/blob/v{self.version}/{lab}", "../book/_static"
        colab = f"https://colab.research.google.com/github/{at}"
        binder = f"https://mybinder.org/v2/gh/{self.path}/v{self.version}?labpath={lab}"
        return (
            f"[![Open in Colab]({images}/open-in-colab.svg)]({colab}) "
            f"[![Open in Binder]({images}/open-in-binder.svg)]({binder})"
        )


def read(root: Path) -> Address:
    """Read address and version from pyproject.toml."""
    project = settings(root)
    return Address(project.get("urls", {}).get("Repository"), project["version"])


def pages_address(root: Path = ROOT) -> str:
    """Return the address that the built pages are published at, or nothing.

    A workflow that publishes them knows it, in BOOK_ADDRESS; else pyproject.toml may state it.
    """
    return os.environ.get("BOOK_ADDRESS") or settings(root).get("urls", {}).get("Documentation", "")


def stamped_lab(path: Path, root: Path, address: Address) -> str:
    """Give a lab's text with this address in its badges and its setup cell."""
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if "badges" not in tags(cell)]
    badges = address.badges(path.relative_to(root).as_posix())
    if badges:
        metadata = {"tags": ["badges"]}
        cells.insert(1, nbformat.v4.new_markdown_cell(badges, id="badges", metadata=metadata))
    for cell in cells:
        if "setup" in tags(cell):
            cell.source = address.setup()
    notebook.cells = cells
    return nbformat.writes(notebook) + "\n"


def tags(cell: nbformat.NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def stamped_config(path: Path, address: Address) -> str:
    """Give the book's configuration with its links switched on or off."""
    yaml, data = load(path)
    for name in ("use_issues_button", "use_repository_button", "use_edit_page_button"):
        data["html"][name] = bool(address.repository)
    data.pop("repository", None)
    if address.repository:
        data["repository"] = {"url": address.repository, "branch": f"v{address.version}"}
    return dump(yaml, data)


def stamped_citation(path: Path, address: Address) -> str:
    """Give the citation with this version, and with the address if there is one."""
    yaml, data = load(path)
    data["version"] = address.version
    data.pop("repository-code", None)
    if address.repository:
        data["repository-code"] = address.repository
    return dump(yaml, data)


def load(path: Path) -> tuple[YAML, dict]:
    yaml = YAML()
    yaml.width, yaml.preserve_quotes = 100, True
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml, yaml.load(path.read_text(encoding="utf-8"))


def dump(yaml: YAML, data: dict) -> str:
    text = io.StringIO()
    yaml.dump(data, text)
    return text.getvalue()


def stamped(root: Path) -> dict[Path, str]:
    """Give all stamped files with the text they should have."""
    address = read(root)
    labs = [path for path in find(root) if path.parent.name == "labs"]
    return {
        **{lab: stamped_lab(lab, root, address) for lab in labs},
        root / "_config.yml": stamped_config(root / "_config.yml", address),
        root / "CITATION.cff": stamped_citation(root / "CITATION.cff", address),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="another copy of the book")
    options = parser.parse_args()
    wanted = stamped(options.root)
    stale = [path for path, text in wanted.items() if path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.relative_to(options.root)}: {'stale' if options.check else 'stamped'}")
        if not options.check:
            path.write_text(wanted[path], encoding="utf-8", newline="\n")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
