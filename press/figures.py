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


def figure_of(module: str) -> str:
    """Name the figure that a module draws: that of its name, or of which it is a variant."""
    return next(one.name for one in FIGURES if f"{module}_".startswith(f"{one.name}_"))


def page_script(names: Collection[str]) -> str:
    """Give what a page with figures of these modules runs: a classic script that mounts them."""
    lines = [f'import {name} from "./{name}.js";' for name in names]
    figures = ", ".join(f"{figure_of(name)}: {name}" for name in names)
    entry = "\n".join(['import { offer } from "./page.js";', *lines, f"offer({{ {figures} }});"])
    return esbuild(SCRIPTS, "--format=iife", entry=entry)


if __name__ == "__main__":
    write()
