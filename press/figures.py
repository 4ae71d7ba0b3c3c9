"""Bundle the live figures' modules: ``python -m press.figures`` writes one a figure, for Jupyter.

A page gets one classic script for all its figures, since modules need a server.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection

from labkit.figures.base import BUNDLES, SCRIPTS
from labkit.figures.live import FIGURES
from press.node import esbuild


def write() -> None:
    """Write each figure with all it imports as one ES module, and take older ones away."""
    shutil.rmtree(BUNDLES, ignore_errors=True)
    entries = [f"{figure.name}.js" for figure in FIGURES]
    esbuild(SCRIPTS, *entries, "--format=esm", f"--outdir={BUNDLES}")


def page_script(names: Collection[str]) -> str:
    """Give what a page with these figures runs: a classic script that mounts them."""
    lines = [f'import {name} from "./{name}.js";' for name in names]
    entry = "\n".join(
        ['import { offer } from "./page.js";', *lines, f"offer({{ {', '.join(names)} }});"]
    )
    return esbuild(SCRIPTS, "--format=iife", entry=entry)


if __name__ == "__main__":
    write()
