"""Write the repository's address and version where a reader meets them: ``press.stamp [--check]``.

Both stand in pyproject.toml: ``[project] version`` and ``[project.urls] Repository``. From there
they go into each lab's badges and setup cell, into the book's links and into CITATION.cff. Without
an address there are no badges and no links, rather than dead ones.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

import nbformat
from ruamel.yaml import YAML

from press import ROOT
from press.notebooks import find
from press.project import Address, read_address

# Only labkit is installed: Colab keeps its own torch, numpy and ipywidgets.
SETUP = """\
from importlib.util import find_spec
from pathlib import Path

if not find_spec("labkit"):
    beside = sorted(Path().glob("attention_executed-*.whl"))
    source = beside[-1] if beside else {requirement}
    if not source:
        raise ModuleNotFoundError(
            "labkit is not installed, and this copy of the book does not know "
            "where to get it. Download labkit's wheel from the book's page of "
            "labs, put it beside this notebook, and run this cell again."
        )
    %pip install --quiet --no-deps "{{source}}\""""


def setup_cell(address: Address) -> str:
    """Write the setup cell, the same in all labs."""
    requirement = f'"{address.requirement}"' if address.requirement else "None"
    return SETUP.format(requirement=requirement)


def badges(address: Address, lab: str) -> str | None:
    """Write the links that open a lab in Colab and in Binder."""
    if not address.path:
        return None
    images = "../book/_static"
    colab = f"https://colab.research.google.com/github/{address.path}/blob/{address.tag}/{lab}"
    binder = f"https://mybinder.org/v2/gh/{address.path}/{address.tag}?labpath={lab}"
    return (
        f"[![Open in Colab]({images}/open-in-colab.svg)]({colab}) "
        f"[![Open in Binder]({images}/open-in-binder.svg)]({binder})"
    )


def stamped_lab(path: Path, root: Path, address: Address) -> str:
    """Give a lab's text with this address in its badges and its setup cell."""
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if "badges" not in tags(cell)]
    links = badges(address, path.relative_to(root).as_posix())
    if links:
        metadata = {"tags": ["badges"]}
        cells.insert(1, nbformat.v4.new_markdown_cell(links, id="badges", metadata=metadata))
    for cell in cells:
        if "setup" in tags(cell):
            cell.source = setup_cell(address)
    notebook.cells = cells
    return nbformat.writes(notebook) + "\n"


def tags(cell: nbformat.NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def stamped_config(path: Path, address: Address) -> str:
    """Give the book's configuration with its links switched on or off."""
    yaml, data = load(path)
    theme = data["sphinx"]["config"]["html_theme_options"]
    theme["use_repository_button"] = bool(address.repository)
    for name in ("repository_url", "repository_branch"):
        theme.pop(name, None)
    if address.repository:
        theme |= {"repository_url": address.repository, "repository_branch": address.tag}
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
    address = read_address(root)
    labs = [path for path in find(root) if path.parent.name == "labs"]
    return {
        **{lab: stamped_lab(lab, root, address) for lab in labs},
        root / "_config.yml": stamped_config(root / "_config.yml", address),
        root / "CITATION.cff": stamped_citation(root / "CITATION.cff", address),
    }


def stale(root: Path) -> dict[Path, str]:
    """Give the stamped files that disagree with pyproject.toml, with the text they should have."""
    texts = stamped(root)
    return {p: text for p, text in texts.items() if p.read_text(encoding="utf-8") != text}


def write(root: Path) -> list[Path]:
    """Stamp a copy of the book, and list the files that changed."""
    texts = stale(root)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8", newline="\n")
    return list(texts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="another copy of the book")
    options = parser.parse_args()
    found = list(stale(options.root)) if options.check else write(options.root)
    for path in found:
        print(f"{path.relative_to(options.root)}: {'stale' if options.check else 'stamped'}")
    return 1 if options.check and found else 0


if __name__ == "__main__":
    sys.exit(main())
