"""Build labkit's wheel: ``press.wheel FOLDER``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from press import ROOT
from press.project import settings


def name() -> str:
    """Name the wheel of this version."""
    return f"attention_executed-{settings()['version']}-py3-none-any.whl"


def build(folder: Path) -> Path:
    """Build the wheel in a folder, without asking a network, and return its path."""
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # a module that is gone would still be in it
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    how = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([*pip, *how, str(ROOT)], check=True)
    return folder / name()


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
